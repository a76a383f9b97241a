//! Whether fewer calls at once would be refused less: the one thing that a refusal does not say.
//!
//! An upstream that is full refuses what is too much; one in a brown-out refuses at random, and fewer calls only mean fewer
//! answers. What tells them apart is how many others were being answered meanwhile: where it is full, always about as many as
//! it bears; in a brown-out, any number. A fifth of the refusals with less than three fifths of the most that were answered
//! lately is a brown-out, and the limit stays as it is.
//!
//! At the limit, and there alone, both look the same. So it is tried out: while more than a twentieth of the calls is refused
//! with the limit in use, the limit is eased by a tenth at a time, and each time the share of refusals is compared with the one
//! before.
//!
//! | after a step | |
//! | --- | --- |
//! | at most 2 % refused | half a step back |
//! | at most 5 % | stay there |
//! | at least three tenths fewer than before | that helped: one step more, if it is still too many |
//! | no fewer, twice in a row | it is a brown-out: take it all back, and try no more for five minutes |
//!
//! While the limit is eased it does not rise otherwise.
//!
//! A step is judged over a hundred calls, or twice as many as the limit if that is more: shares of fewer are mostly chance.

use std::time::Duration;

use super::time::Timestamp;
use crate::json;

/// What has been tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Easing {
    answered: u32,
    refused: u32,
    /// Twentieths taken off the limit.
    steps: u32,
    /// The share of refusals before the last step, in thousandths.
    before: Option<u32>,
    /// Steps in a row that did not help; begins anew where there is none before.
    in_vain: u32,
    not_before: Timestamp,
    /// The last refusals, and those of them that came while few were being answered.
    refusals: u32,
    scattered: u32,
}

json::object!(default Easing { answered, refused, steps, before, in_vain, not_before, refusals, scattered });

impl Easing {
    /// What is left of `limit`.
    #[must_use]
    pub const fn ease(&self, limit: u32) -> u32 {
        let eased = limit - limit * self.steps / 20;
        if eased == 0 { 1 } else { eased }
    }

    /// The limit of which `eased` would be left.
    #[must_use]
    pub const fn undo(&self, eased: u32) -> u32 {
        eased.saturating_mul(20) / (20 - self.steps)
    }

    /// A call has been refused while so many others were being answered, of the `most` lately. True if it is a brown-out.
    pub fn scatter(&mut self, answered: u32, most: u32) -> bool {
        if self.refusals >= REMEMBERED {
            (self.refusals, self.scattered) = (self.refusals / 2, self.scattered / 2);
        }
        self.refusals += 1;
        self.scattered += u32::from(answered.saturating_mul(5) < most.saturating_mul(3));
        let is_brown_out = self.refusals >= REMEMBERED / 4 && self.scattered * 5 >= self.refusals;
        if is_brown_out {
            (self.steps, self.before) = (0, None);
        }
        is_brown_out
    }

    /// A call has come to content, or has been refused, while the limit was in use.
    pub fn note(&mut self, refused: bool, limit: u32, now: Timestamp) {
        self.not_before = self.not_before.min(now + PAUSE);
        self.answered += u32::from(!refused);
        self.refused += u32::from(refused);
        let calls = self.answered + self.refused;
        if calls < limit.saturating_mul(2).max(ENOUGH) {
            return;
        }
        let share = self.refused * 1_000 / calls;
        (self.answered, self.refused) = (0, 0);
        self.judge(share, now);
    }

    /// Whether it has taken anything off the limit.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.steps > 0
    }

    /// The limit has been found anew.
    pub fn forget(&mut self) {
        *self = Self { not_before: self.not_before, ..Self::default() };
    }

    fn judge(&mut self, share: u32, now: Timestamp) {
        if share <= TOO_MANY || now < self.not_before {
            let back = u32::from(share <= FEW);
            *self = Self { steps: self.steps.saturating_sub(back), before: None, ..*self };
            return;
        }
        let helped = self.before.is_none_or(|before| share * 10 <= before * 7);
        self.in_vain = if helped { 0 } else { self.in_vain + 1 };
        if self.in_vain >= 2 {
            *self = Self { not_before: now + PAUSE, ..Self::default() };
            return;
        }
        self.steps = (self.steps + 2).min(MOST_STEPS);
        self.before = Some(share);
    }
}

