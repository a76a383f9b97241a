/**
 * The page's view Watch in a real browser, during a scripted storm: what it shows before, in and after an outage is what the running
 * Worker has counted. `WRITE_DOCS=1` takes the picture in the README anew.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, test } from "node:test";
import { root } from "../../scripts/lib/paths.mjs";
import { eventually, KEYS, MODEL, start, submission } from "../e2e/harness.mjs";
import { assertAccessible, describeInBrowser, later, open, PHONE } from "./browser.mjs";
import { giveOperatorKey, untilItAgrees, watch } from "./operator.mjs";

const MINUTE = 60_000;
const DOWN = { rules: [{ when: { model: MODEL }, then: { status: 529 } }] };
const LIMITED = { rules: [{ when: { marker: "[[limited]]", prompt_call: 1 }, then: { status: 429, retry_after: 1 } }] };

describeInBrowser("Watch", async (browser) => {
  const spillway = await start({
    policy: { breaker: { consecutive_failures: 2, consecutive_seconds: 0, consecutive_hard: 2, open_seconds: 5 } },
  });
  after(() => spillway.stop());
  const gateOf = (page, model) => page.locator(".gate", { has: page.getByRole("heading", { name: model }) });
  /** The Worker's clock against the real one. It begins behind it: an alarm is late by as much as the clock is ahead. */
  let minutes = -10;
  /** Puts the Worker's clock a minute on, and submits these jobs. */
  const minute = async (...jobs) => {
    minutes += 1;
    await spillway.setClock(minutes * MINUTE);
    const all = jobs.map((fields, n) =>
      spillway.accepted(submission(`[[${fields.marker ?? `${minutes}-${n}`}]]`, fields.more)),
    );
    return Promise.all(all);
  };
  const many = (count, more) => Array.from({ length: count }, () => ({ more }));
  const done = (jobs) => Promise.all(jobs.map((job) => spillway.untilDone(job)));

  test("shows a storm as it comes and goes, and every figure is what the Worker says at that moment", async () => {
    const { page, clean } = await open(browser, spillway.url, {
      hash: "#watch",
      viewport: { width: 1160, height: 900 },
    });
    await watch(page);
    await page.getByText("No calls in the last hour.").waitFor();
    const nothing = await untilItAgrees(page, spillway);
    assert.equal(nothing.calls.length, 0);

    // Before it.
    await spillway.fake.setScript(LIMITED);
    for (const count of [2, 4, 3]) await done(await minute(...many(count)));
    await done(await minute({ marker: "limited" }, ...many(2)));
    const before = await untilItAgrees(page, spillway);
    assert.equal(before.figures.overload_rate.count, 0);
    await gateOf(page, MODEL).getByText("Serving", { exact: true }).waitFor();
    assert.equal(await page.locator(".shade").count(), 0);

    // In it.
    await spillway.fake.setScript(DOWN);
    const held = await minute(...many(2));
    await eventually(async () => (await spillway.gates())[MODEL].state === "open");
    for (const count of [3, 3, 4]) held.push(...(await minute(...many(count))));
    const other = { kind: "tagging", priority: "medium" };
    held.push(...(await minute(...many(1), ...many(2, other))));
    await done(held.slice(-2));
    await gateOf(page, MODEL).getByText(/^(Shut|Trying)$/).first().waitFor(); // prettier-ignore
    await page.getByText("Not over: 13 high, 0 medium, 0 low.").waitFor();
    await page.locator(".shade").first().waitFor();
    const storm = await untilItAgrees(page, spillway);
    assert.ok(storm.figures.overload_rate.count >= 2);
    assert.equal(storm.figures.fallback_rate.count, 2);
    assert.equal(storm.timeline.unfinished.at(-1), 13, "the depth has risen, and is drawn as it has");
    assert.equal(await page.locator(".shade").count(), 2, "in both pictures");
    assert.match(await page.locator(".shade title").first().textContent(), new RegExp(`${MODEL}: open from`));
    await gateOf(page, MODEL)
      .getByText(/looks again in (\d+ s|any moment)/)
      .waitFor();
    await assertAccessible(page);

    // After it.
    await spillway.fake.setScript({ rules: [] });
    await done(held);
    await gateOf(page, MODEL).getByText("Serving", { exact: true }).waitFor();
    await done(await minute(...many(3)));
    await page.getByText("Not over: 0 high, 0 medium, 0 low.").waitFor();
    const now = await untilItAgrees(page, spillway);
    assert.equal(now.figures.overload_rate.of, spillway.calls().length, "and these are the fake's");
    assert.equal(
      now.figures.overload_rate.count,
      spillway.calls().filter(({ outcome }) => outcome.status === 529).length,
    );
    const [said] = (await page.getByText("Not over: ").textContent()).match(/At the end of a minute.*/);
    const peak = Math.max(...now.timeline.unfinished);
    assert.ok(peak >= 10);
    const [, most, came, ended] = said.match(/^At the end of a minute at most (\d+) jobs, at (?:\d+ \w+ \d{4}, )?\d\d:\d\d; (\d+) came in and (\d+) ended in this time\.$/); // prettier-ignore
    assert.deepEqual([most, came, ended].map(Number), [peak, 30, 30]);
    await page.getByText("As a table").click();
    const table = page.getByRole("region", { name: "From, Came in, Ended, Not over at its end" });
    const moved = now.timeline.submitted.filter((came, at) => came > 0 || now.timeline.finished[at] > 0).length;
    await table.waitFor();
    assert.equal(await table.locator("tbody tr").count(), moved);
    await page.getByText("As a table").click();

    await gateOf(page, MODEL).getByText("History").click();
    assert.match(await gateOf(page, MODEL).locator("li").first().textContent(), /ago: Trying → Serving/);
    const asked = page.waitForResponse("**/v1/gates");
    await asked;
    await page.waitForResponse("**/v1/gates");
    assert.ok(await gateOf(page, MODEL).locator("li").first().isVisible(), "what was unfolded stays so");
    await assertAccessible(page);
    if (process.env.WRITE_DOCS) await picture(page);
    await clean();
  });

  /** As the README shows it. */
  async function picture(page) {
    await gateOf(page, MODEL).getByText("History").click();
    await page.emulateMedia({ colorScheme: "light" });
    await page.getByLabel("How far back").selectOption("15 minutes");
    await page.waitForResponse("**/v1/metrics**");
    await page.locator("h1").click();
    await page.setViewportSize({ width: 1160, height: 1700 });
    await page.screenshot({ path: join(root, "docs", "page-watch.png") });
  }

  test("counts down each second, and asks no more often for that", async () => {
    const until = new Date(Date.now() + minutes * MINUTE + 3_600_000).toISOString();
    const override = { method: "PUT", as: "operator", body: { state: "open", until, note: "a test", author: "Ada" } };
    const { status, text } = await spillway.request("/v1/gates/claude-haiku-5-5/override", override);
    assert.equal(status, 200, text);
    const { page, clean } = await open(browser, spillway.url, { hash: "#watch" });
    await watch(page);
    const note = gateOf(page, "claude-haiku-5-5").locator(".note");
    await note.getByText(/^Forced open by Ada, .* left: a test$/).waitFor();
    await page.waitForResponse("**/v1/gates");
    const asked = [];
    page.on("request", (request) => asked.push(request.url()));
    const seen = new Set();
    await eventually(async () => seen.add(await note.textContent()).size === 4);
    // What only changed with an answer would have needed three.
    assert.ok(asked.filter((url) => url.endsWith("/v1/gates")).length <= 2, `${asked}`);
    const left = [...seen].map((text) => {
      const [, min = 0, s = 0] = text.match(/, (?:(\d+) min ?)?(?:(\d+) s)? left/);
      return Number(min) * 60 + Number(s);
    });
    assert.deepEqual(
      left,
      left.toSorted((a, b) => b - a),
      "down, and never up",
    );
    await spillway.request("/v1/gates/claude-haiku-5-5/override", { method: "DELETE", as: "operator" });
    await note.waitFor({ state: "detached" });
    await clean();
  });

  test("refuses a key that is not the operator's, and says so", async () => {
    const { page, clean } = await open(browser, spillway.url, { hash: "#watch" });
    for (const key of ["nobody", KEYS.app]) {
      await giveOperatorKey(page, key);
      await page.getByRole("alert").filter({ hasText: /key/i }).waitFor();
      assert.equal(await page.locator(".figures").isVisible(), false);
    }
    await clean([/status of 40[13]/]);
  });

  test("asks for the figures and the gates every five seconds, for what moves less every fifteen, and at once for another span", async () => {
    const { page, clean } = await open(browser, spillway.url, { hash: "#watch", clock: true });
    // Its time stands still but for what is said here, and a round is over when the next one is planned.
    await page.clock.pauseAt(Date.now() + MINUTE);
    await page.evaluate(() => {
      const plan = globalThis.setTimeout;
      globalThis.rounds = 0;
      globalThis.setTimeout = (what, ms, ...more) => {
        if (ms === 5_000) globalThis.rounds += 1;
        return plan(what, ms, ...more);
      };
    });
    let asked = [];
    page.on("request", (request) => {
      const { pathname, searchParams } = new URL(request.url());
      asked.push([pathname, searchParams.get("minutes") ?? searchParams.get("status")].filter(Boolean).join(" "));
    });
    let rounds = 0;
    const round = async (begin) => {
      asked = [];
      rounds += 1;
      await begin();
      await eventually(async () => (await page.evaluate(() => globalThis.rounds)) === rounds);
      return asked.toSorted();
    };
    const five = () => page.clock.runFor(5_000);
    const choose = (label, value) => page.getByLabel(label, { exact: true }).selectOption(value);
    const some = ["/v1/gates", "/v1/metrics 1"];
    const all = (minutes) => ["/v1/gates", "/v1/jobs", `/v1/metrics ${minutes}`, "/v1/queues"];
    await round(() => watch(page));
    assert.deepEqual(await round(() => choose("How far back", "15 minutes")), all(15));
    for (let n = 0; n < 2; n += 1) {
      assert.deepEqual(await round(five), some);
      assert.deepEqual(await round(five), some);
      assert.deepEqual(await round(five), all(15));
    }
    assert.deepEqual(await round(five), some);
    assert.deepEqual(await round(() => choose("How far back", "6 hours")), all(360));
    asked = [];
    const list = page.waitForResponse("**/v1/jobs?*status=failed");
    await choose("Status", "failed");
    await list;
    assert.deepEqual(asked, ["/v1/jobs failed"]);
    await clean();
  });

  test("asks nothing while another view is shown, and says when what it shows may be old", async () => {
    const { page, clean } = await open(browser, spillway.url, { hash: "#watch", clock: true });
    await watch(page);
    await page.route("**/v1/metrics**", (route) =>
      route.fulfill({ status: 503, json: { error: { message: "not now" } } }),
    );
    await page.getByText("What is shown may be old: not now").waitFor();
    await page.unroute("**/v1/metrics**");
    await page.getByText("What is shown may be old").waitFor({ state: "hidden" });
    await page.getByRole("link", { name: "Try" }).click();
    assert.deepEqual(await later(page, 60_000), []);
    await page.getByRole("link", { name: "Watch" }).click();
    // As it does while it is shown; there is no timer to put ahead before the first answers are drawn.
    await eventually(async () => (await later(page, 60_000)).length > 0);
    await clean([/status of 503/]);
  });

  test("fits a phone, where only its tables scroll, and nothing in it moves", async () => {
    const { page, clean } = await open(browser, spillway.url, { hash: "#watch", reducedMotion: "reduce", ...PHONE });
    await watch(page);
    await page.locator(".watch table").first().waitFor();
    await page.locator(".heat td").first().waitFor();
    const { scrollWidth, clientWidth } = await page.evaluate(() => document.documentElement);
    assert.equal(scrollWidth, clientWidth);
    assert.equal(await page.evaluate(() => document.getAnimations().length), 0);
    await assertAccessible(page);
    await clean();
  });
});
