//! When held jobs wake: in order, as fast as the gate can serve them, and no faster.
//!
//! Were all who are held told the same moment, one would be served and the others held again, each at the price of a delivery.
//! So every held job gets a **ticket**, its number in the order of its priority, and sleeps until its turn. How far behind the
//! head of the order it is, is its `place`; the turn comes at
//!
//! ```text
//! from + ramp(place)        from: when the gate serves again; ramp: along the slow start, then at the steady rate
//! ```
//!
//! - **The ramp.** From `limit` calls on, the in-flight limit doubles once per round (a call's time to first content): a place
//!   within the doubling comes after `round · log2(1 + place / limit)`. Once the limit has come to what the upstream bore before
//!   (`full`), places come one by one, `call / full` apart.
//! - **Eagerness.** Jobs are woken a quarter faster than that, and those far behind faster still, as if the upstream were to bear
//!   twice as much every ten calls' time: `full` is only what has been seen, and who sleeps cannot be told that it has become
//!   more. A job that wakes in vain costs a delivery, a permit that nobody wants throughput; and who wakes early finds his place
//!   nearer each time.
//! - **Rank.** A job that wakes and is refused shows its ticket, and is placed by it again: those behind it stay behind it. In a
//!   long outage only the head of the order wakes once per cooldown; the rest sleeps on.
//! - **The head** moves one place with every ticket that is granted, whichever: a probe is whoever asks first after a cooldown,
//!   and must not make everyone else the first. Numbers whose jobs have left (cancelled, past their deadline) would make the
//!   others wait for nobody: a grant that finds room to spare moves the head an eighth of the way to its ticket as well. Once
//!   everyone who was told to sleep must be awake, the order is empty.
//! - **Priorities** have an order each. While several wait, each is served at its share of the rate; alone, at all of it.
//!
//! The state is three numbers per priority, whatever the backlog.

use std::time::Duration;

use super::priority::Priority;
use super::time::{Timestamp, millis};
use crate::json;

/// A held job's number in the order of its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

json::transparent!(Ticket);

/// How fast the gate serves from the moment on that it serves at all.
#[derive(Clone, Copy, Debug)]
pub struct Ramp {
    /// Calls in flight at that moment.
    pub limit: u32,
    /// Calls in flight that the upstream bears, as far as is known; `None`: the doubling goes on.
    pub full: Option<u32>,
    /// From grant to first content.
    pub round: Duration,
    /// From grant to the end.
    pub call: Duration,
    /// The least time between two calls that pacing allows; zero for none.
    pub gap: Duration,
}

/// A turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The job's place, for the next time.
    pub ticket: Ticket,
    /// How long until it may ask again.
    pub after: Duration,
    /// How long until it should be served, at the rate that is really expected.
    pub served: Duration,
}

/// The orders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    high: Lane,
    medium: Lane,
    low: Lane,
}

json::object!(default Slots { high, medium, low });

/// The order of one priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lane {
    /// The next number to be given.
    tail: u64,
    /// All numbers below have been served, as far as is known.
    head: u64,
    /// When the last of those who were told to sleep wakes.
    until: Timestamp,
}

json::object!(Lane { tail, head, until });

impl Slots {
    /// The turn of one more job, or of one that has a ticket, when the gate serves again in `from`.
    pub fn take(
        &mut self,
        priority: Priority,
        ticket: Option<Ticket>,
        from: Duration,
        ramp: &Ramp,
        now: Timestamp,
    ) -> Turn {
        self.settle(now);
        let share = self.share(priority, now);
        let lane = self.lane(priority);
        let ticket = ticket.filter(|ticket| ticket.0 < lane.tail).unwrap_or_else(|| {
            lane.tail = lane.tail.saturating_add(1);
            Ticket(lane.tail - 1)
        });
        let place = ticket.0.saturating_sub(lane.head);
        let turn = Turn {
            ticket,
            after: from.saturating_add(ramp.eager(place, share)).min(LONGEST),
            served: from.saturating_add(ramp.reaches(place, share)),
        };
        lane.until = lane.until.max(now + turn.after);
        turn
    }

    /// A job has been granted its call, with room to `spare` or not.
    pub fn granted(&mut self, priority: Priority, ticket: Option<Ticket>, spare: bool) {
        let lane = self.lane(priority);
        if let Some(Ticket(number)) = ticket {
            let skipped = if spare { number.saturating_sub(lane.head) / 8 } else { 0 };
            lane.head = lane.head.saturating_add(1 + skipped).min(lane.tail);
        }
    }

