/**
 * The bad spell: what the fake Claude does to the demo's jobs, and a policy short enough to watch.
 *
 * Four things happen, each of which is another case for a client: a rate limit that says how long to wait, an overload
 * that arrives inside a 200 (before any content, and after some), and an outage in which every call gets a 529, long
 * enough for the breaker to open. The fifth, a request that is simply wrong, is among the jobs.
 */

/** When every call gets a 529, from the submission on. */
export const OUTAGE = { from_ms: 1500, until_ms: 7000 };

/** The fake's script; `fake-claude/README.md` has the format. */
export const SPELL = {
  name: "a bad spell",
  seed: 7,
  // Slow enough for each phase to be seen.
  defaults: { delay_ms: 200, first_event_delay_ms: 600, chunk_delay_ms: 45, tokens_per_chunk: 2 },
  rules: [
    {
      name: "overload inside a 200, before content",
      when: { marker: "tide mills", prompt_call: 1 },
      then: { cut: { after_events: 1, how: "error", error: "overloaded" } },
    },
    {
      name: "overload inside a 200, after content",
      when: { marker: "ferryman", prompt_call: 1 },
      then: { tokens: 120, cut: { after_deltas: 12, how: "error", error: "overloaded" } },
    },
    { name: "outage", when: OUTAGE, then: { error: "overloaded", delay_ms: 150 } },
    {
      name: "rate limit",
      // Not the first call after the outage: that one is the breaker's probe.
      when: { from_ms: OUTAGE.until_ms, match: 3 },
      then: { error: "rate_limit", retry_after: 3 },
    },
    { name: "long answers", when: { marker: ["tide mills", "ferryman"] }, then: { tokens: 120 } },
  ],
};

/** Minutes become seconds, and every hour is like the other; nothing else is different from the defaults. */
export const SHORT_POLICY = {
  breaker: {
    consecutive_failures: 3,
    consecutive_seconds: 1,
    consecutive_hard: 6,
    open_seconds: 5,
    probe_lease_seconds: 20,
  },
  backoff: {
    rate_limited: { base_ms: 500, cap_ms: 3000 },
    overloaded: { base_ms: 500, cap_ms: 3000 },
    transient: { base_ms: 500, cap_ms: 3000 },
  },
  call: { total_seconds: 60, headers_seconds: 15, idle_seconds: 15 },
  hours: { peak_utc: "", off_peak_utc: "0-24" },
};
