//! Who gets a free slot of the in-flight limit: shares per priority, held only under pressure (B8).
//!
//! Each priority can count on its part of the limit (60, 30, 10 %):
//! - a free slot is not given to who has his share already while others, who are asleep for want of one, have not;
//! - beyond the shares the more urgent come first: who has more than his share leaves them the last free slot;
//! - while the limit is doubling nothing is kept for who is asleep: a slot that waits is growth lost, and the next ones come
//!   in a moment;
//! - without pressure anyone may have all of it.
//!
//! Where no slot has become free for two seconds (few calls, long ones, or permits of the dead) high goes further: within its
//! share it is served at once, even if the others have filled the limit, and they wait until it fits again.

use std::time::Duration;

use super::permits::Permits;
use super::priority::Priority;
use super::time::Timestamp;

/// The limit, and who has how much of it.
#[derive(Clone, Copy, Debug)]
pub struct Shares<'a> {
    /// Who has a permit.
    pub permits: &'a Permits,
    /// How many may have one.
    pub limit: u32,
    /// Whether that is still doubling.
    pub doubles: bool,
}

impl Shares<'_> {
    /// Whether there is no slot for one more of this priority. `waits`: whether others of a priority are asleep for one.
    #[must_use]
    pub fn is_full(&self, priority: Priority, waits: impl Fn(Priority) -> bool, now: Timestamp) -> bool {
        let current = self.permits.current();
        let has_share = self.missing(priority) == 0;
        if current >= self.limit {
            return has_share || priority != Priority::High || self.permits.freed_ago(now) < SOON;
        }
        let others = Priority::ALL.into_iter().filter(|other| *other != priority && waits(*other));
        let reserved = if self.doubles { 0 } else { others.clone().map(|other| self.missing(other)).sum() };
        let yields = others.into_iter().any(|other| other < priority);
        has_share && self.limit - current <= reserved + u32::from(yields)
    }

    /// What a priority lacks of its share.
    fn missing(&self, priority: Priority) -> u32 {
        let share = (self.limit * priority.share_percent()).div_ceil(100);
        share.saturating_sub(self.permits.current_of(priority))
    }
}

/// Where a slot has become free in that time, the next will soon, and even high jobs wait for it.
const SOON: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(120);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + ms)
    }

    /// Ten slots.
    fn is_full(
        permits: &Permits,
        doubles: bool,
        priority: Priority,
        waits: &dyn Fn(Priority) -> bool,
        ms: u64,
    ) -> bool {
        Shares { permits, limit: 10, doubles }.is_full(priority, waits, at(ms))
    }

    /// How many of a priority are let in, one after the other.
    fn grant(permits: &mut Permits, doubles: bool, priority: Priority, waits: &dyn Fn(Priority) -> bool) -> usize {
        let mut granted = 0;
        while granted < 20 && !is_full(permits, doubles, priority, waits, 500) {
            permits.grant(priority, LEASE, at(0));
            granted += 1;
        }
        granted
    }

    #[test]
    fn shares_hold_only_under_pressure() {
        let mut permits = Permits::default();
        assert_eq!(grant(&mut permits, false, Priority::Low, &|_| false), 10, "nobody else wants it");
        assert_eq!(grant(&mut permits, false, Priority::Medium, &|_| true), 0, "it is full");

        let mut permits = Permits::default();
        assert_eq!(grant(&mut permits, false, Priority::Low, &|_| true), 1, "10 % of 10, and the rest is wanted");
        assert_eq!(grant(&mut permits, false, Priority::Medium, &|_| true), 3, "30 %");
        let low = |other| other == Priority::Low;
        assert_eq!(grant(&mut permits, false, Priority::Medium, &low), 6, "low has its share");
    }

    #[test]
    fn while_the_limit_is_doubling_no_slot_is_kept_for_who_is_asleep_but_the_last_for_the_more_urgent() {
        for (doubles, medium) in [(true, 9), (false, 3)] {
            let mut permits = Permits::default();
            assert_eq!(grant(&mut permits, doubles, Priority::Medium, &|_| true), medium, "doubles: {doubles}");
            assert_eq!(grant(&mut permits, doubles, Priority::Low, &|_| true), 1, "its share");
        }
    }

    #[test]
    fn beyond_the_shares_the_last_free_slot_is_left_to_the_more_urgent_who_wait() {
        let medium = |other| other == Priority::Medium;
        for (waits, others) in [(true, 6), (false, 7)] {
            let mut permits = Permits::default();
            assert_eq!(grant(&mut permits, false, Priority::Medium, &|_| true), 3);
            assert_eq!(grant(&mut permits, false, Priority::Low, &|other| waits && medium(other)), others);
            assert_eq!(grant(&mut permits, false, Priority::Medium, &|_| false), 7 - others);
        }
    }

    #[test]
    fn high_is_served_at_once_within_its_share_where_no_slot_has_become_free_for_two_seconds() {
        let mut permits = Permits::default();
        grant(&mut permits, false, Priority::Low, &|_| false);
        let ended = permits.grant(Priority::Low, LEASE, at(0));
        permits.release(ended, at(5_000));
        for (ms, full) in [(5_000, true), (6_999, true), (7_000, false)] {
            assert_eq!(is_full(&permits, false, Priority::High, &|_| true, ms), full, "{ms} ms");
        }
        for _ in 0..6 {
            permits.grant(Priority::High, LEASE, at(0));
        }
        assert!(is_full(&permits, false, Priority::High, &|_| true, 60_000), "it has its share");
        assert!(is_full(&permits, false, Priority::Low, &|_| false, 60_000));
    }
}
