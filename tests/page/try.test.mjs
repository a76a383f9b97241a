/**
 * The page's view Try in a real browser, against the Worker on workerd and a fake Claude that fails as it is told to. Each rule is
 * one of what a user sees; how often Claude was called is the fake's word.
 *
 * A wait belongs to a model's gate, so that the test that makes one has a model of its own.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { KEYS, MODEL, start, submission } from "../e2e/harness.mjs";
import {
  assertAccessible,
  describeInBrowser,
  giveKey,
  jobId,
  line,
  open,
  PHONE,
  recorded,
  submit,
  untilFocused,
  untilShown,
  violations,
} from "./browser.mjs";

/** In every prompt, so that the harness notices one that is logged. */
const PROMPT = "zq-confidential";
const LONG = { tokens: 900, tokens_per_chunk: 20, chunk_delay_ms: 100 };
const INTERRUPTED = "When Claude breaks off before your eyes";

const isIncreasing = (texts) => texts.every((text, n) => n === 0 || text.startsWith(texts[n - 1]));

describeInBrowser("Try", async (browser) => {
  const spillway = await start({
    policy: {
      max_attempts: 2,
      long_wait_seconds: 2,
      deferral: { answer_seconds: 600, at_least_seconds: 0 },
      breaker: { consecutive_hard: 500, minimum_calls: 500, consecutive_failures: 500 },
    },
    script: {
      rules: [
        { when: { marker: ["[[happy]]", "[[reduced]]"] }, then: { ...LONG, delay_ms: 2000 } },
        { when: { marker: "[[offline]]" }, then: { ...LONG, tokens: 1000 } },
        { when: { marker: "[[retried]]", prompt_call: 1 }, then: { status: 500 } },
        { when: { marker: "[[limit]]", prompt_call: 1 }, then: { status: 429, retry_after: 30 } },
        { when: { marker: "[[stalled", prompt_call: "1-2" }, then: { status: 500 } },
        { when: { marker: "[[down]]", prompt_call: "1-2" }, then: { status: 529 } },
        { when: { marker: "[[broken]]", prompt_call: 1 }, then: { ...LONG, cut: { after_deltas: 25, how: "error" } } },
        { when: { marker: "[[kept]]", prompt_call: 1 }, then: { ...LONG, cut: { after_deltas: 25, how: "error" } } },
        { when: { marker: "[[broken]]" }, then: LONG },
        { when: { marker: "[[slow]]" }, then: { delay_ms: 4000 } },
        { when: { marker: "[[refused]]" }, then: { status: 400, message: "zq-confidential thing is not supported" } },
        { when: { marker: "[[cancelled]]" }, then: { delay_ms: 30_000 } },
      ],
    },
  });
  after(() => spillway.stop());
  const calls = (marker) => spillway.calls({ marker }).length;
  const stored = async (page) => (await spillway.job(jobId(page))).body;

  test("shows received, generating and refining as they happen, the text as it grows, and the answer", async () => {
    const { page, clean } = await open(browser, spillway.url, { hash: "#of-another-time" });
    assert.equal(await page.title(), "Try · Spillway");
    assert.equal(await page.locator("nav [aria-current]").textContent(), "Try");
    await assertAccessible(page);
    await giveKey(page);
    const seen = await recorded(page);
    await submit(page, `${PROMPT} [[happy]] <img src="/" onerror="console.error(1)"><b>not bold</b>`);
    await page.locator('.steps[data-mood="moving"]').waitFor();
    const moving = () => page.evaluate(() => document.getAnimations().length);
    assert.ok((await moving()) > 0, "the step that it is at moves");
    await page.locator(".text:not(:empty)").waitFor();
    const id = page.locator(".facts code");
    await id.evaluate((element) => (element.isMarked = true));
    const length = () => page.locator(".text").evaluate(({ textContent }) => textContent.length);
    const before = await length();
    await page.waitForFunction((before) => document.querySelector(".text").textContent.length > before, before);
    assert.ok(await id.evaluate((element) => element.isMarked), "what is marked to be copied stays marked");
    await assertAccessible(page);
    await untilShown(page, "done");
    assert.equal(await moving(), 0);
    assert.deepEqual(await seen("step"), ["Received", "Generating", "Refining"]);
    const { text, message } = await stored(page);
    const texts = await seen("text");
    assert.ok(texts.length >= 3 && isIncreasing(texts), `${texts.length} texts`);
    assert.equal(texts.at(-1), text);
    assert.ok(text.includes("<b>not bold</b>"), "a text is a text, whatever is in it");
    assert.equal((await seen("message")).at(-1), message.text);
    assert.equal(calls("happy"), 1);
    const live = await seen("live");
    assert.match(live.at(-1), /^Done\. Your answer is ready\.$/);
    assert.ok(!live.some((said) => said.includes("answers")), "the answer itself is not read out piece by piece");
    await assertAccessible(page);
    await clean();
  });

  test("explains a job that is retried by its cause, with the time to the next try, and its history", async () => {
    const { page, clean } = await open(browser, spillway.url);
    await giveKey(page);
    const seen = await recorded(page);
    await submit(page, `${PROMPT} [[retried]]`, { Model: "claude-opus-5-5" });
    await untilShown(page, "done");
    assert.deepEqual(
      await seen("status"),
      (await seen("status")).filter((status) => status !== "held"),
    );
    assert.ok((await seen("why")).includes("Claude answered with an error of its own."), `${await seen("why")}`);
    assert.ok((await seen("when")).every((when) => /^The next try is (due now|in \d+ s)\.$/.test(when)));
    await page.getByText("Details and history").click();
    const entry = await page.getByRole("list", { name: "Calls that failed" }).getByRole("listitem").textContent();
    assert.match(
      entry,
      /^Claude answered with an error of its own\. \(500\).*used an attempt up; waited \d+ s then; request req_/,
    );
    assert.match(await page.locator(".facts").textContent(), /Calls2Attempts used up1/);
    assert.equal(calls("retried"), 2);
    await assertAccessible(page);
    await clean();
  });

  test("explains a job that is held by the reason, and counts down to its next try", async () => {
    const model = "claude-sonnet-4-6";
    const limited = await spillway.accepted(submission("[[limit]]", { request: { model } }));
    await spillway.untilStatus(limited, "retrying");
    const { page, clean } = await open(browser, spillway.url);
    await giveKey(page);
    const seen = await recorded(page);
    await submit(page, `${PROMPT} [[held]]`, { Model: model, Priority: "high" });
    await untilShown(page, "held");
    assert.equal(await page.locator(".why").textContent(), "The account’s rate limit asks for a wait.");
    await assertAccessible(page);
    await untilShown(page, "done");
    const seconds = (await seen("when")).map((when) => Number(/in (\d+) s/.exec(when)?.[1] ?? 0));
    assert.ok(seconds.length >= 3 && seconds[0] > seconds[2], `${seconds}`);
    assert.equal(calls("held"), 1, "it was held without a call");
    await clean();
  });

  test("names an estimate as one, and no longer when it was wrong", async () => {
    const { page, clean } = await open(browser, spillway.url);
    const said = await page.evaluate(async () => {
      const { Placeholder } = await import("/placeholder.js");
      const placeholder = new Placeholder({});
      const when = (waiting) => {
        placeholder.show({ status: "held", text: "", connected: true, waiting: { reason: "pacing", ...waiting } });
        return placeholder.element.querySelector(".when").textContent;
      };
      const all = [
        when({ next_check_seconds: 20, eta_seconds: 75 }),
        when({ next_check_seconds: 7200 }),
        when({ next_check_seconds: 0, eta_seconds: 0 }),
      ];
      placeholder.stop();
      return all;
    });
    assert.deepEqual(said, [
      "The next try is in 20 s. As it looks, its turn is over in about 1 min 15 s.",
      "The next try is in 2 h.",
      "The next try is due now.",
    ]);
    await clean();
  });

  test("says by the job's own message that it takes longer, once it does", async () => {
    const { page, clean } = await open(browser, spillway.url);
    await giveKey(page);
    const seen = await recorded(page);
    await submit(page, `${PROMPT} [[slow]]`);
    await untilShown(page, "done");
    const messages = await seen("message");
    const longer = messages.findIndex((message) => message.startsWith("This is taking a little longer than usual."));
    assert.ok(longer > 0 && messages.at(-1) === "Your answer is ready.", messages.join("\n"));
    await clean();
  });

  test("asks whether a stalled job may wait; a yes defers it", async () => {
    const { page, clean } = await open(browser, spillway.url);
    await giveKey(page);
    await submit(page, `${PROMPT} [[stalled-yes]]`, { Model: "claude-opus-5-5" });
    const offer = page.getByRole("group", { name: "May it wait?" });
    await offer.waitFor();
    assert.match(
      await offer.textContent(),
      /taken up again from .* on\. Without an answer within (10 min|9 min \d+ s), it waits\./,
    );
    assert.ok(!(await page.getByRole("button", { name: "Cancel the job" }).isVisible()));
    await assertAccessible(page);
    await page.getByRole("button", { name: "Let it wait" }).click();
    await untilShown(page, "deferred");
    assert.ok(!(await offer.isVisible()));
    assert.equal(await page.locator(".why").textContent(), "It waits for quieter hours.");
    assert.match(await page.locator(".when").textContent(), /^The next try is in (\d+ min|1 h)/);
    assert.equal((await stored(page)).status, "deferred");
    assert.equal(calls("stalled-yes"), 2);
    await assertAccessible(page);
    await clean();
  });

  test("and a no ends it, with the reason and what to do", async () => {
    const { page, clean } = await open(browser, spillway.url);
    await giveKey(page);
    await submit(page, `${PROMPT} [[stalled-no]]`, { Model: "claude-opus-5-5" });
    await page.getByRole("button", { name: "No, end it" }).click();
    await untilShown(page, "failed");
    assert.equal(await page.locator(".why").textContent(), "You did not want it to wait.");
    assert.ok(await page.getByRole("button", { name: "Generate it again" }).isVisible());
    assert.equal((await stored(page)).reason, "deferral_declined");
    await clean();
  });

  test("says that a smaller model wrote it and why, and generates it again with the usual one", async () => {
    const { page, clean } = await open(browser, spillway.url);
    await giveKey(page);
    await submit(page, `${PROMPT} [[down]]`, { Kind: "tagging" });
    await untilShown(page, "done");
    const first = jobId(page);
    assert.match(await page.locator(".message").textContent(), /A smaller, lightweight model wrote it this time/);
    const advice = await page.locator(".advice").textContent();
    assert.match(advice, /^claude-haiku-5-5 wrote it, because claude-sonnet-5-5 was overloaded\./);
    await assertAccessible(page);
    await page.getByRole("button", { name: "Generate it again" }).click();
    await page.waitForFunction((id) => !location.hash.endsWith(id), first);
    await untilShown(page, "done");
    const job = await stored(page);
    assert.deepEqual([job.regenerates, job.model_used, job.downgraded], [first, MODEL, false]);
    assert.ok(!(await page.locator(".advice").isVisible()));
    assert.deepEqual(
      spillway.calls({ marker: "down" }).map(({ model }) => model),
      [MODEL, MODEL, "claude-haiku-5-5", MODEL],
    );
    await page.goBack();
    await page.locator(".advice").waitFor();
    assert.equal(jobId(page), first, "the way back leads to the job before");
    await clean();
  });

  test("throws away a draft that broke off, says so, and shows the next one", async () => {
    const { page, clean } = await open(browser, spillway.url);
    await giveKey(page);
    const seen = await recorded(page);
    await submit(page, `${PROMPT} [[broken]]`);
    await untilShown(page, "done");
    assert.deepEqual(await seen("note"), ["Claude was overloaded. What had come is thrown away."]);
    const texts = await seen("text");
    const { text } = await stored(page);
    assert.equal(texts.at(-1), text);
    assert.ok(
      texts.some((now, n) => n > 0 && now.length < texts[n - 1].length),
      "the text was begun anew",
    );
    await clean();
  });

  test("keeps what had come of an answer that broke off, if the job was not to begin again, and generates it again", async () => {
    const { page, clean } = await open(browser, spillway.url);
    await giveKey(page);
    await submit(page, `${PROMPT} [[kept]]`, { [INTERRUPTED]: "fail" });
    await untilShown(page, "failed");
    const { partial_text, reason } = await stored(page);
    assert.equal(reason, "interrupted");
    assert.ok(partial_text.length > 0);
    assert.equal(await page.locator(".text").textContent(), partial_text);
    await page.getByRole("heading", { name: "What had come of the answer" }).waitFor();
    assert.equal(await page.locator(".why").textContent(), "Claude broke off in the middle of its answer.");
    await assertAccessible(page);
    await page.getByRole("button", { name: "Generate it again" }).click();
    await untilShown(page, "done");
    assert.equal(await page.locator(".text").textContent(), (await stored(page)).text);
    assert.equal(calls("kept"), 2);
    await clean();
  });

  test("says what Claude refused and what to do, and offers nothing that would end the same way", async () => {
    const { page, clean } = await open(browser, spillway.url);
    await giveKey(page);
    await submit(page, `${PROMPT} [[refused]]`);
    await untilShown(page, "failed");
    assert.match(
      await page.locator(".why").textContent(),
      /^Claude refused the request as invalid\. It said: .*thing is not supported/,
    );
    assert.equal(await page.locator(".advice").innerText(), "Change the request, and submit it anew.");
    assert.ok(!(await page.getByRole("button", { name: "Generate it again" }).isVisible()));
    await assertAccessible(page);
    await clean();
  });

  test("says that the connection is lost, and goes on where it was when it is back", async () => {
    const { url, cut, mend, close } = await line(spillway.url);
    const { page, clean } = await open(browser, url);
    await giveKey(page);
    await submit(page, `${PROMPT} [[offline]]`);
    await page.locator(".text:not(:empty)").waitFor();
    cut();
    await page.getByText("The connection is lost, and sought again. The job goes on.").waitFor();
    mend();
    await untilShown(page, "done");
    assert.ok(!(await page.getByText("The connection is lost").isVisible()));
    assert.equal(await page.locator(".text").textContent(), (await stored(page)).text);
    assert.equal(calls("offline"), 1);
    await clean([/Failed to load resource/]);
    close();
  });

  test("cancels a job", async () => {
    const { page, clean } = await open(browser, spillway.url);
    await giveKey(page);
    await submit(page, `${PROMPT} [[cancelled]]`, { Priority: "low" });
    await untilShown(page, "generating");
    await page.getByRole("button", { name: "Cancel the job" }).click();
    await untilShown(page, "cancelled");
    assert.equal((await stored(page)).status, "cancelled");
    assert.ok(!(await page.getByRole("button", { name: "Cancel the job" }).isVisible()));
    await assertAccessible(page);
    await clean();
  });

  test("shows every fault of a submission where it was made, and loses nothing that was typed", async () => {
    const { page, clean } = await open(browser, spillway.url);
    await giveKey(page);
    await submit(page, "", { Kind: "", "Its name": "poetry", "Deadline in seconds": "3", "Tokens at most": "many" });
    await page.getByText("It must not be empty.").waitFor();
    for (const [label, fault] of [
      ["Prompt", /^It must not be empty\./],
      ["Its name", /^It must be one of .*tagging/],
      ["Deadline in seconds", /^It must be a whole number of seconds from 30 to 604800\./],
      ["Tokens at most", /^It must be /],
    ]) {
      const field = page.getByLabel(label, { exact: true });
      assert.equal(await field.getAttribute("aria-invalid"), "true", label);
      const described = await field.evaluate((input) =>
        input
          .getAttribute("aria-describedby")
          .split(" ")
          .map((id) => document.getElementById(id)?.textContent),
      );
      assert.match(described[0], fault);
    }
    await untilFocused(page.getByLabel("Prompt"));
    await assertAccessible(page);
    assert.equal(await page.getByLabel("Its name").inputValue(), "poetry");
    assert.equal((await spillway.list("limit=100")).body.jobs.filter(({ kind }) => kind === "poetry").length, 0);
    await submit(page, `${PROMPT} mended`, { Kind: "default", "Deadline in seconds": "600", "Tokens at most": "300" });
    await untilShown(page, "done");
    const { created_at, deadline_at } = await stored(page);
    assert.equal(Date.parse(deadline_at) - Date.parse(created_at), 600_000);
    await clean([/status of 400/]);
  });

  test("sends a submission whose answer was lost again as the same job", async () => {
    const { page, clean } = await open(browser, spillway.url);
    await giveKey(page);
    let arrived = 0;
    await page.route("**/v1/jobs", async (route) => {
      await route.fetch();
      arrived += 1;
      await route.abort();
    });
    await submit(page, `${PROMPT} [[lost]]`, { Kind: "classification" });
    await page.getByRole("alert").filter({ hasText: "Trying again is safe" }).waitFor();
    assert.ok(arrived > 1);
    await page.unroute("**/v1/jobs");
    await page.getByRole("button", { name: "Submit" }).click();
    await untilShown(page, "done");
    const { jobs } = (await spillway.list("limit=100")).body;
    assert.deepEqual(
      jobs.filter(({ kind }) => kind === "classification").map(({ id }) => id),
      [jobId(page)],
    );
    assert.equal(calls("lost"), 1);
    await clean([/Failed to load resource/]);
  });

  test("refuses a key that opens nothing, and keeps one that does in memory alone: a reload asks for it again", async () => {
    const { page, context, clean } = await open(browser, spillway.url);
    await page.getByRole("button", { name: "Submit" }).click();
    await page.getByText("Give the client key first.").waitFor();
    await page.getByLabel("Client key").fill("not-a-key");
    await page.getByRole("button", { name: "Use key" }).click();
    await page.locator(".fault:visible", { hasText: "Check the key" }).waitFor();
    await assertAccessible(page);
    await giveKey(page);
    await submit(page, `${PROMPT} [[kept-in-memory]]`);
    await untilShown(page, "done");
    const id = jobId(page);
    const { cookies, origins } = await context.storageState({ indexedDB: true });
    assert.deepEqual([cookies, origins], [[], []]);
    const held = await page.evaluate(() => [sessionStorage.length, document.cookie, history.state, location.href]);
    assert.deepEqual(held, [0, "", null, `${spillway.url}/#try/${id}`]);

    await page.reload();
    await page.getByText("Give the client key to go on watching this job.").waitFor();
    assert.equal(await page.getByLabel("Client key").inputValue(), "");
    await giveKey(page);
    await untilShown(page, "done");
    await page.getByRole("button", { name: "Forget it" }).click();
    assert.doesNotMatch(
      await page.locator("main").evaluate((main) => main.textContent),
      /claude-sonnet-5-5 answers|job_/,
      "who forgets the key leaves nothing for who comes after",
    );
    await clean([/status of 401/]);
  });

  test("lists the client's last jobs, and comes back to one of them", async () => {
    const older = await spillway.accepted(submission("older", { kind: "short_summary" }), { client: "web" });
    await spillway.untilDone(older, { client: "web" });
    const { page, clean } = await open(browser, spillway.url);
    await giveKey(page, KEYS.web);
    await submit(page, `${PROMPT} newer`);
    await untilShown(page, "done");
    const links = page.getByRole("region", { name: "Your last jobs" }).getByRole("link");
    await page.waitForFunction(() => document.querySelectorAll(".jobs a").length === 2);
    assert.deepEqual(
      (await links.allTextContents()).map((text) => text.replace(/(\d+ \w+ \d{4}, )?[\d:]+$/, "")),
      ["Donedefault", "Doneshort_summary"],
    );
    await links.nth(1).click();
    await page.locator(".facts", { hasText: older }).waitFor({ state: "attached" });
    assert.equal(jobId(page), older);
    assert.equal(await links.nth(1).getAttribute("aria-current"), "true");
    assert.match(await page.locator(".text").textContent(), /older/);
    await links.nth(0).click();
    await page.locator(".text", { hasText: "newer" }).waitFor();
    assert.equal((await spillway.cancel(older, { client: "web" })).status, 204);
    await links.nth(1).click();
    await page.getByText("There is no such job of this client, or it is erased.").waitFor();
    assert.equal(await links.count(), 1, "what is erased is no longer listed");
    await links.nth(0).click();
    await page.locator(".text", { hasText: "newer" }).waitFor();
    await page.goto(`${spillway.url}/#try/job_00000000000000000000000000000000`);
    await page.getByText("There is no such job of this client, or it is erased.").waitFor();
    await assertAccessible(page);
    await clean([/status of 404/]);
  });

  test("lists jobs of one millisecond in the server's order, by their ids", async () => {
    const { page, clean } = await open(browser, spillway.url);
    const shown = await page.evaluate(async () => {
      const { JobList } = await import("/job-list.js");
      const list = new JobList(() => undefined);
      for (const [id, ms] of ["b1", "a2", "c1", "d2", "a1"].map((it) => it.split(""))) {
        list.know({
          id: `job_${id}${ms}`,
          status: "done",
          kind: "default",
          created_at: `2026-01-01T00:00:00.00${ms}Z`,
        });
      }
      return [...list.rows.querySelectorAll("a")].map(({ hash }) => hash);
    });
    assert.deepEqual(
      shown,
      ["d2", "a2", "c1", "b1", "a1"].map((id) => `#try/job_${id}`),
    );
    await clean();
  });

  test("can be used by keyboard alone, and always shows where one is", async () => {
    const { page, clean } = await open(browser, spillway.url);
    const isVisible = () =>
      page.evaluate(() => {
        const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
        return outlineStyle !== "none" && Number.parseFloat(outlineWidth) >= 2;
      });
    const tabTo = async (locator) => {
      for (let n = 0; n < 40; n += 1) {
        await page.keyboard.press("Tab");
        assert.ok(await isVisible(), await page.evaluate(() => document.activeElement.outerHTML));
        if (await locator.evaluate((element) => element === document.activeElement)) return;
      }
      assert.fail(`out of reach: ${locator}`);
    };
    await page.keyboard.press("Tab");
    await untilFocused(page.getByRole("link", { name: "Skip to the content" }));
    assert.ok(await page.evaluate(() => document.activeElement.getBoundingClientRect().top >= 0), "it is seen then");
    await page.keyboard.press("Enter");
    await untilFocused(page.locator("#main"));
    await tabTo(page.getByLabel("Client key"));
    await page.keyboard.type(KEYS.app);
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Forget it" }).waitFor();
    await tabTo(page.getByLabel("Prompt"));
    await page.keyboard.type(`${PROMPT} [[stalled-keys]]`);
    await tabTo(page.getByText("More settings"));
    await page.keyboard.press("Enter");
    await tabTo(page.getByLabel("Model", { exact: true }));
    await page.keyboard.type("claude-opus-5-5");
    await tabTo(page.getByRole("button", { name: "Submit" }));
    await page.keyboard.press("Space");
    await untilFocused(page.getByRole("heading", { name: "The job" }));
    const wait = page.getByRole("button", { name: "Let it wait" });
    await wait.waitFor();
    await tabTo(wait);
    await page.keyboard.press("Enter");
    await untilShown(page, "deferred");
    // The button is gone, and its place is kept.
    await untilFocused(page.locator(".placeholder"));
    await tabTo(page.getByText("Details and history"));
    await page.keyboard.press("Enter");
    await page.locator(".facts").waitFor();
    await clean();
  });

  test("fits a phone: nothing is wider than it, and the job is in sight once it is submitted", async () => {
    const { page, clean } = await open(browser, spillway.url, PHONE);
    const overhang = () => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.equal(await overhang(), 0);
    await giveKey(page);
    const unbroken = "w".repeat(300);
    await submit(page, `${PROMPT} ${unbroken}`, { Kind: "tagging" });
    await untilShown(page, "done");
    assert.ok(
      await page.getByRole("heading", { name: "The job", exact: true }).evaluate((heading) => {
        const { top, bottom } = heading.getBoundingClientRect();
        return top >= 0 && bottom <= innerHeight / 2;
      }),
    );
    await page.getByText("Details and history").click();
    assert.ok((await page.locator(".text").textContent()).includes(unbroken.slice(0, 100)));
    assert.equal(await overhang(), 0);
    const small = await page
      .locator("button:visible, select:visible, input:visible, nav a, .jobs a")
      .evaluateAll((all) =>
        all.filter((element) => element.getBoundingClientRect().height < 24).map((element) => element.outerHTML),
      );
    assert.deepEqual(small, []);
    await assertAccessible(page);
    await clean();
  });

  test("does not move for who wants nothing to move", async () => {
    const { page, clean } = await open(browser, spillway.url, { reducedMotion: "reduce" });
    await giveKey(page);
    await submit(page, `${PROMPT} [[reduced]]`);
    for (const status of ["generating", "refining"]) {
      await untilShown(page, status);
      assert.equal(await page.evaluate(() => document.getAnimations().length), 0);
    }
    await untilShown(page, "done");
    await clean();
  });

  test("is held to all of this by tools that find what is wrong", async () => {
    const { page, clean } = await open(browser, spillway.url);
    await page.evaluate(() => {
      document.querySelector("label[for]").remove();
      document.querySelector(".lead").style.setProperty("color", "#999");
      setTimeout(() => console.error("something is wrong"));
      document.body.append(Object.assign(document.createElement("img"), { src: "http://127.0.0.1:1/spy.png" }));
    });
    const found = (await violations(page)).join("\n");
    assert.match(found, /light label: /);
    assert.match(found, /light color-contrast: /);
    await assert.rejects(clean(), /something is wrong[^]*CSP: img-src/);
  });
});
