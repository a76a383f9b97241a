/**
 * The breaker under load (A7, C5), as the upstream sees it: whatever the Worker says about itself, it is the fake's log that
 * knows how many calls were made while it was open, when, and by how many at a time.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { eventually, MODEL, start, startProcess, submission } from "./harness.mjs";

const OPEN_SECONDS = 2;
const POLICY = {
  watchdog_seconds: 2,
  lease_seconds: 3,
  call: { headers_seconds: 30 },
  breaker: {
    consecutive_failures: 3,
    consecutive_seconds: 0,
    consecutive_hard: 3,
    open_seconds: OPEN_SECONDS,
    open_jitter_percent: 0,
    probe_lease_seconds: 3,
  },
};
/** Two clocks that are read in two processes, and rounded. */
const SLACK_MS = 50;

const gate = async (spillway) => (await spillway.request("/v1/gates", { as: "operator" })).body.gates[MODEL];
const transitions = (spillway) => spillway.logs("gate_transition").map(({ from, to, why }) => `${from} ${to} ${why}`);

/** Twenty jobs over all queues. */
async function twenty(spillway) {
  const bodies = Array.from({ length: 20 }, (_, n) =>
    submission(`[[job-${n}]]`, { priority: ["high", "medium", "low"][n % 3] }),
  );
  return Promise.all(bodies.map((body) => spillway.accepted(body)));
}

/** Everything fails until the gate is open and nothing is on its way any more; the next calls get what `rules` say. */
async function trip(spillway, rules) {
  await spillway.untilLog(({ event, to }) => event === "gate_transition" && to === "open");
  const opened = await eventually(async () => {
    const status = await gate(spillway);
    return status.state === "open" && status.in_flight === 0 && status;
  });
  if (rules) await spillway.fake.setScript({ rules });
  return { opened, before: spillway.calls().length };
}

/** An outage that begins when the gate has learnt how quick an answer is: it paces the wake-ups by that. */
async function outage(spillway) {
  await spillway.untilDone(await spillway.accepted(submission("[[before]]")));
  await spillway.fake.setScript({ rules: [{ then: { status: 529 } }] });
}

/** No call begins before the one before it is over and a cooldown has passed since. */
function oneProbePerCooldown(probes, seconds = OPEN_SECONDS) {
  for (const [n, probe] of probes.entries()) {
    if (n === 0) continue;
    const quiet = probe.started_at - probes[n - 1].ended_at;
    assert.ok(quiet >= seconds * 1000 - SLACK_MS, `probe ${n + 1} came ${quiet} ms after the one before`);
  }
}

