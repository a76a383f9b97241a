//! Which model a job calls next, and when it gives up for now: the ladder (A5, B7, B8).
//!
//! One pass over it is one attempt, made within one delivery:
//!
//! | rung | who | goes on to the next |
//! | --- | --- | --- |
//! | the first model | everyone: the primary, or for a low job that may have it the fallback | when the call is overloaded |
//! | the first model, once more, after 1.5–2.5 s | everyone whom the gate lets | when that is overloaded, too |
//! | the fallback | who may leave, and was not there yet | when that is overloaded or refuses |
//! | wait | everyone | – |
//!
//! - **Overload is the only reason to leave**, met as a failed call (before content or in the middle of an answer: nobody has
//!   seen it) or as a gate's refusal that says `leave`. A rate limit paces
//!   the job where it is; any other failure ends the pass.
//! - **The second rung is left out** when one overload is enough (a peak hour, a degraded model: the verdict's `leave`) and the
//!   job may go elsewhere; when the overload asked for a longer wait; and when the gate has closed over it.
//! - **High never leaves** the primary. **Low** has the fallback straight away where the kind allows it.
//! - **A wait for a slot of less than two seconds is made in place**, up to five seconds of them in a pass: a queue wakes in
//!   whole seconds and by batches, and a slot that stays empty meanwhile is throughput lost.
//! - A job that has left and is refused there as well waits for its first model, in its place of the order.
//!
//! Which kinds, and which requests, may have the fallback is decided before (`kinds`, `models`); here it is one flag.

use std::time::Duration;

use super::answer::{Held, HoldReason, Verdict};
use super::cause::Class;
use super::priority::Priority;
use crate::json;

/// One of a job's two models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The model that was asked for.
    Primary,
    /// The smaller one.
    Fallback,
}

/// Why another model answered than the one asked for. The name in snake case is log field, metric label and API code in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downgrade {
    /// The primary was overloaded.
    Overloaded,
    /// Its breaker was open.
    BreakerOpen,
    /// It had been overloaded call after call.
    Degraded,
    /// The wait for it would have been long.
    LongWait,
    /// The operator has closed it.
    Overridden,
    /// The job is of low priority.
    LowPriority,
}

json::names!(Downgrade {
    Overloaded => "overloaded",
    BreakerOpen => "breaker_open",
    Degraded => "degraded",
    LongWait => "long_wait",
    Overridden => "overridden",
    LowPriority => "low_priority",
});

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Ask this model's gate.
    Ask {
        /// Which.
        tier: Tier,
        /// Whether the job would rather leave than wait for it.
        may_leave: bool,
    },
    /// Wait here for that long, then [`Ladder::start`] again.
    Pause(Duration),
    /// Wait in the queue; no attempt is used up.
    Hold(Held),
    /// The pass is over, and was in vain: an attempt.
    End,
}

/// One job's pass over the ladder.
#[derive(Clone, Copy, Debug)]
pub struct Ladder {
    first: Tier,
    may_leave: bool,
    /// Overloaded calls to the first model.
    overloads: u32,
    /// Where it stands after it has left.
    left: Option<Downgrade>,
    /// The first model's refusal, if that is why it left.
    refusal: Option<Held>,
    /// When the fallback, which refused as well, may have room.
    elsewhere: Option<Duration>,
    /// How long it has waited in place for a slot.
    waited: Duration,
}

impl Ladder {
    /// A pass of a job of `priority`, whose kind and request allow the fallback or not.
    #[must_use]
    pub const fn new(priority: Priority, allows_fallback: bool) -> Self {
        let (first, may_leave) = match priority {
            Priority::High => (Tier::Primary, false),
            Priority::Medium => (Tier::Primary, allows_fallback),
            Priority::Low if allows_fallback => (Tier::Fallback, false),
            Priority::Low => (Tier::Primary, false),
        };
        Self { first, may_leave, overloads: 0, left: None, refusal: None, elsewhere: None, waited: Duration::ZERO }
    }

    /// The model that a pass begins with.
    #[must_use]
    pub const fn first(&self) -> Tier {
        self.first
    }

    /// The first rung, also once more.
    #[must_use]
    pub const fn start(&self) -> Move {
        Move::Ask { tier: self.first, may_leave: self.may_leave }
    }

