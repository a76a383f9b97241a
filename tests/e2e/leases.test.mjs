/**
 * Consumers that take long, and gates and neighbours that do: leases are renewed, nothing is called twice, and nobody waits
 * for somebody else.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { envelope, MODEL, start, submission } from "./harness.mjs";

/** A worker for this test alone. */
async function own(test, options) {
  const spillway = await start(options);
  test.after(() => spillway.stop());
  return spillway;
}

const troubles = (spillway, part) => spillway.logs("trouble").filter((line) => line.part === part);

describe("leases", { concurrency: 6 }, () => {
  test("a call that outlasts its lease is renewed, and never made twice", async (t) => {
    const spillway = await own(t, {
      // Long enough that a slow machine neither misses a renewal nor is still delivering when the calls are over.
      policy: { lease_seconds: 3, watchdog_seconds: 1 },
      script: {
        rules: [
          { when: { marker: "[[silent]]" }, then: { delay_ms: 14_000 } },
          { when: { marker: "[[slow]]" }, then: { tokens: 60, chunk_delay_ms: 750 } },
        ],
      },
    });
    // Each in a queue of its own: the broker delivers one batch at a time per queue.
    const jobs = [
      [await spillway.accepted(submission("[[silent]]", { priority: "high" })), "silent"],
      [await spillway.accepted(submission("[[slow]]", { priority: "low" })), "slow"],
    ];
    await spillway.untilCalls((calls) => calls.length === 2);
    // The queue delivers again meanwhile, as it would for a consumer that it believes dead.
    for (let times = 0; times < 3; times += 1) {
      await new Promise((resolve) => setTimeout(resolve, 1500));
      const { outcome } = await spillway.deliver(
        "medium",
        jobs.map(([id]) => envelope(id)),
      );
      assert.equal(outcome, "ok");
    }
    for (const [id, marker] of jobs) {
      const done = await spillway.untilDone(id);
      assert.deepEqual([done.calls, done.attempts], [1, 0]);
      const [call, ...others] = spillway.calls({ marker });
      assert.deepEqual(others, [], marker);
      assert.ok(call.ended_at - call.started_at > 6000, `${marker} took only ${call.ended_at - call.started_at} ms`);
      const skipped = spillway.logs("delivery_skipped").filter(({ job }) => job === id);
      const leased = skipped.filter(({ reason }) => reason === "leased");
      assert.ok(leased.length >= 2, JSON.stringify(skipped));
    }
  });

  test("a renewal that gets no answer does not end the call", async (t) => {
    const spillway = await own(t, {
      policy: { lease_seconds: 6 },
      script: { rules: [{ then: { delay_ms: 8000 } }] },
    });
    await spillway.fault({ binding: "job", operation: "renew", how: "refuse", times: 1 });
    const done = await spillway.untilDone(await spillway.accepted());
    assert.deepEqual(await spillway.struck(), [1]);
    assert.equal(done.calls, 1);
    assert.equal(spillway.calls().length, 1);
    assert.ok(troubles(spillway, "job_object").length >= 1, "it is logged");
  });

  test("a consumer that could not renew its lease is fenced: its answer is void, and the next one's counts", async (t) => {
    const spillway = await own(t, {
      policy: { lease_seconds: 3 },
      script: { rules: [{ when: { call: 1 }, then: { delay_ms: 12_000 } }] },
    });
    // Nobody hears of the first call for two leases.
    await spillway.fault({ binding: "job", operation: "renew", how: "refuse", times: 8 });
    const id = await spillway.accepted(submission("[[fenced]]", { priority: "low" }));
    await spillway.untilCalls((calls) => calls.length === 1);
    // The alarm finds the lease over; the broker is still busy with the first delivery.
    await spillway.untilStatus(id, "held");
    await spillway.deliver("high", envelope(id));
    const done = await spillway.untilDone(id);
    assert.equal(done.calls, 2);
    await spillway.untilLog(({ event, job }) => event === "call_abandoned" && job === id);
    await spillway.untilCalls((calls) => calls.every(({ outcome }) => outcome));
    const [first, second, ...others] = spillway.calls();
    assert.deepEqual(others, []);
    assert.equal(done.result.id, second.outcome.message_id);
    assert.ok(first.outcome.client_closed || first.ended_at > second.ended_at);
    assert.deepEqual((await spillway.job(id)).body.result, done.result, "whatever came later");
  });

  test("a gate that refuses: calls go on without it, and that is logged", async (t) => {
    const spillway = await own(t);
    await spillway.fault({ binding: "gate", how: "refuse" });
    const id = await spillway.accepted(submission("[[unguarded]]"));
    const done = await spillway.untilDone(id);
    assert.deepEqual([done.attempts, done.calls], [0, 1]);
    assert.equal(spillway.calls().length, 1);
    assert.deepEqual(
      spillway.logs("call_started").map(({ permit }) => permit),
      ["unguarded"],
    );
    assert.ok(troubles(spillway, "gate").every(({ job }) => job === id) && troubles(spillway, "gate").length >= 2);
  });

  test("a gate that never answers: one call per batch goes on, the others wait some seconds and come then", async (t) => {
    const spillway = await own(t);
    await spillway.fault([
      { binding: "gate", how: "hang" },
      { binding: "queue", how: "lose" },
    ]);
    const ids = [];
    for (const n of [1, 2, 3]) ids.push(await spillway.accepted(submission(`[[hang-${n}]]`)));
    const began = Date.now();
    await spillway.deliver(
      "high",
      ids.map((id) => envelope(id)),
    );
    const took = Date.now() - began;
    assert.equal(spillway.calls().length, 1, "without the gate's permit one call in ten seconds");
    const jobs = await Promise.all(ids.map(async (id) => (await spillway.job(id)).body));
    const statuses = jobs.map(({ status }) => status);
    assert.deepEqual(statuses.toSorted(), ["done", "held", "held"]);
    for (const { status, waiting, attempts } of jobs) {
      if (status !== "held") continue;
      assert.equal(waiting.reason, "gate_unavailable");
      assert.ok(waiting.next_check_seconds >= 1 && waiting.next_check_seconds <= 10);
      assert.equal(attempts, 0);
    }
    // Twice three seconds of patience for the permit, and as long for the report.
    assert.ok(took < 25_000, `${took} ms`);
    assert.ok(troubles(spillway, "gate").length >= 3);
  });

  test("a gate that has too much to do is left alone: no call, no attempt, five to fifteen seconds", async (t) => {
    const spillway = await own(t);
    await spillway.fault([
      { binding: "gate", how: "overloaded" },
      { binding: "queue", how: "lose" },
    ]);
    const ids = [];
    for (const n of [1, 2, 3]) ids.push(await spillway.accepted(submission(`[[overloaded-${n}]]`)));
    await spillway.deliver(
      "high",
      ids.map((id) => envelope(id)),
    );
    for (const id of ids) {
      const { body } = await spillway.job(id);
      assert.equal(body.status, "held");
      assert.equal(body.waiting.reason, "gate_unavailable");
      assert.ok(body.waiting.next_check_seconds >= 5 && body.waiting.next_check_seconds <= 15, JSON.stringify(body));
      assert.equal(body.attempts, 0);
    }
    assert.deepEqual(spillway.calls(), []);
    // Asking an overloaded one again makes it worse.
    assert.equal((await spillway.struck())[0], 3);
    assert.equal(troubles(spillway, "gate").length, 3);
  });

  test("a gate that takes no report: the failed call waits by its own backoff, and the job goes on", async (t) => {
    const spillway = await own(t, { script: { rules: [{ when: { call: 1 }, then: { status: 500 } }] } });
    // The permit passes; of the report neither the first nor the second try does.
    await spillway.fault({ binding: "gate", how: "refuse", after: 1, times: 2 });
    const done = await spillway.untilDone(await spillway.accepted());
    assert.deepEqual([done.attempts, done.calls], [1, 2]);
    assert.ok(done.history[0].computed_wait_ms <= 200);
    assert.equal(spillway.calls().length, 2);
    assert.ok(troubles(spillway, "gate").length >= 1);
  });

  test("a slow neighbour in the batch: another job's wait is not longer for it", async (t) => {
    const spillway = await own(t, {
      script: {
        rules: [
          { when: { marker: "[[neighbour]]" }, then: { tokens: 60, chunk_delay_ms: 900 } },
          { when: { marker: "[[quick]]", prompt_call: 1 }, then: { status: 500 } },
        ],
      },
    });
    await spillway.fault({ binding: "queue", how: "lose", times: 2 });
    const slow = await spillway.accepted(submission("[[neighbour]]"));
    const quick = await spillway.accepted(submission("[[quick]]"));
    // From here on the queue keeps what it gets: the turn after the failure comes through the broker.
    const delivered = spillway.deliver("high", [envelope(slow), envelope(quick)]);
    let isOver = false;
    delivered.then(() => (isOver = true));
    await spillway.untilDone(quick);
    assert.ok(!isOver, "the batch is still at work for the neighbour");
    await spillway.untilStatus(slow, "refining");
    const [failed, answered] = spillway.calls({ marker: "quick" });
    const waited = answered.started_at - failed.started_at;
    assert.ok(waited >= 900, `${waited} ms of a wait of one second`);
    await delivered;
    assert.equal((await spillway.job(slow)).body.status, "done");
    const neighbour = spillway.calls({ marker: "neighbour" });
    assert.equal(neighbour.length, 1);
    assert.ok(neighbour[0].ended_at > answered.ended_at);
    t.diagnostic(
      `printed: a wait of 1 s took ${waited} ms beside a call of ${neighbour[0].ended_at - neighbour[0].started_at} ms`,
    );
  });

  test("five calls of one batch run side by side", async (t) => {
    const spillway = await own(t, { script: { rules: [{ then: { delay_ms: 5000 } }] } });
    await spillway.fault({ binding: "queue", how: "lose" });
    const ids = [];
    for (const n of [1, 2, 3, 4, 5]) ids.push(await spillway.accepted(submission(`[[side-${n}]]`)));
    await spillway.deliver(
      "medium",
      ids.map((id) => envelope(id)),
    );
    const calls = spillway.calls();
    assert.equal(calls.length, 5);
    const lastStart = Math.max(...calls.map(({ started_at }) => started_at));
    assert.ok(
      calls.every(({ ended_at }) => ended_at > lastStart),
      "all five were open at one moment",
    );
    for (const id of ids) assert.equal((await spillway.job(id)).body.status, "done");
    const { body } = await spillway.request("/v1/gates", { as: "operator" });
    assert.equal(body.gates[MODEL].in_flight, 0);
  });
});