describe("the breaker", { concurrency: 3 }, () => {
  test("opens under twenty waiting jobs: none loses an attempt while it is open, and one probe goes per cooldown", async (t) => {
    const spillway = await start({ policy: POLICY });
    t.after(() => spillway.stop());
    await outage(spillway);
    const ids = await twenty(spillway);
    const { opened, before } = await trip(spillway);
    assert.ok(opened.next_check_seconds >= 1 && opened.next_check_seconds <= OPEN_SECONDS);
    assert.equal(opened.history.at(-1).to, "open");
    const attempts = async () => Promise.all(ids.map(async (id) => (await spillway.job(id)).body.attempts));
    const attemptsBefore = await attempts();
    assert.ok(attemptsBefore.reduce((sum, n) => sum + n) < before, "the one that opened it costs none");

    await spillway.untilCalls((calls) => calls.filter(({ outcome }) => outcome).length >= before + 3);
    const waiting = await eventually(async () => {
      const jobs = await Promise.all(ids.map(async (id) => (await spillway.job(id)).body));
      return jobs.every(({ waiting }) => waiting) && jobs;
    });
    for (const { status, waiting: { reason, next_check_seconds } = {} } of waiting) {
      // A probe that is overloaded is a call that failed; its job waits as the others do.
      assert.ok(["held", "retrying"].includes(status), status);
      assert.ok(["breaker_open", "probe_in_flight", "overloaded"].includes(reason), reason);
      assert.ok(next_check_seconds >= 1 && next_check_seconds < 30, `${next_check_seconds}`);
    }
    assert.deepEqual(await attempts(), attemptsBefore, "waiting and overloaded probes cost nothing");

    await spillway.fake.setScript({}, { counters: true });
    for (const id of ids) await spillway.untilDone(id);
    const calls = spillway.calls();
    const probes = calls.slice(before).filter(({ outcome }) => outcome.status === 529);
    assert.ok(probes.length >= 3);
    oneProbePerCooldown([calls[before - 1], ...probes, calls[before + probes.length]]);
    assert.equal(calls.length, before + probes.length + 20, "after the closing one call each");
    for (let n = 0; n < 20; n += 1) {
      const answered = spillway.calls({ marker: `job-${n}` }).filter(({ outcome }) => outcome.completed);
      assert.equal(answered.length, 1, `job ${n}`);
    }
    assert.deepEqual(await attempts(), attemptsBefore);

    const probing = ["open half_open cooldown_over", "half_open open probe_failed"];
    const expected = [
      transitions(spillway)[0],
      ...probes.flatMap(() => probing),
      "open half_open cooldown_over",
      "half_open closed probe_succeeded",
    ];
    assert.deepEqual(transitions(spillway), expected);
    const closed = await gate(spillway);
    assert.equal(closed.state, "closed");
    assert.deepEqual(
      closed.history.map(({ from, to, why }) => `${from} ${to} ${why}`),
      expected.toReversed().slice(0, closed.history.length),
    );
    assert.ok(closed.history.every(({ seconds_ago }) => seconds_ago < 60));
    const started = spillway.logs("call_started").filter(({ permit }) => permit === "probe");
    assert.equal(started.length, probes.length + 1);
    t.diagnostic(
      `printed: ${before} calls to open, ${probes.length} overloaded probes, ${calls.length} calls for 20 jobs`,
    );
  });

  test("no more calls are in flight than the gate bears: two at first, and two when it has just closed again", async (t) => {
    // Nothing has come of it while it lasts: the first content of an answer is a success, and makes room for more.
    const slow = { delay_ms: 1500 };
    const spillway = await start({
      policy: { ...POLICY, pace: { start_in_flight: 2 } },
      script: { rules: [{ then: slow }] },
    });
    t.after(() => spillway.stop());
    /** How many of the calls were begun before any of them was over. */
    const atOnce = (calls) => {
      const firstEnd = Math.min(...calls.map(({ ended_at }) => ended_at));
      return calls.filter(({ started_at }) => started_at < firstEnd).length;
    };
    const five = async (name) => {
      const names = [1, 2, 3, 4, 5].map((n) => submission(`[[${name}-${n}]]`, { priority: "medium" }));
      return Promise.all(names.map((body) => spillway.accepted(body)));
    };
    for (const id of await five("start")) assert.equal((await spillway.untilDone(id)).calls, 1);
    assert.equal(atOnce(spillway.calls()), 2);

    await spillway.fake.setScript({ rules: [{ when: { call: "1-3" }, then: { status: 529 } }, { then: slow }] });
    const before = spillway.calls().length;
    const ids = await five("reopen");
    for (const id of ids) await spillway.untilDone(id);
    const answered = spillway
      .calls()
      .slice(before)
      .filter(({ outcome }) => outcome.status === 200);
    assert.equal(answered.length, 5);
    assert.ok(atOnce(answered) <= 2, `${atOnce(answered)} at once after the probe`);
    assert.ok(transitions(spillway).includes("half_open closed probe_succeeded"));
  });

  test("a probe that fails otherwise costs its job an attempt, and the next probe is another job's", async (t) => {
    const spillway = await start({ policy: POLICY });
    t.after(() => spillway.stop());
    await outage(spillway);
    const ids = [];
    for (let n = 0; n < 6; n += 1) ids.push(await spillway.accepted(submission(`[[job-${n}]]`)));
    await trip(spillway, [{ when: { call: "1-2" }, then: { status: 500 } }]);
    for (const id of ids) await spillway.untilDone(id);
    const calls = spillway.calls();
    const [first, second] = calls.filter(({ outcome }) => outcome.status === 500);
    assert.notEqual(first.marker, second.marker, "the job whose probe failed waits its turn");
    oneProbePerCooldown([first, second, calls[calls.indexOf(second) + 1]]);
    const jobs = await Promise.all(ids.map(async (id) => (await spillway.job(id)).body));
    const failed = jobs.flatMap(({ history }) => history).filter(({ cause }) => cause === "server_error");
    assert.deepEqual(
      failed.map(({ costs_attempt }) => costs_attempt),
      [true, true],
    );
  });

  test("a probe whose holder dies is followed by another when its lease is over, and by one only", async (t) => {
    const spillway = await startProcess({ policy: POLICY });
    t.after(() => spillway.stop());
    await outage(spillway);
    const ids = [];
    for (let n = 0; n < 5; n += 1) ids.push(await spillway.accepted(submission(`[[job-${n}]]`)));
    const { before } = await trip(spillway, [
      { when: { call: 1 }, then: { fault: "hang" } },
      { when: { call: 2 }, then: { delay_ms: 1500 } },
    ]);
    await spillway.untilCalls((calls) => calls.length === before + 1);
    assert.equal((await gate(spillway)).state, "half_open");
    const killed = Date.now();
    await spillway.kill();
    await spillway.untilCalls((calls) => calls[before].outcome !== null);
    await spillway.restart();
    const { state, probe_in_flight } = await gate(spillway);
    assert.equal(state, "half_open", "the gate remembers");
    // Unless starting again took as long as the lease.
    assert.ok(probe_in_flight || spillway.calls().length > before + 1 || Date.now() - killed > 3_000);

    for (const id of ids) await spillway.untilDone(id);
    const calls = spillway.calls();
    const [dead, next] = calls.slice(before);
    assert.ok(dead.outcome.client_closed);
    // The lease was three seconds, and renewed every one until the crash.
    const after = next.started_at - dead.ended_at;
    assert.ok(after >= 1500 && after < 15_000, `${after} ms`);
    const others = calls.slice(before + 2);
    assert.ok(
      others.every(({ started_at }) => started_at >= next.started_at + 1500 - SLACK_MS),
      "one at a time",
    );
    for (let n = 0; n < 5; n += 1) {
      const answered = spillway.calls({ marker: `job-${n}` }).filter(({ outcome }) => outcome.completed);
      assert.equal(answered.length, 1, `job ${n}`);
    }
    assert.equal((await gate(spillway)).state, "closed");
    t.diagnostic(`printed: the next probe came ${after} ms after its predecessor died`);
  });
});
