/**
 * GET /v1/jobs: a client that has forgotten everything, as after a reinstall, finds its jobs again. Whatever becomes of the
 * index, no job is lost by it, and none shown to others.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { eventually, start, startProcess, submission } from "./harness.mjs";

async function own(test, options, run = start) {
  const spillway = await run(options);
  test.after(() => spillway.stop());
  return spillway;
}

/** A page that has to come. */
async function page(spillway, query, options) {
  const { status, body, headers, text } = await spillway.list(query, options);
  assert.equal(status, 200, text);
  assert.equal(headers.get("cache-control"), "no-store");
  return body;
}

const ids = ({ jobs }) => jobs.map(({ id }) => id);

/** Resolves as soon as the list is of these jobs, in this order. */
const untilListed = (spillway, expected, { query, ...options } = {}) =>
  eventually(async () => ids(await page(spillway, query, options)).join() === expected.join(), {
    what: `a list of ${expected.length} jobs`,
  });

async function done(spillway, marker, options) {
  const id = await spillway.accepted(submission(`[[${marker}]]`), options);
  await spillway.untilDone(id, { client: options?.client });
  return id;
}

describe("a list of jobs", { concurrency: 4 }, () => {
  test("has a client's own jobs, newest first; the operator's has everybody's, and says whose each is", async (t) => {
    const spillway = await own(t);
    assert.deepEqual(await page(spillway), { jobs: [] }, "without jobs it is empty");
    const first = await done(spillway, "first");
    const others = await done(spillway, "others", { client: "web" });
    const second = await done(spillway, "second", { client: "app's next" });
    await untilListed(spillway, [second, first]);
    await untilListed(spillway, [others], { client: "web" });
    await untilListed(spillway, [second, others, first], { client: "operator" });

    const { status_url, created_at, finished_at } = (await page(spillway)).jobs[1];
    const { body: status } = await spillway.job(first);
    const expected = { id: first, status: "done", kind: "default", created_at, finished_at, status_url };
    assert.deepEqual((await page(spillway)).jobs[1], expected);
    assert.deepEqual([created_at, finished_at], [status.created_at, status.finished_at]);
    assert.equal(status_url, `${spillway.url}/v1/jobs/${first}`);
    const [, web] = (await page(spillway, "", { client: "operator" })).jobs;
    assert.equal(web.client, "web");
    // The page of the operator is of all of them together.
    const newest = await page(spillway, "limit=2", { client: "operator" });
    assert.deepEqual(ids(newest), [second, others]);
    const last = await page(spillway, `limit=2&cursor=${newest.next_cursor}`, { client: "operator" });
    assert.deepEqual([ids(last), last.next_cursor], [[first], undefined]);
    assert.equal((await spillway.list("", { client: null })).status, 401);
    const { body: receipt } = await spillway.submit();
    const headers = { authorization: `Bearer ${receipt.read_token}` };
    assert.equal((await spillway.request(`/v1/jobs/${receipt.id}`, { as: null, headers })).status, 200);
    assert.equal((await spillway.request("/v1/jobs", { as: null, headers })).status, 403);
    assert.equal((await spillway.request(`/v1/jobs?token=${receipt.read_token}`, { as: null })).status, 403);
  });

  test("comes in pages that are the same whatever is submitted meanwhile", async (t) => {
    const spillway = await own(t);
    const old = [];
    for (let n = 0; n < 7; n += 1) old.unshift(await done(spillway, `old-${n}`));
    await untilListed(spillway, old);
    assert.equal((await page(spillway)).next_cursor, undefined);
    const seen = [];
    let cursor;
    for (const size of [3, 3, 1]) {
      const { next_cursor, ...body } = await page(spillway, `limit=3${cursor ? `&cursor=${cursor}` : ""}`);
      assert.equal(body.jobs.length, size);
      seen.push(...ids(body));
      cursor = next_cursor;
      const meanwhile = await done(spillway, `meanwhile-${size}-${seen.length}`);
      await eventually(async () => ids(await page(spillway, "limit=1"))[0] === meanwhile);
    }
    assert.deepEqual([seen, cursor], [old, undefined]);
    assert.equal((await page(spillway)).jobs.length, 10);
  });

  test("can be of one status, whichever, and tells of a job that is under way what it is doing now", async (t) => {
    const spillway = await own(t, {
      policy: { max_attempts: 1, deferral: { answer_seconds: 600, at_least_seconds: 600 } },
      script: {
        rules: [
          { when: { marker: "[[generating]]" }, then: { fault: "hang" } },
          { when: { marker: "[[refining]]" }, then: { tokens: 100, cut: { after_deltas: 5, how: "stall" } } },
          { when: { marker: "[[retrying]]" }, then: { status: 429, retry_after: 250 } },
          { when: { marker: "[[stalled]]" }, then: { status: 500 } },
          { when: { marker: "[[deferred]]" }, then: { status: 500 } },
          { when: { marker: "[[failed]]" }, then: { status: 400 } },
        ],
      },
    });
    const until = new Date(Date.now() + 600_000).toISOString();
    const order = { method: "PUT", as: "operator", body: { state: "open", until, note: "to hold a job" } };
    await spillway.request("/v1/gates/claude-held/override", order);
    // Models of their own: what a gate does to one is nothing to the others.
    const fields = {
      done: {},
      failed: {},
      stalled: {},
      deferred: { when_exhausted: "defer" },
      retrying: { request: { model: "claude-retrying" } },
      held: { request: { model: "claude-held" } },
      refining: { priority: "medium" },
      generating: { priority: "low" },
    };
    const job = {};
    for (const [status, more] of Object.entries(fields)) {
      job[status] = await spillway.accepted(submission(`[[${status}]]`, more));
      await spillway.untilStatus(job[status], status);
    }
    await spillway.fault({ binding: "queue", how: "lose" });
    job.received = await spillway.accepted(submission("[[received]]"));
    job.cancelled = await spillway.accepted(submission("[[cancelled]]"));
    await spillway.cancel(job.cancelled);
    const newest = Object.values(job).reverse();
    await untilListed(spillway, newest);
    for (const [status, id] of Object.entries(job)) {
      await untilListed(spillway, [id], { query: `status=${status}` });
      const { jobs } = await page(spillway, `status=${status}`);
      assert.deepEqual([jobs[0].status, jobs[0].unconfirmed], [status, undefined]);
      const isOver = ["done", "failed", "cancelled"].includes(status);
      assert.equal(jobs[0].finished_at !== undefined, isOver, status);
    }
    const { jobs } = await page(spillway);
    assert.deepEqual(Object.fromEntries(jobs.map(({ status, id }) => [status, id])), job);
    // A page is cut before its jobs are asked: this one is empty, and not the last.
    const empty = await page(spillway, "status=stalled&limit=1");
    assert.deepEqual(empty.jobs, []);
    assert.ok(empty.next_cursor);
  });

  test("asks many open jobs how they stand, and no more than six at once", async (t) => {
    const spillway = await own(t);
    await spillway.fault({ binding: "queue", how: "lose" });
    const open = await Promise.all(Array.from({ length: 120 }, () => spillway.accepted()));
    await eventually(async () => (await page(spillway, "limit=100")).next_cursor !== undefined);
    await eventually(async () => {
      const first = await page(spillway, "limit=100");
      const second = await page(spillway, `limit=100&cursor=${first.next_cursor}`);
      return new Set([...ids(first), ...ids(second)]).size === open.length;
    });
    const { jobs } = await page(spillway, "limit=100");
    assert.ok(jobs.every(({ status, unconfirmed }) => status === "received" && unconfirmed === undefined));
    await spillway.fault({ binding: "job", operation: "row", how: "slow", ms: 300 });
    const began = Date.now();
    assert.equal((await page(spillway, "limit=13")).jobs.length, 13);
    assert.ok(Date.now() - began >= 900, "thirteen jobs take three rounds");
  });

  test("loses what is erased at once, and shows what was cancelled as that", async (t) => {
    const spillway = await own(t);
    const kept = await done(spillway, "kept");
    const erased = await done(spillway, "erased");
    await untilListed(spillway, [erased, kept]);
    assert.equal((await spillway.cancel(erased)).status, 204);
    assert.deepEqual(ids(await page(spillway)), [kept]);
    assert.deepEqual(ids(await page(spillway, "status=done")), [kept]);
    await spillway.fault({ binding: "queue", how: "lose" });
    const cancelled = await spillway.accepted(submission("[[cancelled]]"));
    await spillway.cancel(cancelled);
    await untilListed(spillway, [cancelled], { query: "status=cancelled" });
    await untilListed(spillway, [cancelled, kept]);
  });

  test("loses what is past its retention, and the rows are deleted; the same key is then another job", async (t) => {
    const spillway = await own(t, { policy: { retention_seconds: 60 } });
    // By a clock that is 58 s late everything is over 2 s after it ended by the right one.
    await spillway.setClock(-58_000);
    const body = submission("[[kept for a minute]]");
    const id = await spillway.accepted(body, { key: "the-key" });
    await spillway.untilDone(id);
    await untilListed(spillway, [id], { query: "status=done" });
    const [{ created_at }] = (await page(spillway)).jobs;
    await spillway.setClock(0);
    await untilListed(spillway, []);
    // The index' alarm rings by the real clock.
    await sleep(4_000);
    await spillway.setClock(-58_000);
    assert.deepEqual(await page(spillway), { jobs: [] }, "not hidden, but gone");
    await spillway.setClock(0);

    assert.equal(await spillway.accepted(body, { key: "the-key" }), id);
    const again = await eventually(async () => {
      const { jobs } = await page(spillway, "status=done");
      return jobs.length === 1 && jobs[0];
    });
    assert.ok(again.id === id && again.created_at > created_at);
    assert.equal(spillway.calls().length, 2);
    await spillway.setClock(61_000);
    assert.deepEqual(await page(spillway), { jobs: [] }, "hidden at once, whenever it is deleted");
  });

  test("survives a crash, and to the operator a client whose key is taken away", async (t) => {
    const spillway = await own(t, { policy: { watchdog_seconds: 1 } }, startProcess);
    const first = await done(spillway, "first");
    const others = await done(spillway, "others", { client: "web" });
    await untilListed(spillway, [first], { query: "status=done" });
    await untilListed(spillway, [others], { query: "status=done", client: "web" });
    await spillway.fault({ binding: "queue", how: "lose" });
    const waiting = await spillway.accepted(submission("[[waiting]]"));
    await spillway.kill();
    await spillway.restart({ CLIENT_KEYS: "app:key-of-app" });
    await untilListed(spillway, [waiting, first]);
    await spillway.untilDone(waiting);
    await untilListed(spillway, [waiting, first], { query: "status=done" });
    assert.equal((await spillway.list("", { client: "web" })).status, 401);
    const { jobs } = await page(spillway, "", { client: "operator" });
    assert.deepEqual(
      jobs.map(({ id, client }) => [id, client]),
      [
        [waiting, "app"],
        [others, "web"],
        [first, "app"],
      ],
    );
  });

  test("refuses what it cannot understand, all at once, with what is allowed", async (t) => {
    const spillway = await own(t);
    const refused = async (query) => {
      const { status, body } = await spillway.list(query);
      assert.equal(status, 400, query);
      assert.equal(body.error.type, "invalid_request_error");
      return body.error.problems.map(({ place, message }) => `${place} ${message}`);
    };
    for (const limit of ["0", "101", "-1", "1.5", "many", ""]) {
      assert.deepEqual(await refused(`limit=${limit}`), ["limit must be a whole number from 1 to 100"]);
    }
    for (const status of ["open", "Done", "done,failed", ""]) {
      const [problem] = await refused(`status=${status}`);
      assert.match(problem, /^status must be one of received, generating, .*, cancelled$/);
    }
    for (const cursor of ["", "x", "1", "1.2", "%00", "job_00000000000000000000000000000000"]) {
      assert.deepEqual(await refused(`cursor=${cursor}`), ["cursor must be a `next_cursor` as it came"]);
    }
    const places = (await refused("limit=0&status=x&cursor=y&page=2&limit=3")).map((problem) => problem.split(" ")[0]);
    assert.deepEqual(places, ["limit", "status", "cursor", "page", "limit"]);
  });
});

