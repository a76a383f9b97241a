/**
 * What the operator does with queues and jobs, as the upstream sees it: a paused queue makes no call, a drain takes nothing new and
 * finishes what is there, and what waits or has failed is driven on. What a pause looks like hours later is said with the clock put
 * ahead, and the turn that is due by it delivered by hand.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { envelope, eventually, MODEL, start, startProcess, submission } from "./harness.mjs";

const HOUR = 3600;
const ahead = (seconds) => new Date(Date.now() + seconds * 1000).toISOString();
const order = (fields) => ({ until: ahead(HOUR), note: "the provider is down", ...fields });

async function own(test, options, run = start) {
  const spillway = await run(options);
  test.after(() => spillway.stop());
  return spillway;
}

const ask = (spillway, method, path, body, as = "operator") => spillway.request(path, { method, as, body });

/** The document of an order that has to be taken. */
async function ordered(spillway, method, path, body) {
  const answer = await ask(spillway, method, path, body);
  assert.equal(answer.status, 200, answer.text);
  assert.equal(answer.headers.get("cache-control"), "no-store");
  return answer.body;
}

const pause = (spillway, priority, fields) =>
  ordered(spillway, "PUT", `/v1/queues/${priority}/pause`, order({ until: ahead(HOUR), ...fields }));
const resume = (spillway, priority) => ordered(spillway, "DELETE", `/v1/queues/${priority}/pause`);
const drain = (spillway, fields) => ordered(spillway, "PUT", "/v1/drain", order(fields));
const queues = (spillway) => ordered(spillway, "GET", "/v1/queues");
const redrive = (spillway, id) => ordered(spillway, "POST", `/v1/jobs/${id}/redrive`);

/** Puts the clock ahead, and delivers a turn that is due by then. */
async function later(spillway, seconds, id, { queue = "low", turn = 2 } = {}) {
  await spillway.setClock(seconds * 1000);
  const { explicitAcks } = await spillway.deliver(queue, { id: "due", body: envelope(id, turn) });
  assert.deepEqual(explicitAcks, ["due"]);
  return (await spillway.job(id)).body;
}

const held = async (spillway, marker, fields = { priority: "low" }) => {
  const id = await spillway.accepted(submission(`[[${marker}]]`, fields));
  const status = await spillway.untilStatus(id, "held");
  assert.equal(status.waiting.reason, "paused");
  return { id, status };
};

const message = (text) => ({
  model: MODEL,
  max_tokens: 9,
  messages: [{ role: "user", content: `zq-confidential ${text}` }],
});

