//! A job's record and its steps: submitted, settled, deferred, cancelled, done again. Its claims are in `claim`.
//!
//! The record alone says what is true; queue messages are only alarm clocks. A message may claim its own *turn* and no
//! other, so that lost, late and doubled messages are all harmless; each wait is a new turn.
//!
//! Effects (sending messages, publishing, erasing) are not done here: `schedule` derives them from the record.

use std::time::Duration;

use super::claim::{Lease, Token};
use super::draft::Discarded;
use super::history::{self, Entry, Stay};
use super::id::JobId;
use super::listing::Listing;
use super::notice::Notices;
use super::schedule::{Announcement, Publication};
use super::settlement::{Ending, Hold, Retry, Settlement, Then};
use super::spec::Spec;
use super::state::{FailReason, State};
use crate::json;
use crate::policy::answer::HoldReason;
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
    /// Whether jobs waited longer than users are told to expect when its wait began.
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
    pub(super) last_token: Token,
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
            last_token: Token::default(),
            publication: Publication::Nothing,
            listing: Listing::default().news(now),
            notices: Notices::default(),
        }
    }

    /// The holder of `token` is finished with this delivery.
    pub fn settle(&mut self, token: Token, settlement: Settlement, now: Timestamp) -> Settled {
        if self.state.is_terminal() || self.lease.is_none_or(|lease| !lease.is_of(token)) {
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
            Then::Retry(Retry { cause, wait_ms, slow }) => {
                self.wait(State::Retrying { cause }, wait_ms, now);
                self.slow = slow;
            }
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

    /// Whether its user has seen an error, or half an answer, because Claude was overloaded or failed (A10). Who had been handed over
    /// and is not answered has.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        let is_answered = self.state.model_used().is_some();
        let has_met_load = self.stays.iter().any(|stay| stay.hold().is_some_and(HoldReason::is_load));
        self.state.is_failed_by_load(has_met_load)
            || (self.spec.handed_over && self.state.is_terminal() && !is_answered)
    }

    /// Whether a gate, the hour, or somebody's word has kept it waiting: not a part of our own that did not do what it should.
    pub(super) fn was_held(&self) -> bool {
        self.stays.iter().any(|stay| !stay.hold().is_some_and(HoldReason::is_ours))
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

/// A message dies after 100 deliveries that could not even reach the Job object: no hurry.
const REVIVAL_DELAY: Duration = Duration::from_secs(60);
