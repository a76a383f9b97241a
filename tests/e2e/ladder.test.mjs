/**
 * The ladder (A5, A6, A11, B7, B8), as the upstream sees it: which model is called, how often, and when. One pass is one
 * delivery and at most one attempt: the first model, once more after 1.5 to 2.5 s, the fallback where kind, priority and
 * request allow it. Who called whom is told by the fake's log.
 */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { envelope, eventually, MODEL, start, submission } from "./harness.mjs";

const FALLBACK = "claude-haiku-5-5";
const HOUR_MS = 3_600_000;

const job = (text, fields) => submission(text, { kind: "tagging", priority: "medium", ...fields });

/** A worker for this test alone: gates remember. */
async function own(test, options) {
  const spillway = await start(options);
  test.after(() => spillway.stop());
  return spillway;
}

const models = (calls) => calls.map(({ model }) => model);

/** The second call of a model came after the ladder's short wait; `waits` tells that it was meant to be no longer. */
function pausedBetween(first, second) {
  const between = second.started_at - first.started_at;
  assert.ok(between >= 1490, `${between} ms before the same model once more`);
}

/** The job has waited so often, each time for 1.5 to 2.5 s: whatever else it did came at once. */
function waits(spillway, { id }, times) {
  const waits = spillway.logs("backoff").filter(({ job }) => job === id);
  assert.equal(waits.length, times, JSON.stringify(waits));
  for (const { wait_ms } of waits) assert.ok(wait_ms >= 1500 && wait_ms <= 2500, `${wait_ms}`);
}

/** An hour of the day that is not this one, for windows that begin in an hour or two. */
const hour = (ahead) => (new Date().getUTCHours() + ahead) % 24;

describe("the three stages", { concurrency: 4 }, () => {
  test("1: an overloaded primary is called once more after 1.5 to 2.5 s, and its answer is no downgrade", async (t) => {
    const spillway = await own(t, { script: { rules: [{ when: { call: 1 }, then: { status: 529 } }] } });
    const id = await spillway.accepted(job("[[stage-1]]"));
    const done = await spillway.untilDone(id);
    const calls = spillway.calls();
    assert.deepEqual(models(calls), [MODEL, MODEL]);
    pausedBetween(...calls);
    assert.deepEqual([done.model_used, done.downgraded, done.downgrade_reason], [MODEL, false, undefined]);
    assert.deepEqual([done.attempts, done.calls, done.message.code], [0, 2, "done"]);
    assert.deepEqual(
      done.history.map(({ model, cause, costs_attempt }) => [model, cause, costs_attempt]),
      [[MODEL, "overloaded", false]],
    );
    assert.equal(spillway.logs("job_claimed").length, 1, "all of it was one delivery");
    waits(spillway, done, 1);
  });

  test("2: overloaded twice, the fallback answers at once, and the job says which model it was and why", async (t) => {
    const spillway = await own(t, { script: { rules: [{ when: { model: MODEL }, then: { status: 529 } }] } });
    const id = await spillway.accepted(job("[[stage-2]]"));
    const done = await spillway.untilDone(id);
    const calls = spillway.calls();
    assert.deepEqual(models(calls), [MODEL, MODEL, FALLBACK]);
    pausedBetween(calls[0], calls[1]);
    waits(spillway, done, 1);
    assert.deepEqual(
      [done.model_requested, done.model_used, done.downgraded, done.downgrade_reason],
      [MODEL, FALLBACK, true, "overloaded"],
    );
    assert.deepEqual([done.attempts, done.calls, done.message.code], [0, 3, "downgraded"]);
    assert.match(done.text, new RegExp(`^${FALLBACK} answers`));
    assert.equal(done.result.model, FALLBACK);
    assert.equal(done.result.id, calls[2].outcome.message_id);
    const kept = await eventually(() => spillway.stored(`job:${id}`), { what: "the job in KV" });
    assert.deepEqual([kept.wording, kept.body.downgrade_reason], ["downgraded", "overloaded"]);
  });

  test("3: both overloaded, the job waits, passes over the ladder again, and stalls when its attempts are used up", async (t) => {
    const spillway = await own(t, { policy: { max_attempts: 2 }, script: { rules: [{ then: { status: 529 } }] } });
    const id = await spillway.accepted(job("[[stage-3]]"));
    const waiting = await spillway.untilStatus(id, "retrying");
    assert.deepEqual([waiting.attempts, waiting.calls, waiting.waiting.reason], [1, 3, "overloaded"]);
    const stalled = await spillway.untilStatus(id, "stalled");
    assert.deepEqual([stalled.attempts, stalled.calls, stalled.message.code], [2, 6, "stalled"]);
    assert.ok(stalled.offer.resumes_at > stalled.updated_at);
    assert.deepEqual(
      stalled.history.map(({ model, costs_attempt }) => [model, costs_attempt]),
      [1, 2].flatMap(() => [
        [MODEL, false],
        [MODEL, false],
        [FALLBACK, true],
      ]),
      "three calls are one attempt",
    );
    await sleep(1500);
    assert.deepEqual(models(spillway.calls()), [MODEL, MODEL, FALLBACK, MODEL, MODEL, FALLBACK]);
  });

  test("a second call that fails otherwise ends the pass: the overload's fallback is not for it", async (t) => {
    const rules = [
      { when: { call: 1 }, then: { status: 529 } },
      { when: { call: 2 }, then: { status: 500 } },
    ];
    const spillway = await own(t, { script: { rules } });
    const done = await spillway.untilDone(await spillway.accepted(job("[[otherwise]]")));
    assert.deepEqual(models(spillway.calls()), [MODEL, MODEL, MODEL]);
    assert.deepEqual([done.attempts, done.downgraded], [1, false]);
  });

  for (const [what, cut] of [
    ["before message_start", { after_events: 0, how: "error" }],
    ["in the middle of the answer, which nobody has seen,", { after_deltas: 5, how: "error" }],
    ["after message_start", { after_events: 2, how: "error" }],
  ]) {
    test(`an overload inside the 200 ${what} counts the same`, async (t) => {
      const spillway = await own(t, { script: { rules: [{ when: { model: MODEL }, then: { cut } }] } });
      const done = await spillway.untilDone(await spillway.accepted(job("[[inside]]")));
      const calls = spillway.calls();
      assert.deepEqual(models(calls), [MODEL, MODEL, FALLBACK]);
      assert.ok(calls.slice(0, 2).every(({ outcome }) => outcome.status === 200 && !outcome.completed));
      pausedBetween(calls[0], calls[1]);
      assert.deepEqual([done.downgraded, done.downgrade_reason, done.attempts], [true, "overloaded", 0]);
    });
  }
});

