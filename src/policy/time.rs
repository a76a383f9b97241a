//! Moments as data. Policy never asks what time it is: every decision takes `now` as an argument.

use std::time::Duration;

use crate::json;

/// A moment, in milliseconds since the Unix epoch (UTC).
///
/// Arithmetic saturates: clocks run backwards and hints are absurd, and neither may panic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

json::transparent!(Timestamp);

impl Timestamp {
    /// The moment `ms` milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// How long from `now` until this; zero if it has passed.
    #[must_use]
    pub const fn after(self, now: Self) -> Duration {
        self.since(now)
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }
}

impl std::ops::Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }
}

/// A duration in whole milliseconds, saturating.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duration in whole seconds, rounded up, at least 1: what a queue can wait and a person should read ("in 0 s" never
/// appears).
#[must_use]
pub fn whole_seconds(duration: Duration) -> u64 {
    millis(duration).div_ceil(1000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_runs_backwards_gives_zero_not_a_panic() {
        let (early, late) = (Timestamp::from_millis(5), Timestamp::from_millis(9));
        assert_eq!(late.since(early), Duration::from_millis(4));
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Timestamp::from_millis(1) - Duration::MAX, Timestamp::from_millis(0));
        assert_eq!(Timestamp::from_millis(1) + Duration::MAX, Timestamp::from_millis(u64::MAX));
    }

    #[test]
    fn waits_are_whole_seconds_and_never_zero() {
        for (ms, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (1999, 2), (2000, 2)] {
            assert_eq!(whole_seconds(Duration::from_millis(ms)), seconds, "{ms} ms");
        }
    }
}
