/** The same idempotency key is the same job, however often and however fast it is sent (B12). */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { start, submission } from "./harness.mjs";

const spillway = await start();
after(() => spillway.stop());

const callsOf = (marker) => spillway.calls({ marker }).length;

test("the same key with the same body is the same receipt, before the job is done and after", async () => {
  const body = submission("[[same]]");
  const first = await spillway.submit(body, { key: "same" });
  const second = await spillway.submit(body, { key: "same" });
  assert.equal(second.status, 202);
  assert.equal(second.body.id, first.body.id);
  assert.equal(second.headers.get("location"), first.headers.get("location"));
  await spillway.untilDone(first.body.id);
  const third = await spillway.submit(body, { key: "same" });
  assert.equal(third.status, 202);
  assert.equal(third.body.id, first.body.id);
  assert.equal(third.body.status, "done");
  assert.equal(third.body.message.code, "done");
  // Nothing was set going by the repetitions.
  await spillway.deliver("high", []);
  assert.equal(callsOf("same"), 1);
});

test("the same key with another body is a 409 that says what to do", async () => {
  const id = await spillway.accepted(submission("[[one]]"), { key: "conflict" });
  for (const [body, headers] of [
    [submission("[[other]]")],
    [submission("[[one]]", { kind: "tagging" })],
    [submission("[[one]]", { metadata: {} })],
    [submission("[[one]]"), { "anthropic-beta": "context-1m-2025-08-07" }],
  ]) {
    const answer = await spillway.submit(body, { key: "conflict", headers });
    assert.equal(answer.status, 409, answer.text);
    assert.equal(answer.body.error.type, "conflict_error");
    assert.match(answer.body.error.message, /new key/);
  }
  const done = await spillway.untilDone(id);
  assert.match(done.text, /\[\[one\]\]/);
  assert.equal(callsOf("other"), 0);
});

test("twenty at once are one job and one call", async () => {
  const body = submission("[[twenty]]");
  const answers = await Promise.all(Array.from({ length: 20 }, () => spillway.submit(body, { key: "twenty" })));
  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [202]);
  const [id, ...others] = new Set(answers.map(({ body }) => body.id));
  assert.deepEqual(others, []);
  await spillway.untilDone(id);
  assert.equal(callsOf("twenty"), 1);
  const fresh = spillway.logs("job_submitted").filter(({ job, replayed }) => job === id && !replayed);
  assert.equal(fresh.length, 1);
});

test("twenty different bodies at once under one key are one job and nineteen conflicts", async () => {
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, i) => spillway.submit(submission(`number ${i} [[race]]`), { key: "race" })),
  );
  const count = (status) => answers.filter((answer) => answer.status === status).length;
  assert.deepEqual([count(202), count(409)], [1, 19]);
  await spillway.untilDone(answers.find(({ status }) => status === 202).body.id);
  assert.equal(callsOf("race"), 1);
});

test("two clients with the same key have two jobs", async () => {
  const body = submission("[[shared]]");
  const app = await spillway.accepted(body, { key: "shared", client: "app" });
  const web = await spillway.accepted(body, { key: "shared", client: "web" });
  assert.notEqual(app, web);
  await spillway.untilDone(app, { client: "app" });
  await spillway.untilDone(web, { client: "web" });
  assert.equal(callsOf("shared"), 2);
});

test("a client's second key is no second client: its repetition is the same job", async () => {
  const body = submission("[[rotated]]");
  const id = await spillway.accepted(body, { key: "rotated", client: "app" });
  assert.equal(await spillway.accepted(body, { key: "rotated", client: "app's next" }), id);
});

test("without a key each submission is a job of its own", async () => {
  const body = submission("[[keyless]]");
  const ids = await Promise.all(Array.from({ length: 3 }, () => spillway.accepted(body)));
  assert.equal(new Set(ids).size, 3);
  await Promise.all(ids.map((id) => spillway.untilDone(id)));
  assert.equal(callsOf("keyless"), 3);
});

test("keys differ by every character, and may be long and odd", async () => {
  const keys = ["k", "K", "k ;", "k:k", "x".repeat(255), `{"a":"b"}`, "../../healthz"];
  const ids = await Promise.all(keys.map((key) => spillway.accepted(submission("odd"), { key })));
  assert.equal(new Set(ids).size, keys.length);
  // From the key alone nobody can tell the id.
  for (const id of ids) assert.match(id, /^job_[0-9a-f]{32}$/);
});

test("a receipt that was lost on its way is got by sending the same again", async () => {
  await spillway.fault({ binding: "job", operation: "create", how: "lost_answer", times: 1 });
  const lost = await spillway.submit(submission("[[lost]]"), { key: "lost" });
  assert.equal(lost.status, 503);
  assert.ok(Number(lost.headers.get("retry-after")) >= 1);
  assert.match(lost.body.error.message, /idempotency-key/);
  const id = await spillway.accepted(submission("[[lost]]"), { key: "lost" });
  await spillway.untilDone(id);
  assert.equal(callsOf("lost"), 1);
});

test("what was not stored is no job: the same key is free for it", async () => {
  await spillway.fault({ binding: "job", operation: "create", how: "refuse", times: 1 });
  assert.equal((await spillway.submit(submission("[[first]]"), { key: "free" })).status, 503);
  const id = await spillway.accepted(submission("[[second]]"), { key: "free" });
  await spillway.untilDone(id);
  assert.equal(callsOf("first"), 0);
  assert.equal(callsOf("second"), 1);
});

test("the key of an erased job stays taken: the old job is not made again", async () => {
  const body = submission("[[erased]]");
  const id = await spillway.accepted(body, { key: "erased" });
  await spillway.untilDone(id);
  await spillway.cancel(id);
  const answer = await spillway.submit(body, { key: "erased" });
  assert.equal(answer.status, 409);
  assert.match(answer.body.error.message, /erased/);
  assert.equal(callsOf("erased"), 1);
});

test("without SIGNING_SECRET a key is refused, and a submission without one is not", async () => {
  const bare = await start({ vars: { SIGNING_SECRET: undefined } });
  try {
    const refused = await bare.submit(submission(), { key: "k" });
    assert.equal(refused.status, 503);
    assert.match(refused.body.error.message, /SIGNING_SECRET/);
    await bare.untilDone(await bare.accepted(submission()));
    const health = await bare.request("/healthz", { as: null });
    assert.deepEqual(
      health.body.warnings.map(({ key }) => key),
      ["SIGNING_SECRET"],
    );
  } finally {
    await bare.stop();
  }
});