describe("a pause", { concurrency: 4 }, () => {
  test("lets no job of its priority be begun, while others and calls that are waited for go on", async (t) => {
    const spillway = await own(t, { calls: true });
    const document = await pause(spillway, "low", { until: ahead(600), author: "Ada", note: "bad answers" });
    const { since, until, seconds_left, ...who } = document.queues.low.paused;
    assert.deepEqual(who, { note: "bad answers", author: "Ada" });
    assert.ok(seconds_left > 540 && seconds_left <= 600, `${seconds_left}`);
    assert.ok(Math.abs(Date.parse(until) - Date.parse(since) - 600_000) < 2000);
    assert.deepEqual([document.drain, document.takes_effect_within_seconds, document.unfinished], [null, 60, 0]);
    assert.deepEqual(document.queues.high, { unfinished: 0, paused: null });

    const { id, status } = await held(spillway, "low");
    assert.deepEqual([status.attempts, status.calls], [0, 0]);
    const { next_check_seconds } = status.waiting;
    assert.ok(next_check_seconds >= 1 && next_check_seconds <= 19, `${next_check_seconds}`);
    for (const priority of ["high", "medium"])
      await spillway.untilDone(await spillway.accepted(submission(`[[${priority}]]`, { priority })));
    const call = await spillway.request("/v1/messages", {
      method: "POST",
      headers: { "spillway-priority": "low" },
      body: message("[[call]]"),
    });
    assert.equal(call.status, 200, call.text);
    assert.deepEqual(
      spillway.calls().map(({ marker }) => marker),
      ["high", "medium", "call"],
    );
    const now = await eventually(async () => {
      const now = await queues(spillway);
      return now.unfinished === 1 && now;
    });
    assert.deepEqual([now.queues.low.unfinished, now.queues.low.paused.author], [1, "Ada"]);
    const [{ lasts_ms, ...line }] = spillway.logs("queue_paused");
    assert.deepEqual(line, { event: "queue_paused", priority: "low", author: "Ada", note: "bad answers" });
    assert.ok(lasts_ms > 540_000 && lasts_ms <= 600_000);
    assert.equal((await spillway.gates())[MODEL].waiting?.low ?? 0, 0, "no place in the gate's order");
    await spillway.cancel(id);
  });

  test("lets calls that are under way end, and its end lets its jobs go on", async (t) => {
    const script = { rules: [{ when: { marker: "under-way" }, then: { delay_ms: 1500 } }] };
    const spillway = await own(t, { script });
    const underWay = await spillway.accepted(submission("[[under-way]]", { priority: "low" }));
    await spillway.untilCalls((calls) => calls.length === 1);
    await pause(spillway, "low");
    const { id } = await held(spillway, "after");
    assert.deepEqual((await spillway.untilDone(underWay)).calls, 1);
    const document = await resume(spillway, "low");
    assert.equal(document.queues.low.paused, null);
    const { status } = await later(spillway, 20, id);
    assert.equal(status, "done");
    assert.equal(spillway.logs("queue_resumed").length, 1);
    await resume(spillway, "low");
    assert.equal(spillway.logs("queue_resumed").length, 1, "what is not paused is not resumed");
  });

  test("is looked at more and more seldom, and ends by itself", async (t) => {
    const spillway = await own(t);
    await pause(spillway, "low", { until: ahead(2 * HOUR) });
    const { id } = await held(spillway, "sleeper", { priority: "low" });
    const { waiting } = await later(spillway, HOUR, id);
    assert.equal(waiting.reason, "paused");
    assert.ok(waiting.next_check_seconds >= 660 && waiting.next_check_seconds <= 900, `${waiting.next_check_seconds}`);
    await spillway.setClock((2 * HOUR - 120) * 1000);
    assert.ok((await queues(spillway)).queues.low.paused.seconds_left <= 120);
    const { status, calls } = await later(spillway, 2 * HOUR + 1, id, { turn: 3 });
    assert.deepEqual([status, calls], ["done", 1]);
    assert.equal((await queues(spillway)).queues.low.paused, null);
    assert.deepEqual(spillway.logs("queue_resumed"), []);
  });

  test("is known to a Worker that begins anew, and so is its end", async (t) => {
    const spillway = await own(t, {}, startProcess);
    await Promise.all([
      pause(spillway, "low", { note: "low" }),
      pause(spillway, "high", { note: "high" }),
      drain(spillway),
    ]);
    await resume(spillway, "high");
    await ordered(spillway, "DELETE", "/v1/drain");
    await spillway.kill();
    await spillway.restart();
    await spillway.untilDone(await spillway.accepted(submission("[[high]]")));
    await held(spillway, "low");
    const { queues: after, drain: none } = await queues(spillway);
    assert.deepEqual([after.low.paused.note, after.high.paused, none], ["low", null, null]);
  });

  test("takes nothing from another one that is ordered at the same moment", async (t) => {
    const spillway = await own(t);
    const [low, high, none] = await Promise.all([
      pause(spillway, "low", { note: "low" }),
      pause(spillway, "high", { note: "high" }),
      drain(spillway, { note: "drain" }),
    ]);
    assert.deepEqual(
      [low.queues.low.paused.note, high.queues.high.paused.note, none.drain.note],
      ["low", "high", "drain"],
    );
    const { queues: both, drain: drained } = await queues(spillway);
    assert.deepEqual([both.low.paused.note, both.high.paused.note, drained.note], ["low", "high", "drain"]);
    for (const [key, note] of [
      ["switch:pause:low", "low"],
      ["switch:pause:high", "high"],
      ["switch:drain", "drain"],
    ])
      assert.equal((await spillway.stored(key)).order.note, note, "and not only here");
    const again = await pause(spillway, "low", { note: "again" });
    assert.equal(again.queues.low.paused.note, "again", "KV takes one write a second for each key");
  });

  test("that KV does not take is an error, and one that it does not tell of stays as it was known", async (t) => {
    const spillway = await own(t);
    await spillway.fault({ binding: "kv", operation: "put", key: "switch:", how: "refuse" });
    const refused = await ask(spillway, "PUT", "/v1/queues/low/pause", order());
    assert.deepEqual([refused.status, refused.body.error.type], [503, "api_error"], refused.text);
    assert.ok(Number(refused.headers.get("retry-after")) >= 1);
    assert.equal((await queues(spillway)).queues.low.paused, null);
    await spillway.untilDone(await spillway.accepted(submission("[[goes on]]", { priority: "low" })));
    await spillway.fault({ binding: "kv", operation: "put", key: "switch:", how: "refuse", times: 1 });
    await pause(spillway, "low");
    for (const how of ["refuse", "hang"]) {
      await spillway.fault({ binding: "kv", operation: "get", key: "switch:", how });
      assert.equal((await queues(spillway)).queues.low.paused.note, "the provider is down", how);
      await held(spillway, how);
      await spillway.untilDone(await spillway.accepted(submission(`[[${how}-high]]`)));
    }
  });

  test("is told of once, although the Meter does not hear at first, or says nothing", async (t) => {
    const spillway = await own(t);
    await spillway.fault([
      { binding: "meter", operation: "hear", how: "refuse", times: 1 },
      { binding: "meter", operation: "hear", how: "lost_answer", times: 1 },
    ]);
    await pause(spillway, "low");
    const told = async () => {
      const { body } = await spillway.request("/v1/metrics?format=json", { as: "operator" });
      return body.events.map(({ event }) => event.event);
    };
    await eventually(async () => (await spillway.struck()).join() === "1,1" && (await told()).length > 0);
    await resume(spillway, "low");
    assert.deepEqual((await told()).toSorted(), ["queue_paused", "queue_resumed"]);
    await spillway.fault({ binding: "meter", operation: "read", how: "refuse" });
    const { queues: shown, unfinished } = await queues(spillway);
    assert.deepEqual([shown.low, unfinished], [{ unfinished: null, paused: null }, null], "nobody knows how many");
  });

  test("is nobody's who does not know of it: a KV that is silent from the beginning fails no job", async (t) => {
    const spillway = await own(t);
    await spillway.fault({ binding: "kv", operation: "get", key: "switch:", how: "hang" });
    await spillway.untilDone(await spillway.accepted(submission("[[silent]]", { priority: "low" })));
    assert.equal((await spillway.struck())[0] > 0, true);
  });
});

