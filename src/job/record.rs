//! A job's record and its steps: claim, begin, renew, settle, cancel.
//!
//! The record alone says what is true; queue messages are only alarm clocks. A message may claim its own *turn* and no
//! other, so that lost, late and doubled messages are all harmless. A claim hands out a *fencing token*: whatever an older
//! holder reports later is void, which is what keeps a job from having two answers. The *lease* says how long the holder
//! is believed to live; a call outlasting it renews it.
//!
//! Effects (sending messages, publishing, erasing) are not done here: `schedule` derives them from the record.

use std::time::Duration;

use super::draft::Discarded;
use super::history::{self, Entry, Stay};
use super::id::JobId;
use super::listing::Listing;
use super::notice::Notices;
use super::schedule::{Announcement, Publication, Timing};
use super::settlement::{Ending, Hold, Settlement, Then};
use super::spec::Spec;
use super::state::{FailReason, State};
use crate::json;
use crate::policy::answer::HoldReason;
use crate::policy::cause::Class;
use crate::policy::demands::Demands;
use crate::policy::kinds::WhenExhausted;
use crate::policy::presets::Preset;
use crate::policy::priority::Priority;
use crate::policy::slots::Ticket;
use crate::policy::time::{Timestamp, millis};

/// Everything that is known of a job, but for its request and its answer, which are kept beside it, raw.
#[derive(Clone, Debug)]
pub struct Record {
    v: u32,
    /// The job's name.
    pub id: JobId,
    /// Whose job it is.
    pub client: String,
    /// What was asked for.
    pub spec: Spec,
    /// A digest of the whole submission: the same idempotency key with another one is a conflict.
    pub fingerprint: String,
    /// Where it stands.
    pub state: State,
    /// Rises with every change that a watcher can see; the status' ETag.
    pub revision: u64,
    /// Passes over the ladder that ended in a retryable failure.
    pub attempts: u32,
    /// Upstream requests.
    pub calls: u32,
    /// Those of them that do not count towards `max_calls`: overloaded probes.
    pub uncounted_calls: u32,
    /// Times that it was deferred.
    pub deferrals: u32,
    /// Its place in the order of its gate, while it is held.
    pub ticket: Option<Ticket>,
    /// When its answer should be there, if anybody can say.
    pub eta_at: Option<Timestamp>,
    /// Whether jobs waited longer than users are told to expect when it was held last.
    pub slow: bool,
    /// The job that does it again.
    pub regenerated_as: Option<JobId>,
    /// The draft that somebody has seen text of.
    pub(super) seen_draft: Option<u32>,
    /// The last draft that was seen and came to nothing.
    pub discarded: Option<Discarded>,
    /// The failed calls.
    pub history: Vec<Entry>,
    /// What it waited for otherwise.
    pub stays: Vec<Stay>,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it last changed visibly.
    pub updated_at: Timestamp,
    /// No wait goes past this.
    pub deadline_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Whether the app had its content erased.
    pub erased: bool,
    pub(super) turn: u64,
    pub(super) wake_at: Timestamp,
    pub(super) nudges: u32,
    pub(super) announcement: Announcement,
    pub(super) lease: Option<Lease>,
    last_token: Token,
    pub(super) publication: Publication,
    pub(super) listing: Listing,
    /// What its app is told.
    pub notices: Notices,
}

json::object!(Record {
    v,
    id,
    client,
    spec,
    fingerprint,
    state,
    revision,
    attempts,
    calls,
    uncounted_calls,
    deferrals = 0,
    ticket,
    eta_at,
    slow = false,
    regenerated_as,
    seen_draft,
    discarded,
    history,
    stays = Vec::new(),
    created_at,
    updated_at,
    deadline_at,
    finished_at,
    erased,
    turn,
    wake_at,
    nudges,
    announcement,
    lease,
    last_token,
    publication,
    listing = Listing::default(),
    notices = Notices::default()
});

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

/// What became of an answer to the offer to defer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeferralAnswer {
    /// It is done as it says.
    Taken,
    /// There was no such offer, or there is none any more.
    NotAsked,
}

/// The answer to a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Written.
    Stored,
    /// Not written: the claim is void, or the job is over.
    Void,
}

json::names!(Settled {
    Stored => "stored",
    Void => "void",
});

