/**
 * The machine goes down (SIGKILL for workerd and all) and comes back on the same state. What waited in a queue is lost with
 * it, for Miniflare keeps messages in memory; every job is finished all the same, and no more is called than has to be.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { eventually, startProcess, submission } from "./harness.mjs";

const POLICY = { lease_seconds: 2, watchdog_seconds: 1, call: { headers_seconds: 30, idle_seconds: 30 } };

describe("a crash", { concurrency: 2 }, () => {
  test("loses no job that waits, is delayed or is being called for", async (t) => {
    const spillway = await startProcess({
      policy: POLICY,
      script: {
        rules: [
          { when: { marker: "[[silent]]", prompt_call: 1 }, then: { fault: "hang" } },
          {
            when: { marker: "[[streaming]]", prompt_call: 1 },
            then: { tokens: 40, cut: { after_deltas: 4, how: "stall" } },
          },
          { when: { marker: "[[delayed]]", prompt_call: 1 }, then: { status: 529, retry_after: 3 } },
        ],
      },
    });
    t.after(() => spillway.stop());
    const accepted = (marker, priority, options) =>
      spillway.accepted(submission(`[[${marker}]]`, { priority }), options);
    const over = await accepted("over", "high");
    const before = await spillway.untilDone(over);
    const delayed = await accepted("delayed", "high");
    await spillway.untilStatus(delayed, "retrying");
    const silent = await accepted("silent", "low");
    const streaming = await accepted("streaming", "medium");
    await spillway.untilStatus(silent, "generating");
    await spillway.untilStatus(streaming, "refining");
    // Behind the two, whose batches their queues are busy with.
    const waiting = [];
    for (const n of [1, 2, 3])
      waiting.push(await accepted(`waiting-${n}`, ["low", "medium"][n % 2], { key: `key-${n}` }));

    await spillway.kill();
    await spillway.untilCalls((calls) => calls.every(({ outcome }) => outcome));
    await spillway.restart();

    assert.deepEqual((await spillway.job(over)).body, before, "what was finished is still there");
    const again = await accepted("waiting-1", "medium", { key: "key-1" });
    assert.equal(again, waiting[0], "the same key is the same job");
    for (const id of [delayed, silent, streaming, ...waiting]) await spillway.untilDone(id);

    const outcomes = (marker) => spillway.calls({ marker }).map(({ outcome }) => outcome.status ?? "closed");
    assert.deepEqual(outcomes("over"), [200]);
    assert.deepEqual(outcomes("delayed"), [529, 200]);
    assert.deepEqual(outcomes("silent"), ["closed", 200]);
    assert.deepEqual(outcomes("streaming"), [200, 200]);
    assert.ok(spillway.calls({ marker: "streaming" })[0].outcome.client_closed);
    for (const n of [1, 2, 3]) assert.deepEqual(outcomes(`waiting-${n}`), [200]);
    const { body } = await spillway.job(streaming);
    assert.deepEqual(
      [body.calls, body.attempts],
      [2, 0],
      "a call that died with its consumer is counted, and no attempt",
    );
    const [first, second] = spillway.calls({ marker: "delayed" });
    assert.ok(second.started_at - first.ended_at >= 3000, "Retry-After is obeyed across the crash");
  });

  test("again and again: every job is finished, and called for no more than once a crash", async (t) => {
    const CRASHES = 3;
    const spillway = await startProcess({
      policy: POLICY,
      script: {
        rules: [
          { when: { probability: 0.15 }, then: { status: 500 } },
          { then: { delay_ms: 150, chunk_delay_ms: 20 } },
        ],
      },
    });
    t.after(() => spillway.stop());
    const ids = [];
    for (let crash = 0; crash < CRASHES; crash += 1) {
      // Before the jobs come: some of them have been called for when the last one is accepted.
      const called = spillway.calls().length;
      for (let n = 0; n < 6; n += 1) {
        const body = submission(`[[job-${ids.length}]]`, { priority: ["high", "medium", "low"][n % 3] });
        ids.push(await spillway.accepted(body));
      }
      await spillway.untilCalls((calls) => calls.length >= called + 3);
      await spillway.kill();
      await spillway.restart();
    }
    for (const id of ids) await spillway.untilDone(id);
    let more = 0;
    for (const [n, id] of ids.entries()) {
      const calls = spillway.calls({ marker: `job-${n}` });
      const failed = calls.filter(({ outcome }) => outcome.status === 500).length;
      assert.ok(calls.length - failed <= 1 + CRASHES, `job ${n}: ${calls.length} calls`);
      const { body } = await spillway.job(id);
      assert.equal(body.result.id, calls.at(-1).outcome.message_id, "the last answer is the one that counts");
      more += calls.length - failed - 1;
    }
    await eventually(async () => {
      const { body } = await spillway.request("/v1/gates", { as: "operator" });
      return body.gates["claude-sonnet-5-5"].in_flight === 0;
    });
    t.diagnostic(`printed: ${ids.length} jobs, ${CRASHES} crashes, ${more} calls made again`);
  });
});
