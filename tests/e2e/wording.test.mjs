/** What a job's user reads (A9): in three languages and one of the deployment's own, and other words after a long wait (A10). */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { envelope, eventually, start, submission } from "./harness.mjs";

const TEXTS = {
  en: ["We have your request and will start on it in a moment.", "Your answer is ready."],
  ja: ["ご依頼を受け付けました。まもなく取りかかります。", "回答の準備ができました。"],
  "zh-Hans": ["已收到您的请求，马上就开始处理。", "结果已经准备好了。"],
};
const LONG_WAIT_SECONDS = 2;

/** GET of a job by somebody who reads `language`. */
function read(spillway, id, language, { etag, wait = 0 } = {}) {
  const headers = { "accept-language": language, ...(etag && { "if-none-match": etag }) };
  return spillway.request(`/v1/jobs/${id}?wait=${wait}`, { headers });
}

describe("what a job's user reads", { concurrency: 2 }, async () => {
  const spillway = await start();
  after(() => spillway.stop());

  for (const [what, locale, header, expected] of [
    ["nothing", undefined, "*", "en"],
    ["a locale", "ja-JP", "en", "ja"],
    ["a locale", "zh-CN", "*", "zh-Hans"],
    ["a locale", "en", "ja", "en"],
    ["a locale without a text", "de", "fr;q=0.9, ja;q=0.2", "ja"],
    ["Accept-Language", undefined, "ja,en;q=0.9", "ja"],
    ["Accept-Language", undefined, "en;q=0.1, zh-TW, ja;q=0", "zh-Hans"],
  ]) {
    test(`by ${what} (${locale ?? header}) receipt and status are in ${expected}`, async () => {
      const [received, done] = TEXTS[expected];
      const headers = { "accept-language": header };
      const receipt = await spillway.submit(submission("hello", { locale }), { headers });
      assert.deepEqual(receipt.body.message, { code: "received", text: received });
      await spillway.untilDone(receipt.body.id);
      const status = await read(spillway, receipt.body.id, header);
      assert.deepEqual(status.body.message, { code: "done", text: done });
      assert.deepEqual(Object.keys(status.body).slice(0, 4), ["id", "status", "message", "kind"]);
      for (const answer of [receipt, status]) {
        assert.equal(answer.headers.get("content-language"), expected);
        assert.equal(answer.headers.get("vary"), "accept-language");
      }
    });
  }

  test("what KV keeps is in no language: each reader has its own, and an ETag that is good for no other", async () => {
    const id = await spillway.accepted(submission("[[read]]"), { headers: { "accept-language": "ja" } });
    await spillway.untilDone(id);
    await eventually(() => spillway.stored(`job:${id}`), { what: "the job in KV" });
    const etags = {};
    for (const [language, [, done]] of Object.entries(TEXTS)) {
      const { body, headers } = await read(spillway, id, language);
      assert.equal(body.message.text, done);
      etags[language] = headers.get("etag");
    }
    assert.equal(new Set(Object.values(etags)).size, 3, Object.values(etags).join());
    for (const language of Object.keys(TEXTS)) {
      const same = await read(spillway, id, language, { etag: etags[language] });
      assert.deepEqual([same.status, same.headers.get("vary")], [304, "accept-language"]);
    }
    const other = await read(spillway, id, "ja", { etag: etags.en });
    assert.deepEqual([other.status, other.body.message.text], [200, TEXTS.ja[1]]);
  });

  test("a job that is taken back says so in its reader's language", async () => {
    await spillway.fault({ binding: "queue", how: "lose" });
    const id = await spillway.accepted(submission("[[back]]"));
    await spillway.fault();
    const headers = { "accept-language": "zh" };
    const { body, headers: answered } = await spillway.request(`/v1/jobs/${id}`, { method: "DELETE", headers });
    assert.deepEqual(body.message, { code: "cancelled", text: "该请求已取消。" });
    assert.equal(answered.get("content-language"), "zh-Hans");
  });
});