const ENOUGH: u32 = 100;
const REMEMBERED: u32 = 64;
/// A twentieth, in thousandths.
const TOO_MANY: u32 = 50;
const FEW: u32 = 20;
const MOST_STEPS: u32 = 10;
const PAUSE: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + seconds * 1000)
    }

    /// A window in which so many of a hundred calls are refused, at a limit of fifty; the limit afterwards.
    fn window(easing: &mut Easing, refused: u32, now: Timestamp) -> u32 {
        (0..100).for_each(|call| easing.note(call < refused, 50, now));
        easing.ease(50)
    }

    #[test]
    fn it_eases_while_that_helps_stays_where_few_are_refused_and_comes_back_when_hardly_any_is() {
        let mut easing = Easing::default();
        let limits: Vec<_> =
            [3, 40, 20, 9, 5, 4, 2, 0].into_iter().map(|refused| window(&mut easing, refused, at(0))).collect();
        assert_eq!(limits, [50, 45, 40, 35, 35, 35, 38, 40]);
        assert!(easing.is_on());
    }

    #[test]
    fn where_easing_is_of_no_help_it_takes_everything_back_and_tries_no_more_for_five_minutes() {
        let mut easing = Easing::default();
        let limits: Vec<_> = [40, 41, 39].into_iter().map(|refused| window(&mut easing, refused, at(0))).collect();
        assert_eq!(limits, [45, 40, 50]);
        assert_eq!(window(&mut easing, 40, at(299)), 50);
        assert_eq!(window(&mut easing, 40, at(300)), 45);
    }

    #[test]
    fn a_step_is_judged_over_a_hundred_calls_or_twice_the_limit() {
        for (limit, calls) in [(1, 100), (50, 100), (51, 102), (200, 400)] {
            let mut easing = Easing::default();
            assert_eq!(
                (1..1_000).find(|_| {
                    easing.note(true, limit, at(0));
                    easing.is_on()
                }),
                Some(calls),
                "{limit}"
            );
        }
    }

    #[test]
    fn half_of_the_limit_is_always_left_and_no_less_than_one() {
        let mut easing = Easing::default();
        for refused in [90, 60, 40, 28, 19, 13, 9] {
            window(&mut easing, refused, at(0));
        }
        assert_eq!((easing.ease(50), easing.ease(1), easing.ease(0)), (25, 1, 1));
        assert_eq!(easing.undo(25), 50);
    }

    #[test]
    fn refusals_while_few_are_being_answered_are_a_brown_out_and_those_at_the_most_are_not() {
        let mut full = Easing::default();
        window(&mut full, 40, at(0));
        assert!((0..200).all(|_| !full.scatter(18, 20)));
        assert_eq!(full.ease(50), 45, "what was tried stays");
        let mut brown_out = Easing::default();
        window(&mut brown_out, 40, at(0));
        let told: Vec<_> =
            (0..40).map(|refusal| brown_out.scatter(if refusal % 3 == 0 { 11 } else { 20 }, 20)).collect();
        assert_eq!(told.iter().position(|told| *told), Some(15), "not before sixteen refusals");
        assert_eq!(brown_out.ease(50), 50, "and what was tried is taken back");
        assert!((0..300).map(|_| brown_out.scatter(18, 20)).last() == Some(false), "and it is forgotten");
        let mut long = Easing::default();
        let told = (0..500).map(|refusal| long.scatter(if refusal % 3 == 0 { 11 } else { 20 }, 20));
        assert!(told.skip(15).all(|told| told), "but not while it lasts");
        assert!((0..100).map(|_| long.scatter(20, 20)).last() == Some(false), "however long that was");
        assert!((0..200).all(|_| !full.scatter(12, 20)), "three fifths are not few");
    }

    #[test]
    fn a_step_is_compared_with_the_one_right_before_it_alone() {
        let mut easing = Easing::default();
        let limits: Vec<_> =
            [40, 4, 38, 38, 4, 38].into_iter().map(|refused| window(&mut easing, refused, at(0))).collect();
        assert_eq!(limits, [45, 45, 40, 35, 35, 30]);
        assert_eq!([38, 38].map(|refused| window(&mut easing, refused, at(0))), [25, 50]);
    }

    #[test]
    fn a_limit_that_is_found_anew_is_whole_and_the_pause_goes_on() {
        let mut easing = Easing::default();
        for refused in 40..=41 {
            window(&mut easing, refused, at(0));
        }
        easing.forget();
        assert_eq!(easing.ease(50), 50);
        for refused in 40..=42 {
            window(&mut easing, refused, at(0));
        }
        easing.forget();
        assert_eq!([299, 300].map(|seconds| window(&mut easing, 40, at(seconds))), [50, 45]);
    }

    #[test]
    fn a_clock_that_ran_back_pauses_no_longer_than_five_minutes() {
        let mut easing = Easing::default();
        for seconds in [100_000, 100_000, 100_000, 0] {
            window(&mut easing, 40, at(seconds));
        }
        assert_eq!(window(&mut easing, 40, at(300)), 45);
    }
}
