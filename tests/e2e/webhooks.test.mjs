/**
 * Webhooks to the app (A12), with a local receiver that takes them, fails, hangs, redirects and goes away. Signatures are
 * checked by the official package of Standard Webhooks.
 */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Webhook } from "standardwebhooks";
import { envelope, eventually, MARK, MODEL, start, startProcess, submission, WEBHOOK_SECRET } from "./harness.mjs";
import { startReceiver } from "./receiver.mjs";

const SECOND_SECRET = "whsec_c2Vjb25kLXNlY3JldC1vZi13ZWJob29rcw==";
const FALLBACK = "claude-haiku-5-5";
/** Tries as close to each other as an alarm can bring them. */
const WEBHOOKS = { backoff: { base_ms: 100, cap_ms: 5_000 } };
/** The same, with a receiver that is not waited for for long; it has to have the time that a busy machine needs. */
const HASTY = { ...WEBHOOKS, timeout_seconds: 3 };
const calm = { consecutive_hard: 500, minimum_calls: 500, consecutive_failures: 500 };

const receiver = await startReceiver({
  "/flaky": [{ status: 500 }, { status: 200 }],
  "/silent": [{ hang: true }, {}],
  "/moved": [{ status: 307, headers: { location: "/elsewhere" } }],
  "/gone": [{ status: 410 }, {}],
  "/busy": [{ status: 429, headers: { "retry-after": "3" } }, {}],
  "/cancelled": [{ status: 500 }],
  "/erased": [{ status: 500 }],
  "/dead": [{ status: 500 }, { hang: true }],
});
after(() => receiver.stop());

/** The event, if one of the secrets has signed it. */
const verified = ({ text, headers }, secret = WEBHOOK_SECRET) => new Webhook(secret).verify(text, headers);

const types = (requests) => requests.map(({ body }) => body.type);

const job = (path, text = `[[${path.slice(1)}]]`, fields) =>
  submission(text, { webhook: receiver.url(path), metadata: { user: 42 }, ...fields });

const again = (spillway, id, as = "app") => spillway.request(`/v1/jobs/${id}/webhook`, { method: "POST", as });

/** How the telling of its only event stands, once that is so. */
const event = (spillway, id, condition) =>
  eventually(
    async () => {
      const { events } = (await spillway.job(id)).body.webhook;
      return events.find(condition);
    },
    { what: condition },
  );

