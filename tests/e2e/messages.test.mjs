/** The synchronous path, by the official SDK as it comes from npm: its user notices nothing but that overload is gone. */
import Anthropic from "@anthropic-ai/sdk";
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { envelope, KEYS, MARK, MODEL, start } from "./harness.mjs";
import { call, sdk, statuses } from "./official-sdk.mjs";

const QUICK = { delay_ms: 20, chunk_delay_ms: 1 };

describe("a healthy call", { concurrency: true }, async () => {
  const spillway = await start({ calls: true, script: { defaults: QUICK } });
  after(() => spillway.stop());
  const claude = sdk(spillway);
  const direct = sdk({ url: spillway.fake.url }, { apiKey: "key-of-anthropic" });

  test("messages.create is the upstream's own answer", async () => {
    const [ours, theirs] = await Promise.all([claude, direct].map((it) => it.messages.create(call("[[plain]]"))));
    assert.deepEqual(ours.content, theirs.content);
    assert.equal(ours.model, MODEL);
  });

  test("raw responses have the upstream's request id and ours beside it", async () => {
    const { data, response } = await claude.messages.create(call("[[raw]]")).withResponse();
    assert.equal(data.type, "message");
    assert.match(response.headers.get("request-id"), /^req_/);
    assert.equal(response.headers.get("spillway-model-used"), MODEL);
    assert.equal(response.headers.get("spillway-attempts"), "1");
    assert.equal(response.headers.get("spillway-job"), null);
  });

  test("a stream's bytes are the upstream's", async () => {
    const body = JSON.stringify(call("[[bytes]]", { stream: true }));
    const ask = async (url, key) => {
      const headers = { "content-type": "application/json", "anthropic-version": "2023-06-01", "x-api-key": key };
      const response = await fetch(`${url}/v1/messages`, { method: "POST", headers, body });
      return [response.headers.get("content-type"), await response.text()];
    };
    assert.deepEqual(await ask(spillway.url, KEYS.app), await ask(spillway.fake.url, "key-of-anthropic"));
  });

  test("the stream helper, tool use and thinking", async () => {
    const tools = [
      { name: "weather", description: "w", input_schema: { type: "object", properties: { city: { type: "string" } } } },
    ];
    const asked = call("[[tools]]", { max_tokens: 2000, tools, thinking: { type: "adaptive" } });
    const message = await claude.messages.stream(asked).finalMessage();
    assert.equal(message.stop_reason, "tool_use");
    assert.ok(message.content.some(({ type }) => type === "thinking"));
    assert.equal(message.content.at(-1).name, "weather");
  });

  test("a bad request is the upstream's own error, as its own class, after one call", async () => {
    const refused = claude.messages.create(call("[[bad]]", { max_tokens: 0 }));
    await assert.rejects(refused, (error) => {
      assert.ok(error instanceof Anthropic.BadRequestError);
      assert.match(error.requestID, /^req_/);
      return true;
    });
  });

  test("count_tokens and models are passed through", async () => {
    const { max_tokens: _, ...counted } = call("[[count]]");
    const ours = await claude.messages.countTokens(counted);
    assert.deepEqual(ours, await direct.messages.countTokens(counted));
    const models = await claude.models.list();
    assert.ok(models.data.some(({ id }) => id === MODEL));
    assert.equal((await claude.models.retrieve(MODEL)).id, MODEL);
  });

  test("without a key, and with a wrong one, nothing is called", async () => {
    const stranger = sdk(spillway, { apiKey: "nobody" });
    await assert.rejects(stranger.messages.create(call("[[stranger]]")), Anthropic.AuthenticationError);
    assert.deepEqual(spillway.calls({ marker: "stranger" }), []);
  });
});

