/** The main job: handed over in one request, read in another; overload is ours to bear in between. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { eventually, MARK, MODEL, start, submission } from "./harness.mjs";

const spillway = await start({
  script: {
    rules: [
      {
        when: { marker: "[[slow]]" },
        then: { delay_ms: 1200, first_event_delay_ms: 1200, chunk_delay_ms: 200, tokens: 40 },
      },
      { when: { marker: "[[overloaded]]", prompt_call: "1-2" }, then: { status: 529 } },
      { when: { marker: "[[limited]]", prompt_call: 1 }, then: { status: 429, retry_after: 30 } },
      { when: { marker: "[[invalid]]" }, then: { error: "invalid_request", message: "max_tokens: is odd" } },
    ],
  },
});
after(() => spillway.stop());

test("a job is handed over with a receipt, called once, and its answer is read where the receipt says", async () => {
  const { status, headers, body: receipt } = await spillway.submit(submission("the main job [[main]]"));
  assert.equal(status, 202);
  assert.match(receipt.id, /^job_[0-9a-f]{32}$/);
  assert.equal(receipt.status, "received");
  assert.equal(receipt.status_url, `${spillway.url}/v1/jobs/${receipt.id}`);
  assert.equal(receipt.message.code, "received");
  assert.ok(receipt.message.text.length > 10);
  assert.equal(headers.get("location"), receipt.status_url);
  assert.equal(headers.get("cache-control"), "no-store");
  assert.match(headers.get("content-type"), /^application\/json/);
  assert.ok(Number(headers.get("retry-after")) >= 1);

  await spillway.untilDone(receipt.id);
  const answer = await spillway.request(receipt.status_url.slice(spillway.url.length));
  assert.equal(answer.status, 200);
  const { result, text, message, model_requested, model_used, downgraded, attempts, calls } = answer.body;
  assert.match(text, new RegExp(`answers .* ${MARK} the main job`));
  assert.equal(result.content[0].text, text);
  assert.equal(result.stop_reason, "end_turn");
  assert.equal(message.code, "done");
  assert.deepEqual(
    { model_requested, model_used, downgraded, attempts, calls },
    { model_requested: MODEL, model_used: MODEL, downgraded: false, attempts: 0, calls: 1 },
  );

  const [call, ...others] = spillway.calls({ marker: "main" });
  assert.deepEqual(others, []);
  assert.equal(call.stream, true);
  assert.equal(call.key, "key-of-anthropic");
  assert.equal(call.headers["anthropic-version"], "2023-06-01");
  assert.equal(call.headers["content-type"], "application/json");
});

test("the status moves from received over generating and refining to done, and never back", async () => {
  const id = await spillway.accepted(submission("[[slow]]"));
  const seen = [];
  let etag = '"0"';
  while (seen.at(-1) !== "done") {
    const { body, headers } = await spillway.job(id, { wait: 10, etag });
    seen.push(body.status);
    etag = headers.get("etag");
    const code = { received: "received", done: "done" }[body.status] ?? "working";
    assert.equal(body.message.code, code, body.status);
    assert.equal(body.waiting, undefined);
  }
  // The first look may come after the call has begun.
  assert.deepEqual(seen.slice(-3), ["generating", "refining", "done"]);
  assert.ok(seen.length === 3 || seen[0] === "received", seen.join());
});

test("an overload is waited out: the app sees a job that retries, and then its answer", async () => {
  const id = await spillway.accepted(submission("[[overloaded]]"));
  const waiting = await spillway.untilStatus(id, "retrying");
  assert.equal(waiting.waiting.reason, "overloaded");
  assert.equal(waiting.waiting.next_check_seconds, 1);
  assert.equal(waiting.message.code, "working");
  const done = await spillway.untilDone(id);
  assert.equal(done.attempts, 1, "one pass over the ladder is one attempt");
  assert.equal(done.calls, 3);
  const [first, second, third] = spillway.calls({ marker: "overloaded" });
  assert.deepEqual([first.outcome.status, second.outcome.status, third.outcome.status], [529, 529, 200]);
  assert.equal(third.outcome.completed, true);
  assert.deepEqual(
    done.history.map(({ cause, model, status, request_id, costs_attempt }) => ({
      cause,
      model,
      status,
      request_id,
      costs_attempt,
    })),
    [first, second].map(({ request_id }, n) => ({
      cause: "overloaded",
      model: MODEL,
      status: 529,
      request_id,
      costs_attempt: n === 1,
    })),
  );
  const { real_wait_ms } = done.history[1];
  assert.ok(real_wait_ms >= 500 && real_wait_ms < 10_000, `${real_wait_ms}`);
});

test("each backoff logs its cause, count, computed wait and, once it is over, the real one", async () => {
  const id = spillway.logs("backoff").find(({ cause }) => cause === "overloaded").job;
  const of = (event) => spillway.logs(event).filter(({ job }) => job === id);
  const [pause, backoff, ...others] = of("backoff");
  assert.deepEqual(others, []);
  assert.equal(pause.failures, 1);
  // Full jitter: anything up to the base, doubled for each failure.
  assert.ok(pause.computed_wait_ms <= 200, `${pause.computed_wait_ms}`);
  assert.ok(pause.wait_ms >= 1500 && pause.wait_ms <= 2500, "before the same model once more, within the delivery");
  assert.deepEqual([pause.costs_attempt, backoff.costs_attempt], [false, true], "the pass is one attempt");
  assert.ok(backoff.failures <= 2 && backoff.computed_wait_ms <= 400, `${backoff.computed_wait_ms}`);
  assert.equal(backoff.wait_ms, 1000);
  const [resumed] = of("job_resumed");
  assert.equal(resumed.turn, 2);
  assert.equal(resumed.computed_wait_ms, backoff.computed_wait_ms);
  assert.ok(resumed.real_wait_ms > 0);
});

test("a job that waits says why and for how long, in its body and in Retry-After", async () => {
  const id = await spillway.accepted(submission("[[limited]]"));
  const { waiting } = await spillway.untilStatus(id, "retrying");
  assert.equal(waiting.reason, "rate_limited");
  const { headers, body } = await spillway.job(id);
  const seconds = body.waiting.next_check_seconds;
  assert.ok(seconds >= 25 && seconds <= 40, `${seconds}`);
  assert.equal(headers.get("retry-after"), String(seconds));
  await spillway.cancel(id);
});

test("a request that Claude refuses fails at once, with a stable reason and Claude's own words", async () => {
  // The rate limit of the test before holds everyone of its model.
  const id = await spillway.accepted(submission("[[invalid]]", { request: { model: "claude-opus-5-5" } }));
  const failed = await spillway.untilStatus(id, "failed");
  assert.equal(failed.reason, "invalid_request");
  assert.equal(failed.message.code, "failed");
  const { type, message, status, request_id } = failed.error;
  const [call, ...others] = spillway.calls({ marker: "invalid" });
  assert.deepEqual(others, []);
  assert.deepEqual(
    { type, status, request_id },
    { type: "invalid_request_error", status: 400, request_id: call.request_id },
  );
  assert.match(message, /max_tokens: is odd/);
  assert.equal(failed.result, undefined);
});

/** The last three turns of a history: two calls of a tool, and what an app that was interrupted has made of their results. */
const withTools = (marker, ...last) => {
  const uses = ["t1", "t2"].map((id) => ({ type: "tool_use", id, name: "look", input: {} }));
  const messages = [
    { role: "user", content: `${MARK} [[${marker}]]` },
    { role: "assistant", content: uses },
    { role: "user", content: last },
  ];
  const tools = [{ name: "look", description: "d", input_schema: { type: "object" } }];
  return submission("", { request: { model: "claude-opus-5-5", tools, messages } });
};
const result = (id, more) => ({ type: "tool_result", tool_use_id: id, content: id, ...more });

