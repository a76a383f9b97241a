/**
 * The rate towards a model (B9): the operator's, and the upstream's own as its headers tell it; and who goes first when
 * there is not enough for all. When each call began is told by the fake's log.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { MODEL, start, submission } from "./harness.mjs";

/** A gate grants, and its call begins a moment later: the one before may have taken longer. */
const SLACK_MS = 250;

async function own(test, options) {
  const spillway = await start(options);
  test.after(() => spillway.stop());
  return spillway;
}

const starts = (calls) => calls.map(({ started_at }) => started_at).toSorted((a, b) => a - b);
const statuses = (calls) => [...new Set(calls.map(({ outcome }) => outcome?.status))];
const heldFor = (spillway, reason) => spillway.logs("job_held").filter((line) => line.reason === reason);

/** Submits so many at once. */
const burst = (spillway, count, fields) =>
  Promise.all(Array.from({ length: count }, (_, n) => spillway.accepted(submission(`[[job-${n}]]`, fields))));

async function allDone(spillway, ids) {
  const jobs = await Promise.all(ids.map((id) => spillway.untilDone(id)));
  for (const { attempts, calls } of jobs) assert.deepEqual([attempts, calls], [0, 1], "to wait costs nothing");
  return jobs;
}

/** An answer's headers for one limit, which is full again in so many seconds. */
function limit(kind, size, remaining, seconds) {
  const reset = new Date(Math.ceil(Date.now() / 1000) * 1000 + seconds * 1000).toISOString().replace(".000Z", "Z");
  const name = `anthropic-ratelimit-${kind}`;
  return { [`${name}-limit`]: `${size}`, [`${name}-remaining`]: `${remaining}`, [`${name}-reset`]: reset };
}

describe("the rate", { concurrency: 3 }, () => {
  test("calls_per_minute and burst: so many at once, the others one by one, and each says that it is paced", async (t) => {
    const spillway = await own(t, { policy: { pace: { calls_per_minute: 10, burst: 2 } } });
    const ids = await burst(spillway, 5);
    const held = await Promise.all(ids.map((id) => spillway.untilStatus(id, ["held", "done"])));
    for (const { attempts } of held) assert.equal(attempts, 0);
    const paced = held.filter(({ status }) => status === "held");
    assert.ok(paced.length >= 3, `${paced.length} held`);
    for (const { waiting } of paced) {
      assert.equal(waiting.reason, "pacing");
      assert.ok(waiting.next_check_seconds >= 1 && waiting.next_check_seconds <= 20, `${waiting.next_check_seconds}`);
      assert.ok(waiting.eta_seconds >= 1, "the gate is closed: it can say when");
    }
    await allDone(spillway, ids);
    const began = starts(spillway.calls());
    assert.equal(began.length, 5);
    const since = began.map((at) => at - began[0]);
    // Two at once, and one for each six seconds that have passed.
    since.forEach((ms, n) => assert.ok(ms >= (n - 1) * 6000 - 3000, `call ${n + 1} after ${ms} ms`));
    assert.ok(since.at(-1) < 60_000, `the last after ${since.at(-1)} ms`);
    t.diagnostic(`printed: five calls at 10 a minute, two at once: after ${since.join(", ")} ms`);
  });

  test("an upstream that lets 12 a minute through is never asked for more: no call gets a 429", async (t) => {
    const spillway = await own(t, { script: { rate_limits: { "*": { requests_per_minute: 12 } } } });
    const ids = await burst(spillway, 17);
    await allDone(spillway, ids);
    const calls = spillway.calls();
    assert.equal(calls.length, 17);
    assert.deepEqual(statuses(calls), [200]);
    assert.ok(heldFor(spillway, "pacing").length >= 1);
    const began = starts(calls);
    const last = began.at(-1) - began[0];
    assert.ok(last >= 5 * 5000 - 5000, `the five beyond its minute came within ${last} ms`);
    assert.ok(last < 90_000, `${last} ms`);
    t.diagnostic(`printed: 17 calls against 12 a minute took ${(last / 1000).toFixed(1)} s, and met no 429`);
  });

  for (const [kind, size, seconds, least] of [
    ["requests", 20, 150, 7500],
    ["input-tokens", 300, 150, 5000],
    ["output-tokens", 300, 150, 5000],
    ["tokens", 600, 150, 5000],
  ]) {
    test(`headers that say that no ${kind} are left hold the next job until there are, and it alone`, async (t) => {
      const spillway = await own(t);
      const headers = limit(kind, size, 0, seconds);
      await spillway.fake.setScript({ rules: [{ when: { call: 1 }, then: { headers } }] });
      await spillway.untilDone(await spillway.accepted(submission("[[first]]")));
      const next = await spillway.accepted(submission("[[next]]"));
      const { waiting, calls } = await spillway.untilStatus(next, "held");
      assert.deepEqual([waiting.reason, calls], ["pacing", 0]);
      const { pace } = (await spillway.gates())[MODEL];
      const named = pace.limits.find(({ of }) => of === kind.replace("-", "_"));
      assert.equal(named.limit, size);
      assert.ok(named.remaining < size / 2, JSON.stringify(pace));
      assert.ok(pace.next_call_seconds === null || pace.next_call_seconds <= 10, JSON.stringify(pace));
      await allDone(spillway, [next]);
      const [first, second] = spillway.calls();
      const between = second.started_at - first.started_at;
      assert.ok(between >= least - SLACK_MS && between < 60_000, `${between} ms`);
      const held = heldFor(spillway, "pacing").length;
      // The answer to that one says that there is plenty: nobody waits for what is over.
      await allDone(spillway, [await spillway.accepted(submission("[[after]]"))]);
      assert.equal(spillway.calls().length, 3);
      assert.equal(spillway.logs("job_held").length, held, "and nothing else was held, for any reason");
    });
  }

  test("an upstream with plenty left costs no wait", async (t) => {
    const spillway = await own(t);
    await allDone(spillway, await burst(spillway, 30));
    assert.deepEqual(heldFor(spillway, "pacing"), []);
    const { pace } = (await spillway.gates())[MODEL];
    assert.equal(pace.next_call_seconds, null);
    assert.equal(pace.limits.find(({ of }) => of === "requests").limit, 4000);
  });
});