    /// How long a job would have to wait that has no ticket yet, at the rate that is really expected.
    #[must_use]
    pub fn look_ahead(&self, priority: Priority, from: Duration, ramp: &Ramp, now: Timestamp) -> Duration {
        let lane = self.look(priority);
        let place = if lane.until > now { lane.tail.saturating_sub(lane.head) } else { 0 };
        from.saturating_add(ramp.reaches(place, self.share(priority, now))).min(LONGEST)
    }

    /// Whether jobs of this priority are asleep.
    #[must_use]
    pub fn waits(&self, priority: Priority, now: Timestamp) -> bool {
        let lane = self.look(priority);
        lane.head < lane.tail && lane.until > now
    }

    /// How many are asleep, about.
    #[must_use]
    pub fn count(&self, now: Timestamp) -> u64 {
        let waiting = |priority| {
            let lane = self.look(priority);
            if lane.until > now { lane.tail.saturating_sub(lane.head) } else { 0 }
        };
        Priority::ALL.into_iter().map(waiting).fold(0, u64::saturating_add)
    }

    /// Empties the orders whose sleepers are all awake, and bounds what a clock that ran back makes of the others.
    fn settle(&mut self, now: Timestamp) {
        for priority in Priority::ALL {
            let lane = self.lane(priority);
            lane.until = lane.until.min(now + LONGEST);
            if lane.until + AWAKE < now {
                lane.head = lane.tail;
            }
        }
    }

    /// This priority's part of the rate, in percent.
    fn share(&self, priority: Priority, now: Timestamp) -> u32 {
        let others = Priority::ALL.into_iter().filter(|other| *other != priority && self.waits(*other, now));
        let all = others.fold(priority.share_percent(), |sum, other| sum + other.share_percent());
        priority.share_percent() * 100 / all.max(1)
    }

    fn lane(&mut self, priority: Priority) -> &mut Lane {
        match priority {
            Priority::High => &mut self.high,
            Priority::Medium => &mut self.medium,
            Priority::Low => &mut self.low,
        }
    }

    const fn look(&self, priority: Priority) -> Lane {
        match priority {
            Priority::High => self.high,
            Priority::Medium => self.medium,
            Priority::Low => self.low,
        }
    }
}

impl Ramp {
    /// How long until `place` others have been served by a `share` percent of the rate.
    fn reaches(&self, place: u64, share: u32) -> Duration {
        let (ramped, steady, paced) = self.parts(place, share, 100);
        milliseconds((ramped + steady).max(paced))
    }

    /// The same, taken eagerly.
    fn eager(&self, place: u64, share: u32) -> Duration {
        let (ramped, steady, paced) = self.parts(place, share, EAGERNESS_PERCENT);
        let doubling = millis(self.call).max(1) as f64 * DOUBLING_CALLS;
        milliseconds((ramped + doubling * (1.0 + steady / doubling).ln()).max(paced))
    }

    /// The time along the slow start, the time at the steady rate, and what pacing makes of both.
    fn parts(&self, place: u64, share: u32, speed: u32) -> (f64, f64, f64) {
        // As many of all priorities come before this place.
        let place = place as f64 * 10_000.0 / f64::from(share.max(1) * speed.max(1));
        let limit = f64::from(self.limit.max(1));
        let doubled = self.full.map_or(f64::INFINITY, |full| f64::from(full.max(self.limit)) - limit);
        let (round, call) = (millis(self.round) as f64, millis(self.call) as f64);
        let ramped = round * (1.0 + place.min(doubled) / limit).log2();
        let steady = call * (place - doubled).max(0.0) / (doubled + limit);
        (ramped, steady, millis(self.gap) as f64 * place)
    }
}

fn milliseconds(ms: f64) -> Duration {
    Duration::from_millis(ms.min(millis(LONGEST) as f64) as u64)
}

/// How much faster than the expected rate jobs are woken.
const EAGERNESS_PERCENT: u32 = 125;
/// In how many calls' time the upstream may have come to bear twice as much.
const DOUBLING_CALLS: f64 = 10.0;
/// Nobody sleeps longer without asking how things stand.
const LONGEST: Duration = Duration::from_secs(2 * 3600);
/// A message may be late by a batch.
const AWAKE: Duration = Duration::from_secs(10);
