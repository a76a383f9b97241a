//! Who has a permit: the calls that are on their way.
//!
//! A permit is a lease: its holder renews it, and one whose holder died is free again when the lease ends. Leases are counted
//! rather than starts and ends, because an end can be lost, and a counter that missed one never comes down again.
//!
//! A **straggler** was granted before a trip. It is being served, and says nothing about how many more may come.

use std::time::Duration;

use super::answer::PermitId;
use super::priority::Priority;
use super::time::Timestamp;
use crate::json::{self, Map};

/// One call on its way. Short names and left-out defaults: there may be hundreds, and the state is one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// When it was granted.
    pub granted: Timestamp,
    expires: Timestamp,
    /// For whom.
    pub priority: Priority,
    /// Whether first content has come.
    pub content: bool,
    /// Whether it was granted before a trip.
    pub straggler: bool,
    /// How many others were on their way when it was granted, but for those that have failed since.
    beside: u32,
}

json::object!(Permit {
    granted as "g",
    expires as "e",
    priority as "p" = Priority::default(),
    content as "c" = false,
    straggler as "s" = false,
    beside as "b" = 0,
});

/// The permits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permits {
    live: Map<PermitId, Permit>,
    last_id: u64,
    freed: Timestamp,
}

json::object!(default Permits { live, last_id, freed });

impl Permits {
    /// Grants one.
    pub fn grant(&mut self, priority: Priority, lease: Duration, now: Timestamp) -> PermitId {
        self.last_id = self.last_id.saturating_add(1);
        let beside = self.current();
        let permit = Permit { granted: now, expires: now + lease, priority, content: false, straggler: false, beside };
        self.live.insert(PermitId(self.last_id), permit);
        PermitId(self.last_id)
    }

    /// The permit, if its lease has not ended.
    #[must_use]
    pub fn get(&self, id: PermitId) -> Option<Permit> {
        self.live.get(&id).copied()
    }

    /// The one that was granted last.
    #[must_use]
    pub const fn newest(&self) -> PermitId {
        PermitId(self.last_id)
    }

    /// Lets the lease run anew; false if it has ended.
    pub fn renew(&mut self, id: PermitId, lease: Duration, now: Timestamp) -> bool {
        self.live.get_mut(&id).map(|permit| permit.expires = now + lease).is_some()
    }

    /// Takes it back.
    pub fn release(&mut self, id: PermitId, now: Timestamp) -> Option<Permit> {
        let permit = self.live.remove(&id)?;
        self.freed = now;
        Some(permit)
    }

    /// How long ago one was given back.
    #[must_use]
    pub fn freed_ago(&self, now: Timestamp) -> Duration {
        now.since(self.freed)
    }

    /// Takes back every permit whose lease has ended. After a clock ran backwards, none lasts longer than `longest` from now.
    pub fn expire(&mut self, longest: Duration, now: Timestamp) -> Vec<PermitId> {
        self.freed = self.freed.min(now);
        let mut ended = Vec::new();
        self.live.retain(|&id, permit| {
            permit.expires = permit.expires.min(now + longest);
            let lives = permit.expires > now;
            if !lives {
                ended.push(id);
            }
            lives
        });
        ended
    }

    /// First content has come.
    pub fn content(&mut self, id: PermitId) -> Option<Permit> {
        let permit = self.live.get_mut(&id)?;
        permit.content = true;
        Some(*permit)
    }

    /// The call has failed before content: those that came after it were fewer at once than it seemed.
    pub fn unserved(&mut self, id: PermitId) {
        for permit in self.live.values_after_mut(&id) {
            permit.beside = permit.beside.saturating_sub(1);
        }
    }

    /// All that are on their way belong to the past.
    pub fn outdate(&mut self) {
        for permit in self.live.values_mut() {
            permit.straggler = true;
        }
    }

    /// How many there are, stragglers included.
    #[must_use]
    pub fn live(&self, now: Timestamp) -> u32 {
        count(self.live.values().filter(|permit| permit.expires > now))
    }

    /// How many there are, stragglers and ended leases included: what the state has to hold.
    #[must_use]
    pub fn stored(&self) -> u32 {
        count(self.live.values())
    }

    /// How many are no stragglers.
    #[must_use]
    pub fn current(&self) -> u32 {
        count(self.live.values().filter(|permit| !permit.straggler))
    }

    /// How many of a priority are no stragglers.
    #[must_use]
    pub fn current_of(&self, priority: Priority) -> u32 {
        count(self.live.values().filter(|permit| !permit.straggler && permit.priority == priority))
    }

    /// How many, no stragglers, have come to content or have lasted for longer than that.
    #[must_use]
    pub fn lasting(&self, than: Duration, now: Timestamp) -> u32 {
        let lasts = |permit: &&Permit| permit.content || now.since(permit.granted) > than;
        count(self.live.values().filter(|permit| !permit.straggler).filter(lasts))
    }

    /// How many, no stragglers, have come to content and were granted so long ago.
    #[must_use]
    pub fn streaming(&self, since: Duration, now: Timestamp) -> u32 {
        let streams = |permit: &&Permit| permit.content && now.since(permit.granted) >= since;
        count(self.live.values().filter(|permit| !permit.straggler).filter(streams))
    }

