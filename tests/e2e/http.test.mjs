/** The routes: which there are, what their headers promise, and how a reader waits for news. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { start, submission } from "./harness.mjs";

const spillway = await start({
  script: {
    rules: [
      { when: { marker: "[[hang]]" }, then: { fault: "hang" } },
      { when: { marker: "[[refused]]" }, then: { error: "invalid_request" } },
      { when: { marker: "[[slow]]" }, then: { delay_ms: 400, first_event_delay_ms: 400 } },
      { when: { marker: "[[seen]]" }, then: { delay_ms: 3000, tokens: 60, chunk_delay_ms: 200 } },
    ],
  },
});
after(() => spillway.stop());

const done = await spillway.accepted(submission("done"));
await spillway.untilDone(done);
const running = await spillway.accepted(submission("[[hang]]", { priority: "low" }));
await spillway.untilStatus(running, "generating");

const seconds = async (action) => {
  const began = Date.now();
  return [await action(), (Date.now() - began) / 1000];
};

test("a method that a route does not have is 405, with those that it has in Allow", async () => {
  const routes = {
    "/v1/jobs": "GET, POST",
    [`/v1/jobs/${done}`]: "GET, DELETE",
    [`/v1/jobs/${done}/events`]: "GET",
    "/v1/gates": "GET",
    "/v1/gates/any-model/override": "PUT, DELETE",
    "/healthz": "GET, HEAD",
  };
  for (const [path, allow] of Object.entries(routes)) {
    for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]) {
      if (allow.split(", ").includes(method)) continue;
      // What pages of other origins may ask for, they ask about before: see events.test.mjs.
      if (method === "OPTIONS" && path.includes(done)) continue;
      // Whoever asks: what a route can do is no secret.
      for (const as of ["app", null]) {
        const { status, headers, body, text } = await spillway.request(path, { method, as });
        assert.equal(status, 405, `${method} ${path}: ${text}`);
        assert.equal(headers.get("allow"), allow, `${method} ${path}`);
        assert.equal(body.error.type, "invalid_request_error");
      }
    }
  }
});

test("what is no route, and an id that is none, is 404 in Anthropic's shape", async () => {
  const paths = ["/v1", "/v1/job", "/v1/jobs/a/b", `/v1/jobs/${done}/x`, "/v1/gates/x", "/favicon.ico", "//v1/jobs"];
  const ids = [
    "nonsense",
    "job_1",
    `job_${"0".repeat(32)}`,
    `job_${"z".repeat(32)}`,
    "%00",
    "..%2f..",
    "x".repeat(2000),
  ];
  for (const path of [...paths, ...ids.map((id) => `/v1/jobs/${id}`)]) {
    const { status, headers, body, text } = await spillway.request(path);
    assert.equal(status, 404, `${path}: ${text}`);
    assert.equal(body.type, "error");
    assert.equal(body.error.type, "not_found_error");
    assert.match(headers.get("content-type"), /^application\/json/);
    assert.match(body.request_id, /^req_/);
  }
});

test("a slash at the end makes no difference", async () => {
  assert.equal((await spillway.request(`/v1/jobs/${done}/`)).body.status, "done");
  assert.equal((await spillway.request("/healthz/")).status, 200);
});

test("every answer has a request id of its own", async () => {
  const ids = await Promise.all(
    Array.from({ length: 10 }, async () => (await spillway.job(done)).headers.get("request-id")),
  );
  assert.equal(new Set(ids).size, 10);
  assert.ok(
    ids.every((id) => /^req_\w+$/.test(id)),
    ids.join(),
  );
});

test("healthz answers anybody: the version, and nothing wrong", async () => {
  const { status, headers, body } = await spillway.request("/healthz", { as: null });
  assert.equal(status, 200);
  assert.equal(headers.get("cache-control"), "no-store");
  const { version, ...rest } = body;
  assert.match(version, /^\d+\.\d+\.\d+/);
  assert.deepEqual(rest, { status: "ok", problems: [], warnings: [] });
  const head = await spillway.request("/healthz", { method: "HEAD", as: null });
  assert.deepEqual([head.status, head.text, head.headers.get("cache-control")], [200, "", "no-store"]);
});

test("until a job is over its status says when to ask again, and that it must not be cached", async () => {
  const { status, headers, body } = await spillway.job(running);
  assert.equal(status, 200);
  assert.equal(body.status, "generating");
  assert.ok(Number(headers.get("retry-after")) >= 1);
  assert.equal(headers.get("cache-control"), "no-store");
});

test("once it is over there is nothing to ask again for", async () => {
  const { headers } = await spillway.job(done);
  assert.equal(headers.get("retry-after"), null);
  assert.ok(!/public/.test(headers.get("cache-control")));
});

test("the ETag is 304 while nothing has changed, and leads to news when something has", async () => {
  const id = await spillway.accepted(submission("[[slow]]"));
  const etags = new Set();
  let etag = '"0"';
  for (;;) {
    const { body, headers } = await spillway.job(id, { wait: 10, etag });
    etag = headers.get("etag");
    assert.ok(!etags.has(etag), `${etag} twice`);
    etags.add(etag);
    if (body.status === "done") break;
  }
  const again = await spillway.job(id, { etag });
  assert.equal(again.status, 304);
  assert.equal(again.text, "");
  assert.equal(again.headers.get("etag"), etag);
  // Weak or not: proxies take the W/ away.
  assert.equal((await spillway.job(id, { etag: etag.replace("W/", "") })).status, 304);
  const [first] = etags;
  assert.equal((await spillway.job(id, { etag: first })).status, 200);
});

test("the operator's ETag leads to news that apps are not shown", async () => {
  const id = await spillway.accepted(submission("[[refused]]"));
  await spillway.untilStatus(id, "failed");
  const [app, before] = await Promise.all(["app", "operator"].map((client) => spillway.job(id, { client })));
  const [appsTag, known] = [app, before].map(({ headers }) => headers.get("etag"));
  assert.equal((await spillway.job(id, { client: "operator", etag: known })).status, 304);
  const waiting = seconds(() => spillway.job(id, { client: "operator", etag: known, wait: 30 }));
  const again = await spillway.request(`/v1/jobs/${id}/regenerate`, { method: "POST", as: "app" });
  const [{ status, body, headers }, took] = await waiting;
  assert.deepEqual([status, body.operator?.regenerated_as], [200, again.body.id]);
  assert.ok(took < 10, `${took} s`);
  assert.equal((await spillway.job(id, { client: "operator", etag: headers.get("etag") })).status, 304);
  assert.equal((await spillway.job(id, { etag: appsTag })).status, 304, "nothing has changed for the app");
});

test("without an ETag wait holds the answer until the job is over", async () => {
  const id = await spillway.accepted(submission("[[slow]]"));
  const { body } = await spillway.job(id, { wait: 30 });
  assert.equal(body.status, "done");
});

test("without an ETag wait ends with the status as it is", async () => {
  const [{ status, body }, took] = await seconds(() => spillway.job(running, { wait: 1 }));
  assert.deepEqual([status, body.status], [200, "generating"]);
  assert.ok(took >= 0.9 && took < 5, `${took} s`);
});

test("with an ETag wait holds the answer until there is news", async () => {
  const id = await spillway.accepted(submission("[[seen]]"));
  await spillway.untilStatus(id, "generating");
  const { headers } = await spillway.job(id);
  const [{ status, body }, took] = await seconds(() => spillway.job(id, { wait: 30, etag: headers.get("etag") }));
  assert.equal(status, 200);
  assert.equal(body.status, "refining");
  assert.ok(took < 10, `${took} s`);
});

test("with the newest ETag wait ends with 304", async () => {
  const { headers } = await spillway.job(running);
  const etag = headers.get("etag");
  const [answer, took] = await seconds(() => spillway.job(running, { wait: 1, etag }));
  assert.equal(answer.status, 304);
  assert.equal(answer.headers.get("etag"), etag);
  assert.ok(took >= 0.9 && took < 5, `${took} s`);
});

test("an ETag that is none of ours is news at once", async () => {
  for (const etag of ['"abc"', "rubbish", '"99999999999999999999"', "W/", '"']) {
    const [{ status }, took] = await seconds(() => spillway.job(running, { wait: 20, etag }));
    assert.equal(status, 200, etag);
    assert.ok(took < 5, `${etag}: ${took} s`);
  }
});

test("thirty readers wait for the same job, and all get its end", async () => {
  const id = await spillway.accepted(submission("[[slow]]"));
  const answers = await Promise.all(Array.from({ length: 30 }, () => spillway.job(id, { wait: 30 })));
  assert.deepEqual([...new Set(answers.map(({ body }) => body.status))], ["done"]);
});

test("a reader that leaves while it waits disturbs nobody", async () => {
  const id = await spillway.accepted(submission("[[slow]]"));
  const leaving = spillway.request(`/v1/jobs/${id}?wait=30`, { signal: AbortSignal.timeout(100) });
  await assert.rejects(leaving, { name: "TimeoutError" });
  assert.equal((await spillway.untilDone(id)).status, "done");
});

test("a wait that is no whole number from 0 to 60 is 400", async () => {
  for (const wait of ["61", "-1", "1.5", "", "soon", "1e1", "99999999999999999999", "%20"]) {
    const { status, body, text } = await spillway.job(running, { wait });
    assert.equal(status, 400, `${wait}: ${text}`);
    assert.match(body.error.message, /wait: .* 0 to 60/);
  }
  assert.equal((await spillway.job(done, { wait: 60 })).status, 200);
  assert.equal((await spillway.job(running, { wait: 0 })).status, 200);
});
