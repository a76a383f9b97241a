/** Faults: connections and streams that break, and what the log says of them. */
import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { assemble, brokenStream, fakeFor, post, postJson, request, stream } from "./support.mjs";

const always = (then) => ({ rules: [{ then }] });

const codeOf = async (promise) => {
  try {
    await promise;
    return "answered";
  } catch (error) {
    return error.name === "AbortError" ? error.name : (error.cause?.code ?? error.code);
  }
};

test("a connection breaks before the headers, by reset or by closing", async (t) => {
  const fake = await fakeFor(t);
  for (const [fault, code] of [
    ["reset", "ECONNRESET"],
    ["close", "UND_ERR_SOCKET"],
  ]) {
    await fake.setScript(always({ fault }));
    assert.equal(await codeOf(post(fake, request())), code);
    const { outcome } = (await fake.until((calls) => calls.at(-1).outcome !== null)).at(-1);
    assert.deepEqual([outcome.status, outcome.fault, outcome.by], [null, fault, "rule"]);
    assert.equal(outcome.client_closed, false);
  }
});

test("a call that hangs is in the log at once, without an outcome, until its client leaves", async (t) => {
  const fake = await fakeFor(t, always({ fault: "hang" }));
  const leaving = new AbortController();
  const call = post(fake, request("Wait [[w]]"), { signal: leaving.signal });
  const [entry] = await fake.until((calls) => calls[0]?.model);
  assert.deepEqual([entry.outcome, entry.ended_at, entry.marker], [null, null, "w"]);
  leaving.abort();
  assert.equal(await codeOf(call), "AbortError");
  const [{ outcome }] = await fake.until((calls) => calls[0].outcome);
  assert.deepEqual([outcome.client_closed, outcome.completed, outcome.status], [true, false, null]);
});

test("a client that leaves in the middle of a stream is logged as that", async (t) => {
  const fake = await fakeFor(t, always({ tokens: 400, tokens_per_chunk: 1, chunk_delay_ms: 5 }));
  const leaving = new AbortController();
  const response = await post(fake, request("x", { stream: true }), { signal: leaving.signal });
  await response.body.getReader().read();
  leaving.abort();
  const [{ outcome }] = await fake.until((calls) => calls[0].outcome);
  assert.deepEqual([outcome.status, outcome.client_closed, outcome.completed], [200, true, false]);
  assert.ok(outcome.events > 0 && outcome.events < 400);
});

test("a stream is cut after exactly so many events", async (t) => {
  const fake = await fakeFor(t);
  for (const [how, fails] of [
    ["reset", true],
    ["end", false],
  ]) {
    for (const count of [0, 1, 5]) {
      await fake.setScript(always({ tokens: 100, cut: { after_events: count, how } }));
      const { events, error } = await brokenStream(fake, request());
      assert.equal(events.length, count, `${how} after ${count}`);
      assert.equal(error !== null, fails, `${how} after ${count}: ${error}`);
      const { outcome } = fake.calls().at(-1);
      assert.deepEqual([outcome.events, outcome.fault, outcome.completed], [count, how, false]);
    }
  }
});

test("an error comes inside the stream, before any content or after some", async (t) => {
  const fake = await fakeFor(t);
  for (const [cut, before, type] of [
    [{ after_events: 0 }, 0, "overloaded_error"],
    [{ after_events: 3 }, 0, "overloaded_error"],
    [{ after_deltas: 2 }, 2, "overloaded_error"],
    [{ after_deltas: 1, error: "api_error" }, 1, "api_error"],
    [{ after_events: 1, error: { type: "future_error", message: "?" } }, 0, "future_error"],
  ]) {
    await fake.setScript(always({ tokens: 100, cut: { how: "error", ...cut } }));
    const response = await post(fake, request("x", { stream: true }));
    assert.equal(response.status, 200);
    const lines = (await response.text()).trim().split("\n");
    const last = JSON.parse(lines.at(-1).slice("data: ".length));
    assert.equal(lines.at(-2), "event: error");
    assert.deepEqual([last.type, last.error.type], ["error", type]);
    assert.equal(last.request_id, response.headers.get("request-id"));
    const { outcome } = fake.calls().at(-1);
    assert.deepEqual([outcome.deltas, outcome.error_type, outcome.completed], [before, type, false]);
  }
});

