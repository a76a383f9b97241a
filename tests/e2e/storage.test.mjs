/**
 * KV, the queues and the objects fail one at a time: a receipt stays true, a finished job stays readable, and nothing is
 * called twice. The slow ones wait for one turn of the outbox (10 s), so they all run side by side.
 */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { eventually, start, submission } from "./harness.mjs";

/** A worker for this test alone: faults are for all of a worker's jobs. */
async function own(test, options) {
  const spillway = await start(options);
  test.after(() => spillway.stop());
  return spillway;
}

describe("storage out of order", { concurrency: 6 }, () => {
  test("a job is done although KV refuses it, and is published when KV takes it again", async (t) => {
    const spillway = await own(t);
    await spillway.fault({ binding: "kv", operation: "put", how: "refuse" });
    const id = await spillway.accepted(submission("[[unpublished]]"));
    const done = await spillway.untilDone(id);
    await eventually(async () => (await spillway.struck())[0] > 0, { what: "a refused write" });
    assert.equal(await spillway.stored(`job:${id}`), null);
    assert.deepEqual((await spillway.job(id)).body, done);
    await spillway.fault();
    const kept = await eventually(() => spillway.stored(`job:${id}`), { what: "the job in KV" });
    const { message, ...rest } = done;
    assert.deepEqual([{ ...kept.head, ...kept.body }, kept.wording], [rest, message.code]);
    assert.equal(spillway.calls({ marker: "unpublished" }).length, 1);
    assert.ok(spillway.logs("trouble").length > 0, "it is logged");
  });

  test("a write to KV whose answer is lost is done again, and changes nothing", async (t) => {
    const spillway = await own(t);
    await spillway.fault({ binding: "kv", operation: "put", key: "job:", how: "lost_answer", times: 1 });
    const id = await spillway.accepted(submission("[[lost write]]"));
    const done = await spillway.untilDone(id);
    await eventually(() => spillway.stored(`job:${id}`), { what: "the job in KV" });
    assert.deepEqual((await spillway.job(id)).body, done);
    assert.equal(spillway.calls({ marker: "lost write" }).length, 1);
  });

  test("a KV that does not answer holds nobody up for longer than its patience", async (t) => {
    const spillway = await own(t);
    const id = await spillway.accepted(submission("[[hanging]]"));
    await spillway.untilDone(id);
    await spillway.fault({ binding: "kv", how: "hang" });
    const reading = spillway.job(id);
    // The way of another job does not need KV at all.
    await spillway.accepted(submission("[[beside]]"));
    await spillway.untilLog(({ event, job, status }) => event === "job_finished" && job !== id && status === "done");
    const { status, body } = await reading;
    assert.deepEqual([status, body.status], [200, "done"]);
  });

  test("the receipt is true although the queue refuses the job: it is sent later", async (t) => {
    const spillway = await own(t);
    await spillway.fault({ binding: "queue", key: "QUEUE_HIGH", how: "refuse", times: 1 });
    const id = await spillway.accepted(submission("[[unsent]]"));
    assert.deepEqual(await spillway.struck(), [1]);
    assert.equal((await spillway.job(id)).body.status, "received");
    await spillway.untilDone(id);
    assert.equal(spillway.calls({ marker: "unsent" }).length, 1);
  });

  test("a send whose answer is lost is two messages and one call", async (t) => {
    const spillway = await own(t);
    await spillway.fault({ binding: "queue", how: "lost_answer", times: 1 });
    const id = await spillway.accepted(submission("[[sent twice]]"));
    await spillway.untilDone(id);
    assert.equal(spillway.calls({ marker: "sent twice" }).length, 1);
  });

  test("a message that the queue loses is missed by the job's watchdog, and sent again", async (t) => {
    const spillway = await own(t, { policy: { watchdog_seconds: 1 } });
    await spillway.fault({ binding: "queue", how: "lose", times: 2 });
    const id = await spillway.accepted(submission("[[lost]]"));
    await spillway.untilDone(id);
    assert.deepEqual(await spillway.struck(), [2]);
    assert.equal(spillway.calls({ marker: "lost" }).length, 1);
  });

  test("a queue that is slow to take a message does not hold up the receipt", async (t) => {
    const spillway = await own(t);
    await spillway.fault({ binding: "queue", how: "slow", ms: 10_000 });
    const began = Date.now();
    const id = await spillway.accepted(submission("[[slow queue]]"));
    const took = Date.now() - began;
    assert.ok(took < 9000, `${took} ms`);
    await spillway.untilDone(id);
    assert.equal(spillway.calls({ marker: "slow queue" }).length, 1);
  });
  test("a finished job is read from KV although its object is out of reach; an unfinished one is a 503", async (t) => {
    const spillway = await own(t, { script: { rules: [{ when: { marker: "[[hang]]" }, then: { fault: "hang" } }] } });
    const id = await spillway.accepted(submission("[[kept]]"));
    const done = await spillway.untilDone(id);
    const running = await spillway.accepted(submission("[[hang]]"));
    await eventually(() => spillway.stored(`job:${id}`), { what: "the job in KV" });
    for (const how of ["refuse", "overloaded"]) {
      await spillway.fault({ binding: "job", operation: "status", how });
      for (const options of [{}, { wait: 5 }, { client: "operator" }]) {
        const { status, body } = await spillway.job(id, options);
        assert.equal(status, 200);
        const { operator, ...rest } = body;
        assert.deepEqual(rest, done);
        assert.equal(operator?.client, options.client && "app", "the operator's part is the operator's");
      }
      assert.equal((await spillway.job(id, { client: "web" })).status, 404, "KV knows whose it is");
      const answer = await spillway.job(running);
      assert.equal(answer.status, 503);
      assert.equal(answer.body.error.type, "api_error");
      assert.ok(Number(answer.headers.get("retry-after")) >= 1);
      assert.equal(answer.headers.get("cache-control"), "no-store");
    }
    await spillway.fault();
    assert.equal((await spillway.job(running)).body.status, "generating");
  });

  test("a finished job is read from its object although KV refuses reads, or holds rubbish", async (t) => {
    const spillway = await own(t);
    const id = await spillway.accepted(submission("[[unread]]"));
    const done = await spillway.untilDone(id);
    await eventually(() => spillway.stored(`job:${id}`), { what: "the job in KV" });
    await spillway.fault({ binding: "kv", operation: "get", how: "refuse" });
    assert.deepEqual((await spillway.job(id)).body, done);
    assert.ok((await spillway.struck())[0] >= 1);
    await spillway.fault();
    const results = await spillway.worker.mf.getKVNamespace("RESULTS");
    for (const rubbish of ["", "rubbish", "null", "{}", '{"v":99}', "[".repeat(10_000)]) {
      await results.put(`job:${id}`, rubbish);
      const { status, body } = await spillway.job(id);
      assert.deepEqual([status, body], [200, done], rubbish.slice(0, 20));
    }
  });

  test("a Job object that stores nothing makes the submission a 503, and no job", async (t) => {
    const spillway = await own(t);
    for (const how of ["refuse", "overloaded"]) {
      await spillway.fault({ binding: "job", operation: "create", how });
      const answer = await spillway.submit(submission("[[unstored]]"));
      assert.equal(answer.status, 503);
      assert.equal(answer.body.error.type, "api_error");
      assert.ok(Number(answer.headers.get("retry-after")) >= 1);
    }
    await spillway.fault();
    await spillway.untilDone(await spillway.accepted(submission("[[stored]]")));
    assert.deepEqual(spillway.calls({ marker: "unstored" }), []);
  });

  test("a gate that does not answer is an entry of the operator's list, not the end of it", async (t) => {
    const spillway = await own(t);
    await spillway.untilDone(await spillway.accepted(submission("known", { request: { model: "claude-opus-5-5" } })));
    await eventually(() => spillway.stored("gate:claude-opus-5-5").catch(() => true), { what: "the gate's name" });
    const { body } = await spillway.request("/v1/gates", { as: "operator" });
    assert.deepEqual(Object.keys(body.gates).sort(), ["claude-haiku-5-5", "claude-opus-5-5", "claude-sonnet-5-5"]);
    await spillway.fault({ binding: "gate", how: "refuse", key: "claude-opus-5-5" });
    const { status, body: partial } = await spillway.request("/v1/gates", { as: "operator" });
    assert.equal(status, 200);
    assert.equal(typeof partial.gates["claude-opus-5-5"].error, "string");
    assert.equal(partial.gates["claude-sonnet-5-5"].state, "closed");
    // What KV has said is remembered for a minute; after that the two configured models are what is known without it.
    await spillway.fault({ binding: "kv", operation: "list", how: "refuse" });
    for (const [aheadMs, models] of [
      [0, ["claude-haiku-5-5", "claude-opus-5-5", "claude-sonnet-5-5"]],
      [61_000, ["claude-haiku-5-5", "claude-sonnet-5-5"]],
    ]) {
      await spillway.setClock(aheadMs);
      const { status, body: known } = await spillway.request("/v1/gates", { as: "operator" });
      assert.equal(status, 200);
      assert.deepEqual(Object.keys(known.gates).sort(), models);
    }
  });
});
