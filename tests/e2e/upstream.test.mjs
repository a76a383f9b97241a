/**
 * Everything that an upstream can do to a call, and what becomes of its job. The queues lose what they are given, and
 * every turn is delivered by hand, so that nobody waits for a backoff. Each job asks for a model of its own: breaker and
 * buckets are per model, and no job feels another's failure.
 */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { envelope, eventually, MARK, start, submission } from "./harness.mjs";

/** Marker → what the first call with it gets; the second one is answered. */
const FIRST = {};
/** Marker → what the first two get: an overload before content is tried once more within the delivery. */
const TWICE = {};
/** Marker → what every call with it gets. */
const ALWAYS = {};

/** What costs a job nothing but an attempt: its calls fail for this cause, and the next one is answered. */
const TRANSIENT = [
  // The causes table.
  ["500", { status: 500 }, "server_error", 500],
  ["502", { error: "bad_gateway" }, "server_error", 502],
  ["503", { error: "unavailable" }, "server_error", 503],
  ["504", { error: "timeout" }, "upstream_timeout", 504],
  ["408", { error: "request_timeout" }, "upstream_timeout", 408],
  ["409", { error: "conflict" }, "conflict", 409],
  ["520 in HTML", { error: "cdn_520" }, "server_error", 520],
  ["521 in HTML", { error: "cdn_521" }, "server_error", 521],
  ["522 in HTML", { error: "cdn_522" }, "server_error", 522],
  ["523 in HTML", { error: "cdn_523" }, "server_error", 523],
  ["524 in HTML", { error: "cdn_524" }, "server_error", 524],
  ["429 without a wait", { error: "rate_limit", retry_after: "soon" }, "rate_limited", 429],
  ["acceleration without a wait", { error: "acceleration", retry_after: "soon" }, "acceleration", 429],
  ["529", { status: 529 }, "overloaded", 529, 2],
  ["529 in HTML", { status: 529, body: "html" }, "overloaded", 529, 2],
  ["529 of nothing", { status: 529, body: "empty" }, "overloaded", 529, 2],
  ["529 cut short", { status: 529, body: "truncated" }, "overloaded", 529, 2],
  ["overload by another status", { status: 503, type: "overloaded_error" }, "overloaded", 503, 2],
  // Before any content.
  ["reset before the headers", { fault: "reset" }, "connection_failed", null],
  ["closed before the headers", { fault: "close" }, "connection_failed", null],
  ["no headers", { fault: "hang" }, "headers_timeout", null],
  ["headers and silence", { cut: { after_events: 0, how: "stall" } }, "idle_timeout", null],
  ["reset before content", { cut: { after_events: 2, how: "reset" } }, "connection_failed", null],
  ["an end before content", { cut: { after_events: 2, how: "end" } }, "truncated", null],
  ["an overload inside the 200", { cut: { after_events: 0, how: "error" } }, "overloaded", null, 2],
  ["an overload after message_start", { cut: { after_events: 2, how: "error" } }, "overloaded", null, 2],
  ["an error inside the 200", { cut: { after_events: 1, how: "error", error: "api_error" } }, "server_error", null],
  ["a timeout inside the 200", { cut: { after_events: 1, how: "error", error: "timeout" } }, "upstream_timeout", null],
  [
    "an error that nobody knows inside the 200",
    { cut: { after_events: 1, how: "error", error: { type: "new_error", message: "New." } } },
    "server_error",
    null,
  ],
  // What nobody has seen is called for again.
  ["silence in the stream", { tokens: 60, cut: { after_deltas: 5, how: "stall" } }, "idle_timeout", null],
  ["a reset in the stream", { tokens: 60, cut: { after_deltas: 5, how: "reset" } }, "truncated", null],
  ["an end in the stream", { tokens: 60, cut: { after_deltas: 5, how: "end" } }, "truncated", null],
  ["an overload in the stream", { tokens: 60, cut: { after_deltas: 5, how: "error" } }, "overloaded", null, 2],
  ["a stream without an end", { tokens: 400, chunk_delay_ms: 300 }, "total_timeout", null],
  // A 200 that is no answer.
  ["HTML with 200", { fault: "html" }, "malformed_answer", 200],
  ["truncated JSON in the stream", { fault: "truncated_json" }, "truncated", null],
  ["nothing with 200", { fault: "empty" }, "malformed_answer", null],
];

/** What no retry helps: the job fails at once, with the cause for its reason. */
const FINAL = [
  ["invalid_request", { error: "invalid_request" }, 400, "invalid_request_error"],
  ["authentication_failed", { error: "authentication" }, 401, "authentication_error"],
  ["billing_failed", { error: "billing" }, 402, "billing_error"],
  ["permission_denied", { error: "permission" }, 403, "permission_error"],
  ["not_found", { error: "not_found" }, 404, "not_found_error"],
  ["request_too_large", { error: "too_large" }, 413, "api_error"],
  ["rejected", { status: 422, type: "unknown_error" }, 422, "unknown_error"],
  ["spend_cap", { error: "spend_cap" }, 429, "rate_limit_error"],
  ["spend_cap", { error: "usage_limit" }, 400, "invalid_request_error"],
  ["spend_cap", { error: "workspace_usage_limit" }, 400, "invalid_request_error"],
  [
    "authentication_failed",
    { cut: { after_events: 0, how: "error", error: "authentication" } },
    null,
    "authentication_error",
  ],
];