    /// The gate of the model that was asked for refuses.
    pub fn refused(&mut self, held: Held) -> Move {
        if self.left.is_some() {
            return self.come_back(Some(held.after));
        }
        if !(held.leave && self.may_leave) {
            return self.wait_here(held).map_or_else(|| self.hold(held), Move::Pause);
        }
        self.refusal = Some(held);
        self.leave(match held.reason {
            HoldReason::Degraded => Downgrade::Degraded,
            HoldReason::BreakerOpen | HoldReason::ProbeInFlight => Downgrade::BreakerOpen,
            HoldReason::InFlightLimit => Downgrade::LongWait,
            HoldReason::Overridden => Downgrade::Overridden,
            _ => Downgrade::Overloaded,
        })
    }

    /// A call failed. `verdict` is the gate's.
    pub fn failed(&mut self, class: Class, verdict: &Verdict, rng: &mut fastrand::Rng) -> Move {
        if class != Class::Overload {
            return verdict.held.map_or(Move::End, Move::Hold);
        }
        if self.left.is_some() {
            return self.come_back(verdict.held.map(|held| held.after));
        }
        self.overloads += 1;
        if let Some(held) = verdict.held {
            // The gate has closed over it.
            self.refusal = Some(held);
            return if self.may_leave { self.leave(Downgrade::Overloaded) } else { self.hold(held) };
        }
        let pause = Duration::from_millis(rng.u64(PAUSE_MS));
        let asked_for_more = verdict.wait.is_some_and(|wait| wait.floor > pause);
        if self.overloads == 1 && !asked_for_more && !(verdict.leave && self.may_leave) {
            return Move::Pause(pause);
        }
        if self.may_leave { self.leave(Downgrade::Overloaded) } else { Move::End }
    }

    /// The model that was called refuses the request itself. If that was the fallback, the primary is asked, and no other.
    pub const fn unfit(&mut self) -> Option<Move> {
        if self.downgrade().is_none() {
            return None;
        }
        (self.first, self.left, self.may_leave, self.refusal) = (Tier::Primary, None, false, None);
        Some(self.start())
    }

    /// Why the job's call goes to the fallback.
    #[must_use]
    pub const fn downgrade(&self) -> Option<Downgrade> {
        match self.first {
            Tier::Primary => self.left,
            Tier::Fallback => Some(Downgrade::LowPriority),
        }
    }

    const fn leave(&mut self, why: Downgrade) -> Move {
        self.left = Some(why);
        Move::Ask { tier: Tier::Fallback, may_leave: true }
    }

    /// The fallback is of no help. Who met a shut gate waits there, in its order; who met overloads has had his pass.
    fn come_back(&mut self, elsewhere: Option<Duration>) -> Move {
        self.elsewhere = elsewhere;
        match self.refusal.take() {
            Some(held) if held.ticket.is_some() => self.hold(held),
            Some(_) => {
                (self.left, self.may_leave) = (None, false);
                self.start()
            }
            None => Move::End,
        }
    }

    /// A wait for a slot that is shorter than the queue's shortest is made in place.
    fn wait_here(&mut self, held: Held) -> Option<Duration> {
        let wait = held.after.max(LEAST_WAIT);
        let is_for_a_slot = matches!(held.reason, HoldReason::InFlightLimit | HoldReason::Pacing);
        if !is_for_a_slot || wait >= QUEUE_WAIT || self.waited + wait > MOST_WAIT {
            return None;
        }
        self.waited += wait;
        Some(wait)
    }

    fn hold(&self, held: Held) -> Move {
        Move::Hold(Held { after: self.elsewhere.map_or(held.after, |other| held.after.min(other)), ..held })
    }
}