describe("the ramp", async () => {
  test("an acceleration 429 makes it four times as flat, and costs neither an attempt nor the model", async (t) => {
    const after429 = (marker, error) => ({
      when: { marker: `[[${marker}-1]]`, prompt_call: 1 },
      then: { error, retry_after: 1 },
    });
    const spillway = await own(t, {
      policy: { pace: { start_in_flight: 1 } },
      script: { rules: [after429("steep", "acceleration"), after429("usual", "rate_limit")] },
    });
    const limits = async (marker) => {
      const model = `claude-${marker}`;
      const limits = [];
      for (let n = 1; n <= 8; n += 1) {
        // The first is one that would leave its model for an overload.
        const fields = n === 1 ? { kind: "tagging", priority: "medium" } : {};
        const id = await spillway.accepted(submission(`[[${marker}-${n}]]`, { request: { model }, ...fields }));
        const { attempts, downgraded } = await spillway.untilDone(id);
        assert.deepEqual([attempts, downgraded], [0, false], `${marker}-${n}`);
        limits.push((await spillway.gates())[model].in_flight_limit);
      }
      assert.deepEqual(new Set(spillway.calls({ model }).map(({ model }) => model)), new Set([model]));
      assert.equal(spillway.calls({ model }).length, 9);
      return limits;
    };
    const [steep, usual] = await Promise.all(["steep", "usual"].map(limits));
    assert.deepEqual(steep, [1, 1, 1, 1, 1, 1, 1, 2], "two windows of one, each four times as long");
    assert.ok(usual[0] > 1 && usual[1] >= 3, `by each answer: ${usual}`);
    const [failed] = spillway.logs("call_failed").filter(({ cause }) => cause === "acceleration");
    assert.equal(failed.model, "claude-steep");
    assert.deepEqual(
      spillway.calls().filter(({ model }) => model.includes("haiku")),
      [],
    );
  });
});

