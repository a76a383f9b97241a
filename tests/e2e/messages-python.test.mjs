/**
 * The synchronous path by the official Python SDK, unmodified, from PyPI into an environment of its own. Where there is no
 * Python to make one with, these tests are skipped and say so.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { KEYS, MARK, start } from "./harness.mjs";
import { environment } from "./python.mjs";

const SDK = "anthropic==2.14.0";
const { python, missing } = environment(SDK, "anthropic");
const script = fileURLToPath(new URL("./sdk.py", import.meta.url));

describe("the Python SDK", { concurrency: true, skip: missing ?? false }, async () => {
  const twice = (marker) =>
    [1, 2].map((prompt_call) => ({ when: { marker: `[[${marker}]]`, prompt_call }, then: { status: 529 } }));
  const rules = [
    { when: { marker: "[[once]]", prompt_call: 1 }, then: { status: 529 } },
    ...twice("twice"),
    ...twice("streamed"),
    { when: { marker: "[[never]]" }, then: { status: 529 } },
    { when: { marker: "[[long]]" }, then: { status: 529 } },
    { when: { marker: "[[refused]]" }, then: { status: 400 } },
    { when: { marker: "[[leaves]]" }, then: { tokens: 800, chunk_delay_ms: 50 } },
    { when: { marker: "[[broken]]" }, then: { tokens: 60, cut: { after_deltas: 5, how: "error" } } },
  ];
  const calm = { consecutive_hard: 500, minimum_calls: 500, consecutive_failures: 500 };
  const spillway = missing ? null : await start({ calls: true, script: { rules }, policy: { breaker: calm } });
  after(() => spillway?.stop());

  async function app(what, marker, headers = {}) {
    const args = [script, spillway.url, KEYS.app, what, `${MARK} [[${marker}]]`, JSON.stringify(headers)];
    const { stdout } = await promisify(execFile)(python, args, { timeout: 60_000 });
    const statuses = spillway.calls({ marker }).map(({ outcome }) => outcome.status);
    return { ...JSON.parse(stdout), statuses };
  }

  test("a healthy call, a healthy stream, and a count", async () => {
    const [created, streamed, counted] = await Promise.all([
      app("create", "healthy"),
      app("stream", "flowing"),
      app("count", "counted"),
    ]);
    assert.deepEqual([created.type, created.stop_reason, created.statuses], ["message", "end_turn", [200]]);
    assert.equal(created.headers["spillway-attempts"], "1");
    assert.equal(streamed.joined, streamed.text);
    assert.ok(streamed.text.includes(MARK));
    assert.ok(counted.input_tokens > 0);
  });

  test("an overload is tried once more", async () => {
    assert.deepEqual((await app("create", "once")).statuses, [529, 200]);
  });

  test("two overloads are handed over, and the answer comes all the same", async () => {
    const wait = { "spillway-max-wait": "30" };
    const [created, streamed] = await Promise.all([app("create", "twice", wait), app("stream", "streamed", wait)]);
    for (const it of [created, streamed]) {
      assert.deepEqual([it.type, it.statuses], ["message", [529, 529, 200]]);
      assert.ok(it.text.includes(MARK));
    }
    assert.ok(created.headers["spillway-job"]);
    assert.equal(streamed.joined, streamed.text);
  });

  test("an answer that breaks off is an error that names the job in which its beginning is kept", async () => {
    const broken = await app("stream", "broken");
    assert.deepEqual([broken.body.error.type, broken.statuses], ["overloaded_error", [200]]);
    const { body } = await spillway.job(broken.body.spillway_job);
    assert.deepEqual([body.status, body.reason], ["failed", "interrupted"]);
    assert.ok(body.partial_text.length > 0);
  });

  test("tools, thinking and betas go through, and raw responses have our headers", async () => {
    const { stop_reason, blocks, headers, statuses } = await app("tools", "tools");
    assert.deepEqual([stop_reason, blocks.at(-1), statuses], ["tool_use", "tool_use", [200]]);
    assert.ok(blocks.includes("thinking"), `${blocks}`);
    assert.equal(headers["spillway-attempts"], "1");
    assert.equal(spillway.calls({ marker: "tools" })[0].headers["anthropic-beta"], "context-1m-2025-08-07");
  });

  test("who leaves in the middle of a stream takes his call with him", async () => {
    assert.ok((await app("leave", "leaves")).first);
    await spillway.untilCalls(() => spillway.calls({ marker: "leaves" })[0]?.outcome?.client_closed);
  });

  test("errors are the SDK's own classes, and its retries do not multiply the calls", async () => {
    const never = await app("create", "never", { "spillway-handoff": "never" });
    assert.deepEqual(
      [never.error, never.status, never.job, never.statuses],
      ["OverloadedError", 529, null, [529, 529]],
    );
    const long = await app("create", "long", { "spillway-max-wait": "3" });
    assert.equal(long.error, "OverloadedError");
    assert.match(long.body.error.message, /saved your draft/);
    assert.ok(long.job);
    await spillway.request(`/v1/jobs/${long.job}`, { method: "DELETE" });
    const refused = await app("create", "refused");
    assert.deepEqual([refused.error, refused.statuses], ["BadRequestError", [400]]);
    assert.match(refused.request_id, /^req_/);
  });
});
