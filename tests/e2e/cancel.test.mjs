/** DELETE takes a job back: it is not called any more, and what it held is gone. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { envelope, eventually, MARK, start, submission } from "./harness.mjs";

const spillway = await start({
  // A consumer hears of it when it renews its lease, every third of this.
  policy: { lease_seconds: 2 },
  script: {
    rules: [
      { when: { marker: "[[hang]]" }, then: { fault: "hang" } },
      { when: { marker: "[[endless]]" }, then: { tokens: 100, cut: { after_deltas: 5, how: "stall" } } },
      { when: { marker: "[[retried]]" }, then: { status: 500 } },
    ],
  },
});
after(() => spillway.stop());

async function isCancelled(id, at = spillway) {
  const { status, body, headers, text } = await at.job(id);
  assert.equal(status, 200);
  assert.equal(body.status, "cancelled");
  assert.equal(body.message.code, "cancelled");
  assert.equal(body.metadata, undefined);
  assert.equal(body.waiting, undefined);
  assert.ok(body.finished_at >= body.created_at);
  assert.equal(headers.get("retry-after"), null);
  assert.ok(!text.includes(MARK));
}

test("a job that waits for its first turn is cancelled, and never called", async () => {
  await spillway.fault({ binding: "queue", how: "lose" });
  const id = await spillway.accepted(submission("[[early]]", { metadata: { note: MARK } }));
  await spillway.fault();
  const { status, body, headers } = await spillway.cancel(id);
  assert.equal(status, 200);
  assert.equal(body.status, "cancelled");
  assert.match(headers.get("etag"), /^W\/"\d+-cancelled-en"$/);
  await isCancelled(id);
  const { explicitAcks, retryMessages } = await spillway.deliver("high", { id: "late", body: envelope(id) });
  assert.deepEqual([explicitAcks, retryMessages], [["late"], []]);
  assert.deepEqual(spillway.calls({ marker: "early" }), []);
});

test("a job that waits for another attempt is cancelled, and not called again", async () => {
  const id = await spillway.accepted(submission("[[retried]]"));
  await spillway.untilStatus(id, "retrying");
  assert.equal((await spillway.cancel(id)).body.status, "cancelled");
  await spillway.untilLog(
    ({ event, job, reason }) => event === "delivery_skipped" && job === id && reason === "finished",
  );
  await isCancelled(id);
  assert.equal(spillway.calls({ marker: "retried" }).length, 1);
});

for (const [what, marker, status] of [
  ["before its answer begins", "hang", "generating"],
  ["in the middle of its answer", "endless", "refining"],
]) {
  test(`a running job is cancelled ${what}: the call is aborted`, async () => {
    const id = await spillway.accepted(submission(`[[${marker}]]`));
    await spillway.untilStatus(id, status);
    assert.equal((await spillway.cancel(id)).body.status, "cancelled");
    await isCancelled(id);
    await spillway.untilCalls((calls) => calls.some((call) => call.marker === marker && call.outcome !== null));
    const [call, ...others] = spillway.calls({ marker });
    assert.deepEqual(others, []);
    assert.equal(call.outcome.client_closed, true);
    await spillway.untilLog(
      ({ event, job, reason }) => event === "call_abandoned" && job === id && reason === "cancelled",
    );
    await isCancelled(id);
  });
}

test("an answer that comes after the cancellation is not kept", async (t) => {
  // No lease is renewed before: the consumer hears of it when it has the answer.
  const spillway = await start({ script: { rules: [{ then: { delay_ms: 5000 } }] } });
  t.after(() => spillway.stop());
  const id = await spillway.accepted(submission("[[slow]]"));
  await spillway.untilStatus(id, "generating");
  await spillway.cancel(id);
  await spillway.untilLog(({ event, job }) => event === "call_abandoned" && job === id);
  assert.ok(spillway.calls()[0].outcome.completed, "it came");
  await isCancelled(id, spillway);
  assert.equal(await spillway.stored(`job:${id}`), null);
});

test("a reader that waits for a job learns at once that it was cancelled", async () => {
  const id = await spillway.accepted(submission("[[hang]]"));
  await spillway.untilStatus(id, "generating");
  const reading = spillway.job(id, { wait: 30 });
  await spillway.cancel(id);
  assert.equal((await reading).body.status, "cancelled");
});

test("cancelling twice is as good as once", async () => {
  const id = await spillway.accepted(submission("[[retried]]"));
  await spillway.untilStatus(id, "retrying");
  const first = await spillway.cancel(id);
  const second = await spillway.cancel(id);
  assert.deepEqual([first.status, second.status], [200, 200]);
  assert.equal(second.body.status, "cancelled");
  assert.equal(second.body.finished_at, first.body.finished_at);
});

test("a finished job is erased: its content is gone at once, here and in KV, and it is not found any more", async () => {
  const id = await spillway.accepted(submission("[[finished]]"));
  await spillway.untilDone(id);
  await eventually(() => spillway.stored(`job:${id}`), { what: "the job in KV" });
  const { status, text } = await spillway.cancel(id);
  assert.deepEqual([status, text], [204, ""]);
  assert.equal((await spillway.job(id)).status, 404);
  assert.equal((await spillway.cancel(id)).status, 404);
  await eventually(async () => (await spillway.stored(`job:${id}`)) === null, { what: "the job gone from KV" });
});

test("an answer that is on its way into KV while it is erased does not come back", async () => {
  await spillway.fault({ binding: "kv", operation: "put", key: "job:", how: "slow", ms: 700 });
  const id = await spillway.accepted(submission("[[overtaken]]"));
  await spillway.untilDone(id);
  assert.equal((await spillway.cancel(id)).status, 204);
  await eventually(async () => (await spillway.struck())[0] === 1, { what: "the write to KV" });
  await eventually(() => spillway.stored(`job:${id}`), { timeout: 2000 }).catch(() => {});
  await spillway.fault();
  await eventually(async () => (await spillway.stored(`job:${id}`)) === null, { what: "the job gone from KV" });
  assert.equal((await spillway.job(id)).status, 404);
});

test("a job is not called erased before KV has forgotten it, and DELETE again completes it", async () => {
  const id = await spillway.accepted(submission("[[stubborn]]"));
  await spillway.untilDone(id);
  await eventually(() => spillway.stored(`job:${id}`), { what: "the job in KV" });
  await spillway.fault({ binding: "kv", operation: "delete", how: "refuse" });
  const refused = await spillway.cancel(id);
  assert.equal(refused.status, 503);
  assert.ok(Number(refused.headers.get("retry-after")) >= 1);
  await spillway.fault();
  // It is nobody else's, still.
  assert.equal((await spillway.cancel(id, { client: "web" })).status, 404);
  assert.equal((await spillway.cancel(id)).status, 204);
  assert.equal((await spillway.job(id)).status, 404);
  assert.equal(await spillway.stored(`job:${id}`), null);
});

test("KV takes one write a second for a key: a job is erased right after it was published all the same", async () => {
  const id = await spillway.accepted(submission("[[published just now]]"));
  await spillway.untilDone(id);
  await spillway.fault({ binding: "kv", operation: "delete", how: "refuse", times: 1 });
  assert.equal((await spillway.cancel(id)).status, 204);
  assert.equal((await spillway.job(id)).status, 404);
  assert.equal(await spillway.stored(`job:${id}`), null);
  await spillway.fault();
});
