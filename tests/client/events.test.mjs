/** The client on a job's events: nothing is missed and nothing comes twice, wherever the connection breaks. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Spillway } from "../../client/index.js";
import { EventParser } from "../../client/src/event-parser.js";
import {
  answerOf,
  DONE,
  eventRoute,
  ID,
  job,
  json,
  QUICK,
  SEEN,
  serve,
  STORY,
  stream,
  watcher,
  wire,
} from "./server.mjs";

describe("the parser", () => {
  const parse = (...pieces) => {
    const parser = new EventParser();
    return pieces.flatMap((piece) => parser.push(piece));
  };

  test("knows every form that the format has", () => {
    const cases = [
      ["a whole event", "id: 1\nevent: status\ndata: {}\n\n", [{ id: "1", name: "status", data: "{}" }]],
      ["without a name", "data: x\n\n", [{ id: undefined, name: "message", data: "x" }]],
      ["data in lines", "data: a\ndata:\ndata: b\n\n", [{ id: undefined, name: "message", data: "a\n\nb" }]],
      [
        "one blank after the colon is none of the value",
        "data:  x\n\n",
        [{ id: undefined, name: "message", data: " x" }],
      ],
      ["CRLF", "event: e\r\ndata: x\r\n\r\n", [{ id: undefined, name: "e", data: "x" }]],
      ["CR", "data: x\r\rdata: y\r\r:", [{ id: undefined, name: "message", data: "x" }, { id: undefined, name: "message", data: "y" }]], // prettier-ignore
      ["comments and unknown fields", ": heartbeat\n\nfoo: 1\nbar\n\n", []],
      ["an event without data is none", "id: 7\nevent: x\n\n", []],
      ["no empty line, no event", "data: x\n", []],
      ["an id with a NUL is none", "id: a\0b\ndata: x\n\n", [{ id: undefined, name: "message", data: "x" }]],
    ];
    for (const [what, text, events] of cases) {
      assert.deepEqual(parse(text), events, what);
      assert.deepEqual(parse(...text), events, `${what}, byte by byte`);
    }
  });

  test("keeps what the server says of reconnecting", () => {
    const parser = new EventParser();
    parser.push("retry: soon\n\n");
    assert.equal(parser.retry, undefined);
    parser.push("retry: 2000\n\n");
    assert.equal(parser.retry, 2000);
  });
});

test("a job is followed to its end, with its key and its language", async (t) => {
  const { client, requests } = await serve(t, eventRoute(STORY));
  const { seen, onProgress } = watcher();
  assert.deepEqual(await client({ locale: "ja" }).wait(ID, { onProgress }), DONE);
  assert.deepEqual(seen, SEEN);
  const [{ path, headers }, ...others] = requests;
  assert.deepEqual(others, [], "one connection is enough");
  assert.equal(path, `/v1/jobs/${ID}/events`);
  assert.deepEqual(
    [headers.authorization, headers.accept, headers["accept-language"], headers["last-event-id"]],
    ["Bearer key-of-app", "text/event-stream", "ja", undefined],
  );
});

test("what is told is whole: the drafts, what became of them, why the job waits, and the status", async (t) => {
  const { client } = await serve(t, eventRoute(STORY));
  const told = [];
  await client().wait(ID, { onProgress: (progress) => told.push(progress) });
  assert.deepEqual(
    told.map(({ draft }) => draft),
    [undefined, undefined, undefined, 1, 1, undefined, undefined, undefined, 2, 2, undefined],
  );
  assert.deepEqual(told[5].discarded, { draft: 1, reason: "overloaded" });
  assert.equal(told.filter(({ discarded }) => discarded).length, 1);
  assert.deepEqual(told[6].waiting, { reason: "overloaded", next_check_seconds: 2 });
  assert.deepEqual(told.at(-1).message, DONE.message);
  assert.deepEqual(told.at(-1).job, DONE);
  assert.ok(told.every(({ connected }) => connected));
});

test("a stream that breaks at any byte is taken up without a gap and without a repeat", async () => {
  // A fetch of our own, or this would be a thousand sockets.
  let end;
  let asked;
  const fetch = async (_, { headers }) => {
    asked.push(headers["last-event-id"]);
    const whole = stream(STORY, Number(headers["last-event-id"]?.slice(1) ?? 0));
    return answerOf(asked.length === 1 ? whole.subarray(0, end) : whole, { breaks: asked.length === 1 });
  };
  const spillway = new Spillway({ baseUrl: "http://spillway", fetch, timing: QUICK });
  const { length } = stream(STORY);
  assert.ok(length > 1000);
  const resumed = new Set();
  for (end = 0; end < length; end += 1) {
    asked = [];
    const { seen, onProgress } = watcher();
    const done = await spillway.wait(ID, { onProgress });
    assert.deepEqual([seen, done], [SEEN, DONE], `cut after ${end} bytes`);
    assert.ok(asked.length <= 2, `${asked.length} connections`);
    resumed.add(asked[1]);
  }
  const ids = STORY.slice(0, -1).map((_, n) => `e${n + 1}`);
  assert.deepEqual([...resumed], [undefined, ...ids], "each event was the last one once");
});

test("a stream that comes byte by byte is the same, characters of several bytes as well", async () => {
  const fetch = async () => answerOf(stream(STORY), { size: 1 });
  const { seen, onProgress } = watcher();
  await new Spillway({ baseUrl: "http://spillway", fetch, timing: QUICK }).wait(ID, { onProgress });
  assert.deepEqual(seen, SEEN);
});

test("a connection that breaks after every single event, and in the middle of the next, gets there all the same", async (t) => {
  const inTheNext = (text) => text.indexOf("\n\n", text.indexOf("id: ")) + 2 + 20;
  const { client, requests } = await serve(t, eventRoute(STORY, inTheNext));
  const { seen, onProgress } = watcher();
  const since = Date.now();
  await client({ timing: { ...QUICK, retry: 20, longestRetry: 60_000 } }).wait(ID, { onProgress });
  assert.deepEqual(seen, SEEN);
  assert.ok(requests.length > 8, `${requests.length} connections`);
  // Pauses that doubled each time would add up to twenty seconds.
  assert.ok(Date.now() - since < 5000, "who gets on is not slowed down");
});

test("a server that ends its connections properly, every one, is connected to again", async (t) => {
  const ended = ({ request, response }) => {
    const known = Number(request.headers["last-event-id"]?.slice(1) ?? 0);
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end(`retry: 1\n\n: heartbeat\n\n${wire(STORY[known], known)}`);
  };
  const { client, requests } = await serve(t, ended);
  const { seen, onProgress } = watcher();
  await client().wait(ID, { onProgress });
  assert.deepEqual(seen, SEEN);
  assert.deepEqual(
    requests.map(({ headers }) => headers["last-event-id"]),
    STORY.map((_, n) => (n === 0 ? undefined : `e${n}`)),
  );
});

test("the connection is let go when the job is over, though the server leaves it open", async (t) => {
  let closed;
  const isClosed = new Promise((resolve) => (closed = resolve));
  const { client } = await serve(t, ({ response }) => {
    response.on("close", closed);
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(STORY.map(wire).join(""));
  });
  assert.equal((await client().wait(ID)).status, "done");
  await isClosed;
});

test("a 204, which says that the end is known already, is settled by asking for the status", async (t) => {
  const { client, paths } = await serve(t, ({ response, path }) => {
    if (path.endsWith("/events")) response.writeHead(204).end();
    else json(response, 200, DONE);
  });
  assert.equal((await client().wait(ID)).text, "Hello, world");
  assert.deepEqual(paths(), [`/v1/jobs/${ID}/events`, `/v1/jobs/${ID}`]);
});

test("a job that is erased while it is watched is not found", async (t) => {
  const { client } = await serve(t, ({ response, path, n }) => {
    if (!path.endsWith("/events") || n > 0) return json(response, 404, { error: { type: "not_found_error" } });
    response.writeHead(200, { "content-type": "text/event-stream" }).end(`retry: 1\n\n${wire(STORY[0], 0)}`);
  });
  await assert.rejects(client().wait(ID), { name: "NotFoundError", status: 404 });
});

test("a reader who comes late gets all of the text in one event, and the draft that it belongs to", async (t) => {
  const late = [
    ["status", job("refining", { calls: 2 })],
    ["text", { draft: 2, text: "Hello, wor" }],
    ["text", { draft: 2, text: "ld" }],
    ["status", DONE],
  ];
  const { client } = await serve(t, eventRoute(late));
  const { seen, onProgress } = watcher();
  await client().wait(ID, { onProgress });
  assert.deepEqual(seen, ["refining|", "refining|Hello, wor", "refining|Hello, world", "done|Hello, world"]);
});

test("another draft's text replaces the one before, and a discard of a draft that is not shown changes nothing", async (t) => {
  const story = [
    ["status", job("refining")],
    ["text", { draft: 1, text: "old" }],
    ["text", { draft: 2, text: "new" }],
    ["draft_discarded", { draft: 1, reason: "overloaded" }],
    ["text", { draft: 2, text: "er" }],
    ["status", DONE],
  ];
  const { client } = await serve(t, eventRoute(story));
  const { seen, onProgress } = watcher();
  await client().wait(ID, { onProgress });
  assert.deepEqual(seen, ["refining|", "refining|old", "refining|new", "refining|newer", "done|Hello, world"]);
});

test("the result is what counts, whatever the drafts said; events of a later version are passed over", async (t) => {
  const story = [
    ["text", { draft: 1, text: "Something else" }],
    ["weather", { wind: "west" }],
    ["status", DONE],
  ];
  const { client } = await serve(t, eventRoute(story));
  const { seen, onProgress } = watcher();
  const { text } = await client().wait(ID, { onProgress });
  assert.deepEqual([text, seen.at(-1)], ["Hello, world", "done|Hello, world"]);
});

test("a connection without a heartbeat is dead, and is made again", async (t) => {
  const { client, requests } = await serve(t, ({ request, response }) => {
    const known = Number(request.headers["last-event-id"]?.slice(1) ?? 0);
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(
      `retry: 1\n\n${STORY.slice(0, known + 4)
        .map(wire)
        .slice(known)
        .join("")}`,
    );
  });
  const { seen, onProgress } = watcher();
  await client({ timing: { ...QUICK, silence: 1000 } }).wait(ID, { onProgress });
  assert.deepEqual(seen, SEEN);
  assert.equal(requests.length, 3);
});

test("once events have been heard, an outage of the server is waited out, and told of", async (t) => {
  const route = eventRoute(STORY, (_, n) => (n === 0 ? 400 : undefined));
  const { client, paths } = await serve(t, (exchange) => {
    if (exchange.n >= 1 && exchange.n <= 12) return json(exchange.response, 503, { error: { type: "api_error" } });
    return route(exchange);
  });
  const { seen, onProgress } = watcher();
  const connected = [];
  await client().wait(ID, {
    onProgress: (progress) => {
      onProgress(progress);
      if (progress.connected !== (connected.at(-1) ?? true)) connected.push(progress.connected);
    },
  });
  assert.deepEqual(seen, SEEN);
  assert.deepEqual(connected, [false, true]);
  assert.deepEqual(new Set(paths()), new Set([`/v1/jobs/${ID}/events`]), "nobody went over to asking");
});

test("what a listener throws ends the waiting", async (t) => {
  const { client } = await serve(t, eventRoute(STORY));
  const broken = new Error("a bug of the app's");
  await assert.rejects(
    client().wait(ID, {
      onProgress: () => {
        throw broken;
      },
    }),
    broken,
  );
});
