/** What is no submission is refused with everything that is wrong with it, each fault at its place, and costs nothing. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { MARK, start, submission } from "./harness.mjs";

const spillway = await start();
after(async () => {
  await spillway.stop();
  assert.deepEqual(spillway.calls(), [], "nothing of this may reach Claude");
});

const text = (content) => submission("", { request: { messages: [{ role: "user", content }] } });
const messages = (...list) => submission("", { request: { messages: list } });
const places = ({ body }) => (body.error.problems ?? []).map(({ place }) => place);

/** What is wrong, the submission, the place that is named. */
const FAULTS = [
  ["no kind", submission("", { kind: undefined }), "kind"],
  ["an unknown kind", submission("", { kind: "poem" }), "kind"],
  ["a kind that is a number", submission("", { kind: 7 }), "kind"],
  ["a null kind", submission("", { kind: null }), "kind"],
  ["an unknown priority", submission("", { priority: "urgent" }), "priority"],
  ["a priority in capitals", submission("", { priority: "HIGH" }), "priority"],
  ["an unknown field", submission("", { prioritiy: "high" }), "prioritiy"],
  ["a field of the request outside it", submission("", { max_tokens: 5 }), "max_tokens"],
  ["a deadline that is too short", submission("", { deadline_seconds: 29 }), "deadline_seconds"],
  ["a deadline that is too long", submission("", { deadline_seconds: 604_801 }), "deadline_seconds"],
  ["a negative deadline", submission("", { deadline_seconds: -1 }), "deadline_seconds"],
  ["half a second of deadline", submission("", { deadline_seconds: 30.5 }), "deadline_seconds"],
  ["a deadline in words", submission("", { deadline_seconds: "1 h" }), "deadline_seconds"],
  ["an unknown preset", submission("", { preset: "fast" }), "preset"],
  ["an unknown when_exhausted", submission("", { when_exhausted: "panic" }), "when_exhausted"],
  ["an unknown when_interrupted", submission("", { when_interrupted: "ask" }), "when_interrupted"],
  ["a webhook without encryption", submission("", { webhook: "http://example.com/hook" }), "webhook"],
  ["a webhook that is no address", submission("", { webhook: "example.com" }), "webhook"],
  ["a locale that is none", submission("", { locale: "Deutsch, bitte" }), "locale"],
  ["metadata in a list", submission("", { metadata: ["x"] }), "metadata"],
  ["metadata of 5 KB", submission("", { metadata: { x: "y".repeat(5000) } }), "metadata"],
  ["no request", { kind: "tagging" }, "request"],
  ["a request in text", { kind: "tagging", request: "Hello" }, "request"],
  ["a request in a list", { kind: "tagging", request: [] }, "request"],
  ["a null request", { kind: "tagging", request: null }, "request"],
  ["no max_tokens", submission("", { request: { max_tokens: undefined } }), "request.max_tokens"],
  ["max_tokens of 0", submission("", { request: { max_tokens: 0 } }), "request.max_tokens"],
  ["negative max_tokens", submission("", { request: { max_tokens: -5 } }), "request.max_tokens"],
  ["max_tokens with a fraction", submission("", { request: { max_tokens: 1.5 } }), "request.max_tokens"],
  ["max_tokens in text", submission("", { request: { max_tokens: "100" } }), "request.max_tokens"],
  ["a model that is a number", submission("", { request: { model: 5 } }), "request.model"],
  ["an empty model", submission("", { request: { model: "" } }), "request.model"],
  ["a model with a space", submission("", { request: { model: "claude 5" } }), "request.model"],
  ["a stream that is a text", submission("", { request: { stream: "yes" } }), "request.stream"],
  ["a system prompt that is a number", submission("", { request: { system: 5 } }), "request.system"],
  ["tools that are no list", submission("", { request: { tools: {} } }), "request.tools"],
  ["a temperature in text", submission("", { request: { temperature: "hot" } }), "request.temperature"],
  ["a tool_choice in text", submission("", { request: { tool_choice: "auto" } }), "request.tool_choice"],
  ["no messages", submission("", { request: { messages: undefined } }), "request.messages"],
  ["an empty list of messages", messages(), "request.messages"],
  ["messages in text", submission("", { request: { messages: "Hello" } }), "request.messages"],
  ["a message in text", messages("Hello"), "request.messages[0]"],
  ["a null message", messages(null), "request.messages[0]"],
  ["a message without a role", messages({ content: "Hello" }), "request.messages[0].role"],
  ["a role that is none", messages({ role: "bot", content: "Hello" }), "request.messages[0].role"],
  ["a message without content", messages({ role: "user" }), "request.messages[0].content"],
  ["empty content", text(""), "request.messages[0].content"],
  ["an empty list of content", text([]), "request.messages[0].content"],
  ["null content", text(null), "request.messages[0].content"],
  ["content that is a number", text(17), "request.messages[0].content"],
  ["a block that is text", text(["Hello"]), "request.messages[0].content[0]"],
  ["a block without a type", text([{ type: "text", text: "x" }, { text: "x" }]), "request.messages[0].content[1].type"],
];