describe("overload before anything has come", { concurrency: true }, async () => {
  const OVERLOADED_ONCE = (marker, more) => ({
    when: { marker: `[[${marker}]]`, prompt_call: 1 },
    then: { status: 529, ...more },
  });
  const rules = [
    OVERLOADED_ONCE("once"),
    ...[1, 2].map((prompt_call) => ({ when: { marker: "[[twice]]", prompt_call }, then: { status: 529 } })),
    { when: { marker: "[[long]]", prompt_call: "1-2" }, then: { status: 529 } },
    { when: { marker: "[[leaves", prompt_call: "1-2" }, then: { status: 529 } },
    { when: { marker: "[[stays", prompt_call: "1-4" }, then: { status: 529 } },
    { when: { marker: "[[never]]" }, then: { status: 529 } },
    { when: { marker: "[[other]]" }, then: { status: 529 } },
    { when: { marker: "[[keyed]]" }, then: { status: 529 } },
    ...[1, 2].map((prompt_call) => ({ when: { marker: "[[receipt]]", prompt_call }, then: { status: 529 } })),
    ...[1, 2].map((prompt_call) => ({ when: { marker: "[[streamed]]", prompt_call }, then: { status: 529 } })),
  ];
  const spillway = await start({
    calls: true,
    script: { defaults: QUICK, rules },
    policy: { breaker: { consecutive_hard: 500, minimum_calls: 500, consecutive_failures: 500 } },
  });
  after(() => spillway.stop());
  const claude = sdk(spillway);

  test("is tried once more after 1.5 to 2.5 s, and the caller has its answer", async () => {
    const { data, response } = await claude.messages.create(call("[[once]]")).withResponse();
    assert.equal(data.type, "message");
    assert.equal(response.headers.get("spillway-attempts"), "2");
    const [first, second] = spillway.calls({ marker: "once" });
    assert.deepEqual(statuses(spillway, "once"), [529, 200]);
    const waited = second.started_at - first.started_at;
    assert.ok(waited >= 1450 && waited < 10_000, `${waited} ms`);
  });

  test("twice: it becomes a job, and the caller who waits has the job's answer", async () => {
    const { data, response } = await claude.messages
      .create(call("[[twice]]"), { headers: { "spillway-max-wait": "30" } })
      .withResponse();
    assert.equal(data.type, "message");
    assert.ok(data.content[0].text.includes(MARK));
    assert.deepEqual(statuses(spillway, "twice"), [529, 529, 200]);
    const { body } = await spillway.job(response.headers.get("spillway-job"));
    assert.equal(body.status, "done");
  });

  test("twice, streaming: the job's answer comes as a stream", async () => {
    const stream = claude.messages.stream(call("[[streamed]]"), { headers: { "spillway-max-wait": "30" } });
    const message = await stream.finalMessage();
    assert.ok(message.content[0].text.includes(MARK));
    assert.equal(message.stop_reason, "end_turn");
    assert.deepEqual(statuses(spillway, "streamed"), [529, 529, 200]);
  });

  test("patience over: the SDK's own overloaded error, which it does not retry, and the job goes on", async () => {
    // Who else waits here is medium: only this job does not come to its turn before the patience is over.
    await spillway.fault({ binding: "queue", key: "QUEUE_LOW", how: "lose" });
    const headers = { "spillway-max-wait": "10", "spillway-priority": "low" };
    const error = await claude.messages.create(call("[[long]]"), { headers }).then(
      () => assert.fail(),
      (error) => error,
    );
    assert.deepEqual([error.status, error.error.error.type], [529, "overloaded_error"]);
    assert.match(error.error.error.message, /saved your draft/);
    assert.equal(error.headers.get("x-should-retry"), "false");
    assert.equal(error.headers.get("spillway-attempts"), "2");
    assert.deepEqual(statuses(spillway, "long"), [529, 529], "no second round");
    const job = error.headers.get("spillway-job");
    assert.equal((await spillway.job(job)).body.status, "received");
    await spillway.fault();
    await spillway.deliver("low", envelope(job));
    assert.equal((await spillway.job(job)).body.status, "done");
    assert.deepEqual(statuses(spillway, "long"), [529, 529, 200]);
  });

  const FALLBACK = "claude-haiku-5-5";
  for (const [n, [kind, fallback, leaves]] of [
    ["tagging", undefined, true],
    ["tagging", "allow", true],
    ["default", "allow", true],
    ["tagging", "never", false],
    ["default", undefined, false],
  ].entries()) {
    const header = fallback ? `spillway-fallback: ${fallback}` : "no word of the caller's";
    test(`kind ${kind}, ${header}: ${leaves ? "the smaller model answers" : "no call of the smaller model, nor by the job"}`, async () => {
      // Of its own: after five overloads in a row a model is left at once.
      const model = `claude-of-fallback-${n}`;
      const marker = `${leaves ? "leaves" : "stays"}-${n}`;
      const headers = { "spillway-max-wait": "100", "spillway-kind": kind };
      if (fallback) headers["spillway-fallback"] = fallback;
      const asked = { ...call(`[[${marker}]]`), model };
      const { data, response } = await claude.messages.create(asked, { headers, timeout: 110_000 }).withResponse();
      const answeredBy = leaves ? FALLBACK : model;
      assert.deepEqual([data.model, response.headers.get("spillway-model-used")], [answeredBy, answeredBy]);
      const called = spillway.calls({ marker }).map(({ model }) => model);
      assert.deepEqual(called, [...Array(leaves ? 2 : 4).fill(model), answeredBy]);
    });
  }

  test("a key that stands for another call is a conflict, and nobody gets the other one's answer", async () => {
    const auto = { "spillway-handoff": "auto", "idempotency-key": "one" };
    await claude.messages.create(call("[[keyed]]"), { headers: auto }).asResponse();
    const wait = { "spillway-max-wait": "30", "idempotency-key": "one" };
    const other = sdk(spillway, { maxRetries: 0 }).messages.create(call("[[other]]"), { headers: wait });
    await assert.rejects(other, Anthropic.ConflictError);
    assert.deepEqual(statuses(spillway, "other"), [], "nothing is called for it");
  });

  test("never: the 529 is passed on after one retry, there is no job, and the SDK does not retry either", async () => {
    const headers = { "spillway-handoff": "never", "spillway-max-wait": "60" };
    const error = await claude.messages.create(call("[[never]]"), { headers }).then(
      () => assert.fail(),
      (error) => error,
    );
    assert.equal(error.status, 529);
    assert.equal(error.headers.get("spillway-job"), null);
    assert.deepEqual(statuses(spillway, "never"), [529, 529]);
  });

  test("auto: the receipt at once", async () => {
    const response = await claude.messages
      .create(call("[[receipt]]"), { headers: { "spillway-handoff": "auto" } })
      .asResponse();
    assert.equal(response.status, 202);
    const { id } = await response.json();
    const { status } = await spillway.untilDone(id);
    assert.equal(status, "done");
    assert.deepEqual(statuses(spillway, "receipt"), [529, 529, 200]);
  });
});

