/**
 * Calls that are larger than a job may be: they go through as they came, up to what the API takes, once, and stay calls.
 */
import Anthropic from "@anthropic-ai/sdk";
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, describe, test } from "node:test";
import { KEYS, MARK, MODEL, start } from "./harness.mjs";

const MIB = 1024 * 1024;

/** A call of about so many MiB. */
const call = (marker, mib, more = {}) => ({
  model: MODEL,
  max_tokens: 200,
  system: "é".repeat((mib * MIB) / 2),
  messages: [{ role: "user", content: `${MARK} [[${marker}]]` }],
  ...more,
});

// One after another: the fake's overload tells of its limits, for which such prompts are too large, and the pacer would see to that.
describe("a large call", async () => {
  const spillway = await start({
    calls: true,
    script: {
      check_context: false,
      // Two such prompts are more tokens than the fake lets through in a minute, and the pacer would see to that.
      defaults: {
        headers: Object.fromEntries(
          ["tokens", "input-tokens", "output-tokens"].map((kind) => [`anthropic-ratelimit-${kind}-limit`, null]),
        ),
      },
      rules: [
        { when: { marker: "[[overloaded]]" }, then: { status: 529 } },
        { when: { marker: "[[broken]]" }, then: { tokens: 60, cut: { after_deltas: 5, how: "error" } } },
      ],
    },
  });
  after(() => spillway.stop());
  const claude = new Anthropic({ baseURL: spillway.url, apiKey: KEYS.app, maxRetries: 0 });
  const calls = (marker) => spillway.calls({ marker });
  const failed = (promise) =>
    promise.then(
      () => assert.fail("it was answered"),
      (error) => error,
    );

  async function post(body, headers = {}) {
    const own = { "content-type": "application/json", "x-api-key": KEYS.app };
    const url = `${spillway.url}/v1/messages`;
    const response = await fetch(url, { method: "POST", headers: { ...own, ...headers }, body, duplex: "half" });
    return { status: response.status, headers: response.headers, text: await response.text() };
  }

  const digest = (body) => createHash("sha256").update(body).digest("hex");

  test("is answered, streaming or not, from the body that came, to the byte", async () => {
    for (const [marker, stream] of Object.entries({ whole: false, flowing: true })) {
      const body = JSON.stringify(call(marker, 9, { stream }));
      const { status, headers, text } = await post(body);
      assert.equal(status, 200, text);
      assert.ok(text.includes(stream ? "message_stop" : "end_turn"));
      assert.deepEqual(
        ["spillway-handoff", "spillway-model-used", "spillway-attempts", "spillway-job"].map((name) =>
          headers.get(name),
        ),
        ["never", MODEL, "1", null],
      );
      const [{ body_bytes, body_sha256, headers: sent }] = calls(marker);
      assert.deepEqual([body_bytes, body_sha256], [Buffer.byteLength(body), digest(body)]);
      assert.equal(sent["content-length"], String(body_bytes));
    }
  });

  test("may have what the API takes, several at once", async () => {
    const markers = ["a", "b", "c", "d"].map((name) => `largest-${name}`);
    await Promise.all(markers.map((marker) => claude.messages.create(call(marker, 31))));
    for (const marker of markers) assert.equal(calls(marker).length, 1);
  });

  test("without a length is passed on, too, and so is one whose model is at its end", async () => {
    const late = ({ model, ...rest }) => JSON.stringify({ ...rest, model });
    for (const [marker, write] of Object.entries({ pieces: JSON.stringify, late })) {
      const body = Buffer.from(write(call(marker, 9)));
      const source = new ReadableStream({
        start(controller) {
          for (let at = 0; at < body.length; at += MIB) controller.enqueue(body.subarray(at, at + MIB));
          controller.close();
        },
      });
      const { status, headers, text } = await post(source);
      assert.equal(status, 200, text);
      assert.equal(headers.get("spillway-handoff"), "never");
      assert.equal(calls(marker)[0].body_sha256, digest(body));
    }
  });

  test("that breaks off has Anthropic's error, and nothing is kept", async () => {
    const error = await failed(claude.messages.stream(call("broken", 9)).finalMessage());
    assert.equal(error.type, "overloaded_error");
    assert.equal(error.error.spillway_job, undefined);
    assert.equal(calls("broken").length, 1);
  });

  test("that is overloaded has the error, after one call and without a job, and its SDK may retry", async () => {
    const error = await failed(claude.messages.create(call("overloaded", 9)));
    assert.equal(error.status, 529);
    assert.equal(error.headers.get("x-should-retry"), "true");
    assert.equal(error.headers.get("spillway-job"), null);
    assert.equal(calls("overloaded").length, 1);
  });

  test("is not made while the gate of its model is shut", async () => {
    const shut = "claude-opus-5-5";
    const until = new Date(Date.now() + 60_000).toISOString();
    const override = { method: "PUT", as: "operator", body: { state: "open", until, note: "a test" } };
    assert.equal((await spillway.request(`/v1/gates/${shut}/override`, override)).status, 200);
    const error = await failed(claude.messages.create(call("shut", 9, { model: shut })));
    assert.equal(error.status, 529);
    assert.deepEqual(calls("shut"), []);
  });

  test("of more than the API takes is refused, and nothing is called", async () => {
    const error = await failed(claude.messages.create(call("huge", 33)));
    assert.equal(error.status, 413);
    assert.equal(error.error.error.type, "request_too_large");
    assert.deepEqual(calls("huge"), []);
  });

  test("can have its tokens counted", async () => {
    const { max_tokens: _, ...counted } = call("count", 9);
    assert.ok((await claude.messages.countTokens(counted)).input_tokens > 1_000_000);
  });
});