describe("who may have the fallback", { concurrency: 8 }, async () => {
  /** Kind by kind, A6. */
  const KINDS = {
    short_summary: true,
    tagging: true,
    classification: true,
    structured_extract: true,
    long_form_writing: false,
    code_generation: false,
    default: false,
  };
  const spillway = await start({
    vars: { FALLBACK_MODEL: FALLBACK },
    policy: {
      kinds: {
        own: { fallback: true, primary_model: "claude-own-primary", fallback_model: "claude-own-fallback" },
        own_rowless: { fallback: true, fallback_model: "claude-of-which-nobody-knows" },
      },
      models: { "claude-own-fallback": { context_tokens: 200_000, output_tokens: 8000 } },
    },
    script: {
      rules: [
        // Each job's own primary, so that no gate feels another's failures.
        { when: { model: ["claude-of-*", "claude-own-primary"], prompt_call: "1-2" }, then: { status: 529 } },
        { when: { marker: "[[low-overloaded]]", prompt_call: "1-2" }, then: { status: 529 } },
        { when: { model: FALLBACK, marker: "[[own-fallback]]", prompt_call: "1-2" }, then: { status: 529 } },
      ],
    },
  });
  after(() => spillway.stop());
  const primaryOf = (marker) => `claude-of-${marker}`;
  const accepted = (marker, fields) =>
    spillway.accepted(job(`[[${marker}]]`, { request: { model: primaryOf(marker) }, ...fields }));
  const called = (marker) => models(spillway.calls({ marker }));

  for (const [kind, allows] of Object.entries(KINDS)) {
    test(`${kind}: ${allows ? "yes" : "no"}`, async () => {
      const marker = `kind-${kind}`;
      const primary = primaryOf(marker);
      const done = await spillway.untilDone(await accepted(marker, { kind }));
      assert.deepEqual(called(marker), [primary, primary, allows ? FALLBACK : primary]);
      assert.deepEqual([done.downgraded, done.attempts], [allows, allows ? 0 : 1]);
    });
  }

  test("a row of POLICY's replaces the built-in one", async (t) => {
    const spillway = await own(t, {
      policy: { kinds: { tagging: { fallback: false } } },
      script: { rules: [{ when: { model: MODEL, prompt_call: "1-2" }, then: { status: 529 } }] },
    });
    await spillway.untilDone(await spillway.accepted(job("[[replaced]]")));
    assert.deepEqual(models(spillway.calls()), [MODEL, MODEL, MODEL]);
  });

  test("a kind's own models are called in the place of the deployment's", async () => {
    const id = await spillway.accepted(job("[[own]]", { kind: "own" }));
    const done = await spillway.untilDone(id);
    assert.deepEqual(called("own"), ["claude-own-primary", "claude-own-primary", "claude-own-fallback"]);
    assert.deepEqual([done.model_requested, done.model_used], ["claude-own-primary", "claude-own-fallback"]);
  });

  test("a fallback that has no row in the table of models is never called: nobody knows what fits it", async () => {
    const done = await spillway.untilDone(await accepted("rowless", { kind: "own_rowless" }));
    assert.deepEqual(called("rowless"), Array(3).fill(primaryOf("rowless")));
    assert.equal(done.attempts, 1);
  });

  test("a job that asks for the fallback itself has no other: it is called as a primary is, and that is no downgrade", async () => {
    const done = await spillway.untilDone(await accepted("own-fallback", { request: { model: FALLBACK } }));
    assert.deepEqual(called("own-fallback"), Array(3).fill(FALLBACK));
    assert.deepEqual([done.downgraded, done.message.code], [false, "done"]);
  });

  test("high never: it waits for its primary, whatever its kind", async () => {
    const done = await spillway.untilDone(await accepted("high", { priority: "high" }));
    assert.deepEqual(called("high"), Array(3).fill(primaryOf("high")));
    assert.deepEqual([done.attempts, done.downgraded], [1, false]);
  });

  test("low with a fallback: straight away, and says so", async () => {
    const done = await spillway.untilDone(await accepted("low", { priority: "low" }));
    assert.deepEqual(called("low"), [FALLBACK]);
    assert.deepEqual(
      [done.model_requested, done.model_used, done.downgraded, done.downgrade_reason, done.message.code],
      [primaryOf("low"), FALLBACK, true, "low_priority", "downgraded"],
    );
  });

  test("low whose fallback is overloaded: once more there, and then it waits for it; the primary is left alone", async () => {
    const done = await spillway.untilDone(await accepted("low-overloaded", { priority: "low" }));
    assert.deepEqual(called("low-overloaded"), Array(3).fill(FALLBACK));
    pausedBetween(...spillway.calls({ marker: "low-overloaded" }));
    assert.deepEqual([done.attempts, done.downgrade_reason], [1, "low_priority"]);
  });

  test("low without a fallback, off-peak: as medium", async () => {
    const done = await spillway.untilDone(await accepted("low-off-peak", { priority: "low", kind: "default" }));
    assert.deepEqual(called("low-off-peak"), Array(3).fill(primaryOf("low-off-peak")));
    assert.equal(done.attempts, 1);
  });
});