test("each fault is a 400 that names its place, and only that", async () => {
  for (const [what, body, place] of FAULTS) {
    const answer = await spillway.submit(body);
    assert.equal(answer.status, 400, `${what}: ${answer.text}`);
    assert.equal(answer.body.error.type, "invalid_request_error", what);
    assert.deepEqual(places(answer), [place], `${what}: ${answer.text}`);
    const [{ message }] = answer.body.error.problems;
    assert.ok(message.length > 5, what);
    assert.equal(answer.body.error.message, `${place}: ${message}`, what);
    assert.equal(answer.headers.get("retry-after"), null, `${what}: sending it again would not help`);
  }
});

test("all faults come at once, in the message and as a list", async () => {
  const answer = await spillway.submit({
    priority: "urgent",
    colour: "red",
    deadline_seconds: "soon",
    request: { max_tokens: 0, stream: 1, messages: [{ role: "bot", content: "" }, 7] },
  });
  assert.equal(answer.status, 400);
  const expected = [
    "colour",
    "deadline_seconds",
    "kind",
    "priority",
    "request.max_tokens",
    "request.messages[0].content",
    "request.messages[0].role",
    "request.messages[1]",
    "request.stream",
  ];
  assert.deepEqual(places(answer).sort(), expected);
  for (const place of expected) assert.ok(answer.body.error.message.includes(place), place);
});

test("an unknown kind, priority or field is told which there are", async () => {
  const { body } = await spillway.submit(submission("", { kind: "poem", priority: "urgent", colour: "red" }));
  const message = (place) => body.error.problems.find((problem) => problem.place === place).message;
  for (const kind of ["tagging", "short_summary", "long_form_writing", "code_generation"]) {
    assert.ok(message("kind").includes(kind), message("kind"));
  }
  assert.match(message("priority"), /"high", "medium" or "low"/);
  assert.match(message("colour"), /kind, priority, request/);
});

test("a field that appears twice is refused: which one counts is anybody's guess", async () => {
  const twice = await spillway.submit('{"kind":"tagging","kind":"default","request":{"max_tokens":5,"messages":[]}}');
  assert.deepEqual(places(twice).sort(), ["kind", "request.messages"]);
  const inside = '{"max_tokens":5,"max_tokens":9,"messages":[{"role":"user","content":"x"}]}';
  const answer = await spillway.submit(`{"kind":"tagging","request":${inside}}`);
  assert.deepEqual(places(answer), ["request.max_tokens"]);
});

test("a body that is no JSON object is a 400, whatever it is", async () => {
  const valid = JSON.stringify(submission());
  const bodies = {
    empty: "",
    spaces: " \n ",
    words: "hello",
    "half of it": valid.slice(0, -10),
    "more than it": `${valid}{}`,
    "a comma too many": valid.replace(/}$/, ",}"),
    "single quotes": "{'kind':'tagging'}",
    null: "null",
    number: "42",
    text: '"tagging"',
    list: `[${valid}]`,
    "form data": "kind=tagging",
    "not UTF-8": Buffer.concat([Buffer.from('{"kind":"'), Buffer.from([0xff, 0xfe]), Buffer.from('"}')]),
    "UTF-16": Buffer.from(valid, "utf16le"),
    deep: "[".repeat(100_000),
    "deep inside": `{"kind":"tagging","request":${'{"a":'.repeat(100_000)}`,
  };
  for (const [what, body] of Object.entries(bodies)) {
    const answer = await spillway.submit(body);
    assert.equal(answer.status, 400, `${what}: ${answer.text}`);
    assert.equal(answer.body.error.type, "invalid_request_error", what);
    assert.match(answer.body.error.message, /JSON/, what);
  }
});

test("what does not say that it is JSON is a 415 that says what to send", async () => {
  for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "json"]) {
    const headers = { "content-type": type };
    const answer = await spillway.submit(submission(), { headers });
    assert.equal(answer.status, 415, `${type}: ${answer.text}`);
    assert.match(answer.body.error.message, /application\/json/);
  }
});

test("half a character, escaped, is found here and not upstream", async () => {
  const body = JSON.stringify(submission("HALF")).replace("HALF", "\\ud83d");
  const answer = await spillway.submit(body);
  assert.deepEqual(places(answer), ["request.messages"]);
});

test("an anthropic-beta that is no list of names is refused at its place", async () => {
  for (const betas of ["a b", "a;b", "x".repeat(1025)]) {
    const answer = await spillway.submit(submission(), { headers: { "anthropic-beta": betas } });
    assert.equal(answer.status, 400, betas);
    assert.deepEqual(places(answer), ["anthropic-beta"]);
  }
});

test("an idempotency key that is empty, too long or not ASCII is refused", async () => {
  for (const key of ["x".repeat(256), "é"]) {
    const answer = await spillway.submit(submission(), { key });
    assert.equal(answer.status, 400, key);
    assert.match(answer.body.error.message, /idempotency-key: .* 255/);
  }
});

test("a million faults are answered with the first of them, in one short answer", async () => {
  const list = Array.from({ length: 100_000 }, () => ({ role: "bot", content: "" }));
  const answer = await spillway.submit(messages(...list));
  assert.equal(answer.status, 400);
  assert.ok(answer.body.error.problems.length <= 60);
  assert.ok(answer.text.length < 20_000);
});

test("a refusal never repeats the prompt, and nothing of it is logged", async () => {
  const answer = await spillway.submit(submission("x", { kind: "poem", request: { max_tokens: `${MARK} 5` } }));
  assert.equal(answer.status, 400);
  assert.ok(!answer.text.includes(MARK), answer.text);
  assert.deepEqual(spillway.logs("job_submitted"), []);
});
