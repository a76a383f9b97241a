//! Whether jobs wait longer these minutes than users are told to expect: the 95th percentile of the dwell passes `long_wait`
//! (A10: 25 s).
//!
//! The percentile itself is not needed, only on which side of the limit it lies: more than one job in twenty dwelled longer. So
//! two counts are enough, over the current five minutes and the five before. Fewer than twenty jobs say nothing.

use std::time::Duration;

use super::time::Timestamp;
use crate::json;

/// The dwells of the last minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dwell {
    now: Period,
    before: Period,
}

json::object!(default Dwell { now, before });

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Period {
    number: u64,
    jobs: u32,
    long: u32,
}

json::object!(default Period { number, jobs, long });

impl Dwell {
    /// A job was called for the first time, so long after its submission.
    pub fn note(&mut self, dwell: Duration, long_wait: Duration, now: Timestamp) {
        self.turn(now);
        self.now.jobs = self.now.jobs.saturating_add(1);
        self.now.long = self.now.long.saturating_add(u32::from(dwell > long_wait));
    }

    /// Whether more than a twentieth of the jobs dwelled too long.
    pub fn is_slow(&mut self, now: Timestamp) -> bool {
        self.turn(now);
        let jobs = u64::from(self.now.jobs) + u64::from(self.before.jobs);
        let long = u64::from(self.now.long) + u64::from(self.before.long);
        jobs >= ENOUGH && long * 20 > jobs
    }

    fn turn(&mut self, now: Timestamp) {
        let number = now.as_millis() / PERIOD_MS;
        if number != self.now.number {
            let is_next = number == self.now.number.saturating_add(1);
            self.before = if is_next { self.now } else { Period::default() };
            self.now = Period { number, ..Period::default() };
        }
    }
}

const PERIOD_MS: u64 = 300_000;
const ENOUGH: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(25);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_100_000 + seconds * 1000)
    }

    fn note(dwell: &mut Dwell, short: u32, long: u32, now: Timestamp) {
        (0..short).for_each(|_| dwell.note(LONG, LONG, now));
        (0..long).for_each(|_| dwell.note(LONG + Duration::from_millis(1), LONG, now));
    }

    #[test]
    fn it_is_slow_when_more_than_one_in_twenty_waited_longer_than_25_s() {
        for (short, long, slow) in [(0, 0, false), (0, 19, false), (0, 20, true), (95, 5, false), (94, 6, true)] {
            let mut dwell = Dwell::default();
            note(&mut dwell, short, long, at(0));
            assert_eq!(dwell.is_slow(at(1)), slow, "{long} of {}", short + long);
        }
    }

    #[test]
    fn what_was_is_forgotten_after_ten_minutes_and_a_clock_that_ran_back_does_no_harm() {
        let mut dwell = Dwell::default();
        note(&mut dwell, 0, 30, at(0));
        assert!(dwell.is_slow(at(300)));
        assert!(!dwell.is_slow(at(600)));
        note(&mut dwell, 0, 30, at(600));
        assert!(!dwell.is_slow(at(0)));
    }
}
