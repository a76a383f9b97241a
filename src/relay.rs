//! The synchronous path, step by step: one Messages call for which a person waits (A2).
//!
//! ```text
//! start ──► Look ──on_view──► Call ──(content)──► the answer is passed through, and nothing is left to decide
//!            │ ▲  └► Ask ──►   │ on_failure
//!            │ └──on_pause── Pause ◄── once more, or a short Retry-After
//!            └─────────────────┴──────► HandOver · PassOn · Refuse
//!
//! HandOver ──on_handed_over──► Receipt
//!                    └───────► Await ──on_status──► Replay · Refuse
//!                               ▲ └──────┘
//! ```
//! No I/O happens here. It is the [`ladder`](crate::policy::ladder) of a delivery, with the same causes and the same gates; what
//! differs is that nobody may wait for long:
//! - **The gate is seen, not asked.** A view of it, a second old at most, tells whether a call would be held; only where one call
//!   has to find out whether an outage is over is a permit asked for. Calls that were made without one are told to the gate
//!   when they are over.
//! - **Where a job would be held, or would try again later, this is handed over**: it becomes a job, which the queue takes from
//!   here, unless the caller wants the error. Rate limits too, but for waits of at most two seconds.
//! - **While the operator has nothing new taken**, nothing is handed over: the error is passed on, as to a caller who wants no job.
//! - **Whatever no retry helps is passed on as it came**, and so is what fails after content: it is never made twice.
//! - **Which error it is in the end is decided here, too.** An official SDK sends a 429, a 5xx or a 529 again unless
//!   `x-should-retry: false` forbids it, and would multiply the calls that have been made for it; so each error of ours says no
//!   once a retry would only do again what was done. After a rate limit it is a 429, whatever else a 529: the app's own handling of
//!   the two is right then.

use std::time::Duration;

use crate::api::error::ErrorKind;
use crate::api::status;
use crate::api::wish::Handoff;
use crate::call::{Asked, Call, Candidates, Limits};
use crate::claude::failure::Failure;
use crate::config::Config;
use crate::job::Spec;
use crate::json;
use crate::policy::answer::{Asking, Decision, Held, HoldReason, PermitId, Verdict};
use crate::policy::backoff::{BucketName, Wait};
use crate::policy::cause::{Cause, Class};
use crate::policy::gate::{Outlook, View};
use crate::policy::ladder::{Downgrade, Ladder, Move, Tier};
use crate::policy::switches::Switches;
use crate::policy::time::{Timestamp, whole_seconds};
use crate::policy::wording::Wording;

/// What the edge does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Look how the gate of `model` stands, then [`Relay::on_view`].
    Look {
        /// The model's gate.
        model: String,
    },
    /// Ask the gate for a permit, then [`Relay::on_decision`].
    Ask {
        /// The model's gate.
        model: String,
        /// The question.
        asking: Asking,
    },
    /// Call. Once content has come the answer is passed through; before, [`Relay::on_failure`].
    Call(Call),
    /// Wait for that long, then [`Relay::on_pause`].
    Pause(Duration),
    /// Make it a job, then [`Relay::on_handed_over`].
    HandOver,
    /// Answer what the upstream answered.
    PassOn,
    /// Answer this error.
    Refuse(Refusal),
}

/// What becomes of a caller whose call has become a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Answer the job's receipt.
    Receipt,
    /// Ask the job for its status, which it may keep back for that long while nothing is new, then [`Relay::on_status`].
    Await(Duration),
    /// Answer the job's Message.
    Replay,
    /// Answer this error.
    Refuse(Refusal),
}

/// An error of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its status, and Anthropic's name for it.
    pub kind: ErrorKind,
    /// What it says.
    pub says: Says,
    /// When it may be tried again, in seconds.
    pub retry_after_seconds: Option<u64>,
    /// Whether a caller's own retries have nothing left to do.
    pub is_final: bool,
}

/// The words of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Says {
    /// For whoever reads the log.
    Sentence(String),
    /// For the user, in the user's language.
    Message(Wording),
}

/// How a call ended, as far as its caller is concerned: a stable name for logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Claude's answer was passed on.
    Answered,
    /// It became a job; how that ends, the job says.
    HandedOver,
    /// Claude's error was passed on.
    PassedOn,
    /// It was answered with an error of ours.
    Refused,
    /// Its answer broke off.
    Interrupted,
    /// Its answer was passed on though it made no sense to us.
    Unreadable,
    /// Whoever waited for it went away.
    Abandoned,
}

