/**
 * What goes through us stays what it was: the request on its way to Claude, but for model and stream, and the answer on
 * its way back, which is compared with the answer of a call that does not stream.
 */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, describe, test } from "node:test";
import { MARK, MODEL, start, submission } from "./harness.mjs";

const spillway = await start({
  script: {
    rules: [
      { when: { marker: "[[hits]]" }, then: { cache: "hit" } },
      { when: { marker: "[[refusal]]" }, then: { stop_reason: "refusal", tokens: 0 } },
      { when: { marker: "[[late refusal]]" }, then: { stop_reason: "refusal", tokens: 20 } },
      { when: { marker: "[[pause]]" }, then: { stop_reason: "pause_turn" } },
      { when: { marker: "[[context]]" }, then: { stop_reason: "model_context_window_exceeded" } },
      { when: { marker: "[[strange]]" }, then: { unknown_events: true, unknown_deltas: true, pings: 1, thinking: 30 } },
      { when: { marker: "[[pieces]]" }, then: { split_bytes: 1, text: `${MARK} é€🎈 in pieces` } },
      { when: { marker: "[[odd tool]]" }, then: { tool_use: { name: "odd", input: ODD() } } },
      { when: { marker: "[[text]]" }, then: { text: `${MARK} "quotes" \\ \n\t\u0001  \u{1f388} ünï` } },
      { when: { marker: "[[long]]" }, then: { tokens: 3000, tokens_per_chunk: 500 } },
    ],
  },
});
after(() => spillway.stop());

function ODD() {
  return { "": [[], {}, null, true, -0.5, 1e21], "key \"'\\": { nested: { ünï: `${MARK} \n` } }, empty: "" };
}

const user = (content) => ({ messages: [{ role: "user", content }] });
const TOOL = {
  name: "weather",
  description: "The weather",
  input_schema: {
    type: "object",
    properties: { city: { type: "string" }, days: { type: "integer" }, units: { enum: ["C", "F"] } },
    required: ["city", "days", "units"],
  },
};
const DOCUMENT = {
  type: "document",
  source: { type: "text", media_type: "text/plain", data: `${MARK} The grass is green. The sky is blue.` },
  title: "Colours",
  citations: { enabled: true },
};
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const SCHEMA = {
  type: "object",
  properties: { tag: { type: "string" } },
  required: ["tag"],
  additionalProperties: false,
};

/** Messages bodies of every kind; the marker is the name. */
const BODIES = {
  plain: {},
  system: { system: `${MARK} Be brief.` },
  "system blocks": {
    system: [{ type: "text", text: `${MARK} Be brief.`, cache_control: { type: "ephemeral", ttl: "1h" } }],
  },
  cached: {
    system: [{ type: "text", text: `${MARK} ${"A long text. ".repeat(600)}`, cache_control: { type: "ephemeral" } }],
  },
  hits: {
    system: [{ type: "text", text: `${MARK} ${"A long text. ".repeat(600)}`, cache_control: { type: "ephemeral" } }],
  },
  tool: { tools: [TOOL] },
  "tool by choice": { tools: [{ ...TOOL, name: "other" }, TOOL], tool_choice: { type: "tool", name: "weather" } },
  "any tool": { tools: [TOOL], tool_choice: { type: "any", disable_parallel_tool_use: true } },
  "no tool": { tools: [TOOL], tool_choice: { type: "none" } },
  "odd tool": { tools: [TOOL] },
  thinking: { max_tokens: 4000, thinking: { type: "adaptive" } },
  "thinking and tool": { max_tokens: 4000, thinking: { type: "adaptive" }, tools: [TOOL] },
  schema: { output_config: { format: { type: "json_schema", schema: SCHEMA } } },
  sampling: { temperature: 0.7, top_p: 0.99, top_k: 5, service_tier: "auto" },
  metadata: { metadata: { user_id: "13803d75-b4b5-4c3e-b2a2-6f21399b021b" } },
  stop: { stop_sequences: ["[["] },
  "max tokens": { max_tokens: 3 },
  refusal: {},
  "late refusal": {},
  pause: {},
  context: {},
  strange: {},
  pieces: {},
  text: {},
  long: { max_tokens: 4000 },
};

/** A body of which the marker is part of the prompt. */
function body(name, more) {
  return submission(`[[${name}]]`, { request: more }).request;
}

/** What Claude answers without a stream to the body that it got with one. */
async function answerOf(call) {
  const headers = Object.fromEntries(
    ["x-api-key", "anthropic-version", "anthropic-beta", "content-type"].map((name) => [name, call.headers[name]]),
  );
  const sent = JSON.parse(call.body);
  const response = await fetch(`${spillway.fake.url}/v1/messages`, {
    method: "POST",
    headers: Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== undefined)),
    body: JSON.stringify({ ...sent, stream: false }),
  });
  const answer = await response.json();
  assert.equal(response.status, 200, JSON.stringify(answer));
  return answer;
}

