//! When held jobs wake: in an order that the gate can serve, not in a stampede.
//!
//! All who are held wait for one moment, the reopening. Were that their wake-up, one would be served and the others held
//! again, each at the price of a delivery. What the gate will serve from that moment on is known: a limit of `start` that
//! doubles once per call's length (the slow start), `start · (2^t − 1)` calls by `t` lengths. So the one with `rank` others
//! before it wakes at `moment + length · log2(1 + rank / start)`, ± a fifth. The first one wakes at the moment itself, exactly.
//!
//! The rank is the number of jobs that were held and have not been served since. That is all the state there is: no list that
//! grows with the backlog. It starts again at zero when everybody's wake-up has passed, or when the moment itself moved.
//! A job that is held again counts twice until then; under a logarithm that hardly matters.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time::{Timestamp, millis};

/// How many are asleep, about, and until when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sleepers {
    count: u32,
    latest: Timestamp,
}

impl Sleepers {
    /// How long one more job sleeps: `until` the moment from which `start` calls are served at once, doubling per `length`;
    /// then in its turn.
    pub fn hold(
        &mut self,
        until: Duration,
        start: u32,
        length: Duration,
        now: Timestamp,
        rng: &mut fastrand::Rng,
    ) -> Duration {
        if self.latest < now || self.latest.after(now) > LONGEST {
            *self = Self::default();
        }
        let lengths = (1.0 + f64::from(self.count) / f64::from(start.max(1))).log2();
        let turn_ms = lengths * (0.8 + 0.4 * rng.f64()) * millis(length) as f64;
        let after = until.saturating_add(Duration::from_millis(turn_ms as u64)).min(LONGEST);
        self.count = self.count.saturating_add(1);
        self.latest = self.latest.max(now + after);
        after
    }

    /// One of them was served.
    pub const fn serve(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    /// The moment they wait for moved: ranks are given anew.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// How many are asleep, about.
    #[must_use]
    pub fn count(&self, now: Timestamp) -> u32 {
        if self.latest > now { self.count } else { 0 }
    }
}

/// No hold asks for more at once (an hour's cooldown and a turn); whoever wakes then asks again.
const LONGEST: Duration = Duration::from_secs(2 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    fn hold(count: u32, until: Duration, start: u32) -> Vec<Duration> {
        let (mut sleepers, mut rng) = (Sleepers::default(), fastrand::Rng::with_seed(3));
        (0..count).map(|_| sleepers.hold(until, start, SECOND, NOW, &mut rng)).collect()
    }

    #[test]
    fn the_first_wakes_exactly_at_the_moment_and_nobody_before_it() {
        let waits = hold(200, 90 * SECOND, 1);
        assert_eq!(waits[0], 90 * SECOND);
        assert!(waits.iter().all(|&wait| wait >= 90 * SECOND));
    }

    #[test]
    fn two_hundred_wake_along_the_slow_start_curve() {
        let waits = hold(200, 90 * SECOND, 1);
        for (after, served) in [(1, 2_u32), (2, 4), (3, 8), (4, 16), (5, 32), (6, 64), (7, 128)] {
            let awake = waits.iter().filter(|&&wait| wait <= (90 + after) * SECOND).count();
            assert!(awake <= 3 * served as usize, "{awake} awake after {after} s, {served} can be served");
        }
        assert!(waits.iter().all(|&wait| wait <= 100 * SECOND), "nobody sleeps through the recovery");
    }

    #[test]
    fn a_higher_limit_wakes_more_at_once() {
        let longest = |start| hold(200, Duration::ZERO, start).into_iter().max().unwrap();
        assert!(longest(64) < longest(8) && longest(8) < longest(1));
        assert!(longest(64) < 3 * SECOND);
    }

    #[test]
    fn ranks_start_again_when_everybody_is_awake_and_go_down_as_jobs_are_served() {
        let (mut sleepers, mut rng) = (Sleepers::default(), fastrand::Rng::with_seed(3));
        for _ in 0..50 {
            sleepers.hold(SECOND, 1, SECOND, NOW, &mut rng);
        }
        (0..30).for_each(|_| sleepers.serve());
        assert_eq!(sleepers.count(NOW), 20);
        assert_eq!(sleepers.count(NOW + 60 * SECOND), 0);
        assert_eq!(sleepers.hold(SECOND, 1, SECOND, NOW + 60 * SECOND, &mut rng), SECOND);
    }

    #[test]
    fn extremes_and_a_clock_that_ran_back_stay_within_the_bound() {
        let mut sleepers = Sleepers { count: u32::MAX, latest: Timestamp::from_millis(u64::MAX) };
        let mut rng = fastrand::Rng::with_seed(3);
        assert_eq!(sleepers.hold(Duration::MAX, 0, Duration::MAX, NOW, &mut rng), LONGEST);
        let mut sleepers = Sleepers { count: u32::MAX, latest: NOW + SECOND };
        assert_eq!(sleepers.hold(Duration::ZERO, 0, Duration::MAX, NOW, &mut rng), LONGEST);
    }
}
