/**
 * A Spillway made of a script, on loopback: what the client's tests need is one that cuts, holds back and refuses at exactly
 * the right place. What the real one does is the matter of tests/e2e/client.test.mjs.
 */
import { createServer } from "node:http";
import { once } from "node:events";
import { Spillway } from "../../client/index.js";

export const ID = "job_0123456789abcdef0123456789abcdef";

/** No test sleeps: what takes seconds out there takes milliseconds here. */
export const QUICK = { retry: 1, longestRetry: 5, request: 2000, firstByte: 1000, silence: 2000, hold: 1000 };

/**
 * @typedef {object} Exchange
 * @property {import("node:http").IncomingMessage} request
 * @property {import("node:http").ServerResponse} response
 * @property {string} path
 * @property {URLSearchParams} query
 * @property {string} body
 * @property {number} n How many requests came to this path before.
 */

/**
 * Answers with `handle` until the test is over.
 *
 * @param {import("node:test").TestContext} test
 * @param {(exchange: Exchange) => void | Promise<void>} handle
 */
export async function serve(test, handle) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const { pathname: path, searchParams: query } = new URL(request.url, "http://spillway");
    let body = "";
    for await (const chunk of request.setEncoding("utf8")) body += chunk;
    const n = requests.filter((before) => before.path === path).length;
    requests.push({ method: request.method, path, query, headers: request.headers, body });
    await handle({ request, response, path, query, body, n });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${server.address().port}`;
  return {
    url,
    requests,
    /** The paths that were asked for. */
    paths: () => requests.map(({ path }) => path),
    client: (options) => new Spillway({ baseUrl: url, key: "key-of-app", timing: QUICK, ...options }),
  };
}

export function json(response, status, body, headers = {}) {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}

export const refusal = (type, message = "No") => ({ type: "error", error: { type, message }, request_id: "req_1" });

/** A status, as much of it as matters. */
export const job = (status, more = {}) => ({
  id: ID,
  status,
  message: { code: status, text: `It is ${status}.` },
  calls: 1,
  ...more,
});

export const DONE = job("done", { text: "Hello, world", result: { type: "message" } });

/** The events of a job whose first draft broke off, in a text where cuts hurt: with characters of two and of four bytes. */
export const STORY = [
  ["status", job("received", { calls: 0 })],
  ["status", job("generating")],
  ["status", job("refining")],
  ["text", { draft: 1, text: "Hé" }],
  ["text", { draft: 1, text: "llo 🌊" }],
  ["draft_discarded", { draft: 1, reason: "overloaded" }],
  ["status", job("retrying", { waiting: { reason: "overloaded", next_check_seconds: 2 } })],
  ["status", job("refining", { calls: 2 })],
  ["text", { draft: 2, text: "Hello," }],
  ["text", { draft: 2, text: " world" }],
  ["status", DONE],
];

/** What a caller sees of it: status and text, every step once. */
export const SEEN = [
  "received|",
  "generating|",
  "refining|",
  "refining|Hé",
  "refining|Héllo 🌊",
  "refining|",
  "retrying|",
  "refining|",
  "refining|Hello,",
  "refining|Hello, world",
  "done|Hello, world",
];

/** Keeps what `onProgress` was told: every step once, since a connection that comes and goes is told of as well. */
export function watcher() {
  const seen = [];
  const onProgress = ({ status, text }) => {
    const step = `${status}|${text}`;
    if (step !== seen.at(-1)) seen.push(step);
  };
  return { seen, onProgress };
}

export const wire = ([name, data], n) => `id: e${n + 1}\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`;

/** What there is to read of a story for who knows its first so many events. */
export const stream = (story, known = 0) => Buffer.from(`retry: 1\n\n${story.map(wire).slice(known).join("")}`);

/** The answer of a fetch that was passed in: a stream of events in pieces of `size` bytes, which may break at its end. */
export function answerOf(bytes, { size = bytes.length || 1, breaks = false } = {}) {
  let at = 0;
  const body = new ReadableStream({
    pull(controller) {
      if (at < bytes.length) controller.enqueue(bytes.subarray(at, (at += size)));
      else if (breaks) controller.error(new TypeError("terminated"));
      else controller.close();
    },
  });
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}

/**
 * The route of events, of a job that goes as `story` does. A reader gets what comes after the id that it has, all at once.
 *
 * @param {unknown[]} story
 * @param {(text: Buffer, n: number) => number | undefined} [cut] After how many bytes the nth connection breaks.
 */
export function eventRoute(story, cut = () => undefined) {
  let connections = 0;
  return ({ request, response }) => {
    const known = Number(request.headers["last-event-id"]?.slice(1) ?? 0);
    if (known === story.length) return response.writeHead(204).end();
    const text = stream(story, known);
    const end = cut(text, connections++);
    response.writeHead(200, { "content-type": "text/event-stream" });
    if (end === undefined) response.end(text);
    else response.write(text.subarray(0, end), () => response.destroy());
  };
}
