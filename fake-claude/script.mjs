/**
 * What a script may say, and what it means once read.
 *
 * A script is a list of rules, the first that matches a call decides what happens to it; a call that none matches is
 * answered. `when` says which calls, `then` says one of three things: an answer (perhaps slow, odd or cut short), an
 * error, or a fault of the connection. Fields of two of them in one rule are refused: one of them would be ignored.
 * Nothing is checked later than here; README.md is the reference for people.
 */
import { validateHeaderName, validateHeaderValue } from "node:http";
import { PRESETS, failureOf } from "./errors.mjs";
import * as s from "./schema.mjs";

export { ScriptError } from "./schema.mjs";

const HOUR_MS = 3_600_000;
const milliseconds = s.whole(0, 24 * HOUR_MS);
const probability = s.number(0, 1);

/** Numbers that count calls: 3, "3", "2-5", "4-" or a list of them; parsed to [first, last] pairs. */
function ranges(value, place, problems) {
  const items = Array.isArray(value) ? value : [value];
  if (items.length === 0) return s.report(problems, place, "must not be an empty list");
  return items.map((item, index) => {
    const found = /^([0-9]{1,9})(?:(-)([0-9]{1,9})?)?$/.exec(String(item));
    const first = Number(found?.[1]);
    const last = found?.[2] ? Number(found[3] ?? Infinity) : first;
    if (found && first >= 1 && last >= first && ["number", "string"].includes(typeof item)) return [first, last];
    const where = Array.isArray(value) ? `${place}[${index}]` : place;
    s.report(problems, where, `must be a call number from 1 on, or a range like "2-5" or "4-", not ${s.show(item)}`);
  });
}

function headerMap(value, place, problems) {
  const check = s.record(
    s.either([(item) => item === null, s.anything], [s.when.number, s.number(-1e12, 1e12)], [s.when.any, s.text]),
  );
  const headers = check(value, place, problems);
  for (const [name, content] of Object.entries(headers ?? {})) {
    try {
      validateHeaderName(name);
      if (typeof content === "string") validateHeaderValue(name, content);
    } catch (error) {
      s.report(problems, `${place}[${JSON.stringify(name)}]`, `cannot be sent as a header (${error.code})`);
    }
  }
  return headers && Object.fromEntries(Object.entries(headers).map(([name, item]) => [name.toLowerCase(), item]));
}

const retryAfter = s.either(
  [s.when.object, s.object({ date_in_seconds: s.whole(-86_400, 86_400 * 30) }, { required: ["date_in_seconds"] })],
  [s.when.number, s.number(-1e12, 1e12)],
  [
    s.when.any,
    (value, place, problems) => {
      const words = s.text(value, place, problems);
      if (words !== undefined && !/^[\t\x20-\x7e]*$/.test(words)) {
        s.report(problems, place, "cannot be sent as a header: printable ASCII only");
      }
      return words;
    },
  ],
);

const WHEN = s.object(
  {
    from_ms: s.whole(0),
    until_ms: s.whole(0),
    from_seconds: s.number(0, 1e9),
    until_seconds: s.number(0, 1e9),
    call: ranges,
    model_call: ranges,
    prompt_call: ranges,
    match: ranges,
    every: s.whole(1),
    probability,
    model: s.oneOrMore(s.filled),
    marker: s.oneOrMore(s.filled),
    key: s.oneOrMore(s.filled),
    stream: s.flag,
    route: s.oneOf(["messages", "count_tokens", "models"]),
  },
  { also: checkWindow },
);

function checkWindow(when, place, problems) {
  for (const end of ["from", "until"]) {
    if (when[`${end}_seconds`] === undefined) continue;
    if (when[`${end}_ms`] !== undefined) s.report(problems, `${place}.${end}_ms`, `is given with ${end}_seconds too`);
    when[`${end}_ms`] = Math.round(when[`${end}_seconds`] * 1000);
  }
  if ((when.from_ms ?? 0) >= (when.until_ms ?? Infinity)) {
    s.report(problems, `${place}.until_ms`, "must be later than from_ms");
  }
}

const ERROR_FIELDS = {
  error: s.oneOf(Object.keys(PRESETS)),
  status: s.whole(400, 599),
  type: s.filled,
  message: s.text,
  details: s.anything,
  retry_after: retryAfter,
  retry_after_ms: s.either([s.when.number, s.number(-1e12, 1e12)], [s.when.any, retryAfter]),
  should_retry: s.either([(value) => value === null, s.anything], [s.when.any, s.flag]),
  body: s.oneOf(["json", "html", "empty", "truncated"]),
};

const FAULT_FIELDS = {
  fault: s.oneOf(["reset", "close", "hang", "refuse", "html", "truncated_json", "empty"]),
  for_ms: milliseconds,
};

const streamError = s.either(
  [s.when.string, s.oneOf(Object.keys(PRESETS))],
  [s.when.any, s.object({ type: s.filled, message: s.text, details: s.anything }, { required: ["type"] })],
);

const CUT = s.object(
  {
    after_events: s.whole(0),
    after_deltas: s.whole(0),
    how: s.oneOf(["stall", "reset", "end", "error"]),
    error: streamError,
    for_ms: milliseconds,
  },
  {
    required: ["how"],
    also(cut, place, problems) {
      if ((cut.after_events === undefined) === (cut.after_deltas === undefined)) {
        s.report(problems, place, "needs exactly one of after_events and after_deltas");
      }
      if (cut.error !== undefined && cut.how !== "error") {
        s.report(problems, `${place}.error`, `has no meaning when how is ${cut.how}`);
      }
      if (cut.for_ms !== undefined && cut.how !== "stall") {
        s.report(problems, `${place}.for_ms`, `has no meaning when how is ${cut.how}`);
      }
    },
  },
);

