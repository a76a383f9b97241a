/** `npm start`, and then the page in a real browser: it shows the storm that the demo went through, and nothing else. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { root } from "../../scripts/lib/paths.mjs";
import { eventually } from "../e2e/harness.mjs";
import { describeInBrowser, open } from "./browser.mjs";
import { giveOperatorKey } from "./operator.mjs";

/** The demo, until it says where its page is. Its storm takes a minute, on a busy machine more. */
async function demo(t) {
  const { ANTHROPIC_API_KEY: _, ...env } = process.env;
  const child = spawn(process.execPath, ["scripts/start.mjs", "--plain"], {
    cwd: root,
    env: { ...env, PORT: "0", NO_COLOR: "1" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (chunk) => (output += chunk));
  const ended = new Promise((resolve) => child.on("close", resolve));
  t.after(async () => {
    child.kill("SIGINT");
    await ended;
  });
  const told = /page +(http:\S+?)\/#watch shows the storm .*\(operator key: (\w+)\)/;
  const [, url, key] = await eventually(
    () => {
      assert.equal(child.exitCode, null, output);
      return told.exec(output);
    },
    { timeout: 240_000, what: "the demo's page" },
  );
  return { url, key, output: () => output };
}

describeInBrowser("After the demo", async (browser) => {
  test("Watch shows its jobs, its calls and the time when its gate was shut, as the Worker has counted them", async (t) => {
    const { url, key, output } = await demo(t);
    const { page, clean } = await open(browser, url, { hash: "#watch" });
    await giveOperatorKey(page, key);
    await page.locator("svg .shade").first().waitFor();
    await page.locator("svg .bar.overloaded").first().waitFor();

    // What the demo's own summary says is from its jobs and from the fake's log.
    const [, jobs] = output().match(/(\d+) jobs/);
    const response = await fetch(`${url}/v1/metrics?format=json`, { headers: { authorization: `Bearer ${key}` } });
    const { figures, timeline } = await response.json();
    assert.equal(
      timeline.submitted.reduce((all, submitted) => all + submitted, 0),
      Number(jobs),
    );
    const text = await page.locator(".figure", { hasText: "529s among calls" }).textContent();
    assert.ok(figures.overload_rate.count > 0);
    assert.ok(text.includes(`${figures.overload_rate.count} of ${figures.overload_rate.of} calls`), text);
    const { exposure } = figures;
    assert.deepEqual(
      [exposure.count, exposure.state === "broken"],
      [0, false],
      "no user of the demo has seen an overload",
    );
    await clean();
  });
});
