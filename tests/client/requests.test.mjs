/** What the client sends, what it sends again and when, and what an answer becomes. */
import assert from "node:assert/strict";
import { describe, mock, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import * as client from "../../client/index.js";
import { uniqueKey } from "../../client/src/unique-key.js";
import { ID, job, json, refusal, serve } from "./server.mjs";

const { Spillway } = client;
const RECEIPT = { id: ID, status: "received", status_url: `http://spillway/v1/jobs/${ID}` };
const SUBMISSION = { kind: "tagging", request: { max_tokens: 10, messages: [] } };

/**
 * A client whose clock stands still until `advance`, and whose fetch gives these answers, one after the other: a Response, or
 * what it rejects with, or a promise. In the middle of every draw, where half of a pause is drawn.
 */
function scripted(t, answers, options) {
  mock.timers.enable({ apis: ["setTimeout", "Date"], now: Date.parse("2026-11-30T12:00:00Z") });
  const random = mock.method(Math, "random", () => 0.5);
  t.after(() => {
    mock.timers.reset();
    random.mock.restore();
  });
  const sent = [];
  const fetch = async (url, init) => {
    sent.push({ at: Date.now() - Date.parse("2026-11-30T12:00:00Z"), url, ...init });
    const answer = answers[Math.min(sent.length, answers.length) - 1];
    if (answer instanceof Response) return answer.clone();
    if (answer instanceof Promise) return answer;
    throw answer;
  };
  return {
    sent,
    at: () => sent.map(({ at }) => at),
    spillway: new Spillway({ baseUrl: "http://spillway", key: "key", fetch, ...options }),
    /** Lets time pass until the promise is settled; what it came to. */
    async settled(promise, most = 600_000) {
      let over = false;
      const end = () => (over = true);
      promise.then(end, end);
      for (let passed = 0; passed <= most; passed += 250) {
        for (let turns = 0; turns < 10; turns += 1) await setImmediate();
        if (over) return promise;
        mock.timers.tick(250);
      }
      throw new Error("not settled");
    },
  };
}

const answer = (status, body, headers) =>
  new Response(JSON.stringify(body), { status, headers: { "content-type": "application/json", ...headers } });
const unreachable = () => new TypeError("fetch failed", { cause: new Error("ECONNREFUSED") });

test("a submission is sent as it is, with the key, a new idempotency key and the language", async (t) => {
  const { client: make, requests } = await serve(t, ({ response }) => json(response, 202, RECEIPT));
  const spillway = make({ locale: "zh-CN" });
  assert.deepEqual(await spillway.submit(SUBMISSION), RECEIPT);
  await spillway.submit(SUBMISSION);
  await spillway.submit(SUBMISSION, { idempotencyKey: "order-1042" });
  const [first, second, third] = requests;
  assert.deepEqual([first.method, first.path, JSON.parse(first.body)], ["POST", "/v1/jobs", SUBMISSION]);
  assert.equal(first.headers["content-type"], "application/json");
  assert.equal(first.headers.authorization, "Bearer key-of-app");
  assert.equal(first.headers["accept-language"], "zh-CN");
  assert.match(first.headers["idempotency-key"], /^[0-9a-f-]{36}$/);
  assert.notEqual(second.headers["idempotency-key"], first.headers["idempotency-key"]);
  assert.equal(third.headers["idempotency-key"], "order-1042");
});

test("what no header can hold is told at once, and not taken for a broken network", async (t) => {
  const { client, requests } = await serve(t, ({ response }) => json(response, 202, {}));
  for (const [made, options, name] of [
    [client(), { idempotencyKey: "заказ-1042" }, "idempotency-key"],
    [client(), { idempotencyKey: "two\nlines" }, "idempotency-key"],
    [client({ key: "ключ" }), {}, "authorization"],
  ]) {
    await assert.rejects(made.submit(SUBMISSION, options), { name: "SpillwayError", message: new RegExp(`^${name} `) });
  }
  assert.deepEqual(requests, []);
});

describe("what may succeed later is sent again, with one idempotency key and the same body", () => {
  for (const [what, failure] of [
    ["a connection that failed", unreachable()],
    ["429", answer(429, refusal("rate_limit_error"))],
    ["502 of a proxy", new Response("<html>", { status: 502 })],
    ["503", answer(503, refusal("api_error"))],
    ["504 of a proxy", new Response("<html>", { status: 504 })],
    ["Cloudflare's 522", new Response("<html>", { status: 522 })],
    ["a page that is somebody else's", new Response("<html>Please sign in")],
  ]) {
    test(what, async (t) => {
      const { spillway, sent, settled } = scripted(t, [failure, failure, answer(202, RECEIPT)]);
      assert.deepEqual(await settled(spillway.submit(SUBMISSION)), RECEIPT);
      assert.equal(sent.length, 3);
      assert.equal(new Set(sent.map(({ headers }) => headers["idempotency-key"])).size, 1);
      assert.deepEqual(new Set(sent.map(({ body }) => body)), new Set([JSON.stringify(SUBMISSION)]));
    });
  }

  test("four times, with pauses that double, and then it is an error that has the key", async (t) => {
    const { spillway, sent, at, settled } = scripted(t, [unreachable()]);
    await assert.rejects(settled(spillway.submit(SUBMISSION)), (error) => {
      assert.ok(error instanceof client.ConnectionError);
      assert.equal(error.idempotencyKey, sent[0].headers["idempotency-key"]);
      assert.match(error.message, /fetch failed: ECONNREFUSED.*same idempotency key/);
      return true;
    });
    // Three quarters of 500, 1000, 2000 and 4000 ms, told by a clock that ticks every 250.
    assert.deepEqual(at(), [0, 500, 1250, 2750, 5750]);
  });

  test("not before Retry-After, in seconds or as a date, and a little later, so that not all come at once", async (t) => {
    const inSeconds = answer(503, refusal("api_error"), { "retry-after": "7" });
    const asDate = answer(429, refusal("rate_limit_error"), { "retry-after": "Mon, 30 Nov 2026 12:00:20 GMT" });
    const { spillway, at, settled } = scripted(t, [inSeconds, asDate, answer(202, RECEIPT)]);
    await settled(spillway.submit(SUBMISSION));
    // At 12:00:07.5 there are 12.5 s left, which are 13 whole ones.
    assert.deepEqual(at(), [0, 7500, 21_000]);
  });

  test("but not when the server asks for more patience than that of a caller who was promised a receipt", async (t) => {
    const broken = answer(503, refusal("api_error", "this deployment's configuration is broken"), {
      "retry-after": "60",
    });
    const { spillway, sent, settled } = scripted(t, [broken]);
    await assert.rejects(settled(spillway.submit(SUBMISSION)), {
      name: "UnavailableError",
      status: 503,
      retryAfterSeconds: 60,
      message: /^POST http:\/\/spillway\/v1\/jobs: this deployment's configuration is broken\. \(request req_1\) Try/,
    });
    assert.equal(sent.length, 1);
  });

  test("while wait, which has heard of the job, obeys any Retry-After", async (t) => {
    const { spillway, at, settled } = scripted(t, [
      answer(404, refusal("not_found_error")),
      answer(200, job("held"), { etag: 'W/"1"' }),
      answer(503, refusal("api_error"), { "retry-after": "120" }),
      answer(200, job("done", { text: "." })),
    ]);
    assert.equal((await settled(spillway.wait(ID))).status, "done");
    assert.deepEqual(at(), [0, 0, 0, 120_500]);
  });

  test("when no answer comes: after half a minute", async (t) => {
    const { spillway, at, settled } = scripted(t, [new Promise(() => {})]);
    await assert.rejects(settled(spillway.status(ID)), {
      name: "ConnectionError",
      message: /no answer within 30000 ms/,
    });
    assert.deepEqual(at(), [0, 30_500, 61_250, 92_750, 125_750]);
  });
});

describe("what would fail again is an error at once, of its own class, which says what to do", () => {
  for (const [status, type, name, advice] of [
    [400, "invalid_request_error", "InvalidRequestError", /Correct the request/],
    [401, "authentication_error", "AuthenticationError", /Check the key/],
    [403, "permission_error", "PermissionError", /Use a client key/],
    [404, "not_found_error", "NotFoundError", /Check baseUrl and the id/],
    [405, "invalid_request_error", "InvalidRequestError", /Correct the request/],
    [409, "conflict_error", "ConflictError", /Read the job's status/],
    [413, "request_too_large", "InvalidRequestError", /Correct the request/],
    [415, "invalid_request_error", "InvalidRequestError", /Correct the request/],
    [422, "invalid_request_error", "InvalidRequestError", /Correct the request/],
    [500, "api_error", "UnavailableError", /Try again later/],
  ]) {
    test(`${status}`, async (t) => {
      const { client: make, requests } = await serve(t, ({ response }) =>
        json(response, status, refusal(type, "It is so")),
      );
      await assert.rejects(make().submit(SUBMISSION), (error) => {
        assert.ok(error instanceof client[name] && error instanceof client.ApiError);
        assert.ok(error instanceof client.SpillwayError && error instanceof Error);
        assert.deepEqual([error.name, error.status, error.type, error.requestId], [name, status, type, "req_1"]);
        assert.match(error.message, /^POST http:\S+\/v1\/jobs: It is so\. \(request req_1\) /);
        assert.match(error.message, advice);
        return true;
      });
      assert.equal(requests.length, 1);
    });
  }

  test("with every fault of a submission", async (t) => {
    const problems = [{ place: "kind", message: "is required" }];
    const { client: make } = await serve(t, ({ response }) =>
      json(response, 400, { type: "error", error: { type: "invalid_request_error", message: "kind: is required", problems } }),
    ); // prettier-ignore
    await assert.rejects(make().submit({}), { problems, message: /kind: is required\. Correct/, requestId: undefined });
  });

  test("also when a proxy says it with a page", async (t) => {
    const { client: make } = await serve(t, ({ response }) => response.writeHead(403).end("<html>"));
    await assert.rejects(make().submit({}), {
      name: "PermissionError",
      type: undefined,
      message: /the answer was 403 without a reason\. /,
    });
  });
});

test("every other call: its route, its body, its answer; a receipt and a status name the job as its id does", async (t) => {
  const { client: make, requests } = await serve(t, ({ request, response }) =>
    request.method === "DELETE" && request.url.endsWith("gone")
      ? response.writeHead(204).end()
      : json(response, 200, { asked: request.url }),
  );
  const spillway = make();
  for (const [call, request, body] of [
    [() => spillway.status(ID), `GET /v1/jobs/${ID}`],
    [() => spillway.status(RECEIPT), `GET /v1/jobs/${ID}`],
    [() => spillway.status("a/b?c"), "GET /v1/jobs/a%2Fb%3Fc"],
    [() => spillway.acceptDeferral(job("stalled")), `POST /v1/jobs/${ID}/deferral`, { accept: true }],
    [() => spillway.declineDeferral(ID), `POST /v1/jobs/${ID}/deferral`, { accept: false }],
    [() => spillway.regenerate(ID), `POST /v1/jobs/${ID}/regenerate`],
    [() => spillway.cancel(ID), `DELETE /v1/jobs/${ID}`],
    [() => spillway.list(), "GET /v1/jobs"],
    [() => spillway.list({ status: "done", limit: 5, cursor: "a&b" }), "GET /v1/jobs?status=done&limit=5&cursor=a%26b"],
  ]) {
    const { asked } = await call();
    const sent = requests.at(-1);
    assert.equal(`${sent.method} ${asked}`, request);
    assert.equal(sent.body, body ? JSON.stringify(body) : "");
    assert.equal(sent.headers.authorization, "Bearer key-of-app");
  }
  assert.equal(await spillway.cancel("gone"), undefined, "a job that was over is erased");
});

test("all jobs are listed page by page, and a page is asked for only when it is wanted", async (t) => {
  const pages = { undefined: [["a", "b"], "2"], 2: [["c"], "3"], 3: [[], "4"], 4: [["d"], undefined] };
  const { client: make, requests } = await serve(t, ({ response, query }) => {
    const [ids, next_cursor] = pages[query.get("cursor") ?? undefined];
    json(response, 200, { jobs: ids.map((id) => ({ id })), next_cursor });
  });
  const ids = [];
  for await (const { id } of make().jobs({ status: "done", limit: 2 })) ids.push(id);
  assert.deepEqual(ids, ["a", "b", "c", "d"]);
  assert.ok(requests.every(({ query }) => query.get("status") === "done" && query.get("limit") === "2"));

  requests.length = 0;
  for await (const { id } of make().jobs()) if (id === "b") break;
  assert.equal(requests.length, 1);
});

test("a trailing slash of baseUrl is none, and a path in front of the API stays", async (t) => {
  const { url, paths } = await serve(t, ({ response }) => json(response, 200, {}));
  await new Spillway({ baseUrl: `${url}/` }).status(ID);
  await new Spillway({ baseUrl: `${url}/api/spillway//` }).status(ID);
  assert.deepEqual(paths(), [`/v1/jobs/${ID}`, `/api/spillway/v1/jobs/${ID}`]);
});

test("what cannot be meant is refused before anything is sent", async () => {
  assert.throws(() => new Spillway(), { name: "SpillwayError", message: /baseUrl/ });
  assert.throws(() => new Spillway({ key: "k" }), /baseUrl/);
  for (const options of [null, { baseUrl: "" }, { baseUrl: "spillway.example" }, { baseUrl: "ftp://x" }]) {
    assert.throws(() => new Spillway(options), { name: "SpillwayError", message: /^baseUrl is .*https:/ });
  }
  new Spillway({ baseUrl: new URL("https://spillway.example") });
  for (const [options, message] of [
    [{ timeout: Number.NaN }, /^timeout must be/],
    [{ timeout: "soon" }, /^timeout must be/],
    [{ onProgress: 5 }, /^onProgress must be/],
    [{ onStalled: "yes" }, /^onStalled must be/],
  ]) {
    const waits = new Spillway({ baseUrl: "http://spillway", fetch: assert.fail }).wait(ID, options);
    await assert.rejects(waits, { name: "SpillwayError", message });
  }
  const spillway = new Spillway({ baseUrl: "http://spillway", fetch: assert.fail });
  for (const nothing of [undefined, null, "", {}, 7]) {
    for (const call of ["wait", "status", "acceptDeferral", "declineDeferral", "regenerate", "cancel"]) {
      await assert.rejects(spillway[call](nothing), { name: "SpillwayError", message: /named by its id/ });
    }
  }
});

test("no key is in a message, nor in what an error holds", async (t) => {
  const { client: make } = await serve(t, ({ response }) => json(response, 401, refusal("authentication_error")));
  await assert.rejects(make().submit({}), (error) => {
    assert.ok(!`${error.stack}${JSON.stringify(error)}`.includes("key-of-app"));
    return true;
  });
});

test("an idempotency key is unique and printable where there is no randomUUID, and no crypto at all", (t) => {
  const { crypto } = globalThis;
  t.after(() => Object.defineProperty(globalThis, "crypto", { value: crypto, configurable: true }));
  for (const there of [crypto, { getRandomValues: (bytes) => crypto.getRandomValues(bytes) }, undefined]) {
    Object.defineProperty(globalThis, "crypto", { value: there, configurable: true });
    const keys = new Set(Array.from({ length: 1000 }, uniqueKey));
    assert.equal(keys.size, 1000);
    for (const key of keys) assert.match(key, /^[0-9a-z-]{32,64}$/);
  }
});
