/**
 * The JavaScript client (client/) against the Worker: what an app does with it, from the first submission to the job that is
 * done again. Whatever holds with and without live events is here; what is live, in client-live.test.mjs.
 */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import * as api from "../../client/index.js";
import { envelope, eventually, KEYS, MARK, PATIENCE, start, startProcess, submission } from "./harness.mjs";

const FALLBACK = "claude-haiku-5-5";

const POLICY = { max_attempts: 1, lease_seconds: 2, deferral: { answer_seconds: 600, at_least_seconds: 0 } };

/** An app's client; its waiting ends sooner than the test's patience, so that a failure says what it is. */
class App extends api.Spillway {
  wait(job, options) {
    return super.wait(job, { timeout: PATIENCE / 2, ...options });
  }
}

const clientOf = (spillway, options) => new App({ baseUrl: spillway.url, key: KEYS.app, ...options });

/** Whether `steps` are among `seen`, in this order. */
function assertOrder(seen, steps) {
  let from = 0;
  for (const step of steps) {
    const at = seen.indexOf(step, from);
    assert.ok(at >= 0, `${step} does not come in its place: ${seen}`);
    from = at + 1;
  }
}

describe("the client", { concurrency: 4 }, async () => {
  const spillway = await start({
    calls: true,
    policy: POLICY,
    script: {
      rules: [
        { when: { marker: "[[slow]]" }, then: { delay_ms: 2800, first_event_delay_ms: 400, chunk_delay_ms: 400 } },
        { when: { marker: "[[hang]]" }, then: { fault: "hang" } },
        { when: { marker: "[[limited]]", prompt_call: 1 }, then: { error: "rate_limit", retry_after: 8 } },
        { when: { marker: "[[handed]]", prompt_call: "1-2" }, then: { status: 529 } },
        { when: { marker: "[[declines]]", prompt_call: 1 }, then: { status: 500 } },
        { when: { marker: "[[refused]]" }, then: { error: "invalid_request" } },
      ],
    },
  });
  after(() => spillway.stop());
  const client = clientOf(spillway);

  test("submits a job and waits for its answer, through phases that are shown in their order", async () => {
    const receipt = await client.submit(submission("[[slow]]", { priority: "low", metadata: { order: 7 } }));
    assert.match(receipt.id, /^job_[0-9a-f]{32}$/);
    assert.deepEqual([receipt.status, receipt.message.code], ["received", "received"]);
    const seen = [];
    const done = await client.wait(receipt, { onProgress: (progress) => seen.push(progress) });
    assertOrder(
      seen.map(({ status }) => status),
      ["received", "generating", "refining", "done"],
    );
    assert.deepEqual(done, (await spillway.job(receipt.id)).body);
    assert.deepEqual([done.status, done.result.type, done.metadata], ["done", "message", { order: 7 }]);
    assert.ok(done.text.includes(MARK));
    assert.deepEqual([seen.at(-1).text, seen.at(-1).job, seen.at(-1).message.code], [done.text, done, "done"]);
    assert.ok(seen.every(({ connected }) => connected));
    assert.equal(spillway.calls({ marker: "slow" }).length, 1);
  });

  test("waits in another process, with nothing but the id; a job that is over is there at once", async () => {
    const { id } = await client.submit(submission("[[stored]]"));
    const done = await clientOf(spillway).wait(id);
    assert.deepEqual(await clientOf(spillway).wait(id), done);
    assert.deepEqual(await clientOf(spillway).status({ id }), done);
  });

  test("shows why a job waits, and until when; what Claude refuses for now is no error", async () => {
    const { id } = await client.submit(submission("[[limited]]", { request: { model: "claude-opus-5-5" } }));
    const seen = [];
    const done = await client.wait(id, { onProgress: ({ status, waiting }) => seen.push({ status, ...waiting }) });
    assert.equal(done.status, "done");
    const wait = seen.find(({ status }) => status === "retrying");
    assert.equal(wait?.reason, "rate_limited", JSON.stringify(seen));
    assert.ok(wait.next_check_seconds >= 1 && wait.next_check_seconds <= 10, JSON.stringify(wait));
    assert.equal(spillway.calls({ marker: "limited" }).length, 2);
  });

  test("submits again when the receipt is lost on its way, and it is one job and one call", async () => {
    let lost = 0;
    const fetch = async (...args) => {
      const answer = await globalThis.fetch(...args);
      if (lost++ > 1) return answer;
      await answer.text();
      throw new TypeError("the connection broke");
    };
    const receipt = await clientOf(spillway, { fetch, timing: { retry: 20 } }).submit(submission("[[lost]]"));
    assert.equal(lost, 3);
    await client.wait(receipt);
    assert.equal(spillway.calls({ marker: "lost" }).length, 1);
    const logged = spillway.logs("job_submitted").filter(({ job }) => job === receipt.id);
    assert.deepEqual(
      logged.map(({ replayed }) => replayed),
      [false, true, true],
    );
  });

  test("is asked whether a job may wait; yes: it is deferred, and the waiting ends with its answer", async (t) => {
    // Its clock is put ahead.
    const spillway = await start({ policy: POLICY, script: { rules: [{ when: { call: 1 }, then: { status: 500 } }] } });
    t.after(() => spillway.stop());
    const client = clientOf(spillway);
    const { id } = await client.submit(submission("[[accepts]]"));
    const seen = [];
    const offers = [];
    let answered;
    const done = client.wait(id, {
      onProgress: ({ status }) => seen.push(status),
      onStalled: (offer, job) => {
        offers.push(offer);
        answered = client.acceptDeferral(job);
      },
    });
    const deferred = await spillway.untilStatus(id, "deferred");
    assert.deepEqual([(await answered).status, offers.length, offers[0].without_answer], ["deferred", 1, "deferred"]);
    await spillway.setClock((deferred.waiting.next_check_seconds + 1) * 1000);
    await spillway.deliver("high", envelope(id, 2));
    assert.equal((await done).status, "done");
    assertOrder(seen, ["stalled", "deferred", "done"]);
    await assert.rejects(client.acceptDeferral(id), { name: "ConflictError", status: 409 });
  });

  test("no: it has failed, and says so; done again, it is another job that is answered", async () => {
    const { id } = await client.submit(submission("[[declines]]", { request: { model: "claude-haiku-4-5" } }));
    const waiting = client.wait(id, { onStalled: (_, job) => client.declineDeferral(job) });
    const error = await waiting.then(assert.fail, (error) => error);
    assert.ok(error instanceof api.JobFailedError, error.stack);
    assert.deepEqual([error.id, error.reason, error.job.status], [id, "deferral_declined", "failed"]);
    assert.match(error.message, /regenerate/);
    const again = await client.regenerate(error.job);
    assert.equal((await client.regenerate(id)).id, again.id, "asked twice, it is the same new job");
    const done = await client.wait(again);
    assert.deepEqual([done.status, done.regenerates], ["done", id]);
    await assert.rejects(client.regenerate(done), { name: "ConflictError" });
  });

  test("does a job again that a smaller model answered", async () => {
    const downgraded = await client.wait(
      await client.submit(submission("[[downgraded]]", { kind: "tagging", priority: "low" })),
    );
    assert.deepEqual([downgraded.downgraded, downgraded.model_used], [true, FALLBACK]);
    const { downgraded: still, model_used } = await client.wait(await client.regenerate(downgraded));
    assert.deepEqual([still, model_used], [false, downgraded.model_requested]);
  });

  test("waits for a call that became a job", async () => {
    const { status, body } = await spillway.request("/v1/messages", {
      method: "POST",
      headers: { "anthropic-version": "2023-06-01", "spillway-handoff": "auto" },
      body: { ...submission("[[handed]]").request, model: "claude-sonnet-4-6" },
    });
    assert.equal(status, 202);
    const { result } = await client.wait(body);
    assert.ok(result.content[0].text.includes(MARK));
    assert.equal(spillway.calls({ marker: "handed" }).length, 3);
  });

  test("takes a job back while somebody waits for it, and erases one that was over", async () => {
    const { id } = await client.submit(submission("[[hang]]", { priority: "medium" }));
    const waiting = client.wait(id).then(assert.fail, (error) => error);
    await spillway.untilStatus(id, "generating");
    assert.equal((await client.cancel(id)).status, "cancelled");
    const error = await waiting;
    assert.ok(error instanceof api.JobCancelledError, error.stack);
    assert.equal(error.id, id);

    const done = await client.wait(await client.submit(submission("[[erased]]")));
    assert.equal(await client.cancel(done), undefined);
    await assert.rejects(client.status(done), { name: "NotFoundError" });
    await assert.rejects(client.wait(done), { name: "NotFoundError" });
  });

  test("says by its class what Claude or the API refused, and what to do", async () => {
    const refused = await client.submit(submission("[[refused]]"));
    await assert.rejects(client.wait(refused), {
      name: "JobFailedError",
      reason: "invalid_request",
      message: /correct it/,
    });

    await assert.rejects(client.submit({ kind: "nonsense", request: {} }), (error) => {
      assert.ok(error instanceof api.InvalidRequestError, error.stack);
      assert.deepEqual([error.status, error.type], [400, "invalid_request_error"]);
      assert.ok(error.problems.length >= 2, JSON.stringify(error.problems));
      assert.ok(error.problems.every(({ place, message }) => place && message));
      return true;
    });
    const idempotencyKey = "an order";
    await client.submit(submission("[[one]]"), { idempotencyKey });
    await assert.rejects(client.submit(submission("[[another]]"), { idempotencyKey }), {
      name: "ConflictError",
      idempotencyKey,
    });
    await assert.rejects(clientOf(spillway, { key: "wrong" }).submit(submission()), { name: "AuthenticationError" });
    await assert.rejects(clientOf(spillway, { key: undefined }).wait(refused.id), { name: "AuthenticationError" });
    await assert.rejects(clientOf(spillway, { key: KEYS.web }).wait(refused.id), { name: "NotFoundError" });
    await assert.rejects(clientOf(spillway, { key: KEYS.operator }).submit(submission()), { name: "PermissionError" });
  });

  test("speaks the language that it was made with", async () => {
    const japanese = clientOf(spillway, { locale: "ja-JP" });
    const receipt = await japanese.submit(submission("[[japanese]]"));
    const done = await japanese.wait(receipt);
    const { body } = await spillway.request(`/v1/jobs/${receipt.id}`, { headers: { "accept-language": "ja" } });
    assert.equal(done.message.text, body.message.text);
    assert.notEqual(done.message.text, (await client.status(done)).message.text);
  });

  test("gives up waiting when it is told to, and the job goes on", async () => {
    const { id } = await client.submit(submission("[[slow]] patience", { priority: "low" }));
    await assert.rejects(client.wait(id, { timeout: 300 }), { name: "TimeoutError", id });
    await assert.rejects(client.wait(id, { signal: AbortSignal.timeout(50) }), { name: "TimeoutError" });
    assert.equal((await client.wait(id)).status, "done");
  });

  test("waits without events where a proxy holds them back", async () => {
    const paths = [];
    const fetch = (url, init) => {
      paths.push(new URL(url).pathname);
      return url.endsWith("/events") ? new Promise(() => {}) : globalThis.fetch(url, init);
    };
    const behind = clientOf(spillway, { fetch, timing: { firstByte: 100 } });
    const seen = [];
    const receipt = await behind.submit(submission("[[slow]] behind a proxy", { priority: "low" }));
    const done = await behind.wait(receipt, { onProgress: ({ status, text }) => seen.push([status, text]) });
    assert.equal(done.status, "done");
    assertOrder(
      seen.map(([status]) => status),
      ["generating", "refining", "done"],
    );
    assert.ok(seen.slice(0, -1).every(([, text]) => text === ""));
    assert.equal(paths.filter((path) => path.endsWith("/events")).length, 1);
  });
});

test("the client waits on while the Worker is killed and started again", async (t) => {
  const spillway = await startProcess({
    policy: { lease_seconds: 2 },
    script: { rules: [{ when: { prompt_call: 1 }, then: { delay_ms: 3000 } }] },
  });
  t.after(() => spillway.stop());
  const client = clientOf(spillway, { timing: { retry: 100, longestRetry: 500 } });
  const { id } = await client.submit(submission("[[crash]]"));
  const connected = [];
  const done = client.wait(id, { onProgress: (progress) => connected.push(progress.connected) });
  done.catch(() => {});
  await spillway.untilCalls((calls) => calls.length === 1);
  await eventually(() => connected.length > 0, { what: "the client to have heard of the job" });
  await spillway.kill();
  await spillway.restart();
  assert.equal((await done).status, "done");
  assertOrder(connected, [true, false, true]);
});
