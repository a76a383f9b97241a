/**
 * What is left of a call whose answer breaks off, and who has seen an error: a part of an answer is kept as a job that is over
 * from its beginning, its name is told in the last event, and the log says how each call ended.
 */
import Anthropic from "@anthropic-ai/sdk";
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { after, describe, test } from "node:test";
import { eventually, KEYS, MODEL, start } from "./harness.mjs";
import { call, sdk, statuses } from "./official-sdk.mjs";

const failed = (promise) =>
  promise.then(
    () => assert.fail("it was answered"),
    (error) => error,
  );

/** What the user had seen, and the error at the end. */
async function readToItsEnd(stream) {
  let text = "";
  stream.on("text", (piece) => (text += piece));
  const error = await failed(stream.finalMessage());
  return { text, error, job: error.error?.spillway_job };
}

const calm = { consecutive_hard: 500, minimum_calls: 500, consecutive_failures: 500 };
const broken = (marker, how = "error", more = {}) => ({
  when: { marker: `[[${marker}]]`, prompt_call: 1 },
  then: { tokens: 60, chunk_delay_ms: 2, cut: { after_deltas: 5, how, ...more } },
});

describe("a whole answer, which comes in one piece or not at all", { concurrency: true }, async () => {
  const cut = (how) => ({ tokens: 60, cut: { after_deltas: 5, how } });
  const spillway = await start({
    calls: true,
    script: {
      rules: [
        { when: { marker: "[[whole-reset]]", prompt_call: 1 }, then: cut("reset") },
        { when: { marker: "[[whole-end]]", prompt_call: 1 }, then: cut("end") },
        { when: { marker: "[[whole-never]]" }, then: cut("end") },
        { when: { marker: "[[whole-slow]]" }, then: { delay_ms: 2500 } },
      ],
    },
    policy: { breaker: calm, call: { headers_seconds: 1 } },
  });
  after(() => spillway.stop());

  test("that broke off is asked for once more before anybody has seen it, and SDKs do not multiply that", async () => {
    for (const marker of ["whole-reset", "whole-end"]) {
      const message = await sdk(spillway).messages.create(call(`[[${marker}]]`));
      assert.equal(message.stop_reason, "end_turn");
      assert.equal(spillway.calls({ marker }).length, 2, marker);
    }
    const never = { headers: { "spillway-handoff": "never" } };
    const error = await failed(sdk(spillway).messages.create(call("[[whole-never]]"), never));
    assert.ok(error.status >= 500, `${error.status}`);
    assert.equal(spillway.calls({ marker: "whole-never" }).length, 2);
  });

  test("may take as long as a call may: its headers come with its end", async () => {
    const message = await sdk(spillway).messages.create(call("[[whole-slow]]"));
    assert.equal(message.type, "message");
    assert.equal(spillway.calls({ marker: "whole-slow" }).length, 1);
  });
});

describe("a part of an answer", { concurrency: true }, async () => {
  const spillway = await start({
    calls: true,
    script: {
      rules: [
        broken("error"),
        broken("refused", "error", { error: { type: "invalid_request_error", message: "no" } }),
        broken("cut", "reset"),
        broken("keyed"),
        broken("again"),
        broken("erased"),
        broken("foreign"),
        { when: { marker: "[[left]]" }, then: { tokens: 400, chunk_delay_ms: 50 } },
      ],
    },
    policy: { breaker: calm },
  });
  after(() => spillway.stop());

  test("is kept: the error names the job, which has the text that came and is never run", async () => {
    const jobs = [];
    for (const [marker, type] of Object.entries({ error: "overloaded_error", refused: "invalid_request_error" })) {
      const { text, error, job } = await readToItsEnd(sdk(spillway).messages.stream(call(`[[${marker}]]`)));
      assert.ok(text.length > 0);
      assert.equal(error.type, type);
      jobs.push(job);
      const { body } = await spillway.job(job);
      assert.deepEqual(
        [body.status, body.reason, body.partial_text, body.text, body.calls],
        ["failed", "interrupted", text, undefined, 1],
      );
      assert.equal(body.error.type, type);
      assert.equal(body.history[0].request_id, spillway.calls({ marker })[0].request_id);
    }
    await sleep(1500);
    assert.equal(spillway.calls({ marker: "error" }).length, 1, "the queue leaves it alone");
    const claims = jobs.map((job) => spillway.logs("job_claimed").filter((line) => line.job === job).length);
    assert.deepEqual(claims, [0, 0]);
  });

  test("is in KV for whoever reads it later, and gone when it is erased", async () => {
    const { job } = await readToItsEnd(sdk(spillway).messages.stream(call("[[erased]]")));
    await eventually(() => spillway.stored(`job:${job}`));
    assert.equal((await spillway.cancel(job)).status, 204);
    assert.equal((await spillway.job(job)).status, 404);
  });

  test("is the caller's own", async () => {
    const { job } = await readToItsEnd(sdk(spillway).messages.stream(call("[[foreign]]")));
    assert.equal((await spillway.job(job, { client: "web" })).status, 404);
  });

  test("can be regenerated: the same call, once, on its model", async () => {
    const { job } = await readToItsEnd(sdk(spillway).messages.stream(call("[[again]]", { system: "Be brief." })));
    const asked = () => spillway.request(`/v1/jobs/${job}/regenerate`, { method: "POST" });
    const [{ status, body: receipt }, second] = [await asked(), await asked()];
    assert.deepEqual([status, second.body.id], [202, receipt.id]);
    const done = await spillway.untilDone(receipt.id);
    assert.deepEqual([done.regenerates, done.model_used], [job, MODEL]);
    const bodies = spillway.calls({ marker: "again" }).map(({ body }) => JSON.parse(body));
    assert.equal(bodies.length, 2);
    assert.deepEqual(bodies[1], bodies[0]);
  });

  test("does not take the idempotency key: who sends the call again wants it answered", async () => {
    const key = { headers: { "idempotency-key": "draft-1" } };
    const { job } = await readToItsEnd(sdk(spillway).messages.stream(call("[[keyed]]"), key));
    assert.ok(job);
    const message = await sdk(spillway).messages.stream(call("[[keyed]]"), key).finalMessage();
    assert.equal(message.stop_reason, "end_turn");
    assert.equal((await spillway.job(job)).body.reason, "interrupted");
  });

  test("that a caller left before it broke is not kept", async () => {
    const stream = sdk(spillway).messages.stream(call("[[left]]", { max_tokens: 4000 }));
    await new Promise((resolve) => stream.once("text", resolve));
    stream.abort();
    await failed(stream.finalMessage());
    const line = await spillway.untilLog(({ event, ended }) => event === "sync_call" && ended === "abandoned");
    assert.deepEqual([line.job, line.exposed], [null, false]);
  });
});

