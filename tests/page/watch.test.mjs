/** The page's view Watch in a real browser: what it shows is what the running Worker has counted, during an outage and after it. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { eventually, KEYS, MODEL, start, submission } from "../e2e/harness.mjs";
import { assertAccessible, describeInBrowser, open, PHONE } from "./browser.mjs";

const DOWN = { rules: [{ when: { model: MODEL }, then: { status: 529 } }] };

async function giveOperatorKey(page, key = KEYS.operator) {
  await page.getByLabel("Operator key").fill(key);
  await page.getByRole("button", { name: "Use key" }).click();
}

describeInBrowser("Watch", async (browser) => {
  const spillway = await start({
    policy: { breaker: { consecutive_failures: 2, consecutive_seconds: 0, consecutive_hard: 2, open_seconds: 3 } },
  });
  after(() => spillway.stop());
  const figure = (page, name) => page.locator(".figure", { has: page.getByRole("heading", { name }) });
  const report = async () => (await spillway.request("/v1/metrics?format=json", { as: "operator" })).body;

  test("shows an outage as it comes and goes: the figures, the gate, the calls, and what the gate's moves were", async () => {
    await spillway.untilDone(await spillway.accepted(submission("[[before]]")));
    const { page, clean } = await open(browser, spillway.url, { hash: "#watch" });
    await giveOperatorKey(page);
    await figure(page, "529s among calls").getByText("0 %").waitFor();
    await spillway.fake.setScript(DOWN);
    const jobs = await Promise.all([1, 2, 3].map((n) => spillway.accepted(submission(`[[job-${n}]]`))));
    const gate = page.locator(".gate", { hasText: MODEL });
    await gate
      .getByText(/^(Shut|Trying)$/)
      .first()
      .waitFor();
    await page.getByText("Not over: 3 high, 0 medium, 0 low.").waitFor();
    await page.locator("svg .bar.overloaded").first().waitFor();
    await page.locator("svg .shade").first().waitFor();
    await assertAccessible(page);
    await spillway.fake.setScript({ rules: [] });
    await Promise.all(jobs.map((job) => spillway.untilDone(job, { timeout: 40_000 })));
    await gate.getByText("Serving", { exact: true }).waitFor();
    await page.getByText("Not over: 0 high, 0 medium, 0 low.").waitFor();
    const shown = await eventually(async () => {
      const { overload_rate } = (await report()).figures;
      const text = await figure(page, "529s among calls").textContent();
      return text.includes(`${overload_rate.count} of ${overload_rate.of} calls`) && overload_rate;
    }, { timeout: 15_000 }); // prettier-ignore
    assert.equal(shown.of, spillway.calls().length, "and these are the fake's");
    await gate.getByText("History").click();
    assert.match(await gate.locator("li").first().textContent(), /Trying → Serving/);
    await assertAccessible(page);
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

  test("asks nothing while another view is shown, and says when what it shows may be old", async () => {
    const { page, clean } = await open(browser, spillway.url, { hash: "#watch" });
    await giveOperatorKey(page);
    await page.locator(".figure").first().waitFor();
    await page.route("**/v1/metrics**", (route) =>
      route.fulfill({ status: 503, json: { error: { message: "not now" } } }),
    );
    await page.getByText("What is shown may be old: not now").waitFor();
    await page.unroute("**/v1/metrics**");
    await page.getByText("What is shown may be old").waitFor({ state: "hidden" });
    await page.getByRole("link", { name: "Try" }).click();
    const asked = [];
    page.on("request", (request) => asked.push(request.url()));
    await new Promise((resolve) => setTimeout(resolve, 6_000));
    assert.deepEqual(asked.filter((url) => url.includes("/v1/metrics")), []); // prettier-ignore
    await clean([/status of 503/]);
  });

  test("fits a phone, where only its tables scroll", async () => {
    const { page, clean } = await open(browser, spillway.url, { hash: "#watch", ...PHONE });
    await giveOperatorKey(page);
    await page.locator(".watch table").first().waitFor();
    const { scrollWidth, clientWidth } = await page.evaluate(() => document.documentElement);
    assert.equal(scrollWidth, clientWidth);
    await assertAccessible(page);
    await clean();
  });
});