/** Submits, and answers the job, what Claude got, and what it answers to that without a stream. */
async function roundTrip(marker, request, options) {
  const id = await spillway.accepted({ ...submission(), request }, options);
  const done = await spillway.untilDone(id);
  const [call, ...others] = spillway.calls({ marker });
  assert.deepEqual(others, [], marker);
  return { done, call, direct: await answerOf(call) };
}

/** The text of an answer: its text blocks, one after the other. */
const textOf = ({ content }) => content.map((block) => (block.type === "text" ? block.text : "")).join("");

describe("a body goes through unchanged, and its answer is the one without a stream", { concurrency: 5 }, () => {
  for (const [name, more] of Object.entries(BODIES)) {
    test(name, async () => {
      const request = body(name, more);
      const { done, call, direct } = await roundTrip(name, request);
      assert.deepEqual(JSON.parse(call.body), { ...request, model: MODEL, stream: true });
      assert.deepEqual(done.result, direct);
      assert.equal(done.text, textOf(direct));
      assert.equal(done.status, "done");
      assert.equal(done.attempts, 0);
    });
  }
});

test("the answers above were of every kind", async () => {
  const kinds = new Set();
  const reasons = new Set();
  for (const { outcome } of spillway.calls()) reasons.add(outcome.stop_reason);
  for (const name of Object.keys(BODIES)) {
    const answer = await answerOf(spillway.calls({ marker: name })[0]);
    for (const { type } of answer.content) kinds.add(type);
  }
  assert.deepEqual([...kinds].sort(), ["text", "thinking", "tool_use"]);
  assert.deepEqual([...reasons].sort(), [
    "end_turn",
    "max_tokens",
    "model_context_window_exceeded",
    "pause_turn",
    "refusal",
    "stop_sequence",
    "tool_use",
  ]);
});

test("images, documents with citations and cache marks go through, and citations come back", async () => {
  const content = [
    { type: "image", source: { type: "base64", media_type: "image/png", data: PIXEL } },
    { type: "image", source: { type: "url", url: "https://example.com/a.png" } },
    DOCUMENT,
    { type: "text", text: `${MARK} What colour? [[cited]]`, cache_control: { type: "ephemeral" } },
  ];
  const { done, call, direct } = await roundTrip("cited", { max_tokens: 500, ...user(content) });
  assert.deepEqual(JSON.parse(call.body).messages[0].content, content);
  assert.deepEqual(done.result, direct);
  assert.ok(done.result.content.some(({ citations }) => citations?.length > 0));
});

