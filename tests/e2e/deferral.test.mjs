/**
 * Exhausted jobs (A5, stage 3): the offer to wait for quieter hours, the answers to it, and silence, which is one. A
 * deferral lasts up to an hour and more, whatever POLICY says: the Worker's clock is put ahead instead, and the turn that
 * has come due by it is delivered by hand.
 */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { envelope, eventually, start, startProcess, submission } from "./harness.mjs";

const POLICY = { max_attempts: 1, deferral: { answer_seconds: 60, at_least_seconds: 0 } };
/** Every job's first call fails, and that was its attempt. */
const FAILS_ONCE = { rules: [{ when: { prompt_call: 1 }, then: { status: 500 } }] };
const HOUR_MS = 3_600_000;

async function own(test, { policy, ...options } = {}, run = start) {
  const spillway = await run({ policy: { ...POLICY, ...policy }, script: FAILS_ONCE, ...options });
  test.after(() => spillway.stop());
  return spillway;
}

const answer = (spillway, id, body, { as = "app", ...options } = {}) =>
  spillway.request(`/v1/jobs/${id}/deferral`, { method: "POST", as, body, ...options });

/** The answer that has to be taken; the job's status after it. */
async function answered(spillway, id, accept) {
  const { status, body, text } = await answer(spillway, id, { accept });
  assert.equal(status, 200, text);
  return body;
}

async function stalled(spillway, { marker = "job", ...fields } = {}) {
  const id = await spillway.accepted(submission(`[[${marker}]]`, fields));
  return spillway.untilStatus(id, "stalled");
}

/** Puts the clock to the end of a deferral, and delivers the turn that is due then. */
async function resume(spillway, { id, waiting }, turn = 2) {
  await spillway.setClock((waiting.next_check_seconds + 1) * 1000);
  const { explicitAcks } = await spillway.deliver("high", { id: "due", body: envelope(id, turn) });
  assert.deepEqual(explicitAcks, ["due"]);
  return (await spillway.job(id)).body;
}

