/** What the tests of the fake share: a server for one test, a client, and an independent reading of the stream. */
import { startFakeClaude } from "../../fake-claude/server.mjs";

/** A fake that is stopped when the test is over. */
export async function fakeFor(test, script = {}, options = {}) {
  const fake = await startFakeClaude({ script, ...options });
  test.after(() => fake.stop());
  return fake;
}

/** A clock that only moves when told. */
export function clockAt(start) {
  const now = () => now.time;
  now.time = start;
  return now;
}

export const MODEL = "claude-sonnet-5-5";

export function request(text = "Hello", more = {}) {
  return { model: MODEL, max_tokens: 1000, messages: [{ role: "user", content: text }], ...more };
}

/** POST /v1/messages (or another path) as a client does. A header that is null is left out. */
export function post(fake, body, { headers = {}, path = "/v1/messages", signal } = {}) {
  const all = {
    "x-api-key": "key-1",
    "anthropic-version": "2023-06-01",
    "content-type": "application/json",
    ...headers,
  };
  return fetch(fake.url + path, {
    method: "POST",
    headers: Object.fromEntries(Object.entries(all).filter(([, value]) => value !== null)),
    body: typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body),
    signal,
  });
}

/** Posts, and reads the JSON answer. */
export async function postJson(fake, body, options) {
  const response = await post(fake, body, options);
  return { status: response.status, headers: response.headers, body: await response.json() };
}

/** The events of a stream's text; what is not whole is left out. */
export function eventsIn(text) {
  return text
    .split("\n\n")
    .slice(0, -1)
    .map((block) => {
      const [, name, data] = /^event: (\S+)\ndata: (.*)$/.exec(block) ?? [];
      return { event: name, data: JSON.parse(data) };
    });
}

export async function stream(fake, body, options) {
  const response = await post(fake, { ...body, stream: true }, options);
  return eventsIn(await response.text());
}

/** What a stream broke off with, and what had come until then. */
export async function brokenStream(fake, body, options) {
  const response = await post(fake, { ...body, stream: true }, options);
  const decoder = new TextDecoder();
  let text = "";
  let error = null;
  try {
    for await (const part of response.body) text += decoder.decode(part, { stream: true });
  } catch (failure) {
    error = failure;
  }
  return { events: eventsIn(text), error };
}

/** The Message that a client puts together from a stream, by the rules that the API documents. */
export function assemble(events) {
  let message;
  const json = new Map();
  for (const { data } of events) {
    const block = message?.content[data.index];
    switch (data.type) {
      case "message_start":
        message = structuredClone(data.message);
        break;
      case "content_block_start":
        message.content[data.index] = structuredClone(data.content_block);
        break;
      case "content_block_delta":
        applyDelta(block, data, json);
        break;
      case "content_block_stop":
        if (block.type === "tool_use") block.input = JSON.parse(json.get(data.index) || "{}");
        break;
      case "message_delta":
        Object.assign(message, data.delta);
        Object.assign(message.usage, data.usage);
        break;
    }
  }
  return message;
}

function applyDelta(block, { index, delta }, json) {
  switch (delta.type) {
    case "text_delta":
      block.text += delta.text;
      break;
    case "thinking_delta":
      block.thinking += delta.thinking;
      break;
    case "signature_delta":
      block.signature += delta.signature;
      break;
    case "input_json_delta":
      json.set(index, (json.get(index) ?? "") + delta.partial_json);
      break;
    case "citations_delta":
      block.citations.push(delta.citation);
      break;
  }
}