test("a broken history of tool calls is mended before it is sent, and the receipt says what was done, twice too", async () => {
  const text = { type: "text", text: "go on" };
  const body = withTools("mended", text, result("t1"));
  for (const replayed of [false, true]) {
    const { status, headers, body: receipt } = await spillway.submit(body, { key: "mended" });
    assert.equal(status, 202);
    const mended = headers.get("spillway-mended");
    assert.equal(mended, "reordered request.messages.2, completed request.messages.1.content.1", `${replayed}`);
    await spillway.untilDone(receipt.id);
  }
  const [call, ...others] = spillway.calls({ marker: "mended" });
  assert.deepEqual(others, []);
  const { model, stream, ...sent } = JSON.parse(call.body);
  const { model: asked, ...submitted } = body.request;
  assert.deepEqual([model, stream], [asked, true]);
  const [, missing] = sent.messages[2].content;
  assert.match(missing.content, /interrupted/);
  const completed = result("t2", { content: missing.content, is_error: true });
  submitted.messages[2].content = [result("t1"), completed, text];
  assert.deepEqual(sent, submitted, "and nothing else of it has changed");
});

test("a sound history is sent as it was written, and the receipt says nothing of it", async () => {
  const body = withTools("sound", result("t1"), result("t2"));
  const { headers, body: receipt } = await spillway.submit(body);
  assert.equal(headers.get("spillway-mended"), null);
  await spillway.untilDone(receipt.id);
  const [call] = spillway.calls({ marker: "sound" });
  assert.deepEqual(JSON.parse(call.body).messages, body.request.messages);
});