describe("an order", { concurrency: 4 }, () => {
  test("is the operator's, and its faults are told all at once", async (t) => {
    const spillway = await own(t);
    const id = await spillway.accepted(submission("[[job]]"));
    for (const [method, path, body] of [
      ["GET", "/v1/queues"],
      ["PUT", "/v1/queues/low/pause", order()],
      ["DELETE", "/v1/queues/low/pause"],
      ["PUT", "/v1/drain", order()],
      ["DELETE", "/v1/drain"],
      ["POST", `/v1/jobs/${id}/redrive`],
      ["POST", "/v1/jobs/redrive", { status: "failed" }],
    ]) {
      const { status, body: error, text } = await ask(spillway, method, path, body, "app");
      assert.deepEqual([status, error.error?.type], [403, "permission_error"], `${method} ${path} ${text}`);
      assert.equal((await ask(spillway, method, path, body, null)).status, 401);
    }
    const places = async (method, path, body) => {
      const { status, body: error, text } = await ask(spillway, method, path, body);
      assert.equal(status, 400, text);
      return error.error.problems.map(({ place }) => place);
    };
    const wrong = { until: ahead(-1), note: "", author: 7, state: "open" };
    assert.deepEqual(await places("PUT", "/v1/drain", wrong), ["state", "until", "note", "author"]);
    assert.deepEqual(await places("PUT", "/v1/queues/dead/pause", wrong), [
      "priority",
      "state",
      "until",
      "note",
      "author",
    ]);
    assert.deepEqual(await places("DELETE", "/v1/queues/High/pause"), ["priority"]);
    assert.deepEqual(await places("PUT", "/v1/drain", {}), ["until", "note"]);
    for (const until of [ahead(7 * 86_400 + 60), ahead(60).replace("Z", ""), "soon", 7])
      assert.deepEqual(await places("PUT", "/v1/drain", order({ until })), ["until"], `${until}`);
    const many = { status: "done", reason: "tired", since: "yesterday", cursor: "x", limit: 11, all: true };
    const faults = ["all", "status", "reason", "since", "cursor", "limit"];
    assert.deepEqual(await places("POST", "/v1/jobs/redrive", many), faults);
    assert.deepEqual(await places("POST", "/v1/jobs/redrive", {}), ["status"]);
    const of = (status, reason) => places("POST", "/v1/jobs/redrive", { status, reason });
    assert.deepEqual([await of("failed", "paused"), await of("open", "interrupted")], [["reason"], ["reason"]]);
    for (const body of ["", "[]", "{"]) assert.equal((await ask(spillway, "PUT", "/v1/drain", body)).status, 400, body);
    for (const [path, allow] of [
      ["/v1/queues/low/pause", "PUT, DELETE"],
      ["/v1/drain", "PUT, DELETE"],
      ["/v1/jobs/redrive", "POST"],
    ]) {
      const { status, headers } = await ask(spillway, "GET", path);
      assert.deepEqual([status, headers.get("allow")], [405, allow], path);
    }
    const { queues: untouched, drain: none } = await queues(spillway);
    assert.deepEqual([untouched.low.paused, none, spillway.logs("drain_started")], [null, null, []]);
  });
});

