/** What the operator's channel is told (A8), by a receiver that takes it, fails, hangs, or sends elsewhere. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { describe, test } from "node:test";
import { envelope, eventually, MODEL, start, startProcess, submission } from "./harness.mjs";

/** A receiver of Slack messages; `answer` decides what becomes of the n-th. */
async function receiver(answer = () => 200) {
  const got = [];
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const { text, ...others } = JSON.parse(Buffer.concat(chunks));
    assert.deepEqual([request.method, request.headers["content-type"], others], ["POST", "application/json", {}]);
    got.push({ at: Date.now(), path: request.url, text, first: text.split("\n")[0] });
    const status = answer(got.length, response);
    if (status) response.writeHead(status, status === 302 ? { location: "/elsewhere" } : {}).end("ok");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${server.address().port}/hook`;
  const until = (count) => eventually(async () => got.length >= count && got.slice(0, count));
  const stop = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return { url, got, until, stop };
}

const BREAKER = { consecutive_failures: 2, consecutive_seconds: 0, consecutive_hard: 2, open_seconds: 2 };
/** A breaker that never trips. */
const NEVER = { ...BREAKER, consecutive_failures: 500, consecutive_hard: 500, minimum_calls: 500 };
const DOWN = { rules: [{ when: { model: MODEL }, then: { status: 529 } }] };

async function deployment(t, hook, { script = DOWN, policy = {}, run = start } = {}) {
  const spillway = await run({
    vars: { SLACK_WEBHOOK_URL: hook.url },
    policy: { breaker: BREAKER, alerts: { quiet_seconds: 4 }, ...policy },
    script,
  });
  t.after(async () => {
    await spillway.stop();
    await hook.stop();
  });
  return spillway;
}

describe("alerts", { concurrency: true }, () => {
  test("tell of a gate that opens at once, with causes, what waits and where to look, and of its end", async (t) => {
    const hook = await receiver();
    const spillway = await deployment(t, hook);
    // None of them fails before all three are counted.
    await spillway.fault({ binding: "queue", how: "lose" });
    const jobs = await Promise.all([1, 2, 3].map((n) => spillway.accepted(submission(`[[job-${n}]]`))));
    await eventually(async () => {
      const { body } = await spillway.request("/v1/metrics?format=json", { as: "operator" });
      return body.unfinished.high === 3;
    });
    await spillway.fault();
    await spillway.deliver(
      "high",
      jobs.map((job) => envelope(job)),
    );
    const [opened] = await hook.until(1);
    assert.match(opened.first, new RegExp(`^Spillway: ${MODEL} does not answer: its gate is open`));
    assert.match(opened.text, /\d+ overloaded \(claude-sonnet-5-5\)/);
    assert.match(opened.text, /Since 20\d\d-\d\d-\d\dT[\d:.]+Z\./);
    assert.match(opened.text, /Jobs that are not over: 3 high; the oldest has been there for \d+ s\./);
    assert.match(opened.text, /https:\/\/status\.anthropic\.com/);
    assert.ok(opened.text.includes(`${spillway.url}/#watch`), "the page");
    assert.match(opened.text, /https:\/\/dash\.cloudflare\.com\//);
    await spillway.fake.setScript({ rules: [] });
    await Promise.all(jobs.map((job) => spillway.untilDone(job)));
    const [, closed] = await hook.until(2);
    assert.match(closed.first, /answers again: its gate is closed/);
    assert.ok(closed.at - opened.at >= 2_500, "no two within the quiet time");
  });

  test("of one subject come once in the quiet time, however often its gate is forced", async (t) => {
    const hook = await receiver();
    // All six orders come within it.
    const spillway = await deployment(t, hook, { script: {}, policy: { alerts: { quiet_seconds: 15 } } });
    const path = `/v1/gates/${MODEL}/override`;
    for (let n = 0; n < 6; n += 1) {
      const until = new Date(Date.now() + 60_000).toISOString();
      const body = { state: n % 2 ? "closed" : "open", until, note: `try ${n}` };
      assert.equal((await spillway.request(path, { method: "PUT", as: "operator", body })).status, 200);
    }
    const overrides = () => hook.got.filter(({ first }) => /has forced the gate/.test(first));
    await eventually(async () => overrides().length === 2);
    assert.match(overrides()[0].first, /operator has forced the gate open for \d+ s: try 0/);
    assert.match(overrides()[1].first, /closed for \d+ s: try 5 \(the last of 5 since\)/);
  });

  test("of a gate that flaps are one message in the quiet time, and it says how often", async (t) => {
    const hook = await receiver();
    const rules = [{ when: { prompt_call: "1-2" }, then: { status: 529 } }];
    const policy = { alerts: { quiet_seconds: 600 } };
    const spillway = await deployment(t, hook, { script: { rules }, policy, run: startProcess });
    const moves = async () => {
      const { events } = (await spillway.request("/v1/metrics?format=json", { as: "operator" })).body;
      return events.map(({ event: { from, to } }) => `${from} ${to}`);
    };
    // Each is refused twice, which opens the gate; and its probe is answered, which closes it.
    for (const flap of [1, 2, 3]) {
      await spillway.untilDone(await spillway.accepted(submission(`[[flap-${flap}]]`)));
      await eventually(async () => (await moves()).length === 3 * flap);
    }
    assert.deepEqual(await moves(), Array(3).fill(["closed open", "open half_open", "half_open closed"]).flat());
    const [opened] = await hook.until(1);
    assert.match(opened.first, /does not answer: its gate is open/);
    assert.equal(hook.got.length, 1);
    await spillway.fake.setScript({ rules: [] });
    // Alarms go by the real clock: the quiet time is over since it is another.
    await spillway.restart({ POLICY: JSON.stringify({ breaker: BREAKER, alerts: { quiet_seconds: 1 } }) });
    await spillway.untilDone(await spillway.accepted(submission("[[after]]")));
    const [, last] = await hook.until(2);
    assert.match(last.first, /answers again: its gate is closed.* \(the last of 5 since\)\.$/);
    await eventually(async () => (await spillway.gates())[MODEL].state === "closed");
    assert.equal(hook.got.length, 2);
  });

  test("tell of a queue that is paused and goes on, and of a drain", async (t) => {
    const hook = await receiver();
    const spillway = await deployment(t, hook, { script: {} });
    const order = (note) => ({ until: new Date(Date.now() + 60_000).toISOString(), note, author: "Ada" });
    for (const [method, path, body] of [
      ["PUT", "/v1/queues/low/pause", order("too much")],
      ["PUT", "/v1/drain", order("moving house")],
      ["DELETE", "/v1/queues/low/pause"],
    ])
      assert.equal((await spillway.request(path, { method, as: "operator", body })).status, 200);
    const [paused, drained, resumed] = (await hook.until(3)).map(({ first }) => first);
    assert.match(paused, /^Spillway: Ada has paused the jobs of priority low for \d+ s: too much/);
    assert.match(drained, /^Spillway: Ada has nothing new taken for \d+ s: moving house/);
    assert.match(resumed, /^Spillway: The jobs of priority low go on, before their pause was over/);
  });

  test("are sent again when the receiver fails, and are not sent after where it points to", async (t) => {
    for (const status of [500, 302]) {
      const hook = await receiver((n) => (n === 1 ? status : 200));
      const spillway = await deployment(t, hook);
      await spillway.accepted(submission("[[again]]"));
      const [first, second] = await hook.until(2);
      assert.deepEqual([second.first, second.path], [first.first, "/hook"], `${status}`);
      assert.ok(second.at - first.at >= 3_000, `${status}`);
    }
  });

  test("are not lost with the Worker that had the news", async (t) => {
    const hook = await receiver();
    const spillway = await deployment(t, hook, { run: startProcess });
    // The meter never hears of it, and the Worker is killed: the gate has kept it.
    await spillway.fault({ binding: "meter", operation: "hear", how: "hang" });
    await spillway.accepted(submission("[[killed]]"));
    await eventually(async () => (await spillway.struck())[0] > 0);
    await spillway.kill();
    assert.equal(hook.got.length, 0);
    await spillway.restart();
    const [opened] = await hook.until(1);
    assert.match(opened.first, /does not answer: its gate is open/);
  });

  test("are not made twice of one event, though the gate tells it again that does not know it was heard", async (t) => {
    const hook = await receiver();
    const spillway = await deployment(t, hook, { policy: { breaker: { ...BREAKER, open_seconds: 60 } } });
    await spillway.fault({ binding: "meter", operation: "hear", how: "lost_answer", times: 1 });
    await spillway.accepted(submission("[[again]]"));
    await hook.until(1);
    assert.deepEqual(await spillway.struck(), [1]);
    await spillway.fault({ binding: "meter", operation: "hear", how: "slow", ms: 0 });
    await eventually(async () => (await spillway.struck())[0] === 1);
    const { body } = await spillway.request("/v1/metrics?format=json", { as: "operator" });
    assert.deepEqual(
      body.events.map(({ event: { event, from, to } }) => [event, from, to]),
      [["gate_transition", "closed", "open"]],
    );
    assert.equal(hook.got.length, 1);
  });

  test("tell of an override's end, though nobody asks that gate anything", async (t) => {
    const hook = await receiver();
    const spillway = await deployment(t, hook, { script: {}, policy: { alerts: { quiet_seconds: 1 } } });
    const until = new Date(Date.now() + 15_000).toISOString();
    const body = { state: "open", until, note: "a drill" };
    const path = `/v1/gates/${MODEL}/override`;
    assert.equal((await spillway.request(path, { method: "PUT", as: "operator", body })).status, 200);
    await hook.until(2);
    assert.match(
      hook.got[1].first,
      new RegExp(`^Spillway: ${MODEL}: the override is over, and its gate decides again`),
    );
    assert.equal(hook.got.length, 2, "one message for the order, and one for its end");
  });

  test("that hang keep neither the gate nor a job waiting", async (t) => {
    const hook = await receiver(() => undefined);
    const rules = [{ when: { prompt_call: "1-2" }, then: { status: 529 } }];
    const spillway = await deployment(t, hook, { script: { rules } });
    const job = await spillway.accepted(submission("[[hangs]]"));
    await hook.until(1);
    await spillway.untilDone(job);
    assert.equal((await spillway.request("/v1/gates", { as: "operator" })).body.gates[MODEL].state, "closed");
  });

  test("tell of refused credentials and of a spend cap", async (t) => {
    const hook = await receiver();
    const rules = [
      { when: { marker: "[[key]]" }, then: { status: 401 } },
      { when: { marker: "[[cap]]" }, then: { error: "spend_cap" } },
    ];
    const spillway = await deployment(t, hook, { script: { rules } });
    await spillway.accepted(submission("[[key]]"));
    await spillway.accepted(submission("[[cap]]"));
    const told = (await hook.until(2)).map(({ first }) => first).sort();
    assert.match(told.join("\n"), /Claude refuses the credentials \(authentication_failed\)/);
    assert.match(told.join("\n"), /spend cap is reached/);
  });

  test("tell of an objective that is broken, by the users of an hour and not by a few of them", async (t) => {
    const hook = await receiver();
    const spillway = await deployment(t, hook, {
      script: { rules: [{ when: { marker: "[[bad]]" }, then: { status: 529 } }] },
      policy: { max_attempts: 1, breaker: NEVER },
    });
    const fields = { when_exhausted: "fail", kind: "code_generation" };
    const jobs = await Promise.all(
      Array.from({ length: 24 }, (_, n) => spillway.accepted(submission(n ? `[[good-${n}]]` : "[[bad]]", fields))),
    );
    await Promise.all(jobs.map((job) => spillway.untilStatus(job, ["done", "failed"])));
    await hook.until(1);
    assert.match(hook.got[0].first, /In the last 60 minutes [45]\.\d\d % of the users have seen an error/);
    const { exposed } = (await spillway.request("/v1/metrics?format=json", { as: "operator" })).body;
    assert.deepEqual(exposed, [{ path: "job", cause: "attempts_exhausted", users: 1 }]);
  });

  test("tell of too many answers by another model, and of the objective being met again", async (t) => {
    const hook = await receiver();
    const spillway = await deployment(t, hook, {
      script: { rules: [{ when: { model: MODEL, marker: "[[leaves]]" }, then: { status: 529 } }] },
      policy: { breaker: NEVER },
    });
    const done = async (marker, count, fields = {}) => {
      const texts = Array.from({ length: count }, (_, n) => submission(`[[${marker}]] ${n}`, fields));
      const jobs = await Promise.all(texts.map((text) => spillway.accepted(text)));
      await Promise.all(jobs.map((job) => spillway.untilDone(job)));
    };
    await done("leaves", 20, { kind: "tagging", priority: "medium" });
    await hook.until(1);
    assert.match(hook.got[0].first, /In the last 60 minutes 100\.00 % of the answers come from another model/);
    await done("plain", 40);
    await hook.until(2);
    assert.match(hook.got[1].first, /The objective of fallback is met again/);
  });

  test("tell of jobs that wait too long for their first call, but not of those that a gate holds", async (t) => {
    const hook = await receiver();
    const spillway = await deployment(t, hook, { script: {} });
    // They are submitted, and half a minute later by the Worker's clock they are begun.
    await spillway.fault({ binding: "job", operation: "claim", how: "slow", ms: 4_000 });
    const jobs = await Promise.all(
      Array.from({ length: 20 }, (_, n) => spillway.accepted(submission(`[[late-${n}]]`))),
    );
    await spillway.setClock(30_000);
    await spillway.fault();
    await Promise.all(jobs.map((job) => spillway.untilDone(job)));
    await hook.until(1);
    assert.match(
      hook.got[0].first,
      /more than one in twenty jobs that nothing held waits over 25 s for its first call/,
    );
  });
});
