/**
 * The JavaScript client (client/) on what is live: text while it grows, drafts that are discarded, and read tokens.
 */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import * as api from "../../client/index.js";
import { eventually, KEYS, PATIENCE, start, submission } from "./harness.mjs";

/** Its waiting ends sooner than the test's patience, so that a failure says what it is. */
class App extends api.Spillway {
  wait(job, options) {
    return super.wait(job, { timeout: PATIENCE / 2, ...options });
  }
}

/** What a caller is shown, and that it was by events. */
function watcher() {
  const seen = [];
  const paths = [];
  return {
    seen,
    paths,
    texts: () => seen.map(({ text }) => text).filter((text, n, all) => text !== all[n - 1]),
    onProgress: (progress) => seen.push(progress),
    fetch: (url, init) => {
      paths.push(new URL(url).pathname);
      return globalThis.fetch(url, init);
    },
  };
}

/** Each text is the one before and more, to the end. */
function assertGrows(texts, whole) {
  for (const [n, text] of texts.entries()) {
    assert.ok(whole.startsWith(text), `${JSON.stringify(text)} is not how ${JSON.stringify(whole)} begins`);
    assert.ok(n === 0 || text.length > texts[n - 1].length, "it only grows");
  }
  assert.equal(texts.at(-1), whole);
}

