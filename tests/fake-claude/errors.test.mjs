/** Errors: the table of the API's failures, what it refuses whatever its load, and its limits. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Capacity } from "../../fake-claude/capacity.mjs";
import { parseScript } from "../../fake-claude/script.mjs";
import { assemble, clockAt, fakeFor, MODEL, post, postJson, request, stream } from "./support.mjs";

const always = (then) => ({ rules: [{ then }] });

test("every failure has its status, type and headers", async (t) => {
  const fake = await fakeFor(t);
  const cases = [
    [{ status: 529 }, 529, "overloaded_error", "true"],
    [{ error: "overloaded" }, 529, "overloaded_error", "true"],
    [{ status: 429 }, 429, "rate_limit_error", "true"],
    [{ error: "acceleration" }, 429, "rate_limit_error", "true"],
    [{ error: "spend_cap" }, 429, "rate_limit_error", "false"],
    [{ error: "usage_limit" }, 400, "invalid_request_error", "false"],
    [{ status: 400 }, 400, "invalid_request_error", "false"],
    [{ status: 401 }, 401, "authentication_error", "false"],
    [{ status: 402 }, 402, "billing_error", "false"],
    [{ status: 403 }, 403, "permission_error", "false"],
    [{ status: 404 }, 404, "not_found_error", "false"],
    [{ status: 408 }, 408, "timeout_error", "true"],
    [{ status: 409 }, 409, "conflict_error", "true"],
    [{ status: 418 }, 418, "invalid_request_error", "false"],
    [{ status: 500 }, 500, "api_error", "true"],
    [{ status: 502 }, 502, "api_error", "true"],
    [{ status: 503 }, 503, "api_error", "true"],
    [{ status: 504 }, 504, "timeout_error", "true"],
    [{ status: 529, type: "new_error", message: "m", details: { a: 1 }, should_retry: null }, 529, "new_error", null],
  ];
  for (const [then, status, type, shouldRetry] of cases) {
    await fake.setScript(always(then));
    const answer = await postJson(fake, request("x", { stream: true }));
    const label = JSON.stringify(then);
    assert.equal(answer.status, status, label);
    assert.deepEqual([answer.body.type, answer.body.error.type], ["error", type], label);
    assert.equal(answer.headers.get("x-should-retry"), shouldRetry, label);
    assert.equal(answer.headers.get("retry-after"), null, label);
    assert.equal(answer.body.request_id, answer.headers.get("request-id"), label);
    const { outcome } = fake.calls().at(-1);
    assert.deepEqual([outcome.status, outcome.error_type, outcome.by], [status, type, "rule"], label);
  }
});

test("the failures that share a status can be told apart", async (t) => {
  const fake = await fakeFor(t);
  const errorOf = async (error) => {
    await fake.setScript(always({ error }));
    return (await postJson(fake, request())).body.error;
  };
  assert.equal((await errorOf("spend_cap")).details.error_code, "enforced_spend_limit_reached");
  assert.match((await errorOf("acceleration")).message, /acceleration/);
  assert.match((await errorOf("usage_limit")).message, /^You have reached your specified API usage limits/);
  assert.match(
    (await errorOf("workspace_usage_limit")).message,
    /^You have reached your specified workspace API usage/,
  );
});

test("Retry-After comes in every form, rubbish included", async (t) => {
  const now = clockAt(Date.UTC(2026, 10, 1, 12, 0, 0));
  const fake = await fakeFor(t, {}, { now });
  const cases = [
    [{ retry_after: 7 }, "retry-after", "7"],
    [{ retry_after: 0 }, "retry-after", "0"],
    [{ retry_after: 86_401 }, "retry-after", "86401"],
    [{ retry_after: "soon, perhaps" }, "retry-after", "soon, perhaps"],
    [{ retry_after: { date_in_seconds: 90 } }, "retry-after", "Sun, 01 Nov 2026 12:01:30 GMT"],
    [{ retry_after_ms: 1500 }, "retry-after-ms", "1500"],
    [{ headers: { "X-Extra": "1" } }, "x-extra", "1"],
    [{ headers: { "x-should-retry": null } }, "x-should-retry", null],
    [{ headers: { "request-id": null } }, "request-id", null],
  ];
  for (const [fields, header, expected] of cases) {
    await fake.setScript(always({ status: 429, ...fields }));
    assert.equal((await postJson(fake, request())).headers.get(header), expected, JSON.stringify(fields));
  }
});

test("what stands in front of the API answers in HTML, or in no form at all", async (t) => {
  const fake = await fakeFor(t);
  for (const [then, type, body] of [
    [{ status: 413 }, "text/html; charset=UTF-8", /413 Request Entity Too Large/],
    [{ status: 522 }, "text/html; charset=UTF-8", /522 Connection timed out/],
    [{ status: 529, body: "html" }, "text/html; charset=UTF-8", /529 Overloaded/],
    [{ status: 529, body: "empty" }, null, /^$/],
    [{ status: 529, body: "truncated" }, "application/json", /^\{"type":"error"/],
  ]) {
    await fake.setScript(always(then));
    const response = await post(fake, request());
    const text = await response.text();
    assert.equal(response.headers.get("content-type"), type);
    assert.match(text, body);
    assert.throws(() => JSON.parse(text));
  }
});

test("every answer carries the ids and the state of the rate limit", async (t) => {
  const fake = await fakeFor(t);
  for (const then of [{}, { status: 529 }]) {
    await fake.setScript(always(then));
    const { headers } = await postJson(fake, request());
    assert.match(headers.get("request-id"), /^req_011C/);
    assert.match(headers.get("anthropic-organization-id"), /^[0-9a-f-]{36}$/);
    for (const kind of ["requests", "tokens", "input-tokens", "output-tokens"]) {
      assert.ok(Number(headers.get(`anthropic-ratelimit-${kind}-limit`)) > 0);
      assert.match(headers.get(`anthropic-ratelimit-${kind}-reset`), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
    }
  }
});

test("requests that the API refuses are refused in its words", async (t) => {
  const fake = await fakeFor(t, { refused_keys: ["revoked"] });
  const message = (...messages) => request("", { messages });
  const user = (content) => ({ role: "user", content });
  const call = { role: "assistant", content: [{ type: "tool_use", id: "t1", name: "f", input: {} }] };
  const result = (id) => ({ type: "tool_result", tool_use_id: id, content: "1" });
  const tool = (name = "f", schema = { type: "object" }) => ({ name, input_schema: schema });
  const cases = [
    ["{", {}, 400, /^The request body is not valid JSON/],
    ["", {}, 400, /^The request body is not valid JSON/],
    ["[]", {}, 400, /^Input should be a valid dictionary/],
    [request(), { "x-api-key": null }, 401, /^x-api-key header is required/],
    [request(), { "x-api-key": "revoked" }, 401, /^invalid x-api-key/],
    [request(), { "anthropic-version": null }, 400, /^anthropic-version: header is required/],
    [request(), { "anthropic-version": "2099-01-01" }, 400, /^anthropic-version: "2099-01-01" is not a valid version/],
    [{ ...request(), max_tokens: undefined }, {}, 400, /^max_tokens: Field required/],
    [request("x", { max_tokens: 0 }), {}, 400, /^max_tokens: Input should be greater than or equal to 1/],
    [request("x", { max_tokens: "9" }), {}, 400, /^max_tokens: Input should be a valid integer/],
    [request("x", { max_tokens: 1e6 }), {}, 400, /^max_tokens: 1000000 > 128000, which is the maximum/],
    [request("x", { temperature: 3 }), {}, 400, /^temperature: range: 0..1/],
    [request("x", { strem: true }), {}, 400, /^strem: Extra inputs are not permitted/],
    [request("x", { model: "gpt" }), {}, 404, /^model: gpt/],
    [message(), {}, 400, /^messages: at least one message is required/],
    [message({ role: "system", content: "x" }), {}, 400, /^messages: Unexpected role "system"/],
    [message({ role: "tool", content: "x" }), {}, 400, /^messages\.0\.role: Input should be 'user' or 'assistant'/],
    [message({ role: "user" }), {}, 400, /^messages\.0\.content: Field required/],
    [message(user("")), {}, 400, /^messages\.0: all messages must have non-empty content/],
    [message(user([{ type: "text", text: "" }])), {}, 400, /^messages: text content blocks must be non-empty/],
    [message(user("x"), { role: "assistant", content: "So" }), {}, 400, /does not support assistant message prefill/],
    [message(user("x"), call, user("no")), {}, 400, /^messages\.1: `tool_use` ids were found without .*: t1\. Each/],
    [message(user([result("t9")])), {}, 400, /^messages\.0\.content\.0: unexpected `tool_use_id` found/],
    [message(user("x"), call, user([result("t1"), result("t1")])), {}, 400, /single result/],
    [message(user("x"), call, user([{ type: "text", text: "a" }, result("t1")])), {}, 400, /must come first/],
    [request("x", { tools: [tool(), tool()] }), {}, 400, /^tools: Tool names must be unique/],
    [request("x", { tools: [tool("a b")] }), {}, 400, /^tools\.0\.custom\.name: String should match pattern/],
    [request("x", { tools: [tool("f", {})] }), {}, 400, /^tools\.0\.custom\.input_schema\.type/],
    [request("x", { tool_choice: { type: "any" } }), {}, 400, /only be specified while providing tools/],
    [request("x", { tools: [tool()], tool_choice: { type: "tool", name: "g" } }), {}, 400, /Tool 'g' not found/],
    [
      request("x", { thinking: { type: "enabled", budget_tokens: 2000 } }),
      {},
      400,
      /"thinking.type.enabled" is not supp/,
    ],
    [request("x", { model: "claude-haiku-4-5", thinking: { type: "adaptive" } }), {}, 400, /adaptive thinking is not/],
    [request("x".repeat(4_100_000)), {}, 400, /^prompt is too long: \d+ tokens > 1000000 maximum/],
  ];
  for (const [body, headers, status, expected] of cases) {
    const answer = await postJson(fake, body, { headers });
    const label = JSON.stringify(body).slice(0, 200);
    assert.match(answer.body.error?.message ?? "answered", expected, label);
    assert.equal(answer.status, status, label);
    assert.equal(fake.calls().at(-1).outcome.status, status, label);
  }
});

test("each model refuses what it does not have, and takes what it has", async (t) => {
  const fake = await fakeFor(t);
  const tool = { name: "f", input_schema: { type: "object" } };
  const budget = { thinking: { type: "enabled", budget_tokens: 1024 }, max_tokens: 1025 };
  const user = { role: "user", content: "x" };
  const calling = (...first) => ({
    role: "assistant",
    content: [...first, { type: "tool_use", id: "t1", name: "f", input: {} }],
  });
  const answering = (...first) => [
    user,
    calling(...first),
    { role: "user", content: [{ type: "tool_result", tool_use_id: "t1" }] },
  ];
  const cases = [
    ["haiku-4-5", { thinking: { type: "adaptive" } }, /adaptive thinking is not supported on this model/],
    ["haiku-4-5", { output_config: { effort: "low" } }, /does not support the effort parameter/],
    ["haiku-4-5", { max_tokens: 64_001 }, /^max_tokens: 64001 > 64000/],
    ["haiku-4-5", { messages: [{ role: "user", content: "x".repeat(800_100) }] }, /^prompt is too long: .* > 200000/],
    ["haiku-4-5", { max_tokens: 64_000, temperature: 0.2 }, null],
    ["haiku-4-5", { thinking: { type: "disabled" } }, null],
    ["haiku-4-5", { messages: [user, { role: "assistant", content: "So" }] }, null],
    ["haiku-4-5", budget, null],
    ["haiku-4-5", { ...budget, thinking: { type: "enabled", budget_tokens: 1023 } }, /greater than or equal to 1024/],
    ["haiku-4-5", { ...budget, max_tokens: 1024 }, /must be greater than `thinking.budget_tokens`/],
    ["haiku-4-5", { ...budget, temperature: 0.2 }, /`temperature` may only be set to 1/],
    ["haiku-4-5", { ...budget, temperature: 1 }, null],
    ["haiku-4-5", { ...budget, top_k: 5 }, /`top_k` must be unset/],
    ["haiku-4-5", { ...budget, tools: [tool], tool_choice: { type: "any" } }, /tool_choice forces tool use/],
    [
      "haiku-4-5",
      { ...budget, messages: [user, { role: "assistant", content: "So" }] },
      /Expected `thinking`.*found `text`/,
    ],
    ["haiku-4-5", { ...budget, messages: answering() }, /Expected `thinking`.*found `tool_use`/],
    ["haiku-4-5", { ...budget, messages: answering({ type: "thinking", thinking: "", signature: "s" }) }, null],
    ["haiku-4-5-20251001", { thinking: { type: "adaptive" } }, /adaptive thinking is not supported on this model/],
    ["haiku-5-5", { thinking: { type: "disabled" }, max_tokens: 128_000 }, null],
    ["haiku-5-5", { thinking: { type: "between_tools" } }, /"thinking.type.between_tools" is not supported/],
    [
      "haiku-5-5",
      { thinking: { type: "disabled" }, output_config: { effort: "max" } },
      /is not supported with effort "max"/,
    ],
    ["haiku-5-5", { temperature: 0.2 }, /may only be set to their defaults/],
    ["haiku-5-5", { temperature: 1 }, null],
    ["haiku-5-5", budget, /"thinking.type.enabled" is not supported/],
    ["haiku-5-5", { tools: [tool], tool_choice: { type: "any" } }, null],
    ["sonnet-5-5", { thinking: { type: "between_tools" } }, null],
    ["sonnet-5-5", { thinking: { type: "disabled" } }, /"thinking.type.disabled" is not supported/],
    ["sonnet-4-6", budget, null],
    ["sonnet-4-6", { output_config: { effort: "xhigh" } }, /output_config.effort: Input should be one of/],
  ];
  for (const [model, more, expected] of cases) {
    const answer = await postJson(fake, request("x", { ...more, model: `claude-${model}` }));
    const label = `${model} ${JSON.stringify(more).slice(0, 200)}: ${answer.body.error?.message}`;
    assert.equal(answer.status, expected ? 400 : 200, label);
    if (expected) assert.match(answer.body.error.message, expected, label);
  }
});

test("a pair of tool_use and tool_result, and an image of megabytes, are good requests", async (t) => {
  const fake = await fakeFor(t);
  const image = { type: "image", source: { type: "base64", media_type: "image/png", data: "A".repeat(5_000_000) } };
  const messages = [
    { role: "user", content: [image] },
    { role: "assistant", content: [{ type: "tool_use", id: "t1", name: "f", input: {} }] },
    {
      role: "user",
      content: [
        { type: "tool_result", tool_use_id: "t1" },
        { type: "text", text: "Well?" },
      ],
    },
  ];
  assert.equal((await postJson(fake, request("", { messages }))).status, 200);
});

test("other routes and methods are 404 and 405", async (t) => {
  const fake = await fakeFor(t);
  assert.equal((await postJson(fake, request(), { path: "/v1/complete" })).body.error.type, "not_found_error");
  const wrong = await fetch(`${fake.url}/v1/messages`, { headers: { "x-api-key": "k" } });
  assert.deepEqual([wrong.status, wrong.headers.get("allow")], [405, "POST"]);
});

test("capacity counts calls in progress and calls of the last second, over all and per model", () => {
  const enter = (script, calls) => {
    const capacity = new Capacity(parseScript(script));
    const open = [];
    return calls.map(([at, model, leaves = false]) => {
      const entered = capacity.enter(model, at);
      if (leaves) entered.leave();
      else if (entered.leave) open.push(entered);
      return entered.refused ?? "in";
    });
  };
  assert.deepEqual(
    enter({ capacity: { concurrent: 2 } }, [
      [0, "a"],
      [0, "b", true],
      [0, "c"],
      [0, "d"],
    ]),
    ["in", "in", "in", "capacity"],
  );
  assert.deepEqual(
    enter({ capacity: { per_second: 2 } }, [
      [0, "a", true],
      [500, "a", true],
      [999, "a"],
      [1000, "a"],
      [1001, "a"],
    ]),
    ["in", "in", "capacity", "in", "capacity"],
  );
  assert.deepEqual(
    enter({ capacity: { models: { a: { concurrent: 1 } } } }, [
      [0, "a"],
      [0, "a"],
      [0, "b"],
    ]),
    ["in", "capacity", "in"],
  );
});

test("a rate limit lets a call through exactly when it said it would", () => {
  const capacity = new Capacity(parseScript({ rate_limits: { a: { requests_per_minute: 30, burst: 2 } } }));
  assert.ok(capacity.enter("a", 0).leave && capacity.enter("a", 0).leave);
  assert.deepEqual(capacity.enter("a", 0), { refused: "rate_limit", retryAfterSeconds: 2 });
  assert.equal(capacity.enter("a", 1999).refused, "rate_limit");
  assert.equal(capacity.enter("a", 2000).refused, undefined);
  assert.equal(capacity.enter("b", 0).refused, undefined);
});

test("limits answer 529 without Retry-After, and 429 with it and the state in headers", async (t) => {
  const now = clockAt(Date.UTC(2026, 10, 1));
  const script = { rate_limits: { "*": { requests_per_minute: 6, burst: 1 } } };
  const fake = await fakeFor(t, script, { now });
  assert.equal((await postJson(fake, request())).headers.get("anthropic-ratelimit-requests-remaining"), "0");
  const limited = await postJson(fake, request());
  assert.deepEqual([limited.status, limited.headers.get("retry-after")], [429, "10"]);
  assert.equal(limited.headers.get("anthropic-ratelimit-requests-limit"), "1");
  assert.equal(limited.headers.get("anthropic-ratelimit-requests-reset"), "2026-11-01T00:00:10Z");
  now.time += 10_000;
  assert.equal((await postJson(fake, request())).status, 200);

  await fake.setScript({ capacity: { models: { [MODEL]: { concurrent: 0 } } } });
  const overloaded = await postJson(fake, request());
  assert.deepEqual([overloaded.status, overloaded.headers.get("retry-after")], [529, null]);
  assert.equal(fake.calls().at(-1).outcome.by, "capacity");
});

test("a call leaves its place when it is over, also when its client left", async (t) => {
  const fake = await fakeFor(t, {
    capacity: { concurrent: 1 },
    rules: [{ when: { call: 1 }, then: { delay_ms: 5000 } }],
  });
  const leaving = new AbortController();
  const first = post(fake, request(), { signal: leaving.signal }).catch((error) => error.name);
  await fake.until((calls) => calls.length === 1 && calls[0].call === 1);
  assert.equal((await postJson(fake, request())).status, 529);
  leaving.abort();
  assert.equal(await first, "AbortError");
  await fake.until((calls) => calls[0].outcome !== null);
  assert.equal(assemble(await stream(fake, request())).stop_reason, "end_turn");
});
