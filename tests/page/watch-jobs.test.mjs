/** Watch's list of everybody's jobs, the way to one by its id, and one job's whole history, against the running Worker. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, test } from "node:test";
import { eventually, KEYS, MODEL, start, submission } from "../e2e/harness.mjs";
import { startReceiver } from "../e2e/receiver.mjs";
import { assertAccessible, describeInBrowser, later, open, PHONE, untilFocused } from "./browser.mjs";
import { watch } from "./operator.mjs";

const FALLBACK = "claude-haiku-5-5";

describeInBrowser("Watch's jobs", async (browser) => {
  const receiver = await startReceiver({
    "/gone?token=hidden": [{ status: 410 }],
    "/dead?token=hidden": [{ status: 500 }],
    "/late?token=hidden": [{ status: 500 }],
  });
  const spillway = await start({
    policy: {
      webhooks: { give_up_seconds: 4, backoff: { base_ms: 100, cap_ms: 1_000 } },
      breaker: { consecutive_failures: 4, consecutive_seconds: 0, consecutive_hard: 4, open_seconds: 3 },
      call: { total_seconds: 60 },
    },
    script: {
      rules: [
        { when: { marker: "[[twice]]", model: MODEL }, then: { status: 529 } },
        { when: { marker: "[[refused]]" }, then: { status: 400 } },
      ],
    },
  });
  after(() => (receiver.stop(), spillway.stop()));
  const row = (page, id) => page.locator(`.jobs a[href="#watch/${id}"]`);
  const asOperator = async (id) => (await spillway.job(id, { client: "operator" })).body;
  const done = async (body, options) => {
    const id = await spillway.accepted(body, options);
    await spillway.untilDone(id, { client: options?.client });
    return id;
  };
  /** The facts of the job that is shown, by their names; and what happened, as [what, when and how]. */
  /** Without the dates, which moments have that are not of today: midnight comes at any time. */
  const undated = (texts) => JSON.parse(JSON.stringify(texts).replace(/\d+ \w+ \d{4}, /g, ""));
  const facts = (page) =>
    page
      .locator(".facts > div")
      .evaluateAll((all) => Object.fromEntries(all.map((it) => [...it.children].map((child) => child.textContent))))
      .then(undated);
  const steps = (page, part = "What happened") =>
    page
      .getByRole("region", { name: part })
      .locator("li")
      .evaluateAll((all) => all.map((it) => [...it.children].map((child) => child.textContent)))
      .then(undated);
  const exactly = (at) => new Date(at).toLocaleTimeString("en-GB", { timeZone: "UTC" });

  test("a job that failed twice and was answered by the smaller model has its whole history", async () => {
    const id = await done(submission("[[twice]]", { kind: "tagging", priority: "medium" }));
    const { page, clean } = await open(browser, spillway.url, { hash: `#watch/${id}` });
    await page.getByText("Operator key").first().waitFor();
    await page.getByLabel("Operator key").fill(KEYS.operator);
    await page.getByRole("button", { name: "Use key" }).click();
    await page.getByRole("heading", { name: id }).waitFor();
    await page.getByText(`${FALLBACK} answered: ${MODEL} was overloaded.`).waitFor();
    const job = await asOperator(id);
    assert.equal((await spillway.job(id)).body.operator, undefined, "its app is not told all of that");
    const shown = await facts(page);
    assert.deepEqual(
      ["Client", "Kind and priority", "Model asked for", "Model that answered", "Calls", "Attempts used up"].map(
        (it) => shown[it],
      ),
      ["app", "tagging, medium", MODEL, FALLBACK, "3", String(job.attempts)],
    );
    assert.equal(shown.Tokens, `${job.result.usage.input_tokens} in, ${job.result.usage.output_tokens} out`);
    assert.ok(shown.Over.startsWith(exactly(job.finished_at)) && shown.Deadline.endsWith(exactly(job.deadline_at)));
    assert.equal(job.history.length, 2);
    const wait = (ms) => `${(ms / 1000).toLocaleString("en-GB", { maximumFractionDigits: 2 })} s`;
    const failed = job.history.map(({ at, model, costs_attempt, computed_wait_ms, real_wait_ms, request_id }) => {
      const used = costs_attempt ? "used an attempt up" : "used no attempt up";
      const waits = [computed_wait_ms !== null && `drew a wait of ${wait(computed_wait_ms)}`, real_wait_ms !== null && `waited ${wait(real_wait_ms)}`]; // prettier-ignore
      const more = [model, used, ...waits, `request ${request_id}`].filter(Boolean).join("; ");
      return ["Claude was overloaded. (529)", `${exactly(at)} · ${more}`];
    });
    assert.deepEqual(await steps(page), [
      ["Submitted", exactly(job.created_at)],
      ...failed,
      [`Answered by ${FALLBACK}`, exactly(job.finished_at)],
    ]);
    assert.equal(await page.getByRole("link", { name: "Act on it" }).getAttribute("href"), `#operate/${id}`);
    assert.equal((await steps(page, "Webhook")).length, 0);
    await assertAccessible(page);

    // It is done again, which is no news of the job's own: looking again shows it.
    const again = (await spillway.request(`/v1/jobs/${id}/regenerate`, { method: "POST" })).body.id;
    await page.getByRole("link", { name: "All jobs" }).click();
    await row(page, id).click();
    await page.getByRole("link", { name: again }).click();
    await page.getByRole("heading", { name: again }).waitFor();
    await page.locator(".facts").getByRole("link", { name: id }).waitFor();
    await clean();
  });

  test("a job that is held says why and until when, live, and what it was held for when it is over", async () => {
    await spillway.fake.setScript({ rules: [{ when: { model: MODEL }, then: { status: 529 } }] });
    const jobs = await Promise.all([1, 2, 3].map((n) => spillway.accepted(submission(`[[held-${n}]]`))));
    const id = jobs[2];
    const { page, clean } = await open(browser, spillway.url, { hash: `#watch/${id}`, clock: true });
    await page.getByLabel("Operator key").fill(KEYS.operator);
    await page.getByRole("button", { name: "Use key" }).click();
    await page.locator('.pill[data-status="held"]').waitFor();
    await page.getByText(/Looked at again in (\d+ s|any moment)/).waitFor();
    await page.getByText("it waits still").waitFor();
    await assertAccessible(page);
    await spillway.fake.setScript({ rules: [] });
    await Promise.all(jobs.map((job) => spillway.untilDone(job)));
    await page.locator('.pill[data-status="done"]').waitFor();
    const { operator, history, calls } = await asOperator(id);
    const shown = await steps(page);
    assert.equal(shown.length, 2 + history.length + operator.stays.length);
    assert.ok(operator.stays.length >= 1);
    for (const { from, until, waits } of operator.stays) {
      const [, how] = shown.find(([, how]) => how.startsWith(`${exactly(from)} · until ${exactly(until)}`));
      assert.equal(how.includes("waits in a row"), waits > 1);
    }
    assert.equal((await facts(page)).Calls, String(calls));
    assert.deepEqual(await later(page, 60_000), [], "nothing more is asked of a job that is over");
    await clean();
  });

  test("a webhook that was given up or refused is marked in the list, and told try by try", async () => {
    const hook = (path) => submission(`[[${path}]]`, { webhook: `${receiver.url(path)}?token=hidden` });
    const [taken, gone, dead] = [await done(hook("/taken")), await done(hook("/gone")), await done(hook("/dead"))];
    await eventually(async () => {
      const { jobs } = (await spillway.list("", { client: "operator" })).body;
      return [gone, dead].every((id) => jobs.find((job) => job.id === id).webhook);
    });
    const late = await done(hook("/late"));
    const { page, clean } = await open(browser, spillway.url, { hash: "#watch" });
    await watch(page);
    await row(page, gone).getByText("webhook disabled").waitFor();
    await row(page, dead).getByText("webhook given up").waitFor();
    assert.equal(await row(page, taken).locator(".badge").count(), 0);
    await assertAccessible(page);

    // One that is tried for still is followed after its job's end.
    await row(page, late).click();
    await page.getByText(/job.done: (tried again in|given up)/).waitFor();
    await page.getByText(/job.done: given up/).waitFor();
    await page.goBack();
    await row(page, dead).click();
    const { webhook } = await asOperator(dead);
    const [{ attempts, given_up_at }] = webhook.events;
    const told = [`job.done: given up ${exactly(given_up_at)}`, `${attempts} tries · 500`];
    await page.getByText(/job.done: given up/).waitFor();
    assert.deepEqual(await steps(page, "Webhook"), [told]);
    const target = page.getByRole("region", { name: "Webhook" }).locator("code").first();
    assert.equal(await target.textContent(), receiver.url("/dead"), "without what may be a secret");
    await page.goBack();
    await row(page, gone).click();
    await page.getByText(/^Disabled at .*: the target said that it wants nothing/).waitFor();
    await assertAccessible(page);
    await clean();
  });

  test("a job is found by its id, and what is none, or nobody's, is said to be so", async () => {
    const id = await done(submission("[[sought]]"), { client: "web" });
    const { page, clean } = await open(browser, spillway.url, { hash: "#watch" });
    await watch(page);
    const field = page.getByLabel("Job id");
    for (const [typed, answer] of [
      ["", /A job’s id is job_ and 32 digits/],
      ["job_123", /A job’s id is job_ and 32 digits/],
      [id.toUpperCase(), /A job’s id is job_ and 32 digits/],
      ["job_ffffffffffffffffffffffffffffffff", /There is no job with this id/],
    ]) {
      await field.fill(typed);
      await page.keyboard.press("Enter");
      await page.getByRole("alert").getByText(answer).waitFor();
      assert.equal(await field.getAttribute("aria-invalid"), "true");
      await untilFocused(field);
    }
    await assertAccessible(page);
    await field.fill(`  ${id}\n`);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: id }).waitFor();
    await eventually(async () => (await facts(page)).Client === "web");
    assert.equal(new URL(page.url()).hash, `#watch/${id}`);
    await page.goto(`${spillway.url}/#watch/job_ffffffffffffffffffffffffffffffff`);
    await page.getByText("There is no job with this id").last().waitFor();
    assert.equal(await page.locator(".facts").isVisible(), false, "and nothing of another job is left there");
    await clean([/status of 404/]);
  });

  test("the list goes on by pages and by status, and is as it was left on the way back", async () => {
    const jobs = [];
    for (let n = 0; n < 27; n += 1) jobs.push(await spillway.accepted(submission(`[[page-${n}]]`)));
    await Promise.all(jobs.map((job) => spillway.untilDone(job)));
    const failed = await spillway.accepted(submission("[[refused]]"));
    await spillway.fake.setScript({ rules: [{ when: { marker: "[[refused]]" }, then: { status: 400 } }] });
    const refused = await spillway.accepted(submission("[[refused]]", { kind: "tagging" }), { client: "web" });
    await spillway.untilStatus(refused, "failed", { client: "web" });
    const { page, clean } = await open(browser, spillway.url, { hash: "#watch" });
    await watch(page);
    const rows = page.locator(".jobs a");
    await rows.nth(19).waitFor();
    assert.equal(await rows.count(), 20);
    assert.match(await rows.first().textContent(), /Failed.*web, tagging/);
    await page.getByRole("button", { name: "More" }).click();
    await rows.nth(39).or(rows.nth(28)).first().waitFor();
    const shown = await rows.evaluateAll((all) => all.map(({ hash }) => hash.replace("#watch/", "")));
    const { jobs: all } = (await spillway.list("limit=100", { client: "operator" })).body;
    assert.deepEqual(shown, all.slice(0, shown.length).map(({ id }) => id)); // prettier-ignore

    // What is new comes on top, and the page that was opened stays open; so does the place where the reader was.
    const chosen = jobs[3];
    await row(page, chosen).focus();
    const fresh = await done(submission("[[fresh]]"));
    await row(page, fresh).waitFor();
    await untilFocused(row(page, chosen));
    await row(page, chosen).scrollIntoViewIfNeeded();
    const top = await page.evaluate(() => scrollY);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: chosen }).waitFor();
    await untilFocused(page.getByRole("heading", { name: chosen }));
    await page.getByRole("link", { name: "All jobs" }).click();
    await row(page, chosen).waitFor();
    await untilFocused(row(page, chosen));
    assert.ok(Math.abs((await page.evaluate(() => scrollY)) - top) < 5);
    assert.ok((await rows.count()) >= shown.length);

    await page.getByLabel("Status", { exact: true }).selectOption("failed");
    await row(page, chosen).waitFor({ state: "detached" });
    await row(page, refused).waitFor();
    const statuses = await page.locator(".jobs .pill").evaluateAll((all) => all.map(({ textContent }) => textContent));
    assert.deepEqual(new Set(statuses), new Set(["Failed"]));
    await page.getByLabel("Status", { exact: true }).selectOption("stalled");
    await page.getByText("None is “Asking”").waitFor();
    assert.ok(failed);
    await clean();
  });

  test("list and history fit a phone", async () => {
    const { jobs } = (await spillway.list("", { client: "operator" })).body;
    const { page, clean } = await open(browser, spillway.url, { hash: "#watch", ...PHONE });
    await watch(page);
    await row(page, jobs[0].id).waitFor();
    for (const place of ["list", "job"]) {
      const { scrollWidth, clientWidth } = await page.evaluate(() => document.documentElement);
      assert.equal(scrollWidth, clientWidth, place);
      await assertAccessible(page);
      if (place === "list") await row(page, jobs[0].id).tap();
      if (place === "list") await page.locator(".steps-taken li").first().waitFor();
    }
    await clean();
  });
});
