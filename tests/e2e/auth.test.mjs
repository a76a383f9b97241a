/** Who may do what: nothing without a key, everything of one's own with one, nothing of anybody else's. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { KEYS, start, submission } from "./harness.mjs";

const spillway = await start();
after(() => spillway.stop());

const own = await spillway.accepted(submission("the app's own"));
await spillway.untilDone(own);

const ROUTES = [
  ["POST", "/v1/jobs", submission("nobody's [[refused]]")],
  ["GET", `/v1/jobs/${own}`],
  ["DELETE", `/v1/jobs/${own}`],
  ["GET", "/v1/jobs/nonsense"],
  ["GET", "/v1/gates"],
  ["PUT", "/v1/gates/claude-sonnet-5-5/override", { state: "open" }],
  ["DELETE", "/v1/gates/claude-sonnet-5-5/override"],
];

function isRefused({ status, headers, body, text }, expected, type, what) {
  assert.equal(status, expected, `${what}: ${text}`);
  assert.equal(body.type, "error", what);
  assert.equal(body.error.type, type, what);
  assert.ok(body.error.message.length > 10, what);
  assert.equal(body.request_id, headers.get("request-id"), what);
  assert.equal(headers.get("cache-control"), "no-store", what);
}

test("without a key, with an empty, a wrong or a half one, every route is closed", async () => {
  const bad = [
    {},
    { authorization: "" },
    { authorization: "Bearer" },
    { authorization: "Bearer " },
    { authorization: `Basic ${KEYS.app}` },
    { authorization: KEYS.app },
    { authorization: "Bearer wrong" },
    { authorization: `Bearer ${KEYS.app}x` },
    { authorization: `Bearer ${KEYS.app.slice(1)}` },
    { authorization: `Bearer app:${KEYS.app}` },
    { authorization: `Bearer ${KEYS.app.toUpperCase()}` },
    { "x-api-key": "wrong" },
    { "x-api-key": "" },
    { "x-api-key": `app:${KEYS.app}` },
  ];
  for (const [method, path, body] of ROUTES) {
    for (const headers of bad) {
      const answer = await spillway.request(path, { method, as: null, headers, body });
      isRefused(answer, 401, "authentication_error", `${method} ${path} with ${JSON.stringify(headers)}`);
    }
  }
  assert.deepEqual(spillway.calls({ marker: "refused" }), []);
});

test("a refusal says how to send a key, and never repeats one", async () => {
  const none = await spillway.request("/v1/jobs", { method: "POST", as: null, body: submission() });
  assert.match(none.body.error.message, /Authorization: Bearer/);
  const wrong = await spillway.request("/v1/gates", { as: null, headers: { "x-api-key": "wrong-key-of-somebody" } });
  assert.ok(!wrong.text.includes("wrong-key-of-somebody"));
});

test("a key is taken as bearer token, in any case of the word, and as x-api-key", async () => {
  for (const headers of [
    { authorization: `Bearer ${KEYS.app}` },
    { authorization: `bearer ${KEYS.app}` },
    { authorization: `BEARER   ${KEYS.app} ` },
    { "x-api-key": KEYS.app },
  ]) {
    const { status, text } = await spillway.request(`/v1/jobs/${own}`, { as: null, headers });
    assert.equal(status, 200, `${JSON.stringify(headers)}: ${text}`);
  }
});

test("a client's second key is the same client: keys are rotated without losing a job", async () => {
  const read = await spillway.job(own, { client: "app's next" });
  assert.equal(read.body.id, own);
  const id = await spillway.accepted(submission("by the next key"), { client: "app's next" });
  const done = await spillway.untilDone(id, { client: "app" });
  assert.match(done.text, /by the next key/);
});

test("another client's job is not found: neither read, nor awaited, nor cancelled, finished or not", async () => {
  await spillway.fault({ binding: "queue", how: "lose" });
  const waiting = await spillway.accepted(submission("waits"));
  await spillway.fault();
  const unknown = await spillway.job(`job_${"0".repeat(32)}`, { client: "web" });
  for (const id of [own, waiting]) {
    for (const answer of [
      await spillway.job(id, { client: "web" }),
      await spillway.job(id, { client: "web", wait: 0, etag: '"1"' }),
      await spillway.cancel(id, { client: "web" }),
    ]) {
      isRefused(answer, 404, "not_found_error", id);
      // Word for word what a job gets that does not exist.
      assert.deepEqual(answer.body.error, unknown.body.error);
    }
  }
  assert.equal((await spillway.job(own)).body.status, "done");
  assert.equal((await spillway.job(waiting)).body.status, "received");
});

test("another client's job is not found even by its ETag", async () => {
  const { headers } = await spillway.job(own);
  const answer = await spillway.job(own, { client: "web", etag: headers.get("etag") });
  isRefused(answer, 404, "not_found_error", own);
});

test("the operator sees and cancels every client's jobs, and submits none", async () => {
  const id = await spillway.accepted(submission("web's"), { client: "web" });
  await spillway.untilDone(id, { client: "operator" });
  assert.equal((await spillway.cancel(id, { client: "operator" })).status, 204);
  assert.equal((await spillway.job(id, { client: "web" })).status, 404);
  isRefused(await spillway.submit(submission(), { client: "operator" }), 403, "permission_error", "submit");
});

test("the gates are the operator's", async () => {
  for (const as of ["app", "web"]) {
    isRefused(await spillway.request("/v1/gates", { as }), 403, "permission_error", as);
  }
  const { status, body } = await spillway.request("/v1/gates", { as: "operator" });
  assert.equal(status, 200);
  assert.deepEqual(Object.keys(body.gates).sort(), ["claude-haiku-5-5", "claude-sonnet-5-5"]);
  assert.equal(body.gates["claude-sonnet-5-5"].state, "closed");
});

test("with no keys configured everything is refused, and healthz says why", async () => {
  const bare = await start({ vars: { CLIENT_KEYS: undefined, ADMIN_KEY: undefined } });
  try {
    for (const [method, path, body] of ROUTES) {
      for (const as of [null, "app", "operator"]) {
        const answer = await bare.request(path, { method, as, body });
        isRefused(answer, 401, "authentication_error", `${method} ${path} as ${as}`);
        assert.match(answer.body.error.message, /CLIENT_KEYS/);
      }
    }
    const health = await bare.request("/healthz", { as: null });
    assert.equal(health.status, 200);
    assert.deepEqual(
      health.body.warnings.map(({ key }) => key),
      ["CLIENT_KEYS", "ADMIN_KEY"],
    );
  } finally {
    await bare.stop();
  }
});