describe("rate limits", { concurrency: true }, async () => {
  const limited = (marker, seconds) => ({
    when: { marker: `[[${marker}]]`, prompt_call: 1 },
    then: { status: 429, retry_after: seconds },
  });
  const spillway = await start({
    calls: true,
    script: {
      defaults: QUICK,
      rules: [limited("short", 1), limited("long", 5), limited("impatient", 9), limited("passed", 7)],
    },
  });
  after(() => spillway.stop());
  // Each on a model of its own: a Retry-After holds the gate for everyone.
  const models = { short: MODEL, long: "claude-opus-5-5", impatient: "claude-haiku-5-5", passed: "claude-sonnet-4-6" };
  const ask = (marker, headers = {}) =>
    sdk(spillway).messages.create({ ...call(`[[${marker}]]`), model: models[marker] }, { headers });

  test("a Retry-After of up to two seconds is waited out", async () => {
    assert.equal((await ask("short")).type, "message");
    const [first, second] = spillway.calls({ marker: "short" });
    assert.ok(second.started_at - first.ended_at >= 1000);
  });

  test("a longer one is the queue's, and who waits for long enough has the answer", async () => {
    assert.equal((await ask("long", { "spillway-max-wait": "30" })).type, "message");
    const [first, second] = spillway.calls({ marker: "long" });
    assert.ok(second.started_at - first.ended_at >= 5000);
  });

  test("when patience ends the error is the 429, and the SDK does not retry it", async () => {
    const error = await ask("impatient", { "spillway-max-wait": "2" }).then(
      () => assert.fail(),
      (error) => error,
    );
    assert.ok(error instanceof Anthropic.RateLimitError);
    assert.ok(error.headers.get("spillway-job"));
    assert.deepEqual(statuses(spillway, "impatient"), [429]);
  });

  test("never: the 429 is passed on with its Retry-After", async () => {
    const claude = sdk(spillway, { maxRetries: 0 });
    const asked = claude.messages.create(
      { ...call("[[passed]]"), model: models.passed },
      { headers: { "spillway-handoff": "never" } },
    );
    const error = await asked.then(
      () => assert.fail(),
      (error) => error,
    );
    assert.ok(error instanceof Anthropic.RateLimitError);
    assert.equal(error.headers.get("retry-after"), "7");
  });
});