const STOP_REASONS = [
  "end_turn",
  "max_tokens",
  "stop_sequence",
  "tool_use",
  "refusal",
  "pause_turn",
  "model_context_window_exceeded",
];

const ANSWER_FIELDS = {
  first_event_delay_ms: milliseconds,
  chunk_delay_ms: milliseconds,
  ping_every_ms: s.whole(1, HOUR_MS),
  pings: s.whole(1),
  tokens: s.whole(0, 1_000_000),
  tokens_per_chunk: s.whole(1, 1_000_000),
  text: s.text,
  thinking: s.either([s.when.boolean, s.flag], [s.when.number, s.whole(1, 1_000_000)], [s.when.any, s.text]),
  tool_use: s.either(
    [s.when.boolean, s.flag],
    [s.when.string, s.filled],
    [s.when.any, s.object({ name: s.filled, input: s.record(s.anything) })],
  ),
  stop_reason: s.oneOf(STOP_REASONS),
  cache: s.oneOf(["hit", "miss"]),
  unknown_events: s.flag,
  unknown_deltas: s.flag,
  split_bytes: s.whole(1),
  cut: CUT,
};

const COMMON_FIELDS = { delay_ms: milliseconds, headers: headerMap };

const THEN = s.object(
  { ...COMMON_FIELDS, ...ERROR_FIELDS, ...FAULT_FIELDS, ...ANSWER_FIELDS },
  {
    also(then, place, problems) {
      const kinds = Object.entries({ error: ERROR_FIELDS, fault: FAULT_FIELDS, answer: ANSWER_FIELDS })
        .map(([kind, fields]) => [kind, Object.keys(then).filter((key) => Object.hasOwn(fields, key))])
        .filter(([, used]) => used.length > 0);
      if (kinds.length > 1) {
        const named = kinds.map(([kind, used]) => `${used.join(", ")} (${kind})`).join(" and ");
        s.report(problems, place, `must be one of an answer, an error or a fault, but has ${named}`);
        return;
      }
      then.kind = kinds[0]?.[0] ?? "answer";
      if (then.kind === "error" && then.error === undefined && then.status === undefined) {
        s.report(problems, `${place}.status`, "is missing: an error needs status, or error with a preset's name");
      }
      if (then.kind === "fault") checkFault(then, place, problems);
      if (then.kind === "error") then.failure = failureFrom(then);
    },
  },
);

function checkFault(then, place, problems) {
  if (then.fault === undefined) s.report(problems, `${place}.fault`, "is missing beside for_ms");
  if (then.fault === "refuse" && then.for_ms === undefined) {
    s.report(problems, `${place}.for_ms`, "is missing: for how long connections are refused");
  }
  if (then.fault !== "refuse" && then.for_ms !== undefined) {
    s.report(problems, `${place}.for_ms`, `has no meaning with fault ${then.fault}`);
  }
}

function failureFrom(then) {
  const base = then.error ? PRESETS[then.error] : failureOf(then.status);
  const own = Object.keys(ERROR_FIELDS).filter((key) => key !== "error" && then[key] !== undefined);
  return { ...base, ...Object.fromEntries(own.map((key) => [key, then[key]])) };
}

const RULE = s.object({ name: s.filled, when: WHEN, then: THEN }, { required: ["then"] });

const CAPACITY = { concurrent: s.whole(0), per_second: s.whole(0) };

const SCRIPT = s.object({
  name: s.text,
  seed: s.whole(0),
  models: s.list(s.filled),
  check_context: s.flag,
  refused_keys: s.list(s.filled),
  defaults: s.object({ ...COMMON_FIELDS, ...ANSWER_FIELDS }),
  capacity: s.object({ ...CAPACITY, models: s.record(s.object(CAPACITY)) }),
  rate_limits: s.record(
    s.object({ requests_per_minute: s.whole(1), burst: s.whole(1) }, { required: ["requests_per_minute"] }),
  ),
  refuse_connections: s.list(
    s.object(
      { from_ms: s.whole(0), until_ms: s.whole(1, HOUR_MS) },
      {
        required: ["until_ms"],
        also: (window, place, problems) => {
          if ((window.from_ms ?? 0) >= window.until_ms) {
            s.report(problems, `${place}.until_ms`, "must be later than from_ms");
          }
        },
      },
    ),
  ),
  rules: s.list(RULE),
});

/**
 * Reads a script (an object, already parsed from JSON). Throws a ScriptError that names every problem and its place.
 * The source is kept as it was given, for `GET /_fake/script`.
 */
export function parseScript(source) {
  const parsed = s.parse(SCRIPT, source);
  return {
    source,
    seed: parsed.seed ?? 0,
    models: parsed.models ?? null,
    checkContext: parsed.check_context ?? true,
    refusedKeys: new Set(parsed.refused_keys ?? []),
    defaults: parsed.defaults ?? {},
    capacity: parsed.capacity ?? {},
    rateLimits: parsed.rate_limits ?? {},
    refuseConnections: (parsed.refuse_connections ?? []).map((window) => ({ from_ms: 0, ...window })),
    rules: (parsed.rules ?? []).map((rule, index) => ({
      name: rule.name ?? `rules[${index}]`,
      when: rule.when ?? {},
      then: rule.then,
    })),
  };
}

/** Reads a script from JSON text; what is not JSON is a ScriptError too. */
export function parseScriptText(text) {
  let source;
  try {
    source = JSON.parse(text);
  } catch (error) {
    throw new s.ScriptError([`script: is not valid JSON (${error.message})`]);
  }
  return parseScript(source);
}