json::names!(Outcome {
    Answered => "answered",
    HandedOver => "handed_over",
    PassedOn => "passed_on",
    Refused => "refused",
    Interrupted => "interrupted",
    Unreadable => "unreadable",
    Abandoned => "abandoned",
});

/// Whether a user who sees an error for this cause is exposed to Claude's load or failures (A10): not by the own rate, nor by a
/// request that is wrong.
#[must_use]
pub const fn exposes(cause: Cause) -> bool {
    matches!(cause.class(), Class::Overload | Class::Transient)
}

impl Refusal {
    /// The same for an error of ours.
    #[must_use]
    pub const fn exposes(&self) -> bool {
        matches!(self.kind, ErrorKind::Overloaded | ErrorKind::Unavailable)
    }
}

/// A call's way through the synchronous path.
#[derive(Debug)]
pub struct Relay<'a> {
    config: &'a Config,
    spec: &'a Spec,
    handoff: Handoff,
    until: Timestamp,
    candidates: Candidates,
    ladder: Ladder,
    /// Whose gate was looked at last, and whether the ladder would leave it.
    at: (Tier, bool),
    one_is_enough: bool,
    /// What has been waited for the rate's sake.
    paced: Duration,
    /// Whether a call has been made again after a rate limit, and whether after a transient failure.
    was_limited: bool,
    retried: bool,
    /// Calls that were made.
    calls: u32,
    failed: Option<Failure>,
    /// Why the gate of the last model refused, if it did.
    held: Option<HoldReason>,
    /// The refusal that it was given up for, if there was one.
    shut: Option<Held>,
    /// What its error is if it is given up.
    kind: ErrorKind,
}

impl<'a> Relay<'a> {
    /// A call with the fields of `spec`, for a caller who is patient until `until`, and its first step.
    #[must_use]
    pub fn start(
        spec: &'a Spec,
        handoff: Handoff,
        config: &'a Config,
        until: Timestamp,
        now: Timestamp,
    ) -> (Self, Step) {
        let asked = Asked {
            kind: &spec.kind,
            model: &spec.model,
            priority: spec.priority,
            demands: &spec.demands,
            first_choice_only: spec.first_choice_only,
            fallback_allowed: spec.fallback_allowed,
        };
        let (candidates, ladder) = Candidates::new(asked, config);
        let mut relay = Self {
            config,
            spec,
            handoff,
            until,
            candidates,
            ladder,
            at: (Tier::Primary, false),
            one_is_enough: false,
            paced: Duration::ZERO,
            was_limited: false,
            retried: false,
            calls: 0,
            failed: None,
            held: None,
            shut: None,
            kind: ErrorKind::Overloaded,
        };
        let step = relay.follow(relay.ladder.start(), now);
        (relay, step)
    }

    /// How the gate stands; `None` if it did not say, which keeps nobody from calling.
    pub fn on_view(&mut self, view: Option<View>, now: Timestamp) -> Step {
        let Some(view) = view else { return self.call(None, false) };
        self.one_is_enough = view.one_is_enough;
        match view.outlook {
            Outlook::Free if view.is_degraded && self.at.1 => self.refused(HoldReason::Degraded, Duration::ZERO, now),
            Outlook::Free => self.call(None, false),
            Outlook::Ask => Step::Ask { model: self.model(), asking: self.asking() },
            Outlook::Refused { reason, after_ms } => self.refused(reason, Duration::from_millis(after_ms), now),
        }
    }

    /// The gate has answered; `None` if it did not.
    pub fn on_decision(&mut self, decision: Option<Decision>, now: Timestamp) -> Step {
        match decision {
            None => self.call(None, false),
            Some(Decision::Granted(permit)) => self.call(Some(permit), false),
            Some(Decision::Probe(permit)) => self.call(Some(permit), true),
            Some(Decision::NotBefore(held)) => self.refused(held.reason, held.after, now),
        }
    }

    /// The pause is over.
    pub fn on_pause(&mut self, now: Timestamp) -> Step {
        self.follow(self.ladder.start(), now)
    }

