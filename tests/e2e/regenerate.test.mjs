/**
 * A job that another model answered, or that failed, is done again on the model that was asked for and no other (A9): as a
 * job of its own, and one only, however often it is asked for.
 */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { envelope, MODEL, start, submission } from "./harness.mjs";

const FALLBACK = "claude-haiku-5-5";

async function own(test, options) {
  const spillway = await start(options);
  test.after(() => spillway.stop());
  return spillway;
}

const regenerate = (spillway, id, { as = "app", method = "POST", ...options } = {}) =>
  spillway.request(`/v1/jobs/${id}/regenerate`, { method, as, ...options });

/** The receipt of the job that does it again. */
async function regenerated(spillway, id, options) {
  const { status, body, text } = await regenerate(spillway, id, options);
  assert.equal(status, 202, text);
  return body;
}

/** A low job of a kind that may have the fallback is answered by it straight away: no overload is needed. */
const downgraded = (text, fields) => submission(text, { kind: "tagging", priority: "low", ...fields });

describe("a job is done again", { concurrency: 4 }, async () => {
  const spillway = await start({
    policy: { max_attempts: 1 },
    script: {
      rules: [
        { when: { marker: "[[failed]]", prompt_call: 1 }, then: { error: "invalid_request" } },
        { when: { marker: "[[stalls]]" }, then: { status: 500 } },
        { when: { marker: "[[exhausted]]", prompt_call: 1 }, then: { status: 500 } },
        { when: { marker: "[[declined]]", prompt_call: 1 }, then: { status: 500 } },
        { when: { marker: "[[running]]" }, then: { delay_ms: 3000 } },
      ],
    },
  });
  after(() => spillway.stop());
  const models = (marker) => spillway.calls({ marker }).map(({ model }) => model);

  async function answeredByFallback(marker, fields) {
    const id = await spillway.accepted(downgraded(`[[${marker}]]`, fields));
    const done = await spillway.untilDone(id);
    assert.deepEqual([done.model_used, done.message.code], [FALLBACK, "downgraded"]);
    return done;
  }

  test("that was downgraded: by the first choice, with the same request, as a job that says which it regenerates", async () => {
    const fields = { metadata: { order: 17 }, request: { stop_sequences: ["no"], system: "Be brief." } };
    const old = await answeredByFallback("downgraded", fields);
    const { status, headers, body: receipt } = await regenerate(spillway, old.id);
    assert.equal(status, 202);
    assert.match(receipt.id, /^job_[0-9a-f]{32}$/);
    assert.notEqual(receipt.id, old.id);
    assert.equal(receipt.status_url, `${spillway.url}/v1/jobs/${receipt.id}`);
    assert.equal(headers.get("location"), receipt.status_url);
    assert.deepEqual([receipt.status, receipt.message.code], ["received", "received"]);

    const done = await spillway.untilDone(receipt.id);
    assert.deepEqual(models("downgraded"), [FALLBACK, MODEL]);
    assert.deepEqual(
      [done.regenerates, done.model_requested, done.model_used, done.downgraded, done.message.code],
      [old.id, MODEL, MODEL, false, "done"],
    );
    assert.deepEqual([done.kind, done.priority, done.metadata], [old.kind, old.priority, fields.metadata]);
    const [first, second] = spillway.calls({ marker: "downgraded" }).map(({ body }) => JSON.parse(body));
    assert.deepEqual({ ...second, model: FALLBACK }, first);
    assert.deepEqual((await spillway.job(old.id)).body, old, "the old one stays as it is");
    assert.equal(old.regenerates, undefined);
  });

  test("twice, one after the other and at the same time: the same job, and one call", async () => {
    const { id } = await answeredByFallback("twice");
    const all = await Promise.all([1, 2, 3, 4, 5].map(() => regenerated(spillway, id)));
    const again = all[0].id;
    await spillway.untilDone(again);
    all.push(await regenerated(spillway, id));
    assert.deepEqual([...new Set(all.map((receipt) => receipt.id))], [again]);
    assert.equal(all.at(-1).status, "done", "the receipt says where it stands");
    assert.deepEqual(models("twice"), [FALLBACK, MODEL]);
    const logged = spillway.logs("job_submitted").filter(({ job }) => job === again);
    assert.deepEqual(logged.map(({ replayed }) => replayed).sort(), [false, true, true, true, true, true]);
  });

  test("again, after the job that did it again was taken back: another one", async () => {
    const { id } = await answeredByFallback("taken-back");
    const first = (await regenerated(spillway, id)).id;
    await spillway.untilDone(first);
    assert.equal((await spillway.cancel(first)).status, 204);
    const second = (await regenerated(spillway, id)).id;
    assert.notEqual(second, first);
    await spillway.untilDone(second);
    assert.equal((await regenerated(spillway, id)).id, second);
    assert.deepEqual(models("taken-back"), [FALLBACK, MODEL, MODEL]);
  });

  test("that failed: refused, exhausted, or not allowed to wait", async () => {
    for (const [marker, fields, reason] of [
      ["failed", {}, "invalid_request"],
      ["exhausted", { when_exhausted: "fail" }, "attempts_exhausted"],
      ["declined", {}, "deferral_declined"],
    ]) {
      const id = await spillway.accepted(submission(`[[${marker}]]`, fields));
      if (marker === "declined") {
        await spillway.untilStatus(id, "stalled");
        await spillway.request(`/v1/jobs/${id}/deferral`, { method: "POST", body: { accept: false } });
      }
      assert.equal((await spillway.untilStatus(id, "failed")).reason, reason);
      const done = await spillway.untilDone((await regenerated(spillway, id)).id);
      assert.deepEqual([done.regenerates, done.model_used, done.attempts], [id, MODEL, 0]);
      assert.deepEqual(models(marker), [MODEL, MODEL]);
    }
  });

  test("is a 409 where there is nothing to do better: answered as asked, still at work, or taken back", async () => {
    const jobs = {
      done: await spillway.accepted(submission("[[fine]]")),
      generating: await spillway.accepted(submission("[[running]]", { priority: "medium" })),
      stalled: await spillway.accepted(submission("[[stalls]]", { request: { model: "claude-stalls" } })),
    };
    for (const [status, id] of Object.entries(jobs)) await spillway.untilStatus(id, status);
    jobs.regenerated = (await regenerated(spillway, (await answeredByFallback("chain")).id)).id;
    await spillway.untilDone(jobs.regenerated);
    for (const [what, id] of Object.entries(jobs)) {
      const { status, body } = await regenerate(spillway, id);
      assert.deepEqual([status, body.error.type], [409, "conflict_error"], what);
    }
    assert.equal(spillway.calls({ marker: "fine" }).length, 1);
    for (const id of [jobs.generating, jobs.stalled]) await spillway.cancel(id);
  });

  test("is a 404 where there is no such job, or it is somebody else's or erased; without a key a 401", async () => {
    for (const id of [`job_${"0".repeat(32)}`, "job_1"]) assert.equal((await regenerate(spillway, id)).status, 404, id);
    const { id } = await answeredByFallback("mine");
    assert.equal((await regenerate(spillway, id, { as: "web" })).status, 404);
    assert.equal((await regenerate(spillway, id, { as: null })).status, 401);
    const get = await regenerate(spillway, id, { method: "GET" });
    assert.deepEqual([get.status, get.headers.get("allow")], [405, "POST"]);

    await spillway.cancel(id);
    assert.equal((await regenerate(spillway, id)).status, 404, "erased");
    const taken = await spillway.accepted(submission("[[running]]", { priority: "low" }));
    await spillway.cancel(taken);
    assert.equal((await regenerate(spillway, taken)).status, 409, "there is nothing left to do again"); // it still has a status
    assert.deepEqual(models("mine"), [FALLBACK]);
  });

  test("for the operator it stays its client's, and outlives the job that it regenerates", async () => {
    const { id } = await answeredByFallback("operator");
    const again = await regenerated(spillway, id, { as: "operator" });
    await spillway.cancel(id);
    const done = await spillway.untilDone(again.id);
    assert.equal(done.regenerates, id);
    assert.equal((await spillway.job(again.id, { client: "web" })).status, 404);
    assert.equal((await regenerate(spillway, id)).status, 404);
  });
});