describe("an exhausted job", { concurrency: 4 }, () => {
  test("is stalled with an offer that says by when, what silence means, and when it would go on", async (t) => {
    const spillway = await own(t);
    const id = await spillway.accepted(submission("[[job]]"));
    const { body: job, headers } = await spillway.job(id, { wait: 20 });
    assert.equal(job.status, "stalled", "whoever waits for the end is told: it has to answer");
    const { answer_within_seconds, without_answer, resumes_at, ...others } = job.offer;
    assert.deepEqual([without_answer, others], ["deferred", {}]);
    assert.ok(answer_within_seconds > 50 && answer_within_seconds <= 60, `${answer_within_seconds}`);
    const resumes = Date.parse(resumes_at) - Date.now();
    assert.ok(resumes >= 55_000 && resumes <= HOUR_MS, "not before the offer is over, and spread over an hour");
    assert.deepEqual([job.attempts, job.calls, job.message.code, job.waiting], [1, 1, "stalled", undefined]);
    assert.ok(Number(headers.get("retry-after")) <= 60);
    assert.equal(headers.get("cache-control"), "no-store");
    const [{ then, resume_ms }] = spillway.logs("job_exhausted");
    assert.equal(then, "stall");
    assert.ok(Math.abs(resume_ms - resumes) < 10_000);
    // Its old turn, delivered again, is nobody's.
    await spillway.deliver("high", envelope(id, 1));
    assert.deepEqual((await spillway.job(id)).body.status, "stalled");
    assert.equal(spillway.calls().length, 1);
  });

  test("that may wait is deferred, sleeps until then, and goes on with fresh attempts and as much time as at first", async (t) => {
    const spillway = await own(t);
    const before = await stalled(spillway, { deadline_seconds: 600 });
    const deferred = await answered(spillway, before.id, true);
    assert.deepEqual(
      [deferred.status, deferred.waiting.reason, deferred.message.code],
      ["deferred", "deferred", "deferred"],
    );
    assert.equal(deferred.offer, undefined);
    const resumes = Date.parse(before.offer.resumes_at);
    assert.ok(Math.abs(Date.now() + deferred.waiting.next_check_seconds * 1000 - resumes) < 10_000);
    assert.deepEqual([deferred.attempts, deferred.calls, deferred.history.length], [0, 1, 1]);
    assert.equal(Date.parse(deferred.deadline_at), resumes + 600_000);
    const again = await answered(spillway, before.id, true);
    assert.deepEqual([again.status, again.updated_at], ["deferred", deferred.updated_at], "yes, twice");

    await spillway.deliver("high", envelope(before.id, 2));
    assert.equal((await spillway.job(before.id)).body.status, "deferred", "a message that comes early wakes nobody");
    assert.equal(spillway.calls().length, 1);
    const done = await resume(spillway, deferred);
    assert.deepEqual([done.status, done.attempts, done.calls, done.message.code], ["done", 0, 2, "done"]);
    assert.equal(spillway.calls().length, 2);
  });

  test("that nobody answers for is deferred when the time for it is over", async (t) => {
    const spillway = await own(t, { policy: { deferral: { answer_seconds: 5, at_least_seconds: 0 } } });
    const { id, offer } = await stalled(spillway);
    const deferred = await spillway.untilStatus(id, "deferred");
    const resumes = Date.now() + deferred.waiting.next_check_seconds * 1000;
    assert.ok(Math.abs(resumes - Date.parse(offer.resumes_at)) < 10_000);
    const done = await resume(spillway, deferred);
    assert.deepEqual([done.status, spillway.calls().length], ["done", 2]);
  });

  test("that may not wait fails, and is called for no more", async (t) => {
    const spillway = await own(t);
    const { id } = await stalled(spillway);
    const failed = await answered(spillway, id, false);
    assert.deepEqual([failed.status, failed.reason, failed.message.code], ["failed", "deferral_declined", "failed"]);
    assert.deepEqual([failed.error.cause, failed.attempts], ["server_error", 1]);
    assert.match(failed.error.message, /declined/);
    for (const accept of [true, false]) assert.equal((await answer(spillway, id, { accept })).status, 409);
    for (const turn of [1, 2]) await spillway.deliver("high", envelope(id, turn));
    assert.equal(spillway.calls().length, 1);
    const kept = await eventually(() => spillway.stored(`job:${id}`), { what: "the job in KV" });
    assert.equal(kept.head.status, "failed");
  });

  test("that was deferred before fails the second time", async (t) => {
    const spillway = await own(t, { script: { rules: [{ then: { status: 500 } }] } });
    const { id } = await stalled(spillway);
    const failed = await resume(spillway, await answered(spillway, id, true));
    assert.deepEqual([failed.status, failed.reason], ["failed", "attempts_exhausted"]);
    assert.deepEqual([failed.attempts, failed.calls, spillway.calls().length], [1, 2, 2]);
  });

  test("is asked again as often as max_deferrals allows", async (t) => {
    const always = { rules: [{ then: { status: 500 } }] };
    const never = await own(t, { policy: { max_deferrals: 0 }, script: always });
    const failed = await never.untilStatus(await never.accepted(), "failed");
    assert.deepEqual([failed.reason, never.calls().length], ["attempts_exhausted", 1]);

    const twice = await own(t, { policy: { max_deferrals: 2 }, script: always });
    const { id } = await stalled(twice);
    const second = await resume(twice, await answered(twice, id, true));
    assert.deepEqual([second.status, twice.calls().length], ["stalled", 2]);
  });

  test("waits for an off-peak window that is at least as far away as POLICY says", async (t) => {
    const from = (new Date().getUTCHours() + 3) % 24;
    const hours = { peak_utc: "", off_peak_utc: `${from}-${(from + 2) % 24}` };
    const spillway = await own(t, { policy: { hours, deferral: { at_least_seconds: 6 * 3600 } } });
    const { offer, created_at } = await stalled(spillway);
    const at = new Date(offer.resumes_at);
    const ahead = (at - Date.parse(created_at)) / HOUR_MS;
    // The next one is too near; the one after it is tomorrow's, and its second half is left alone.
    assert.ok(ahead > 25 && ahead < 28, `${ahead} h`);
    assert.equal(at.getUTCHours(), from);
  });

  test("waits for longer than a queue can: the message comes when the longest delay is over, and is sent again", async (t) => {
    const DAY_SECONDS = 86_400;
    const from = (new Date().getUTCHours() + 3) % 24;
    const hours = { peak_utc: "", off_peak_utc: `${from}-${(from + 2) % 24}` };
    const spillway = await own(t, { policy: { hours, deferral: { at_least_seconds: 6 * 3600 } } });
    const id = await spillway.accepted(submission("[[job]]", { when_exhausted: "defer" }));
    const { waiting } = await spillway.untilStatus(id, "deferred");
    const seconds = waiting.next_check_seconds;
    assert.ok(seconds > DAY_SECONDS + 3600, `${seconds} s`);
    const delays = (count) =>
      eventually(async () => {
        const delays = await spillway.delays(id, 2);
        return delays.length >= count && delays;
      });
    assert.deepEqual(await delays(1), [DAY_SECONDS]);

    await spillway.setClock(DAY_SECONDS * 1000);
    const { explicitAcks } = await spillway.deliver("high", { id: "early", body: envelope(id, 2) });
    assert.deepEqual(explicitAcks, ["early"]);
    const { body: early } = await spillway.job(id);
    assert.deepEqual([early.status, early.attempts, spillway.calls().length], ["deferred", 0, 1]);
    const [, rest, ...others] = await delays(2);
    assert.deepEqual(others, []);
    assert.ok(rest >= early.waiting.next_check_seconds && rest <= seconds - DAY_SECONDS + 1, `${rest} s more`);

    const done = await resume(spillway, { id, waiting });
    assert.deepEqual([done.status, done.attempts, done.calls, spillway.calls().length], ["done", 0, 2, 2]);
  });

  test("does what its submission says, and else what its kind does", async (t) => {
    const kinds = {
      patient: { when_exhausted: "defer" },
      impatient: { when_exhausted: "fail" },
    };
    const spillway = await own(t, { policy: { kinds }, script: { rules: [{ then: { status: 500 } }] } });
    for (const [kind, when_exhausted, status] of [
      ["patient", undefined, "deferred"],
      ["impatient", undefined, "failed"],
      ["patient", "fail", "failed"],
      ["impatient", "defer", "deferred"],
      ["patient", "ask", "stalled"],
      ["default", "defer", "deferred"],
      ["default", undefined, "stalled"],
    ]) {
      const marker = `${kind}-${when_exhausted}`;
      const id = await spillway.accepted(submission(`[[${marker}]]`, { kind, when_exhausted }));
      const job = await spillway.untilStatus(id, status);
      assert.equal(spillway.calls({ marker }).length, 1, marker);
      if (status === "failed") assert.equal(job.reason, "attempts_exhausted");
      if (status === "deferred") assert.equal(job.waiting.reason, "deferred");
    }
  });

  test("whose calls are used up is exhausted as well", async (t) => {
    // A poisonous request may make three calls for each attempt, and probes and 429s cost no attempt.
    const spillway = await own(t, {
      policy: { max_attempts: 1, max_calls: 1 },
      script: { rules: [{ then: { error: "rate_limit", retry_after: 1 } }] },
    });
    const job = await stalled(spillway, { kind: "code_generation" });
    assert.deepEqual([job.attempts, job.calls, spillway.calls().length], [0, 3, 3]);
  });

  test("is cancelled while it is asked, and while it is deferred", async (t) => {
    const spillway = await own(t);
    for (const accept of [false, true]) {
      const marker = `cancelled-${accept}`;
      const { id } = await stalled(spillway, { marker });
      if (accept) await answered(spillway, id, true);
      assert.equal((await spillway.cancel(id)).body.status, "cancelled");
      assert.equal((await answer(spillway, id, { accept: true })).status, 409);
      for (const turn of [1, 2]) await spillway.deliver("high", envelope(id, turn));
      assert.equal(spillway.calls({ marker }).length, 1);
    }
  });

  test("survives a crash while it is asked: the offer stands, and silence after it is a yes", async (t) => {
    const deferral = { answer_seconds: 30, at_least_seconds: 0 };
    const spillway = await own(t, { policy: { deferral } }, startProcess);
    const [silent, declined] = [await stalled(spillway, { marker: "silent" }), await stalled(spillway)];
    await spillway.kill();
    await spillway.restart();
    const { body } = await spillway.job(silent.id);
    assert.deepEqual([body.status, body.offer.resumes_at], ["stalled", silent.offer.resumes_at]);
    assert.ok(body.offer.answer_within_seconds < 30);
    assert.equal((await answered(spillway, declined.id, false)).reason, "deferral_declined");
    const deferred = await spillway.untilStatus(silent.id, "deferred");
    const late = Date.parse(deferred.updated_at) - Date.parse(silent.updated_at);
    assert.ok(late >= 30_000, `${late} ms`);
    assert.equal((await resume(spillway, deferred)).status, "done");
  });
});