/** What is odd, and an answer all the same. */
const ODD = [
  ["unknown events and deltas", { unknown_events: true, unknown_deltas: true, pings: 2 }],
  ["a stream in pieces of seven bytes", { split_bytes: 7 }],
  ["a slow start", { delay_ms: 600, first_event_delay_ms: 600 }],
  ["silence that a ping breaks", { first_event_delay_ms: 4000, ping_every_ms: 500 }],
  ["a refusal", { stop_reason: "refusal" }],
  ["an answer that max_tokens cut", { stop_reason: "max_tokens" }],
  ["a full context", { stop_reason: "model_context_window_exceeded" }],
  ["a turn that pauses", { stop_reason: "pause_turn" }],
  ["no text at all", { tokens: 0 }],
];

TRANSIENT.forEach(([, then, , , times = 1], n) => ((times === 1 ? FIRST : TWICE)[`transient-${n}`] = then));
FINAL.forEach(([, then], n) => (ALWAYS[`final-${n}`] = then));
ODD.forEach(([, then], n) => (ALWAYS[`odd-${n}`] = then));
Object.assign(FIRST, {
  "retry-after-seconds": { status: 529, retry_after: 30 },
  "retry-after-date": { status: 529, retry_after: { date_in_seconds: 30 } },
  "retry-after-429": { error: "rate_limit", retry_after: 30 },
  "retry-after-ms": { status: 529, retry_after_ms: 27_000, retry_after: 60 },
  "too-late": { status: 529, retry_after: 86_401 },
  "long-but-in-time": { status: 529, retry_after: 86_401 },
});
Object.assign(TWICE, {
  "retry-after-0": { status: 529, retry_after: 0 },
  "retry-after-minus": { status: 529, retry_after: -5 },
  "retry-after-past": { status: 529, retry_after: { date_in_seconds: -60 } },
  "retry-after-rubbish": { status: 529, retry_after: "a while" },
});

const rules = (then, when) =>
  Object.entries(then).map(([marker, then]) => ({ when: { marker: `[[${marker}]]`, ...when }, then }));

const spillway = await start({
  policy: { max_attempts: 3, call: { headers_seconds: 3, idle_seconds: 3, total_seconds: 10 } },
  script: { rules: [...rules(FIRST, { prompt_call: 1 }), ...rules(TWICE, { prompt_call: "1-2" }), ...rules(ALWAYS)] },
});
after(() => spillway.stop());
await spillway.fault({ binding: "queue", how: "lose" });

/** A job with a model of its own. */
const submit = (marker, { request, ...fields } = {}) =>
  spillway.accepted(submission(`[[${marker}]]`, { request: { model: `claude-${marker}`, ...request }, ...fields }));

/** Delivers one turn by hand; the job's status after it. */
async function deliver(id, turn = 1) {
  const { explicitAcks, retryMessages } = await spillway.deliver("high", { id: "m", body: envelope(id, turn) });
  assert.deepEqual([explicitAcks, retryMessages], [["m"], []]);
  return (await spillway.job(id)).body;
}

const calls = (marker) => spillway.calls({ marker });
const logged = (event, id) => spillway.logs(event).filter(({ job }) => job === id);

describe("a call that fails is made again, and the job says why", { concurrency: 8 }, () => {
  TRANSIENT.forEach(([what, , cause, status, times = 1], n) => {
    test(what, async () => {
      const marker = `transient-${n}`;
      const id = await submit(marker);
      const waiting = await deliver(id);
      assert.equal(waiting.status, "retrying", JSON.stringify(waiting));
      assert.equal(waiting.waiting.reason, cause);
      assert.deepEqual([waiting.attempts, waiting.calls], [1, times]);
      assert.deepEqual(
        waiting.history.map((entry) => [entry.cause, entry.status, entry.costs_attempt]),
        times === 1
          ? [[cause, status, true]]
          : [
              [cause, status, false],
              [cause, status, true],
            ],
      );
      const done = await deliver(id, 2);
      assert.equal(done.status, "done", JSON.stringify(done));
      const [answered, ...failed] = calls(marker).toReversed();
      assert.equal(failed.length, times);
      assert.ok(answered.outcome.completed && !failed.some(({ outcome }) => outcome.completed));
      // Its support asks for it: known as soon as there were headers.
      assert.deepEqual(
        waiting.history.map(({ request_id }) => request_id),
        failed.toReversed().map(({ outcome, request_id }) => outcome.status && request_id),
      );
      // Nothing of what the first call brought is in the answer.
      assert.equal(done.result.id, answered.outcome.message_id);
      assert.equal(done.text.split(MARK).length, 2);
    });
  });
});

