/** The size limit: 8 MiB, of which every byte goes upstream, and none beyond it is read. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { request as httpRequest } from "node:http";
import { after, test } from "node:test";
import { KEYS, MODEL, start, submission } from "./harness.mjs";

const LIMIT = 8 * 1024 * 1024;

const spillway = await start({ script: { check_context: false } });
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

/** POST /v1/jobs over a plain socket, which tells what happened to the body. */
function send(chunks, headers) {
  return new Promise((resolve, reject) => {
    const { port } = new URL(spillway.url);
    const all = { authorization: `Bearer ${KEYS.app}`, "content-type": "application/json", ...headers };
    const request = httpRequest({ port, host: "127.0.0.1", path: "/v1/jobs", method: "POST", headers: all });
    let sent = 0;
    let answered = false;
    request.on("response", async (response) => {
      answered = true;
      let text = "";
      for await (const part of response) text += part;
      request.destroy();
      resolve({ status: response.statusCode, headers: response.headers, body: JSON.parse(text), sent });
    });
    // The answer may come before the body is sent, and the connection end with it.
    request.on("error", (error) => answered || reject(error));
    (async () => {
      for (const chunk of chunks) {
        if (answered || request.destroyed) return;
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

test("an announced 9 MB are refused before they are sent", async () => {
  const { status, body, headers } = await send([MEGABYTE], { "content-length": String(9 * MEGABYTE.length) });
  assert.equal(status, 413);
  assert.equal(body.error.type, "request_too_large");
  assert.match(headers["content-type"], /^application\/json/);
});

test("unannounced 9 MB, in chunks, are refused as soon as they are too many", async () => {
  const { status, body } = await send(Array(9).fill(MEGABYTE), { "transfer-encoding": "chunked" });
  assert.equal(status, 413);
  assert.equal(body.error.type, "request_too_large");
});

test("an endless body is not read to its end", async () => {
  const endless = (function* () {
    for (let i = 0; i < 200; i += 1) yield MEGABYTE;
  })();
  const { status, sent } = await send(endless, { "transfer-encoding": "chunked" });
  assert.equal(status, 413);
  assert.ok(sent < 100 * MEGABYTE.length, `${sent} bytes sent`);
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
  await Promise.all(ids.map((id) => spillway.untilDone(id, { timeout: 30_000 })));
  for (const name of names) assert.equal(spillway.calls({ marker: `side-${name}` }).length, 1);
});

test("after all of that a small job is as quick as ever", async () => {
  const id = await spillway.accepted(submission("small"));
  assert.equal((await spillway.untilDone(id)).status, "done");
});