describe("only overload is a reason to leave", { concurrency: 4 }, async () => {
  const OTHERWISE = {
    "a 429": { error: "rate_limit", retry_after: 1 },
    "a 429 without a wait": { error: "rate_limit", retry_after: "soon" },
    acceleration: { error: "acceleration", retry_after: 1 },
    "a 500": { status: 500 },
    "a 504": { error: "timeout" },
    "a broken connection": { fault: "reset" },
    "an end before content": { cut: { after_events: 2, how: "end" } },
  };
  const rules = Object.entries(OTHERWISE).map(([what, then]) => ({
    when: { marker: `[[${what}]]`, prompt_call: "1-2" },
    then,
  }));
  const spillway = await start({ script: { rules } });
  after(() => spillway.stop());

  Object.keys(OTHERWISE).forEach((what, n) => {
    test(`${what}, twice: the job waits, and its primary answers`, async () => {
      const model = `claude-stays-${n}`;
      const id = await spillway.accepted(job(`[[${what}]]`, { request: { model } }));
      const done = await spillway.untilDone(id);
      assert.deepEqual(models(spillway.calls({ marker: what })), [model, model, model]);
      assert.deepEqual([done.downgraded, done.calls], [false, 3]);
    });
  });

  test("jobs that a 429's Retry-After holds wait for it, and do not leave", async (t) => {
    const limited = { when: { call: 1 }, then: { error: "rate_limit", retry_after: 8 } };
    const spillway = await own(t, { script: { rules: [limited] } });
    const first = await spillway.accepted(job("[[first]]"));
    await spillway.untilStatus(first, "retrying");
    const held = await spillway.accepted(job("[[held]]"));
    assert.equal((await spillway.untilStatus(held, "held")).waiting.reason, "retry_after");
    for (const id of [first, held]) assert.equal((await spillway.untilDone(id)).downgraded, false);
    assert.deepEqual(models(spillway.calls()), [MODEL, MODEL, MODEL]);
  });

  test("a 529's Retry-After that is longer than the short wait: no second call, the fallback at once, for who comes later as well", async (t) => {
    const asks = { when: { model: MODEL }, then: { status: 529, retry_after: 30 } };
    const spillway = await own(t, { script: { rules: [asks] } });
    for (const [n, expected] of [
      [1, [MODEL, FALLBACK]],
      [2, [FALLBACK]],
    ]) {
      const done = await spillway.untilDone(await spillway.accepted(job(`[[asked-${n}]]`)));
      assert.deepEqual(models(spillway.calls({ marker: `asked-${n}` })), expected);
      assert.equal(done.downgrade_reason, "overloaded");
      waits(spillway, done, 0);
    }
  });
});