describe("a call that is refused is not made again, and its job fails with the cause", { concurrency: 8 }, () => {
  FINAL.forEach(([reason, then, status, type], n) => {
    test(`${reason}: ${JSON.stringify(then)}`, async () => {
      const marker = `final-${n}`;
      const id = await submit(marker);
      const failed = await deliver(id);
      assert.equal(failed.status, "failed", JSON.stringify(failed));
      assert.equal(failed.reason, reason);
      assert.deepEqual([failed.error.cause, failed.error.type], [reason, type]);
      assert.equal(failed.history[0].status, status);
      assert.equal(failed.error.request_id, calls(marker)[0].request_id);
      assert.ok(failed.error.message.length > 5, failed.error.message);
      assert.deepEqual([failed.attempts, failed.calls], [0, 1]);
      for (const turn of [1, 2]) await deliver(id, turn);
      assert.equal(calls(marker).length, 1);
    });
  });
});

describe("what is odd is an answer all the same, of one call", { concurrency: 8 }, () => {
  ODD.forEach(([what, then], n) => {
    test(what, async () => {
      const marker = `odd-${n}`;
      const done = await deliver(await submit(marker));
      assert.equal(done.status, "done", JSON.stringify(done));
      assert.equal(done.result.stop_reason, then.stop_reason ?? "end_turn");
      assert.equal(calls(marker).length, 1);
      assert.equal(done.result.id, calls(marker)[0].outcome.message_id);
    });
  });
});

describe("Retry-After", { concurrency: 8 }, () => {
  for (const [what, marker, least, most] of [
    ["in seconds is waited for, and a little more", "retry-after-seconds", 30_001, 33_000],
    ["as a date is waited for", "retry-after-date", 28_000, 33_000],
    ["of a 429 is waited for", "retry-after-429", 30_001, 33_000],
    ["in milliseconds wins over seconds", "retry-after-ms", 27_001, 30_000],
    ["of zero leaves it to the bucket", "retry-after-0", 0, 400],
    ["below zero leaves it to the bucket", "retry-after-minus", 0, 400],
    ["of a past date leaves it to the bucket", "retry-after-past", 0, 400],
    ["of rubbish leaves it to the bucket", "retry-after-rubbish", 0, 400],
  ]) {
    test(what, async () => {
      const id = await submit(marker);
      const { status, history, waiting } = await deliver(id);
      assert.equal(status, "retrying");
      // A wait that was asked for is longer than the ladder's short one: no second call before it.
      const asked = least > 2000;
      assert.equal(calls(marker).length, asked ? 1 : 2);
      const { computed_wait_ms: computed } = history.at(-1);
      assert.ok(computed >= least && computed <= most, `${computed} ms`);
      const seconds = Math.max(1, Math.ceil(computed / 1000));
      assert.ok(waiting.next_check_seconds >= Math.max(1, seconds - 10) && waiting.next_check_seconds <= seconds);
      // A message that comes much too early is not taken for its turn.
      const next = await deliver(id, 2);
      assert.equal(next.status, asked ? "retrying" : "done");
      assert.equal(calls(marker).length, asked ? 1 : 3);
      if (asked)
        assert.deepEqual(
          logged("delivery_skipped", id).map(({ reason }) => reason),
          ["early"],
        );
    });
  }

  test("beyond the deadline fails the job now, after one call, and says so", async () => {
    const failed = await deliver(await submit("too-late"));
    assert.deepEqual([failed.status, failed.reason, failed.error.cause], ["failed", "deadline_exceeded", "overloaded"]);
    assert.match(failed.error.message, /after the job's deadline/);
    assert.equal(calls("too-late").length, 1);
  });

  test("of more than a day is waited for if the deadline allows", async () => {
    const waiting = await deliver(await submit("long-but-in-time", { deadline_seconds: 604_800 }));
    assert.equal(waiting.status, "retrying");
    assert.ok(waiting.waiting.next_check_seconds > 86_400, JSON.stringify(waiting.waiting));
    assert.equal(calls("long-but-in-time").length, 1);
  });
});

for (const how of ["end", "reset", "stall"]) {
  test(`a stream that breaks after its stop reason is an answer: ${how}`, async () => {
    // Everything but message_stop.
    const events = 1 + 1 + 1 + 8 + 1 + 1;
    const marker = `stopped-${how}`;
    const then = { text: "A B C D E F G H", tokens_per_chunk: 1, cut: { after_events: events, how } };
    await spillway.fake.setScript({ rules: [{ then }] });
    const done = await deliver(await submit(marker));
    assert.equal(done.status, "done", JSON.stringify(done));
    assert.deepEqual([done.text, done.result.stop_reason], ["A B C D E F G H", "end_turn"]);
    const [call, ...others] = calls(marker);
    assert.deepEqual(others, []);
    assert.deepEqual([call.outcome.fault, call.outcome.events, call.outcome.completed], [how, events, false]);
  });
}