    /// The call failed before content.
    pub fn on_failure(&mut self, failure: &Failure, now: Timestamp, rng: &mut fastrand::Rng) -> Step {
        self.failed = Some(failure.clone());
        let class = failure.cause.class();
        let asked = failure.retry_after.unwrap_or_default();
        match class {
            // A smaller model that refuses a request does not fit it, whatever our table says; the one asked for may.
            Class::Final | Class::SpendCap => match self.ladder.unfit().filter(|_| class == Class::Final) {
                Some(next) => self.follow(next, now),
                None => Step::PassOn,
            },
            Class::RateLimit if failure.retry_after.is_some() && !self.was_limited && self.waits_out(asked) => {
                self.was_limited = true;
                self.follow(Move::Pause(asked.max(AT_LEAST)), now)
            }
            Class::RateLimit => self.give_up(None),
            Class::Transient if !self.retried => {
                self.retried = true;
                self.follow(Move::Pause(Duration::from_millis(rng.u64(PAUSE_MS))), now)
            }
            Class::Transient => self.give_up(None),
            Class::Overload => {
                let wait = Wait {
                    bucket: BucketName::Overloaded,
                    failures: 1,
                    computed: Duration::ZERO,
                    floor: asked,
                    wanted: asked,
                };
                let verdict = Verdict { leave: self.one_is_enough, wait: Some(wait), ..Verdict::default() };
                let next = self.ladder.failed(class, &verdict, rng);
                self.follow(next, now)
            }
        }
    }

    /// Why another model answers than the one asked for.
    #[must_use]
    pub const fn downgrade(&self) -> Option<Downgrade> {
        self.ladder.downgrade()
    }

    /// How many calls were made.
    #[must_use]
    pub const fn calls(&self) -> u32 {
        self.calls
    }

