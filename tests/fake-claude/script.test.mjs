/** Scripts: what is refused, where, and in which words; and which rule a call meets. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { RuleBook } from "../../fake-claude/rules.mjs";
import { parseScript, parseScriptText, ScriptError } from "../../fake-claude/script.mjs";

function problemsOf(script) {
  try {
    parseScript(script);
  } catch (error) {
    assert.ok(error instanceof ScriptError, String(error));
    return error.problems;
  }
  return [];
}

test("every problem of a script is named with its place", () => {
  const then = (fields) => ({ rules: [{ then: {} }, { then: {} }, { then: fields }] });
  const when = (fields) => ({ rules: [{ when: fields, then: {} }] });
  const cases = [
    [[], /^script: must be an object, not \[\]/],
    [{ ruels: [] }, /^ruels: is not known here; did you mean rules\?/],
    [{ rules: {} }, /^rules: must be a list/],
    [{ rules: [{}] }, /^rules\[0\]\.then: is missing/],
    [then({ status: 200 }), /^rules\[2\]\.then\.status: must be a whole number from 400 to 599, not 200/],
    [then({ status: "529" }), /^rules\[2\]\.then\.status: must be a whole number from 400 to 599, not "529"/],
    [then({ error: "overload" }), /^rules\[2\]\.then\.error: must be one of overloaded, /],
    [then({ message: "x" }), /^rules\[2\]\.then\.status: is missing/],
    [
      then({ status: 529, fault: "reset" }),
      /^rules\[2\]\.then: must be one of .* status \(error\) and fault \(fault\)/,
    ],
    [then({ status: 529, tokens: 3 }), /^rules\[2\]\.then: must be one of .* status \(error\) and tokens \(answer\)/],
    [then({ fault: "explode" }), /^rules\[2\]\.then\.fault: must be one of reset, close, hang/],
    [then({ fault: "refuse" }), /^rules\[2\]\.then\.for_ms: is missing/],
    [then({ fault: "hang", for_ms: 3 }), /^rules\[2\]\.then\.for_ms: has no meaning with fault hang/],
    [then({ delay_ms: -1 }), /^rules\[2\]\.then\.delay_ms: must be a whole number from 0/],
    [then({ cut: { after_events: 1 } }), /^rules\[2\]\.then\.cut\.how: is missing/],
    [then({ cut: { how: "end" } }), /^rules\[2\]\.then\.cut: needs exactly one of after_events and after_deltas/],
    [
      then({ cut: { how: "end", after_events: 1, error: "overloaded" } }),
      /\.cut\.error: has no meaning when how is end/,
    ],
    [then({ stop_reason: "bored" }), /^rules\[2\]\.then\.stop_reason: must be one of end_turn/],
    [then({ status: 429, retry_after: "a\nb" }), /^rules\[2\]\.then\.retry_after: cannot be sent as a header/],
    [then({ headers: { "bad name": "x" } }), /^rules\[2\]\.then\.headers\["bad name"\]: cannot be sent as a header/],
    [then({ headers: { good: "a\r\nb" } }), /^rules\[2\]\.then\.headers\["good"\]: cannot be sent as a header/],
    [when({ call: 0 }), /^rules\[0\]\.when\.call: must be a call number from 1 on, or a range/],
    [when({ call: [1, "5-2"] }), /^rules\[0\]\.when\.call\[1\]: must be a call number/],
    [when({ probability: 1.5 }), /^rules\[0\]\.when\.probability: must be a number from 0 to 1, not 1.5/],
    [when({ from_ms: 5, until_ms: 5 }), /^rules\[0\]\.when\.until_ms: must be later than from_ms/],
    [when({ from_ms: 5, from_seconds: 1 }), /^rules\[0\]\.when\.from_ms: is given with from_seconds too/],
    [when({ model: [] }), /^rules\[0\]\.when\.model: must not be an empty list/],
    [{ capacity: { concurrent: 1.5 } }, /^capacity\.concurrent: must be a whole number/],
    [
      { capacity: { models: { m: { per_seconds: 1 } } } },
      /^capacity\.models\["m"\]\.per_seconds: .* did you mean per_second\?/,
    ],
    [{ rate_limits: { m: { burst: 1 } } }, /^rate_limits\["m"\]\.requests_per_minute: is missing/],
    [{ refuse_connections: [{ from_ms: 9, until_ms: 3 }] }, /^refuse_connections\[0\]\.until_ms: must be later/],
    [{ defaults: { status: 500 } }, /^defaults\.status: is not known here/],
  ];
  for (const [script, expected] of cases) {
    const problems = problemsOf(script);
    assert.equal(problems.length, 1, `${JSON.stringify(script)} → ${problems.join(" | ")}`);
    assert.match(problems[0], expected);
  }
});

test("all problems are told at once", () => {
  const problems = problemsOf({ seed: -1, rules: [{ when: { call: "x" }, then: { status: 1 } }] });
  assert.deepEqual(
    problems.map((problem) => problem.split(":")[0]),
    ["seed", "rules[0].when.call", "rules[0].then.status"],
  );
});

test("what is not JSON is a problem of the script", () => {
  assert.throws(() => parseScriptText("{"), /script: is not valid JSON/);
});

/** The names of the rules that a row of calls meets. */
function met(script, calls, { startedAt = 0 } = {}) {
  const book = new RuleBook(parseScript(script), startedAt);
  return calls.map(({ at = startedAt, model = "m", prompt = "p", key = "k", stream = true, route = "messages" }) => {
    const numbers = book.count({ model, promptId: prompt });
    const call = { ...numbers, model, key, stream, route, promptText: prompt };
    return book.match(call, at)?.name ?? "-";
  });
}

