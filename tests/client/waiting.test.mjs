/** How the client waits: by asking where events cannot be had, until the job is over or the caller does not want to any more. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Spillway } from "../../client/index.js";
import { DONE, eventRoute, ID, job, json, QUICK, refusal, serve, STORY, watcher } from "./server.mjs";

/** As React Native has it: its signals know no reason. */
class OldAbortController {
  signal = Object.assign(new EventTarget(), { aborted: false });
  abort = () => {
    if (this.signal.aborted) return;
    this.signal.aborted = true;
    this.signal.dispatchEvent(new Event("abort"));
  };
}

const EVENTS = `/v1/jobs/${ID}/events`;

/** The route of the status, of a job that is one step further each time that it is asked. */
function statusRoute(...jobs) {
  return ({ request, response, n }) => {
    const at = Math.min(n, jobs.length - 1);
    if (request.headers["if-none-match"] === `W/"${at}"`) return response.writeHead(304).end();
    json(response, 200, jobs[at], { etag: `W/"${at}"` });
  };
}

/** `events` for the events, and for all else what `status` says. */
const routes = (events, status) => (exchange) => (exchange.path.endsWith("/events") ? events : status)(exchange);

describe("where there are no events, the status is asked for", { concurrency: true }, () => {
  const status = () => statusRoute(job("received"), job("generating"), DONE);
  const eventStream = { "content-type": "text/event-stream" };
  const cases = {
    "the route answers 404": ({ response }) => json(response, 404, refusal("not_found_error")),
    "the route answers 405": ({ response }) => json(response, 405, refusal("invalid_request_error")),
    "the route answers 406": ({ response }) => json(response, 406, refusal("invalid_request_error")),
    "the route answers 501": ({ response }) => json(response, 501, refusal("api_error")),
    "an app's page answers": ({ response }) => response.writeHead(200, { "content-type": "text/html" }).end("<html>"),
    "a proxy holds back everything": () => {},
    "a proxy sends the headers and holds back the body": ({ response }) =>
      response.writeHead(200, eventStream).flushHeaders(),
    "a proxy breaks every stream off": ({ response }) => response.destroy(),
    "a proxy ends every stream at once": ({ response }) => response.writeHead(200, eventStream).end(),
    "what comes is not what was agreed on": ({ response }) =>
      response.writeHead(200, eventStream).end("event: status\ndata: {never\n\n"),
  };
  for (const [what, events] of Object.entries(cases)) {
    test(what, async (t) => {
      const { client, requests } = await serve(t, routes(events, status()));
      const { seen, onProgress } = watcher();
      const done = await client({ timing: { ...QUICK, firstByte: 50 } }).wait(ID, { onProgress });
      assert.deepEqual(done, DONE);
      assert.deepEqual(seen, ["received|", "generating|", "done|Hello, world"]);
      const asked = requests.filter(({ path }) => path !== EVENTS);
      assert.deepEqual(
        asked.map(({ query, headers }) => [query.get("wait"), headers["if-none-match"]]),
        [
          ["0", undefined],
          ["1", 'W/"0"'],
          ["1", 'W/"1"'],
        ],
        "first at once, to have something to show; then held until there is news",
      );
      assert.ok(requests.length - asked.length <= 2, "events are not tried for long");
    });
  }

  test("bodies do not stream, as in React Native: events are not even tried", async (t) => {
    const { client, paths } = await serve(
      t,
      routes(() => {}, status()),
    );
    const { Response } = globalThis;
    globalThis.Response = class {};
    const spillway = client();
    globalThis.Response = Response;
    assert.equal((await spillway.wait(ID)).status, "done");
    assert.ok(!paths().includes(EVENTS), `${paths()}`);
  });

  test("a fetch that was passed in has no body to read from", async (t) => {
    const bodiless = async (...args) => {
      const answer = await globalThis.fetch(...args);
      return { ok: answer.ok, status: answer.status, headers: answer.headers, text: () => answer.text() };
    };
    const { client } = await serve(t, routes(eventRoute(STORY), status()));
    assert.equal((await client({ fetch: bodiless }).wait(ID)).status, "done");
  });
});