test("a history that cannot be mended is a 400 with the block's place, and no job", async () => {
  const { status, headers, body } = await spillway.submit(withTools("broken", result("t1"), result("t9")));
  assert.equal(status, 400);
  assert.equal(body.error.type, "invalid_request_error");
  assert.deepEqual(
    body.error.problems.map(({ place }) => place),
    ["request.messages.2.content.1"],
  );
  assert.equal(headers.get("location"), null);
  assert.deepEqual(spillway.calls({ marker: "broken" }), []);
});

test("moments are RFC 3339, in order, and the deadline is the one asked for", async () => {
  const before = Date.now();
  const request = { model: "claude-opus-5-5" };
  const id = await spillway.accepted(submission("when", { deadline_seconds: 3600, request }));
  const done = await spillway.untilDone(id);
  const moments = ["created_at", "updated_at", "finished_at", "deadline_at"].map((name) => {
    assert.match(done[name], /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/, name);
    return Date.parse(done[name]);
  });
  const [created, updated, finished, deadline] = moments;
  assert.ok(created >= before - 1000 && created <= updated && updated <= finished && finished <= Date.now() + 1000);
  assert.equal(deadline - created, 3600_000);
});

test("metadata comes back as it was given, and kind and priority are named", async () => {
  const metadata = { order: 17, nested: { ключ: [1, null, "x"] }, big: 9007199254740991 };
  const fields = { kind: "short_summary", priority: "low", metadata, request: { model: "claude-opus-5-5" } };
  const id = await spillway.accepted(submission("meta", fields));
  const waiting = await spillway.job(id);
  assert.deepEqual(waiting.body.metadata, metadata);
  const done = await spillway.untilDone(id);
  assert.deepEqual(done.metadata, metadata);
  assert.deepEqual([done.kind, done.priority], ["short_summary", "low"]);
});

test("a submission that names no priority is medium", async () => {
  const id = await spillway.accepted(
    submission("plain", { priority: undefined, request: { model: "claude-opus-5-5" } }),
  );
  const done = await spillway.untilDone(id);
  assert.equal(done.priority, "medium");
});

test("the finished job is in KV under its id, for a day and not longer", async () => {
  const id = await spillway.accepted(submission("kept", { request: { model: "claude-opus-5-5" } }));
  const done = await spillway.untilDone(id);
  const kept = await eventually(() => spillway.stored(`job:${id}`), { what: "the job in KV" });
  const { message, ...rest } = done;
  assert.deepEqual({ ...kept.head, ...kept.body }, rest);
  assert.equal(kept.wording, message.code);
  const results = await spillway.worker.mf.getKVNamespace("RESULTS");
  const { keys } = await results.list({ prefix: `job:${id}` });
  const left = keys[0].expiration - Date.parse(done.finished_at) / 1000;
  assert.ok(left > 86_390 && left <= 86_410, `${left}`);
});

test("fifty jobs at once all get their own answers, one call each", async () => {
  const texts = Array.from({ length: 50 }, (_, i) => `number ${i} [[many-${i}]]`);
  const request = { model: "claude-opus-5-5" };
  const ids = await Promise.all(texts.map((text) => spillway.accepted(submission(text, { request }))));
  assert.equal(new Set(ids).size, 50);
  const done = await Promise.all(ids.map((id) => spillway.untilDone(id)));
  done.forEach(({ text }, i) => assert.ok(text.endsWith(texts[i]), text));
  texts.forEach((_, i) => assert.equal(spillway.calls({ marker: `many-${i}` }).length, 1));
});
