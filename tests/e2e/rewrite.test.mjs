/**
 * A job that goes to the fallback goes there as a request that the fallback can take, or not at all. The fallback here is
 * an older model that knows less; the fake refuses what the real one refuses, so that a wrong rewrite is a failed call. Low
 * jobs go to the fallback straight away: what they ask for decides alone.
 */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { MARK, MODEL, start, submission } from "./harness.mjs";

const FALLBACK = "claude-haiku-4-5";

const spillway = await start({
  vars: { FALLBACK_MODEL: FALLBACK },
  policy: { kinds: { newer: { fallback: true, fallback_model: "claude-haiku-5-5" } } },
  script: {
    rules: [
      { when: { model: FALLBACK, marker: "[[refused" }, then: { error: "invalid_request", message: "thinking: no" } },
      { when: { model: MODEL, marker: "[[refused-medium]]", prompt_call: "1-2" }, then: { status: 529 } },
      { when: { model: MODEL, marker: "[[refused-again]]", prompt_call: "2" }, then: { status: 500 } },
    ],
  },
});
after(() => spillway.stop());

const user = (text) => ({ role: "user", content: `${MARK} ${text}` });
const TOOL = { name: "weather", description: "The weather", input_schema: { type: "object", properties: {} } };
const SCHEMA = {
  type: "object",
  properties: { tag: { type: "string" } },
  required: ["tag"],
  additionalProperties: false,
};

/** Runs a job to its end; its calls, and what they were made with. */
async function run(marker, request, { headers, ...fields } = {}) {
  const body = submission(`[[${marker}]]`, { kind: "tagging", priority: "low", ...fields });
  const messages = request.messages ?? body.request.messages;
  body.request = { max_tokens: 10_000, ...request, messages };
  const done = await spillway.untilDone(await spillway.accepted(body, { headers }));
  const calls = spillway.calls({ marker });
  return { done, calls, models: calls.map(({ model }) => model), sent: body.request };
}