test("answers that are not held are not asked for without a pause", async (t) => {
  const { client, requests } = await serve(t, ({ response, path }) => {
    if (path === EVENTS) return json(response, 404, refusal("not_found_error"));
    json(response, 200, job("held"), { etag: 'W/"1"', "retry-after": "60" });
  });
  await assert.rejects(client({ timing: { ...QUICK, longestRetry: 40 } }).wait(ID, { timeout: 300 }), {
    name: "TimeoutError",
  });
  assert.ok(requests.length <= 10, `${requests.length} requests in 300 ms`);
  assert.ok(requests.length >= 3);
});

test("a page that is not shown the ETag waits all the same", async (t) => {
  const { client, requests } = await serve(t, ({ response, path, n }) => {
    if (path === EVENTS) return json(response, 404, refusal("not_found_error"));
    json(response, 200, n < 3 ? job("generating") : DONE);
  });
  assert.equal((await client().wait(ID)).status, "done");
  assert.ok(requests.every(({ headers }) => headers["if-none-match"] === undefined));
});

test("a network that comes and goes is waited out once the job has been heard of, by asking as well", async (t) => {
  const { client } = await serve(
    t,
    routes(
      ({ response }) => json(response, 404, refusal("not_found_error")),
      ({ response, n }) => {
        if (n === 0) return json(response, 200, job("generating"), { etag: 'W/"1"' });
        if (n < 8) return response.destroy();
        if (n < 12) return json(response, 503, refusal("api_error"));
        if (n < 14) return response.writeHead(200, { "content-type": "text/html" }).end("Please sign in");
        json(response, 200, DONE);
      },
    ),
  );
  const connected = [];
  await client().wait(ID, { onProgress: (progress) => connected.push(progress.connected) });
  assert.deepEqual(connected, [true, false, true, true]);
});

test("who has heard nothing yet is told soon that nobody is there", async (t) => {
  const { client, requests } = await serve(t, ({ response }) => response.destroy());
  await assert.rejects(client().wait(ID), (error) => {
    assert.equal(error.name, "ConnectionError");
    assert.ok(error.cause instanceof TypeError);
    assert.match(error.message, /^GET http:\S+: .*Check baseUrl and the network/);
    return true;
  });
  assert.equal(requests.length, 5);
});

test("what will not get better ends the waiting at once: no key, no right, no job", async (t) => {
  for (const [status, type, name] of [
    [401, "authentication_error", "AuthenticationError"],
    [403, "permission_error", "PermissionError"],
    [404, "not_found_error", "NotFoundError"],
  ]) {
    const { client, requests } = await serve(t, ({ response }) => json(response, status, refusal(type)));
    await assert.rejects(client().wait(ID), { name, status, type, requestId: "req_1" });
    assert.ok(requests.length <= 2);
  }
});

test("from events over to asking: the text stays while it must be the same draft's, and no longer", async (t) => {
  const first = STORY.slice(0, 5);
  for (const [next, kept] of [
    [job("refining"), true],
    [job("refining", { calls: 2 }), false],
    [job("retrying"), false],
  ]) {
    const route = eventRoute(first, () => 700);
    const { client } = await serve(
      t,
      routes(
        (exchange) => (exchange.n === 0 ? route(exchange) : json(exchange.response, 404, refusal("not_found_error"))),
        statusRoute(next, DONE),
      ),
    );
    const { seen, onProgress } = watcher();
    await client().wait(ID, { onProgress });
    const text = seen.filter((step) => step.startsWith("refining|H")).at(-1);
    assert.ok(text, `${seen}`);
    const after = seen.slice(seen.indexOf(text));
    assert.deepEqual(after, [text, ...(kept ? [] : [`${next.status}|`]), "done|Hello, world"]);
  }
});

test("events that are held back later on, connection after connection, are given up for asking", async (t) => {
  const route = eventRoute(STORY.slice(0, 4), () => 300);
  const { client, requests } = await serve(
    t,
    routes((exchange) => (exchange.n === 0 ? route(exchange) : undefined), statusRoute(DONE)),
  );
  assert.equal((await client({ timing: { ...QUICK, firstByte: 1000 } }).wait(ID)).status, "done");
  assert.equal(requests.filter(({ path }) => path === EVENTS).length, 4);
});

