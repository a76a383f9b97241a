/**
 * Which rule a call meets: the script's clock, its counters, and the first match.
 *
 * Calls are counted from the script's start: all of them, by model, and by prompt. A prompt is known by its marker (the
 * text in the first `[[…]]` of the prompt) or else by its text, so `prompt_call: 2` is "the second time this prompt is
 * tried". `match` and `every` count the calls that fulfil a rule's other conditions, `probability` included, so that
 * "the first three matching calls" stays three whatever chance does.
 */
import { draw } from "./random.mjs";

/** A script in progress. */
export class RuleBook {
  /** @param script a parsed script @param now the time of its start, in ms */
  constructor(script, now) {
    this.script = script;
    this.startedAt = now;
    this.calls = 0;
    this.byModel = new Map();
    this.byPrompt = new Map();
    this.matches = script.rules.map(() => 0);
  }

  /** Takes another script; `keep` says whether its clock and its counters go on. */
  replace(script, now, { clock = false, counters = false } = {}) {
    this.script = script;
    if (!clock) this.startedAt = now;
    if (!counters) {
      this.calls = 0;
      this.byModel = new Map();
      this.byPrompt = new Map();
    }
    this.matches = script.rules.map(() => 0);
  }

  /** Counts a call; the numbers are what rules see. */
  count({ model, promptId }) {
    const next = (map, key) => {
      if (key === null) return null;
      map.set(key, (map.get(key) ?? 0) + 1);
      return map.get(key);
    };
    this.calls += 1;
    return { call: this.calls, model_call: next(this.byModel, model), prompt_call: next(this.byPrompt, promptId) };
  }

  /** The first rule that matches, or null. `call` has the numbers of `count` and model, key, stream, route, promptText. */
  match(call, now) {
    const elapsed = now - this.startedAt;
    for (const [index, rule] of this.script.rules.entries()) {
      if (!fulfils(rule.when, call, elapsed)) continue;
      const { probability, match, every } = rule.when;
      if (probability !== undefined && draw(this.script.seed, `rules[${index}]`, call.call) >= probability) continue;
      this.matches[index] += 1;
      if (match && !within(match, this.matches[index])) continue;
      if (every && this.matches[index] % every !== 0) continue;
      return rule;
    }
    return null;
  }
}

function fulfils(when, call, elapsed) {
  if (call.route !== (when.route ?? "messages")) return false;
  if (elapsed < (when.from_ms ?? 0) || elapsed >= (when.until_ms ?? Infinity)) return false;
  for (const counter of ["call", "model_call", "prompt_call"]) {
    if (when[counter] && !within(when[counter], call[counter])) return false;
  }
  if (when.stream !== undefined && when.stream !== call.stream) return false;
  if (when.model && !when.model.some((pattern) => matchesModel(pattern, call.model))) return false;
  if (when.key && !when.key.includes(call.key)) return false;
  if (when.marker && !when.marker.some((marker) => call.promptText.includes(marker))) return false;
  return true;
}

const within = (ranges, number) => number !== null && ranges.some(([first, last]) => number >= first && number <= last);

function matchesModel(pattern, model) {
  if (model === null) return false;
  return pattern.endsWith("*") ? model.startsWith(pattern.slice(0, -1)) : model === pattern;
}