test("without a stream, an error in it is the answer, and a cut leaves half of the JSON", async (t) => {
  const fake = await fakeFor(t, always({ cut: { after_deltas: 2, how: "error" } }));
  assert.equal((await postJson(fake, request())).status, 529);
  await fake.setScript(always({ cut: { after_deltas: 2, how: "end" } }));
  const half = await (await post(fake, request())).text();
  assert.match(half, /^\{"id"/);
  assert.throws(() => JSON.parse(half));
  await fake.setScript(always({ cut: { after_deltas: 2, how: "reset" } }));
  assert.equal(await codeOf(post(fake, request()).then((response) => response.text())), "ECONNRESET");
});

test("a stream stalls for ever, or for a while and then goes on; pings may go on meanwhile", async (t) => {
  const fake = await fakeFor(t, always({ cut: { after_deltas: 1, how: "stall", for_ms: 30 }, ping_every_ms: 8 }));
  const events = await stream(fake, request());
  assert.equal(assemble(events).stop_reason, "end_turn");
  assert.ok(events.filter(({ event }) => event === "ping").length >= 3);
  assert.deepEqual([fake.calls()[0].outcome.completed, fake.calls()[0].outcome.fault], [true, "stall"]);

  await fake.setScript(always({ cut: { after_deltas: 1, how: "stall" } }));
  const leaving = new AbortController();
  const response = await post(fake, request("x", { stream: true }), { signal: leaving.signal });
  await fake.until((calls) => calls.length === 2);
  await sleep(20);
  assert.equal(fake.calls()[1].outcome, null);
  leaving.abort();
  await assert.rejects(response.text());
  const { outcome } = (await fake.until((calls) => calls[1].outcome))[1];
  assert.deepEqual([outcome.client_closed, outcome.fault, outcome.deltas], [true, "stall", 1]);
});

test("a 200 may be no answer: a page, half of the JSON, or nothing", async (t) => {
  const fake = await fakeFor(t);
  for (const streaming of [true, false]) {
    for (const [fault, expected] of [
      ["html", /^<!DOCTYPE html>/],
      ["truncated_json", streaming ? /^event: message_start/ : /^\{"id"/],
      ["empty", /^$/],
    ]) {
      await fake.setScript(always({ fault }));
      const response = await post(fake, request("x", { stream: streaming }));
      const text = await response.text();
      assert.equal(response.status, 200);
      assert.match(text, expected);
      assert.throws(() => JSON.parse(text.split("data: ").at(-1)));
      assert.equal(fake.calls().at(-1).outcome.completed, false);
    }
  }
});

test("delays come where they are asked for", async (t) => {
  const fake = await fakeFor(t);
  const timed = async (then, body) => {
    await fake.setScript(always(then));
    const from = performance.now();
    const response = await post(fake, body);
    const headers = performance.now() - from;
    await response.text();
    return { headers, all: performance.now() - from };
  };
  const streaming = request("x", { stream: true });
  const slowStart = await timed({ delay_ms: 40 }, streaming);
  assert.ok(slowStart.headers >= 39, JSON.stringify(slowStart));
  const slowStream = await timed({ first_event_delay_ms: 2000 }, streaming);
  assert.ok(slowStream.headers < 1900 && slowStream.all >= 1999, JSON.stringify(slowStream));
  const slowChunks = await timed({ tokens: 16, chunk_delay_ms: 5 }, streaming);
  assert.ok(slowChunks.all >= 40, JSON.stringify(slowChunks));
  const whole = await timed({ tokens: 16, chunk_delay_ms: 5 }, request());
  assert.ok(whole.headers >= 40, JSON.stringify(whole));
  assert.ok((await timed({ status: 529, delay_ms: 40 }, streaming)).headers >= 39);
});

test("connections are refused for a while, and taken again on the same port", async (t) => {
  const fake = await fakeFor(t, { rules: [{ when: { call: 1 }, then: { fault: "refuse", for_ms: 2000 } }] });
  assert.equal(await codeOf(post(fake, request())), "ECONNRESET");
  assert.equal(await codeOf(post(fake, request())), "ECONNREFUSED");
  let answer = "ECONNREFUSED";
  const from = performance.now();
  while (answer === "ECONNREFUSED" && performance.now() - from < 20_000) {
    await sleep(10);
    answer = await codeOf(post(fake, request()).then((response) => response.text()));
  }
  assert.equal(answer, "answered");
  assert.ok(performance.now() - from >= 1000);
  assert.equal(fake.calls().length, 2);
});

test("refused connections leave the answers in progress alone", async (t) => {
  const fake = await fakeFor(t, { rules: [{ when: { call: 1 }, then: { tokens: 40, chunk_delay_ms: 8 } }] });
  const response = await post(fake, request("x", { stream: true }));
  await fake.setScript({ refuse_connections: [{ until_ms: 10_000 }] });
  await sleep(5);
  assert.equal(await codeOf(post(fake, request())), "ECONNREFUSED");
  assert.match(await response.text(), /event: message_stop/);
  await fake.setScript({});
  assert.equal((await postJson(fake, request())).status, 200);
});

test("nothing that a client sends stops the fake", async (t) => {
  const fake = await fakeFor(t);
  const raw = (text, { abort = false } = {}) =>
    new Promise((resolve) => {
      const socket = connect(fake.port, "127.0.0.1", () => {
        socket.write(text);
        if (abort) setTimeout(() => socket.resetAndDestroy(), 5);
      });
      socket.on("data", () => socket.end());
      socket.on("error", () => {});
      socket.on("close", resolve);
    });
  await raw("\x00\x01 rubbish\r\n\r\n");
  await raw("GET http://[ HTTP/1.1\r\nhost: x\r\n\r\n");
  await raw("GET /_fake/calls?since=%zz HTTP/1.1\r\nhost: x\r\n\r\n");
  await raw("GET //_fake HTTP/1.1\r\nhost: x\r\n\r\n");
  await raw("GET /v1/models/%zz HTTP/1.1\r\nhost: x\r\nx-api-key: k\r\nanthropic-version: 2023-06-01\r\n\r\n");
  await raw("POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf", { abort: true });
  await raw("PUT /_fake/script HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf", { abort: true });
  for (const body of ['{"messages":[null]}', '{"model":{},"messages":{},"max_tokens":[]}', "null", '"x"', "12"]) {
    assert.equal((await postJson(fake, body)).status, 400, body);
  }
  const deep = `${"[".repeat(20_000)}${"]".repeat(20_000)}`;
  assert.equal((await postJson(fake, `{"model":"m","max_tokens":1,"messages":${deep}}`)).status, 400);
  const strange = request([{ type: "text", text: "x" }, { type: "document" }], {
    tools: [
      {
        name: "f",
        input_schema: { type: "object", properties: { a: { $ref: "#/nowhere" }, b: null, c: { enum: [] } } },
      },
    ],
  });
  assert.equal((await postJson(fake, strange)).status, 200);
  const half = (await fake.until((calls) => calls.every(({ outcome }) => outcome))).find(
    (call) => call.body_bytes === null,
  );
  assert.equal(half.outcome.client_closed, true);
});
