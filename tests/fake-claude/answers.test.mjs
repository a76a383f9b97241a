/** Answers: the event sequences, and that streaming and not are one and the same Message. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { assemble, fakeFor, MODEL, postJson, request, stream } from "./support.mjs";

const TOOL = {
  name: "extract",
  input_schema: {
    type: "object",
    properties: {
      title: { type: "string", maxLength: 40 },
      pages: { type: "integer", minimum: 1, maximum: 9 },
      mood: { enum: ["glad", "sad"] },
      tags: { type: "array", items: { type: "string" }, minItems: 2 },
      again: { $ref: "#/$defs/node" },
    },
    required: ["title", "pages"],
    $defs: { node: { type: "object", properties: { next: { $ref: "#/$defs/node" } } } },
  },
};

const DOCUMENT = {
  type: "document",
  title: "Rivers",
  source: { type: "text", media_type: "text/plain", data: "The Rhine is long." },
  citations: { enabled: true },
};

const names = (events) => events.map(({ data }) => data.delta?.type ?? data.content_block?.type ?? data.type);

/** Repetitions left out. */
const shape = (events) => names(events).filter((name, index, all) => name !== all[index - 1]);

test("a text answer has the API's sequence of events", async (t) => {
  const fake = await fakeFor(t);
  const events = await stream(fake, request("Where is the Rhine?"));
  assert.deepEqual(shape(events), [
    "message_start",
    "text",
    "ping",
    "text_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
  ]);
  for (const { event, data } of events) assert.equal(event, data.type);
  const { message } = events[0].data;
  assert.deepEqual([message.content, message.stop_reason, message.usage.output_tokens], [[], null, 1]);
});

test("thinking ends with its signature, before the text", async (t) => {
  const fake = await fakeFor(t);
  const events = await stream(fake, request("Think", { thinking: { type: "adaptive" } }));
  assert.deepEqual(shape(events), [
    "message_start",
    "thinking",
    "ping",
    "thinking_delta",
    "signature_delta",
    "content_block_stop",
    "text",
    "text_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
  ]);
});

test("a tool's input comes in pieces, fits its schema and is made from the prompt", async (t) => {
  const fake = await fakeFor(t);
  const inputs = [];
  for (const prompt of ["The first of two texts", "Another"]) {
    const events = await stream(fake, request(prompt, { tools: [TOOL] }));
    const pieces = events.filter(({ data }) => data.delta?.type === "input_json_delta");
    assert.equal(pieces[0].data.delta.partial_json, "");
    assert.ok(pieces.length > 3);
    const message = assemble(events);
    assert.equal(message.stop_reason, "tool_use");
    const [{ name, id, input }] = message.content;
    assert.equal(name, "extract");
    assert.match(id, /^toolu_01/);
    assert.match(input.title, new RegExp(`^title: ${prompt}`.slice(0, 30)));
    assert.ok(input.pages >= 1 && input.pages <= 9 && input.tags.length === 2 && input.mood.length <= 4);
    inputs.push(JSON.stringify(input));
  }
  assert.notEqual(inputs[0], inputs[1]);
});