describe("a part of an answer whose storage has trouble", async () => {
  const spillway = await start({
    calls: true,
    script: { rules: [broken("once"), broken("never"), broken("lost")] },
    policy: { breaker: calm },
  });
  after(() => spillway.stop());
  const fault = (more) => spillway.fault({ binding: "job", operation: "keep", ...more });

  test("is stored by another try, and its name told", async () => {
    await fault({ how: "refuse", times: 1 });
    const { text, job } = await readToItsEnd(sdk(spillway).messages.stream(call("[[once]]")));
    assert.equal((await spillway.job(job)).body.partial_text, text);
    await fault({ how: "lost_answer", times: 1 });
    const twice = await readToItsEnd(sdk(spillway).messages.stream(call("[[lost]]")));
    assert.equal((await spillway.job(twice.job)).body.partial_text, twice.text);
  });

  test("that cannot be stored has no name, and the error is Anthropic's own to the byte", async () => {
    await fault({ how: "hang" });
    const body = JSON.stringify(call("[[never]]", { stream: true }));
    const headers = { "content-type": "application/json", "x-api-key": KEYS.app };
    const began = Date.now();
    const text = await (await fetch(`${spillway.url}/v1/messages`, { method: "POST", headers, body })).text();
    assert.ok(Date.now() - began < 6000, "nobody waits for long");
    const error = JSON.parse(/event: error\ndata: (.*)\n\n$/.exec(text)[1]);
    assert.deepEqual(Object.keys(error), ["type", "error", "request_id"]);
    await spillway.fault([]);
  });
});

describe("exposure", { concurrency: true }, async () => {
  const twice = (marker) =>
    [1, 2].map((prompt_call) => ({ when: { marker: `[[${marker}]]`, prompt_call }, then: { status: 529 } }));
  const spillway = await start({
    calls: true,
    script: {
      rules: [
        { when: { marker: "[[passed]]" }, then: { status: 529 } },
        { when: { marker: "[[limited]]" }, then: { status: 429, retry_after: 9 } },
        { when: { marker: "[[bad]]" }, then: { status: 400 } },
        broken("broken"),
        ...twice("saved"),
        ...twice("lost"),
        { when: { marker: "[[lost]]" }, then: { status: 400 } },
      ],
    },
    policy: { breaker: calm },
  });
  after(() => spillway.stop());

  /** As README says. */
  const exposed = () =>
    spillway
      .logs()
      .filter(
        ({ event, exposed, handed_over, status }) =>
          (event === "sync_call" && exposed) || (event === "job_finished" && handed_over && status !== "done"),
      );

  test("is counted from the log: what a user saw as an error, and what was handed over and did not end done", async () => {
    const claude = sdk(spillway, { maxRetries: 0 });
    const never = { headers: { "spillway-handoff": "never" } };
    const wait = { headers: { "spillway-max-wait": "30" } };
    const auto = { headers: { "spillway-handoff": "auto" } };
    const limited = { ...call("[[limited]]"), model: "claude-opus-5-5" };
    await Promise.all([
      claude.messages.create(call("[[fine]]")),
      claude.messages.stream(call("[[flowing]]")).finalMessage(),
      claude.messages.create(call("[[saved]]"), wait),
      failed(claude.messages.create(call("[[passed]]"), never)),
      failed(claude.messages.create(limited, never)),
      failed(claude.messages.create(call("[[bad]]"))),
      failed(claude.messages.stream(call("[[broken]]")).finalMessage()),
      claude.messages
        .create(call("[[lost]]"), auto)
        .asResponse()
        .then(async (response) => spillway.untilStatus((await response.json()).id, "failed")),
    ]);
    assert.deepEqual(statuses(spillway, "lost"), [529, 529, 400]);
    const lines = spillway.logs("sync_call");
    const ends = lines.map(({ ended, cause, exposed }) => `${ended} ${cause} ${exposed}`).sort();
    assert.deepEqual(ends, [
      "answered null false",
      "answered null false",
      "handed_over overloaded false",
      "handed_over overloaded false",
      "interrupted overloaded true",
      "passed_on invalid_request false",
      "passed_on overloaded true",
      "passed_on rate_limited false",
    ]);
    assert.ok(lines.every(({ client, kind, priority }) => `${client} ${kind} ${priority}` === "app default medium"));
    assert.deepEqual(
      exposed()
        .map(({ event, ended, reason }) => `${event} ${ended ?? reason}`)
        .sort(),
      ["job_finished invalid_request", "sync_call interrupted", "sync_call passed_on"],
    );
  });
});
