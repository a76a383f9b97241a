/**
 * The page's view Operate in a real browser, during a storm: each knob is turned on the page, and what comes of it is said by the API
 * and by the fake Claude's log.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, beforeEach, test } from "node:test";
import { root } from "../../scripts/lib/paths.mjs";
import { eventually, KEYS, MODEL, start, submission } from "../e2e/harness.mjs";
import { assertAccessible, describeInBrowser, line, open, PHONE, untilFocused } from "./browser.mjs";
import { giveOperatorKey } from "./operator.mjs";

const DOWN = { rules: [{ when: { model: MODEL }, then: { status: 529 } }] };
const NEVER_OPEN = { consecutive_hard: 500, minimum_calls: 500, consecutive_failures: 500 };
const NOTE = "the status page says until four";

const form = (page, name) => page.getByRole("form", { name, exact: true });
const question = (page) => page.getByRole("group");
const orders = (page) => page.locator(".orders > li");

/** Fills a form in, `radios` and texts by their labels, and asks for what it will do. */
async function ask(page, name, { radios = [], model, why } = {}) {
  const fields = form(page, name);
  for (const label of radios) await fields.getByLabel(label, { exact: true }).check();
  if (model) await fields.getByLabel("Model", { exact: true }).selectOption(model);
  if (why) await fields.getByLabel("Why", { exact: true }).fill(why);
  await fields.getByRole("button").click();
}

/** What a question says, once it is asked. */
async function asked(page, title) {
  const group = page.getByRole("group", { name: title });
  await untilFocused(group.getByRole("heading"));
  return group.textContent();
}

/** Every request but those that only look. */
function sent(page) {
  const requests = [];
  page.on("request", (it) => it.method() !== "GET" && requests.push(`${it.method()} ${new URL(it.url()).pathname}`));
  return requests;
}

