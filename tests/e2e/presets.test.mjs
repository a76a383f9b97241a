/** Presets (B6): how many attempts a job has, and by which waits, in one word of its submission. */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { start, submission } from "./harness.mjs";

/**
 * Attempts, and the first wait after a 429, ms: equal jitter over twice the base. (That after a 529 may be anything from zero on,
 * and so shows nothing.)
 */
const PRESETS = {
  realtime: [5, 500, 1000],
  batch: [8, 1000, 2000],
  offline: [10, 2000, 4000],
  // The deployment's own, see POLICY in harness.mjs.
  none: [2, 100, 200],
};

describe("a preset", { concurrency: true }, async () => {
  const spillway = await start({
    policy: { max_attempts: 2, breaker: { consecutive_hard: 500, minimum_calls: 500, consecutive_failures: 500 } },
    script: {
      rules: [
        { when: { marker: "[[fails-" }, then: { status: 500 } },
        { when: { marker: "[[limited-", prompt_call: 1 }, then: { status: 429 } },
      ],
    },
  });
  after(() => spillway.stop());

  /** Each of a model of its own: buckets are per model. */
  const accepted = (marker, preset) =>
    spillway.accepted(
      submission(`[[${marker}]]`, { preset, when_exhausted: "fail", request: { model: `claude-of-${marker}` } }),
    );

  for (const [preset, [attempts, least, most]] of Object.entries(PRESETS)) {
    const named = preset === "none" ? undefined : preset;

    test(`${preset}: ${attempts} attempts, of a call each`, async () => {
      const marker = `fails-${preset}`;
      const failed = await spillway.untilStatus(await accepted(marker, named), "failed");
      assert.deepEqual([failed.reason, failed.attempts, failed.calls], ["attempts_exhausted", attempts, attempts]);
      assert.equal(spillway.calls({ marker }).length, attempts);
    });

    test(`${preset}: the first wait after a 429 is drawn from ${least} to ${most} ms`, async () => {
      const { history } = await spillway.untilDone(await accepted(`limited-${preset}`, named));
      const [{ computed_wait_ms }] = history;
      assert.ok(computed_wait_ms >= least && computed_wait_ms <= most, `${computed_wait_ms} ms`);
    });
  }
});
