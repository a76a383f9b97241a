/**
 * Live events: every status at its milestone, the text as it grows, what was missed and what broke off; and who may watch.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { MODEL, start, startProcess, submission } from "./harness.mjs";
import { watch } from "./watcher.mjs";

/** Answers of about four seconds, once whoever watches has begun to; and others, by their marker. */
const SLOW = { tokens: 1200, tokens_per_chunk: 20, chunk_delay_ms: 60, delay_ms: 2000 };
const SCRIPT = {
  rules: [
    { when: { marker: "[[milestones" }, then: { ...SLOW, delay_ms: 3000, first_event_delay_ms: 1500 } },
    { when: { marker: "[[broken", prompt_call: 1 }, then: { ...SLOW, cut: { after_deltas: 40, how: "error" } } },
    { when: { marker: "[[broken" }, then: { ...SLOW, tokens: 200 } },
    { when: { marker: "[[early", prompt_call: 1 }, then: { ...SLOW, cut: { after_deltas: 1, how: "error" } } },
    { when: { marker: "[[early" }, then: {} },
    { when: { marker: "[[refused" }, then: { status: 529 } },
    { when: { marker: "[[slow-two" }, then: { ...SLOW, tokens: 2400 } },
    { when: { marker: "[[slow" }, then: SLOW },
  ],
};

/** A submission whose answer may be long. */
const prompt = (text, fields = {}) => submission(text, { request: { max_tokens: 4000 }, ...fields });

/** A GET of the status, as its reader has it: what counts by itself is left out. */
const steady = ({ waiting, ...status }) => ({ ...status, ...(waiting && { waiting: waiting.reason }) });