describeInBrowser("Operate", async (browser) => {
  const spillway = await start({
    policy: { breaker: { consecutive_failures: 2, consecutive_seconds: 0, consecutive_hard: 2, open_seconds: 600 } },
  });
  after(() => spillway.stop());
  const operator = async (path, options) => (await spillway.request(path, { as: "operator", ...options })).body;

  beforeEach(async () => {
    await spillway.fake.setScript({});
    for (const path of [
      `/v1/gates/${MODEL}/override`,
      ...["high", "medium", "low"].map((it) => `/v1/queues/${it}/pause`),
      "/v1/drain",
    ])
      await operator(path, { method: "DELETE" });
    const { jobs } = await operator("/v1/jobs?limit=100");
    const unfinished = jobs.filter(({ finished_at }) => !finished_at);
    await Promise.all(unfinished.map(({ id }) => spillway.cancel(id)));
    await eventually(async () => (await operator("/v1/queues")).unfinished === 0);
  });

  async function opened(options) {
    const opened = await open(browser, spillway.url, { hash: "#operate", ...options });
    await giveOperatorKey(opened.page);
    await opened.page.locator(".states li").first().waitFor();
    return opened;
  }

  test("forces a gate open during an outage, with an end and a note, shows it to whoever looks, and ends it", async () => {
    const { page, clean } = await opened();
    const requests = sent(page);
    await page.getByText("Nothing: every gate and every queue goes by itself.").waitFor();
    await spillway.fake.setScript(DOWN);
    const jobs = await Promise.all([1, 2].map((n) => spillway.accepted(submission(`[[job-${n}]]`))));
    await page.locator(".states li", { hasText: MODEL }).getByText("Shut").waitFor();
    await page.getByLabel("Your name").fill("Ada");
    await ask(page, "Force a gate", { model: MODEL, radios: ["open: nobody calls", "1 h"], why: NOTE });
    const said = await asked(page, `Force ${MODEL} open for 1 h?`);
    for (const words of [/Nobody calls/, /Nothing is lost/, /within two minutes/]) assert.match(said, words);
    assert.deepEqual(requests, [], "it is only asked");
    await assertAccessible(page);
    const yes = page.getByRole("button", { name: "Yes, force it open" });
    await yes.dispatchEvent("click", { detail: 2 });
    assert.deepEqual(requests, [], "the second half of a double click on what asked is no answer");
    await yes.evaluate((button) => [1, 2].forEach(() => button.click()));
    await orders(page).waitFor();
    assert.deepEqual(requests, [`PUT /v1/gates/${MODEL}/override`], "two clicks are one order");
    const { override } = (await spillway.gates())[MODEL];
    assert.deepEqual([override.state, override.author, override.note], ["open", "Ada", NOTE]);
    assert.ok(override.seconds_left > 3_580 && override.seconds_left <= 3_600, `${override.seconds_left}`);
    assert.match(
      await orders(page).textContent(),
      new RegExp(`${MODEL} is forced open.*(1 h 0|59) min \\d+ s left.*${NOTE}.*Ada`),
    );
    const left = () => orders(page).locator(".left").textContent();
    const [seen, readings] = [new Set(), []];
    page.on("request", (request) => request.url().endsWith("/v1/gates") && readings.push(request));
    await eventually(async () => seen.add(await left()).size === 3);
    assert.ok(readings.length <= 1, "the page counts it down by itself");
    await assertAccessible(page);
    const elsewhere = await opened();
    assert.match(await orders(elsewhere.page).textContent(), /is forced open.*Ada/, "another tab sees it, too");
    await elsewhere.clean();

    if (process.env.WRITE_DOCS) await picture(page);

    await spillway.fake.setScript({});
    const calls = spillway.calls().length;
    const held = await spillway.accepted(submission("[[held]]"));
    await spillway.untilStatus(held, "held");
    assert.equal(spillway.calls().length, calls);
    await page
      .getByRole("form", { name: `End the override of ${MODEL}` })
      .getByRole("button")
      .click();
    await asked(page, `Let the gate of ${MODEL} decide again?`);
    await page.getByRole("button", { name: "Yes, end it" }).click();
    await page.getByText(`The gate of ${MODEL} decides again.`).waitFor();
    await page.getByText("Nothing: every gate and every queue goes by itself.").waitFor();
    assert.equal(await orders(page).count(), 0);
    await untilFocused(page.getByRole("heading", { name: "In force now" }));
    assert.equal((await spillway.gates())[MODEL].override, null);
    await ask(page, "Re-drive all", { radios: ["wait"] });
    assert.match(await asked(page, "Re-drive all that wait?"), /Unfinished: 3 jobs\. .*calls are made and paid for/);
    await page.getByRole("button", { name: "Yes, re-drive up to 3 jobs" }).click();
    await page.getByText("Over: 3 jobs looked at, 3 sent again.").waitFor();
    for (const id of [...jobs, held]) await spillway.untilDone(id);
    assert.equal(spillway.calls().length, calls + 3, "one call each");
    await clean();
  });

  /** As the README shows it, in an outage: with a question that has just been asked. */
  async function picture(page) {
    await page.emulateMedia({ colorScheme: "light" });
    await ask(page, "Pause a queue", { radios: ["low", "1 h"], why: "users first, until it is over" });
    await page.locator("h1").click();
    await page.setViewportSize({ width: 1160, height: 1300 });
    await page.screenshot({ path: join(root, "docs", "page-operate.png") });
    await page.getByRole("button", { name: "No, go back" }).click();
  }

  test("pauses low while high goes on, and resumes it", async () => {
    const { page, clean } = await opened();
    await page.getByLabel("Your name").fill("Grace");
    await ask(page, "Pause a queue", { radios: ["low", "15 min"], why: NOTE });
    assert.match(await asked(page, "Pause low for 15 min?"), /their deadlines go on.*up to 60 s/);
    await page.getByRole("button", { name: "Yes, pause low" }).click();
    await orders(page).getByText("Queue low is paused").waitFor();
    const now = await operator("/v1/queues");
    assert.equal(now.queues.low.paused.note, NOTE);
    const without = { ...now, queues: { ...now.queues, low: { unfinished: 0, paused: null } } };
    const saying = (version) =>
      page.route("**/v1/queues", (route) =>
        route.fulfill({ json: { ...without, versions: { ...now.versions, low: version } } }),
      );
    await saying(now.versions.low - 1);
    for (let n = 0; n < 2; n += 1) await page.waitForResponse("**/v1/queues");
    assert.equal(await orders(page).count(), 1, "what the server says is older than what it has answered");
    await page.unroute("**/v1/queues");
    await saying(now.versions.low + 1);
    await orders(page).waitFor({ state: "detached" });
    await page.unroute("**/v1/queues");
    await orders(page).getByText("Queue low is paused").waitFor();
    const views = page.getByRole("navigation");
    await views.getByRole("link", { name: "Watch" }).click();
    await page.getByText(/Jobs of priority low are paused by Grace until .*the status page says until four/).waitFor();
    await assertAccessible(page);
    await views.getByRole("link", { name: "Operate" }).click();
    const low = await spillway.accepted(submission("[[low]]", { priority: "low" }));
    await spillway.untilDone(await spillway.accepted(submission("[[high]]")));
    await page.locator(".states li", { hasText: "low" }).getByText("1 job unfinished").waitFor();
    assert.equal(spillway.calls({ marker: "low" }).length, 0);
    await assertAccessible(page);
    await page.getByRole("form", { name: "Resume low" }).getByRole("button").click();
    await page.getByRole("button", { name: "Yes, resume low" }).click();
    await page.getByText("low goes on.").waitFor();
    await ask(page, "Pause a queue", { radios: ["medium"], why: "another" });
    await page.getByRole("button", { name: "Yes, pause medium" }).click();
    await orders(page).getByText("Queue medium is paused").waitFor();
    const { medium, low: resumed } = (await operator("/v1/queues")).queues;
    assert.deepEqual([medium.paused.author, resumed.paused], ["Grace", null], "the name is remembered");
    await spillway.untilDone(low);
    assert.equal(spillway.calls({ marker: "low" }).length, 1);
    await clean();
  });

  test("drains: apps are refused with the note, what is there goes down to nothing, and it is ended", async () => {
    // Whom the script names fails, and tries again every second or so, until it names it no more.
    const patient = await start({ policy: { max_attempts: 100, max_calls: 1_000, breaker: NEVER_OPEN } });
    after(() => patient.stop());
    const holdBack = (...markers) =>
      patient.fake.setScript({ rules: markers.map((marker) => ({ when: { marker }, then: { status: 500 } })) });
    await holdBack("[[first]]", "[[last]]");
    const { page, clean } = await open(browser, patient.url, { hash: "#operate" });
    await giveOperatorKey(page);
    await page.locator(".states li").first().waitFor();
    const jobs = [];
    for (const marker of ["first", "last"]) jobs.push(await patient.accepted(submission(`[[${marker}]]`)));
    await page.getByText("2 jobs unfinished.", { exact: true }).waitFor();
    await ask(page, "Drain", { why: NOTE });
    assert.match(await asked(page, "Take nothing new for 15 min?"), /503.*your note.*: 2 jobs\./s);
    await page.getByRole("button", { name: "Yes, drain" }).click();
    await orders(page).getByText("Draining: 2 jobs unfinished").waitFor();
    const refused = await patient.submit(submission("[[refused]]"));
    assert.equal(refused.status, 503);
    assert.ok(refused.body.error.message.includes(NOTE), refused.text);
    await holdBack("[[last]]");
    await orders(page).getByText("Draining: 1 job unfinished").waitFor();
    await holdBack();
    await orders(page).getByText("Drained", { exact: true }).waitFor();
    for (const id of jobs) assert.equal((await patient.job(id)).body.status, "done");
    assert.equal(patient.calls({ marker: "refused" }).length, 0);
    await assertAccessible(page);
    await page.getByRole("form", { name: "End the drain" }).getByRole("button").click();
    await page.getByRole("button", { name: "Yes, end the drain" }).click();
    await page.getByText("New jobs are taken again.").waitFor();
    await patient.untilDone(await patient.accepted(submission("[[taken]]")));
    await clean();
  });

  test("re-drives what has failed in an outage, with one call for each, and tells when it has been done before", async () => {
    const failing = await start({ policy: { max_attempts: 1, breaker: NEVER_OPEN } });
    after(() => failing.stop());
    await failing.fake.setScript({ rules: [{ then: { status: 500 } }] });
    const fails = (n) => failing.accepted(submission(`[[failed-${n}]]`, { when_exhausted: "fail" }));
    // The newest is re-driven first, and is the first of the list: "not needed" comes before all others.
    const older = await Promise.all(Array.from({ length: 11 }, (_, n) => fails(n)));
    const ids = [await fails(11), ...older];
    for (const id of ids) assert.equal((await failing.untilStatus(id, "failed")).reason, "attempts_exhausted");
    await failing.fake.setScript({});
    const during = failing.calls().length;
    const { page, clean } = await open(browser, failing.url, { hash: `#operate/${ids[0]}` });
    await giveOperatorKey(page);
    await page
      .getByText(/refused as such, .*to wait, and .*broke off are left alone, unless you choose them\.$/)
      .waitFor();
    const one = form(page, "Re-drive one job");
    const id = one.getByLabel("One job, by its id");
    assert.equal(await id.inputValue(), ids[0]);
    await one.getByRole("button").click();
    assert.match(await asked(page, `Re-drive ${ids[0]}?`), /as a new job.*calls are made and paid for/);
    await page.getByRole("button", { name: "Yes, re-drive it" }).click();
    const said = await one
      .getByText(/^It is done again as a new job\. The job that does it again: job_[0-9a-f]{32}$/)
      .textContent();
    const again = said.slice(-36);
    await failing.untilDone(again);
    for (const [text, fault] of [
      ["", /is missing/],
      ["job_none", /is no job that there is/],
      [again, /is done: there is nothing to re-drive/],
    ]) {
      // prettier-ignore
      await id.fill(text);
      await one.getByRole("button").click();
      await one.getByText(fault).waitFor();
    }

    // Ten a page: it is stopped after the first, and goes on from there.
    let answer;
    await page.route("**/v1/jobs/redrive", async (route) => {
      await new Promise((resolve) => (answer = resolve));
      await route.continue();
    });
    await ask(page, "Re-drive all", {});
    assert.match(await asked(page, "Re-drive all that have failed?"), /: 12 jobs\./);
    await assertAccessible(page);
    await page.getByRole("button", { name: "Yes, re-drive 12 jobs" }).dblclick();
    await page.getByRole("button", { name: "Stop" }).click();
    answer();
    await page.getByText("Stopped: 10 jobs of at most 12 looked at").waitFor();
    await assertAccessible(page);
    await page.unroute("**/v1/jobs/redrive");
    await page.route("**/v1/jobs/redrive", (route) =>
      route.fulfill({ status: 503, json: { error: { message: "not now" } } }),
    );
    await page.getByRole("button", { name: "Go on" }).click();
    await page.getByText("not now").waitFor();
    await page.unroute("**/v1/jobs/redrive");
    await page.getByRole("button", { name: "Go on" }).click();
    await page.getByText("Over: 12 jobs looked at, 11 done again as a new job, 1 not needed.").waitFor();
    await failing.untilCalls((calls) => calls.length >= during + 12);
    await eventually(async () => (await failing.request("/v1/queues", { as: "operator" })).body.unfinished === 0);
    const markers = failing.calls().slice(during).map(({ marker }) => marker); // prettier-ignore
    assert.deepEqual(markers.toSorted(), ids.map((_, n) => `failed-${n}`).sort(), "one call each");
    await ask(page, "Re-drive all", {});
    await page.getByRole("button", { name: "Yes, re-drive 12 jobs" }).click();
    await page.getByText("Over: 12 jobs looked at, 12 not needed.").waitFor();
    const all = form(page, "Re-drive all");
    await all.getByLabel("Why they failed").selectOption("deadline_exceeded");
    await all.getByLabel("Since").fill("2026-01-01T10:00");
    await ask(page, "Re-drive all", {});
    assert.match(await asked(page, "Re-drive all that have failed?"), /12 jobs, of which it is those whose reason is/);
    const request = page.waitForRequest("**/v1/jobs/redrive");
    await page.getByRole("button", { name: "Yes, re-drive up to 12 jobs" }).click();
    const body = { status: "failed", reason: "deadline_exceeded", since: "2026-01-01T10:00:00.000Z", limit: 10 };
    assert.deepEqual((await request).postDataJSON(), body);
    await page.getByText("Over: 12 jobs looked at, 12 not needed.").waitFor();
    await all.getByLabel("Since").fill("2100-01-01T10:00");
    await all.getByRole("button").click();
    await page.getByText("No job has failed since then.").waitFor();
    assert.equal(failing.calls().length, during + 12);
    await clean([/status of (404|503)/]);
  });

  test("shows what is wrong at its field, the API's word too, and keeps what was typed", async () => {
    const { page, clean } = await opened();
    const fields = form(page, "Force a gate");
    const fault = (label) =>
      fields.getByLabel(label, { exact: true }).evaluate((input) => {
        const fault = document.getElementById(input.getAttribute("aria-describedby").split(" ")[0]);
        return fault.hidden ? "" : fault.textContent;
      });
    await ask(page, "Force a gate", { radios: ["until …"] });
    for (const [label, words] of [
      ["Model", /It is missing/],
      ["The moment", /It needs a day/],
      ["Why", /It is needed/],
    ]) {
      assert.match(await fault(label), words);
    }
    const first = fields.getByLabel("Model", { exact: true });
    await untilFocused(first);
    await first.selectOption(MODEL);
    await fields.getByLabel("The moment").fill("2020-01-01T10:00");
    await fields.getByLabel("Why").fill("why");
    await fields.getByRole("button").click();
    assert.match(await fault("The moment"), /It has to be in the future/);
    await fields.getByLabel("The moment").fill("2100-01-01T10:00");
    await fields.getByLabel("Why").fill("n".repeat(501));
    await fields.getByRole("button").click();
    await page.getByRole("button", { name: "Yes, force it open" }).click();
    await fields.getByText("at most 7 days away, in RFC 3339").waitFor();
    for (const [label, words] of [
      ["The moment", /It must be a moment in the future/],
      ["Why", /It must be a text of 1 to 500 characters/],
    ]) {
      assert.match(await fault(label), words);
    }
    assert.equal((await fields.getByLabel("Why").inputValue()).length, 501);
    await page.getByLabel("Your name").fill("A".repeat(101));
    await fields.getByRole("button").click();
    await page.getByRole("button", { name: "Yes, force it open" }).click();
    await page.getByText("It must be a text of 1 to 100 characters, who.").waitFor();
    await assertAccessible(page);
    await clean([/status of 400/]);
  });

  test("forces the gate of a model that nobody has called yet", async () => {
    const { page, clean } = await opened();
    const fields = form(page, "Force a gate");
    await ask(page, "Force a gate", { model: "another …", why: NOTE });
    await fields.getByText("It is missing.").waitFor();
    const typed = fields.getByLabel("Which other");
    await untilFocused(typed);
    await typed.fill("a b");
    await fields.getByRole("button").click();
    await page.getByRole("button", { name: "Yes, force it open" }).click();
    await fields.getByText("must be the id of a model").waitFor();
    await typed.fill("claude-of-tomorrow");
    await fields.getByRole("button").click();
    await page.getByRole("button", { name: "Yes, force it open" }).click();
    await orders(page).filter({ hasText: "claude-of-tomorrow is forced open" }).waitFor();
    assert.equal((await spillway.gates())["claude-of-tomorrow"].override.note, NOTE);
    await operator("/v1/gates/claude-of-tomorrow/override", { method: "DELETE" });
    await assertAccessible(page);
    await clean([/status of 400/]);
  });

  test("leads back to the key when it is refused, says when it is offline, and loses nothing that was typed", async () => {
    const wire = await line(spillway.url);
    const { page, clean } = await open(browser, wire.url, { hash: "#operate" });
    await giveOperatorKey(page, "schlüssel");
    await page.getByRole("alert").filter({ hasText: "No key has such characters in it." }).waitFor();
    await giveOperatorKey(page, KEYS.app);
    await page
      .getByRole("alert")
      .filter({ hasText: /not|operator/i })
      .waitFor();
    await assertAccessible(page);
    assert.equal(await page.locator(".orders").isVisible(), false);
    await giveOperatorKey(page);
    await page.locator(".states li").first().waitFor();
    wire.cut();
    await ask(page, "Drain", { why: NOTE });
    await page.getByRole("button", { name: "Yes, drain" }).click();
    await form(page, "Drain").getByText("The server is out of reach. Whether it has been done is not known").waitFor();
    await page.getByText("What is shown may be old").waitFor();
    wire.mend();
    await page.getByText("What is shown may be old").waitFor({ state: "hidden" });
    await page.route("**/v1/drain", (route) =>
      route.fulfill({ status: 401, json: { error: { message: "this key opens nothing any more" } } }),
    );
    await form(page, "Drain").getByRole("button").click();
    await page.getByRole("button", { name: "Yes, drain" }).click();
    await page.getByText("this key opens nothing any more").waitFor();
    await untilFocused(page.getByLabel("Operator key"));
    await page.unroute("**/v1/drain");
    await giveOperatorKey(page);
    assert.equal(await form(page, "Drain").getByLabel("Why").inputValue(), NOTE);
    assert.equal((await operator("/v1/queues")).drain, null);
    await clean([/status of 40[13]/, /ERR_/]);
    wire.close();
  });

  test("goes by keyboard alone: a question is asked, Escape leads back, Enter does it", async () => {
    const { page, clean } = await opened({ reducedMotion: "reduce" });
    await page.getByRole("link", { name: "Pause a queue" }).first().focus();
    await page.keyboard.press("Enter");
    await untilFocused(page.getByRole("heading", { name: "Queues", exact: true }));
    await page.keyboard.press("Tab");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("Tab");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("Tab");
    await page.keyboard.type(NOTE);
    await page.keyboard.press("Enter");
    await asked(page, "Pause medium for 1 h?");
    await page.keyboard.press("Escape");
    await untilFocused(page.getByRole("button", { name: "Pause a queue …" }));
    await page.keyboard.press("Enter");
    await asked(page, "Pause medium for 1 h?");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await orders(page).getByText("Queue medium is paused").waitFor();
    await spillway.request("/v1/queues/medium/pause", { method: "DELETE", as: "operator" });
    assert.equal(await page.evaluate(() => document.getAnimations().length), 0);
    await clean();
  });

  test("fits a phone, in force, asked and refused", async () => {
    const { page, clean } = await opened(PHONE);
    const fits = async () => {
      const { scrollWidth, clientWidth } = await page.evaluate(() => document.documentElement);
      assert.equal(scrollWidth, clientWidth);
      await assertAccessible(page);
    };
    await fits();
    await ask(page, "Force a gate", { radios: ["closed: everybody may", "until …"] });
    await fits();
    await ask(page, "Force a gate", { model: MODEL, radios: ["4 h"], why: "w".repeat(300) });
    assert.match(await asked(page, `Force ${MODEL} closed for 4 h?`), /each costs its job an attempt/);
    await fits();
    await page.getByRole("button", { name: "Yes, force it closed" }).click();
    await orders(page).waitFor();
    await fits();
    await spillway.request(`/v1/gates/${MODEL}/override`, { method: "DELETE", as: "operator" });
    await clean();
  });
});
