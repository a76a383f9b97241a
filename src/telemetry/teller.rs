//! What an isolate has counted, until the Meter object has it.
//!
//! What is logged is added up. A telling makes a **batch** of it, with a number; what is logged meanwhile is for the next one. A batch
//! that was not taken, or of which nobody has said that it was (the answer was lost, or came too late), is told again with the next
//! telling, unchanged and under its number: the object may have added it up already, and would know by that. So nothing is ever
//! added to a batch that has been told once: the object would pass over it with the rest.
//!
//! Tellings run side by side, as the things do that an isolate does. A telling whose end nobody sees, since the request that it was
//! behind was cut off, counts as failed after half a minute.
//!
//! **Who does not answer is left alone for a while**: 5 s after the first failure, doubling up to a minute. A batch of jobs waits for its
//! telling, and must not do so each time. Who reads the figures insists.
//!
//! **Bounds.** Of at most 2,000 series there are at most eight batches and what is new; beyond that, and after half a day, it is let go.
//!
//! The same counts are [`points`](Teller::points) for Analytics Engine. An invocation may write only so many of those: what is left
//! goes with the next, up to the same bound.

use std::time::Duration;

use super::metric::Counts;
use super::{Batch, Event, Had, News};
use crate::policy::time::Timestamp;

/// What there is to be told.
#[derive(Clone, Debug, Default)]
pub struct Teller {
    name: String,
    origin: Option<String>,
    /// What no telling has had yet.
    fresh: Counts,
    told: Vec<Told>,
    last: u32,
    points: Counts,
    /// How many tellings in a row have failed, and when the last of them did.
    failures: u32,
    failed_at: Timestamp,
}

/// A batch of which nobody has said that it was taken.
#[derive(Clone, Debug)]
struct Told {
    batch: Batch,
    made_at: Timestamp,
    /// Since when it has been on its way, if it is.
    sent_at: Option<Timestamp>,
}

impl Told {
    fn is_on_its_way(&self, now: Timestamp) -> bool {
        self.sent_at.is_some_and(|at| at <= now && now < at + LOST_AFTER)
    }
}

impl Teller {
    /// Adds an event.
    pub fn note(&mut self, event: &Event<'_>) {
        if self.fresh.0.len() < MAX_SERIES {
            self.fresh.note(event);
        }
    }

    /// Notes what the deployment is called by.
    pub fn note_origin(&mut self, origin: &str) {
        if self.origin.is_none() {
            self.origin = Some(origin.to_owned());
        }
    }

    /// Whether a telling has something to do now.
    #[must_use]
    pub fn has_news(&self, now: Timestamp) -> bool {
        let is_due = !self.fresh.0.is_empty() || self.told.iter().any(|it| !it.is_on_its_way(now));
        !self.points.0.is_empty() || (is_due && !self.is_quiet(now))
    }

    /// What is to be told now, if anything is; how that ends is told by [`Teller::end`]. `random` draws the isolate's name.
    pub fn begin(&mut self, now: Timestamp, insists: bool, random: impl FnOnce() -> Option<u128>) -> Option<News> {
        if self.is_quiet(now) && !insists {
            return None;
        }
        if self.name.is_empty() {
            self.name = format!("{:032x}", random()?);
        }
        // The object remembers for longer which there have been.
        self.told.retain(|it| now < it.made_at + GIVE_UP);
        self.make_batch(now);
        let due = self.told.iter_mut().filter(|it| !it.is_on_its_way(now));
        let batches: Vec<_> = due
            .map(|it| {
                it.sent_at = Some(now);
                it.batch.clone()
            })
            .collect();
        (!batches.is_empty()).then(|| News { from: self.name.clone(), batches, origin: self.origin.clone() })
    }

    /// A telling is over: whether it is known to have been taken.
    pub fn end(&mut self, news: &News, is_taken: bool, now: Timestamp) {
        let was_in_it = |it: &Told| news.batches.iter().any(|batch| batch.number == it.batch.number);
        if is_taken {
            self.told.retain(|it| !was_in_it(it));
            self.failures = 0;
            return;
        }
        self.told.iter_mut().filter(|it| was_in_it(it)).for_each(|it| it.sent_at = None);
        // Those that ran beside it fail by the same.
        if !self.is_quiet(now) {
            self.failures = self.failures.saturating_add(1);
            self.failed_at = now;
        }
    }