describe("an answer", { concurrency: 4 }, async () => {
  const spillway = await start({
    policy: POLICY,
    script: {
      rules: [
        { when: { marker: "[[hang]]" }, then: { delay_ms: 30_000 } },
        { when: { marker: "[[limited]]" }, then: { error: "rate_limit", retry_after: 30 } },
        { when: { marker: "[[asked]]" }, then: { status: 500 } },
      ],
    },
  });
  after(() => spillway.stop());
  const own = (marker, fields) =>
    spillway.accepted(submission(`[[${marker}]]`, { request: { model: `claude-${marker}` }, ...fields }));

  test("to a job that asks nothing is a 409, and changes nothing", async () => {
    const jobs = {
      done: [await own("fine"), "done"],
      failed: [await own("asked", { when_exhausted: "fail" }), "failed"],
      waiting: [await own("limited"), "retrying"],
      calling: [await own("hang", { priority: "low" }), "generating"],
    };
    for (const [what, [id, status]] of Object.entries(jobs)) {
      await spillway.untilStatus(id, status);
      for (const accept of [true, false]) {
        const refused = await answer(spillway, id, { accept });
        assert.equal(refused.status, 409, what);
        assert.equal(refused.body.error.type, "conflict_error");
        assert.match(refused.body.error.message, /stalled/);
      }
      assert.equal((await spillway.job(id)).body.status, status, what);
    }
    const id = await own("asked", { when_exhausted: "defer" });
    await spillway.untilStatus(id, "deferred");
    assert.equal((await answer(spillway, id, { accept: false })).status, 409, "it was not asked, or has said yes");
    assert.equal((await spillway.job(id)).body.status, "deferred");
    for (const [job] of Object.values(jobs)) await spillway.cancel(job);
  });

  test("that is none is a 400, and the offer stands", async () => {
    const id = await own("asked");
    await spillway.untilStatus(id, "stalled");
    for (const body of [
      "",
      "{",
      "[]",
      "null",
      "true",
      {},
      { accept: "true" },
      { accept: 1 },
      { accept: null },
      { accept: true, later: true },
      '{"accept":true,"accept":false}',
      new Uint8Array([0x7b, 0xff, 0x7d]),
    ]) {
      const { status, body: error, text } = await answer(spillway, id, body);
      assert.equal(status, 400, `${JSON.stringify(body)}: ${text}`);
      assert.equal(error.error.type, "invalid_request_error");
      assert.match(error.error.message, /accept/);
    }
    assert.equal((await spillway.job(id)).body.status, "stalled");
    const get = await spillway.request(`/v1/jobs/${id}/deferral`);
    assert.deepEqual([get.status, get.headers.get("allow")], [405, "POST"]);
  });

  test("by somebody else is a 404, and without a key a 401; the operator may", async () => {
    const id = await own("asked");
    await spillway.untilStatus(id, "stalled");
    assert.equal((await answer(spillway, id, { accept: true }, { as: "web" })).status, 404);
    assert.equal((await answer(spillway, id, { accept: true }, { as: null })).status, 401);
    assert.equal((await spillway.job(id)).body.status, "stalled");
    const { status, body } = await answer(spillway, id, { accept: true }, { as: "operator" });
    assert.deepEqual([status, body.status], [200, "deferred"]);
  });

  test("for a job that is not there is a 404", async () => {
    for (const id of [`job_${"0".repeat(32)}`, "job_1", "x"]) {
      assert.equal((await answer(spillway, id, { accept: true })).status, 404, id);
    }
    const gone = await own("fine");
    await spillway.untilDone(gone);
    await spillway.cancel(gone);
    assert.equal((await answer(spillway, gone, { accept: true })).status, 404);
  });

  test("twice at the same time is one deferral", async () => {
    const id = await own("asked");
    await spillway.untilStatus(id, "stalled");
    const both = await Promise.all([1, 2].map(() => answer(spillway, id, { accept: true })));
    assert.deepEqual(
      both.map(({ status, body }) => [status, body.status]),
      [
        [200, "deferred"],
        [200, "deferred"],
      ],
    );
    await sleep(100);
    assert.equal((await spillway.job(id)).body.status, "deferred");
  });

  test("whose words are the reader's: the answer's language is what Accept-Language asks for", async () => {
    const id = await own("asked");
    await spillway.untilStatus(id, "stalled");
    const { body, headers } = await answer(spillway, id, { accept: false }, { headers: { "accept-language": "ja" } });
    assert.deepEqual([body.message.code, headers.get("content-language")], ["failed", "ja"]);
  });
});
