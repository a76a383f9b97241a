/**
 * Limits that calls meet when no rule has decided: capacity (529) and rate limits (429).
 *
 * Capacity models the platform's load: so many answers at once and so many starts in the last second, over all and per
 * model. Rate limits model the organisation's own quota: one token bucket per model, whose state is in the
 * `anthropic-ratelimit-requests-*` headers of every answer, and whose refusals say in Retry-After when the next call
 * would be let through. A refused call takes nothing from either. Time is an argument.
 */
const SECOND_MS = 1000;
const MINUTE_MS = 60_000;

// What the headers say where the script sets no limit.
const USUAL_REQUESTS_PER_MINUTE = 4000;
const USUAL_INPUT_TOKENS = 2_000_000;
const USUAL_OUTPUT_TOKENS = 400_000;

/** Calls in progress and calls begun in the last second, for one limit. */
class Meter {
  inFlight = 0;
  starts = [];

  admits(limit, now) {
    while (this.starts.length && this.starts[0] <= now - SECOND_MS) this.starts.shift();
    return this.inFlight < (limit.concurrent ?? Infinity) && this.starts.length < (limit.per_second ?? Infinity);
  }

  begin(now) {
    this.inFlight += 1;
    this.starts.push(now);
  }
}

/** Where calls meet limits. */
export class Capacity {
  constructor(script) {
    this.all = new Meter();
    this.models = new Map();
    this.buckets = new Map();
    this.configure(script);
  }

  /** Takes a new script's limits; calls in progress still count. */
  configure(script) {
    this.limit = script.capacity;
    this.rateLimits = script.rateLimits;
    this.buckets.clear();
  }

  /** Lets a call through, or names the limit that it met. A call that is let through must call `leave` at its end. */
  enter(model, now) {
    const bucket = this.#bucket(model, now);
    if (bucket && bucket.tokens < 1) {
      return { refused: "rate_limit", retryAfterSeconds: Math.ceil((1 - bucket.tokens) / bucket.perMs / SECOND_MS) };
    }
    const own = this.#meter(model);
    const admitted = this.all.admits(this.limit, now) && own.admits(this.limit.models?.[model] ?? {}, now);
    if (!admitted) return { refused: "capacity" };
    if (bucket) bucket.tokens -= 1;
    this.all.begin(now);
    own.begin(now);
    let left = false;
    const leave = () => {
      if (left) return;
      left = true;
      this.all.inFlight -= 1;
      own.inFlight -= 1;
    };
    return { leave };
  }

  /** The rate-limit headers of an answer for this model. */
  headers(model, now) {
    const bucket = this.#bucket(model, now);
    const limit = bucket ? bucket.size : USUAL_REQUESTS_PER_MINUTE;
    const remaining = bucket ? Math.floor(bucket.tokens) : limit - 1;
    const fullAt = bucket ? now + (bucket.size - bucket.tokens) / bucket.perMs : now;
    const reset = new Date(Math.ceil(fullAt / SECOND_MS) * SECOND_MS).toISOString().replace(".000Z", "Z");
    return {
      "anthropic-ratelimit-requests-limit": String(limit),
      "anthropic-ratelimit-requests-remaining": String(remaining),
      "anthropic-ratelimit-requests-reset": reset,
      ...tokenHeaders("tokens", USUAL_INPUT_TOKENS + USUAL_OUTPUT_TOKENS, reset),
      ...tokenHeaders("input-tokens", USUAL_INPUT_TOKENS, reset),
      ...tokenHeaders("output-tokens", USUAL_OUTPUT_TOKENS, reset),
    };
  }

  #meter(model) {
    if (!this.models.has(model)) this.models.set(model, new Meter());
    return this.models.get(model);
  }

  #bucket(model, now) {
    const limit = this.rateLimits[model] ?? this.rateLimits["*"];
    if (!limit) return null;
    const perMs = limit.requests_per_minute / MINUTE_MS;
    const size = limit.burst ?? limit.requests_per_minute;
    const bucket = this.buckets.get(model) ?? { tokens: size, at: now };
    const elapsed = Math.max(0, now - bucket.at);
    const current = { tokens: Math.min(size, bucket.tokens + elapsed * perMs), at: now, perMs, size };
    this.buckets.set(model, current);
    return current;
  }
}

function tokenHeaders(kind, limit, reset) {
  return {
    [`anthropic-ratelimit-${kind}-limit`]: String(limit),
    [`anthropic-ratelimit-${kind}-remaining`]: String(limit),
    [`anthropic-ratelimit-${kind}-reset`]: reset,
  };
}
