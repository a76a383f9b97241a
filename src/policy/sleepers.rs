//! When held jobs wake: in an order that the gate can serve, not in a stampede.
//!
//! All who are held wait for one moment, the reopening. Were that their wake-up, one would be served and the others held
//! again, each at the price of a delivery. What the gate will serve from that moment on is known: one call, then a limit that
//! doubles once per round (the slow start), `2^t − 1` calls by `t` rounds. So the one with `rank` others before it wakes at
//! `moment + round · log2(1 + rank)`, ± a fifth. The first one wakes at the moment itself, exactly. A round is a call's length
//! to first content, but no less than the second that a queue counts in.
//!
//! Who waits for one of `limit` slots has no such moment: slots come free one by one. Those wake evenly spread over the time in
//! which the limit, if it doubles, reaches them all, `round · (1 + log2(1 + rank / limit))`: some are always just awake.
//!
//! The rank is the number of jobs that sleep until that moment or later. Wake-ups are counted by the time they are due, in
//! steps of two seconds, so that a job that comes back and is held again counts once, and those who give up count no longer
//! than they would have slept. The state is as long as the longest hold, not as the backlog.

use std::time::Duration;

use super::time::{Timestamp, millis};
use crate::json::{self, Map};

/// How many wake when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sleepers {
    /// By the step that their wake-up is due in.
    due: Map<u64, u32>,
}

json::transparent!(Sleepers { due });

impl Sleepers {
    /// How long one more job sleeps: `until` the moment from which one call is served, then two, four …; then until its turn.
    pub fn until(&mut self, until: Duration, round: Duration, now: Timestamp, rng: &mut fastrand::Rng) -> Duration {
        let rounds = (1.0 + f64::from(self.rank(until, now))).log2();
        self.sleep(until, scaled(round, rounds * (0.8 + 0.4 * rng.f64())), now)
    }

    /// How long one more job sleeps that waits for one of `limit` slots.
    pub fn for_a_slot(&mut self, limit: u32, round: Duration, now: Timestamp, rng: &mut fastrand::Rng) -> Duration {
        let limit = limit.max(1);
        let rounds = 1.0 + (1.0 + f64::from(self.rank(Duration::ZERO, now)) / f64::from(limit)).log2();
        self.sleep(round / limit, scaled(round, rounds * rng.f64()), now)
    }

    fn rank(&mut self, until: Duration, now: Timestamp) -> u32 {
        self.forget(now);
        self.due_from(step(now + until).min(furthest(now)))
    }

    fn sleep(&mut self, until: Duration, turn: Duration, now: Timestamp) -> Duration {
        let after = until.saturating_add(turn).min(LONGEST);
        let due = step(now + after).min(furthest(now));
        let count = self.due.get(&due).copied().unwrap_or_default();
        self.due.insert(due, count.saturating_add(1));
        after
    }

    /// How many are asleep, to the step.
    #[must_use]
    pub fn count(&self, now: Timestamp) -> u32 {
        self.due_from(step(now))
    }