describe("live events", { concurrency: 6 }, () => {
  let spillway;

  before(async () => {
    spillway = await start({ script: SCRIPT, policy: { events: { heartbeat_seconds: 1, life_seconds: 60 } } });
  });

  after(() => spillway.stop());

  test("each status comes at its own milestone, and the last one is what GET answers", async () => {
    const id = await spillway.accepted(prompt("[[milestones-order]]"));
    const watcher = await watch(spillway, id);
    assert.match(watcher.response.headers.get("content-type"), /^text\/event-stream/);
    assert.equal(watcher.response.headers.get("cache-control"), "no-store");
    const events = await watcher.untilOver();
    await watcher.ended;
    assert.equal(watcher.broken, undefined);

    const statuses = events.filter(({ event }) => event === "status");
    const names = watcher.statuses();
    const order = ["received", "generating", "refining", "done"];
    assert.deepEqual(names.slice(-3), order.slice(-3));
    assert.ok(names.length === 3 || names[0] === "received", names.join());

    // The fake's clock is the judge: generating when it was called, refining with its first event, 4.5 s later.
    const [call] = spillway.calls({ marker: "milestones-order" });
    const at = Object.fromEntries(statuses.map(({ data, at }) => [data.status, at]));
    assert.ok(Math.abs(at.generating - call.started_at) < 2700, `generating ${at.generating - call.started_at} ms off`);
    assert.ok(at.refining - call.started_at >= 4500, `refining ${at.refining - call.started_at} ms after the call`);
    assert.ok(at.done >= call.ended_at && at.done - at.refining >= 500, "done when the answer was");

    const { body } = await spillway.job(id);
    assert.deepEqual(statuses.at(-1).data, body);
    assert.equal(watcher.text.slice(0, 13), "retry: 2000\n\n");
    assert.ok(watcher.comments >= 1, "heartbeats in the silence before the first event");
  });

  test("the text grows while somebody watches, with no character lost or told twice", async () => {
    const id = await spillway.accepted(prompt("[[slow-one]]"));
    const watcher = await watch(spillway, id);
    const events = await watcher.untilOver();
    const done = events.at(-1).data;
    const texts = events.filter(({ event }) => event === "text");
    assert.ok(texts.length >= 3, `${texts.length} pieces`);
    const lasted = texts.at(-1).at - texts[0].at;
    assert.ok(texts.length <= lasted / 1000 + 3, `${texts.length} in ${lasted} ms: one a second, but for its ends`);
    assert.equal(watcher.draftText(), done.text, "to the last character");
    assert.deepEqual(new Set(texts.map(({ data }) => data.draft)), new Set([1]));
  });

  test("who comes late gets all of the text so far, and who comes back what it missed: nothing twice, nothing left out", async () => {
    const id = await spillway.accepted(prompt("[[slow-two]]"));
    const first = await watch(spillway, id);
    await first.untilText();
    const late = await watch(spillway, id);
    await late.untilText(first.draftText().length);
    assert.equal(late.statuses().length, 1, "the status that there is, and not those before");
    first.stop();
    const { id: lastEventId } = first.events.at(-1);
    await sleep(1500);

    const again = await watch(spillway, id, { lastEventId });
    await again.untilOver();
    const { text } = again.events.at(-1).data;
    const whole = first.draftText() + again.draftText();
    assert.ok(text.startsWith(whole) && whole.length > first.draftText().length);
    assert.equal(again.statuses()[0], "done", "refining was told before");
    await late.untilOver();
    assert.ok(text.startsWith(late.draftText()));
  });

  test("whoever was away while the job went through all of it is told each of its statuses, in order", async () => {
    const id = await spillway.accepted(prompt("[[milestones-away]]"));
    const watcher = await watch(spillway, id);
    const [{ id: lastEventId, data }] = await watcher.until((events) => events.length > 0);
    watcher.stop();
    await spillway.untilDone(id);
    const again = await watch(spillway, id, { lastEventId });
    await again.untilOver();
    const order = ["received", "generating", "refining", "done"];
    assert.deepEqual(again.statuses(), order.slice(order.indexOf(data.status) + 1));
    assert.equal(again.draftText(), "", "the result says it all");

    const end = again.events.at(-1).id;
    await watch(spillway, id, { lastEventId: end, expect: 204 });
    const fresh = await watch(spillway, id);
    await fresh.untilOver();
    assert.deepEqual(fresh.statuses(), ["done"]);
  });

  test("an id that is none of this job's is like none", async () => {
    const id = await spillway.accepted(prompt("plain"));
    await spillway.untilDone(id);
    for (const lastEventId of ["x", "999.9.9", "1.2", "-1.0.0"]) {
      const watcher = await watch(spillway, id, { lastEventId });
      await watcher.untilOver();
      assert.deepEqual(watcher.statuses(), ["done"], lastEventId);
    }
  });

  test("waiting for a status and watching it say the same at every change", async () => {
    const id = await spillway.accepted(prompt("[[milestones-both]]"));
    const watcher = await watch(spillway, id);
    const seen = [];
    for (let etag = '"0"'; seen.at(-1)?.status !== "done";) {
      const { status, headers, body } = await spillway.job(id, { wait: 20, etag });
      assert.equal(status, 200);
      etag = headers.get("etag");
      seen.push(body);
    }
    await watcher.untilOver();
    const told = watcher.events.filter(({ event }) => event === "status").map(({ data }) => steady(data));
    for (const status of seen.map(steady)) {
      assert.ok(
        told.some((other) => JSON.stringify(other) === JSON.stringify(status)),
        JSON.stringify(status),
      );
    }
  });

  test("a draft that was seen and broke off is discarded, and another one is begun", async () => {
    const id = await spillway.accepted(prompt("[[broken-restart]]"));
    const watcher = await watch(spillway, id);
    const events = await watcher.untilOver();
    const at = events.findIndex(({ event }) => event === "draft_discarded");
    assert.ok(at > 0, watcher.text);
    assert.deepEqual(events[at].data, { draft: 1, reason: "overloaded" });
    assert.equal(events[at + 1].data.status, "retrying");
    const drafts = events.filter(({ event }) => event === "text").map(({ data }) => data.draft);
    assert.deepEqual(drafts, drafts.toSorted());
    assert.ok(!events.slice(at).some(({ event, data }) => event === "text" && data.draft === 1));
    const done = events.at(-1).data;
    assert.ok(done.status === "done" && done.text.startsWith(watcher.draftText(2)));
    assert.equal(spillway.calls({ marker: "broken-restart" }).length, 2);
  });

  test("with when_interrupted fail the job ends there, with what had come, and can be done again", async () => {
    const id = await spillway.accepted(prompt("[[broken-fail]]", { when_interrupted: "fail" }));
    const watcher = await watch(spillway, id);
    const events = await watcher.untilOver();
    const failed = events.at(-1).data;
    assert.deepEqual([failed.status, failed.reason, failed.error.cause], ["failed", "interrupted", "overloaded"]);
    assert.ok(failed.partial_text === watcher.draftText() && watcher.draftText() !== "");
    assert.ok(failed.text === undefined && failed.result === undefined, "a part is not called the text");
    assert.ok(!events.some(({ event }) => event === "draft_discarded"), "it is kept");
    assert.equal(failed.history.length, 1);
    assert.deepEqual((await spillway.job(id)).body, failed);

    const again = await spillway.request(`/v1/jobs/${id}/regenerate`, { method: "POST" });
    assert.equal(again.status, 202, again.text);
    assert.ok((await spillway.untilDone(again.body.id)).text.length > 0);
  });

  test("what nobody has seen is begun again silently, whatever the job wants", async () => {
    const id = await spillway.accepted(prompt("[[early-unseen]]", { when_interrupted: "fail" }));
    const done = await spillway.untilDone(id);
    assert.equal(done.history.length, 1);
    const watcher = await watch(spillway, id);
    await watcher.untilOver();
    assert.ok(!watcher.events.some(({ event }) => event === "draft_discarded"));
  });

  test("a job that is taken back says so, and one that is erased ends its streams", async () => {
    const id = await spillway.accepted(prompt("[[slow-cancel]]"));
    const watcher = await watch(spillway, id);
    await watcher.untilText();
    assert.equal((await spillway.cancel(id)).status, 200);
    const last = (await watcher.untilOver()).at(-1).data;
    assert.deepEqual([last.status, last.text, last.partial_text], ["cancelled", undefined, undefined]);
    const { id: lastEventId } = watcher.events.at(-1);
    await spillway.cancel(id);
    await watch(spillway, id, { lastEventId, expect: 204 });

    const other = await spillway.accepted(prompt("plain too"));
    await spillway.untilDone(other);
    await (await watch(spillway, other)).untilOver();
    await spillway.cancel(other);
    const gone = await watch(spillway, other, { expect: 404 });
    await gone.ended;
    assert.equal(JSON.parse(gone.text).error.type, "not_found_error");
  });

  test("the receipt's read token opens this one job's status and events, and nothing else", async () => {
    const { body: receipt } = await spillway.submit(prompt("[[milestones-token]]"));
    const { id, read_token: token } = receipt;
    assert.equal(receipt.events_url, `${spillway.url}/v1/jobs/${id}/events`);
    assert.ok(Date.parse(receipt.read_token_expires_at) > Date.now() + 24 * 3_600_000);
    const bearer = { as: null, headers: { authorization: `Bearer ${token}` } };
    assert.equal((await spillway.request(`/v1/jobs/${id}`, bearer)).status, 200);
    const watcher = await watch(spillway, id, { token });
    assert.equal(watcher.response.headers.get("access-control-allow-origin"), "*");

    const other = await spillway.accepted(prompt("another"));
    for (const [path, method, status] of [
      [`/v1/jobs/${other}`, "GET", 401],
      [`/v1/jobs/${other}/events`, "GET", 401],
      [`/v1/jobs/${id}`, "DELETE", 403],
      [`/v1/jobs/${id}/regenerate`, "POST", 403],
      [`/v1/jobs/${id}/deferral`, "POST", 403],
      ["/v1/jobs", "POST", 403],
      ["/v1/gates", "GET", 403],
      ["/v1/messages", "POST", 403],
    ]) {
      const answer = await spillway.request(path, { ...bearer, method });
      assert.equal(answer.status, status, `${method} ${path}: ${answer.text}`);
    }
    const wrong = await spillway.request(`/v1/jobs/${id}?token=${token.slice(0, -1)}x`, { as: null });
    assert.deepEqual([wrong.status, wrong.body.error.type], [401, "authentication_error"]);
    await watch(spillway, id, { as: "web", expect: 404 });
    await watch(spillway, id, { as: null, expect: 401 });
    await (await watch(spillway, id, { as: "operator" })).stop();
    const last = (await watcher.untilOver()).at(-1).data;
    assert.equal(last.status, "done");
  });

  test("a page of another origin may ask for what a read token opens, and for nothing else", async () => {
    const id = await spillway.accepted(prompt("cors"));
    const preflight = { method: "OPTIONS", as: null, headers: { origin: "https://app.example" } };
    for (const path of [`/v1/jobs/${id}`, `/v1/jobs/${id}/events`]) {
      const { status, headers } = await spillway.request(path, preflight);
      assert.deepEqual([status, headers.get("access-control-allow-origin")], [204, "*"]);
      assert.match(headers.get("access-control-allow-headers"), /authorization.*last-event-id/);
      const refused = await spillway.request(path, { as: null });
      assert.deepEqual(
        [refused.status, refused.headers.get("access-control-allow-origin")],
        [401, "*"],
        "it can read why",
      );
    }
    for (const path of ["/v1/jobs", "/v1/messages", `/v1/jobs/${id}/regenerate`]) {
      const { status, headers } = await spillway.request(path, preflight);
      assert.deepEqual([status, headers.get("access-control-allow-origin")], [405, null], path);
    }
  });

  test("the message changes with time alone, and in the reader's language", async () => {
    const own = await start({ script: SCRIPT, policy: { long_wait_seconds: 3 } });
    try {
      const id = await own.accepted(prompt("[[refused]]", { kind: "code_generation" }));
      const watcher = await watch(own, id, { headers: { "accept-language": "ja" } });
      const events = await watcher.until((all) => all.some(({ data }) => data.message?.code === "delayed"));
      const { message } = events.at(-1).data;
      assert.match(message.text, /[\u3040-\u30ff]/);
      await own.cancel(id);
      await watcher.untilOver();
    } finally {
      await own.stop();
    }
  });

  test("a stream ends after its life, and the next one goes on where it was", async () => {
    const own = await start({ script: SCRIPT, policy: { events: { life_seconds: 3, heartbeat_seconds: 1 } } });
    try {
      const id = await own.accepted(prompt("[[slow-life]]"));
      const parts = [];
      for (let lastEventId; parts.at(-1)?.data.status !== "done"; lastEventId = parts.at(-1)?.id) {
        const watcher = await watch(own, id, { lastEventId });
        await watcher.ended;
        parts.push(...watcher.events);
      }
      const text = parts.filter(({ event }) => event === "text").map(({ data }) => data.text);
      assert.ok(parts.at(-1).data.text.startsWith(text.join("")));
      const statuses = parts.filter(({ event }) => event === "status").map(({ data }) => data.status);
      assert.deepEqual(statuses, [...new Set(statuses)], "none twice");
    } finally {
      await own.stop();
    }
  });

  test("a thousand watchers of a hundred jobs", async () => {
    const own = await start({
      script: { defaults: { ...SLOW, delay_ms: 0, tokens: 400, chunk_delay_ms: 30 } },
      policy: { long_wait_seconds: 600 },
    });
    try {
      const ids = await Promise.all(Array.from({ length: 100 }, (_, n) => own.accepted(prompt(`many ${n}`))));
      const watchers = await Promise.all(ids.flatMap((id) => Array.from({ length: 10 }, () => watch(own, id))));
      await Promise.all(watchers.map((watcher) => watcher.until((all) => all.at(-1)?.data.status === "done")));
      // Each of the thousand was told by its own job.
      for (const watcher of watchers) {
        const { text } = watcher.events.at(-1).data;
        assert.ok(text.startsWith(watcher.draftText(1)), "each has its own job's text");
        assert.deepEqual(watcher.statuses(), [...new Set(watcher.statuses())]);
      }
      assert.equal(own.calls({ model: MODEL }).length, 100, "watching calls nobody");
    } finally {
      await own.stop();
    }
  });
});

describe("after a crash", () => {
  test("a reader goes on where it was, and the draft of the dead consumer is discarded", async (t) => {
    const spillway = await startProcess({ script: SCRIPT, policy: { lease_seconds: 2, watchdog_seconds: 1 } });
    t.after(() => spillway.stop());
    const id = await spillway.accepted(prompt("[[slow-crash]]"));
    const watcher = await watch(spillway, id);
    await watcher.untilText();
    const { id: lastEventId } = watcher.events.at(-1);
    await spillway.kill();
    await watcher.ended;
    await spillway.restart();
    const again = await watch(spillway, id, { lastEventId });
    const events = await again.until((all) => all.at(-1)?.data.status === "done");
    const discarded = events.findIndex(({ event }) => event === "draft_discarded");
    assert.deepEqual(events[discarded]?.data.draft, 1, again.text.slice(0, 2000));
    assert.ok(events.at(-1).data.text.startsWith(again.draftText(2)));
    assert.ok(again.statuses().includes("held"), "it says that it is begun anew");
  });
});
