/**
 * The operator's override of a gate (B11), as the upstream sees it: forced open nobody calls, by the fake's log; forced
 * closed everybody does, whatever the breaker was; and each ends by itself.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { eventually, MODEL, start, startProcess, submission } from "./harness.mjs";

const POLICY = {
  watchdog_seconds: 2,
  breaker: { consecutive_failures: 3, consecutive_seconds: 0, consecutive_hard: 3, open_seconds: 600 },
};

const ahead = (seconds) => new Date(Date.now() + seconds * 1000).toISOString();

/** PUT, with what has to be there unless `body` says otherwise. */
function force(spillway, body, { model = MODEL, as = "operator" } = {}) {
  const ordinary = { until: ahead(3600), note: "the cap was raised" };
  return spillway.request(`/v1/gates/${model}/override`, { method: "PUT", as, body: { ...ordinary, ...body } });
}

async function forced(spillway, body, options) {
  const { status, body: gate, text } = await force(spillway, body, options);
  assert.equal(status, 200, text);
  return gate;
}

const release = (spillway, { model = MODEL, as = "operator" } = {}) =>
  spillway.request(`/v1/gates/${model}/override`, { method: "DELETE", as });

const gates = async (spillway) => (await spillway.request("/v1/gates", { as: "operator" })).body.gates;
const whys = (gate) => gate.history.map(({ from, to, why }) => `${from} ${to} ${why}`);
const logged = (spillway) => spillway.logs("gate_transition").map(({ from, to, why }) => `${from} ${to} ${why}`);

async function own(test, options, run = start) {
  const spillway = await run({ policy: POLICY, ...options });
  test.after(() => spillway.stop());
  return spillway;
}

/** Three jobs fail, and the breaker is open for ten minutes. */
async function outage(spillway) {
  await spillway.fake.setScript({ rules: [{ then: { status: 529 } }] });
  const ids = [];
  for (const n of [1, 2, 3]) ids.push(await spillway.accepted(submission(`[[outage-${n}]]`)));
  await spillway.untilLog(({ event, to }) => event === "gate_transition" && to === "open");
  await eventually(async () => (await gates(spillway))[MODEL].in_flight === 0);
  await spillway.fake.setScript({});
  return ids;
}