describe("a webhook", { concurrency: 6 }, async () => {
  const spillway = await start({
    calls: true,
    policy: { webhooks: WEBHOOKS, breaker: calm },
    vars: { WEBHOOK_SECRET: `${WEBHOOK_SECRET} ${SECOND_SECRET}` },
    script: {
      rules: [
        { when: { marker: "[[smaller]]", model: MODEL }, then: { status: 529 } },
        { when: { marker: "[[refused]]" }, then: { status: 400 } },
        { when: { marker: "[[slow]]" }, then: { fault: "hang" } },
        { when: { marker: "[[handed]]", prompt_call: "1-2" }, then: { status: 529 } },
        { when: { marker: "[[broken]]" }, then: { tokens: 200, cut: { after_deltas: 10, how: "error" } } },
      ],
    },
  });
  after(() => spillway.stop());

  test("is told of a call that became a job, and of one that broke off, but not of one that was answered", async () => {
    const call = (path, handoff, marker) =>
      spillway.request("/v1/messages", {
        method: "POST",
        headers: { "spillway-webhook": receiver.url(path), "spillway-handoff": handoff },
        body: {
          model: MODEL,
          max_tokens: 200,
          stream: true,
          messages: [{ role: "user", content: `${MARK} [[${marker}]]` }],
        },
      });
    assert.equal((await call("/call-answered", "auto", "plain")).status, 200);
    const handed = await call("/call-handed", "auto", "handed");
    assert.equal(handed.status, 202, handed.text);
    const [told] = await receiver.until("/call-handed", 1);
    const { type, data } = verified(told);
    assert.deepEqual([type, data.id], ["job.done", handed.body.id]);
    assert.equal(data.status_url, `${spillway.url}/v1/jobs/${handed.body.id}`);
    const broken = await call("/call-broken", "auto", "broken");
    const kept = broken.text.match(/"spillway_job":"([^"]+)"/)[1];
    const [failed] = await receiver.until("/call-broken", 1);
    assert.deepEqual([verified(failed).type, verified(failed).data.id], ["job.failed", kept]);
    assert.equal((await receiver.requests("/call-answered")).length, 0);

    const headers = { "spillway-webhook": "ftp://app.example/hook" };
    const { status, body } = await spillway.request("/v1/messages", { method: "POST", headers, body: {} });
    assert.equal(status, 400);
    assert.match(body.error.message, /spillway-webhook: must be an https:\/\/ address/);
  });

  test("tells of an answer once, signed, and not the answer itself", async () => {
    const id = await spillway.accepted(job("/done"));
    const [request] = await receiver.until("/done", 1);
    const { type, timestamp, data } = verified(request);
    assert.equal(type, "job.done");
    const status = await event(spillway, id, ({ delivered_at }) => delivered_at);
    const { body } = await spillway.job(id);
    assert.equal(timestamp, body.finished_at);
    assert.deepEqual(data, {
      id,
      status: "done",
      message: body.message,
      kind: "default",
      metadata: { user: 42 },
      model_requested: MODEL,
      model_used: MODEL,
      downgraded: false,
      created_at: body.created_at,
      finished_at: body.finished_at,
      status_url: `${spillway.url}/v1/jobs/${id}`,
    });
    assert.ok(body.text.includes(MARK) && !request.text.includes(MARK));
    assert.deepEqual([request.method, request.headers["content-type"]], ["POST", "application/json"]);
    assert.deepEqual(status, {
      id: request.headers["webhook-id"],
      type: "job.done",
      attempts: 1,
      delivered_at: status.delivered_at,
    });
    const stored = await eventually(() => spillway.stored(`job:${id}`));
    assert.ok(stored.body.webhook.events[0].delivered_at, "KV is written when there is nothing more to say");
    await sleep(1500);
    assert.equal(receiver.requests("/done").length, 1);
  });

  test("is signed by every secret of a rotation, and by no other", async () => {
    await spillway.accepted(job("/rotated"));
    const [request] = await receiver.until("/rotated", 1);
    assert.match(request.headers["webhook-signature"], /^v1,\S{44} v1,\S{44}$/);
    for (const secret of [WEBHOOK_SECRET, SECOND_SECRET]) assert.equal(verified(request, secret).type, "job.done");
    assert.throws(() => verified(request, "whsec_YW5vdGhlci1zZWNyZXQtb2Ytc29tZWJvZHk="), /No matching signature/);
    const changed = { ...request, text: request.text.replace("done", "dome") };
    assert.throws(() => verified(changed), /No matching signature/);
  });

  test("that fails is tried again under the same id", async () => {
    const id = await spillway.accepted(job("/flaky"));
    const [first, second] = await receiver.until("/flaky", 2);
    for (const request of [first, second]) assert.equal(verified(request).data.id, id);
    assert.equal(first.headers["webhook-id"], second.headers["webhook-id"]);
    assert.equal(first.text, second.text);
    assert.ok(Number(second.headers["webhook-timestamp"]) >= Number(first.headers["webhook-timestamp"]));
    const { attempts, last_error } = await event(spillway, id, ({ delivered_at }) => delivered_at);
    assert.deepEqual([attempts, last_error], [2, undefined]);
    const sent = spillway.logs("webhook_sent").filter((line) => line.job === id);
    assert.deepEqual(
      sent.map(({ client, news, attempt, then, error }) => [client, news, attempt, then, error]),
      [
        ["app", "job.done", 1, "again", "500"],
        ["app", "job.done", 2, "delivered", null],
      ],
    );
    const { text } = await spillway.request("/v1/metrics", { as: "operator" });
    assert.match(text, /^spillway_webhooks_total{client="app",news="job.done",then="again"} [1-9]/m);
  });

  test("is not tried before the Retry-After it was answered with", async () => {
    const id = await spillway.accepted(job("/busy"));
    const { last_error, next_attempt_seconds } = await event(spillway, id, ({ last_error }) => last_error);
    assert.equal(last_error, "429");
    assert.ok(next_attempt_seconds <= 4, `${next_attempt_seconds}`);
    const [first, second] = await receiver.until("/busy", 2);
    assert.ok(second.at - first.at >= 3000, `${second.at - first.at} ms`);
  });

  test("that answers 410 is disabled for this job, until somebody asks for it", async () => {
    const id = await spillway.accepted(job("/gone"));
    const { given_up_at, last_error, attempts } = await event(spillway, id, ({ given_up_at }) => given_up_at);
    assert.match(last_error, /^410/);
    assert.equal((await spillway.job(id)).body.webhook.disabled_at, given_up_at);
    assert.equal(spillway.logs("webhook_sent").find((line) => line.job === id).then, "disabled");
    const listed = async () => {
      const { jobs } = (await spillway.request("/v1/jobs?limit=100", { as: "operator" })).body;
      return jobs.find((job) => job.id === id);
    };
    const disabled = async () => (await listed())?.webhook === "disabled";
    await eventually(disabled, { what: "the operator's list says so" });
    await sleep(1500);
    assert.deepEqual([attempts, receiver.requests("/gone").length], [1, 1]);
    const { status, body } = await again(spillway, id);
    assert.deepEqual([status, body.webhook.disabled_at], [200, undefined]);
    await receiver.until("/gone", 2);
    await event(spillway, id, ({ delivered_at }) => delivered_at);
    await eventually(async () => (await listed()).webhook === undefined);
  });

  test("tells of an answer by a smaller model first as of an answer, then as of that", async () => {
    const id = await spillway.accepted(job("/smaller", "[[smaller]]", { kind: "tagging", priority: "medium" }));
    const requests = await receiver.until("/smaller", 2);
    assert.deepEqual(types(requests), ["job.done", "job.downgraded"]);
    for (const request of requests) {
      const { data } = verified(request);
      assert.deepEqual(
        [data.id, data.status, data.downgraded, data.downgrade_reason, data.model_requested, data.model_used],
        [id, "done", true, "overloaded", MODEL, FALLBACK],
      );
      assert.equal(data.message.code, "downgraded");
    }
    assert.equal(new Set(requests.map(({ headers }) => headers["webhook-id"])).size, 2);
    // The job that does it again tells the same target, and what it does again.
    const { body } = await spillway.request(`/v1/jobs/${id}/regenerate`, { method: "POST" });
    await spillway.cancel(body.id);
  });

  test("tells of a failure with its reason", async () => {
    const id = await spillway.accepted(job("/refused", "[[refused]]"));
    const [request] = await receiver.until("/refused", 1);
    const { type, data } = verified(request);
    assert.deepEqual(
      [type, data.id, data.status, data.reason, data.message.code],
      ["job.failed", id, "failed", "invalid_request", "failed"],
    );
  });

  test("is sent again to whoever may ask for it, under the same id", async () => {
    const id = await spillway.accepted(job("/again"));
    await event(spillway, id, ({ delivered_at }) => delivered_at);
    assert.equal((await again(spillway, id, "web")).status, 404);
    for (const as of ["app", "operator"]) {
      const { status, body } = await again(spillway, id, as);
      assert.deepEqual([status, body.id, body.status], [200, id, "done"]);
      await receiver.until("/again", as === "app" ? 2 : 3);
    }
    const requests = receiver.requests("/again");
    assert.equal(new Set(requests.map(({ headers, text }) => headers["webhook-id"] + text)).size, 1);
    requests.forEach((request) => verified(request));
    await event(spillway, id, ({ attempts, delivered_at }) => attempts === 3 && delivered_at);
    const stored = async () => (await spillway.stored(`job:${id}`))?.body.webhook.events[0].attempts === 3;
    await eventually(stored);
  });

  test("that is not there, or has nothing to tell, cannot be sent again", async () => {
    const bare = await spillway.accepted(submission());
    await spillway.untilDone(bare);
    const { status, body } = await again(spillway, bare);
    assert.equal(status, 409);
    assert.match(body.error.message, /no `webhook`/);
    const waiting = await spillway.accepted(job("/nothing", "[[slow]]", { priority: "low" }));
    assert.equal((await again(spillway, waiting)).status, 409);
    await spillway.cancel(waiting);
    assert.equal((await again(spillway, waiting)).status, 409);
    assert.equal((await again(spillway, `job_${"0".repeat(32)}`)).status, 404);
    assert.equal((await again(spillway, "nonsense")).status, 404);
    assert.equal((await again(spillway, bare, null)).status, 401);
    const get = await spillway.request(`/v1/jobs/${bare}/webhook`);
    assert.deepEqual([get.status, get.headers.get("allow")], [405, "POST"]);
    assert.equal(receiver.requests("/nothing").length, 0, "a cancelled job tells nothing");
  });

  test("of a job that is erased tells nothing any more", async () => {
    const id = await spillway.accepted(job("/erased"));
    await event(spillway, id, ({ last_error }) => last_error);
    const { status } = await spillway.cancel(id);
    assert.ok([204, 503].includes(status), `${status}`);
    const { length } = receiver.requests("/erased");
    await sleep(3000);
    // One may have been on its way.
    assert.ok(receiver.requests("/erased").length <= length + 1);
    assert.equal((await again(spillway, id)).status, 404);
  });
});

