//! What others see of the gate without moving it.

use std::time::Duration;

use super::Gate;
use crate::json;
use crate::policy::answer::HoldReason;
use crate::policy::breaker::Stand;
use crate::policy::forced::Side;
use crate::policy::hold::HoldStand;
use crate::policy::priority::Priority;
use crate::policy::settings::GateSettings;
use crate::policy::status::{GateStatus, PastStatus};
use crate::policy::time::{Timestamp, millis, whole_seconds};
use crate::policy::transition::Past;

/// How the gate stands, for a caller who cannot wait to ask it: a person waits for the call (A2). It is good for a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// What a call would meet.
    pub outlook: Outlook,
    /// Whether the model is degraded, and who may have another should.
    pub is_degraded: bool,
    /// Whether one overload is enough to leave the model: it is degraded, or the hour is a bad one.
    pub one_is_enough: bool,
}

json::object!(View { outlook, is_degraded, one_is_enough });

/// What a call would meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// It would be let through.
    Free,
    /// Ask for a permit: one is let through, to see; or there is little room, and whoever calls has to be counted.
    Ask,
    /// It would be held.
    Refused {
        /// Why.
        reason: HoldReason,
        /// For how long, in milliseconds.
        after_ms: u64,
    },
}

json::choice!(Outlook {
    "free" => Free,
    "ask" => Ask,
    "refused" => Refused { reason, after_ms },
});

impl Gate {
    /// How a call of this priority would fare now. Nothing is granted, and nobody gets a place.
    pub fn view(&mut self, priority: Priority, now: Timestamp, settings: &GateSettings) -> View {
        self.expire(now, settings);
        let (hold, stand) = self.stands(now, settings);
        let refused = |(after, reason)| Outlook::Refused { reason, after_ms: millis(after) };
        let outlook = match self.refusal(hold, stand, now) {
            Some(refusal) => refused(refusal),
            None if hold == HoldStand::MayTry || stand == Stand::MayProbe => Outlook::Ask,
            None => match self.press(priority, now, settings) {
                Some(refusal) => refused(refusal),
                None if self.is_tight(now) => Outlook::Ask,
                None => Outlook::Free,
            },
        };
        let is_degraded =
            self.forced_to() != Some(Side::Closed) && self.degraded.leave(&settings.degraded, now).is_some();
        View { outlook, is_degraded, one_is_enough: self.one_is_enough(now, settings) }
    }

    /// Whether calls that nobody counts would take the room of those that are: jobs wait for it, or the limit has just been cut.
    /// Without this the limit, which sees jobs only, finds what the others leave, and they leave now more and now less
    /// (`calls-mixed` and `calls-outage-46m` in the storm: a drain took nearly twice as long).
    fn is_tight(&self, now: Timestamp) -> bool {
        self.slots.count(now) > 0 || self.in_flight.was_cut(now)
    }

    /// What would press a call that holds and breaker let through.
    fn press(&mut self, priority: Priority, now: Timestamp, settings: &GateSettings) -> Option<(Duration, HoldReason)> {
        if let Err(after) = self.pacer.stand(&settings.pace, now) {
            return Some((after, HoldReason::Pacing));
        }
        let waits = |priority| self.slots.waits(priority, now);
        let is_full = self.in_flight.is_full(priority, waits, now, &settings.pace);
        is_full.then(|| (self.in_flight.slot(&settings.pace), HoldReason::InFlightLimit))
    }

    /// The breaker's moves since `before` was its last one, so that whoever has asked the gate something can tell them.
    pub fn moves_since(&self, before: Option<Past>) -> impl Iterator<Item = Past> {
        let new = self.breaker.history().rev().take_while(|past| Some(**past) != before).count();
        let known = self.breaker.history().count().saturating_sub(new);
        self.breaker.history().skip(known).copied()
    }

    /// The breaker's last move, so that whoever has asked the gate something can tell whether it moved.
    #[must_use]
    pub fn last_move(&self) -> Option<Past> {
        self.breaker.history().next_back().copied()
    }

    /// How long the operator's order is in force yet, if there is one.
    #[must_use]
    pub fn order_left(&self, now: Timestamp) -> Option<Duration> {
        self.forced.as_ref().map(|forced| forced.left(now))
    }

    /// The gate as the operator sees it.
    #[must_use]
    pub fn status(&self, now: Timestamp, settings: &GateSettings) -> GateStatus {
        GateStatus {
            state: self.breaker.state(),
            since_seconds: (self.breaker.since() != Timestamp::default())
                .then(|| now.since(self.breaker.since()).as_secs()),
            next_check_seconds: match self.forced.as_ref().filter(|forced| forced.state() == Side::Open) {
                Some(forced) => Some(whole_seconds(forced.left(now))),
                None => self.breaker.cooldown(now).map(whole_seconds),
            },
            probe_in_flight: self.breaker.probe().is_some(),
            in_flight: self.in_flight.permits.live(now),
            in_flight_limit: self.in_flight.limit(&settings.pace),
            held: self.slots.count(now),
            degraded: self.degraded.is_degraded(&settings.degraded),
            holds: self.holds.status(now),
            window: self.breaker.counts(now),
            buckets: self.buckets.status(now),
            pace: self.pacer.status(&settings.pace, now),
            hours: self.hours.status(now),
            forced: self.forced.as_ref().and_then(|forced| forced.status(now)),
            history: self
                .breaker
                .history()
                .rev()
                .map(|past| PastStatus { seconds_ago: now.since(past.at).as_secs(), transition: past.transition })
                .collect(),
        }
    }
}