describe("the gate", async () => {
  const rules = [{ when: { model: MODEL }, then: { status: 529 } }];
  const breaker = { consecutive_failures: 1, consecutive_seconds: 0, consecutive_hard: 1, open_seconds: 3 };
  const spillway = await start({ calls: true, script: { defaults: QUICK, rules }, policy: { breaker } });
  after(() => spillway.stop());

  test("while it is open nobody calls: the fallback, or the error, and then a probe finds out that it is over", async () => {
    const claude = sdk(spillway);
    const never = { headers: { "spillway-handoff": "never" } };
    const refused = (text) =>
      claude.messages.create(call(text), never).then(
        () => assert.fail(),
        (error) => error,
      );
    assert.equal((await refused("[[first]]")).status, 529);
    const before = spillway.calls({ model: MODEL }).length;
    assert.equal((await refused("[[second]]")).status, 529);
    assert.equal(spillway.calls({ model: MODEL }).length, before, "no call");
    const { data, response } = await claude.messages
      .create(call("[[elsewhere]]"), { headers: { ...never.headers, "spillway-fallback": "allow" } })
      .withResponse();
    assert.equal(data.model, "claude-haiku-5-5");
    assert.equal(response.headers.get("spillway-model-used"), "claude-haiku-5-5");
    assert.equal(spillway.calls({ model: MODEL }).length, before, "no call");
    await spillway.fake.setScript({ defaults: { ...QUICK, tokens: 200, tokens_per_chunk: 1, chunk_delay_ms: 20 } });
    const probe = await (async () => {
      for (;;) {
        const stream = claude.messages.stream(call("[[again]]"), never);
        const begun = new Promise((resolve) => stream.once("text", resolve));
        if (await Promise.race([begun, stream.done().catch(() => null)])) return stream;
        await new Promise((resolve) => setTimeout(resolve, 500));
      }
    })();
    await spillway.untilLog(({ event, to }) => event === "gate_transition" && to === "closed");
    const [call_of_probe, ...others] = spillway.calls({ model: MODEL }).slice(before);
    assert.deepEqual([call_of_probe.outcome, others], [null, []], "it is closed by the first content, not by the end");
    assert.equal((await probe.finalMessage()).model, MODEL);
  });
});

describe("a stream that breaks after content", { concurrency: true }, async () => {
  const spillway = await start({
    calls: true,
    script: {
      rules: [
        {
          when: { marker: "[[error]]" },
          then: { tokens: 60, chunk_delay_ms: 1, cut: { after_deltas: 5, how: "error" } },
        },
        {
          when: { marker: "[[reset]]" },
          then: { tokens: 60, chunk_delay_ms: 1, cut: { after_deltas: 5, how: "reset" } },
        },
      ],
    },
  });
  after(() => spillway.stop());

  for (const how of ["error", "reset"]) {
    test(`${how}: what came is kept, the error is said as the API would, and nothing is called again`, async () => {
      const text = [];
      const stream = sdk(spillway).messages.stream(call(`[[${how}]]`));
      stream.on("text", (piece) => text.push(piece));
      await assert.rejects(stream.finalMessage(), Anthropic.APIError);
      assert.ok(text.join("").length > 0);
      assert.equal(spillway.calls({ marker: how }).length, 1);
    });
  }
});

describe("a caller who goes away", async () => {
  const spillway = await start({ calls: true, script: { rules: [{ then: { tokens: 400, chunk_delay_ms: 50 } }] } });
  after(() => spillway.stop());

  test("takes its call with it", async () => {
    const stream = sdk(spillway).messages.stream(call("[[gone]]", { max_tokens: 4000 }));
    await new Promise((resolve) => stream.once("text", resolve));
    stream.abort();
    await assert.rejects(stream.finalMessage(), Anthropic.APIUserAbortError);
    await spillway.untilCalls((calls) => calls.length === 1 && calls[0].outcome?.client_closed);
  });
});

