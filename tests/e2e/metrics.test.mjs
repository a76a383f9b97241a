/** The figures (A10, B10, B13): what the Meter says against what the fake was asked, to the last call. */
import assert from "node:assert/strict";
import { request } from "node:http";
import { after, describe, test } from "node:test";
import { analysed, asked, counted, figures, sum } from "./figures.mjs";
import { eventually, KEYS, MODEL, start, submission } from "./harness.mjs";
import { call, sdk } from "./official-sdk.mjs";

describe("the figures", async () => {
  const spillway = await start({
    calls: true,
    policy: { max_attempts: 2, breaker: { consecutive_failures: 50, consecutive_hard: 50 } },
    script: {
      defaults: { delay_ms: 20, chunk_delay_ms: 1 },
      rules: [
        { when: { marker: "[[once]]", prompt_call: 1 }, then: { status: 529 } },
        { when: { marker: "[[leaves]]", model: MODEL }, then: { status: 529 } },
        { when: { marker: "[[server]]", prompt_call: 1 }, then: { status: 500 } },
        { when: { marker: "[[never]]" }, then: { status: 529 } },
        { when: { marker: "[[gone]]" }, then: { tokens: 400, chunk_delay_ms: 1000 } },
        { when: { marker: "[[handed]]", prompt_call: 1 }, then: { status: 429, retry_after: 3 } },
      ],
    },
  });
  after(() => spillway.stop());

  test("agree with the fake's log to the last call, over jobs and calls that are waited for", async () => {
    const claude = sdk(spillway, { maxRetries: 0 });
    const never = { headers: { "spillway-handoff": "never" } };
    const jobs = await Promise.all(
      [
        ["[[plain]]", {}],
        ["[[once]]", { kind: "code_generation" }],
        ["[[leaves]]", { kind: "tagging", priority: "medium" }],
        ["[[server]]", {}],
        ["[[never]]", { kind: "code_generation", when_exhausted: "fail" }],
      ].map(([prompt, more]) => spillway.accepted(submission(prompt, more))),
    );
    await Promise.all([
      claude.messages.create(call("[[plain]] waited for")),
      claude.messages.create(call("[[handed]]"), { headers: { "spillway-max-wait": "120" } }),
      claude.messages.create(call("[[never]] waited for"), never).catch(() => {}),
      (async () => {
        const stream = claude.messages.stream(call("[[gone]]"));
        await new Promise((resolve) => stream.once("text", resolve));
        stream.abort();
        await stream.done().catch(() => {});
      })(),
    ]);
    await Promise.all(jobs.map((job) => spillway.untilStatus(job, ["done", "failed"])));
    await spillway.untilCalls(() => spillway.calls().every(({ outcome }) => outcome));
    const report = await eventually(async () => {
      const report = await figures(spillway);
      return sum(counted(report)) === spillway.calls().length && report;
    });
    assert.deepEqual(counted(report), asked(spillway));

    // What went to Analytics Engine adds up to the same.
    assert.deepEqual(await analysed(spillway), asked(spillway));

    const { overload_rate, exposure, fallback_rate, dwell_p95_seconds, held_dwell_p95_seconds: held } = report.figures;
    const overloaded = spillway.calls().filter(({ outcome }) => outcome.status === 529).length;
    assert.equal(overload_rate.count, overloaded);
    assert.ok(Math.abs(overload_rate.value - overloaded / overload_rate.of) < 1e-5);
    // Of eight users (six jobs, the handed-over one among them, and two calls) two have seen an error: of the job that
    // failed, and who wanted no job. Who left is none of them.
    assert.deepEqual([exposure.count, exposure.of, exposure.state, exposure.objective], [2, 8, "broken", 0.005]);
    assert.equal(report.handed_over_done, 1);
    assert.deepEqual([fallback_rate.count, fallback_rate.of, fallback_rate.state], [1, 6, "ok"]);
    // The Retry-After of [[handed]] holds those of the others that come after it.
    const heldFirst = new Set(
      spillway
        .logs("job_held")
        .map(({ job }) => job)
        .filter((job) => spillway.logs("call_started").find((call) => call.job === job).held),
    );
    assert.deepEqual([dwell_p95_seconds.of + held.of, held.of, dwell_p95_seconds.state], [6, heldFirst.size, "ok"]);
    assert.deepEqual([report.success.count, report.success.of], [5, 6]);
    assert.deepEqual(report.unfinished, { high: 0, medium: 0, low: 0 });
    const { timeline } = report;
    assert.equal(sum(timeline.submitted), 6);
    assert.equal(sum(timeline.calls.flatMap(({ values }) => values)), spillway.calls().length);
    // [[gone]] was left in the middle of its answer: the prompt is billed, and what had been written.
    assert.ok(report.tokens_lost > 0 && report.tokens > report.tokens_lost, `${report.tokens_lost}`);
    // One hour, or two if one has ended meanwhile; of all that were not given up by who waited.
    const hours = [spillway.calls()[0].started_at, Date.now()].map((at) => new Date(at).getUTCHours());
    const heard = spillway.calls().filter(({ outcome }) => !outcome.client_closed);
    assert.equal(sum(report.hours_of_day.map(({ calls }) => calls)), heard.length);
    assert.ok(report.hours_of_day.every(({ hour }) => hours.includes(hour)));
  });

  test("as text for Prometheus have the same, and every series once", async () => {
    const { status, text, headers } = await spillway.request("/v1/metrics", { as: "operator" });
    assert.equal(status, 200);
    assert.match(headers.get("content-type"), /^text\/plain; version=0\.0\.4/);
    const samples = text.split("\n").filter((line) => line && !line.startsWith("#"));
    const names = samples.map((line) => line.slice(0, line.lastIndexOf(" ")));
    assert.equal(new Set(names).size, names.length);
    const calls = samples.filter((line) => line.startsWith("spillway_calls_total{"));
    assert.equal(sum(calls.map((line) => Number(line.split(" ").at(-1)))), spillway.calls().length);
  });

  test("as text say how the gates stand and how old the oldest job is", async () => {
    const until = new Date(Date.now() + 60_000).toISOString();
    const path = `/v1/gates/${MODEL}/override`;
    const order = { state: "open", until, note: "a drill" };
    assert.equal((await spillway.request(path, { method: "PUT", as: "operator", body: order })).status, 200);
    const before = (await figures(spillway)).figures;
    const held = await spillway.accepted(submission("[[held]]"));
    await spillway.untilStatus(held, "held");
    const gauge = await eventually(async () => {
      const { text } = await spillway.request("/v1/metrics", { as: "operator" });
      const value = (name) => {
        const line = text.split("\n").find((line) => line.startsWith(`${name} `));
        return line && Number(line.slice(name.length));
      };
      return (
        value("spillway_oldest_job_age_seconds") > 0 && value('spillway_jobs_unfinished{priority="high"}') && value
      );
    });
    assert.equal(gauge(`spillway_gate_state{model="${MODEL}",state="open"}`), 1);
    assert.equal(gauge(`spillway_gate_state{model="${MODEL}",state="closed"}`), 0);
    assert.equal(gauge(`spillway_gate_held_jobs{model="${MODEL}"}`), 1);
    assert.equal(gauge(`spillway_gate_calls_in_flight{model="${MODEL}"}`), 0);
    assert.ok(gauge(`spillway_gate_calls_in_flight_limit{model="${MODEL}"}`) > 0);
    assert.equal(gauge('spillway_jobs_unfinished{priority="high"}'), 1);
    assert.equal((await spillway.request(path, { method: "DELETE", as: "operator" })).status, 200);
    // What an order has held is a wait that counts apart.
    await spillway.request(`/v1/jobs/${held}/redrive`, { method: "POST", as: "operator" });
    await spillway.untilDone(held);
    const { dwell_p95_seconds, held_dwell_p95_seconds } = await eventually(async () => {
      const report = await figures(spillway);
      return report.unfinished.high === 0 && report.figures;
    });
    assert.equal(dwell_p95_seconds.of, before.dwell_p95_seconds.of);
    assert.equal(held_dwell_p95_seconds.of, before.held_dwell_p95_seconds.of + 1);
  });

  test("are the operator's, and a wrong question says what is wrong with it", async () => {
    assert.equal((await spillway.request("/v1/metrics", { as: "app" })).status, 403);
    assert.equal((await spillway.request("/v1/metrics", { as: null })).status, 401);
    assert.equal((await spillway.request("/v1/metrics", { method: "POST", as: "operator" })).status, 405);
    const query = "format=xml&minutes=0&days=1&hours=1441&format=json";
    const { status, body } = await spillway.request(`/v1/metrics?${query}`, { as: "operator" });
    assert.equal(status, 400);
    assert.deepEqual(
      body.error.problems.map(({ place }) => place),
      ["days", "format", "format", "minutes", "hours"],
    );
  });
});