    /// Up to `most` series that no data point has been written for yet, with how much was added to them.
    pub fn points(&mut self, most: usize) -> Counts {
        let mut left = std::mem::take(&mut self.points).0;
        let mut points = Counts::default();
        let mut room = most;
        left.retain(|series, value| {
            let is_taken = room > 0;
            if is_taken {
                room -= 1;
                points.0.insert(series.clone(), *value);
            }
            !is_taken
        });
        self.points = Counts(left);
        points
    }

    /// There is nobody who takes data points.
    pub fn forget_points(&mut self) {
        self.points = Counts::default();
    }

    fn make_batch(&mut self, now: Timestamp) {
        let number = self.last.saturating_add(1);
        let is_within_reach =
            self.told.first().is_none_or(|oldest| number.saturating_sub(oldest.batch.number) <= Had::REACH);
        if self.fresh.0.is_empty() || self.told.len() >= MAX_BATCHES || !is_within_reach {
            return;
        }
        let counts = std::mem::take(&mut self.fresh);
        if self.points.0.len() < MAX_SERIES {
            self.points.merge(counts.clone());
        }
        self.last = number;
        self.told.push(Told { batch: Batch { number, counts }, made_at: now, sent_at: None });
    }

    fn is_quiet(&self, now: Timestamp) -> bool {
        let doublings = self.failures.saturating_sub(1).min(10);
        let pause = FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE);
        self.failures > 0 && self.failed_at <= now && now < self.failed_at + pause
    }
}