describe("a history with tools", { concurrency: true }, async () => {
  const limited = { when: { marker: "[[mended-job]]", prompt_call: 1 }, then: { status: 429, retry_after: 30 } };
  const spillway = await start({ calls: true, script: { defaults: QUICK, rules: [limited] } });
  after(() => spillway.stop());
  const use = (id) => ({ type: "tool_use", id, name: "look", input: {} });
  const result = (id, content = id) => ({ type: "tool_result", tool_use_id: id, content });
  const tools = [{ name: "look", description: "d", input_schema: { type: "object" } }];
  const ask = (marker, ...turns) => {
    const roles = ["user", "assistant"];
    const messages = turns.map((content, turn) => ({ role: roles[turn % 2], content }));
    messages[0].content = `${MARK} [[${marker}]]`;
    // Each on a model of its own: a rate limit holds everyone of its model.
    const asked = { model: `claude-of-${marker}`, max_tokens: 100, tools, messages };
    return sdk(spillway)
      .messages.create(asked, { headers: { "spillway-max-wait": "1" } })
      .withResponse();
  };

  test("that an interrupted app has left broken is mended, and the answer says how", async () => {
    const text = { type: "text", text: "go on" };
    const { data, response } = await ask("mended", "", [use("t1"), use("t2")], [text, result("t1")]);
    assert.equal(data.type, "message");
    const mended = response.headers.get("spillway-mended");
    assert.match(mended, /reordered messages\.2/);
    assert.match(mended, /completed messages\.1\.content\.1/);
    assert.deepEqual(statuses(spillway, "mended"), [200]);
  });

  test("that was mended is said to have been, too, where there is no answer yet but a job", async () => {
    const error = await ask("mended-job", "", [use("t1")], [{ type: "text", text: "go on" }]).then(
      () => assert.fail(),
      (error) => error,
    );
    assert.equal(error.status, 429);
    assert.match(error.headers.get("spillway-job"), /^job_/);
    assert.equal(error.headers.get("spillway-mended"), "completed messages.1.content.0");
  });

  test("that cannot be mended is refused with its place, and nothing is called", async () => {
    const error = await ask("broken", "", [use("t1")], [result("t1"), result("t9")]).then(
      () => assert.fail(),
      (error) => error,
    );
    assert.ok(error instanceof Anthropic.BadRequestError);
    assert.match(error.message, /messages\.2\.content\.1/);
    assert.deepEqual(statuses(spillway, "broken"), []);
  });
});

describe("an idempotency key", { concurrency: true }, async () => {
  const spillway = await start({
    calls: true,
    script: { rules: [{ when: { marker: "[[keyed", prompt_call: 1 }, then: { status: 429, retry_after: 8 } }] },
  });
  after(() => spillway.stop());
  const keyed = (key, more = {}) => ({ headers: { "idempotency-key": key, "spillway-max-wait": "1", ...more } });

  test("whose job is there is answered by it, running or done, and calls nobody", async () => {
    const claude = sdk(spillway);
    const first = await claude.messages.create(call("[[keyed-again]]"), keyed("one")).catch((error) => error);
    assert.equal(first.status, 429);
    const job = first.headers.get("spillway-job");
    const second = await claude.messages.create(call("[[keyed-again]]"), keyed("one")).catch((error) => error);
    assert.equal(second.headers.get("spillway-job"), job, "it waits for the same job");
    await spillway.untilDone(job);
    for (const handoff of ["wait", "never"]) {
      const options = keyed("one", { "spillway-handoff": handoff });
      const { data, response } = await claude.messages.create(call("[[keyed-again]]"), options).withResponse();
      assert.equal(data.type, "message");
      assert.equal(response.headers.get("spillway-job"), job);
    }
    assert.deepEqual(statuses(spillway, "keyed-again"), [429, 200]);
    const other = await claude.messages.create(call("[[other]]"), keyed("one")).catch((error) => error);
    assert.equal(other.status, 409);
  });

  test("a receipt names its job and the calls that were made", async () => {
    const options = keyed("two", { "spillway-handoff": "auto" });
    const { data, response } = await sdk(spillway).messages.create(call("[[keyed-auto]]"), options).withResponse();
    assert.equal(response.status, 202);
    assert.deepEqual([response.headers.get("spillway-job"), response.headers.get("spillway-attempts")], [data.id, "1"]);
    await spillway.untilDone(data.id);
  });
});

describe("a stream that stops before content", { concurrency: true }, async () => {
  const cut = (how) => ({ cut: { after_events: 1, how } });
  const spillway = await start({
    calls: true,
    script: {
      rules: [
        { when: { marker: "[[stops-reset]]" }, then: cut("reset") },
        { when: { marker: "[[stops-end]]" }, then: cut("end") },
      ],
    },
  });
  after(() => spillway.stop());

  test("is an error under never, and no empty answer", async () => {
    for (const marker of ["stops-reset", "stops-end"]) {
      const options = { headers: { "spillway-handoff": "never" } };
      const stream = sdk(spillway).messages.stream(call(`[[${marker}]]`), options);
      const error = await stream.finalMessage().catch((error) => error);
      assert.equal(error.status, 503, `${marker}: ${error}`);
      assert.equal(spillway.calls({ marker }).length, 2, marker);
    }
  });
});