describe("a job that is done again", { concurrency: 3 }, () => {
  test("never goes to the fallback, though its kind may and its primary is overloaded; and waits for no off-peak", async (t) => {
    const hour = (ahead) => (new Date().getUTCHours() + ahead) % 24;
    const spillway = await own(t, {
      policy: { hours: { peak_utc: "0-24", off_peak_utc: `${hour(2)}-${hour(3)}` } },
    });
    const id = await spillway.accepted(downgraded("[[again]]"));
    await spillway.untilDone(id);
    await spillway.fake.setScript({ rules: [{ when: { call: "1-2" }, then: { status: 529 } }] });
    const done = await spillway.untilDone((await regenerated(spillway, id)).id);
    assert.deepEqual(
      spillway.calls().map(({ model }) => model),
      [FALLBACK, MODEL, MODEL, MODEL],
    );
    assert.deepEqual([done.attempts, done.downgraded], [1, false]);
  });

  test("is the same job although the first answer was lost on its way, or it could not be stored", async (t) => {
    for (const how of ["refuse", "lost_answer"]) {
      const spillway = await own(t);
      const id = await spillway.accepted(downgraded("[[lost]]"));
      await spillway.untilDone(id);
      await spillway.fault({ binding: "job", operation: "create", how, times: 1 });
      const lost = await regenerate(spillway, id);
      assert.equal(lost.status, 503);
      assert.ok(Number(lost.headers.get("retry-after")) >= 1);
      const again = await regenerated(spillway, id);
      assert.equal((await spillway.untilDone(again.id)).regenerates, id);
      assert.equal((await regenerated(spillway, id)).id, again.id);
      assert.deepEqual(
        spillway.calls().map(({ model }) => model),
        [FALLBACK, MODEL],
        how,
      );
    }
  });

  test("has a request of several rows, byte for byte", async (t) => {
    const spillway = await own(t, { script: { check_context: false } });
    await spillway.fault({ binding: "queue", how: "lose" });
    // Too long for any other model: this one fails instead.
    const request = {
      model: "claude-gone",
      messages: [{ role: "user", content: `[[rows]] ${"é€🎈 ".repeat(400_000)}` }],
    };
    await spillway.fake.setScript({
      check_context: false,
      rules: [{ when: { call: 1 }, then: { error: "not_found" } }],
    });
    const id = await spillway.accepted(submission("", { request }));
    await spillway.deliver("high", envelope(id));
    const again = await regenerated(spillway, id);
    await spillway.deliver("high", envelope(again.id));
    assert.equal((await spillway.job(again.id)).body.status, "done");
    const [first, second] = spillway.calls();
    assert.ok(first.body_bytes > 3_000_000, `${first.body_bytes}`);
    assert.equal(second.body_sha256, first.body_sha256);
  });
});
