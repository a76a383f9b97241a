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
//! - **Eagerness.** Jobs are woken two and a half times as fast as that, and those far behind faster still, as if the upstream were to bear
//!   twice as much every ten calls' time: `full` is only what has been seen, and who sleeps cannot be told that it has become
//!   more. A job that wakes in vain costs a delivery, a permit that nobody wants throughput; and who wakes early finds his
//!   place nearer each time.
//! - **Rank.** A job that wakes and is refused shows its ticket, and is placed by it again: those behind it stay behind it. In a
//!   long outage only the head of the order wakes once per cooldown; the rest sleeps on.
//! - **The head** is the lowest number that has not been granted; those ahead of their turn that have been are remembered, and do
//!   not count as places. A number whose job has left (cancelled, gone to another model) would hold the head for ever: once
//!   more than a hundred behind it have been granted, it is passed over. If it is there after all, it is the first. Once
//!   everyone who was told to sleep must be awake, the order is empty.
//! - **Priorities** have an order each. While several wait, each is served at its share of the rate; alone, at all of it.
//!
//! The state is a hundred numbers per priority at most, whatever the backlog.

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lane {
    /// The next number to be given.
    tail: u64,
    /// The number whose turn it is.
    head: u64,
    /// Those behind the head that have been granted, in order.
    ahead: Vec<u64>,
    /// When the last of those who were told to sleep wakes.
    until: Timestamp,
}

json::object!(default Lane { tail, head, ahead, until });

impl Lane {
    /// How many come before this one.
    fn place(&self, Ticket(number): Ticket) -> u64 {
        let granted = self.ahead.partition_point(|ahead| *ahead < number) as u64;
        number.saturating_sub(self.head).saturating_sub(granted)
    }

    fn waiting(&self) -> u64 {
        self.place(Ticket(self.tail))
    }

    fn grant(&mut self, Ticket(number): Ticket) {
        if (self.head..self.tail).contains(&number)
            && let Err(place) = self.ahead.binary_search(&number)
        {
            self.ahead.insert(place, number);
        }
        if self.ahead.len() > MOST_AHEAD {
            self.head = self.ahead.first().copied().unwrap_or(self.head);
        }
        let served = self.ahead.iter().zip(self.head..).take_while(|(ahead, next)| **ahead == *next).count();
        self.head = self.head.saturating_add(served as u64);
        self.ahead.drain(..served);
    }