describe("the client, live", { concurrency: 4 }, async () => {
  // About six seconds, once whoever watches has begun to: text is passed on once a second.
  const long = { tokens: 1200, tokens_per_chunk: 20, chunk_delay_ms: 100, delay_ms: 2000 };
  const spillway = await start({
    script: {
      rules: [
        { when: { marker: "[[broken]]", prompt_call: 1 }, then: { ...long, cut: { after_deltas: 30, how: "error" } } },
        { when: { marker: "[[interrupted]]" }, then: { ...long, cut: { after_deltas: 30, how: "error" } } },
        { when: { marker: ["[[long]]", "[[broken]]"] }, then: long },
      ],
    },
  });
  after(() => spillway.stop());
  const prompt = (text, fields) => submission(text, { request: { max_tokens: 4000 }, ...fields });
  const clientOf = (options) => new App({ baseUrl: spillway.url, key: KEYS.app, ...options });

  test("shows the text while it grows, by events alone", async () => {
    const { seen, texts, paths, onProgress, fetch } = watcher();
    const client = clientOf({ fetch });
    const receipt = await client.submit(prompt("[[long]] watched"));
    const done = await client.wait(receipt, { onProgress });
    assertGrows(texts(), done.text);
    assert.ok(texts().length >= 4, `${texts().length} texts`);
    assert.ok(seen.every(({ connected }) => connected));
    assert.deepEqual(paths, ["/v1/jobs", `/v1/jobs/${receipt.id}/events`]);
    assert.equal(new URL(receipt.events_url).pathname, paths[1]);
    assert.deepEqual(done, (await spillway.job(receipt.id)).body, "both say the same");
  });

  test("loses and repeats nothing when the connection breaks after every event", async () => {
    const { seen, texts, onProgress } = watcher();
    let connections = 0;
    // Reads one event, and breaks.
    const fetch = async (url, init) => {
      const answer = await globalThis.fetch(url, init);
      if (!url.endsWith("/events") || answer.status !== 200) return answer;
      connections += 1;
      const reader = answer.body.getReader();
      const decoder = new TextDecoder();
      let passed = "";
      const source = {
        async pull(controller) {
          const { done, value } = await reader.read();
          if (done) return controller.close();
          passed += decoder.decode(value, { stream: true });
          controller.enqueue(value);
          if (/^data: .*\n\n/m.test(passed)) {
            controller.error(new TypeError("terminated"));
            await reader.cancel();
          }
        },
      };
      // Only what is asked for: what lies in a queue when the stream breaks is lost with it.
      const body = new ReadableStream(source, { highWaterMark: 0 });
      return new Response(body, { status: 200, headers: answer.headers });
    };
    const client = clientOf({ fetch, timing: { retry: 50, longestRetry: 50 } });
    // Its queue waits a second: whoever begins to watch later is not told that it was received.
    const { id } = await client.submit(prompt("[[long]] cut", { priority: "medium" }));
    const done = await client.wait(id, { onProgress });
    assertGrows(texts(), done.text);
    assert.ok(connections >= 4, `${connections} connections`);
    const statuses = seen.map(({ status }) => status).filter((status, n, all) => status !== all[n - 1]);
    assert.deepEqual(statuses, ["received", "generating", "refining", "done"]);
    assert.equal(spillway.calls({ marker: "long" }).filter(({ body }) => body.includes("cut")).length, 1);
  });

  test("shows who comes late all of the text so far", async () => {
    const client = clientOf();
    const { id } = await client.submit(prompt("[[long]] late"));
    const early = watcher();
    const watching = client.wait(id, { onProgress: early.onProgress });
    await eventually(() => early.texts().length >= 3, { what: "text to be shown" });
    const [, , soFar] = early.texts();
    const { texts, onProgress } = watcher();
    const done = await clientOf().wait(id, { onProgress });
    assert.deepEqual(await watching, done);
    assertGrows(texts(), done.text);
    const first = texts().find((text) => text !== "");
    assert.ok(first.startsWith(soFar), `${JSON.stringify(first)} lacks what was there before`);
  });

  test("throws a draft away that somebody saw, and shows the next one from its beginning", async () => {
    const { seen, texts, onProgress } = watcher();
    const client = clientOf();
    const { id } = await client.submit(prompt("[[broken]]"));
    const done = await client.wait(id, { onProgress });
    const discards = seen.filter(({ discarded }) => discarded);
    assert.equal(discards.length, 1);
    assert.equal(discards[0].text, "");
    assert.equal(typeof discards[0].discarded.reason, "string");
    const at = texts().lastIndexOf("");
    assert.ok(
      texts()
        .slice(0, at)
        .some((text) => text !== ""),
      "somebody saw it",
    );
    assertGrows(texts().slice(at + 1), done.text);
    const drafts = [...new Set(seen.map(({ draft }) => draft).filter((draft) => draft !== undefined))];
    assert.equal(drafts.length, 2);
    assert.equal(discards[0].discarded.draft, drafts[0]);
  });

  test("ends with what had come, if an interruption is to be the end; done again, it is another job", async () => {
    const { texts, onProgress } = watcher();
    const client = clientOf();
    const { id } = await client.submit(prompt("[[interrupted]]", { when_interrupted: "fail" }));
    const error = await client.wait(id, { onProgress }).then(assert.fail, (error) => error);
    assert.ok(error instanceof api.JobFailedError, error.stack);
    assert.equal(error.reason, "interrupted");
    assert.ok(error.partialText.length > 0);
    const shown = texts().filter((text) => text !== "");
    assert.ok(error.partialText.startsWith(shown[0]), `${JSON.stringify(error.partialText)} is not what was shown`);
    assert.notEqual((await client.regenerate(error.job)).id, id);
  });

  test("reads one job with its token, and nothing else", async () => {
    const client = clientOf();
    const receipt = await client.submit(submission("[[token]]"));
    assert.ok(Date.parse(receipt.read_token_expires_at) > Date.now());
    const page = clientOf({ key: undefined });
    const done = await page.wait({ id: receipt.id, read_token: receipt.read_token });
    assert.equal(done.status, "done");
    const readToken = receipt.read_token;
    assert.deepEqual(await page.status(receipt.id, { readToken }), done);
    // Where events are held back, by asking.
    const fetch = (url, init) => (url.endsWith("/events") ? new Promise(() => {}) : globalThis.fetch(url, init));
    const behind = clientOf({ key: undefined, readToken, fetch, timing: { firstByte: 50 } });
    assert.deepEqual(await behind.wait(receipt.id), done);

    const other = await client.submit(submission("[[other]]"));
    await assert.rejects(page.wait(other.id, { readToken }), (error) => error instanceof api.ApiError);
    await assert.rejects(page.wait(receipt.id, { readToken: `${readToken}x` }), { name: "AuthenticationError" });
    const reader = clientOf({ key: undefined, readToken });
    for (const call of ["cancel", "regenerate", "acceptDeferral"]) {
      await assert.rejects(reader[call](receipt), { name: "PermissionError" }, call);
    }
    await assert.rejects(reader.submit(submission()), { name: "PermissionError" });
  });
});
