//! A bucket that refills continuously and never holds more than its capacity: the generic cell rate algorithm, in the words of
//! a bucket.
//!
//! It counts in 60,000ths of what it holds. So a rate per minute is a whole number per millisecond, nothing is ever rounded
//! but an announced moment, up to the next millisecond, and bringing it to the present often or seldom is the same.

use std::time::Duration;

use super::time::{Timestamp, millis};
use crate::json;

/// Something that refills continuously.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) capacity: u64,
    pub(super) per_minute: u64,
    /// What is missing, in 60,000ths.
    pub(super) missing: u64,
    at: Timestamp,
}

json::object!(Bucket { capacity, per_minute, missing, at });

impl Bucket {
    pub(super) const fn full(capacity: u64, per_minute: u64, now: Timestamp) -> Self {
        Self { capacity, per_minute, missing: 0, at: now }
    }

    /// What a call that needs so much takes: a full bucket is enough for any.
    pub(super) fn cost(&self, need: u64) -> u64 {
        need.min(self.capacity)
    }

    /// Refills it for the time that has passed. A clock that ran back refills nothing, and goes on from there.
    pub(super) fn settle(&mut self, now: Timestamp) {
        let refilled = self.per_minute.saturating_mul(millis(now.since(self.at)));
        self.missing = self.missing.saturating_sub(refilled).min(self.most());
        self.at = now;
    }

    pub(super) fn reshape(&mut self, capacity: u64, per_minute: u64) {
        (self.capacity, self.per_minute) = (capacity, per_minute);
        self.missing = self.missing.min(self.most());
    }

    pub(super) fn take(&mut self, need: u64) {
        let cost = self.cost(need).saturating_mul(UNIT);
        self.missing = self.missing.saturating_add(cost).min(self.most());
    }

    pub(super) fn wait(&self, need: u64) -> Duration {
        let over = self.missing.saturating_add(self.cost(need).saturating_mul(UNIT));
        let short = over.saturating_sub(self.capacity.saturating_mul(UNIT));
        Duration::from_millis(short.div_ceil(self.per_minute.max(1)))
    }

    pub(super) fn left(&self) -> u64 {
        self.capacity.saturating_sub(self.missing.div_ceil(UNIT))
    }

    /// Calls that start although they may not (probes) overdraw it by a minute's refill at most.
    pub(super) fn most(&self) -> u64 {
        self.capacity.saturating_add(self.per_minute).saturating_mul(UNIT)
    }
}

/// A bucket's unit, so that a rate per minute is one per millisecond.
pub(super) const UNIT: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_760_000_000_000 + ms)
    }

    #[test]
    fn it_refills_without_rounding_and_no_further_than_full() {
        let mut bucket = Bucket::full(3, 7, at(0));
        (0..3).for_each(|_| bucket.take(1));
        for (ms, left, wait) in [
            (0, 0, 8_572),
            (1, 0, 8_571),
            (8_571, 0, 1),
            (8_572, 1, 0),
            (17_142, 1, 0),
            (17_143, 2, 0),
            (25_714, 2, 0),
            (25_715, 3, 0),
            (999_999, 3, 0),
        ] {
            bucket.settle(at(ms));
            assert_eq!((bucket.left(), bucket.wait(1)), (left, Duration::from_millis(wait)), "at {ms}");
        }
    }

    #[test]
    fn what_needs_more_than_it_holds_needs_all_of_it() {
        let mut bucket = Bucket::full(10, 10, at(0));
        assert_eq!(bucket.wait(u64::MAX), Duration::ZERO);
        bucket.take(u64::MAX);
        assert_eq!((bucket.left(), bucket.wait(1)), (0, Duration::from_secs(6)));
    }

    #[test]
    fn it_is_overdrawn_by_a_minute_at_most() {
        let mut bucket = Bucket::full(10, 5, at(0));
        (0..1_000).for_each(|_| bucket.take(1));
        assert_eq!(bucket.wait(1), Duration::from_secs(60 + 12));
        bucket.reshape(1, 1);
        assert_eq!(bucket.wait(1), Duration::from_secs(120));
        bucket.missing = u64::MAX;
        bucket.settle(at(0));
        assert_eq!(bucket.wait(1), Duration::from_secs(120), "whatever it was told");
    }

    #[test]
    fn one_that_never_refills_keeps_its_calls_waiting_and_does_no_harm() {
        let mut bucket = Bucket::full(1, 0, at(0));
        bucket.take(1);
        bucket.settle(at(1_000_000));
        assert_eq!((bucket.left(), bucket.wait(1)), (0, Duration::from_secs(60)));
    }

    #[test]
    fn a_clock_that_ran_back_neither_refills_it_nor_stops_it() {
        let mut bucket = Bucket::full(1, 60, at(100_000));
        bucket.take(1);
        bucket.settle(at(0));
        assert_eq!(bucket.wait(1), Duration::from_secs(1));
        bucket.settle(at(1_000));
        assert_eq!(bucket.wait(1), Duration::ZERO);
    }
}