describe("what is passed through as it came", async () => {
  const hard = { consecutive_failures: 2, consecutive_seconds: 0, consecutive_hard: 2 };
  const spillway = await start({
    calls: true,
    policy: { breaker: hard, degraded: { consecutive_overloads: 1 } },
    script: {
      rules: [
        { when: { route: "count_tokens", marker: "[[full]]" }, then: { status: 529 } },
        { when: { route: "count_tokens", marker: "[[gone]]" }, then: { delay_ms: 60_000 } },
        { when: { route: "models" }, then: { status: 529 } },
      ],
    },
  });
  after(() => spillway.stop());
  const post = (path, body) => spillway.request(path, { method: "POST", body });
  const counting = (text) => {
    const { max_tokens: _, ...asked } = call(text);
    return post("/v1/messages/count_tokens", asked);
  };

  test("is in the calls and their log, its overloads are exposure, and no gate hears of it", async () => {
    assert.equal((await counting("[[counted]]")).status, 200);
    for (const answer of [await counting("[[full]]"), await counting("[[full]]"), await counting("[[full]]")]) {
      assert.deepEqual([answer.status, answer.body.error.type], [529, "overloaded_error"]);
    }
    assert.equal((await spillway.request("/v1/models")).status, 529);
    // A body that names no model, and is none.
    assert.equal((await post("/v1/messages", '{"messages": [')).status, 400);
    // Nobody has left the model for these, and its gate is closed.
    const { status, headers } = await post("/v1/messages", call("[[after]]"));
    assert.deepEqual([status, headers.get("spillway-model-used"), headers.get("spillway-attempts")], [200, MODEL, "1"]);
    const { state, degraded, history } = (await spillway.gates())[MODEL];
    assert.deepEqual([state, degraded ?? false, history], ["closed", false, []]);

    const report = await eventually(async () => {
      const report = await figures(spillway);
      return sum(counted(report)) >= spillway.calls().length && report;
    });
    assert.deepEqual(counted(report), asked(spillway));
    const { exposure, overload_rate } = report.figures;
    assert.deepEqual([exposure.count, exposure.of, overload_rate.count], [4, 7, 4]);
    assert.deepEqual(report.exposed, [{ path: "call", cause: "overloaded", users: 4 }]);
    assert.deepEqual([report.calls_per_answer.count, report.calls_per_answer.of], [1, 1]);
    const ended = spillway.logs("sync_call").map(({ kind, model, ended, cause }) => [kind, model, ended, cause]);
    const full = ["passed_through", MODEL, "passed_on", "overloaded"];
    assert.deepEqual(ended, [
      ["passed_through", MODEL, "answered", null],
      full,
      full,
      full,
      ["passed_through", "unnamed", "passed_on", "overloaded"],
      ["passed_through", "unnamed", "passed_on", "invalid_request"],
      ["default", MODEL, "answered", null],
    ]);
  });

  test("is abandoned when its caller goes away, and nobody is exposed", async () => {
    const before = (await figures(spillway)).figures.exposure;
    const headers = { "content-type": "application/json", "x-api-key": KEYS.app };
    const gone = request(`${spillway.url}/v1/messages/count_tokens`, { method: "POST", headers });
    gone.on("error", () => {});
    const { max_tokens: _, ...body } = call("[[gone]]");
    gone.end(JSON.stringify(body));
    await spillway.untilCalls(() => spillway.calls({ marker: "gone" }).length === 1);
    gone.socket.resetAndDestroy();
    await spillway.untilLog(({ event, kind }) => event === "call_abandoned" && kind === "passed_through");
    await spillway.untilCalls(() => spillway.calls({ marker: "gone" })[0].outcome?.client_closed);
    const report = await eventually(async () => {
      const report = await figures(spillway);
      return sum(counted(report)) >= spillway.calls().length && report;
    });
    assert.deepEqual(counted(report), asked(spillway));
    assert.deepEqual([report.figures.exposure.count, report.figures.exposure.of], [before.count, before.of]);
  });
});

