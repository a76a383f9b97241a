/**
 * Checks for what people write by hand: every problem at once, each with its place (`rules[2].then.status: …`).
 *
 * A check is a function (value, place, problems) => parsed value. Unknown fields are refused, because a misspelt
 * condition would otherwise match every call.
 */
/** What is wrong with a script; `problems` has one sentence for each place. */
export class ScriptError extends Error {
  constructor(problems) {
    super(problems.join("\n"));
    this.name = "ScriptError";
    this.problems = problems;
  }
}

/** Runs a check over a whole value; throws a ScriptError that names every problem. */
export function parse(check, value) {
  const problems = [];
  const parsed = check(value, "", problems);
  if (problems.length) throw new ScriptError(problems);
  return parsed;
}

/** How a value is shown in a message: short, and recognisable. */
export function show(value) {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
}

export function report(problems, place, message) {
  problems.push(`${place || "script"}: ${message}`);
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

const inside = (place, key) => (place ? `${place}.${key}` : key);

/** A whole number within bounds. */
export function whole(least, most = Number.MAX_SAFE_INTEGER) {
  const range = most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`;
  return (value, place, problems) => {
    if (Number.isInteger(value) && value >= least && value <= most) return value;
    report(problems, place, `must be a whole number ${range}, not ${show(value)}`);
  };
}

/** Any finite number within bounds. */
export function number(least, most) {
  return (value, place, problems) => {
    if (typeof value === "number" && value >= least && value <= most) return value;
    report(problems, place, `must be a number from ${least} to ${most}, not ${show(value)}`);
  };
}

export function text(value, place, problems) {
  if (typeof value === "string") return value;
  report(problems, place, `must be a string, not ${show(value)}`);
}

export function filled(value, place, problems) {
  if (typeof value === "string" && value !== "") return value;
  report(problems, place, `must be a string with something in it, not ${show(value)}`);
}

export function flag(value, place, problems) {
  if (typeof value === "boolean") return value;
  report(problems, place, `must be true or false, not ${show(value)}`);
}

/** Any JSON value. */
export function anything(value) {
  return value;
}

/** One of a list of words. */
export function oneOf(words) {
  return (value, place, problems) => {
    if (words.includes(value)) return value;
    report(problems, place, `must be one of ${words.join(", ")}, not ${show(value)}`);
  };
}

/** A list, each item checked. */
export function list(check) {
  return (value, place, problems) => {
    if (!Array.isArray(value)) return report(problems, place, `must be a list, not ${show(value)}`);
    return value.map((item, index) => check(item, `${place}[${index}]`, problems));
  };
}

/** One item or a list of them; always parsed to a list. */
export function oneOrMore(check) {
  return (value, place, problems) => {
    if (!Array.isArray(value)) return [check(value, place, problems)];
    if (value.length === 0) return report(problems, place, "must not be an empty list");
    return list(check)(value, place, problems);
  };
}

/** An object whose keys are free and whose values are checked. */
export function record(check) {
  return (value, place, problems) => {
    if (!isObject(value)) return report(problems, place, `must be an object, not ${show(value)}`);
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [key, check(item, `${place}[${JSON.stringify(key)}]`, problems)]),
    );
  };
}

/** An object with exactly these fields, all optional unless `required` names them. `also(parsed, place, problems)` sees the whole. */
export function object(fields, { required = [], also } = {}) {
  return (value, place, problems) => {
    if (!isObject(value)) return report(problems, place, `must be an object, not ${show(value)}`);
    const before = problems.length;
    const parsed = {};
    for (const [key, item] of Object.entries(value)) {
      if (Object.hasOwn(fields, key)) parsed[key] = fields[key](item, inside(place, key), problems);
      else report(problems, inside(place, key), `is not known here${suggestion(key, Object.keys(fields))}`);
    }
    for (const key of required) {
      if (!Object.hasOwn(value, key)) report(problems, inside(place, key), "is missing");
    }
    if (also && problems.length === before) also(parsed, place, problems);
    return parsed;
  };
}

/** Either of several checks, told apart by a test of the value; the last one has no test. */
export function either(...choices) {
  return (value, place, problems) => {
    for (const [test, check] of choices) {
      if (test(value)) return check(value, place, problems);
    }
    report(problems, place, `cannot be ${show(value)}`);
  };
}

export const when = {
  boolean: (value) => typeof value === "boolean",
  number: (value) => typeof value === "number",
  string: (value) => typeof value === "string",
  object: isObject,
  any: () => true,
};

function suggestion(key, known) {
  const near = known.find((name) => distance(name, key) <= 2);
  return near ? `; did you mean ${near}?` : ` (known: ${known.join(", ")})`;
}

function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1));
    }
    row = next;
  }
  return row[b.length];
}