    /// How many from `from` to `to` have neither failed nor come to content.
    #[must_use]
    pub fn undecided(&self, from: PermitId, to: PermitId) -> u32 {
        let from = from.min(to);
        let permits = self.live.iter().filter(|(id, _)| (from..=to).contains(*id)).map(|(_, permit)| permit);
        count(permits.filter(|permit| !permit.content && !permit.straggler))
    }
}

impl Permit {
    /// How many were being answered together, now that this one is: those that came before it and have not failed are, too,
    /// since a refusal is quicker than content.
    #[must_use]
    pub const fn together(&self) -> u32 {
        self.beside.saturating_add(1)
    }
}

fn count<'a>(permits: impl Iterator<Item = &'a Permit>) -> u32 {
    u32::try_from(permits.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(120);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + ms)
    }

    fn granted(permits: &mut Permits, count: usize) -> Vec<PermitId> {
        (0..count).map(|_| permits.grant(Priority::Low, LEASE, at(0))).collect()
    }

    #[test]
    fn a_lease_ends_unless_it_is_renewed_and_a_clock_that_ran_back_does_not_lengthen_it() {
        let mut permits = Permits::default();
        let (dies, lives) = (permits.grant(Priority::Low, LEASE, at(0)), permits.grant(Priority::Low, LEASE, at(0)));
        assert!(permits.renew(lives, LEASE, at(60_000)));
        assert_eq!([119_999, 120_000].map(|ms| permits.live(at(ms))), [2, 1]);
        assert_eq!(permits.expire(LEASE, at(119_999)), []);
        assert_eq!(permits.expire(LEASE, at(120_000)), [dies]);
        assert!(!permits.renew(dies, LEASE, at(120_000)));
        let early = Timestamp::from_millis(1_000);
        let ends = permits.grant(Priority::Low, LEASE, at(120_000));
        permits.release(ends, at(120_000));
        assert_eq!(permits.expire(LEASE, early), []);
        assert_eq!(permits.freed_ago(early + LEASE / 2), LEASE / 2);
        assert_eq!(permits.expire(LEASE, early + LEASE), [lives]);
    }

    #[test]
    fn undecided_are_those_that_have_neither_failed_nor_come_to_content() {
        let mut permits = Permits::default();
        let ids = granted(&mut permits, 5);
        permits.content(ids[2]);
        permits.release(ids[3], at(0));
        for (from, to, expected) in [(0, 4, 3), (1, 3, 1), (2, 3, 0), (4, 1, 1)] {
            assert_eq!(permits.undecided(ids[from], ids[to]), expected, "{from} to {to}");
        }
        permits.outdate();
        assert_eq!(permits.undecided(ids[0], permits.newest()), 0);
    }

    #[test]
    fn together_are_those_that_came_before_and_have_not_failed_since() {
        let mut permits = Permits::default();
        let ids = granted(&mut permits, 4);
        permits.unserved(ids[1]);
        permits.release(ids[1], at(0));
        let late = permits.grant(Priority::High, LEASE, at(10));
        permits.release(ids[0], at(0));
        let together: Vec<_> =
            [ids[2], ids[3], late].into_iter().map(|id| permits.get(id).unwrap().together()).collect();
        assert_eq!(together, [2, 3, 4], "one that has ended since was there, one that was refused was not");
    }

    #[test]
    fn stragglers_are_live_and_count_for_nothing_else() {
        let mut permits = Permits::default();
        let before = granted(&mut permits, 3);
        permits.content(before[0]);
        permits.outdate();
        assert_eq!((permits.live(at(0)), permits.stored()), (3, 3));
        assert_eq!((permits.current(), permits.current_of(Priority::Low), permits.lasting(LEASE, at(0))), (0, 0, 0));
        let after = permits.grant(Priority::Low, LEASE, at(0));
        assert_eq!((permits.current(), permits.current_of(Priority::Low)), (1, 1));
        assert_eq!(permits.current_of(Priority::High), 0);
        assert_eq!(permits.get(after).unwrap().together(), 1);
    }

    #[test]
    fn lasting_are_those_with_content_and_those_that_are_older() {
        let mut permits = Permits::default();
        let ids = granted(&mut permits, 2);
        permits.grant(Priority::Low, LEASE, at(50));
        let lasting = |permits: &Permits, than| permits.lasting(Duration::from_millis(than), at(100));
        assert_eq!([49, 50, 99, 100].map(|than| lasting(&permits, than)), [3, 2, 2, 0]);
        permits.content(ids[1]);
        assert_eq!(lasting(&permits, 100), 1);
    }

    #[test]
    fn streaming_are_those_with_content_that_are_so_old_and_no_stragglers() {
        let mut permits = Permits::default();
        let ids = granted(&mut permits, 2);
        let late = permits.grant(Priority::Low, LEASE, at(50));
        permits.content(ids[0]);
        permits.content(late);
        let streaming = |permits: &Permits, since| permits.streaming(Duration::from_millis(since), at(100));
        assert_eq!([50, 51, 100, 101].map(|since| streaming(&permits, since)), [2, 1, 1, 0]);
        permits.outdate();
        assert_eq!(streaming(&permits, 0), 0);
    }
}
