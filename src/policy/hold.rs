//! Holding everyone, because the upstream said so: a Retry-After on a 429 or 529, or the account's spend cap.
//!
//! | from | on | to |
//! | --- | --- | --- |
//! | Free | a refusal | Until |
//! | Until | a later deadline; an earlier one changes nothing | Until |
//! | Until, past, as long as was asked | somebody asks | Free |
//! | Until, past, but less than was asked | somebody asks: that call is the try | Trying |
//! | Trying | first content of the try | Free |
//! | Trying | a refusal, of whomever | Until |
//! | Trying | the try ends in any other way, or its lease does | Until, past: the next one tries |
//!
//! **A Retry-After** holds the gate for 300 s at most, whatever it says: one absurd header must not stop a model for a day.
//! (The job that got it obeys it in full.) Once the time that was asked for has come, the upstream takes calls again by its own
//! word, and the order in which the held wake is care enough. After a hold that was cut short nobody knows: one leased call finds
//! out, the others are held until it has; only first content proves that it is over.
//!
//! One call's try after *every* Retry-After would be more careful, and too slow: in a 40 % brown-out whose 529s say "5 s" the
//! calls go through one by one, and the breaker sees failures in a row in what is a mixture (200 jobs, simulated: open for
//! 17–23 % of the time instead of 2–11 %).
//!
//! **A spend cap** says no time at all (some never clear): one call tries every `spend_cap_retry_seconds`.

use std::time::Duration;

use super::answer::{HoldReason, PermitId};
use super::time::Timestamp;
use crate::json;

/// One reason to hold everyone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// Nobody is held.
    #[default]
    Free,
    /// Everybody is.
    Until {
        /// Until then.
        at: Timestamp,
        /// Whether one call has to try whether it is over by then.
        unsure: bool,
    },
    /// Everybody is, while this call tries.
    Trying(PermitId),
}

json::choice!(Hold {
    "free" => Free,
    "until" => Until { at, unsure },
    "trying" => Trying(permit),
});

/// All of them. What a 429 asks for and what a 529 asks for are kept apart: overload is a reason to leave for another model,
/// the own rate is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    spend_cap: Hold,
    retry_after: Hold,
    overloaded: Hold,
    /// Whether a job has failed for the spend cap since a call was answered last: the next that meets it is held. True as long
    /// as the cap holds, and kept when an order lifts it.
    cap_is_known: bool,
}

json::object!(default Holds { spend_cap, retry_after, overloaded, cap_is_known });

/// What the holds say to a call that wants to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldStand {
    /// Nothing.
    Free,
    /// This one may try.
    MayTry,
    /// One is trying.
    Trying(HoldReason),
    /// Not before that.
    Wait(Duration, HoldReason),
}

/// The longest that a Retry-After holds the gate.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

impl Hold {
    /// Holds for `wait` from now, unless a longer hold is on already. `longest` also bounds what a clock that ran back makes
    /// of a deadline, here and in `stand`.
    fn refuse(&mut self, wait: Duration, longest: Duration, unsure: bool, now: Timestamp) {
        let hold = (now + wait.min(longest), unsure);
        let (at, unsure) = match *self {
            Self::Until { at, unsure } => hold.max((at.min(now + longest), unsure)),
            Self::Trying(_) => (hold.0, true),
            Self::Free => hold,
        };
        *self = Self::Until { at, unsure };
    }

    fn stand(&mut self, longest: Duration, reason: HoldReason, now: Timestamp) -> HoldStand {
        match self {
            Self::Free => HoldStand::Free,
            Self::Trying(_) => HoldStand::Trying(reason),
            Self::Until { at, unsure } => {
                *at = (*at).min(now + longest);
                match at.after(now) {
                    Duration::ZERO if *unsure => HoldStand::MayTry,
                    Duration::ZERO => HoldStand::Free,
                    left => HoldStand::Wait(left, reason),
                }
            }
        }
    }

