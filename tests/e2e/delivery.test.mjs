/**
 * Messages, as a queue really delivers them: twice, at the same time, late, and sometimes none of ours. The broker is
 * kept out of it, the queues lose what they are given, and every delivery is made by hand.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { envelope, MARK, start, submission } from "./harness.mjs";

const spillway = await start({
  script: {
    rules: [
      { when: { marker: "[[slow]]" }, then: { delay_ms: 4000, chunk_delay_ms: 20 } },
      { when: { marker: "[[fails once]]", prompt_call: 1 }, then: { status: 500 } },
    ],
  },
});
after(() => spillway.stop());
const LOSE = { binding: "queue", how: "lose" };
await spillway.fault(LOSE);

const UNKNOWN = `job_${"0123456789abcdef".repeat(2)}`;

const callsOf = (marker) => spillway.calls({ marker }).length;
const skipped = (id) => spillway.logs("delivery_skipped").filter(({ job }) => job === id);
const message = (id, body) => ({ id, body });

/** Delivers, and expects every message to be acknowledged. */
async function acked(queue, messages) {
  const { outcome, explicitAcks, retryMessages, ackAll } = await spillway.deliver(queue, messages);
  assert.equal(outcome, "ok");
  assert.deepEqual(retryMessages, []);
  assert.equal(ackAll, false, "each message is settled by itself");
  assert.equal(new Set(explicitAcks).size, [messages].flat().length);
}

const POISON = {
  "no JSON": "hello",
  empty: "",
  "half of an envelope": envelope(UNKNOWN).slice(0, -3),
  "an envelope and more": `${envelope(UNKNOWN)} and more`,
  "a JSON text": JSON.stringify(`${MARK} in a text`),
  "an unknown field": JSON.stringify({ v: 1, job: UNKNOWN, turn: 1, [`${MARK} in a field`]: 1 }),
  "an id that is none": JSON.stringify({ v: 1, job: `${MARK} as an id`, turn: 1 }),
  "an id with a newline": JSON.stringify({ v: 1, job: `${UNKNOWN}\n`, turn: 1 }),
  "no turn": JSON.stringify({ v: 1, job: UNKNOWN }),
  "a turn in text": JSON.stringify({ v: 1, job: UNKNOWN, turn: MARK }),
  "half a turn": `{"v":1,"job":"${UNKNOWN}","turn":1.5}`,
  "a negative turn": `{"v":1,"job":"${UNKNOWN}","turn":-1}`,
  "a turn beyond all numbers": `{"v":1,"job":"${UNKNOWN}","turn":1e400}`,
  "another version": JSON.stringify({ v: 2, job: UNKNOWN, turn: 1 }),
  "a number": 42,
  "not a number": NaN,
  "a truth": true,
  nothing: null,
  "an object": { v: 1, job: UNKNOWN, turn: 1 },
  "a list": [1, 2, 3],
  "a map": new Map([["v", 1]]),
  bytes: new TextEncoder().encode(envelope(UNKNOWN)),
  "a date": new Date(0),
  "100 KB of text": MARK.repeat(7000),
  "100 KB of a field": JSON.stringify({ [MARK.repeat(7000)]: 1 }),
  "100 KB of brackets": "[".repeat(100_000),
};

test("a message that is none of ours is acknowledged and logged, and the others of its batch go on", async () => {
  let total = spillway.logs("message_discarded").at(-1)?.count ?? 0;
  for (const queue of ["high", "medium", "low"]) {
    const id = await spillway.accepted(submission(`[[beside-${queue}]]`));
    const before = spillway.logs("message_discarded").length;
    const poison = Object.entries(POISON).map(([what, body]) => message(what, body));
    poison.splice(poison.length / 2, 0, message("ours", envelope(id)));
    await acked(queue, poison);
    assert.equal((await spillway.job(id)).body.status, "done");
    const discarded = spillway.logs("message_discarded").slice(before);
    assert.equal(discarded.length, poison.length - 1);
    for (const { queue: named, reason, count } of discarded) {
      total += 1;
      assert.equal(count, total, "each is counted");
      assert.equal(named, `spillway-${queue}`);
      assert.ok(reason.length > 5 && reason.length < 300, reason.slice(0, 500));
    }
  }
});

