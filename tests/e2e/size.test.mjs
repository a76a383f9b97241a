/** The size limit: 8 MiB, of which every byte goes upstream, and none beyond it is read. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, test } from "node:test";
import { KEYS, MODEL, start, submission } from "./harness.mjs";

const LIMIT = 8 * 1024 * 1024;

/**
 * An upstream without limits that prompts of this size could meet: two of them are more tokens than it lets through in a
 * minute, and the pacer would see to that.
 */
const BOUNDLESS = {
  check_context: false,
  defaults: {
    headers: Object.fromEntries(
      ["tokens", "input-tokens", "output-tokens"].map((kind) => [`anthropic-ratelimit-${kind}-limit`, null]),
    ),
  },
};

const spillway = await start({ script: BOUNDLESS });
after(() => spillway.stop());

/** A submission of exactly so many bytes, with characters of every length in it. */
function ofSize(bytes, marker) {
  const frame = JSON.stringify(submission(`[[${marker}]]FILL`));
  const pieces = ["a", "é", "€", "🎈", "\\n", '\\"', "\\u00e9"];
  let fill = "";
  const room = bytes - (Buffer.byteLength(frame) - "FILL".length);
  const all = pieces.join("");
  fill = all.repeat(Math.floor(room / Buffer.byteLength(all)));
  fill += "x".repeat(room - Buffer.byteLength(fill));
  const body = frame.replace("FILL", () => fill);
  assert.equal(Buffer.byteLength(body), bytes);
  return body;
}

/** What Claude has to get for it, byte for byte. */
function upstream(body) {
  const request = body.slice(body.indexOf('"request":') + '"request":'.length, -1);
  return `{"model":"${MODEL}","stream":true,${request.slice(1)}`;
}

/** POST /v1/jobs over a plain socket, and how much of it was sent before it was answered or the connection broken. */
function send(chunks, headers) {
  return new Promise((resolve) => {
    const { port } = new URL(spillway.url);
    const all = { authorization: `Bearer ${KEYS.app}`, "content-type": "application/json", ...headers };
    const request = httpRequest({ port, host: "127.0.0.1", path: "/v1/jobs", method: "POST", headers: all });
    let sent = 0;
    let over = false;
    request.on("response", async (response) => {
      over = true;
      let text = "";
      for await (const part of response) text += part;
      request.destroy();
      resolve({ status: response.statusCode, headers: response.headers, body: JSON.parse(text), sent });
    });
    request.on("error", () => {
      if (!over) resolve({ status: null, sent });
      over = true;
    });
    (async () => {
      for (const chunk of chunks) {
        if (over) return;
        sent += chunk.length;
        if (!request.write(chunk)) await new Promise((resolve) => request.once("drain", resolve));
      }
      request.end();
    })();
  });
}

const MEGABYTE = Buffer.alloc(1024 * 1024, "x");

test("7.9 MB are accepted, and reach Claude byte for byte", async () => {
  const body = ofSize(7_900_000, "large");
  const id = await spillway.accepted(body);
  await spillway.untilDone(id);
  const [call, ...others] = spillway.calls({ marker: "large" });
  assert.deepEqual(others, []);
  const expected = upstream(body);
  assert.equal(call.body_bytes, Buffer.byteLength(expected));
  assert.equal(call.body_sha256, createHash("sha256").update(expected).digest("hex"));
});

test("the last byte of 8 MiB is accepted, and the next one is a 413", async () => {
  const id = await spillway.accepted(ofSize(LIMIT, "limit"));
  await spillway.untilDone(id);
  assert.equal(spillway.calls({ marker: "limit" }).length, 1);
  const { status, body } = await spillway.submit(ofSize(LIMIT + 1, "beyond"));
  assert.equal(status, 413);
  assert.equal(body.error.type, "request_too_large");
  assert.match(body.error.message, /8388608 bytes/);
});

test("9 MB are a 413 that every client gets to see, announced or in chunks, however it writes them", async () => {
  const large = Buffer.alloc(9_000_000, "x");
  const parts = () => ReadableStream.from(Array(9).fill(MEGABYTE));
  for (let i = 0; i < 10; i += 1) {
    for (const body of [large, parts()]) {
      const answer = await spillway.submit(body);
      assert.equal(answer.status, 413);
      assert.equal(answer.body.error.type, "request_too_large");
      assert.match(answer.headers.get("content-type"), /^application\/json/);
    }
  }
});

test("an announced gigabyte is a 413 before it is sent", async () => {
  const { status, body, sent } = await send([MEGABYTE], { "content-length": String(1024 * MEGABYTE.length) });
  assert.equal(status, 413);
  assert.equal(body.error.type, "request_too_large");
  assert.equal(sent, MEGABYTE.length);
});

test("an endless body is not read to its end", async () => {
  const { status, sent } = await send(Array(400).fill(MEGABYTE), { "transfer-encoding": "chunked" });
  // A client that goes on writing may not get to see the answer.
  assert.ok(status === 413 || status === null, `${status}`);
  assert.ok(sent < 200 * MEGABYTE.length, `${sent} bytes sent`);
});

test("8 MiB in chunks, without an announcement, are as good as announced ones", async () => {
  const body = Buffer.from(ofSize(LIMIT, "chunked"));
  const parts = Array.from({ length: 8 }, (_, i) => body.subarray(i * MEGABYTE.length, (i + 1) * MEGABYTE.length));
  const answer = await send(parts, { "transfer-encoding": "chunked" });
  assert.equal(answer.status, 202);
  await spillway.untilDone(answer.body.id);
  const [call] = spillway.calls({ marker: "chunked" });
  const expected = upstream(body.toString());
  assert.equal(call.body_sha256, createHash("sha256").update(expected).digest("hex"));
});

test("large jobs side by side do not run the Worker out of memory", async () => {
  const names = ["a", "b", "c", "d", "e", "f"];
  const ids = await Promise.all(names.map((name) => spillway.accepted(ofSize(7_000_000, `side-${name}`))));
  await Promise.all(ids.map((id) => spillway.untilDone(id)));
  for (const name of names) assert.equal(spillway.calls({ marker: `side-${name}` }).length, 1);
});

test("requests and answers are kept in rows of at most 1 MB", async (t) => {
  const stateDir = mkdtempSync(join(tmpdir(), "spillway-rows-"));
  t.after(() => rmSync(stateDir, { recursive: true, force: true }));
  const own = await start({ stateDir, script: BOUNDLESS });
  const body = ofSize(7_900_000, "rows");
  await own.untilDone(await own.accepted(body));
  await own.stop();
  const files = readdirSync(stateDir, { recursive: true }).filter((file) => file.endsWith(".sqlite"));
  const rows = files.flatMap((file) => {
    const database = new DatabaseSync(join(stateDir, file), { readOnly: true });
    const tables = database.prepare("SELECT name FROM sqlite_master WHERE name IN ('request', 'answer')").all();
    const found = tables.flatMap(({ name }) => database.prepare(`SELECT length(bytes) AS bytes FROM ${name}`).all());
    database.close();
    return found.map(({ bytes }) => bytes);
  });
  assert.ok(rows.length > 8, `${rows.length} rows`);
  assert.ok(Math.max(...rows) <= 1_000_000, `a row of ${Math.max(...rows)} bytes`);
});

test("after all of that a small job is as quick as ever", async () => {
  const id = await spillway.accepted(submission("small"));
  assert.equal((await spillway.untilDone(id)).status, "done");
});