test("a conversation with tools goes through as it is", async () => {
  const messages = [
    { role: "user", content: `${MARK} The weather? [[conversation]]` },
    {
      role: "assistant",
      content: [
        { type: "text", text: "I look." },
        { type: "tool_use", id: "toolu_01", name: "weather", input: ODD() },
      ],
    },
    { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_01", content: `${MARK} sunny` }] },
  ];
  const { done, call, direct } = await roundTrip("conversation", { max_tokens: 500, tools: [TOOL], messages });
  assert.deepEqual(JSON.parse(call.body).messages, messages);
  assert.deepEqual(done.result, direct);
  assert.equal(done.result.content.at(-1).type, "text");
});

test("the bytes stay: order, spaces, escapes and numbers that no program would write so", async () => {
  const messages = `[ {"role" :"user", "content":"${MARK} [[bytes]] \\u00e9\\/\\ud83c\\udf88 é"  } ]`;
  const members = [
    `"messages":${messages}`,
    `"future_field":{"z":1,"a":[1.0,1e2,-0,12345678901234567890,0.1000],"a":2,  "\\u0061":null}`,
    `"max_tokens":200`,
    `"temperature":1.0e0`,
  ];
  const raw = `{"request":{ ${members.join(" ,\n")} },"kind":"tagging","priority":"high"}`;
  const id = await spillway.accepted(raw);
  // Whether there is such a field is for Claude to say.
  const failed = await spillway.untilStatus(id, "failed");
  assert.match(failed.error.message, /future_field/);
  const [call] = spillway.calls({ marker: "bytes" });
  assert.equal(call.body, `{"model":"${MODEL}","stream":true,${members.join(",")}}`);
});

test("the model that a request names is the one that is called; stream is ours", async () => {
  for (const stream of [true, false, null]) {
    const marker = `stream ${stream}`;
    const request = { model: "claude-opus-5-5", stream, ...body(marker) };
    const { done, call } = await roundTrip(marker, request);
    assert.deepEqual([call.model, call.stream], ["claude-opus-5-5", true]);
    assert.deepEqual([done.model_requested, done.model_used], ["claude-opus-5-5", "claude-opus-5-5"]);
    assert.equal(done.result.model, "claude-opus-5-5");
  }
  const { call } = await roundTrip("null model", { ...body("null model"), model: null });
  assert.equal(call.model, MODEL);
});

test("anthropic-beta is stored with the job and sent with its call", async () => {
  const headers = { "anthropic-beta": "context-1m-2025-08-07, files-api-2025-04-14,context-1m-2025-08-07" };
  const { call } = await roundTrip("betas", body("betas"), { headers });
  assert.equal(call.headers["anthropic-beta"], "context-1m-2025-08-07,files-api-2025-04-14");
  const { call: plain } = await roundTrip("no betas", body("no betas"));
  assert.equal(plain.headers["anthropic-beta"], undefined);
});

test("of the caller's headers nothing goes upstream but the version it was written for, least of all its key", async () => {
  const headers = {
    "user-agent": "an-app/1.0",
    cookie: "session=1",
    "anthropic-version": "2026-10-21",
    "x-other": "1",
  };
  const { call } = await roundTrip("headers", body("headers"), { headers, key: "idempotent" });
  const sent = JSON.stringify(call.headers);
  assert.equal(call.headers["anthropic-version"], "2026-10-21");
  for (const word of ["an-app", "session", "x-other", "key-of-app", "idempotent"]) {
    assert.ok(!sent.includes(word), word);
  }
});

test("what is optional may be null, and every other field may be there", async () => {
  const request = body("nulls", { system: null, tools: null, tool_choice: null, thinking: null, stop_sequences: null });
  const fields = {
    deadline_seconds: 604_800,
    when_exhausted: "defer",
    preset: "offline",
    when_interrupted: "fail",
    // Nobody listens there.
    webhook: "http://127.0.0.1:9/hook",
    locale: "zh-CN",
    metadata: null,
  };
  const id = await spillway.accepted({ ...submission(), ...fields, request });
  // What null means is for Claude to say.
  await spillway.untilStatus(id, ["done", "failed"]);
  const [call] = spillway.calls({ marker: "nulls" });
  assert.deepEqual(JSON.parse(call.body), { ...request, model: MODEL, stream: true });
  for (const kind of [
    "default",
    "short_summary",
    "classification",
    "structured_extract",
    "long_form_writing",
    "code_generation",
  ]) {
    await spillway.accepted(submission("kinds", { kind }));
  }
});

test("blocks that are new to us, or come whole, are kept as they came", async () => {
  const blocks = [
    { type: "redacted_thinking", data: `${MARK} EmwKAhgBEgy3va3pzix` },
    { type: "server_tool_use", id: "srvtoolu_01", name: "web_search", input: { query: MARK } },
    {
      type: "web_search_tool_result",
      tool_use_id: "srvtoolu_01",
      content: [
        { type: "web_search_result", url: "https://example.com", title: MARK, encrypted_content: "Eq", page_age: null },
      ],
    },
    { type: "hologram", shape: { deep: [1, { "": null }] }, level: 1e21 },
    { type: "text", text: `${MARK} The end.`, citations: null },
  ];
  const message = {
    id: "msg_01",
    type: "message",
    role: "assistant",
    model: MODEL,
    content: [],
    stop_reason: null,
    stop_sequence: null,
    container: { id: "container_01", expires_at: "2026-01-01T00:00:00Z" },
    usage: { input_tokens: 5, output_tokens: 1, server_tool_use: { web_search_requests: 0 } },
  };
  const ending = { stop_reason: "end_turn", stop_sequence: null };
  const usage = { output_tokens: 50, server_tool_use: { web_search_requests: 1 } };
  const events = [
    { type: "message_start", message },
    ...blocks.flatMap((block, index) => {
      const query = block.type === "server_tool_use" ? JSON.stringify(block.input) : undefined;
      const text = block.type === "text" ? block.text : undefined;
      const start = { ...block, ...(query && { input: {} }), ...(text && { text: "" }) };
      const deltas = [
        ...(query ? [{ type: "input_json_delta", partial_json: query }] : []),
        ...(text ? [{ type: "text_delta", text }] : []),
      ];
      return [
        { type: "content_block_start", index, content_block: start },
        ...deltas.map((delta) => ({ type: "content_block_delta", index, delta })),
        { type: "content_block_stop", index },
      ];
    }),
    { type: "message_delta", delta: ending, usage },
    { type: "message_stop" },
  ];
  const upstream = createServer((request, response) => {
    response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8", "request-id": "req_own" });
    response.end(events.map((event) => `event: ${event.type}\r\ndata: ${JSON.stringify(event)}\r\n\r\n`).join(""));
  });
  await new Promise((resolve) => upstream.listen(0, "127.0.0.1", resolve));
  const own = await start({ vars: { ANTHROPIC_BASE_URL: `http://127.0.0.1:${upstream.address().port}/` } });
  try {
    const done = await own.untilDone(await own.accepted());
    const expected = { ...message, content: blocks, ...ending, usage: { ...message.usage, ...usage } };
    assert.deepEqual(done.result, expected);
    assert.equal(done.text, `${MARK} The end.`);
  } finally {
    await own.stop();
    upstream.close();
  }
});