describe("a webhook of its own deployment", { concurrency: 4 }, () => {
  const own = async (t, run, options) => {
    const spillway = await run(options);
    t.after(() => spillway.stop());
    return spillway;
  };
  const FAILS_ONCE = { rules: [{ when: { prompt_call: 1 }, then: { status: 500 } }] };

  test("without WEBHOOK_SECRET is refused, and a submission without one is not", async (t) => {
    const spillway = await own(t, start, { vars: { WEBHOOK_SECRET: undefined } });
    const { status, body } = await spillway.submit(job("/unsigned"));
    assert.equal(status, 503);
    assert.match(body.error.message, /WEBHOOK_SECRET/);
    const id = await spillway.accepted(submission());
    assert.equal((await again(spillway, id)).status, 503);
  });

  test("a WEBHOOK_SECRET that is none is a fault of the configuration", async (t) => {
    const spillway = await own(t, start, { vars: { WEBHOOK_SECRET: `${WEBHOOK_SECRET},hunter2` } });
    const { status, body } = await spillway.request("/healthz");
    assert.deepEqual([status, body.problems.map(({ key }) => key)], [503, ["WEBHOOK_SECRET"]]);
    assert.match(body.problems[0].message, /secret 2 /);
    assert.ok(!body.problems[0].message.includes("hunter2"));
  });

  test("that hangs slows nobody and is tried again", async (t) => {
    const spillway = await own(t, start, { policy: { webhooks: HASTY } });
    const id = await spillway.accepted(job("/silent"));
    await receiver.until("/silent", 1);
    const { body } = await spillway.job(id);
    assert.deepEqual([body.status, body.webhook.events[0].delivered_at], ["done", undefined]);
    assert.ok(body.webhook.events[0].next_attempt_seconds >= 1);
    const { attempts } = await event(spillway, id, ({ delivered_at }) => delivered_at);
    assert.ok(attempts >= 2, `${attempts}`);
    const [first] = spillway.logs("webhook_sent").filter((line) => line.job === id);
    assert.deepEqual([first.then, first.error], ["again", "no answer within 3 s"]);
  });

  test("that redirects is not followed, and is given up in the end, which the status says", async (t) => {
    const spillway = await own(t, start, { policy: { webhooks: { ...WEBHOOKS, give_up_seconds: 3 } } });
    const id = await spillway.accepted(job("/moved"));
    const { last_error, attempts } = await event(spillway, id, ({ given_up_at }) => given_up_at);
    assert.match(last_error, /^307: .*redirects are not followed/);
    assert.equal(receiver.requests("/moved").length, attempts);
    assert.ok(attempts >= 2, `${attempts}`);
    assert.equal(receiver.requests("/elsewhere").length, 0);
    const stored = await eventually(() => spillway.stored(`job:${id}`));
    assert.ok(stored.body.webhook.events[0].given_up_at);
    await sleep(1500);
    assert.equal(receiver.requests("/moved").length, attempts);
    assert.equal((await spillway.job(id)).body.status, "done", "that is no fault of the job's");
  });

  test("tells of a stalled job, and of its answer once it has one", async (t) => {
    const policy = { max_attempts: 1, deferral: { answer_seconds: 60, at_least_seconds: 0 }, webhooks: WEBHOOKS };
    const spillway = await own(t, start, { policy, script: FAILS_ONCE });
    const id = await spillway.accepted(job("/stalled"));
    const { offer, message } = await spillway.untilStatus(id, "stalled");
    const [stalled] = await receiver.until("/stalled", 1);
    const { type, data } = verified(stalled);
    assert.deepEqual([type, data.status, data.message], ["job.stalled", "stalled", message]);
    assert.deepEqual([data.offer.without_answer, data.offer.resumes_at], ["deferred", offer.resumes_at]);
    const body = { accept: true };
    const { waiting } = (await spillway.request(`/v1/jobs/${id}/deferral`, { method: "POST", body })).body;
    await spillway.setClock((waiting.next_check_seconds + 1) * 1000);
    await spillway.deliver("high", envelope(id, 2));
    const requests = await receiver.until("/stalled", 2);
    assert.deepEqual(types(requests), ["job.stalled", "job.done"]);
    // The Worker's clock is an hour ahead, which `verify` would mind.
    const { text, headers } = requests[1];
    const at = new Date(Number(headers["webhook-timestamp"]) * 1000);
    assert.equal(headers["webhook-signature"], new Webhook(WEBHOOK_SECRET).sign(headers["webhook-id"], at, text));
    const { events } = (await spillway.job(id)).body.webhook;
    assert.deepEqual(
      events.map((event) => event.type),
      ["job.stalled", "job.done"],
    );
  });

  test("that hangs does not keep the job's alarm from ringing", async (t) => {
    const webhooks = { ...WEBHOOKS, timeout_seconds: 60 };
    const policy = { max_attempts: 1, deferral: { answer_seconds: 6 }, webhooks };
    const spillway = await own(t, start, { policy, script: FAILS_ONCE });
    const id = await spillway.accepted(job("/dead"));
    // The second try is the alarm's own.
    await receiver.until("/dead", 2);
    const { webhook } = await spillway.untilStatus(id, "deferred");
    assert.equal(webhook.events[0].delivered_at, undefined);
  });

  test("of a job that is cancelled while it is stalled tells nothing any more", async (t) => {
    const policy = { max_attempts: 1, webhooks: WEBHOOKS };
    const spillway = await own(t, start, { policy, script: FAILS_ONCE });
    const id = await spillway.accepted(job("/cancelled"));
    await event(spillway, id, ({ last_error }) => last_error);
    const { status, body } = await spillway.cancel(id);
    assert.deepEqual([status, body.status, body.webhook], [200, "cancelled", { events: [] }]);
    const { length } = receiver.requests("/cancelled");
    await sleep(3000);
    assert.ok(receiver.requests("/cancelled").length <= length + 1);
    assert.deepEqual([...new Set(types(receiver.requests("/cancelled")))], ["job.stalled"]);
  });

  test("survives a crash, before its first try and in the middle of one", async (t) => {
    const app = await startReceiver({ "/crash": [{ hang: true }, {}] });
    t.after(() => app.stop());
    const spillway = await own(t, startProcess, { policy: { webhooks: HASTY } });
    const id = await spillway.accepted(submission("[[crash]]", { webhook: app.url("/crash") }));
    await app.until("/crash", 1);
    await spillway.kill();
    await spillway.restart();
    const [first, second] = await app.until("/crash", 2);
    assert.equal(second.headers["webhook-id"], first.headers["webhook-id"]);
    assert.equal(verified(second).data.id, id);
    await event(spillway, id, ({ attempts, delivered_at }) => attempts >= 2 && delivered_at);

    // Nobody listens there: what is stored has not reached anybody when the Worker dies.
    const { port } = app;
    app.stop();
    const unheard = await spillway.accepted(submission("[[unheard]]", { webhook: app.url("/unheard") }));
    await spillway.untilDone(unheard);
    await spillway.kill();
    const back = await startReceiver({}, port);
    t.after(() => back.stop());
    await spillway.restart();
    const [request] = await back.until("/unheard", 1);
    assert.equal(verified(request).data.id, unheard);
    assert.equal(spillway.calls().length, 2, "no job is called for again for its webhook's sake");
  });
});