describe("a drain", { concurrency: 4 }, () => {
  test("refuses what is new with what to do, and finishes what is there", async (t) => {
    const script = {
      rules: [
        { when: { marker: "slow" }, then: { delay_ms: 1500 } },
        { when: { marker: "fails", prompt_call: 1 }, then: { error: "invalid_request" } },
      ],
    };
    const spillway = await own(t, { script });
    const failed = await spillway.accepted(submission("[[fails]]"));
    await spillway.untilStatus(failed, "failed");
    const keyed = submission("[[keyed]]");
    const first = (await spillway.submit(keyed, { key: "k" })).body.id;
    const slow = await spillway.accepted(submission("[[slow]]"));
    await spillway.untilCalls((calls) => calls.some(({ marker }) => marker === "slow"));

    const document = await drain(spillway, { until: ahead(600), note: "moving house" });
    assert.deepEqual([document.drain.note, document.queues.low.paused], ["moving house", null]);
    for (const answer of [
      await spillway.submit(),
      await spillway.submit(submission("[[other]]"), { key: "other" }),
      await spillway.request(`/v1/jobs/${failed}/regenerate`, { method: "POST" }),
      await ask(spillway, "POST", `/v1/jobs/${failed}/redrive`),
      await ask(spillway, "POST", "/v1/jobs/redrive", { status: "failed" }),
    ]) {
      assert.deepEqual([answer.status, answer.body.error.type], [503, "api_error"], answer.text);
      assert.match(answer.body.error.message, /takes no new jobs until .*: moving house; .*submit it then/);
      assert.equal(answer.headers.get("retry-after"), "60");
    }
    const replayed = await spillway.submit(keyed, { key: "k" });
    assert.deepEqual([replayed.status, replayed.body.id], [202, first], "what was taken before is not new");
    const bad = await spillway.submit({ kind: "default" });
    assert.equal(bad.status, 400, "what is wrong is told first");
    await spillway.untilDone(slow);
    await spillway.untilDone(first);
    assert.deepEqual(spillway.logs("job_redriven"), []);

    assert.equal((await ordered(spillway, "DELETE", "/v1/drain")).drain, null);
    await spillway.untilDone(await spillway.accepted());
    assert.equal(spillway.logs("drain_started").length + spillway.logs("drain_ended").length, 2);
  });

  test("ends by itself", async (t) => {
    const spillway = await own(t);
    await drain(spillway, { until: ahead(60) });
    assert.ok(Number((await spillway.submit()).headers.get("retry-after")) <= 60);
    await spillway.setClock(61_000);
    assert.equal((await spillway.submit()).status, 202);
    assert.equal((await queues(spillway)).drain, null);
  });

  test("passes the overload of a call that is waited for on, and makes no job of it", async (t) => {
    const spillway = await own(t, {
      calls: true,
      script: { rules: [{ when: { marker: "down" }, then: { status: 529 } }] },
    });
    await drain(spillway);
    const answered = await spillway.request("/v1/messages", { method: "POST", body: message("[[up]]") });
    assert.equal(answered.status, 200, answered.text);
    assert.equal(answered.headers.get("spillway-handoff"), null);
    for (const handoff of ["auto", "wait", undefined]) {
      const { status, headers, text } = await spillway.request("/v1/messages", {
        method: "POST",
        headers: handoff && { "spillway-handoff": handoff },
        body: message("[[down]]"),
      });
      assert.equal(status, 529, text);
      assert.deepEqual([headers.get("spillway-job"), headers.get("spillway-handoff")], [null, "never"]);
    }
    assert.deepEqual((await spillway.list()).body.jobs, []);
    await ordered(spillway, "DELETE", "/v1/drain");
    const { status, headers } = await spillway.request("/v1/messages", {
      method: "POST",
      headers: { "spillway-handoff": "auto" },
      body: message("[[down]]"),
    });
    assert.equal(status, 202);
    await spillway.cancel(headers.get("spillway-job"));
  });
});