    fn due_from(&self, step: u64) -> u32 {
        self.due.iter().filter(|(due, _)| **due >= step).fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Drops who is awake, and who after a clock that ran back would sleep for ever.
    fn forget(&mut self, now: Timestamp) {
        self.due.retain(|&due, _| due >= step(now) && due <= furthest(now));
    }
}

fn scaled(round: Duration, rounds: f64) -> Duration {
    Duration::from_millis((rounds * millis(round.max(SHORTEST_ROUND)) as f64) as u64)
}

fn step(at: Timestamp) -> u64 {
    at.as_millis() / STEP_MS
}

/// Those who sleep longer than this are counted as if they did not: bounds the state.
fn furthest(now: Timestamp) -> u64 {
    step(now).saturating_add(STEPS)
}

const SHORTEST_ROUND: Duration = Duration::from_secs(1);
const STEP_MS: u64 = 2_000;
const STEPS: u64 = 200;
/// No hold asks for more at once (an hour's cooldown and a turn); whoever wakes then asks again.
const LONGEST: Duration = Duration::from_secs(2 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    fn hold(count: u32, until: Duration) -> Vec<Duration> {
        let (mut sleepers, mut rng) = (Sleepers::default(), fastrand::Rng::with_seed(3));
        (0..count).map(|_| sleepers.until(until, SECOND, NOW, &mut rng)).collect()
    }

    #[test]
    fn the_first_wakes_exactly_at_the_moment_and_nobody_before_it() {
        let waits = hold(200, 90 * SECOND);
        assert_eq!(waits[0], 90 * SECOND);
        assert!(waits.iter().all(|&wait| wait >= 90 * SECOND));
    }

    #[test]
    fn two_hundred_wake_along_the_slow_start_curve() {
        let waits = hold(200, 90 * SECOND);
        for (after, served) in [(1, 2_u32), (2, 4), (3, 8), (4, 16), (5, 32), (6, 64), (7, 128)] {
            let awake = waits.iter().filter(|&&wait| wait <= (90 + after) * SECOND).count();
            assert!(awake <= 3 * served as usize, "{awake} awake after {after} s, {served} can be served");
        }
        assert!(waits.iter().all(|&wait| wait <= 100 * SECOND), "nobody sleeps through the recovery");
    }

    #[test]
    fn who_waits_for_a_slot_wakes_evenly_spread_and_sooner_if_there_are_more_slots() {
        let waits = |limit| {
            let (mut sleepers, mut rng) = (Sleepers::default(), fastrand::Rng::with_seed(3));
            (0..200).map(|_| sleepers.for_a_slot(limit, 10 * SECOND, NOW, &mut rng)).collect::<Vec<_>>()
        };
        let longest = |limit| waits(limit).into_iter().max().unwrap();
        assert!(longest(64) < longest(8) && longest(8) < longest(1));
        let eight = waits(8);
        for from in (0..40).step_by(10) {
            let awake = eight.iter().filter(|wait| (from..from + 10).contains(&wait.as_secs())).count();
            assert!((20..80).contains(&awake), "{awake} awake from {from} s on");
        }
    }

    #[test]
    fn who_has_woken_does_not_count_however_often_it_is_held_again() {
        let (mut sleepers, mut rng) = (Sleepers::default(), fastrand::Rng::with_seed(3));
        let mut now = NOW;
        for _ in 0..100 {
            let waits: Vec<_> = (0..50).map(|_| sleepers.until(SECOND, SECOND, now, &mut rng)).collect();
            assert_eq!(sleepers.count(now), 50);
            now = now + waits.into_iter().max().unwrap() + 2 * SECOND;
            assert_eq!(sleepers.count(now), 0);
        }
    }

    #[test]
    fn who_wakes_before_the_moment_ranks_behind_who_waits_for_it_already() {
        let (mut sleepers, mut rng) = (Sleepers::default(), fastrand::Rng::with_seed(3));
        for _ in 0..50 {
            sleepers.until(SECOND, SECOND, NOW, &mut rng);
        }
        assert_eq!(sleepers.until(90 * SECOND, SECOND, NOW, &mut rng), 90 * SECOND);
        assert!(sleepers.until(90 * SECOND, SECOND, NOW, &mut rng) > 90 * SECOND);
    }

    #[test]
    fn the_state_is_bounded_and_extremes_and_a_clock_that_ran_back_do_no_harm() {
        let (mut sleepers, mut rng) = (Sleepers::default(), fastrand::Rng::with_seed(3));
        for round in 0..20_000 {
            let now = Timestamp::from_millis(rng.u64(0..=100_000_000));
            let until = Duration::from_millis(rng.u64(0..=10_000_000));
            assert!(sleepers.until(until, 5 * SECOND, now, &mut rng) <= LONGEST);
            assert!(sleepers.for_a_slot(round % 9, until, now, &mut rng) <= LONGEST);
            assert!(sleepers.due.len() <= 201);
        }
        let latest = Timestamp::from_millis(u64::MAX);
        assert_eq!(sleepers.until(Duration::MAX, Duration::MAX, latest, &mut rng), LONGEST);
        assert_eq!(sleepers.until(SECOND, SECOND, NOW, &mut rng), SECOND);
    }
}
