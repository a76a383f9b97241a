/**
 * A stream of the synchronous path, cut at every event: by a reset, an early end, silence, and an overload in the place of an
 * event. Whoever reads it, raw or by the official SDK, never sees a character twice or misses one that came; after output
 * nothing is called again, before it the classifier's rules hold. "Called" is always the fake's word.
 */
import Anthropic from "@anthropic-ai/sdk";
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { composeAnswer } from "../../fake-claude/answer.mjs";
import { encode, eventsOf } from "../../fake-claude/stream.mjs";
import { KEYS, MARK, MODEL, start } from "./harness.mjs";

/** Thinking with its signature, text, and a tool's input, each in several deltas. */
const ANSWER = {
  thinking: "Once there was a request, é and 🦀 in it, that took a while.",
  text: `${MARK} says: äöü 🦀 twice, äöü 🦀, and then some more of it.`,
  tool_use: { name: "look", input: { place: "São Paulo", numbers: [1, 2.5, 1e21], deep: { a: "🦀" } } },
  tokens_per_chunk: 3,
};

const request = (marker) => ({
  model: MODEL,
  max_tokens: 2000,
  messages: [{ role: "user", content: `${MARK} [[${marker}]]` }],
});

/** The events of the whole answer to the request with this marker, as they are on the wire. */
const wire = (marker) => eventsOf(composeAnswer(request(marker), ANSWER), ANSWER).map(encode);

const COUNT = wire("any").length;
const HOWS = ["reset", "end", "stall", "error"];

/** As many events may come with no content among them. */
const BEFORE_CONTENT = eventsOf(composeAnswer(request("any"), ANSWER), ANSWER).findIndex(({ delta }) => delta);

/** The whole answer, once a stop reason has come. */
const isWhole = (how, at) => how !== "error" && at === COUNT - 1;

const cases = (hows = HOWS) => hows.flatMap((how) => Array.from({ length: COUNT }, (_, at) => ({ how, at })));

/** A reset may take along what had just been sent: so many events have come in truth, of those that were sent. */
const countOf = (text, { how, at }) => (how === "reset" ? Math.min(at, text.match(/^event: (?!error)/gm).length) : at);

/** What the deltas in these events come to, block by block. */
function contentOf(events) {
  const blocks = [];
  for (const { delta, index } of events.map((event) => JSON.parse(event.split("data: ")[1]))) {
    const added = delta?.text ?? delta?.thinking ?? delta?.partial_json;
    if (added !== undefined) blocks[index] = (blocks[index] ?? "") + added;
  }
  return blocks;
}

describe("a stream that is cut at any event", { concurrency: true }, async () => {
  const rule = (name, { how, at }, prompt_call) => ({
    when: { marker: `[[${name}-${how}-${at}]]`, ...(prompt_call && { prompt_call }) },
    then: { ...ANSWER, cut: { after_events: at, how } },
  });
  const early = cases(["reset", "end", "error"]).filter(({ at }) => at <= BEFORE_CONTENT);
  const rules = cases().map((cut) => rule("once", cut, 1));
  rules.push(...early.map((cut) => rule("twice", cut, "1-2")));
  const spillway = await start({
    calls: true,
    script: { defaults: ANSWER, rules },
    policy: {
      breaker: { consecutive_hard: 5000, minimum_calls: 5000, consecutive_failures: 5000 },
      pace: { start_in_flight: 500, max_in_flight: 500 },
      call: { idle_seconds: 8 },
    },
  });
  after(() => spillway.stop());

  /** What came for each marker, as it came: the SDK reads one copy of the answer, and this is the other. */
  const raw = new Map();
  const recording = async (url, init) => {
    const response = await fetch(url, init);
    raw.set(/\[\[(.*?)\]\]/.exec(init.body)[1], response.clone().text());
    return response;
  };
  const claude = new Anthropic({ baseURL: spillway.url, apiKey: KEYS.app, fetch: recording });

  const calls = (marker) => spillway.calls({ marker }).length;

  /** What was kept says what had come. */
  async function checkKept(id, came) {
    const { status, body } = await spillway.job(id);
    assert.equal(status, 200);
    assert.deepEqual([body.status, body.reason, body.calls], ["failed", "interrupted", 1]);
    assert.equal(body.partial_text ?? "", contentOf(came)[1] ?? "");
  }

  /** All at once: they wait for a second try, for a silence to be long enough, or for one another. */
  test("has what came once, then its error with the job's name, after one call; before output all of it, after two", () =>
    Promise.all(
      cases().map(async ({ how, at }) => {
        const marker = `once-${how}-${at}`;
        const seen = [];
        const stream = claude.messages.stream(request(marker), { headers: { "spillway-max-wait": "60" } });
        stream.on("streamEvent", (event) => seen.push(encode({ event: event.type, data: event })));
        const { message, error } = await stream.finalMessage().then(
          (message) => ({ message }),
          (error) => ({ error }),
        );
        const [text, expected] = [await raw.get(marker), wire(marker)];
        if (calls(marker) === 2) {
          assert.ok(at <= BEFORE_CONTENT || how === "reset", `${marker}: called again after output`);
          assert.equal(text, expected.join(""), marker);
          assert.deepEqual(message.content, composeAnswer(request(marker), ANSWER).content, marker);
          return;
        }
        assert.equal(calls(marker), 1, marker);
        const came = expected.slice(0, countOf(text, { how, at }));
        assert.ok(came.length > BEFORE_CONTENT, `${marker}: not called again before output`);
        assert.equal(text.slice(0, came.join("").length), came.join(""), marker);
        assert.deepEqual(contentOf(seen), contentOf(came), `${marker}: what the SDK saw`);
        const rest = text.slice(came.join("").length);
        if (isWhole(how, came.length)) return assert.equal(rest, "", marker);
        const [, data] = /^event: error\ndata: (.*)\n\n$/.exec(rest) ?? assert.fail(`${marker}: ${rest}`);
        const said = JSON.parse(data);
        assert.equal(said.error.type, how === "error" ? "overloaded_error" : "api_error", marker);
        assert.equal(said.request_id !== undefined, how === "error");
        assert.ok(error instanceof Anthropic.APIError, `${marker}: ${error}`);
        assert.deepEqual(error.error, said, "the SDK hands out the whole event");
        await checkKept(said.spillway_job, came);
      }),
    ));

  test("before output, twice: it is handed over, and the job's answer is streamed", async () => {
    await Promise.all(
      early.map(async ({ how, at }) => {
        const marker = `twice-${how}-${at}`;
        const options = { headers: { "spillway-max-wait": "60" } };
        const message = await claude.messages.stream(request(marker), options).finalMessage();
        assert.deepEqual(message.content, composeAnswer(request(marker), ANSWER).content, marker);
        assert.equal(calls(marker), 3, marker);
      }),
    );
  });
});
