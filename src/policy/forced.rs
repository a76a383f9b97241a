//! What the operator orders against all evidence (B11): for a while a gate is forced open, and nobody calls its model, or
//! forced closed, and neither breaker nor holds refuse anybody.
//!
//! **It always ends by itself**, after what was asked for and [`LONGEST_ORDER`] at most: an override that is forgotten would
//! be an outage of our own making. What is left never rises, whatever the clock does. An end that was a mere moment would come
//! an hour late if the clock were set back by an hour, and one that restarted could double a week. So the end moves back with
//! the clock: by `ends_at` and `seen`, the last moment looked at, what is left is always `ends_at − seen`. A clock that jumps
//! ahead ends it early; that is the side to err on.
//!
//! **A forced-open gate is asked again every [`RECHECK`]**, however far the end is. Its jobs sleep in queues, and nothing can
//! wake a sleeper: the wait that was announced is how long an early end goes unnoticed. Two minutes are a little more than a
//! cooldown (36 to 45 s), so an override costs fewer deliveries than the outage it is used in, and an operator who ends it
//! sees jobs go on within minutes. Jobs that wait behind a spend cap are asked as often, since it is an override that ends it. 60 s would double a backlog's deliveries to save one of them; at 300 s one would wonder whether the end has worked.

use std::time::Duration;

use super::time::Timestamp;
use crate::json;

/// What the gate is forced to be; Nygard's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Refusing: the fallback is used where it may be, everybody else waits.
    Open,
    /// Serving: neither breaker nor holds refuse.
    Closed,
}

json::names!(Side { Open => "open", Closed => "closed" });

/// What the operator asks for. Durations only: the asker's clock is not the gate's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// What to force the gate to.
    pub state: Side,
    /// For how long; over [`LONGEST_ORDER`] is cut to it.
    pub lasts: Duration,
    /// Why, for the operator's colleagues. Kept and logged as it is; its length is bounded where it comes in.
    pub note: String,
    /// Who. The same.
    pub author: String,
}

json::object!(Order { state, lasts, note, author });

/// An order that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forced {
    state: Side,
    note: String,
    author: String,
    ends_at: Timestamp,
    seen: Timestamp,
}

json::object!(Forced { state, note, author, ends_at, seen });

impl Forced {
    /// The order, in force from now on.
    #[must_use]
    pub fn new(order: Order, now: Timestamp) -> Self {
        let Order { state, lasts, note, author } = order;
        Self { state, note, author, ends_at: now + lasts.min(LONGEST_ORDER), seen: now }
    }

    /// What the gate is forced to.
    #[must_use]
    pub const fn state(&self) -> Side {
        self.state
    }

    /// When it ends, or ended, by the clock that was looked at last.
    #[must_use]
    pub const fn ends_at(&self) -> Timestamp {
        self.ends_at
    }

    /// Looks at the clock. A clock that was set back takes the end with it.
    pub fn look(&mut self, now: Timestamp) {
        self.ends_at = self.ends_at - self.seen.since(now);
        self.seen = now;
    }

    /// How long it is in force yet; zero once it is over.
    #[must_use]
    pub fn left(&self, now: Timestamp) -> Duration {
        self.ends_at.after(now.max(self.seen))
    }

    /// How long a job that was refused sleeps at least.
    #[must_use]
    pub fn recheck(&self, now: Timestamp) -> Duration {
        self.left(now).min(RECHECK)
    }

    /// As the operator sees it; `None` once it is over.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> Option<ForcedStatus> {
        let left = self.left(now);
        (!left.is_zero()).then(|| ForcedStatus {
            state: self.state,
            author: self.author.clone(),
            note: self.note.clone(),
            seconds_left: super::time::whole_seconds(left),
        })
    }
}

/// An override as the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForcedStatus {
    /// What the gate is forced to.
    pub state: Side,
    /// Who asked for it.
    pub author: String,
    /// Why.
    pub note: String,
    /// Until it ends by itself, in whole seconds, at least 1.
    pub seconds_left: u64,
}

json::output!(ForcedStatus { state, author, note, seconds_left });

/// No override lasts longer: seven days, as the longest deadline of a job.
pub const LONGEST_ORDER: Duration = Duration::from_secs(7 * 86_400);

/// The longest that a job sleeps because of an override before it asks again, its place in the row apart.
pub const RECHECK: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + seconds * 1000)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn forced(lasts: Duration) -> Forced {
        Forced::new(Order { state: Side::Open, lasts, note: "Why.".into(), author: "ada".into() }, at(0))
    }

    #[test]
    fn it_ends_exactly_when_it_was_asked_to() {
        let forced = forced(seconds(600));
        for (now, left) in [(0, 600), (1, 599), (599, 1), (600, 0), (601, 0)] {
            assert_eq!(forced.left(at(now)), seconds(left), "at {now}");
            assert_eq!(forced.status(at(now)).map(|status| status.seconds_left), Some(left).filter(|left| *left > 0));
        }
        assert_eq!(forced.left(at(599) + Duration::from_millis(999)), Duration::from_millis(1));
    }

    #[test]
    fn seven_days_are_the_most() {
        assert_eq!(forced(seconds(7 * 86_400)).left(at(0)), LONGEST_ORDER);
        assert_eq!(forced(Duration::MAX).left(at(0)), LONGEST_ORDER);
    }

    #[test]
    fn an_order_of_no_time_is_over_at_once() {
        assert_eq!(forced(Duration::ZERO).status(at(0)), None);
    }

    #[test]
    fn a_clock_that_is_set_back_takes_the_end_with_it() {
        let mut forced = forced(seconds(600));
        forced.look(at(100));
        assert_eq!(forced.left(Timestamp::default()), seconds(500), "before it is looked at, too");
        for (now, left) in [(0, 500), (50, 450), (10, 450), (400, 60), (460, 0)] {
            forced.look(at(now));
            assert_eq!(forced.left(at(now)), seconds(left), "at {now}");
        }
        forced.look(at(0));
        assert_eq!(forced.left(at(0)), Duration::ZERO, "what is over stays over");
    }

    #[test]
    fn jobs_ask_again_after_two_minutes_at_the_latest_and_not_after_the_end() {
        let forced = forced(seconds(600));
        for (now, wait) in [(0, 120), (480, 120), (481, 119), (599, 1)] {
            assert_eq!(forced.recheck(at(now)), seconds(wait), "at {now}");
        }
    }
}