test("each of them alone is acknowledged, too", async () => {
  for (const [what, body] of Object.entries(POISON)) await acked("high", message(what, body));
});

test("the dead queue's consumer is no less robust", async () => {
  await acked(
    "dead",
    Object.entries(POISON).map(([what, body]) => message(what, body)),
  );
});

test("an empty batch is nothing", async () => {
  const { outcome } = await spillway.deliver("medium", []);
  assert.equal(outcome, "ok");
});

test("a message for a job that is not there, or not any more, is acknowledged: it will not come back", async () => {
  await acked("high", message("unknown", envelope(UNKNOWN)));
  await acked("dead", message("unknown", envelope(UNKNOWN)));
});

test("a message that is delivered twice is one call", async () => {
  const id = await spillway.accepted(submission("[[twice]]"));
  await acked("high", message("m", envelope(id)));
  await acked("high", message("m", envelope(id)));
  assert.equal((await spillway.job(id)).body.status, "done");
  assert.equal(callsOf("twice"), 1);
  assert.deepEqual(
    skipped(id).map(({ reason }) => reason),
    ["finished"],
  );
});

test("a message that is in its batch twice is one call", async () => {
  const id = await spillway.accepted(submission("[[pair]]"));
  await acked("high", [message("a", envelope(id)), message("b", envelope(id))]);
  assert.equal((await spillway.job(id)).body.status, "done");
  assert.equal(callsOf("pair"), 1);
});

test("a message that is delivered twice at the same time is one call, and nobody waits for the other", async () => {
  const id = await spillway.accepted(submission("[[slow]]"));
  await Promise.all(Array.from({ length: 5 }, (_, i) => acked("high", message(`m${i}`, envelope(id)))));
  assert.equal((await spillway.job(id)).body.status, "done");
  assert.equal(callsOf("slow"), 1);
  assert.deepEqual(
    skipped(id).map(({ reason }) => reason),
    Array(4).fill("leased"),
  );
});

test("a message that comes when the job is done is acknowledged, whatever its turn", async () => {
  const id = await spillway.accepted(submission("[[over]]"));
  await acked("high", envelope(id));
  const { body: done } = await spillway.job(id);
  for (const turn of [0, 1, 2, 1000, Number.MAX_SAFE_INTEGER]) await acked("medium", envelope(id, turn));
  assert.equal(callsOf("over"), 1);
  assert.deepEqual((await spillway.job(id)).body, done);
});

test("a message for an old turn, or one that has not come, makes no call", async () => {
  const id = await spillway.accepted(submission("[[fails once]]"));
  await acked("high", envelope(id, 1));
  assert.equal((await spillway.job(id)).body.status, "retrying");
  for (const turn of [0, 1, 3]) await acked("high", envelope(id, turn));
  assert.equal(callsOf("fails once"), 1);
  assert.deepEqual(
    skipped(id).map(({ reason }) => reason),
    Array(3).fill("stale_turn"),
  );
  await acked("high", envelope(id, 2));
  assert.equal((await spillway.job(id)).body.status, "done");
  assert.equal(callsOf("fails once"), 2);
});

test("a message from another queue is as good: the priority is the job's, not the queue's", async () => {
  const id = await spillway.accepted(submission("[[moved]]", { priority: "low" }));
  await acked("high", envelope(id));
  assert.equal((await spillway.job(id)).body.status, "done");
});

