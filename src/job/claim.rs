//! A claim: who works on a job's turn, and for how long that is believed.
//!
//! A message may claim its own turn and no other, once nobody else is at it. The claim hands out a *fencing token*: whatever
//! an older holder reports later is void, which is what keeps a job from having two answers. The *lease* says how long the
//! holder is believed to live; a call outlasting it renews it. A lease that has run out is its holder's still while nobody
//! has claimed the turn anew: a slow consumer is better than a second call.

use std::time::Duration;

use super::record::Record;
use super::schedule::{Announcement, Timing};
use super::state::State;
use crate::json;
use crate::policy::answer::HoldReason;
use crate::policy::cause::Class;
use crate::policy::demands::Demands;
use crate::policy::kinds::WhenExhausted;
use crate::policy::presets::Preset;
use crate::policy::priority::Priority;
use crate::policy::slots::Ticket;
use crate::policy::time::{Timestamp, millis};

/// Proof of a claim; a later claim makes it void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(u64);

json::transparent!(Token);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    token: Token,
    pub(super) until: Timestamp,
}

json::object!(Lease { token, until });

impl Lease {
    /// Whether it is the one that came with `token`.
    pub(super) fn is_of(self, token: Token) -> bool {
        self.token == token
    }
}

/// The answer to a message that wants its turn.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one of them at a time, and it is taken apart at once")]
pub enum Claim {
    /// The turn is yours.
    Claimed(Claimed),
    /// The job is over: acknowledge.
    Finished,
    /// The message is for another turn: acknowledge.
    StaleTurn,
    /// Somebody is at it: acknowledge, the holder or the watchdog goes on.
    Leased,
    /// The turn has not come yet (a wait longer than a queue can delay): acknowledge, it is sent again.
    Early,
}

json::choice!(Claim {
    "claimed" => Claimed(claimed),
    "finished" => Finished,
    "stale_turn" => StaleTurn,
    "leased" => Leased,
    "early" => Early,
});

impl Claim {
    /// The stable name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Claimed(_) => "claimed",
            Self::Finished => "finished",
            Self::StaleTurn => "stale_turn",
            Self::Leased => "leased",
            Self::Early => "early",
        }
    }
}

/// What a consumer needs to know of the job it has claimed.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The fencing token.
    pub token: Token,
    /// The model asked for.
    pub model: String,
    /// The kind of job.
    pub kind: String,
    /// How urgent it is.
    pub priority: Priority,
    /// Whether only the model asked for will do.
    pub first_choice_only: bool,
    /// Whether another model may answer whatever the kind says.
    pub fallback_allowed: bool,
    /// What the request asks of a model.
    pub demands: Demands,
    /// What happens after the last attempt, if the job says so itself.
    pub when_exhausted: Option<WhenExhausted>,
    /// The backoff preset.
    pub preset: Option<Preset>,
    /// `anthropic-beta`.
    pub betas: Option<String>,
    /// `anthropic-version`, forwarded as it came.
    pub version: Option<String>,
    /// Attempts used so far.
    pub attempts: u32,
    /// Calls that count towards `max_calls` so far.
    pub counted_calls: u32,
    /// Times that it was deferred.
    pub deferrals: u32,
    /// Its place in the order of its gate.
    pub ticket: Option<Ticket>,
    /// How long ago it was submitted, in milliseconds, if it has never been called for.
    pub dwell_ms: Option<u64>,
    /// Whether anything but ourselves has kept it waiting since.
    pub held: bool,
    /// How long until the deadline, in milliseconds: durations travel between machines, instants do not.
    pub remaining_ms: u64,
    /// The wait that this claim ends (B10).
    pub waited: Option<Waited>,
}

json::object!(Claimed {
    token,
    model,
    kind,
    priority,
    first_choice_only,
    fallback_allowed = false,
    demands,
    when_exhausted,
    preset,
    betas,
    version,
    attempts,
    counted_calls,
    deferrals,
    ticket,
    dwell_ms,
    held = false,
    remaining_ms,
    waited
});

/// A wait that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// What was drawn or asked for, in milliseconds; `None` for a wait without a bucket.
    pub computed_ms: Option<u64>,
    /// What passed, in milliseconds.
    pub real_ms: u64,
}

json::object!(Waited { computed_ms, real_ms });

/// The answer to a consumer that is about to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Call.
    Go,
    /// Do not: the claim is void, or the job is over.
    Void,
}

json::names!(Begun {
    Go => "go",
    Void => "void",
});

/// The answer to a consumer that is still calling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Go on.
    Renewed,
    /// Stop: a later claim has taken over.
    Fenced,
    /// Stop: the app took the job back.
    Cancelled,
}