/// The most series of a batch; one event may add some to it yet.
pub const MAX_SERIES: usize = 2_000;
const MAX_BATCHES: usize = 8;
const LOST_AFTER: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const GIVE_UP: Duration = Duration::from_secs(12 * 3_600);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metric::Metric;
    use proptest::prelude::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + millis)
    }

    fn note(teller: &mut Teller, model: &str) {
        teller.note(&Event::JobHeld { job: "job_1", model, reason: "pacing", wait_ms: 0 });
    }

    fn begin(teller: &mut Teller, millis: u64) -> Option<News> {
        teller.begin(at(millis), false, || Some(7))
    }

    fn insist(teller: &mut Teller, millis: u64) -> Option<News> {
        teller.begin(at(millis), true, || Some(7))
    }

    /// The numbers of the batches, and how much is in each.
    fn batches(news: &News) -> Vec<(u32, u64)> {
        news.batches.iter().map(|batch| (batch.number, batch.counts.all(Metric::Holds))).collect()
    }

    #[test]
    fn what_was_not_taken_is_told_again_as_it_was_and_what_is_new_beside_it() {
        let mut teller = Teller::default();
        assert_eq!(begin(&mut teller, 0), None);
        note(&mut teller, "m");
        teller.note_origin("https://a");
        let first = begin(&mut teller, 0).unwrap();
        assert_eq!((batches(&first), first.origin.as_deref()), (vec![(1, 1)], Some("https://a")));
        note(&mut teller, "m");
        teller.end(&first, false, at(10));
        note(&mut teller, "m");
        let second = insist(&mut teller, 20).unwrap();
        assert_eq!((batches(&second), &second.from), (vec![(1, 1), (2, 2)], &first.from));
        teller.end(&second, true, at(30));
        assert_eq!((insist(&mut teller, 40), teller.has_news(at(40))), (None, true), "points are left");
        teller.points(usize::MAX);
        assert!(!teller.has_news(at(40)));
    }

    #[test]
    fn what_is_on_its_way_is_not_told_beside_itself_unless_its_end_was_never_seen() {
        let mut teller = Teller::default();
        note(&mut teller, "m");
        begin(&mut teller, 0).unwrap();
        note(&mut teller, "m");
        assert_eq!(batches(&begin(&mut teller, 5).unwrap()), [(2, 1)]);
        assert_eq!(begin(&mut teller, 29_999), None);
        assert_eq!(batches(&begin(&mut teller, 30_000).unwrap()), [(1, 1)]);
        // A clock that was put back.
        assert_eq!(
            teller.begin(Timestamp::default(), false, || None).map(|it| batches(&it)),
            Some(vec![(1, 1), (2, 1)])
        );
    }

    #[test]
    fn who_does_not_answer_is_left_alone_for_longer_and_longer_but_not_by_who_insists() {
        let mut teller = Teller::default();
        note(&mut teller, "m");
        teller.points(usize::MAX);
        let mut now = 0;
        for pause in [5_000, 10_000, 20_000, 40_000, 60_000, 60_000] {
            let news = begin(&mut teller, now).unwrap();
            teller.end(&news, false, at(now));
            teller.points(usize::MAX);
            // One that ran beside it fails by the same.
            teller.end(&news, false, at(now + 1));
            assert_eq!((begin(&mut teller, now + pause - 1), teller.has_news(at(now + pause - 1))), (None, false));
            now += pause;
            assert!(teller.has_news(at(now)));
        }
        let news = insist(&mut teller, now + 1).unwrap();
        teller.end(&news, true, at(now + 1));
        note(&mut teller, "m");
        assert!(begin(&mut teller, now + 2).is_some(), "it answers again");
    }

    #[test]
    fn a_meter_that_never_answers_does_not_fill_the_memory() {
        let mut teller = Teller::default();
        for n in 0..40_000 {
            note(&mut teller, &format!("m-{n}"));
            if n % 100 == 0
                && let Some(news) = insist(&mut teller, n)
            {
                assert!(news.batches.len() <= MAX_BATCHES);
                teller.end(&news, false, at(n));
            }
        }
        let series = |counts: &Counts| counts.0.len();
        let all = teller.told.iter().map(|it| series(&it.batch.counts)).sum::<usize>();
        assert!(all <= MAX_BATCHES * MAX_SERIES && series(&teller.fresh) == MAX_SERIES, "{all}");
        assert!(series(&teller.points) < 2 * MAX_SERIES);
        // Half a day later the first ones are let go, and the object need not remember them any longer.
        let news = insist(&mut teller, 12 * 3_600_000 + 1).unwrap();
        assert!(news.batches.iter().all(|batch| batch.number > 1), "{:?}", batches(&news));
    }

    #[test]
    fn without_a_name_nothing_is_told_and_nothing_lost() {
        let mut teller = Teller::default();
        note(&mut teller, "m");
        assert_eq!(teller.begin(at(0), true, || None), None);
        assert_eq!(batches(&begin(&mut teller, 0).unwrap()), [(1, 1)]);
    }

    #[test]
    fn points_are_written_so_many_at_a_time_and_each_of_them_once() {
        let mut teller = Teller::default();
        (0..250).for_each(|n| note(&mut teller, &format!("m-{n}")));
        let news = begin(&mut teller, 0).unwrap();
        teller.end(&news, false, at(0));
        insist(&mut teller, 1);
        let sizes = [0; 4].map(|_| teller.points(100).0.len());
        assert_eq!(sizes, [100, 100, 50, 0]);
    }

    proptest! {
        /// Tellings side by side, whose answers are lost or come late, to an object that counts by the numbers.
        #[test]
        fn every_event_is_counted_once(steps in prop::collection::vec((0_u8..5, any::<prop::sample::Index>()), 0..200)) {
            let (mut teller, mut had, mut sum, mut noted) = (Teller::default(), Had::default(), 0, 0);
            let mut running: Vec<News> = Vec::new();
            let mut take = |news: &News| {
                for batch in &news.batches {
                    sum += if had.is_new(batch.number) { batch.counts.all(Metric::Holds) } else { 0 };
                }
            };
            for (step, which) in steps {
                let one = (!running.is_empty()).then(|| which.index(running.len()));
                match (step, one) {
                    (0, _) => {
                        note(&mut teller, "m");
                        noted += 1;
                    }
                    (1, _) => running.extend(insist(&mut teller, 0)),
                    (2, Some(one)) => {
                        let news = running.remove(one);
                        take(&news);
                        teller.end(&news, true, at(0));
                    }
                    // Taken, and the answer is lost.
                    (3, Some(one)) => {
                        let news = running.remove(one);
                        take(&news);
                        teller.end(&news, false, at(0));
                    }
                    // Too late: it will be taken after it was given up.
                    (4, Some(one)) => teller.end(&running[one], false, at(0)),
                    _ => {}
                }
            }
            for news in running {
                take(&news);
                teller.end(&news, true, at(0));
            }
            // What could be no batch yet is one as soon as there is room.
            while let Some(news) = insist(&mut teller, 0) {
                take(&news);
                teller.end(&news, true, at(0));
            }
            prop_assert_eq!(sum, noted);
        }
    }
}