describe("what the fallback does not know is put in its words, or taken out", { concurrency: 4 }, () => {
  const thinks = (budget_tokens) => ({ thinking: { type: "enabled", budget_tokens } });
  const answered = [
    user("[[answered]] How warm is it?"),
    {
      role: "assistant",
      content: [
        { type: "thinking", thinking: `${MARK} I should look.`, signature: "c2lnbmF0dXJl" },
        { type: "tool_use", id: "toolu_1", name: "weather", input: {} },
      ],
    },
    { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_1", content: `${MARK} 21 °C` }] },
  ];
  const talk = [
    user("[[talk]] Hello"),
    {
      role: "assistant",
      content: [
        { type: "thinking", thinking: `${MARK} A greeting.`, signature: "c2lnbmF0dXJl" },
        { type: "redacted_thinking", data: "b3BhcXVl" },
        { type: "text", text: `${MARK} Hello!` },
      ],
    },
    user("And now?"),
  ];
  for (const [marker, request, changed] of [
    ["plain", {}, {}],
    ["kept", { temperature: 0.2, system: `${MARK} Be brief.`, tools: [TOOL], tool_choice: { type: "any" } }, {}],
    ["adaptive", { thinking: { type: "adaptive" } }, thinks(5000)],
    ["much", { max_tokens: 64_000, thinking: { type: "adaptive" } }, thinks(8192)],
    ["little", { max_tokens: 200, thinking: { type: "adaptive" } }, { thinking: undefined }],
    ["shown", { thinking: { type: "adaptive", display: "summarized" } }, thinks(5000)],
    ["between", { thinking: { type: "between_tools" } }, { thinking: { type: "disabled" } }],
    ["effort", { output_config: { effort: "high" } }, { output_config: undefined }],
    [
      "effort-and-format",
      { output_config: { effort: "low", format: { type: "json_schema", schema: SCHEMA } } },
      { output_config: { format: { type: "json_schema", schema: SCHEMA } } },
    ],
    [
      "both",
      { max_tokens: 50_000, thinking: { type: "adaptive" }, output_config: { effort: "xhigh" } },
      { ...thinks(16_384), output_config: undefined },
    ],
    ["sampling", { temperature: 0.2, thinking: { type: "adaptive" } }, { ...thinks(5000), temperature: undefined }],
    [
      "talk",
      { messages: talk, thinking: { type: "adaptive" } },
      { ...thinks(5000), messages: [talk[0], { ...talk[1], content: talk[1].content.slice(2) }, talk[2]] },
    ],
    [
      "answered",
      { messages: answered, tools: [TOOL], thinking: { type: "adaptive" } },
      {
        messages: [answered[0], { ...answered[1], content: answered[1].content.slice(1) }, answered[2]],
        thinking: undefined,
      },
    ],
  ]) {
    test(marker, async () => {
      const { done, models, calls, sent } = await run(marker, request);
      assert.deepEqual(models, [FALLBACK]);
      const expected = { model: FALLBACK, stream: true, ...sent, ...changed };
      assert.deepEqual(JSON.parse(calls[0].body), JSON.parse(JSON.stringify(expected)));
      assert.deepEqual([done.model_used, done.downgrade_reason], [FALLBACK, "low_priority"]);
    });
  }

  test("the model that was asked for gets the request as it was written, before and after", async () => {
    const request = { thinking: { type: "adaptive" }, output_config: { effort: "max" } };
    const { models, calls, sent } = await run("refused-medium", request, { priority: "medium" });
    assert.deepEqual(models, [MODEL, MODEL, FALLBACK, MODEL]);
    for (const { model, body } of calls) {
      const expected = model === MODEL ? sent : { ...sent, thinking: { type: "enabled", budget_tokens: 5000 } };
      if (model === FALLBACK) delete expected.output_config;
      assert.deepEqual(JSON.parse(body), { model, stream: true, ...expected });
    }
  });
});

describe("what the fallback could not take is never sent to it", { concurrency: 4 }, () => {
  const long = "words and more words ".repeat(22_000);
  for (const [marker, request, fields] of [
    ["too-much-answer", { max_tokens: 64_001 }],
    ["too-much-prompt", { messages: [user(`[[too-much-prompt]] ${long}`)] }],
    ["both-together", { max_tokens: 64_000, messages: [user(`[[both-together]] ${long.slice(0, 280_000)}`)] }],
    ["new-server-tool", { tools: [{ type: "web_search_20990101", name: "web_search" }] }],
    ["new-beta", {}, { headers: { "anthropic-beta": "think-twice-2099-01-01" } }],
  ]) {
    test(marker, async () => {
      const { models, done } = await run(marker, request, fields);
      assert.deepEqual(models, [MODEL]);
      assert.deepEqual([done.downgraded, done.calls, done.attempts], [false, 1, 0]);
    });
  }

  test("a prefill, which only the older model continues, does not go to the newer one", async () => {
    const messages = [user("[[prefill]] One word."), { role: "assistant", content: "The" }];
    const { models } = await run("prefill", { model: FALLBACK, messages }, { kind: "newer" });
    assert.deepEqual(models, [FALLBACK]);
  });

  test("what fits by its last token is sent", async () => {
    const { models } = await run("fits", { max_tokens: 64_000 });
    assert.deepEqual(models, [FALLBACK]);
  });
});

describe("a fallback that refuses a request all the same", { concurrency: 2 }, () => {
  test("sends a low job to the model that was asked for: no attempt, no downgrade", async () => {
    const { models, done } = await run("refused-low", {});
    assert.deepEqual(models, [FALLBACK, MODEL]);
    assert.deepEqual([done.model_used, done.downgraded, done.attempts, done.calls], [MODEL, false, 0, 2]);
    assert.deepEqual(
      done.history.map(({ model, cause, status }) => [model, cause, status]),
      [[FALLBACK, "invalid_request", 400]],
    );
  });

  test("and the job goes on there as any other: a failure is its attempt", async () => {
    const { models, done } = await run("refused-again", {});
    assert.deepEqual(models.slice(0, 2), [FALLBACK, MODEL]);
    assert.equal(models.at(-1), MODEL);
    assert.deepEqual([done.model_used, done.attempts], [MODEL, 1]);
  });

  test("a request that the model that was asked for refuses as well fails, after one call of each", async () => {
    const body = submission("[[refused-both]]", { kind: "tagging", priority: "low" });
    body.request.messages.push({ role: "assistant", content: "no prefill here" });
    const failed = await spillway.untilStatus(await spillway.accepted(body), "failed");
    const called = spillway.calls({ marker: "refused-both" }).map(({ model, outcome }) => [model, outcome.status]);
    assert.deepEqual(called, [
      [FALLBACK, 400],
      [MODEL, 400],
    ]);
    assert.deepEqual([failed.reason, failed.error.status], ["invalid_request", 400]);
  });
});