describe("minutes are kept for 48 hours, hours for 60 days, and sums for good", async () => {
  const HOUR = 3_600_000;
  const DAY = 24 * HOUR;
  const spillway = await start({ calls: true });
  after(() => spillway.stop());
  /** At this moment of the Worker's clock: calls by the timeline of 48 hours, by single hours, and dwells by 60 days of hours. */
  const kept = async (aheadMs) => {
    await spillway.setClock(aheadMs);
    const { timeline, hours } = await figures(spillway, "&minutes=2880");
    const { figures: all, window_seconds } = await figures(spillway, "&hours=1440");
    assert.equal(window_seconds, (60 * DAY) / 1000);
    return {
      minutes: sum(timeline.calls.flatMap(({ values }) => values)),
      hours: sum(hours.calls),
      dwells: all.dwell_p95_seconds.of,
    };
  };
  const done = async (aheadMs) => {
    await spillway.setClock(aheadMs);
    const job = await spillway.accepted(submission());
    await spillway.untilDone(job);
    await eventually(async () => {
      const { text } = await spillway.request("/v1/metrics", { as: "operator" });
      return total(text, "spillway_jobs_finished_total") === spillway.calls().length;
    });
  };
  const total = (text, name) =>
    sum(
      text
        .split("\n")
        .filter((line) => line.startsWith(`${name}{`))
        .map((line) => Number(line.split(" ").at(-1))),
    );

  test("by the Meter's clock; what is over is deleted and not only hidden", async () => {
    await done(0);
    assert.deepEqual(await kept(0), { minutes: 1, hours: 1, dwells: 1 });
    await done(47 * HOUR);
    assert.deepEqual(await kept(47 * HOUR), { minutes: 2, hours: 2, dwells: 2 });
    await done(49 * HOUR);
    assert.deepEqual(await kept(49 * HOUR), { minutes: 2, hours: 3, dwells: 3 });
    // Looked at from where it was new, the first minute is gone, and its hour is there.
    assert.deepEqual(await kept(HOUR), { minutes: 0, hours: 1, dwells: 1 });
    await done(63 * DAY);
    assert.deepEqual(await kept(63 * DAY), { minutes: 1, hours: 1, dwells: 1 });
    assert.deepEqual(await kept(50 * HOUR), { minutes: 0, hours: 0, dwells: 0 });
    const { text } = await spillway.request("/v1/metrics", { as: "operator" });
    for (const name of ["spillway_calls_total", "spillway_jobs_submitted_total", "spillway_dwell_seconds_count"])
      assert.equal(total(text, name), spillway.calls().length, name);
  });
});
