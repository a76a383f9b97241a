/** The map of the hours of the day: days that pass by the Worker's own clock, hour by hour. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { start, submission } from "../e2e/harness.mjs";
import { assertAccessible, describeInBrowser, open, PHONE } from "./browser.mjs";
import { report, untilItAgrees, watch } from "./operator.mjs";

const HOUR = 3_600_000;

describeInBrowser("The hours of the day", async (browser) => {
  const spillway = await start({ policy: { breaker: { consecutive_failures: 50, consecutive_hard: 50 } } });
  after(() => spillway.stop());
  // At half past: no hour ends while its calls are made.
  const shift = (1.5 * HOUR - (Date.now() % HOUR)) % HOUR;
  const begin = Date.now() + shift;
  /** What was called in each hour: from its beginning, calls and those that failed. */
  const expected = new Map();

  /** Jobs in the hour that is so many hours from now, of which some fail once. */
  async function hour(ahead, calls, failing) {
    await spillway.setClock(shift + ahead * HOUR);
    const rules = [{ when: { marker: "[[bad", prompt_call: 1 }, then: { status: 500 } }];
    await spillway.fake.setScript({ rules });
    const at = new Date(begin + ahead * HOUR);
    const jobs = Array.from({ length: calls - failing }, (_, n) => {
      const marker = n < failing ? "bad" : "plain";
      return spillway.accepted(submission(`[[${marker}-${ahead}-${n}]]`));
    });
    for (const job of await Promise.all(jobs)) await spillway.untilDone(job);
    expected.set(`${at.toISOString().slice(0, 10)} ${at.getUTCHours()}`, [calls, failing]);
  }

  test("are a map with a cell for each hour of each day, said in words and in colour, and with the worst in a sentence", async () => {
    for (const [ahead, calls, failing] of [[0, 3, 0], [1, 4, 1], [25, 5, 2], [26, 2, 0], [48, 2, 0], [49, 6, 3]]) await hour(ahead, calls, failing); // prettier-ignore
    const { page, clean } = await open(browser, spillway.url, { hash: "#watch" });
    await watch(page);
    await untilItAgrees(page, spillway);
    const { at, hours } = await report(spillway);
    const today = Math.floor(Date.parse(at) / (24 * HOUR));
    const days = today - Math.floor(begin / (24 * HOUR)) + 1;
    const cells = await page.locator(".heat td").evaluateAll((all) =>
      all.map((cell) => ({
        when: `${new Date(Number(cell.dataset.day) * 86_400_000).toISOString().slice(0, 10)} ${cell.dataset.hour}`,
        label: cell.getAttribute("aria-label"),
        level: cell.className,
        text: cell.dataset.share ?? "",
      })),
    );
    assert.equal(cells.length, days * 24);
    for (const { when, label, level, text } of cells) {
      const [calls, failed] = expected.get(when) ?? [0, 0];
      const share = (failed / calls) * 100;
      const said = calls === 0 ? "no calls" : `${failed} call${failed === 1 ? "" : "s"} of ${calls} failed, ${share} %`;
      assert.ok(label.endsWith(`UTC: ${said}`), `${when}: ${label}, and not ${said}`);
      assert.equal(text, failed === 0 ? "" : `${share}`);
      assert.equal(level, `level-${calls === 0 ? "none" : failed === 0 ? 0 : share <= 30 ? 3 : 4}`);
    }
    const sum = (values) => values.reduce((all, value) => all + value, 0);
    assert.equal(sum(hours.calls), spillway.calls().length, "the JSON has the fake's calls");
    const worst = new Date(begin + HOUR).getUTCHours();
    const clock = `${String(worst).padStart(2, "0")}:00`;
    await page.getByText(`Worst: ${clock} UTC. On half of its 3 days at most 40 % of the calls failed, on the worst day 50 %.`).waitFor(); // prettier-ignore
    await assertAccessible(page);
    await clean();
  });

  test("are read by the keyboard: one stop for Tab, arrows from hour to hour, and the words of each below", async () => {
    const { page, clean } = await open(browser, spillway.url, { hash: "#watch" });
    await watch(page);
    await page.locator(".heat td").first().waitFor();
    assert.equal(await page.locator('.heat [tabindex="0"]').count(), 1);
    await page.locator('.heat [tabindex="0"]').focus();
    const read = () => page.evaluate(() => document.activeElement.getAttribute("aria-label"));
    const below = page.locator(".heat + .hint");
    const places = [];
    for (const key of ["Home", "ArrowLeft", "ArrowRight", "ArrowRight", "ArrowUp", "ArrowDown", "End"]) {
      await page.keyboard.press(key);
      const said = await read();
      assert.equal(await below.textContent(), said);
      places.push(said.match(/, (\d\d):00 UTC/)[1]);
    }
    assert.deepEqual(places, ["00", "00", "01", "02", "02", "02", "23"]);
    const before = await read();
    for (let n = 0; n < 2; n += 1) await page.waitForResponse("**/v1/metrics?*minutes=60");
    assert.equal(await read(), before, "and nobody is thrown out of it by news");
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.tagName), "SUMMARY");
    await clean();
  });

  test("fit a phone whole", async () => {
    const { page, clean } = await open(browser, spillway.url, { hash: "#watch", ...PHONE });
    await watch(page);
    await page.locator(".heat td").first().waitFor();
    const { x, width } = await page.locator(".heat table").boundingBox();
    assert.ok(x >= 0 && x + width <= PHONE.viewport.width);
    await page.locator(".heat td").nth(3).tap();
    await page.locator(".heat + .hint").getByText(/03:00 UTC: /).waitFor(); // prettier-ignore
    await clean();
  });
});
