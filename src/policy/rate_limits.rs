//! What an answer says about the upstream's own limits, and what its call used: data on its way to the gate.
//!
//! Only durations travel: the clock of whoever made the call is not the gate's.

use std::time::Duration;

use super::time::millis;
use crate::json;

/// What one answer says about the upstream's limits. Made by `claude::ratelimits`; travels to the gate with a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Calls.
    pub requests: Option<RateLimit>,
    /// Tokens, both ways.
    pub tokens: Option<RateLimit>,
    /// Tokens sent.
    pub input_tokens: Option<RateLimit>,
    /// Tokens received.
    pub output_tokens: Option<RateLimit>,
    /// What the call itself used, once it is over.
    pub used: Option<Used>,
    /// How long ago the call began.
    pub begun_ago: Duration,
    /// How long ago the headers came.
    pub came_ago: Duration,
}

json::object!(default RateLimits { requests, tokens, input_tokens, output_tokens, used, begun_ago, came_ago });

/// One limit, as an answer's headers told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// What a minute allows, which is also what the full bucket holds. 1–10,000,000,000.
    pub limit: u64,
    /// What is left of it. 0–`limit`.
    pub remaining: u64,
    /// How long until it is full again. 0–10 min.
    pub reset_after: Duration,
}

json::object!(RateLimit { limit, remaining, reset_after });

/// The tokens that a call used, as its rate limits count them: without what came out of the prompt cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Sent.
    pub input_tokens: u64,
    /// Received.
    pub output_tokens: u64,
}

json::object!(Used { input_tokens, output_tokens });

/// What the upstream limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// Calls.
    Requests,
    /// Tokens, both ways.
    Tokens,
    /// Tokens sent.
    InputTokens,
    /// Tokens received.
    OutputTokens,
}

json::names!(Limited {
    Requests => "requests",
    Tokens => "tokens",
    InputTokens => "input_tokens",
    OutputTokens => "output_tokens",
});

/// All of them.
pub(super) const LIMITED: [Limited; 4] =
    [Limited::Requests, Limited::Tokens, Limited::InputTokens, Limited::OutputTokens];

impl RateLimits {
    /// The same, told `by` later.
    #[must_use]
    pub const fn later(self, by: Duration) -> Self {
        Self { begun_ago: self.begun_ago.saturating_add(by), came_ago: self.came_ago.saturating_add(by), ..self }
    }

    pub(super) const fn get(&self, what: Limited) -> Option<RateLimit> {
        match what {
            Limited::Requests => self.requests,
            Limited::Tokens => self.tokens,
            Limited::InputTokens => self.input_tokens,
            Limited::OutputTokens => self.output_tokens,
        }
    }
}

impl RateLimit {
    /// Whether this can be: else it is no hint.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        (1..=MAX_LIMIT).contains(&self.limit) && self.remaining <= self.limit && self.reset_after <= MAX_RESET
    }

    /// What has been taken out of it and not come back.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        self.limit.saturating_sub(self.remaining)
    }

    /// How fast it refills: its limit, or less if it says so and is to be believed (see [`super::pacer`]).
    #[must_use]
    pub fn per_minute(&self) -> u64 {
        if self.missing() < self.limit.div_ceil(2) {
            return self.limit;
        }
        // The moment is rounded up to a whole second.
        let reset = millis(self.reset_after).saturating_sub(1_000).max(1);
        (self.missing().saturating_mul(MINUTE_MS) / reset).clamp(1, self.limit)
    }
}

const MINUTE_MS: u64 = 60_000;
/// Far above any limit, and small enough for every sum in the pacer.
const MAX_LIMIT: u64 = 10_000_000_000;
/// A minute's bucket is full in a minute; the rest is for clocks that differ.
const MAX_RESET: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(limit: u64, remaining: u64, reset_s: u64) -> RateLimit {
        RateLimit { limit, remaining, reset_after: Duration::from_secs(reset_s) }
    }

    #[test]
    fn what_cannot_be_is_no_hint() {
        for (said, possible) in [
            (limit(50, 0, 600), true),
            (limit(50, 50, 0), true),
            (limit(MAX_LIMIT, 1, 60), true),
            (limit(0, 0, 1), false),
            (limit(5, 6, 1), false),
            (limit(5, 0, 601), false),
            (limit(MAX_LIMIT + 1, 0, 1), false),
        ] {
            assert_eq!(said.is_possible(), possible, "{said:?}");
        }
    }

    #[test]
    fn a_slower_refill_is_believed_once_half_is_missing_and_a_faster_one_never() {
        for (said, per_minute) in [
            (limit(4_000, 3_999, 1), 4_000),
            (limit(100, 51, 600), 100),
            (limit(100, 50, 60), 50),
            (limit(50, 0, 60), 50),
            (limit(50, 0, 120), 25),
            (limit(50, 0, 1), 50),
            (limit(50, 0, 0), 50),
            (limit(1, 0, 600), 1),
        ] {
            assert_eq!(said.per_minute(), per_minute, "{said:?}");
        }
    }

    #[test]
    fn both_ages_grow_on_the_way() {
        let told = RateLimits { begun_ago: Duration::from_secs(3), ..RateLimits::default() };
        let later = told.later(Duration::from_secs(2));
        assert_eq!((later.begun_ago, later.came_ago), (Duration::from_secs(5), Duration::from_secs(2)));
        assert_eq!(told.later(Duration::MAX).begun_ago, Duration::MAX);
    }
}