test("the whole answer is what the stream adds up to, byte for byte", async (t) => {
  const fake = await fakeFor(t);
  const history = [
    { role: "user", content: "Use it" },
    { role: "assistant", content: [{ type: "tool_use", id: "toolu_1", name: "extract", input: {} }] },
    { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_1", content: "42 😀 pages" }] },
  ];
  const cases = {
    text: request("Überraschung 😀 \n\n in\ttext"),
    thinking: request("x", { thinking: { type: "adaptive" } }),
    tool: request("x", { tools: [TOOL] }),
    "tool without input": request("x", { tools: [{ name: "now", input_schema: { type: "object" } }] }),
    "tool result": request("", { messages: history, tools: [TOOL] }),
    citations: request([DOCUMENT, { type: "text", text: "What is long?" }]),
    "cut by max_tokens": request("x".repeat(400), { max_tokens: 20 }),
    "cut by max_tokens in thinking": request("x", { max_tokens: 3, thinking: { type: "adaptive" } }),
    "stop sequence": request("one STOP two", { stop_sequences: ["STOP"] }),
    "structured output": request("x", {
      output_config: { format: { type: "json_schema", schema: TOOL.input_schema } },
    }),
    "cached system": request("x", {
      system: [{ type: "text", text: "y".repeat(99), cache_control: { type: "ephemeral" } }],
    }),
  };
  for (const [name, body] of Object.entries(cases)) {
    const whole = await postJson(fake, body);
    assert.equal(whole.status, 200, `${name}: ${JSON.stringify(whole.body)}`);
    const assembled = assemble(await stream(fake, body));
    assert.equal(JSON.stringify(assembled), JSON.stringify(whole.body), name);
  }
});

test("an answer repeats the last prompt and its length, and differs from prompt to prompt", async (t) => {
  const fake = await fakeFor(t);
  const answers = await Promise.all(
    ["Tell me of the sea", "Tell me of the sky"].map((p) => postJson(fake, request(p))),
  );
  const [sea, sky] = answers.map(({ body }) => body);
  assert.match(sea.content[0].text, /18 characters: Tell me of the sea$/);
  assert.notEqual(sea.id, sky.id);
  assert.match(sea.id, /^msg_01[1-9A-Za-z]{22}$/);
  assert.equal((await postJson(fake, request("Tell me of the sea"))).body.id, sea.id);
});

test("stop reasons and usage follow the request", async (t) => {
  const fake = await fakeFor(t);
  const cached = [{ type: "text", text: "z".repeat(800), cache_control: { type: "ephemeral", ttl: "1h" } }];
  const cut = (await postJson(fake, request("a ".repeat(200), { max_tokens: 7 }))).body;
  assert.deepEqual([cut.stop_reason, cut.usage.output_tokens], ["max_tokens", 7]);
  const stopped = (await postJson(fake, request("one STOP two", { stop_sequences: ["STOP"] }))).body;
  assert.deepEqual([stopped.stop_reason, stopped.stop_sequence], ["stop_sequence", "STOP"]);
  assert.match(stopped.content[0].text, /one $/);
  const { usage } = (await postJson(fake, request("x", { system: cached }))).body;
  assert.ok(usage.cache_creation_input_tokens >= 200 && usage.cache_read_input_tokens === 0);
  assert.equal(usage.cache_creation.ephemeral_1h_input_tokens, usage.cache_creation_input_tokens);
  const longer = (await postJson(fake, request("x".repeat(4000)))).body.usage.input_tokens;
  assert.ok(longer > 1000 && longer < 1100, String(longer));
});

test("a script shapes the answer", async (t) => {
  const fake = await fakeFor(t);
  const answer = async (then, body = request("Shape")) => {
    await fake.setScript({ rules: [{ then }] });
    const events = await stream(fake, body);
    const message = assemble(events);
    const whole = await postJson(fake, body);
    assert.equal(JSON.stringify(message), JSON.stringify(whole.body), JSON.stringify(then));
    return { events, message };
  };
  for (const reason of ["refusal", "pause_turn", "model_context_window_exceeded", "max_tokens"]) {
    assert.equal((await answer({ stop_reason: reason })).message.stop_reason, reason);
  }
  assert.equal((await answer({ text: "exactly this" })).message.content[0].text, "exactly this");
  assert.equal((await answer({ tokens: 500 })).message.usage.output_tokens, 500);
  assert.deepEqual((await answer({ tokens: 0, stop_reason: "refusal" })).message.content, []);
  assert.equal((await answer({ thinking: "hm" })).message.content[0].thinking, "hm");
  const { message } = await answer({ tool_use: { name: "go", input: { far: [1, { x: "é" }] } } });
  assert.deepEqual(message.content[0].input, { far: [1, { x: "é" }] });
  assert.equal(
    (await answer({ cache: "hit" }, request("x", { cache_control: {} }))).message.usage.cache_creation_input_tokens,
    0,
  );

  const strange = (await answer({ unknown_events: true, unknown_deltas: true, pings: 2 })).events;
  assert.ok(names(strange).includes("future_event") && names(strange).includes("future_delta"));
  assert.ok(names(strange).filter((name) => name === "ping").length > 3);
  assert.equal(names(strange).at(-1), "message_stop");

  const chunked = await answer({ tokens_per_chunk: 1000 });
  assert.equal(names(chunked.events).filter((name) => name === "text_delta").length, 1);
  await answer({ split_bytes: 1 }, request("😀é"));
});

test("models and token counts have their own routes", async (t) => {
  const fake = await fakeFor(t, { models: ["claude-sonnet-5-5", "mine"] });
  const headers = { "x-api-key": "k", "anthropic-version": "2023-06-01" };
  const list = await (await fetch(`${fake.url}/v1/models`, { headers })).json();
  assert.deepEqual([list.data.map(({ id }) => id), list.has_more, list.last_id], [[MODEL, "mine"], false, "mine"]);
  assert.equal((await (await fetch(`${fake.url}/v1/models/mine`, { headers })).json()).id, "mine");
  assert.equal((await fetch(`${fake.url}/v1/models/other`, { headers })).status, 404);
  const counted = await postJson(fake, request("x".repeat(400)), { path: "/v1/messages/count_tokens" });
  assert.ok(counted.body.input_tokens >= 100);
});