describe("hours", { concurrency: 4 }, () => {
  test("in a peak hour one overload is enough to leave, for who may; high still tries twice", async (t) => {
    const spillway = await own(t, {
      policy: { hours: { peak_utc: "0-24", off_peak_utc: "0-24" } },
      script: { rules: [{ when: { model: MODEL, prompt_call: "1-2" }, then: { status: 529 } }] },
    });
    const ids = [
      await spillway.accepted(job("[[may]]")),
      await spillway.accepted(job("[[high]]", { priority: "high" })),
    ];
    const [may] = await Promise.all(ids.map((id) => spillway.untilDone(id)));
    assert.deepEqual(models(spillway.calls({ marker: "may" })), [MODEL, FALLBACK]);
    waits(spillway, may, 0);
    assert.deepEqual([may.downgrade_reason, may.attempts], ["overloaded", 0]);
    const high = spillway.calls({ marker: "high" });
    assert.deepEqual(models(high), [MODEL, MODEL, MODEL]);
    pausedBetween(high[0], high[1]);
  });

  test("low without a fallback waits for off-peak, and is called then; everybody else goes on", async (t) => {
    // No hour may end before everything is submitted.
    const left = HOUR_MS - (Date.now() % HOUR_MS);
    if (left < 60_000) await sleep(left);
    const window = `${hour(2)}-${hour(4)}`;
    const spillway = await own(t, { policy: { hours: { peak_utc: "", off_peak_utc: window } } });
    const low = (marker, fields) => job(`[[${marker}]]`, { priority: "low", kind: "code_generation", ...fields });
    const waits = await spillway.accepted(low("waits"));
    const held = await spillway.untilStatus(waits, "held");
    assert.equal(held.waiting.reason, "off_peak");
    assert.deepEqual([held.attempts, held.calls], [0, 0]);
    // From the window's start to the middle of its two hours.
    const until = new Date(Date.now() + held.waiting.next_check_seconds * 1000);
    const start = new Date();
    start.setUTCHours(start.getUTCHours() + 2, 0, 0, 0);
    const into = until - start;
    assert.ok(into >= -2000 && into <= 3_602_000, `${until.toISOString()}, of a window from ${start.toISOString()}`);

    const others = {
      "has-fallback": low("has-fallback", { kind: "tagging" }),
      "has-no-time": low("has-no-time", { deadline_seconds: 3600 }),
      medium: low("medium", { priority: "medium" }),
      high: low("high", { priority: "high" }),
    };
    for (const [marker, body] of Object.entries(others)) {
      const done = await spillway.untilDone(await spillway.accepted(body));
      assert.deepEqual([done.calls, spillway.calls({ marker }).length], [1, 1]);
    }
    assert.deepEqual(spillway.calls({ marker: "waits" }), []);

    await spillway.setClock((held.waiting.next_check_seconds + 1) * 1000);
    await spillway.deliver("low", envelope(waits, 2));
    const { body: done } = await spillway.job(waits);
    assert.deepEqual([done.status, done.model_used, done.attempts], ["done", MODEL, 0]);
    assert.equal(spillway.calls({ marker: "waits" }).length, 1);
  });
});

