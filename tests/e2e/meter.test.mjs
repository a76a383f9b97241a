/** The way of the figures to the Meter, when it does not answer, refuses, or has taken what nobody has heard that it took. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { analysed, asked, counted, figures, sum } from "./figures.mjs";
import { eventually, MODEL, start, submission } from "./harness.mjs";

const RULES = [
  { when: { marker: "[[once]]", prompt_call: 1 }, then: { status: 529 } },
  { when: { marker: "[[never]]" }, then: { status: 529 } },
];

async function own(t) {
  const policy = { max_attempts: 1, breaker: { consecutive_failures: 50, consecutive_hard: 50 } };
  const spillway = await start({ calls: true, policy, script: { rules: RULES } });
  t.after(() => spillway.stop());
  return spillway;
}

const call = (text, model = MODEL) => ({ model, max_tokens: 20, messages: [{ role: "user", content: text }] });

/** The figures, as soon as all calls of the fake's log are in them. */
const complete = (spillway) =>
  eventually(async () => {
    const report = await figures(spillway);
    return sum(counted(report)) >= spillway.calls().length && report;
  });

describe("what the Meter is told", { concurrency: true }, () => {
  test("counts once, though its answer was lost and it is told again", async (t) => {
    const spillway = await own(t);
    const done = async (text, fields) => {
      const job = await spillway.accepted(submission(text, { when_exhausted: "fail", ...fields }));
      await spillway.untilStatus(job, ["done", "failed"]);
    };
    await spillway.fault({ binding: "meter", operation: "take", how: "lost_answer", times: 4 });
    await done("[[once]]");
    await done("[[never]]");
    // Who reads insists; and what happens between two tellings of the same is not lost with it.
    await eventually(async () => {
      await done("[[between]]");
      await figures(spillway);
      return (await spillway.struck())[0] === 4;
    });
    await done("[[after]]");
    const report = await complete(spillway);
    assert.deepEqual(counted(report), asked(spillway));
    assert.deepEqual(await analysed(spillway), asked(spillway));
    assert.deepEqual(report.unfinished, { high: 0, medium: 0, low: 0 });
    const jobs = spillway.logs("job_finished").length;
    assert.deepEqual([report.figures.exposure.count, report.figures.exposure.of], [1, jobs]);
    assert.equal(sum(report.timeline.finished), jobs);
  });

  for (const how of ["hang", "refuse", "hang_after"])
    test(`that answers with "${how}", keeps no job and no call waiting each time, and all is told later`, async (t) => {
      const spillway = await own(t);
      await spillway.fault({ binding: "meter", operation: "take", how });
      const jobs = 30;
      for (let n = 0; n < jobs; n += 1) {
        const job = await spillway.accepted(submission(`[[job-${n}]]`));
        const asked = { method: "POST", body: call(`[[call-${n}]]`) };
        assert.equal((await spillway.request("/v1/messages", asked)).status, 200);
        await spillway.untilDone(job);
      }
      // Each job is a batch, and each batch would wait for it.
      const [struck] = await spillway.struck();
      assert.ok(struck > 0 && struck < jobs, `asked ${struck} times`);
      await spillway.fault();
      const report = await complete(spillway);
      assert.deepEqual(counted(report), asked(spillway));
      assert.deepEqual([report.success.count, report.success.of], [jobs, jobs]);
      assert.equal(report.figures.exposure.of, 2 * jobs);
    });

  test("goes to Analytics Engine to the last series, though one invocation may not write all of them", async (t) => {
    const spillway = await own(t);
    // The Meter is left alone for a while, so that all of it is one telling's.
    await spillway.fault({ binding: "meter", operation: "take", how: "refuse", times: 1 });
    await figures(spillway);
    const models = Array.from({ length: 100 }, (_, n) => `unknown-${n}`);
    await Promise.all(
      models.map(async (model) => {
        const { status } = await spillway.request("/v1/messages", { method: "POST", body: call("[[one]]", model) });
        assert.equal(status, 404);
      }),
    );
    assert.deepEqual(counted(await complete(spillway)), asked(spillway));
    await eventually(async () => {
      await figures(spillway);
      return sum(await analysed(spillway)) >= models.length;
    });
    assert.deepEqual(await analysed(spillway), asked(spillway));
  });

  test("is counted as other, past five thousand series, and in every figure all the same", async (t) => {
    const spillway = await own(t);
    const meters = await spillway.worker.mf.getDurableObjectNamespace("METER");
    const counts = Object.fromEntries(
      Array.from({ length: 5_000 }, (_, n) => [`spillway_calls_total{model="claude-${n}",cause="not_found"}`, 1]),
    );
    const body = JSON.stringify({ from: "test", batches: [{ number: 1, counts }], origin: null });
    const told = await meters.get(meters.idFromName("meter")).fetch("https://meter/take", { method: "POST", body });
    assert.equal(told.status, 200, await told.text());

    const done = await spillway.accepted(submission("[[new]]", { request: { model: "claude-new" }, kind: "tagging" }));
    await spillway.untilDone(done);
    const { status } = await spillway.request("/v1/messages", { method: "POST", body: call("[[one]]", "unknown-1") });
    assert.equal(status, 404);
    const others = ({ calls }) =>
      calls.filter(({ model }) => model === "other").map(({ cause, calls }) => `${calls} ${cause}`);
    const report = await eventually(async () => {
      const report = await figures(spillway);
      return others(report).length >= 2 && report;
    });
    assert.deepEqual(others(report).toSorted(), ["1 answered", "1 not_found"]);
    assert.equal(report.figures.overload_rate.of, 5_002);
    const text = (await spillway.request("/v1/metrics", { as: "operator" })).text;
    assert.match(text, /spillway_jobs_finished_total\{kind="other",priority="high",status="done"\} 1/);
    assert.ok(!/_total\{[^}]*(claude-new|unknown-1)/.test(text));
  });
});
