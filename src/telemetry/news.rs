//! What the Meter object is told: by an isolate how much of what there was; by who has news for the operator, each event by itself.
//!
//! Counts are told out of an isolate's memory (see [`teller`](super::teller)), and what an isolate had that is evicted is not counted.
//! An event that somebody has to hear of is not told that way: whoever has it keeps it until the Meter object has taken it. Both are
//! told again when nobody has said that they were taken, and by their numbers the object knows what it has had.
//!
//! The events of one sender come in their order, so that the last number says it all. Batches of counts do not: an isolate does many
//! things at once. Of its batches the object remembers the last number and which of the 32 before it there have been.

use super::metric::Counts;
use crate::json;
use crate::policy::time::Timestamp;

/// What an isolate has counted, in batches of which each is added up once, however often it is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// The isolate's, drawn by itself.
    pub from: String,
    /// By their numbers.
    pub batches: Vec<Batch>,
    /// The deployment's own address, as somebody has called it.
    pub origin: Option<String>,
}

json::object!(News { from, batches, origin });

/// What was told first by one telling. It stays as it is until it has been taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The isolate's; the next one has a greater one.
    pub number: u32,
    /// How much of what.
    pub counts: Counts,
}

json::object!(Batch { number, counts });

/// Which batches of an isolate there have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Had {
    /// The greatest number.
    pub last: u32,
    /// Of the [`Had::REACH`] numbers before it, a bit for each: the lowest is that of the number just before it.
    pub before: u32,
}

impl Had {
    /// A number that is further behind the greatest one is taken for one that there has been: nobody tells it.
    pub const REACH: u32 = u32::BITS;

    /// Whether it is new, and from now on it is not.
    pub fn is_new(&mut self, number: u32) -> bool {
        if number > self.last {
            // The last one itself goes in front of those before it.
            let shift = number - self.last;
            let with_last = (u64::from(self.before) << 1) | u64::from(self.last > 0);
            let before = with_last.checked_shl(shift - 1).unwrap_or(0) & u64::from(u32::MAX);
            *self = Self { last: number, before: u32::try_from(before).unwrap_or_default() };
            return true;
        }
        let back = self.last - number;
        let bit = if (1..=Self::REACH).contains(&back) { 1 << (back - 1) } else { 0 };
        let is_new = bit != 0 && self.before & bit == 0;
        self.before |= bit;
        is_new
    }
}

/// Events for the operator, from one who keeps them until they are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dispatch {
    /// Whose they are.
    pub from: String,
    /// In order.
    pub noted: Vec<Noted>,
}

json::object!(Dispatch { from, noted });

/// One event of theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// Theirs; the next one has a greater one.
    pub number: u64,
    /// When it happened.
    pub at: Timestamp,
    /// The log line.
    pub line: String,
}

json::object!(Noted { number, at, line });

impl Dispatch {
    /// Those that are new to who has had all up to `last`.
    pub fn since(&self, last: u64) -> impl Iterator<Item = &Noted> {
        self.noted.iter().filter(move |it| it.number > last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_batch_is_new_once_in_whatever_order_they_come(numbers in prop::collection::vec(1_u32..=32, 0..80)) {
            let (mut had, mut all) = (Had::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(had.is_new(number), all.insert(number), "{} of {:?}", number, had);
            }
        }
    }

    #[test]
    fn what_is_further_back_than_is_remembered_counts_as_had() {
        let mut had = Had::default();
        for (number, is_new) in [
            (0, false),
            (40, true),
            (8, true),
            (8, false),
            (7, false),
            (41, true),
            (8, false),
            (9, true),
            (u32::MAX, true),
        ] {
            assert_eq!(had.is_new(number), is_new, "{number}");
        }
        assert_eq!(had, Had { last: u32::MAX, before: 0 });
    }

    #[test]
    fn what_is_told_again_is_not_new() {
        let noted = |number| Noted { number, ..Noted::default() };
        let dispatch = Dispatch { from: "gate m".into(), noted: [3, 4, 5].map(noted).into() };
        for (last, new) in [(0, 3), (3, 2), (5, 0), (9, 0)] {
            assert_eq!(dispatch.since(last).count(), new, "{last}");
        }
    }
}