const rule = (when, name = "hit") => ({ name, when, then: { status: 529 } });
const times = (count, call = {}) => Array.from({ length: count }, () => call);

test("a rule matches the calls that its conditions describe", () => {
  const cases = [
    ["overall number", { call: 2 }, times(3), "-X-"],
    ["ranges of numbers", { call: ["1-2", 4, "6-"] }, times(7), "XX-X-XX"],
    ["number per model", { model_call: 1 }, [{ model: "a" }, { model: "b" }, { model: "a" }], "XX-"],
    ["number per prompt", { prompt_call: "2-" }, [{ prompt: "a" }, { prompt: "b" }, { prompt: "a" }], "--X"],
    ["model", { model: ["a", "b-*"] }, [{ model: "a" }, { model: "b-2" }, { model: "c" }, { model: null }], "XX--"],
    ["marker", { marker: "[[x]]" }, [{ prompt: "do [[x]] now" }, { prompt: "[[y]]" }], "X-"],
    ["key", { key: "bad" }, [{ key: "bad" }, { key: "good" }], "X-"],
    ["stream", { stream: false }, [{ stream: true }, { stream: false }], "-X"],
    ["time", { from_ms: 10, until_ms: 20 }, [{ at: 9 }, { at: 10 }, { at: 19 }, { at: 20 }], "-XX-"],
    ["time in seconds", { until_seconds: 0.02 }, [{ at: 19 }, { at: 20 }], "X-"],
    ["every third", { every: 3 }, times(7), "--X--X-"],
    ["every second of a model's", { every: 2, model: "a" }, [{ model: "a" }, {}, { model: "a" }], "--X"],
    ["the first two that match", { match: "1-2", model: "a" }, [{}, ...times(3, { model: "a" })], "-XX-"],
    ["other routes only when named", { route: "models" }, [{}, { route: "models", model: null }], "-X"],
    ["never", { probability: 0 }, times(20), "-".repeat(20)],
    ["always", { probability: 1 }, times(20), "X".repeat(20)],
  ];
  for (const [name, when, calls, expected] of cases) {
    const found = met({ rules: [rule(when)] }, calls).map((hit) => (hit === "hit" ? "X" : "-"));
    assert.equal(found.join(""), expected, name);
  }
});

test("the first rule that matches wins", () => {
  const rules = [rule({ call: 1 }, "first"), rule({}, "second")];
  assert.deepEqual(met({ rules }, times(2)), ["first", "second"]);
});

test("chance follows the seed, and comes near its probability", () => {
  const run = (seed) => met({ seed, rules: [rule({ probability: 0.4 })] }, times(1000)).join("");
  assert.equal(run(7), run(7));
  assert.notEqual(run(7), run(8));
  const hits = run(7).split("hit").length - 1;
  assert.ok(hits > 350 && hits < 450, `${hits} of 1000`);
});

test("a new script keeps the clock and the counters only if asked", () => {
  const script = parseScript({ rules: [rule({ from_ms: 100, call: "2-" })] });
  const call = (book, at) => {
    const numbers = book.count({ model: "m", promptId: "p" });
    return book.match({ ...numbers, model: "m", key: "k", route: "messages", promptText: "" }, at) !== null;
  };
  for (const [keep, expected] of [
    [{ clock: true, counters: true }, true],
    [{ clock: true }, false],
    [{ counters: true }, false],
    [{}, false],
  ]) {
    const book = new RuleBook(script, 0);
    call(book, 50);
    book.replace(script, 90, keep);
    assert.equal(call(book, 150), expected, JSON.stringify(keep));
  }
});