/// The short wait before the primary is tried once more (A2, A5).
const PAUSE_MS: std::ops::RangeInclusive<u64> = 1_500..=2_500;
/// What a queue does not make worse: its delay is in whole seconds, and its batch takes another.
const QUEUE_WAIT: Duration = Duration::from_secs(2);
/// Less is not worth asking again.
const LEAST_WAIT: Duration = Duration::from_millis(100);
/// For so long a pass waits in place, in all: others need the consumer, too.
const MOST_WAIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::backoff::{BucketName, Wait};
    use crate::policy::slots::Ticket;

    const STAY: Move = Move::Ask { tier: Tier::Primary, may_leave: false };
    const MAY_LEAVE: Move = Move::Ask { tier: Tier::Primary, may_leave: true };
    const FALLBACK: Move = Move::Ask { tier: Tier::Fallback, may_leave: true };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn refusal(reason: HoldReason, leave: bool, ticket: Option<u64>) -> Held {
        Held { leave, ticket: ticket.map(Ticket), ..Held::new(seconds(90), reason) }
    }

    fn overloaded(ladder: &mut Ladder, verdict: &Verdict) -> Move {
        ladder.failed(Class::Overload, verdict, &mut fastrand::Rng::with_seed(1))
    }

    fn waits(floor: u64) -> Verdict {
        let wait = Wait {
            bucket: BucketName::Overloaded,
            failures: 1,
            computed: seconds(3),
            floor: seconds(floor),
            wanted: seconds(3.max(floor)),
        };
        Verdict { wait: Some(wait), costs_attempt: true, ..Verdict::default() }
    }

    fn held_for(ms: u64, reason: HoldReason) -> Held {
        Held { ticket: Some(Ticket(7)), ..Held::new(Duration::from_millis(ms), reason) }
    }

    #[test]
    fn a_wait_for_a_slot_of_less_than_two_seconds_is_made_in_place_five_seconds_in_all() {
        let slot = |ms| held_for(ms, HoldReason::InFlightLimit);
        let (pause, hold) = (|ms| Move::Pause(Duration::from_millis(ms)), |ms| Move::Hold(slot(ms)));
        let mut ladder = Ladder::new(Priority::Medium, true);
        let moves = [0, 1_999, 2_000, 1_999, 903, 802, 0].map(|ms| ladder.refused(slot(ms)));
        assert_eq!(moves, [pause(100), pause(1_999), hold(2_000), pause(1_999), hold(903), pause(802), pause(100)]);
        assert_eq!(ladder.refused(slot(0)), hold(0), "five seconds");
    }

    #[test]
    fn only_a_slot_and_the_pace_are_waited_for_in_place() {
        let reasons = [
            (HoldReason::InFlightLimit, true),
            (HoldReason::Pacing, true),
            (HoldReason::BreakerOpen, false),
            (HoldReason::ProbeInFlight, false),
            (HoldReason::Overloaded, false),
            (HoldReason::RetryAfter, false),
            (HoldReason::Overridden, false),
        ];
        for (reason, in_place) in reasons {
            let next = Ladder::new(Priority::High, false).refused(held_for(200, reason));
            assert_eq!(matches!(next, Move::Pause(_)), in_place, "{reason:?}");
        }
    }

    #[test]
    fn each_priority_has_its_first_rung() {
        for (priority, fallback, first) in [
            (Priority::High, true, STAY),
            (Priority::Medium, true, MAY_LEAVE),
            (Priority::Medium, false, STAY),
            (Priority::Low, true, Move::Ask { tier: Tier::Fallback, may_leave: false }),
            (Priority::Low, false, STAY),
        ] {
            assert_eq!(Ladder::new(priority, fallback).start(), first, "{priority:?} {fallback}");
        }
    }

    #[test]
    fn an_overload_is_tried_once_more_after_1_5_to_2_5_s_and_then_the_fallback() {
        let mut ladder = Ladder::new(Priority::Medium, true);
        let Move::Pause(pause) = overloaded(&mut ladder, &waits(0)) else { panic!("no pause") };
        assert!((1_500..=2_500).contains(&pause.as_millis()));
        assert_eq!(ladder.start(), MAY_LEAVE);
        assert_eq!(overloaded(&mut ladder, &waits(0)), FALLBACK);
        assert_eq!(ladder.downgrade(), Some(Downgrade::Overloaded));
        assert_eq!(overloaded(&mut ladder, &waits(0)), Move::End, "three calls were one attempt");
    }

    #[test]
    fn who_may_not_leave_tries_twice_and_has_had_his_attempt() {
        for (priority, fallback) in [(Priority::High, true), (Priority::Medium, false), (Priority::Low, true)] {
            let mut ladder = Ladder::new(priority, fallback);
            assert!(matches!(overloaded(&mut ladder, &waits(0)), Move::Pause(_)), "{priority:?}");
            assert_eq!(overloaded(&mut ladder, &waits(0)), Move::End, "{priority:?}");
        }
    }

    #[test]
    fn in_a_peak_hour_one_overload_is_enough_to_leave_and_a_longer_wait_asked_for_is_no_second_try() {
        let mut ladder = Ladder::new(Priority::Medium, true);
        assert_eq!(overloaded(&mut ladder, &Verdict { leave: true, ..waits(0) }), FALLBACK);
        let mut ladder = Ladder::new(Priority::High, true);
        assert!(matches!(overloaded(&mut ladder, &Verdict { leave: true, ..waits(0) }), Move::Pause(_)));
        let mut ladder = Ladder::new(Priority::Medium, true);
        assert_eq!(overloaded(&mut ladder, &waits(5)), FALLBACK);
        let mut ladder = Ladder::new(Priority::High, true);
        assert_eq!(overloaded(&mut ladder, &waits(5)), Move::End);
        let Move::Pause(pause) = overloaded(&mut Ladder::new(Priority::High, true), &waits(0)) else { panic!("none") };
        for (more_ms, tries) in [(0, true), (1, false)] {
            let mut verdict = waits(0);
            verdict.wait.as_mut().unwrap().floor = pause + Duration::from_millis(more_ms);
            let next = overloaded(&mut Ladder::new(Priority::High, true), &verdict);
            assert_eq!(next, if tries { Move::Pause(pause) } else { Move::End }, "{more_ms} ms longer than the pause");
        }
    }

    #[test]
    fn only_overload_climbs_and_a_rate_limit_never_leaves() {
        for class in [Class::RateLimit, Class::Transient, Class::SpendCap] {
            let mut ladder = Ladder::new(Priority::Medium, true);
            let mut rng = fastrand::Rng::with_seed(1);
            assert_eq!(ladder.failed(class, &waits(0), &mut rng), Move::End, "{class:?}");
        }
        let mut ladder = Ladder::new(Priority::Medium, true);
        let paced = refusal(HoldReason::RetryAfter, false, Some(1));
        assert_eq!(ladder.refused(paced), Move::Hold(paced));
    }

    #[test]
    fn a_refusal_that_says_so_is_left_for_the_fallback_and_the_reason_kept() {
        for (reason, why) in [
            (HoldReason::BreakerOpen, Downgrade::BreakerOpen),
            (HoldReason::ProbeInFlight, Downgrade::BreakerOpen),
            (HoldReason::Degraded, Downgrade::Degraded),
            (HoldReason::InFlightLimit, Downgrade::LongWait),
            (HoldReason::Overloaded, Downgrade::Overloaded),
            (HoldReason::Overridden, Downgrade::Overridden),
        ] {
            let mut ladder = Ladder::new(Priority::Medium, true);
            assert_eq!(ladder.refused(refusal(reason, true, None)), FALLBACK);
            assert_eq!(ladder.downgrade(), Some(why));
        }
    }

    #[test]
    fn refused_everywhere_it_waits_in_the_primarys_order_and_no_longer_than_for_the_fallback() {
        let mut ladder = Ladder::new(Priority::Medium, true);
        ladder.refused(refusal(HoldReason::BreakerOpen, true, None));
        let there = Held { after: seconds(20), ..refusal(HoldReason::BreakerOpen, true, None) };
        assert_eq!(ladder.refused(there), STAY);
        assert_eq!(ladder.downgrade(), None);
        let here = refusal(HoldReason::BreakerOpen, false, Some(7));
        assert_eq!(ladder.refused(here), Move::Hold(Held { after: seconds(20), ..here }));
    }

    #[test]
    fn a_request_that_the_fallback_refuses_goes_back_to_the_primary_for_good() {
        for priority in [Priority::Medium, Priority::Low] {
            let mut ladder = Ladder::new(priority, true);
            ladder.refused(refusal(HoldReason::BreakerOpen, true, None));
            assert_eq!(ladder.unfit(), Some(STAY), "{priority:?}");
            assert_eq!((ladder.downgrade(), ladder.unfit()), (None, None));
        }
        assert_eq!(Ladder::new(Priority::Medium, true).unfit(), None);
    }

    #[test]
    fn a_gate_that_closes_over_the_call_holds_it_in_its_place_unless_the_fallback_answers() {
        let held = refusal(HoldReason::BreakerOpen, false, Some(3));
        let shut = Verdict { held: Some(held), costs_attempt: false, ..waits(0) };
        let mut ladder = Ladder::new(Priority::High, true);
        assert_eq!(overloaded(&mut ladder, &shut), Move::Hold(held));
        let mut ladder = Ladder::new(Priority::Medium, true);
        assert_eq!(overloaded(&mut ladder, &shut), FALLBACK);
        assert_eq!(overloaded(&mut ladder, &waits(0)), Move::Hold(held), "the fallback is overloaded, too");
    }
}
