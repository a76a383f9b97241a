/**
 * Bad luck that is waited out, with real queues and real, short waits: what the history and the log say of it, a spend cap,
 * an upstream that is not there, and a job that poisons every call while others go on.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { start, submission } from "./harness.mjs";

/** A worker for this test alone. */
async function own(test, options) {
  const spillway = await start(options);
  test.after(() => spillway.stop());
  return spillway;
}

const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

describe("bad luck is waited out", { concurrency: 6 }, () => {
  test("the history and the log tell of each failed call, and of the waits that were planned and that passed", async (t) => {
    const spillway = await own(t, {
      script: {
        rules: [
          { when: { prompt_call: 1 }, then: { status: 529, retry_after: 8 } },
          { when: { prompt_call: 2 }, then: { status: 500 } },
        ],
      },
    });
    const id = await spillway.accepted(submission("[[history]]"));
    const done = await spillway.untilDone(id);
    const calls = spillway.calls();
    assert.deepEqual(
      calls.map(({ outcome }) => outcome.status),
      [529, 500, 200],
    );
    assert.deepEqual([done.attempts, done.calls, done.history.length], [2, 3, 2]);

    const [first, second] = done.history;
    assert.deepEqual(
      done.history.map(({ model, cause, status, request_id, costs_attempt }) => [
        model,
        cause,
        status,
        request_id,
        costs_attempt,
      ]),
      [
        ["claude-sonnet-5-5", "overloaded", 529, calls[0].request_id, true],
        ["claude-sonnet-5-5", "server_error", 500, calls[1].request_id, true],
      ],
    );
    for (const { at } of done.history) assert.match(at, ISO);
    assert.ok(first.computed_wait_ms > 8000 && first.computed_wait_ms <= 9000, `${first.computed_wait_ms}`);
    assert.ok(second.computed_wait_ms <= 200, `${second.computed_wait_ms}`);
    // The fake's clock is the judge of what passed at most; it was no less than planned, in whole seconds.
    for (const [n, { computed_wait_ms, real_wait_ms }] of done.history.entries()) {
      const between = calls[n + 1].started_at - calls[n].started_at;
      const planned = Math.max(1, Math.ceil(computed_wait_ms / 1000)) * 1000;
      const said = `${real_wait_ms} ms of ${between}, and ${planned} planned`;
      assert.ok(real_wait_ms >= planned - 50 && real_wait_ms <= between + 50, said);
    }
    assert.ok(calls[1].started_at - calls[0].started_at >= 8000, "Retry-After was obeyed, and no call made before");

    const about = (event) => spillway.logs(event).filter(({ job }) => job === id);
    assert.deepEqual(
      about("backoff").map(({ cause, failures, computed_wait_ms, wait_ms, costs_attempt }) => ({
        cause,
        failures,
        computed_wait_ms,
        wait_ms,
        costs_attempt,
      })),
      done.history.map(({ cause, computed_wait_ms }) => ({
        cause,
        failures: 1,
        computed_wait_ms,
        wait_ms: Math.max(1, Math.ceil(computed_wait_ms / 1000)) * 1000,
        costs_attempt: true,
      })),
    );
    assert.deepEqual(
      about("job_resumed").map(({ computed_wait_ms, real_wait_ms }) => [computed_wait_ms, real_wait_ms]),
      done.history.map(({ computed_wait_ms, real_wait_ms }) => [computed_wait_ms, real_wait_ms]),
    );
    assert.deepEqual(
      about("call_failed").map(({ cause, status, request_id }) => [cause, status, request_id]),
      done.history.map(({ cause, status, request_id }) => [cause, status, request_id]),
    );
  });

  test("a Retry-After holds the model's other jobs, too: none is called before its time, and none loses an attempt", async (t) => {
    const spillway = await own(t, {
      script: { rules: [{ when: { call: 1 }, then: { error: "rate_limit", retry_after: 8 } }] },
    });
    const first = await spillway.accepted(submission("[[first]]"));
    await spillway.untilStatus(first, "retrying");
    const others = [];
    for (const n of [1, 2, 3]) others.push(await spillway.accepted(submission(`[[other-${n}]]`, { priority: "low" })));
    const { waiting } = await spillway.untilStatus(others[0], "held");
    assert.equal(waiting.reason, "retry_after");
    assert.ok(waiting.next_check_seconds >= 1 && waiting.next_check_seconds <= 10, `${waiting.next_check_seconds}`);
    for (const id of [first, ...others]) assert.equal((await spillway.untilDone(id)).attempts, 0);
    const [limited, ...later] = spillway.calls();
    assert.equal(later.length, 4);
    for (const { started_at } of later)
      assert.ok(started_at - limited.started_at >= 8000, `${started_at - limited.started_at}`);
  });

  test("a spend cap fails the job that meets it; the others are held, tried one at a time, and lost never", async (t) => {
    const spillway = await own(t, {
      policy: { spend_cap_retry_seconds: 8 },
      script: { rules: [{ when: { match: "1-2" }, then: { error: "spend_cap" } }] },
    });
    const failed = await spillway.untilStatus(await spillway.accepted(submission("[[first]]")), "failed");
    assert.deepEqual([failed.reason, failed.calls], ["spend_cap", 1]);

    const ids = [];
    for (const marker of ["a", "b", "c"]) ids.push(await spillway.accepted(submission(`[[${marker}]]`)));
    for (const id of ids) {
      const held = await spillway.untilStatus(id, "held");
      assert.equal(held.waiting.reason, "spend_cap");
      assert.ok(held.waiting.next_check_seconds <= 10, JSON.stringify(held.waiting));
    }
    assert.equal(spillway.calls().length, 1, "nobody else is called for");

    for (const id of ids) {
      const done = await spillway.untilDone(id);
      assert.equal(done.attempts, 0);
    }
    const calls = spillway.calls();
    assert.deepEqual(
      calls.map(({ outcome }) => outcome.status),
      [429, 429, 200, 200, 200],
    );
    // One call tries each time, after the pause that POLICY asks for.
    for (const n of [1, 2]) {
      const between = calls[n].started_at - calls[n - 1].started_at;
      assert.ok(between >= 7990, `${between} ms before call ${n + 1}`);
    }
  });

  test("an upstream that refuses connections is called again until it is there", async (t) => {
    const spillway = await own(t, { policy: { max_attempts: 10 } });
    // From now on: workerd may take as long to start as it likes.
    await spillway.fake.setScript({ refuse_connections: [{ from_ms: 0, until_ms: 3000 }] });
    const done = await spillway.untilDone(await spillway.accepted(submission("[[refused]]")));
    assert.ok(done.history.length >= 1);
    for (const { cause, status, request_id } of done.history) {
      assert.deepEqual([cause, status, request_id], ["connection_failed", null, null]);
    }
    assert.equal(spillway.calls().length, 1, "the others never reached it");
  });

  test("an upstream that is nowhere fails a job by its attempts, with a sentence", async (t) => {
    // A port that nobody may listen on without being asked to.
    const spillway = await own(t, { policy: { max_attempts: 2 }, vars: { ANTHROPIC_BASE_URL: "http://127.0.0.1:1" } });
    const id = await spillway.accepted(submission("[[nowhere]]", { when_exhausted: "fail" }));
    const failed = await spillway.untilStatus(id, "failed");
    assert.deepEqual([failed.reason, failed.error.cause], ["attempts_exhausted", "connection_failed"]);
    assert.match(failed.error.message, /connection/);
    assert.deepEqual([failed.attempts, failed.calls], [2, 2]);
  });

  test("a request that always answers 500 ends by its attempts, and the others go on meanwhile", async (t) => {
    const spillway = await own(t, {
      policy: { max_attempts: 3 },
      script: { rules: [{ when: { marker: "[[poison]]" }, then: { status: 500 } }] },
    });
    const poison = await spillway.accepted(submission("[[poison]]", { when_exhausted: "fail" }));
    const others = [];
    for (let n = 0; n < 6; n += 1) others.push(await spillway.accepted(submission(`[[healthy-${n}]]`)));
    for (const id of others) assert.equal((await spillway.untilDone(id)).attempts, 0);
    const failed = await spillway.untilStatus(poison, "failed");
    assert.deepEqual([failed.reason, failed.error.cause, failed.attempts], ["attempts_exhausted", "server_error", 3]);
    assert.match(failed.error.message, /3 calls/);
    assert.equal(spillway.calls({ marker: "poison" }).length, 3);
    others.forEach((_, n) => assert.equal(spillway.calls({ marker: `healthy-${n}` }).length, 1));
    const lastOther = Math.max(...others.map((_, n) => spillway.calls({ marker: `healthy-${n}` })[0].started_at));
    assert.ok(lastOther < spillway.calls({ marker: "poison" }).at(-1).started_at, "they did not wait for its end");
  });

  test("a wait is cut so that one more call fits before the deadline, and the job fails when that fails, too", async (t) => {
    const slow = { base_ms: 60_000, cap_ms: 60_000, jitter: "additive" };
    const spillway = await own(t, {
      policy: { backoff: { transient: slow } },
      script: { rules: [{ then: { status: 500 } }] },
    });
    const id = await spillway.accepted(submission("[[deadline]]", { deadline_seconds: 30 }));
    const { history, waiting, deadline_at } = await spillway.untilStatus(id, "retrying");
    assert.ok(history[0].computed_wait_ms >= 60_000);
    assert.ok(waiting.next_check_seconds <= 26, JSON.stringify(waiting));
    const failed = await spillway.untilStatus(id, "failed");
    assert.deepEqual([failed.reason, failed.error.cause], ["deadline_exceeded", "server_error"]);
    const [, last, ...others] = spillway.calls();
    assert.deepEqual(others, []);
    const left = Date.parse(deadline_at) - last.started_at;
    assert.ok(left > 0 && left < 6000, `the last call came ${left} ms before the deadline`);
    assert.ok(failed.finished_at <= deadline_at);
  });
});