    fn begin_try(&mut self, permit: PermitId) {
        if matches!(self, Self::Until { unsure: true, .. }) {
            *self = Self::Trying(permit);
        }
    }

    fn content(&mut self, permit: PermitId) {
        if *self == Self::Trying(permit) {
            *self = Self::Free;
        }
    }

    fn free(&mut self, permit: PermitId, now: Timestamp) {
        if *self == Self::Trying(permit) {
            *self = Self::Until { at: now, unsure: true };
        }
    }
}

impl Holds {
    /// A 429 asked everyone to wait.
    pub fn retry_after(&mut self, wait: Duration, now: Timestamp) {
        self.retry_after.refuse(wait, RETRY_AFTER_MAX, wait > RETRY_AFTER_MAX, now);
    }

    /// A 529 asked everyone to wait.
    pub fn overloaded(&mut self, wait: Duration, now: Timestamp) {
        self.overloaded.refuse(wait, RETRY_AFTER_MAX, wait > RETRY_AFTER_MAX, now);
    }

    /// The spend cap was met. True if that was known already: then the job is held on, not failed.
    pub fn spend_cap(&mut self, retry: Duration, now: Timestamp) -> bool {
        self.spend_cap.refuse(retry, retry, true, now);
        std::mem::replace(&mut self.cap_is_known, true)
    }

    /// The operator wants nobody held. Whoever orders that a minute before the cap is raised does not make another job fail for it.
    pub fn lift(&mut self) {
        *self = Self { cap_is_known: self.cap_is_known, ..Self::default() };
    }

    /// What to say to a call that wants to start. The longest wait wins, a wait over a try, a try over nothing.
    pub fn stand(&mut self, spend_cap_retry: Duration, now: Timestamp) -> HoldStand {
        let stands = [
            self.spend_cap.stand(spend_cap_retry, HoldReason::SpendCap, now),
            self.retry_after.stand(RETRY_AFTER_MAX, HoldReason::RetryAfter, now),
            self.overloaded.stand(RETRY_AFTER_MAX, HoldReason::Overloaded, now),
        ];
        let weight = |stand: &HoldStand| match stand {
            HoldStand::Free => (0, Duration::ZERO),
            HoldStand::MayTry => (1, Duration::ZERO),
            HoldStand::Trying(_) => (2, Duration::ZERO),
            HoldStand::Wait(left, _) => (3, *left),
        };
        let heavier = |a, b| if weight(&b) > weight(&a) { b } else { a };
        stands.into_iter().fold(HoldStand::Free, heavier)
    }

    /// The call that heard `MayTry` starts with this permit.
    pub fn begin_try(&mut self, permit: PermitId) {
        self.all().for_each(|hold| hold.begin_try(permit));
    }

    /// Whether this permit is trying.
    #[must_use]
    pub fn is_try(&self, permit: PermitId) -> bool {
        [self.spend_cap, self.retry_after, self.overloaded].contains(&Hold::Trying(permit))
    }

    /// First content: what it was trying is over.
    pub fn content(&mut self, permit: PermitId) {
        self.all().for_each(|hold| hold.content(permit));
        // Of a call that began before the cap was met nothing is to be learnt.
        self.cap_is_known = self.spend_cap != Hold::Free;
    }

    /// This permit decides nothing any more; if it was trying, the next one tries.
    pub fn free(&mut self, permit: PermitId, now: Timestamp) {
        self.all().for_each(|hold| hold.free(permit, now));
    }

    /// As the operator sees them: what holds, and for how long yet.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> Vec<HoldStatus> {
        [
            (HoldReason::SpendCap, self.spend_cap),
            (HoldReason::RetryAfter, self.retry_after),
            (HoldReason::Overloaded, self.overloaded),
        ]
        .into_iter()
        .filter_map(|(reason, hold)| match hold {
            Hold::Free => None,
            Hold::Until { at, unsure } => (unsure || at > now).then(|| HoldStatus {
                reason,
                trying: false,
                seconds_left: at.after(now).as_secs(),
            }),
            Hold::Trying(_) => Some(HoldStatus { reason, trying: true, seconds_left: 0 }),
        })
        .collect()
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Hold> {
        [&mut self.spend_cap, &mut self.retry_after, &mut self.overloaded].into_iter()
    }
}