    /// Whether a caller's own retry would do again what was done here, or meet a gate that has just refused: the error that is
    /// passed on has to say so.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        self.calls > 1 || self.held.is_some()
    }

    /// Why it was given up: the name of a hold's reason, or of a cause.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        let failed = self.failed.as_ref().map(|failure| failure.cause.name());
        self.held.map(HoldReason::name).or(failed)
    }

    /// Whether its user is exposed to Claude's load if the last failure is passed on.
    #[must_use]
    pub fn exposes(&self) -> bool {
        self.failed.as_ref().is_some_and(|failure| exposes(failure.cause))
    }

    /// Nothing came that could be passed on.
    #[must_use]
    pub fn unreachable(&self) -> Refusal {
        let why = self.failed.as_ref().map_or("nothing was called", |failure| &failure.message);
        Refusal {
            kind: ErrorKind::Unavailable,
            says: Says::Sentence(why.to_owned()),
            retry_after_seconds: Some(1),
            is_final: self.is_final(),
        }
    }

    /// What becomes of the call where it would become a job, while the operator has nothing new taken: what it would if its caller
    /// wanted none. `None` if it may become one.
    pub fn instead_of_a_job(&mut self, switches: &Switches, now: Timestamp) -> Option<Step> {
        switches.drain(now)?;
        self.handoff = Handoff::Never;
        Some(self.last_step())
    }

    /// Whether it could not become a job, whatever its caller had wanted.
    #[must_use]
    pub const fn is_kept_from_a_job(&self, wanted: Handoff) -> bool {
        matches!((self.handoff, wanted), (Handoff::Never, Handoff::Wait | Handoff::Auto))
    }

    /// The job is stored.
    #[must_use]
    pub fn on_handed_over(&self, now: Timestamp) -> Next {
        if self.handoff == Handoff::Auto { Next::Receipt } else { self.wait(now) }
    }

    /// The job has said where it stands; `None`, and that is all there is to say, while it goes on.
    #[must_use]
    pub fn on_status(&self, outcome: Option<&status::Outcome<'_>>, wording: Wording, now: Timestamp) -> Next {
        let over = |kind, message: &str| {
            let says = Says::Sentence(message.to_owned());
            Next::Refuse(Refusal { kind, says, retry_after_seconds: None, is_final: true })
        };
        match outcome {
            Some(status::Outcome::Done { .. }) => Next::Replay,
            Some(status::Outcome::Failed { kind, message }) => over(ErrorKind::of(kind), message),
            Some(status::Outcome::Cancelled) => over(ErrorKind::Conflict, "the job of this call was cancelled"),
            // Its user is asked whether it may wait for hours: that is not who holds the line.
            None if wording == Wording::Stalled => self.not_yet(),
            None => self.wait(now),
        }
    }

    /// The job has said nothing in time.
    #[must_use]
    pub fn wait(&self, now: Timestamp) -> Next {
        let left = self.until.after(now);
        if left.is_zero() { self.not_yet() } else { Next::Await(left.min(LONGEST_QUESTION)) }
    }

    /// Patience is over, and the job goes on.
    fn not_yet(&self) -> Next {
        Next::Refuse(Refusal {
            kind: self.kind,
            says: Says::Message(Wording::DraftSaved),
            retry_after_seconds: None,
            is_final: true,
        })
    }

    fn refused(&mut self, reason: HoldReason, after: Duration, now: Timestamp) -> Step {
        let is_rate = matches!(reason, HoldReason::RetryAfter | HoldReason::Pacing);
        if is_rate && self.waits_out(after) {
            return self.follow(Move::Pause(after), now);
        }
        let leave = self.at.1 && reason.is_overload();
        let next = self.ladder.refused(Held { leave, ..Held::new(after, reason) });
        self.follow(next, now)
    }

    /// A wait for the rate's sake that is short enough to be waited out. There may be more than one: the gate holds a little
    /// longer than the upstream asked, and lets one call try first whether that is over.
    fn waits_out(&mut self, wait: Duration) -> bool {
        let all = self.paced + wait;
        let waits = wait <= SHORT_WAIT && all <= SHORT_WAITS;
        if waits {
            self.paced = all;
        }
        waits
    }

    fn follow(&mut self, next: Move, now: Timestamp) -> Step {
        match next {
            Move::Ask { tier, may_leave } => {
                self.at = (tier, may_leave);
                Step::Look { model: self.model() }
            }
            Move::Pause(pause) if now + pause < self.until => Step::Pause(pause),
            Move::Pause(_) | Move::End => self.give_up(None),
            Move::Hold(held) => self.give_up(Some(held)),
        }
    }

    fn give_up(&mut self, held: Option<Held>) -> Step {
        self.held = held.map(|held| held.reason);
        self.shut = held;
        self.kind = match held {
            Some(held) => kind_of(held.reason),
            None if self.failed.as_ref().is_some_and(|failure| failure.cause.class() == Class::RateLimit) => {
                ErrorKind::RateLimited
            }
            None => ErrorKind::Overloaded,
        };
        self.last_step()
    }

    fn last_step(&self) -> Step {
        match (self.handoff, self.shut) {
            (Handoff::Wait | Handoff::Auto, _) => Step::HandOver,
            (Handoff::Never, Some(held)) if self.failed.is_none() => Step::Refuse(shut(held)),
            (Handoff::Never, _) => Step::PassOn,
        }
    }

    fn call(&mut self, permit: Option<PermitId>, is_probe: bool) -> Step {
        self.calls += 1;
        let limits = Limits::new(self.config.policy.call, Duration::MAX);
        Step::Call(Call { model: self.model(), permit, asking: self.asking(), is_probe, limits })
    }

    fn asking(&self) -> Asking {
        let (priority, may_leave, again) = (self.spec.priority, self.at.1, self.calls > 0);
        Asking { priority, may_leave, again, in_passing: true, ..Asking::default() }
    }

    fn model(&self) -> String {
        self.candidates.model(self.at.0)
    }
}

/// The gate is shut, and the caller wants no job.
fn shut(Held { reason, after, .. }: Held) -> Refusal {
    Refusal {
        kind: kind_of(reason),
        says: Says::Sentence(reason.sentence().to_owned()),
        retry_after_seconds: Some(whole_seconds(after)),
        is_final: true,
    }
}

/// What a caller's own handling should take it for.
const fn kind_of(reason: HoldReason) -> ErrorKind {
    match reason {
        HoldReason::RetryAfter | HoldReason::Pacing | HoldReason::SpendCap => ErrorKind::RateLimited,
        _ => ErrorKind::Overloaded,
    }
}

/// The short wait before one more try (A2).
const PAUSE_MS: std::ops::RangeInclusive<u64> = 1_500..=2_500;
/// "At once" is not taken at its word.
const AT_LEAST: Duration = Duration::from_millis(250);
/// A Retry-After of so long is waited out.
const SHORT_WAIT: Duration = Duration::from_secs(2);
/// And so long in all.
const SHORT_WAITS: Duration = Duration::from_secs(4);
/// A Job object keeps no question open for longer.
const LONGEST_QUESTION: Duration = Duration::from_secs(60);