json::names!(Renewal {
    Renewed => "renewed",
    Fenced => "fenced",
    Cancelled => "cancelled",
});

impl Record {
    /// A message for `turn` wants to be worked on.
    pub fn claim(&mut self, turn: u64, now: Timestamp, timing: &Timing) -> Claim {
        if self.state.is_terminal() {
            return Claim::Finished;
        }
        if turn != self.turn || matches!(self.state, State::Stalled { .. }) {
            return Claim::StaleTurn;
        }
        if self.lease.is_some_and(|lease| lease.until > now) {
            return Claim::Leased;
        }
        if self.wake_at > now + EARLY_SLACK {
            self.announcement = Announcement::due(now);
            return Claim::Early;
        }
        if self.lease.is_some() {
            self.lose_holder(now);
            if self.state.is_terminal() {
                return Claim::Finished;
            }
        }
        let token = Token(self.last_token.0.saturating_add(1));
        self.last_token = token;
        self.lease = Some(Lease { token, until: now + timing.lease });
        let waited = self.history.last_mut().filter(|entry| entry.real_wait_ms.is_none()).map(|entry| {
            let real_ms = millis(now.since(entry.at));
            entry.real_wait_ms = Some(real_ms);
            Waited { computed_ms: entry.computed_wait_ms, real_ms }
        });
        if waited.is_some() {
            self.changed(now);
        }
        Claim::Claimed(Claimed {
            token,
            model: self.spec.model.clone(),
            kind: self.spec.kind.clone(),
            priority: self.spec.priority,
            first_choice_only: self.spec.first_choice_only || self.was_refused_elsewhere(),
            fallback_allowed: self.spec.fallback_allowed,
            demands: self.spec.demands.clone(),
            when_exhausted: self.spec.when_exhausted,
            preset: self.spec.preset,
            betas: self.spec.betas.clone(),
            version: self.spec.version.clone(),
            attempts: self.attempts,
            counted_calls: self.calls.saturating_sub(self.uncounted_calls),
            deferrals: self.deferrals,
            ticket: self.ticket,
            dwell_ms: (self.calls == 0).then(|| millis(now.since(self.created_at))),
            held: self.was_held(),
            remaining_ms: millis(self.deadline_at.after(now)),
            waited,
        })
    }

    /// The holder of `token` is about to call `model`. Recorded before the call is made: a call whose holder dies is
    /// still counted, so that a request that kills its consumer ends by `max_calls`.
    pub fn begin(&mut self, token: Token, model: String, now: Timestamp, timing: &Timing) -> Begun {
        match self.renew(token, now, timing) {
            // What the call before it brought, nobody has said that it came to nothing.
            Renewal::Renewed if self.leave_draft(None, now) => Begun::Void,
            Renewal::Renewed => {
                self.calls = self.calls.saturating_add(1);
                self.enter(State::Generating { model }, now);
                Begun::Go
            }
            Renewal::Fenced | Renewal::Cancelled => Begun::Void,
        }
    }

    /// The holder of `token` is still calling: its lease starts anew.
    pub fn renew(&mut self, token: Token, now: Timestamp, timing: &Timing) -> Renewal {
        if self.state == State::Cancelled {
            return Renewal::Cancelled;
        }
        match self.lease.as_mut().filter(|lease| lease.is_of(token)) {
            // A lease that has run out is renewed all the same while nobody else has claimed the turn.
            Some(lease) if !self.state.is_terminal() => {
                lease.until = now + timing.lease;
                Renewal::Renewed
            }
            _ => Renewal::Fenced,
        }
    }

    /// The holder of `token` has seen the first content.
    pub fn refine(&mut self, token: Token, now: Timestamp, timing: &Timing) -> Renewal {
        let renewal = self.renew(token, now, timing);
        if renewal == Renewal::Renewed
            && let State::Generating { model } = &self.state
        {
            self.enter(State::Refining { model: model.clone() }, now);
        }
        renewal
    }

    /// The holder is dead or cut off: what it was calling for, nobody waits for any more. The job does not step back from
    /// `refining` to `generating` under its reader's eyes, but says that it waits to be begun anew.
    pub(super) fn lose_holder(&mut self, now: Timestamp) {
        self.lease = None;
        if self.draft().is_some() && !self.leave_draft(None, now) {
            self.enter(State::Held { reason: HoldReason::DeliveryLost }, now);
        }
    }

    /// Whether another model has refused the request: it will do so again.
    fn was_refused_elsewhere(&self) -> bool {
        self.history.iter().any(|entry| entry.model != self.spec.model && entry.cause.class() == Class::Final)
    }
}

/// Messages may come a little before their time; a wait of at least this much is no accident.
const EARLY_SLACK: Duration = Duration::from_secs(2);