describe("with the deployment's own words", { concurrency: 2 }, async () => {
  const own = {
    en: { delayed: "Good things take a little longer." },
    fr: { done: "Votre réponse est prête." },
  };
  const spillway = await start({
    policy: { long_wait_seconds: LONG_WAIT_SECONDS, messages: own },
    script: { rules: [{ when: { prompt_call: 1, marker: "[[late]]" }, then: { status: 529, retry_after: 5 } }] },
  });
  after(() => spillway.stop());

  test("they replace ours one by one, and what an added language lacks is English", async () => {
    const { body, headers } = await spillway.submit(submission("[[own]]", { locale: "fr-CA" }));
    assert.deepEqual(body.message, { code: "received", text: TEXTS.en[0] });
    assert.equal(headers.get("content-language"), "en");
    await spillway.untilDone(body.id);
    const done = await read(spillway, body.id, "ja");
    assert.deepEqual(done.body.message, { code: "done", text: own.fr.done });
    assert.equal(done.headers.get("content-language"), "fr");
  });

  test("a job that waits long says so to who waits for news, in each language, and has its usual words in the end", async () => {
    const id = await spillway.accepted(submission("[[late]]", { request: { model: "claude-opus-5-5" } }));
    let answer;
    let etag = '"0"';
    do {
      answer = await read(spillway, id, "en", { etag, wait: 30 });
      assert.equal(answer.status, 200);
      etag = answer.headers.get("etag");
    } while (answer.body.status !== "retrying");
    assert.equal(answer.body.message.code, "working");
    const waiting = answer.body;

    // Nothing happens to the job meanwhile: only the words are new.
    answer = await read(spillway, id, "en", { etag, wait: 30 });
    const age = (Date.now() - Date.parse(answer.body.created_at)) / 1000;
    assert.ok(age >= LONG_WAIT_SECONDS - 0.05 && age < LONG_WAIT_SECONDS + 2, `${age} s`);
    assert.deepEqual(answer.body.message, { code: "delayed", text: own.en.delayed });
    assert.deepEqual([answer.body.status, answer.body.updated_at], ["retrying", waiting.updated_at]);
    assert.match((await read(spillway, id, "ja")).body.message.text, /^いつもより/);
    assert.match((await read(spillway, id, "zh")).body.message.text, /^这次比平时稍慢/);

    const done = await spillway.untilDone(id);
    assert.deepEqual(done.message, { code: "done", text: TEXTS.en[1] });
  });
});

describe("while jobs wait long in general (A10)", async () => {
  /** Longer than this test takes: no job of it says "delayed" for its own age. */
  const LONG_WAIT_SECONDS = 3600;
  const [SLOW, QUICK] = ["claude-opus-5-5", "claude-sonnet-5-5"];
  const spillway = await start({
    policy: { long_wait_seconds: LONG_WAIT_SECONDS },
    script: { rules: [{ when: { marker: "[[limited-", prompt_call: 1 }, then: { status: 429, retry_after: 60 } }] },
  });
  after(() => spillway.stop());
  const accepted = (text, model) => spillway.accepted(submission(text, { request: { model } }));

  /** So many jobs of `model`, each called for the first time when it had waited for twice the limit. */
  async function dwelled(count, model) {
    await spillway.fault({ binding: "queue", how: "lose" });
    const ids = await Promise.all(Array.from({ length: count }, (_, n) => accepted(`[[dwelled-${n}]]`, model)));
    await spillway.setClock(2 * LONG_WAIT_SECONDS * 1000);
    for (let n = 0; n < count; n += 5) {
      await spillway.deliver(
        "high",
        ids.slice(n, n + 5).map((id) => envelope(id)),
      );
    }
    for (const id of ids) assert.equal((await spillway.job(id)).body.status, "done");
    await spillway.fault();
  }

  test("who waits for that model says so at once, held or after a failure; for another, or in the queue still, by its own age", async () => {
    await dwelled(20, SLOW);
    for (const [model, code] of [
      [SLOW, "delayed"],
      [QUICK, "working"],
    ]) {
      const failed = await accepted(`[[limited-${model}]]`, model);
      const retrying = await spillway.untilStatus(failed, "retrying");
      const held = await spillway.untilStatus(await accepted("[[held]]", model), "held");
      assert.equal(held.waiting.reason, "retry_after");
      for (const { status, message } of [retrying, held]) assert.equal(message.code, code, `${model}, ${status}`);
    }
    await spillway.fault({ binding: "queue", how: "lose" });
    const { body: queued } = await spillway.job(await accepted("[[queued]]", SLOW));
    assert.deepEqual([queued.status, queued.message.code], ["received", "received"]);
    await spillway.setClock(3 * LONG_WAIT_SECONDS * 1000);
    assert.equal((await spillway.job(queued.id)).body.message.code, "delayed");
  });
});
