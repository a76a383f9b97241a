/**
 * Two storms of two hundred jobs each, at the same time on two Workers: half a minute in which the upstream answers nothing
 * but 529, and a brown-out in which four of ten calls fail. All jobs end with one answer each; what it cost is printed.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { MODEL, start, submission } from "./harness.mjs";

const JOBS = 200;

/** Submits all at once, over the three queues. */
async function storm(spillway) {
  const bodies = Array.from({ length: JOBS }, (_, n) =>
    submission(`[[job-${n}]]`, { priority: ["high", "medium", "low"][n % 3] }),
  );
  const began = Date.now();
  const ids = await Promise.all(bodies.map((body) => spillway.accepted(body)));
  return { ids, began, submitted: Date.now() - began };
}

/** When every job has ended; each has to be done, with the answer of its one call that was answered. */
async function allDone(spillway, { ids, began }) {
  const jobs = await Promise.all(ids.map((id) => spillway.untilDone(id)));
  const took = Date.now() - began;
  const calls = spillway.calls({ bodies: false });
  for (const [n, job] of jobs.entries()) {
    const answered = calls.filter(({ marker, outcome }) => marker === `job-${n}` && outcome.completed);
    assert.equal(answered.length, 1, `job ${n} was answered ${answered.length} times`);
    assert.equal(job.result.id, answered[0].outcome.message_id);
  }
  assert.ok(calls.every(({ marker }) => marker.startsWith("job-")));
  return { jobs, calls, took };
}

const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;

describe("storms", { concurrency: 2 }, () => {
  test("two hundred jobs under thirty seconds of nothing but 529: at most 1.3 calls a job", async (t) => {
    const SPELL_SECONDS = 30;
    const spillway = await start({
      policy: { breaker: { open_seconds: 3 } },
      script: {
        rules: [{ when: { until_seconds: SPELL_SECONDS }, then: { status: 529 } }, { then: { delay_ms: 200 } }],
      },
    });
    t.after(() => spillway.stop());
    const submitted = await storm(spillway);
    const { jobs, calls, took } = await allDone(spillway, submitted);
    const wasted = calls.filter(({ outcome }) => !outcome.completed);
    assert.ok(wasted.every(({ outcome }) => outcome.status === 529));
    const perJob = calls.length / JOBS;
    const attempts = jobs.reduce((sum, job) => sum + job.attempts, 0);
    t.diagnostic(
      `printed: outage: ${JOBS} jobs submitted in ${seconds(submitted.submitted)}, done ${seconds(took)} after that began, ` +
        `${calls.length} calls, ${perJob.toFixed(3)} a job, ${attempts} attempts`,
    );
    assert.ok(took > SPELL_SECONDS * 1000 - 1000);
    assert.ok(perJob <= 1.3, `${perJob} calls a job`);
  });

  test("two hundred jobs through a brown-out of 40 %: the breaker is open for less than 5 % of the time", async (t) => {
    const spillway = await start({
      policy: { max_attempts: 12, breaker: { open_seconds: 3 } },
      script: {
        seed: 7,
        rules: [{ when: { probability: 0.4 }, then: { status: 529, delay_ms: 50 } }, { then: { delay_ms: 200 } }],
      },
    });
    t.after(() => spillway.stop());
    const submitted = await storm(spillway);
    const { jobs, calls, took } = await allDone(spillway, submitted);
    const { body } = await spillway.request("/v1/gates", { as: "operator" });
    const open = openFor(body.gates[MODEL].history, took);
    const most = Math.max(...jobs.map(({ attempts }) => attempts));
    t.diagnostic(
      `printed: brown-out: ${JOBS} jobs done in ${seconds(took)}, ${calls.length} calls, ${(calls.length / JOBS).toFixed(2)} a job, ` +
        `at most ${most} attempts, the breaker open for ${seconds(open)} (${((100 * open) / took).toFixed(1)} %)`,
    );
    assert.ok(open < 0.05 * took, `open for ${open} of ${took} ms`);
  });
});

/** For how many of the last `ms` the breaker was not closed, by its history, newest first. */
function openFor(history, ms) {
  let open = 0;
  let until = 0;
  for (const { seconds_ago, to } of history) {
    const from = Math.min(seconds_ago * 1000, ms);
    if (to !== "closed") open += from - until;
    until = from;
  }
  return open;
}