describe("an index out of order", { concurrency: 4 }, () => {
  for (const how of ["refuse", "overloaded", "hang"]) {
    test(`(${how}) costs no job anything, and is told later`, async (t) => {
      const spillway = await own(t);
      await spillway.fault({ binding: "index", operation: "tell", how });
      const first = await done(spillway, "first");
      const second = await done(spillway, "second");
      assert.equal((await spillway.cancel(second)).status, 204);
      assert.deepEqual(await page(spillway), { jobs: [] });
      await eventually(async () => (await spillway.struck())[0] > 0);
      await spillway.fault();
      await untilListed(spillway, [first]);
      assert.deepEqual((await page(spillway)).jobs[0].status, "done");
      assert.equal(spillway.calls().length, 2);
      assert.ok(spillway.logs("trouble").every(({ part, job }) => part === "outbox" && job));
    });
  }

  test("that loses its answers is told twice, and has each job once", async (t) => {
    const spillway = await own(t);
    await spillway.fault({ binding: "index", operation: "tell", how: "lost_answer", times: 2 });
    const id = await done(spillway, "twice");
    await untilListed(spillway, [id], { query: "status=done" });
    await eventually(async () => (await spillway.struck())[0] === 2);
    await spillway.fault([{ binding: "index", operation: "tell", how: "slow", ms: 0 }]);
    await eventually(async () => (await spillway.struck())[0] > 0, { what: "the second telling" });
    assert.deepEqual(ids(await page(spillway)), [id]);
  });

  test("that hears of a job's creation after its end, or its erasure, is not confused", async (t) => {
    const spillway = await own(t);
    await spillway.fault({ binding: "index", operation: "tell", how: "slow", ms: 2_000, times: 1 });
    const late = await done(spillway, "late");
    await untilListed(spillway, [late], { query: "status=done" });
    await spillway.fault({ binding: "index", operation: "tell", how: "slow", ms: 2_000, times: 1 });
    const erased = await done(spillway, "erased");
    await spillway.cancel(erased);
    assert.deepEqual(ids(await page(spillway)), [late]);
    await sleep(2_500);
    assert.deepEqual(ids(await page(spillway)), [late]);
    assert.deepEqual(ids(await page(spillway, "status=done")), [late]);
  });

  for (const how of ["refuse", "hang"]) {
    test(`(${how}) makes a list a 503, not an empty one, and nothing else`, async (t) => {
      const spillway = await own(t);
      const id = await done(spillway, "readable");
      await spillway.fault({ binding: "index", operation: "list", key: "web", how });
      assert.deepEqual((await spillway.list("", { client: "app" })).status, 200);
      for (const client of ["web", "operator"]) {
        const { status, body, headers } = await spillway.list("", { client });
        assert.equal(status, 503, client);
        assert.equal(body.error.type, "api_error");
        assert.ok(Number(headers.get("retry-after")) >= 1);
      }
      assert.equal((await spillway.job(id)).body.status, "done");
      await spillway.fault({ binding: "kv", operation: "list", how });
      await untilListed(spillway, [id], { client: "operator" });
    });
  }

  test("a job that does not answer is listed as it was told last, and marked", async (t) => {
    const spillway = await own(t);
    await spillway.fault([{ binding: "queue", how: "lose" }]);
    const silent = await spillway.accepted(submission("[[silent]]"));
    const beside = await spillway.accepted(submission("[[beside]]"));
    await untilListed(spillway, [beside, silent]);
    for (const how of ["refuse", "hang"]) {
      await spillway.fault([{ binding: "job", operation: "row", key: silent, how }]);
      const { jobs } = await page(spillway);
      const seen = jobs.map(({ id, status, unconfirmed }) => [id, status, unconfirmed]);
      assert.deepEqual(seen, [
        [beside, "received", undefined],
        [silent, "received", true],
      ]);
    }
  });

  test("a row whose job is gone is not shown", async (t) => {
    const spillway = await own(t);
    await spillway.fault({ binding: "index", operation: "tell", after: 1, how: "refuse" });
    const id = await done(spillway, "forgotten");
    await eventually(async () => (await page(spillway)).jobs[0]?.status === "done", {
      what: "the job, which the index takes to be under way",
    });
    assert.equal((await spillway.cancel(id)).status, 204);
    assert.deepEqual(await page(spillway), { jobs: [] });
  });
});