for (const [how, end] of [
  ["broken off", (response) => response.destroy()],
  ["ended", (response) => response.end()],
]) {
  test(`where each connection is ${how} before the last event, the job is asked for now and then`, async (t) => {
    const first = eventRoute(STORY.slice(0, 5));
    const none = ({ response }) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).write(": here\n\n");
      setTimeout(() => end(response), 10);
    };
    const { client, requests } = await serve(
      t,
      routes((exchange) => (exchange.n === 0 ? first : none)(exchange), statusRoute(job("refining"), DONE)),
    );
    const { seen, onProgress } = watcher();
    assert.equal((await client().wait(ID, { onProgress })).status, "done");
    assert.equal(requests.filter(({ path }) => path !== EVENTS).length, 2);
    assert.ok(
      seen.some((step) => step.startsWith("refining|H")),
      "and until then there is text",
    );
  });
}

describe("a job that does not end done is an error", () => {
  const ended = (t, last) => serve(t, eventRoute([["status", job("generating")], ["status", last]])); // prettier-ignore

  test("that failed: with its reason, its status, what to do, and what had come if it was interrupted", async (t) => {
    const failed = job("failed", {
      reason: "interrupted",
      partial_text: "Hello, wo",
      error: { type: "overloaded_error", message: "Claude broke off" },
    });
    const { client } = await ended(t, failed);
    const { seen, onProgress } = watcher();
    await assert.rejects(client().wait(ID, { onProgress }), {
      name: "JobFailedError",
      message: `Job ${ID} failed, interrupted: Claude broke off. It can be done again: regenerate(id).`,
      id: ID,
      reason: "interrupted",
      partialText: "Hello, wo",
      job: failed,
    });
    assert.equal(seen.at(-1), "failed|Hello, wo", "listeners are told as well");
  });

  test("that Claude refused: not to be done again as it is", async (t) => {
    const failed = job("failed", { reason: "invalid_request", error: { message: "max_tokens: too large" } });
    const { client } = await ended(t, failed);
    await assert.rejects(client().wait(ID), (error) => {
      assert.equal(error.partialText, undefined);
      assert.match(error.message, /max_tokens: too large\. .*correct it/);
      return true;
    });
  });

  test("that was cancelled", async (t) => {
    const { client } = await ended(t, job("cancelled"));
    await assert.rejects(client().wait(ID), { name: "JobCancelledError", id: ID, job: job("cancelled") });
  });
});

test("a stalled job is no end: its listener is asked once for each offer, and the waiting goes on", async (t) => {
  const offer = (resumes_at) => ({ answer_within_seconds: 900, without_answer: "deferred", resumes_at });
  const stalled = (at) => ["status", job("stalled", { offer: offer(at) })];
  const story = [stalled("A"), stalled("A"), ["status", job("deferred")], stalled("A"), stalled("B"), ["status", DONE]];
  const { client } = await serve(t, eventRoute(story));
  const asked = [];
  const seen = [];
  const done = await client().wait(ID, {
    onStalled: (...args) => asked.push(args),
    onProgress: ({ status, offer }) => seen.push([status, offer?.resumes_at]),
  });
  assert.equal(done.status, "done");
  assert.deepEqual(asked, ["A", "A", "B"].map((at) => [offer(at), job("stalled", { offer: offer(at) })])); // prettier-ignore
  assert.deepEqual(seen.slice(0, 3), [["stalled", "A"], ["stalled", "A"], ["deferred", undefined]]); // prettier-ignore
});

test("a listener's promise that is rejected ends the waiting as what it throws does", async (t) => {
  const stalled = job("stalled", { offer: { resumes_at: "2026-12-01T06:00:00Z" } });
  for (const listener of ["onStalled", "onProgress"]) {
    const { client } = await serve(t, eventRoute([["status", stalled], ["status", DONE]], () => 400)); // prettier-ignore
    const conflict = new Error("409");
    await assert.rejects(client().wait(ID, { [listener]: async () => Promise.reject(conflict) }), conflict);
  }
});