impl Record {
    /// A job as it is when it has just been submitted: turn 1 is due at once.
    #[must_use]
    pub fn new(id: JobId, client: String, spec: Spec, fingerprint: String, now: Timestamp) -> Self {
        let deadline_at = now + Duration::from_secs(spec.deadline_seconds);
        Self {
            v: VERSION,
            id,
            client,
            spec,
            fingerprint,
            state: State::Received,
            revision: 1,
            attempts: 0,
            calls: 0,
            uncounted_calls: 0,
            deferrals: 0,
            ticket: None,
            eta_at: None,
            slow: false,
            regenerated_as: None,
            seen_draft: None,
            discarded: None,
            history: Vec::new(),
            stays: Vec::new(),
            created_at: now,
            updated_at: now,
            deadline_at,
            finished_at: None,
            erased: false,
            turn: 1,
            wake_at: now,
            nudges: 0,
            announcement: Announcement::due(now),
            lease: None,
            last_token: Token(0),
            publication: Publication::Nothing,
            listing: Listing::default().news(now),
            notices: Notices::default(),
        }
    }

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
        match self.lease.as_mut().filter(|lease| lease.token == token) {
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

    /// The holder of `token` is finished with this delivery.
    pub fn settle(&mut self, token: Token, settlement: Settlement, now: Timestamp) -> Settled {
        if self.state.is_terminal() || self.lease.is_none_or(|lease| lease.token != token) {
            return Settled::Void;
        }
        self.lease = None;
        for call in settlement.failed_calls {
            self.attempts = self.attempts.saturating_add(u32::from(call.costs_attempt));
            self.uncounted_calls = self.uncounted_calls.saturating_add(u32::from(!call.costs_call));
            let entry = Entry {
                at: now - Duration::from_millis(call.ago_ms),
                model: call.model,
                cause: call.cause,
                status: call.status,
                request_id: call.request_id,
                costs_attempt: call.costs_attempt,
                computed_wait_ms: call.computed_wait_ms,
                real_wait_ms: call.real_wait_ms,
            };
            history::push(&mut self.history, entry);
        }
        let cause = self.history.last().map(|entry| entry.cause);
        if !matches!(settlement.then, Then::End(_)) && self.leave_draft(cause, now) {
            return Settled::Stored;
        }
        match settlement.then {
            Then::Retry { cause, wait_ms } => self.wait(State::Retrying { cause }, wait_ms, now),
            Then::Hold(Hold { reason, wait_ms, ticket, eta_ms, slow }) => {
                self.wait(State::Held { reason }, wait_ms, now);
                self.ticket = ticket;
                self.eta_at = eta_ms.map(|eta_ms| now + Duration::from_millis(eta_ms));
                self.slow = slow;
            }
            Then::Stall { answer_ms, resume_ms } => {
                let [until, resume_at] = [answer_ms, resume_ms].map(|ms| now + Duration::from_millis(ms));
                self.leave_order();
                self.enter(State::Stalled { until, resume_at }, now);
            }
            Then::Defer { resume_ms } => self.defer(now + Duration::from_millis(resume_ms), now),
            Then::End(Ending::Done { model_used, downgrade }) => {
                self.finish(State::Done { model_used, downgrade }, now);
            }
            Then::End(Ending::Failed { reason, cause, error_type, message }) => {
                if reason != FailReason::Interrupted {
                    self.discard(cause);
                }
                // A job that ends while it is held ends for what its last call met.
                let cause = cause.or_else(|| self.history.last().map(|entry| entry.cause));
                self.finish(State::Failed { reason, cause, error_type, message }, now);
            }
        }
        Settled::Stored
    }

    /// The user has answered the offer to defer.
    pub fn answer_deferral(&mut self, accept: bool, now: Timestamp) -> DeferralAnswer {
        match self.state {
            State::Stalled { resume_at, .. } if accept => self.defer(resume_at, now),
            State::Stalled { .. } => {
                let cause = self.history.last().map(|entry| entry.cause);
                let message = "every attempt was used up, and the offer to wait for quieter hours was declined; regenerate it to try again";
                let reason = FailReason::DeferralDeclined;
                self.finish(State::Failed { reason, cause, error_type: None, message: message.into() }, now);
            }
            // The same answer once more, or the one that silence gave.
            State::Deferred if accept => {}
            _ => return DeferralAnswer::NotAsked,
        }
        DeferralAnswer::Taken
    }

    /// Whether another model has refused the request: it will do so again.
    fn was_refused_elsewhere(&self) -> bool {
        self.history.iter().any(|entry| entry.model != self.spec.model && entry.cause.class() == Class::Final)
    }

    /// The job that does this one again: `id`, unless there is one already, other than `instead_of`. `None` if there is nothing to
    /// do better.
    pub fn regenerate(&mut self, id: JobId, instead_of: Option<&JobId>) -> Option<JobId> {
        let is_worth_it = matches!(self.state, State::Failed { .. } | State::Done { downgrade: Some(_), .. });
        if instead_of.is_some() && self.regenerated_as.as_ref() == instead_of {
            self.regenerated_as = None;
        }
        (is_worth_it && !self.erased).then(|| self.regenerated_as.get_or_insert(id).clone())
    }

    /// The app takes the job back. A finished job keeps its state and loses its content.
    pub fn cancel(&mut self, now: Timestamp) {
        if !self.state.is_terminal() {
            self.lease = None;
            self.enter(State::Cancelled, now);
            self.finished_at = Some(now);
        }
        self.erased = true;
        self.spec.metadata = None;
        // The upstream's words about a request may quote it.
        if let State::Failed { message, .. } = &mut self.state {
            message.clear();
        }
        self.publication = self.publication.withdraw(now);
        self.listing = self.listing.news(now);
        self.forget_notices();
    }

    /// Whether what is kept of its answer is only a part of one.
    #[must_use]
    pub const fn is_interrupted(&self) -> bool {
        matches!(self.state, State::Failed { reason: FailReason::Interrupted, .. })
    }

    /// Whether its user has seen an error, or half an answer, because of overload (A10). Who had been handed over and is not
    /// answered has.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        let is_answered = self.state.model_used().is_some();
        self.state.is_failed_by_load() || (self.spec.handed_over && self.state.is_terminal() && !is_answered)
    }