describe("the override", { concurrency: 4 }, () => {
  test("of a model that nobody has called is kept, but looking at one, or taking back what was not ordered, keeps none", async (t) => {
    const spillway = await own(t);
    assert.equal((await release(spillway, { model: "mistyped" })).status, 200);
    assert.deepEqual(Object.keys(await gates(spillway)).sort(), ["claude-haiku-5-5", MODEL]);
    await forced(spillway, { state: "open" }, { model: "tomorrow" });
    await release(spillway, { model: "tomorrow" });
    assert.ok(Object.keys(await gates(spillway)).includes("tomorrow"));
    const ended = await spillway.untilLog(({ event, model }) => event === "override_ended" && model === "tomorrow");
    assert.equal(ended.early, true);
  });

  test("forced open nobody calls: jobs of every priority are held and say why, and go on when it has ended by itself", async (t) => {
    const spillway = await own(t);
    const began = Date.now();
    const gate = await forced(spillway, { state: "open", until: ahead(6), note: "bad answers", author: "Ada" });
    assert.equal(gate.state, "open");
    assert.deepEqual(
      { ...gate.override, seconds_left: 6 },
      { state: "open", author: "Ada", note: "bad answers", seconds_left: 6 },
    );
    assert.ok(gate.override.seconds_left >= 5 && gate.override.seconds_left <= 6);

    const ids = [];
    for (const priority of ["high", "medium", "low"])
      ids.push(await spillway.accepted(submission(`[[${priority}]]`, { priority })));
    for (const id of ids) {
      const { waiting, attempts, calls } = await spillway.untilStatus(id, "held");
      assert.equal(waiting.reason, "overridden");
      assert.ok(waiting.next_check_seconds >= 1 && waiting.next_check_seconds <= 10, `${waiting.next_check_seconds}`);
      assert.deepEqual([attempts, calls], [0, 0]);
    }
    assert.deepEqual(spillway.calls(), []);
    const { override, history } = (await gates(spillway))[MODEL];
    assert.equal(override.author, "Ada");
    assert.deepEqual([history[0].from, history[0].to, history[0].why], ["closed", "open", "override_opened"]);
    const { event, ...line } = spillway.logs("gate_overridden")[0];
    assert.ok(line.lasts_ms > 5000 && line.lasts_ms <= 6000, `${event} ${line.lasts_ms}`);
    assert.deepEqual(line, {
      model: MODEL,
      state: "open",
      lasts_ms: line.lasts_ms,
      author: "Ada",
      note: "bad answers",
    });

    for (const id of ids) assert.deepEqual((await spillway.untilDone(id)).attempts, 0);
    const calls = spillway.calls();
    assert.equal(calls.length, 3, "one call each");
    for (const { started_at } of calls) assert.ok(started_at >= began + 6000 - 100, `${started_at - began} ms`);
    const after = (await gates(spillway))[MODEL];
    assert.deepEqual([after.state, after.override], ["closed", null]);
    assert.deepEqual(whys(after), ["open closed override_ended", "closed open override_opened"]);
    assert.deepEqual(logged(spillway), whys(after).toReversed());
  });

  test("it ends by itself although nobody asks for a permit: the status says so, once", async (t) => {
    const spillway = await own(t);
    await forced(spillway, { state: "open", until: ahead(1) });
    await sleep(1200);
    for (const n of [1, 2]) {
      const { state, override, history } = (await gates(spillway))[MODEL];
      assert.deepEqual([state, override, history.length], ["closed", null, 2], `reading ${n}`);
    }
    assert.deepEqual(logged(spillway), ["closed open override_opened", "open closed override_ended"]);
  });

  test("DELETE ends it at once, and again changes nothing", async (t) => {
    const spillway = await own(t);
    await forced(spillway, { state: "open", until: ahead(6) });
    const held = await spillway.accepted(submission("[[held]]"));
    assert.equal((await spillway.untilStatus(held, "held")).waiting.reason, "overridden");
    const { status, body, text } = await release(spillway);
    assert.deepEqual([status, body.state, body.override], [200, "closed", null], text);
    assert.deepEqual(whys(body), ["open closed override_released", "closed open override_opened"]);
    await spillway.untilDone(await spillway.accepted(submission("[[new]]")));
    assert.equal((await spillway.untilDone(held)).calls, 1, "who slept goes on");
    assert.deepEqual(
      spillway.calls().map(({ marker }) => marker),
      ["new", "held"],
    );
    const again = await release(spillway);
    assert.deepEqual([again.status, whys(again.body)], [200, whys(body)]);
    const never = await release(spillway, { model: "never-called" });
    assert.deepEqual([never.status, never.body.override, never.body.history], [200, null, []]);
  });

  test("a job that sleeps under a long override asks again within two minutes", async (t) => {
    const spillway = await own(t);
    await forced(spillway, { state: "open", until: ahead(7 * 86_400 - 60) });
    const id = await spillway.accepted(submission("[[sleeper]]"));
    const { waiting } = await spillway.untilStatus(id, "held");
    assert.ok(waiting.next_check_seconds > 60 && waiting.next_check_seconds <= 130, `${waiting.next_check_seconds}`);
    await spillway.cancel(id);
  });

  test("forced closed lets calls through on an open breaker, and failures do not open it", async (t) => {
    const spillway = await own(t);
    const waiting = await outage(spillway);
    const held = await spillway.accepted(submission("[[before]]"));
    await spillway.untilStatus(held, "held");
    const before = spillway.calls().length;
    const gate = await forced(spillway, { state: "closed" });
    assert.deepEqual([gate.state, gate.override.state, gate.override.author], ["closed", "closed", "operator"]);
    await spillway.untilDone(await spillway.accepted(submission("[[through]]")));
    const through = spillway.calls().findIndex(({ marker }) => marker === "through");
    assert.ok(through >= before && spillway.calls({ marker: "through" }).length === 1);

    await spillway.fake.setScript({ rules: [{ then: { status: 529 } }] }, { counters: true });
    const failing = [];
    for (const n of [1, 2, 3, 4]) failing.push(await spillway.accepted(submission(`[[failing-${n}]]`)));
    // Twice as many as would have opened it.
    const overloaded = (calls) => calls.slice(before).filter(({ outcome }) => outcome?.status === 529);
    await spillway.untilCalls((calls) => overloaded(calls).length >= 6);
    assert.equal((await gates(spillway))[MODEL].state, "closed");
    assert.ok(
      !whys((await gates(spillway))[MODEL])
        .slice(0, -1)
        .some((why) => why.startsWith("closed open")),
    );
    for (const id of [...waiting, held, ...failing]) await spillway.cancel(id);
  });

  test("forced closed takes the spend cap's hold away", async (t) => {
    const spillway = await own(t, { script: { rules: [{ when: { call: 1 }, then: { error: "spend_cap" } }] } });
    const first = await spillway.accepted(submission("[[first]]"));
    assert.equal((await spillway.untilStatus(first, "failed")).reason, "spend_cap");
    const held = await spillway.accepted(submission("[[held]]"));
    assert.equal((await spillway.untilStatus(held, "held")).waiting.reason, "spend_cap");
    const gate = await forced(spillway, { state: "closed", until: ahead(60) });
    assert.deepEqual(gate.holds, []);
    await spillway.untilDone(await spillway.accepted(submission("[[after]]")));
    await spillway.cancel(held);
  });

  test("it survives a crash: held before, held after, with the same end", async (t) => {
    const spillway = await own(t, {}, startProcess);
    const end = Date.now() + 12_000;
    await forced(spillway, { state: "open", until: new Date(end).toISOString(), note: "kept" });
    const id = await spillway.accepted(submission("[[kept]]"));
    await spillway.untilStatus(id, "held");
    await spillway.kill();
    await spillway.restart();
    const { state, override } = (await gates(spillway))[MODEL];
    assert.deepEqual([state, override?.note], ["open", "kept"]);
    const left = (end - Date.now()) / 1000;
    assert.ok(Math.abs(override.seconds_left - left) <= 2, `${override.seconds_left} s, of ${left}`);
    const another = await spillway.accepted(submission("[[another]]"));
    assert.equal((await spillway.untilStatus(another, "held")).waiting.reason, "overridden");
    assert.deepEqual(spillway.calls(), []);
    for (const job of [id, another]) await spillway.untilDone(job);
    for (const { started_at } of spillway.calls()) assert.ok(started_at >= end - 100, `${started_at - end} ms`);
  });

  test("it is the operator's, its faults are told all at once, and any model that a job could name has one", async (t) => {
    const spillway = await own(t);
    for (const as of ["app", "web"]) {
      for (const answer of [await force(spillway, { state: "open" }, { as }), await release(spillway, { as })]) {
        assert.deepEqual([answer.status, answer.body.error.type], [403, "permission_error"], answer.text);
      }
    }
    const places = async (body, options) => {
      const answer = await force(spillway, body, options);
      assert.equal(answer.status, 400, answer.text);
      assert.equal(answer.headers.get("cache-control"), "no-store");
      return answer.body.error.problems.map(({ place }) => place);
    };
    const all = { state: "ajar", until: ahead(-1), note: "", author: 7, why: "unknown" };
    assert.deepEqual(await places(all), ["why", "state", "until", "note", "author"]);
    assert.deepEqual(await places(all, { model: "a%20b" }), ["model", "why", "state", "until", "note", "author"]);
    assert.deepEqual(await places({ state: "open", until: ahead(7 * 86_400 + 60) }), ["until"]);
    assert.deepEqual(await places({ state: "open", until: ahead(60).replace("Z", "") }), ["until"]);
    for (const body of ["", "[]", "{"]) {
      const path = `/v1/gates/${MODEL}/override`;
      const answer = await spillway.request(path, { method: "PUT", as: "operator", body });
      assert.deepEqual([answer.status, answer.body.error.type], [400, "invalid_request_error"], body);
    }
    assert.equal((await release(spillway, { model: "a%0Ab" })).body.error.problems[0].place, "model");
    const get = await spillway.request(`/v1/gates/${MODEL}/override`, { as: "operator" });
    assert.deepEqual([get.status, get.headers.get("allow")], [405, "PUT, DELETE"]);
    assert.deepEqual(spillway.logs("gate_overridden"), []);

    const local = new Date(Date.now() + 9 * 3_600_000 + 60_000).toISOString().replace("Z", "+09:00");
    const gate = await forced(spillway, { state: "open", until: local }, { model: "new%2Fmodel" });
    assert.ok(gate.override.seconds_left > 50 && gate.override.seconds_left <= 60, `${gate.override.seconds_left}`);
    await spillway.untilDone(await spillway.accepted(submission("[[the primary's gate is another]]")));
    const listed = await eventually(async () => (await gates(spillway))["new/model"]);
    assert.equal(listed.override.state, "open");
    const id = await spillway.accepted(submission("[[named]]", { request: { model: "new/model" } }));
    assert.equal((await spillway.untilStatus(id, "held")).waiting.reason, "overridden");
    await spillway.cancel(id);
  });
});
