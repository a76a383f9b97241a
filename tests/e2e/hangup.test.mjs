/** The synchronous path when the caller goes away before anything has come: nobody pays for an answer that nobody reads. */
import assert from "node:assert/strict";
import { request } from "node:http";
import { after, describe, test } from "node:test";
import { KEYS, start } from "./harness.mjs";
import { call, statuses } from "./official-sdk.mjs";

describe("a caller who goes away", async () => {
  const spillway = await start({
    calls: true,
    script: {
      rules: [
        { when: { marker: "[[gone-early" }, then: { delay_ms: 8000 } },
        { when: { marker: "[[gone-whole" }, then: { tokens: 200, delay_ms: 20, chunk_delay_ms: 100 } },
        { when: { marker: "[[gone-pausing" }, then: { status: 529 } },
        { when: { marker: "[[gone-later]]", prompt_call: 1 }, then: { status: 429, headers: { "retry-after": "3" } } },
      ],
    },
  });
  after(() => spillway.stop());

  /**
   * Asks, and answers how to go away: by a reset, as the connection of a process that dies. One that is only closed looks to
   * workerd like that of a caller who has said all and still listens; Cloudflare's own front can tell the two.
   */
  const ask = (marker, more) => {
    const headers = { "content-type": "application/json", "x-api-key": KEYS.app };
    const asked = request(`${spillway.url}/v1/messages`, { method: "POST", headers });
    asked.on("error", () => {});
    asked.end(JSON.stringify(call(`[[${marker}]]`, more)));
    return () => asked.socket.resetAndDestroy();
  };
  let abandoned = 0;
  const untilAbandoned = async () => {
    abandoned += 1;
    const lines = () => spillway.logs("sync_call");
    await spillway.untilLog(() => lines().length === abandoned);
    const { ended, exposed, calls } = lines().at(-1);
    assert.deepEqual({ ended, exposed, calls }, { ended: "abandoned", exposed: false, calls: 1 });
  };

  for (const [what, marker, more] of [
    ["before the headers of a stream", "gone-early-stream", { stream: true }],
    ["before the headers of a whole answer", "gone-early-whole", {}],
    ["in the middle of a whole answer", "gone-whole", {}],
  ]) {
    test(`${what} ends the call`, async () => {
      const leave = ask(marker, more);
      await spillway.untilCalls(() => spillway.calls({ marker }).length === 1);
      leave();
      await untilAbandoned();
      await spillway.untilCalls(() => spillway.calls({ marker }).every(({ outcome }) => outcome));
      const [{ outcome }, ...others] = spillway.calls({ marker });
      assert.deepEqual([outcome.client_closed, others], [true, []]);
    });
  }

  test("between two tries ends the tries, and makes no job", async () => {
    const leave = ask("gone-pausing", {});
    await spillway.untilCalls(() =>
      spillway.calls({ marker: "gone-pausing" }).some(({ outcome }) => outcome?.status === 529),
    );
    leave();
    await untilAbandoned();
    assert.deepEqual(spillway.logs("job_submitted"), []);
  });

  test("after the call has become a job leaves the job at work", async () => {
    const leave = ask("gone-later", {});
    await spillway.untilLog(({ event, ended }) => event === "sync_call" && ended === "handed_over");
    leave();
    await spillway.untilLog(({ event, status }) => event === "job_finished" && status === "done");
    assert.deepEqual(statuses(spillway, "gone-later"), [429, 200]);
    assert.deepEqual(statuses(spillway, "gone-pausing"), [529]);
  });
});