describe("shares", { concurrency: 2 }, () => {
  test("a burst of low jobs fills the gate, and a high job is called at once all the same", async (t) => {
    const spillway = await own(t, {
      policy: { pace: { start_in_flight: 2 } },
      script: { rules: [{ when: { marker: "[[job-" }, then: { delay_ms: 15_000 } }] },
    });
    const low = await burst(spillway, 6, { priority: "low" });
    await spillway.untilCalls((calls) => calls.filter(({ outcome }) => !outcome).length === 2);
    await spillway.untilLog(({ event, reason }) => event === "job_held" && reason === "in_flight_limit");
    assert.equal(spillway.calls().length, 2, "there is room for no third low one");

    const high = await spillway.accepted(submission("[[high]]"));
    await allDone(spillway, [high]);
    // Its answer makes room for more.
    const [{ started_at: began }] = spillway.calls({ marker: "high" });
    const others = spillway.calls().filter(({ marker, started_at }) => marker !== "high" && started_at < began);
    assert.equal(others.length, 2);
    assert.ok(
      others.every(({ outcome }) => outcome === null),
      "both low calls were still on their way",
    );
    await spillway.fake.setScript({});
    await allDone(spillway, low);
  });
});

describe("GET /v1/gates", { concurrency: 2 }, () => {
  test("shows the pace that was asked for, what is learnt of the upstream's, and the hours", async (t) => {
    const spillway = await own(t, {
      policy: { pace: { calls_per_minute: 600, burst: 50 } },
      script: {
        rules: [
          { when: { call: "2-3" }, then: { status: 529 } },
          { when: { marker: "[[fails]]", prompt_call: 1 }, then: { status: 500 } },
        ],
      },
    });
    const none = (await spillway.gates())[MODEL];
    assert.deepEqual(
      { ...none.pace, limits: none.pace.limits.length },
      { calls_per_minute: 600, interval_ms: 100, next_call_seconds: null, mean_use: null, limits: 0 },
    );
    assert.equal(none.hours.by_hour.length, 24);
    assert.ok(none.hours.by_hour.every(({ calls, overloads, peak }) => calls === 0 && overloads === 0 && !peak));
    assert.deepEqual(none.hours.last_24_hours, []);

    const hours = new Set([new Date().getUTCHours()]);
    for (const marker of ["fine", "overloaded", "fails"]) {
      await spillway.untilDone(await spillway.accepted(submission(`[[${marker}]]`)));
    }
    hours.add(new Date().getUTCHours());
    const calls = spillway.calls();
    assert.deepEqual(
      calls.map(({ outcome }) => outcome.status),
      [200, 529, 529, 200, 500, 200],
    );
    const { pace, hours: seen } = (await spillway.gates())[MODEL];
    const sum = (name) => [...hours].reduce((sum, hour) => sum + seen.by_hour[hour][name], 0);
    assert.deepEqual([sum("calls"), sum("overloads")], [6, 2]);
    assert.ok(
      seen.by_hour.every(({ peak }) => !peak),
      "six calls are too few to tell",
    );
    assert.deepEqual(seen.last_24_hours.map(({ cause, count }) => [cause, count]).toSorted(), [
      ["overloaded", 2],
      ["server_error", 1],
    ]);
    assert.ok(pace.mean_use.input_tokens > 0 && pace.mean_use.output_tokens > 0, JSON.stringify(pace));
    assert.deepEqual(
      pace.limits.map(({ of }) => of),
      ["requests", "tokens", "input_tokens", "output_tokens"],
    );
  });

  test("an hour that is overloaded in one of twenty calls, of fifty, is a peak hour: one overload is enough to leave", async (t) => {
    const spillway = await own(t, {
      // The hour is its own evidence: nothing else may be a reason.
      policy: {
        pace: { start_in_flight: 50 },
        breaker: { consecutive_hard: 100 },
        degraded: { consecutive_overloads: 100 },
      },
    });
    // All of it has to fall into one hour.
    const left = 3_600_000 - (Date.now() % 3_600_000);
    if (left < 60_000) await sleep(left);
    await allDone(spillway, await burst(spillway, 50));
    const model = async (marker) => {
      const body = submission(`[[${marker}]]`, { kind: "tagging", priority: "medium" });
      await spillway.untilDone(await spillway.accepted(body));
      return spillway.calls({ marker }).map((call) => call.model);
    };
    const fallback = "claude-haiku-5-5";
    await spillway.fake.setScript({ rules: [{ when: { model: MODEL }, then: { status: 529 } }] });
    assert.deepEqual(await model("overload-1"), [MODEL, MODEL, fallback]);
    // The third of 53 is the first beyond five percent.
    assert.deepEqual(await model("overload-2"), [MODEL, fallback]);
    const hour = new Date().getUTCHours();
    assert.equal((await spillway.gates())[MODEL].hours.by_hour[hour].peak, true);
  });
});
