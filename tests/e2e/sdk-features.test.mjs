/** What official SDKs can ask for besides a plain answer, and what our headers ask for, on the synchronous path. */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { MARK, MODEL, start } from "./harness.mjs";
import { call, sdk, statuses } from "./official-sdk.mjs";

const FALLBACK = "claude-haiku-5-5";
/** Whose gate no other test depends on. */
const APART = "claude-sonnet-4-6";

describe("on the synchronous path", { concurrency: true }, async () => {
  const overloaded = (marker, prompt_call) => ({ when: { marker: `[[${marker}]]`, prompt_call, model: MODEL }, then: { status: 529 } }); // prettier-ignore
  const spillway = await start({
    calls: true,
    policy: { breaker: { consecutive_failures: 500, consecutive_hard: 500, minimum_calls: 500 } },
    script: {
      defaults: { delay_ms: 20, chunk_delay_ms: 1 },
      rules: [
        overloaded("tools-handed", "1-2"),
        overloaded("tools-once", 1),
        overloaded("kind-leaves", "1-2"),
        overloaded("kind-stays", "1-2"),
        { when: { marker: "[[limited]]", prompt_call: 1, model: APART }, then: { status: 429, retry_after: 7 } },
      ],
    },
  });
  after(() => spillway.stop());

  test("betas go upstream as they came", async () => {
    const betas = ["context-1m-2025-08-07", "files-api-2025-04-14"];
    const message = await sdk(spillway).beta.messages.create(call("[[betas]]", { betas }));
    assert.equal(message.type, "message");
    const [{ headers }, ...others] = spillway.calls({ marker: "betas" });
    assert.deepEqual([headers["anthropic-beta"], others], [betas.join(","), []]);
  });

  test("a tool result whose submission fails is sent again as it was, and handed over with its history", async () => {
    const tools = [{ name: "look", description: "d", input_schema: { type: "object" } }];
    for (const [marker, ended, job] of [
      ["tools-once", [529, 200], false],
      ["tools-handed", [529, 529, 200], true],
    ]) {
      const messages = [
        { role: "user", content: `${MARK} [[${marker}]]` },
        { role: "assistant", content: [{ type: "tool_use", id: "t1", name: "look", input: { at: "é" } }] },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "t1", content: "42 °C" }] },
      ];
      const asked = { model: MODEL, max_tokens: 100, tools, messages };
      const options = { headers: { "spillway-max-wait": "30" } };
      const { data, response } = await sdk(spillway).messages.create(asked, options).withResponse();
      assert.equal(data.type, "message");
      assert.deepEqual(statuses(spillway, marker), ended);
      assert.equal(response.headers.get("spillway-job") !== null, job, marker);
      for (const { body } of spillway.calls({ marker })) {
        const { messages: sent, tools: offered } = JSON.parse(body);
        assert.deepEqual([sent, offered], [messages, tools], marker);
      }
    }
  });

  test("a kind that may leave is answered by the smaller model, one that may not becomes a job", async () => {
    const ask = (marker, kind) =>
      sdk(spillway)
        .messages.create(call(`[[${marker}]]`), { headers: { "spillway-kind": kind, "spillway-max-wait": "30" } })
        .withResponse();
    const [leaves, stays] = await Promise.all([ask("kind-leaves", "tagging"), ask("kind-stays", "code_generation")]);
    assert.deepEqual([leaves.data.model, leaves.response.headers.get("spillway-job")], [FALLBACK, null]);
    assert.deepEqual(statuses(spillway, "kind-leaves"), [529, 529, 200]);
    const { body } = await spillway.job(stays.response.headers.get("spillway-job"));
    assert.deepEqual([stays.data.model, body.kind], [MODEL, "code_generation"]);
  });

  test("a longer Retry-After under auto is a receipt after one call, of the priority that was asked for", async () => {
    const headers = { "spillway-handoff": "auto", "spillway-priority": "low" };
    const asked = sdk(spillway).messages.create(call("[[limited]]", { model: APART }), { headers });
    const { data, response } = await asked.withResponse();
    assert.deepEqual([response.status, statuses(spillway, "limited")], [202, [429]]);
    assert.equal((await spillway.job(data.id)).body.priority, "low");
  });
});