test("a Job object that does not take the claim has the message delivered again, alone of its batch", async () => {
  const [broken, sound] = await Promise.all([
    spillway.accepted(submission("[[broken]]")),
    spillway.accepted(submission("[[sound]]")),
  ]);
  await spillway.fault([LOSE, { binding: "job", operation: "claim", key: broken, how: "refuse" }]);
  const { explicitAcks, retryMessages } = await spillway.deliver("high", [
    message("broken", envelope(broken)),
    message("sound", envelope(sound)),
  ]);
  await spillway.fault(LOSE);
  assert.deepEqual(explicitAcks, ["sound"]);
  assert.deepEqual(
    retryMessages.map(({ msgId }) => msgId),
    ["broken"],
  );
  assert.ok(retryMessages[0].delaySeconds >= 1);
  assert.equal(callsOf("broken"), 0);
  assert.equal((await spillway.job(sound)).body.status, "done");
  await acked("high", envelope(broken));
  assert.equal((await spillway.job(broken)).body.status, "done");
  assert.equal(callsOf("broken"), 1);
});

test("a claim whose answer was lost is not called twice", async () => {
  const id = await spillway.accepted(submission("[[claimed]]"));
  await spillway.fault([LOSE, { binding: "job", operation: "claim", key: id, how: "lost_answer", times: 1 }]);
  const { retryMessages } = await spillway.deliver("high", envelope(id));
  assert.equal(retryMessages.length, 1);
  // The lease of the lost claim is still running: the watchdog goes on when it ends.
  await acked("high", envelope(id));
  await spillway.fault(LOSE);
  assert.equal(callsOf("claimed"), 0);
  assert.equal((await spillway.job(id)).body.status, "received");
});

test("an answer that the Job object does not take at once is offered again, and not called for again", async () => {
  const id = await spillway.accepted(submission("[[offered]]"));
  await spillway.fault([LOSE, { binding: "job", operation: "settle", key: id, how: "refuse", times: 2 }]);
  await acked("high", envelope(id));
  await spillway.fault(LOSE);
  assert.equal((await spillway.job(id)).body.status, "done");
  assert.equal(callsOf("offered"), 1);
});

test("a settlement whose answer was lost is not settled twice", async () => {
  const id = await spillway.accepted(submission("[[settled]]"));
  await spillway.fault([LOSE, { binding: "job", operation: "settle", key: id, how: "lost_answer", times: 1 }]);
  await acked("high", envelope(id));
  await spillway.fault(LOSE);
  const { body } = await spillway.job(id);
  assert.deepEqual([body.status, body.calls], ["done", 1]);
  assert.equal(callsOf("settled"), 1);
  assert.equal(spillway.logs("job_finished").filter(({ job }) => job === id).length, 1);
});

test("a call is not made if the Job object does not say so", async () => {
  const id = await spillway.accepted(submission("[[unbegun]]"));
  await spillway.fault([LOSE, { binding: "job", operation: "begin", key: id, how: "refuse", times: 1 }]);
  const { retryMessages } = await spillway.deliver("high", envelope(id));
  await spillway.fault(LOSE);
  assert.equal(retryMessages.length, 1);
  assert.equal(callsOf("unbegun"), 0);
});

test("a message that died in the queue comes back through the dead queue: its job sends it again", async () => {
  const id = await spillway.accepted(submission("[[dead]]"));
  await spillway.fault([{ binding: "queue", key: id, how: "lose" }, LOSE]);
  await acked("dead", envelope(id));
  const [sent] = await spillway.struck();
  await spillway.fault(LOSE);
  assert.equal(sent, 1);
  assert.equal((await spillway.job(id)).body.status, "received");
  assert.equal(callsOf("dead"), 0);
});

test("a dead message for an old turn, or of a job that is over, wakes nobody", async () => {
  const over = await spillway.accepted(submission("[[dead over]]"));
  await acked("high", envelope(over));
  const waiting = await spillway.accepted(submission("[[dead waiting]]"));
  await spillway.fault(LOSE);
  await acked("dead", [envelope(over), envelope(waiting, 7)]);
  assert.deepEqual(await spillway.struck(), [0]);
  assert.equal(callsOf("dead over"), 1);
});
