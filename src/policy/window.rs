//! What the last minute was like: exact counts in time buckets, not averages.
//!
//! A moving average answers "how is it going?" with a number whose sample size nobody knows, and the sample size is the whole
//! question: 5 failures of 10 say little, 50 of 100 say a lot. So the window keeps counts, and `wilson_lower_bound` turns
//! them into "the failure rate is at least this, surely" (requirements, "What the sources get wrong", 3).
//!
//! Twelve buckets: the window's edge moves in steps of a twelfth. A clock that steps back a little keeps counting in the newest
//! bucket; one that jumps back by more than the window starts afresh, or its counts would never grow old.

use std::time::Duration;

use super::time::{Timestamp, millis};
use crate::json;

/// Successes and failures of the last `length`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The length that the buckets were cut for.
    length_ms: u64,
    /// Oldest first.
    buckets: Vec<Bucket>,
}

json::object!(default Window { length_ms, buckets });

#[derive(Clone, Debug, PartialEq, Eq)]
struct Bucket {
    start: Timestamp,
    successes: u32,
    failures: u32,
}

json::object!(Bucket { start, successes, failures });

/// How many calls ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that came to content.
    pub successes: u32,
    /// Calls that failed before it, for a reason that counts.
    pub failures: u32,
}

json::output!(Counts { successes, failures });

impl Counts {
    /// All of them.
    #[must_use]
    pub const fn calls(self) -> u32 {
        self.successes.saturating_add(self.failures)
    }
}

impl Window {
    /// Counts a success.
    pub fn succeed(&mut self, length: Duration, now: Timestamp) {
        if let Some(bucket) = self.newest(length, now) {
            bucket.successes = bucket.successes.saturating_add(1);
        }
    }

    /// Counts a failure.
    pub fn fail(&mut self, length: Duration, now: Timestamp) {
        if let Some(bucket) = self.newest(length, now) {
            bucket.failures = bucket.failures.saturating_add(1);
        }
    }

    /// What the window holds at `now`.
    #[must_use]
    pub fn counts(&self, now: Timestamp) -> Counts {
        let length = Duration::from_millis(self.length_ms);
        self.buckets.iter().filter(|bucket| now.since(bucket.start) < length).fold(Counts::default(), |sum, bucket| {
            Counts {
                successes: sum.successes.saturating_add(bucket.successes),
                failures: sum.failures.saturating_add(bucket.failures),
            }
        })
    }

    fn newest(&mut self, length: Duration, now: Timestamp) -> Option<&mut Bucket> {
        let length_ms = millis(length).max(BUCKETS);
        let ran_back = self.buckets.last().is_some_and(|last| last.start.after(now) > length);
        if self.length_ms != length_ms || ran_back {
            self.length_ms = length_ms;
            self.buckets.clear();
        }
        let step = length_ms / BUCKETS;
        let start = Timestamp::from_millis(now.as_millis() / step * step);
        if self.buckets.last().is_none_or(|last| last.start < start) {
            self.buckets.retain(|bucket| millis(now.since(bucket.start)) < length_ms);
            self.buckets.push(Bucket { start, successes: 0, failures: 0 });
        }
        self.buckets.last_mut()
    }
}

/// The lower end of Wilson's score interval: the failure rate that is surely reached, at `z` standard deviations, when
/// `failures` of `calls` failed. Between 0 and 1; 0 for no calls; with `z = 0` the plain rate.
#[must_use]
pub fn wilson_lower_bound(failures: u32, calls: u32, z: f64) -> f64 {
    if calls == 0 {
        return 0.0;
    }
    let (n, z2) = (f64::from(calls), z * z);
    let rate = f64::from(failures.min(calls)) / n;
    let centre = rate + z2 / (2.0 * n);
    let margin = z * (rate * (1.0 - rate) / n + z2 / (4.0 * n * n)).sqrt();
    ((centre - margin) / (1.0 + z2 / n)).clamp(0.0, 1.0)
}

const BUCKETS: u64 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const T0: u64 = 1_700_000_040_000;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(T0 + seconds * 1000)
    }

    fn counts(successes: u32, failures: u32) -> Counts {
        Counts { successes, failures }
    }

    #[test]
    fn calls_are_counted_until_their_bucket_is_as_old_as_the_window() {
        let mut window = Window::default();
        window.fail(MINUTE, at(0));
        window.succeed(MINUTE, at(1));
        window.succeed(MINUTE, at(30));
        for (seconds, expected) in
            [(30, counts(2, 1)), (59, counts(2, 1)), (60, counts(1, 0)), (89, counts(1, 0)), (90, counts(0, 0))]
        {
            assert_eq!(window.counts(at(seconds)), expected, "{seconds}");
        }
    }

    #[test]
    fn the_state_is_twelve_buckets_at_most_however_long_it_lives() {
        let mut window = Window::default();
        for second in 0..100_000 {
            window.fail(MINUTE, at(second));
            assert!(window.buckets.len() <= 12);
        }
        assert_eq!(window.counts(at(99_999)).failures, 60);
    }

    #[test]
    fn a_small_step_back_keeps_counting_and_a_jump_back_starts_afresh() {
        let mut window = Window::default();
        window.fail(MINUTE, at(1000));
        window.fail(MINUTE, at(980));
        window.fail(MINUTE, at(940));
        assert_eq!(window.counts(at(1000)), counts(0, 3));
        window.fail(MINUTE, at(0));
        assert_eq!(window.counts(at(0)), counts(0, 1));
    }

    #[test]
    fn another_length_starts_afresh() {
        let mut window = Window::default();
        window.fail(MINUTE, at(0));
        window.fail(Duration::from_secs(1), at(0));
        assert_eq!(window.counts(at(0)), counts(0, 1));
        assert_eq!(window.counts(at(1)), counts(0, 0));
    }

    #[test]
    fn the_lower_bound_is_the_rate_that_lies_z_standard_deviations_below_the_one_seen() {
        for calls in 1..60 {
            for failures in 0..=calls {
                for z in [0.0, 1.0, 1.959_964, 3.0, 10.0] {
                    let bound = wilson_lower_bound(failures, calls, z);
                    let seen = f64::from(failures) / f64::from(calls);
                    let deviation = (bound * (1.0 - bound) / f64::from(calls)).sqrt();
                    assert!(bound <= seen + 1e-12, "{failures}/{calls} z {z}");
                    assert!((bound + z * deviation - seen).abs() < 1e-6, "{failures}/{calls} z {z}: {bound}");
                }
            }
        }
    }

    #[test]
    fn at_z_3_nine_failures_in_a_row_are_surely_half_and_60_of_100_are_not() {
        for (failures, calls, reached) in [
            (8, 8, false),
            (9, 9, true),
            (10, 10, true),
            (60, 100, false),
            (66, 100, true),
            (0, 0, false),
            (0, 10, false),
        ] {
            assert_eq!(wilson_lower_bound(failures, calls, 3.0) >= 0.5, reached, "{failures}/{calls}");
        }
        assert_eq!(wilson_lower_bound(0, 0, 3.0), 0.0);
        assert_eq!(wilson_lower_bound(5, 3, 3.0), wilson_lower_bound(3, 3, 3.0), "more than all is all");
    }
}