/// A hold as the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldStatus {
    /// Why.
    pub reason: HoldReason,
    /// Whether one call is trying whether it is over.
    pub trying: bool,
    /// How long until one may try.
    pub seconds_left: u64,
}

json::output!(HoldStatus { reason, trying, seconds_left });

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Duration = Duration::from_secs(900);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + seconds * 1000)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    type Ask = fn(&mut Holds, Duration, Timestamp);
    const ASKS: [(Ask, HoldReason); 2] =
        [(Holds::retry_after, HoldReason::RetryAfter), (Holds::overloaded, HoldReason::Overloaded)];

    #[test]
    fn a_longer_deadline_is_never_shortened_by_a_later_shorter_one() {
        let mut holds = Holds::default();
        for (now, asked, left) in [(0, 60, 60), (1, 2, 59), (2, 58, 58), (3, 100, 100), (4, 0, 99)] {
            holds.retry_after(seconds(asked), at(now));
            assert_eq!(holds.stand(RETRY, at(now)), HoldStand::Wait(seconds(left), HoldReason::RetryAfter), "at {now}");
        }
    }

    #[test]
    fn when_the_time_asked_for_has_come_everyone_goes_but_not_if_it_was_too_long_to_hold_for() {
        for (ask, reason) in ASKS {
            for (asked, stand) in [(300, HoldStand::Free), (301, HoldStand::MayTry)] {
                let mut holds = Holds::default();
                ask(&mut holds, seconds(asked), at(0));
                assert_eq!(holds.stand(RETRY, at(299)), HoldStand::Wait(seconds(1), reason));
                assert_eq!(holds.stand(RETRY, at(300)), stand, "{reason:?} for {asked} s");
                assert_eq!(holds.status(at(300)).is_empty(), stand == HoldStand::Free);
            }
        }
    }

    #[test]
    fn the_gate_holds_300_s_at_most_then_one_call_tries_and_only_its_content_ends_it() {
        let mut holds = Holds::default();
        holds.retry_after(seconds(86_401), at(0));
        assert_eq!(holds.stand(RETRY, at(0)), HoldStand::Wait(seconds(300), HoldReason::RetryAfter));
        assert_eq!(holds.stand(RETRY, at(300)), HoldStand::MayTry);
        holds.begin_try(PermitId(1));
        assert_eq!(holds.stand(RETRY, at(300)), HoldStand::Trying(HoldReason::RetryAfter));
        holds.content(PermitId(9));
        holds.free(PermitId(9), at(301));
        assert_eq!(holds.stand(RETRY, at(301)), HoldStand::Trying(HoldReason::RetryAfter));
        holds.free(PermitId(1), at(301));
        assert_eq!(holds.stand(RETRY, at(301)), HoldStand::MayTry);
        holds.begin_try(PermitId(2));
        holds.retry_after(seconds(7), at(302));
        assert_eq!(holds.stand(RETRY, at(302)), HoldStand::Wait(seconds(7), HoldReason::RetryAfter));
        assert_eq!(holds.stand(RETRY, at(309)), HoldStand::MayTry);
        holds.begin_try(PermitId(3));
        holds.content(PermitId(3));
        assert_eq!(holds.stand(RETRY, at(310)), HoldStand::Free);
    }

    #[test]
    fn a_spend_cap_fails_who_meets_it_first_and_holds_who_is_refused_again() {
        let mut holds = Holds::default();
        assert!(!holds.spend_cap(RETRY, at(0)));
        assert_eq!(holds.stand(RETRY, at(899)), HoldStand::Wait(seconds(1), HoldReason::SpendCap));
        assert_eq!(holds.stand(RETRY, at(900)), HoldStand::MayTry);
        holds.begin_try(PermitId(1));
        assert!(holds.spend_cap(RETRY, at(901)));
        assert_eq!(holds.stand(RETRY, at(901)), HoldStand::Wait(RETRY, HoldReason::SpendCap));
        holds.begin_try(PermitId(2));
        holds.content(PermitId(2));
        assert!(!holds.spend_cap(RETRY, at(2000)));
    }

    #[test]
    fn a_call_that_began_before_the_cap_was_met_does_not_say_that_it_was_raised() {
        let mut holds = Holds::default();
        holds.spend_cap(RETRY, at(0));
        holds.content(PermitId(1));
        assert_eq!(holds.stand(RETRY, at(1)), HoldStand::Wait(seconds(899), HoldReason::SpendCap));
        holds.lift();
        assert!(holds.spend_cap(RETRY, at(2)), "one has failed for it, no other does");
    }

    #[test]
    fn of_two_holds_the_longer_counts_and_one_call_tries_both() {
        let mut holds = Holds::default();
        holds.spend_cap(seconds(10), at(0));
        holds.retry_after(seconds(400), at(0));
        for (now, expected) in [
            (5, HoldStand::Wait(seconds(295), HoldReason::RetryAfter)),
            (15, HoldStand::Wait(seconds(285), HoldReason::RetryAfter)),
            (300, HoldStand::MayTry),
        ] {
            assert_eq!(holds.stand(seconds(10), at(now)), expected);
        }
        holds.begin_try(PermitId(1));
        assert!(holds.is_try(PermitId(1)) && !holds.is_try(PermitId(2)));
        holds.content(PermitId(1));
        assert_eq!(holds, Holds::default());
    }

    #[test]
    fn of_equal_holds_the_spend_cap_is_named() {
        let mut holds = Holds::default();
        holds.retry_after(seconds(60), at(0));
        holds.spend_cap(seconds(60), at(0));
        assert_eq!(holds.stand(seconds(60), at(0)), HoldStand::Wait(seconds(60), HoldReason::SpendCap));
    }

    #[test]
    fn the_operator_sees_what_holds_and_for_how_long_yet() {
        let mut holds = Holds::default();
        holds.spend_cap(RETRY, at(0));
        holds.retry_after(seconds(60), at(0));
        holds.overloaded(seconds(400), at(0));
        let rows = |holds: &Holds, now| -> Vec<_> {
            holds.status(at(now)).into_iter().map(|row| (row.reason, row.trying, row.seconds_left)).collect()
        };
        let (cap, overloaded) = (HoldReason::SpendCap, HoldReason::Overloaded);
        for (now, expected) in [
            (0, &[(cap, false, 900), (HoldReason::RetryAfter, false, 60), (overloaded, false, 300)][..]),
            (59, &[(cap, false, 841), (HoldReason::RetryAfter, false, 1), (overloaded, false, 241)]),
            (60, &[(cap, false, 840), (overloaded, false, 240)]),
            (1000, &[(cap, false, 0), (overloaded, false, 0)]),
        ] {
            assert_eq!(rows(&holds, now), expected, "at {now}");
        }
        holds.begin_try(PermitId(1));
        assert_eq!(rows(&holds, 1000), [(cap, true, 0), (overloaded, true, 0)]);
        holds.content(PermitId(1));
        assert_eq!(rows(&holds, 1000), []);
    }

    #[test]
    fn a_clock_that_ran_back_does_not_lengthen_a_hold() {
        let mut holds = Holds::default();
        holds.retry_after(seconds(60), at(86_400));
        assert_eq!(holds.stand(RETRY, at(0)), HoldStand::Wait(seconds(300), HoldReason::RetryAfter));
        assert_eq!(holds.stand(RETRY, at(300)), HoldStand::Free);
        holds.retry_after(seconds(60), at(86_400));
        holds.retry_after(seconds(1), at(0));
        let left = HoldStand::Wait(seconds(200), HoldReason::RetryAfter);
        assert_eq!(holds.stand(RETRY, at(100)), left, "a later hold brings it back, too");
    }
}