    /// Whether there is nothing left to show: it was finished, and then erased. A job that was cancelled still says so.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.erased && self.state != State::Cancelled
    }

    /// The turn's message has died in the queue: send it again, a while later.
    pub fn revive(&mut self, turn: u64, now: Timestamp) {
        if !self.state.is_terminal() && turn == self.turn && self.lease.is_none() {
            self.wake_at = self.wake_at.max(now + REVIVAL_DELAY);
            self.announcement = Announcement::due(now);
        }
    }

    /// How long until the job is looked at again, while it waits; `None` while it is worked on or over.
    #[must_use]
    pub fn next_check(&self, now: Timestamp) -> Option<Duration> {
        match self.state {
            State::Retrying { .. } | State::Held { .. } | State::Deferred => Some(self.wake_at.after(now)),
            State::Stalled { until, .. } => Some(until.after(now)),
            _ => None,
        }
    }

    /// The holder is dead or cut off: what it was calling for, nobody waits for any more. The job does not step back from
    /// `refining` to `generating` under its reader's eyes, but says that it waits to be begun anew.
    pub(super) fn lose_holder(&mut self, now: Timestamp) {
        self.lease = None;
        if self.draft().is_some() && !self.leave_draft(None, now) {
            self.enter(State::Held { reason: HoldReason::DeliveryLost }, now);
        }
    }

    /// The job waits until quieter hours, with fresh attempts and as much time from then on as it had at first.
    pub(super) fn defer(&mut self, resume_at: Timestamp, now: Timestamp) {
        self.deferrals = self.deferrals.saturating_add(1);
        (self.attempts, self.uncounted_calls) = (0, self.uncounted_calls.max(self.calls));
        self.deadline_at = self.deadline_at.max(resume_at + Duration::from_secs(self.spec.deadline_seconds));
        self.listing = self.listing.news(now);
        self.wait(State::Deferred, millis(resume_at.after(now)), now);
    }

    /// The deadline has passed with nobody at work.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let cause = match &self.state {
            State::Retrying { cause } => Some(*cause),
            _ => self.history.last().map(|entry| entry.cause),
        };
        let message = "the job's deadline passed before Claude could answer it; submit it again, with a longer deadline_seconds if it may wait";
        let state =
            State::Failed { reason: FailReason::DeadlineExceeded, cause, error_type: None, message: message.into() };
        self.finish(state, now);
    }

    fn wait(&mut self, state: State, wait_ms: u64, now: Timestamp) {
        self.turn = self.turn.saturating_add(1);
        self.nudges = 0;
        self.wake_at = now + Duration::from_millis(wait_ms);
        self.announcement = Announcement::due(now);
        self.leave_order();
        self.enter(state, now);
    }

    /// Its place among the held is good for its next turn only.
    fn leave_order(&mut self) {
        (self.ticket, self.eta_at, self.slow) = (None, None, false);
    }

    pub(super) fn finish(&mut self, state: State, now: Timestamp) {
        self.enter(state, now);
        self.lease = None;
        self.finished_at = Some(now);
        self.publication = Publication::due(now);
        self.listing = self.listing.news(now);
    }

    pub(super) fn enter(&mut self, state: State, now: Timestamp) {
        history::stay(&mut self.stays, state.waits_for(), now);
        self.state = state;
        self.changed(now);
        self.note(now);
    }

    /// A watcher sees something new.
    pub(super) fn changed(&mut self, now: Timestamp) {
        self.revision = self.revision.saturating_add(1);
        self.updated_at = now;
    }
}

const VERSION: u32 = 1;

/// Messages may come a little before their time; a wait of at least this much is no accident.
const EARLY_SLACK: Duration = Duration::from_secs(2);

/// A message dies after 100 deliveries that could not even reach the Job object: no hurry.
const REVIVAL_DELAY: Duration = Duration::from_secs(60);