    fn clear(&mut self) {
        self.head = self.tail;
        self.ahead.clear();
    }
}

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
        let place = lane.place(ticket);
        let turn = Turn {
            ticket,
            after: from.saturating_add(ramp.eager(place, share)).min(LONGEST),
            served: from.saturating_add(ramp.reaches(place, share)),
        };
        lane.until = lane.until.max(now + turn.after);
        turn
    }

    /// A job has been granted its call.
    pub fn granted(&mut self, priority: Priority, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.lane(priority).grant(ticket);
        }
    }

    /// A ticket before all others.
    #[must_use]
    pub fn front(&self, priority: Priority) -> Ticket {
        Ticket(self.look(priority).head.saturating_sub(1))
    }

    /// How many come before a job of this priority; one without a ticket is behind all who wait.
    #[must_use]
    pub fn place(&self, priority: Priority, ticket: Option<Ticket>, now: Timestamp) -> u64 {
        let lane = self.look(priority);
        match ticket.filter(|ticket| ticket.0 < lane.tail) {
            _ if lane.until <= now => 0,
            Some(ticket) => lane.place(ticket),
            None => lane.waiting(),
        }
    }

    /// How long a job would have to wait that has no ticket yet, at the rate that is really expected.
    #[must_use]
    pub fn look_ahead(&self, priority: Priority, from: Duration, ramp: &Ramp, now: Timestamp) -> Duration {
        let place = self.place(priority, None, now);
        from.saturating_add(ramp.reaches(place, self.share(priority, now))).min(LONGEST)
    }

    /// Whether jobs of this priority are asleep.
    #[must_use]
    pub fn waits(&self, priority: Priority, now: Timestamp) -> bool {
        let lane = self.look(priority);
        lane.waiting() > 0 && lane.until > now
    }

    /// How many are asleep, about.
    #[must_use]
    pub fn count(&self, now: Timestamp) -> u64 {
        let waiting = |priority| {
            let lane = self.look(priority);
            if lane.until > now { lane.waiting() } else { 0 }
        };
        Priority::ALL.into_iter().map(waiting).fold(0, u64::saturating_add)
    }

    /// Empties the orders whose sleepers are all awake, and bounds what a clock that ran back makes of the others.
    fn settle(&mut self, now: Timestamp) {
        for priority in Priority::ALL {
            let lane = self.lane(priority);
            lane.until = lane.until.min(now + LONGEST);
            if lane.until + AWAKE < now {
                lane.clear();
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

    const fn look(&self, priority: Priority) -> &Lane {
        match priority {
            Priority::High => &self.high,
            Priority::Medium => &self.medium,
            Priority::Low => &self.low,
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
const EAGERNESS_PERCENT: u32 = 250;
/// In how many calls' time the upstream may have come to bear twice as much.
const DOUBLING_CALLS: f64 = 10.0;
/// Nobody sleeps longer without asking how things stand.
const LONGEST: Duration = Duration::from_secs(2 * 3600);
/// More than are ever granted out of turn while nobody leaves; bounds the state.
const MOST_AHEAD: usize = 100;
/// A message may be late by a batch.
const AWAKE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const RAMP: Ramp = Ramp {
        limit: 1,
        full: Some(40),
        round: Duration::from_secs(2),
        call: Duration::from_secs(10),
        gap: Duration::ZERO,
    };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn hold(slots: &mut Slots, count: u64, from: Duration) -> Vec<Turn> {
        (0..count).map(|_| slots.take(Priority::Medium, None, from, &RAMP, NOW)).collect()
    }

    #[test]
    fn the_first_wakes_exactly_at_the_moment_and_the_others_in_order_behind_it() {
        let turns = hold(&mut Slots::default(), 500, seconds(90));
        assert_eq!(turns[0].after, seconds(90));
        let longest = [7_199, 7_200, 86_400].map(|from| hold(&mut Slots::default(), 1, seconds(from))[0].after);
        assert_eq!(longest, [7_199, 7_200, 7_200].map(seconds), "nobody sleeps for more than two hours");
        assert!(turns.windows(2).all(|pair| pair[0].ticket < pair[1].ticket && pair[0].after <= pair[1].after));
        assert!(turns.iter().all(|turn| turn.after <= turn.served));
    }

    #[test]
    fn places_follow_the_doubling_up_to_what_the_upstream_bears_and_then_the_steady_rate() {
        let turns = hold(&mut Slots::default(), 1_000, Duration::ZERO);
        for (place, served_ms) in
            [(0, 0), (1, 2_000), (3, 4_000), (7, 6_000), (39, 10_643), (79, 20_643), (999, 250_643)]
        {
            assert_eq!(turns[place].served.as_millis(), served_ms, "place {place}");
        }
        let (beyond, mut slots) = (Ramp { limit: 50, ..RAMP }, Slots::default());
        let turns = [(); 51].map(|()| slots.take(Priority::Medium, None, Duration::ZERO, &beyond, NOW));
        assert_eq!(turns[50].served, RAMP.call, "where more are on their way than it bore, there is no doubling");
        let (unknown, mut slots) = (Ramp { full: None, ..RAMP }, Slots::default());
        let turns: Vec<_> =
            (0..1_024).map(|_| slots.take(Priority::Medium, None, Duration::ZERO, &unknown, NOW)).collect();
        assert_eq!(turns[1_023].served, seconds(20), "ten doublings");
    }

    #[test]
    fn those_far_behind_wake_as_if_the_upstream_might_bear_twice_as_much_every_ten_calls() {
        let turns = hold(&mut Slots::default(), 4_000, Duration::ZERO);
        assert_eq!(turns[3_999].served.as_secs(), 1_000);
        assert!((150..300).contains(&turns[3_999].after.as_secs()), "{:?}", turns[3_999].after);
        assert!(turns[60].after > turns[60].served / 2, "those in front wake about on time");
    }

    #[test]
    fn who_wakes_and_is_refused_keeps_his_place_and_moves_up_with_every_grant_before_him() {
        let mut slots = Slots::default();
        let turns = hold(&mut slots, 100, Duration::ZERO);
        let again =
            |slots: &mut Slots, turn: Turn| slots.take(Priority::Medium, Some(turn.ticket), Duration::ZERO, &RAMP, NOW);
        assert_eq!(again(&mut slots, turns[50]), turns[50]);
        for turn in &turns[..30] {
            slots.granted(Priority::Medium, Some(turn.ticket));
        }
        assert_eq!(again(&mut slots, turns[50]).after, turns[20].after);
        slots.granted(Priority::Medium, Some(turns[90].ticket));
        assert_eq!(again(&mut slots, turns[50]).after, turns[20].after, "who is behind him does not count");
        assert_eq!(again(&mut slots, turns[99]).after, turns[68].after);
        assert!(hold(&mut slots, 1, Duration::ZERO)[0].ticket > turns[99].ticket);
    }

    #[test]
    fn a_grant_out_of_turn_moves_nobody_else_to_the_front_and_counts_once() {
        let mut slots = Slots::default();
        let turns = hold(&mut slots, 20, Duration::ZERO);
        let place = |slots: &Slots, turn: usize| slots.place(Priority::Medium, Some(turns[turn].ticket), NOW);
        for _ in 0..2 {
            slots.granted(Priority::Medium, Some(turns[10].ticket));
            assert_eq!([0, 9, 10, 11, 19].map(|turn| place(&slots, turn)), [0, 9, 10, 10, 18]);
        }
        for strange in [None, Some(Ticket(20)), Some(Ticket(500))] {
            slots.granted(Priority::Medium, strange);
        }
        assert_eq!((slots.count(NOW), slots.medium.ahead.len()), (19, 1));
        assert_eq!(slots.place(Priority::Medium, Some(Ticket(500)), NOW), 19, "one that was never given is none");
        (0..10).for_each(|turn| slots.granted(Priority::Medium, Some(turns[turn].ticket)));
        assert!(slots.waits(Priority::Medium, NOW));
        assert_eq!((slots.medium.head, slots.medium.ahead.len()), (11, 0), "the head goes past who was granted before");
        (11..20).for_each(|turn| slots.granted(Priority::Medium, Some(turns[turn].ticket)));
        assert!(!slots.waits(Priority::Medium, NOW), "all have been granted before they had to wake");
    }

    #[test]
    fn a_number_whose_job_has_left_is_passed_over_and_is_first_if_it_is_there_after_all() {
        let mut slots = Slots::default();
        let turns = hold(&mut slots, 300, Duration::ZERO);
        for turn in &turns[1..=100] {
            slots.granted(Priority::Medium, Some(turn.ticket));
        }
        assert_eq!(slots.medium.head, 0);
        slots.granted(Priority::Medium, Some(turns[101].ticket));
        assert_eq!((slots.medium.head, slots.medium.ahead.len()), (102, 0));
        assert_eq!(slots.place(Priority::Medium, Some(turns[0].ticket), NOW), 0);
    }

    #[test]
    fn once_everyone_must_be_awake_the_order_is_empty() {
        let mut slots = Slots::default();
        let last = hold(&mut slots, 100, Duration::ZERO)[99];
        assert_eq!(slots.count(NOW), 100);
        assert!(slots.waits(Priority::Medium, NOW) && !slots.waits(Priority::High, NOW));
        let later = NOW + last.after;
        assert_eq!([Some(last.ticket), None].map(|ticket| slots.place(Priority::Medium, ticket, NOW)), [99, 100]);
        assert_eq!([Some(last.ticket), None].map(|ticket| slots.place(Priority::Medium, ticket, later)), [0, 0]);
        assert_eq!(slots.count(later), 0);
        assert!(!slots.waits(Priority::Medium, later));
        slots.granted(Priority::Medium, Some(Ticket(50)));
        let turn = slots.clone().take(Priority::Medium, None, Duration::ZERO, &RAMP, later + AWAKE);
        assert!(turn.after > Duration::ZERO, "a message may be late");
        let turn = slots.take(Priority::Medium, None, Duration::ZERO, &RAMP, later + AWAKE + seconds(1));
        assert_eq!((turn.after, slots.medium.ahead.len()), (Duration::ZERO, 0));
        let old = slots.take(Priority::Medium, Some(last.ticket), Duration::ZERO, &RAMP, later + AWAKE + seconds(1));
        assert_eq!(old.after, Duration::ZERO, "an old ticket is first, too");
    }

    #[test]
    fn each_priority_has_an_order_of_its_own_and_a_share_of_the_rate_while_others_wait() {
        let mut slots = Slots::default();
        hold(&mut slots, 1_000, Duration::ZERO);
        let high: Vec<_> = (0..11)
            .map(|_| slots.take(Priority::High, None, Duration::ZERO, &Ramp { limit: 40, ..RAMP }, NOW))
            .collect();
        assert_eq!(high[0].after, Duration::ZERO, "a thousand others wait");
        // 60 of 90 percent: ten places are as far as a good 15 of all, at four a second.
        assert_eq!(high[10].served.as_millis(), 3_787);
    }

    #[test]
    fn pacing_spaces_the_turns() {
        let paced = Ramp { limit: 100, full: None, gap: seconds(2), ..RAMP };
        let mut slots = Slots::default();
        let turns: Vec<_> = (0..6).map(|_| slots.take(Priority::Low, None, seconds(1), &paced, NOW).served).collect();
        assert_eq!(turns, [1, 3, 5, 7, 9, 11].map(seconds));
    }

    #[test]
    fn a_look_ahead_takes_no_place() {
        let mut slots = Slots::default();
        hold(&mut slots, 80, Duration::ZERO);
        let before = slots.clone();
        assert_eq!(slots.look_ahead(Priority::Medium, Duration::ZERO, &RAMP, NOW).as_secs(), 20);
        assert_eq!(slots.look_ahead(Priority::Medium, seconds(86_400), &RAMP, NOW), LONGEST);
        assert_eq!(slots, before);
    }

    #[test]
    fn extremes_strange_tickets_and_a_clock_that_ran_back_do_no_harm() {
        let (mut slots, mut rng) = (Slots::default(), fastrand::Rng::with_seed(3));
        for _ in 0..20_000 {
            let now = Timestamp::from_millis(if rng.u8(0..9) == 0 { rng.u64(..) } else { rng.u64(0..100_000_000) });
            let priority = Priority::ALL[rng.usize(0..3)];
            let ticket = rng.bool().then(|| Ticket(if rng.bool() { rng.u64(..) } else { rng.u64(0..30_000) }));
            let ramp = Ramp {
                limit: rng.u32(..),
                full: rng.bool().then(|| rng.u32(..)),
                round: Duration::from_millis(rng.u64(..)),
                call: Duration::from_millis(rng.u64(..)),
                gap: Duration::from_millis(rng.u64(0..100_000)),
            };
            let from = Duration::from_millis(if rng.bool() { rng.u64(..) } else { rng.u64(0..90_000) });
            assert!(slots.take(priority, ticket, from, &ramp, now).after <= LONGEST);
            slots.granted(priority, ticket);
            assert!(slots.medium.head <= slots.medium.tail && slots.medium.ahead.len() <= MOST_AHEAD);
        }
        let turn = slots.take(Priority::Medium, None, Duration::ZERO, &RAMP, NOW);
        assert!(turn.after <= LONGEST);
    }
}