describe("a job is driven on", { concurrency: 4 }, () => {
  test("that waits: now; twice is as good as once, and one at work is left alone", async (t) => {
    const script = {
      rules: [
        { when: { marker: "waits", prompt_call: 1 }, then: { status: 429, headers: { "retry-after": "600" } } },
        { when: { marker: "works" }, then: { delay_ms: 1500 } },
      ],
    };
    const spillway = await own(t, { script });
    await pause(spillway, "low");
    const { id } = await held(spillway, "paused");
    assert.deepEqual(await redrive(spillway, id), { job: id, outcome: "sent_again", as: null });
    // It is delivered at once, and finds the pause.
    await eventually(async () => spillway.logs("job_held").length === 2);
    await resume(spillway, "low");
    const [one, two] = await Promise.all([redrive(spillway, id), redrive(spillway, id)]);
    assert.deepEqual([one.job, two.job], [id, id]);
    assert.equal((await spillway.untilDone(id)).calls, 1);
    assert.equal(spillway.calls({ marker: "paused" }).length, 1);
    assert.deepEqual(await redrive(spillway, id), { job: id, outcome: "not_needed", as: null }, "it is done");

    const works = await spillway.accepted(submission("[[works]]"));
    await spillway.untilCalls((calls) => calls.some(({ marker }) => marker === "works"));
    assert.equal((await redrive(spillway, works)).outcome, "not_needed");
    await spillway.untilDone(works);
    assert.equal(spillway.calls({ marker: "works" }).length, 1);
    assert.deepEqual(
      spillway.logs("job_redriven").every(({ job, outcome }) => job === id && outcome === "sent_again"),
      true,
    );
  });

  test("that has failed: by a new one that is linked to it, and once", async (t) => {
    const script = { rules: [{ when: { marker: "fails", prompt_call: 1 }, then: { error: "invalid_request" } }] };
    const spillway = await own(t, { script });
    const failed = await spillway.accepted(submission("[[fails]]", { metadata: { user: 7 } }));
    await spillway.untilStatus(failed, "failed");
    const first = await redrive(spillway, failed);
    assert.deepEqual([first.job, first.outcome], [failed, "started_again"]);
    const done = await spillway.untilDone(first.as);
    assert.deepEqual([done.regenerates, done.metadata], [failed, { user: 7 }]);
    assert.equal((await spillway.job(failed)).body.status, "failed", "what is over stays as it is");
    assert.deepEqual(await redrive(spillway, failed), { job: failed, outcome: "not_needed", as: first.as });
    const { body } = await spillway.request(`/v1/jobs/${failed}/regenerate`, { method: "POST" });
    assert.equal(body.id, first.as, "its user gets the same");
    assert.equal(spillway.calls({ marker: "fails" }).length, 2);
    assert.deepEqual(
      spillway.logs("job_redriven").map(({ outcome, new_job }) => [outcome, new_job]),
      [["started_again", first.as]],
    );

    await spillway.cancel(first.as);
    const another = await redrive(spillway, failed);
    assert.deepEqual([another.outcome, another.as !== first.as], ["started_again", true], "that one was taken back");
  });

  test("that was lost between being named and being stored is stored by who asks again", async (t) => {
    const script = { rules: [{ when: { marker: "fails", prompt_call: 1 }, then: { error: "invalid_request" } }] };
    const spillway = await own(t, { script });
    const failed = await spillway.accepted(submission("[[fails]]"));
    await spillway.untilStatus(failed, "failed");
    await spillway.fault({ binding: "job", operation: "create", how: "refuse" });
    assert.equal((await ask(spillway, "POST", `/v1/jobs/${failed}/redrive`)).status, 503);
    const { redriven } = await ordered(spillway, "POST", "/v1/jobs/redrive", {
      status: "failed",
      reason: "invalid_request",
    });
    assert.deepEqual(redriven, [{ job: failed, outcome: "unanswered", as: null }]);
    await spillway.fault();
    const { outcome, as } = await redrive(spillway, failed);
    assert.equal(outcome, "started_again");
    await spillway.untilDone(as);
  });

  test("but not one that is cancelled, asks its user, or is not there", async (t) => {
    const spillway = await own(t, {
      policy: { max_attempts: 1 },
      script: { rules: [{ when: { marker: "stalls" }, then: { status: 500 } }] },
    });
    await pause(spillway, "low");
    const { id } = await held(spillway, "cancelled");
    await spillway.cancel(id);
    assert.equal((await redrive(spillway, id)).outcome, "not_needed");
    const stalled = await spillway.accepted(submission("[[stalls]]"));
    await spillway.untilStatus(stalled, "stalled");
    assert.equal((await redrive(spillway, stalled)).outcome, "not_needed");
    for (const unknown of [`job_${"0".repeat(32)}`, "nonsense"]) {
      const { status, body } = await ask(spillway, "POST", `/v1/jobs/${unknown}/redrive`);
      assert.deepEqual([status, body.error.type], [404, "not_found_error"]);
    }
  });

  test("with many others: page by page, each once, but for those whose request was refused", async (t) => {
    const script = {
      rules: [
        { when: { marker: "refused" }, then: { error: "invalid_request" } },
        { when: { marker: "capped", match: "1-3" }, then: { error: "authentication" } },
      ],
    };
    const spillway = await own(t, { script });
    const capped = [];
    for (const n of [1, 2, 3]) {
      const id = await spillway.accepted(submission(`[[capped]] ${n}`), { client: n === 2 ? "web" : "app" });
      await spillway.untilStatus(id, "failed", { client: n === 2 ? "web" : "app" });
      capped.push(id);
    }
    const refused = await spillway.accepted(submission("[[refused]]"));
    await spillway.untilStatus(refused, "failed");
    await spillway.untilDone(await spillway.accepted(submission("[[done]]")));
    const failed = [refused, ...capped.toReversed()];
    await eventually(async () => (await spillway.list("status=failed", { client: "operator" })).body.jobs.length === 4);

    const all = async (body, limit = 2) => {
      const [pages, redriven] = [[], []];
      for (let cursor; cursor !== null;) {
        const page = await ordered(spillway, "POST", "/v1/jobs/redrive", { ...body, limit, ...(cursor && { cursor }) });
        pages.push(page.redriven.length);
        redriven.push(...page.redriven);
        cursor = page.next_cursor;
      }
      return { pages, redriven: new Map(redriven.map(({ job, ...rest }) => [job, rest])) };
    };
    const first = await all({ status: "failed" });
    assert.deepEqual(first.pages, [2, 2]);
    assert.deepEqual([...first.redriven.keys()], failed);
    assert.deepEqual(first.redriven.get(refused), { outcome: "not_needed", as: null });
    const news = capped.map((id) => first.redriven.get(id));
    assert.ok(news.every(({ outcome, as }) => outcome === "started_again" && as));
    for (const [n, { as }] of news.entries()) await spillway.untilDone(as, { client: n === 1 ? "web" : "app" });
    assert.equal(spillway.calls({ marker: "capped" }).length, 6);

    const again = await all({ status: "failed" }, 10);
    assert.deepEqual(again.pages, [4]);
    for (const [n, id] of capped.entries())
      assert.deepEqual(again.redriven.get(id), { outcome: "not_needed", as: news[n].as });
    assert.deepEqual((await all({ status: "failed", since: ahead(60) })).redriven.size, 0);
    assert.deepEqual((await all({ status: "failed", since: ahead(-60) })).redriven.size, 4);
    const named = await all({ status: "failed", reason: "invalid_request" });
    assert.deepEqual(named.redriven.get(refused).outcome, "started_again", "who names the reason means it");
    assert.ok(capped.every((id) => named.redriven.get(id).outcome === "not_needed"));
    assert.deepEqual([...named.redriven.keys()], failed, "in the list's order, though the first takes longest");

    await pause(spillway, "low");
    const [one, two] = [await held(spillway, "one"), await held(spillway, "two")];
    await resume(spillway, "low");
    const other = await all({ status: "open", reason: "breaker_open" });
    assert.deepEqual(
      [...other.redriven.values()].map(({ outcome }) => outcome),
      ["not_needed", "not_needed"],
    );
    const open = await all({ status: "open", reason: "paused" });
    assert.deepEqual(
      [...open.redriven.values()].map(({ outcome }) => outcome),
      ["sent_again", "sent_again"],
    );
    for (const { id } of [one, two]) await spillway.untilDone(id);
    const totals = (await spillway.request("/v1/metrics", { as: "operator" })).text;
    assert.match(totals, /spillway_jobs_redriven_total\{outcome="sent_again"\} 2/);
    assert.match(totals, /spillway_jobs_redriven_total\{outcome="started_again"\} 4/);
    assert.match(totals, /spillway_switches_total\{switch="low"\} 1/);
    const { events } = (await spillway.request("/v1/metrics?format=json", { as: "operator" })).body;
    assert.deepEqual(
      events.map(({ event }) => event.event).filter((event) => event.startsWith("queue_")),
      ["queue_paused", "queue_resumed"],
    );
  });
});