describe("the caller may stop", { concurrency: true }, () => {
  const silent = (t) => serve(t, () => {});
  const patient = { ...QUICK, request: 60_000, firstByte: 60_000 };

  test("before it begins: nothing is sent", async (t) => {
    const { client, requests } = await silent(t);
    const reason = new Error("changed my mind");
    await assert.rejects(client().wait(ID, { signal: AbortSignal.abort(reason) }), reason);
    await assert.rejects(client().submit({}, { signal: AbortSignal.abort() }), { name: "AbortError" });
    assert.deepEqual(requests, []);
  });

  test("while it connects, while events come, while it asks, between two tries, and while it submits", async (t) => {
    const never = () => {};
    const noEvents = ({ response }) => json(response, 404, refusal("not_found_error"));
    const some = ({ response }) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write("event: status\nid: 1\ndata: {}\n\n");
    };
    const slow = { ...patient, retry: 60_000, longestRetry: 60_000 };
    const cases = {
      connecting: [never, patient],
      reading: [some, patient],
      asking: [routes(noEvents, never), patient],
      pausing: [({ response }) => response.destroy(), slow],
    };
    for (const [what, [handle, timing]] of Object.entries(cases)) {
      for (const call of ["wait", "submit"]) {
        const { client, requests } = await serve(t, handle);
        if (call === "submit" && what === "reading") continue;
        const controller = new AbortController();
        const going = client({ timing })[call](ID, { signal: controller.signal });
        const until = what === "asking" && call === "wait" ? 2 : 1;
        while (requests.length < until) await new Promise((resolve) => setTimeout(resolve, 5));
        setTimeout(() => controller.abort(), 30);
        const since = Date.now();
        await assert.rejects(going, { name: "AbortError" }, what);
        assert.ok(Date.now() - since < 1000, `${what} took ${Date.now() - since} ms`);
      }
    }
  });

  test("with a fetch that does not know of signals", async () => {
    const fetch = () => new Promise(() => {});
    const spillway = new Spillway({ baseUrl: "http://spillway", fetch, timing: patient });
    const controller = new AbortController();
    const going = spillway.wait(ID, { signal: controller.signal });
    controller.abort(new Error("enough"));
    await assert.rejects(going, /enough/);
    await assert.rejects(spillway.wait(ID, { signal: controller.signal }), /enough/);
  });

  test("and hears the reason of it, whatever a fetch and a platform make of an abort", async (t) => {
    const fetch = (_, { signal }) =>
      new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("Aborted"))));
    const { AbortController } = globalThis;
    t.after(() => (globalThis.AbortController = AbortController));
    for (const Controller of [AbortController, OldAbortController]) {
      globalThis.AbortController = Controller;
      const going = new Spillway({ baseUrl: "http://spillway", fetch }).wait(ID, { timeout: 20 });
      globalThis.AbortController = AbortController;
      await assert.rejects(going, { name: "TimeoutError", id: ID });
    }
  });

  test("where signals have no reason, and where there is no DOMException, as in React Native", async (t) => {
    const { signal, abort } = new OldAbortController();
    const { DOMException } = globalThis;
    t.after(() => (globalThis.DOMException = DOMException));
    const going = new Spillway({ baseUrl: "http://spillway", fetch: () => new Promise(() => {}) }).wait(ID, { signal });
    globalThis.DOMException = undefined;
    abort();
    await assert.rejects(going, (error) => error.name === "AbortError" && error instanceof Error);
  });

  test("by a timeout, which says that the job goes on and where it stands", async (t) => {
    const { client } = await serve(t, ({ response }) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(`event: status\nid: 1\ndata: ${JSON.stringify(job("generating"))}\n\n`);
    });
    await assert.rejects(client({ timing: patient }).wait(ID, { timeout: 1500 }), {
      name: "TimeoutError",
      message: `Job ${ID} was not over within 1500 ms; it is generating, and it goes on. Wait for the same id again.`,
      id: ID,
      job: job("generating"),
    });
    const nobody = new Spillway({ baseUrl: "http://spillway", fetch: () => new Promise(() => {}) });
    await assert.rejects(nobody.wait(ID, { timeout: 20 }), /nothing is known of it yet/);
  });
});

test("the credential is the one given, the key, the receipt's token or the client's, in this order", async (t) => {
  const { client, requests } = await serve(t, eventRoute(STORY));
  const receipt = { id: ID, read_token: "of-receipt" };
  for (const [options, reference, more, used] of [
    [{}, receipt, { readToken: "given" }, "Bearer given"],
    [{}, receipt, {}, "Bearer key-of-app"],
    [{ key: undefined, readToken: "of-client" }, receipt, {}, "Bearer of-receipt"],
    [{ key: undefined, readToken: "of-client" }, ID, {}, "Bearer of-client"],
    [{ key: undefined }, ID, {}, undefined],
  ]) {
    await client(options).wait(reference, more);
    assert.equal(requests.at(-1).headers.authorization, used);
  }
  assert.ok(requests.every(({ path }) => path === EVENTS));
});
