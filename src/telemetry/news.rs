//! What the Meter object is told: by an isolate how much of what there was; by who has news for the operator, each event by itself.
//!
//! Counts are told out of an isolate's memory, and what an isolate had that is evicted is not counted. An event that somebody has to
//! hear of is not told that way: whoever has it keeps it until the Meter object has taken it, and tells it again otherwise. By the
//! numbers the object knows what it has had.

use super::Event;
use super::metric::Counts;
use crate::json;
use crate::policy::time::Timestamp;

/// How much of what has happened since it was told last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// How much of what.
    pub counts: Counts,
    /// The deployment's own address, as somebody has called it.
    pub origin: Option<String>,
}

json::object!(News { counts, origin });

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

impl News {
    /// Adds an event.
    pub fn note(&mut self, event: &Event<'_>) {
        self.counts.note(event);
    }

    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.0.iter().next().is_none()
    }

    /// Takes back what could not be told. A Meter that never answers must not fill the isolate's memory, so that beyond a bound the
    /// counts are let go.
    pub fn put_back(&mut self, news: Self) {
        if news.counts.0.iter().count() <= MAX_SERIES {
            self.counts.merge(news.counts);
        }
        self.origin = self.origin.take().or(news.origin);
    }
}

const MAX_SERIES: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metric::Metric;

    fn held(model: &str) -> News {
        let mut news = News::default();
        news.note(&Event::JobHeld { job: "job_1", model, reason: "pacing", wait_ms: 0 });
        news
    }

    #[test]
    fn what_could_not_be_told_is_told_with_the_rest() {
        let mut news = held("m");
        news.put_back(News { origin: Some("https://a".into()), ..held("m") });
        assert_eq!((news.counts.all(Metric::Holds), news.origin.as_deref()), (2, Some("https://a")));
        assert!(!news.is_empty() && News::default().is_empty());
    }

    #[test]
    fn a_meter_that_never_answers_does_not_fill_the_memory() {
        let mut news = News::default();
        for at in 0..10_000 {
            let mut next = held(&format!("m-{at}"));
            next.put_back(news);
            news = next;
        }
        assert!(news.counts.0.iter().count() <= MAX_SERIES + 1);
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
