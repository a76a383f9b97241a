//! What an isolate has to tell the Meter object: how much of what, and the few events that are shown one by one.

use std::collections::VecDeque;

use super::Event;
use super::metric::Counts;
use crate::json;

/// What has happened since it was told last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// How much of what.
    pub counts: Counts,
    /// Moves of gates and orders of the operator, as log lines, in order.
    pub events: VecDeque<String>,
    /// The deployment's own address, as somebody has called it.
    pub origin: Option<String>,
}

json::object!(News { counts, events, origin });

impl News {
    /// Adds an event.
    pub fn note(&mut self, event: &Event<'_>) {
        self.counts.note(event);
        if matches!(event, Event::GateTransition { .. } | Event::GateOverridden { .. }) {
            self.events.push_back(event.line());
            self.bound();
        }
    }

    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.0.iter().next().is_none() && self.events.is_empty()
    }

    /// Takes back what could not be told: it is older than what has come since. A Meter that never answers must not fill the
    /// isolate's memory, so that beyond a bound the counts are let go.
    pub fn put_back(&mut self, mut news: Self) {
        if news.counts.0.iter().count() <= MAX_SERIES {
            self.counts.merge(news.counts);
        }
        news.events.append(&mut self.events);
        self.events = news.events;
        self.origin = self.origin.take().or(news.origin);
        self.bound();
    }

    fn bound(&mut self) {
        while self.events.len() > MAX_EVENTS {
            self.events.pop_front();
        }
    }
}

const MAX_SERIES: usize = 2_000;
const MAX_EVENTS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metric::Metric;

    fn overridden(note: &str) -> News {
        let mut news = News::default();
        news.note(&Event::GateOverridden { model: "m", state: "open", lasts_ms: 1, author: "ada", note });
        news
    }

    #[test]
    fn what_could_not_be_told_is_told_with_the_rest_and_in_order() {
        let mut news = overridden("second");
        news.put_back(overridden("first"));
        assert_eq!(news.counts.all(Metric::Overrides), 2);
        let notes: Vec<_> = news.events.iter().map(|line| line.contains("first")).collect();
        assert_eq!(notes, [true, false]);
    }

    #[test]
    fn a_meter_that_never_answers_does_not_fill_the_memory() {
        let mut news = News::default();
        for at in 0..10_000 {
            let mut next = News::default();
            next.note(&Event::JobHeld { job: "job_1", model: &format!("m-{at}"), reason: "pacing", wait_ms: 0 });
            next.put_back(news);
            news = next;
            news.put_back(overridden("x"));
        }
        assert!(news.counts.0.iter().count() <= MAX_SERIES + 2 && news.events.len() <= MAX_EVENTS);
    }
}