describe("a gate that says so", { concurrency: 4 }, () => {
  test("open: the fallback at once, with no call to the primary, and who may not leave is held", async (t) => {
    const spillway = await own(t, {
      policy: {
        breaker: { consecutive_failures: 3, consecutive_seconds: 0, consecutive_hard: 3, open_seconds: 600 },
      },
      script: { rules: [{ when: { model: MODEL }, then: { status: 529 } }] },
    });
    const outage = [];
    for (const n of [1, 2, 3]) outage.push(await spillway.accepted(submission(`[[outage-${n}]]`)));
    await spillway.untilLog(({ event, to }) => event === "gate_transition" && to === "open");
    await eventually(async () => (await spillway.gates())[MODEL].in_flight === 0);
    const before = spillway.calls({ model: MODEL }).length;
    const done = await spillway.untilDone(await spillway.accepted(job("[[leaves]]")));
    assert.deepEqual(models(spillway.calls({ marker: "leaves" })), [FALLBACK]);
    assert.deepEqual([done.downgraded, done.downgrade_reason, done.attempts, done.calls], [true, "breaker_open", 0, 1]);
    for (const [marker, fields] of [
      ["kind", { kind: "code_generation" }],
      ["high", { priority: "high" }],
    ]) {
      const held = await spillway.untilStatus(await spillway.accepted(job(`[[${marker}]]`, fields)), "held");
      assert.deepEqual([held.waiting.reason, held.calls], ["breaker_open", 0]);
    }
    assert.equal(spillway.calls({ model: MODEL }).length, before, "an open gate is called by nobody");
  });

  test("forced open by the operator: the fallback, which is what that is for", async (t) => {
    const spillway = await own(t);
    const body = { state: "open", until: new Date(Date.now() + 600_000).toISOString(), note: "bad answers" };
    const path = `/v1/gates/${MODEL}/override`;
    assert.equal((await spillway.request(path, { method: "PUT", as: "operator", body })).status, 200);
    const done = await spillway.untilDone(await spillway.accepted(job("[[forced]]")));
    assert.deepEqual(models(spillway.calls()), [FALLBACK]);
    assert.equal(done.downgrade_reason, "overridden");
  });

  test("degraded after five overloads in a row: the fallback, until the primary is tried again and answers", async (t) => {
    const RETRY_SECONDS = 8;
    const spillway = await own(t, {
      policy: { degraded: { consecutive_overloads: 5, retry_seconds: RETRY_SECONDS } },
      script: { rules: [{ when: { model: MODEL, model_call: "1-6" }, then: { status: 529 } }] },
    });
    const next = async (marker) => {
      const done = await spillway.untilDone(await spillway.accepted(job(`[[${marker}]]`)));
      return [models(spillway.calls({ marker })), done.downgrade_reason];
    };
    const degraded = async () => (await spillway.gates())[MODEL].degraded;
    const lastTry = () => spillway.calls({ model: MODEL }).at(-1).started_at;
    const retry = () => sleep(Math.max(0, lastTry() + RETRY_SECONDS * 1000 + 200 - Date.now()));

    assert.deepEqual(await next("one"), [[MODEL, MODEL, FALLBACK], "overloaded"]);
    assert.deepEqual(await next("two"), [[MODEL, MODEL, FALLBACK], "overloaded"]);
    assert.equal(await degraded(), false);
    assert.deepEqual(await next("three"), [[MODEL, FALLBACK], "overloaded"], "the fifth is enough by itself");
    assert.equal(await degraded(), true);
    assert.deepEqual(await next("four"), [[FALLBACK], "degraded"]);

    await retry();
    assert.deepEqual(await next("tries"), [[MODEL, FALLBACK], "overloaded"], "it is tried again, once");
    assert.deepEqual(await next("five"), [[FALLBACK], "degraded"]);
    await retry();
    assert.deepEqual(await next("back"), [[MODEL], undefined], "it is tried again, and answers");
    assert.equal(await degraded(), false);
    assert.deepEqual(await next("six"), [[MODEL], undefined]);
    assert.equal((await spillway.gates())[MODEL].state, "closed", "the breaker had nothing to do with it");
  });
});
