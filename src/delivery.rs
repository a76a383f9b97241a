//! One delivery of one job, step by step: claimed → asks a gate → calls → … → settles.
//!
//! ```text
//! start ──► AskGate ──on_decision──► Call ──on_answer───► Settle
//!    │         │  ▲                            │ on_failure
//!    │         │  ├───────────on_pause── Pause ◄┤ once more
//!    │         │  └─────────────────────────────┤ the fallback
//!    └─────────┴────────────────────────────────┴─────► Settle
//! ```
//! No I/O happens here: the edge does what a [`Step`] says and comes back with what happened. The simulator drives exactly
//! the same steps.
//!
//! One delivery is one pass over the [`ladder`](crate::policy::ladder), which says which model is next. What the steps here
//! decide (design, "Attempts, calls, waits"): whether a failure ends the job, how long it waits otherwise, what happens when its
//! attempts are used up, and that no wait goes past the deadline (B14). What a failure means for everyone else is the gate's
//! business; its verdict says whether it was this job's own. A pass is one attempt at most, however many calls it made, and
//! none if it ends in being held.

use std::time::Duration;

use crate::call::{Asked, Candidates};
pub use crate::call::{Call, Limits};
use crate::claude::failure::Failure;
use crate::config::{Config, Policy};
use crate::job::draft::INTERRUPTED;
use crate::job::settlement::FailedCall;
use crate::job::{Claimed, Ending, FailReason, Hold, Retry, Settlement, Then};
use crate::policy::answer::{Asking, Decision, Ended, Held, HoldReason, PermitId, Report, Verdict};
use crate::policy::backoff::{Buckets, Wait};
use crate::policy::cause::{Cause, Class};
use crate::policy::deadline;
use crate::policy::kinds::WhenExhausted;
use crate::policy::ladder::{Ladder, Move, Tier};
use crate::policy::priority::Priority;
use crate::policy::rate_limits::RateLimits;
use crate::policy::settings::BackoffSettings;
use crate::policy::slots::Ticket;
use crate::policy::switches::Switches;
use crate::policy::time::{Timestamp, millis, whole_seconds};
use crate::policy::unguarded::Unguarded;

/// What the edge does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask the gate of `model` for a permit, then [`Delivery::on_decision`].
    AskGate {
        /// The model's gate.
        model: String,
        /// The question.
        asking: Asking,
    },
    /// Call, then report to the gate, then [`Delivery::on_answer`] or [`Delivery::on_failure`].
    Call(Call),
    /// Wait for that long, then [`Delivery::on_pause`].
    Pause(Duration),
    /// Settle the job: the delivery is over.
    Settle(Settlement),
}

/// What became of a question to the gate that it did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateTrouble {
    /// It has too much to do; asking again makes it worse.
    Overloaded,
    /// Nothing, twice.
    Silent,
}

/// A job's way through one delivery.
#[derive(Debug)]
pub struct Delivery<'a> {
    claimed: &'a Claimed,
    config: &'a Config,
    candidates: Candidates,
    /// When the invocation began: its budget is counted from here.
    began_at: Timestamp,
    claimed_at: Timestamp,
    ladder: Ladder,
    /// Which gate was asked last, and with what.
    asked: (Tier, Asking),
    /// The job's place in the order of the first model's gate.
    ticket: Option<Ticket>,
    call: Option<Call>,
    failed_calls: Vec<FailedCall>,
    /// When each of them had failed.
    failed_at: Vec<Timestamp>,
    last_failure: Option<Failure>,
    /// The wait after the last failure of the model that the next pass begins with, whether jobs wait long for it these minutes,
    /// and whether it was this job's own.
    wait: Option<Wait>,
    slow: bool,
    costs_attempt: bool,
}

impl<'a> Delivery<'a> {
    /// A claimed job, in an invocation that began at `began_at`, and its first step.
    #[must_use]
    pub fn start(
        claimed: &'a Claimed,
        config: &'a Config,
        switches: &Switches,
        began_at: Timestamp,
        now: Timestamp,
        rng: &mut fastrand::Rng,
    ) -> (Self, Step) {
        let asked = Asked {
            kind: &claimed.kind,
            model: &claimed.model,
            priority: claimed.priority,
            demands: &claimed.demands,
            first_choice_only: claimed.first_choice_only,
            fallback_allowed: claimed.fallback_allowed,
        };
        let (candidates, ladder) = Candidates::new(asked, config);
        let mut delivery = Self {
            claimed,
            config,
            candidates,
            began_at,
            claimed_at: now,
            ladder,
            asked: (Tier::Primary, Asking::default()),
            ticket: claimed.ticket,
            call: None,
            failed_calls: Vec::new(),
            failed_at: Vec::new(),
            last_failure: None,
            wait: None,
            slow: false,
            costs_attempt: false,
        };
        let step = if delivery.remaining(now).is_zero() {
            delivery.deadline_exceeded(None, now)
        } else if claimed.counted_calls >= delivery.max_calls() {
            delivery.exhausted(now, rng)
        } else if let Some(pause) = switches.pause(claimed.priority, now) {
            // What it has of a place in an order it keeps: it may be back before its turn.
            let held = Held::new(pause.recheck(now, rng), HoldReason::Paused);
            delivery.hold(Held { ticket: claimed.ticket, ..held }, now)
        } else if let Some(after) = delivery.off_peak(now, rng) {
            delivery.hold(Held::new(after, HoldReason::OffPeak), now)
        } else {
            delivery.follow(delivery.ladder.start(), now, rng)
        };
        (delivery, step)
    }

    /// The backoff that this job's failures wait by.
    #[must_use]
    pub fn backoff(&self) -> BackoffSettings {
        let own = &self.policy().backoff;
        self.claimed.preset.map_or_else(|| own.clone(), |preset| preset.backoff(own))
    }

    /// The gate has answered.
    pub fn on_decision(&mut self, decision: Decision, now: Timestamp, rng: &mut fastrand::Rng) -> Step {
        match decision {
            Decision::Granted(permit) => self.call(Some(permit), false, now),
            Decision::Probe(permit) => self.call(Some(permit), true, now),
            Decision::NotBefore(held) => {
                if self.asked.0 == self.ladder.first() {
                    self.ticket = held.ticket.or(self.ticket);
                }
                let next = self.ladder.refused(held);
                self.follow(next, now, rng)
            }
        }
    }

    /// The gate has not answered. An overloaded one is left alone for a while; a silent one must not stop the work, so
    /// the invocation calls without a permit, now and then.
    pub fn on_gate_trouble(
        &mut self,
        trouble: GateTrouble,
        unguarded: &mut Unguarded,
        now: Timestamp,
        rng: &mut fastrand::Rng,
    ) -> Step {
        let pause = Duration::from_millis(rng.u64(GATE_PAUSE_MS));
        let after = match trouble {
            GateTrouble::Overloaded => pause,
            GateTrouble::Silent => match unguarded.take(now) {
                Ok(()) => return self.call(None, false, now),
                Err(wait) => wait.min(pause),
            },
        };
        self.hold(Held::new(after, HoldReason::GateUnavailable), now)
    }

    /// The pause is over.
    pub fn on_pause(&mut self, now: Timestamp, rng: &mut fastrand::Rng) -> Step {
        self.follow(self.ladder.start(), now, rng)
    }

    /// What to tell the gate of a call.
    #[must_use]
    pub fn ended(&self, call: &Call, report: Report, limits: RateLimits) -> Ended {
        Ended { permit: call.permit, asking: call.asking, report, limits, backoff: self.backoff() }
    }

    /// The verdict on a report that the gate did not take: each failure costs an attempt, and waits as a first one.
    #[must_use]
    pub fn verdict_without_gate(&self, report: Report, now: Timestamp, rng: &mut fastrand::Rng) -> Verdict {
        let Report::Failure { cause, retry_after, .. } = report else { return Verdict::default() };
        let wait = Buckets::default().fail(cause.class(), &self.backoff(), retry_after, now, rng);
        Verdict { wait, costs_attempt: wait.is_some(), ..Verdict::default() }
    }

    /// The call was answered.
    #[must_use]
    pub fn on_answer(&mut self, now: Timestamp) -> Step {
        let model_used = self.call.as_ref().map_or_else(|| self.claimed.model.clone(), |call| call.model.clone());
        let downgrade = (model_used != self.claimed.model).then(|| self.ladder.downgrade()).flatten();
        self.settle(Then::End(Ending::Done { model_used, downgrade }), now)
    }

    /// The call failed, after content or before it, and the gate has given its verdict.
    pub fn on_failure(
        &mut self,
        failure: &Failure,
        verdict: &Verdict,
        now: Timestamp,
        rng: &mut fastrand::Rng,
    ) -> Step {
        let class = failure.cause.class();
        self.note(failure, verdict, now);
        if verdict.held.is_none() && verdict.wait.is_none() {
            // A smaller model that refuses a request does not fit it, whatever our table says; the one asked for may.
            return match self.ladder.unfit().filter(|_| class == Class::Final) {
                Some(next) => self.follow(next, now, rng),
                None => self.refused(failure, now),
            };
        }
        if self.wait.is_none() || self.ladder.downgrade().is_none() {
            (self.wait, self.slow) = (verdict.wait, verdict.slow);
        }
        self.costs_attempt |= verdict.costs_attempt;
        let next = self.ladder.failed(class, verdict, rng);
        let is_bound = !matches!(next, Move::Hold(_)) && self.counted_calls() >= self.max_calls();
        self.follow(if is_bound { Move::End } else { next }, now, rng)
    }

    /// The call broke off after somebody had seen text, and the job is not to begin again.
    pub fn on_interruption(&mut self, failure: &Failure, verdict: &Verdict, now: Timestamp) -> Step {
        self.note(failure, verdict, now);
        self.fail(FailReason::Interrupted, INTERRUPTED.to_owned(), now)
    }

    fn note(&mut self, failure: &Failure, verdict: &Verdict, now: Timestamp) {
        let call = self.call.take();
        let is_probe = call.as_ref().is_some_and(|call| call.is_probe);
        self.failed_calls.push(FailedCall {
            model: call.map_or_else(|| self.claimed.model.clone(), |call| call.model),
            cause: failure.cause,
            status: failure.status,
            request_id: failure.request_id.clone(),
            costs_attempt: false,
            costs_call: !(is_probe && failure.cause.class() == Class::Overload),
            computed_wait_ms: verdict.wait.map(|wait| millis(wait.wanted)),
            real_wait_ms: None,
            ago_ms: 0,
        });
        self.failed_at.push(now);
        self.last_failure = Some(failure.clone());
    }

    /// Does what the ladder says, as far as time and budget go.
    fn follow(&mut self, next: Move, now: Timestamp, rng: &mut fastrand::Rng) -> Step {
        match next {
            Move::Ask { .. } | Move::Pause(_) if self.budget_left(now) < GATE_BUDGET + MIN_CALL_BUDGET => {
                self.hold(Held::new(Duration::ZERO, HoldReason::DeliveryBudget), now)
            }
            // A pause is short, but no call may begin after the deadline.
            Move::Pause(pause) if pause >= self.remaining(now) => self.end_pass(now, rng),
            Move::Ask { tier, may_leave } => {
                let asking = Asking {
                    priority: self.claimed.priority,
                    may_leave,
                    ticket: self.ticket.filter(|_| tier == self.ladder.first()),
                    again: self.claimed.dwell_ms.is_none() || !self.failed_calls.is_empty(),
                    in_passing: false,
                    dwell_ms: self.claimed.dwell_ms.filter(|_| self.failed_calls.is_empty()),
                };
                self.asked = (tier, asking);
                Step::AskGate { model: self.candidates.model(tier), asking }
            }
            Move::Pause(pause) => {
                // What is waited is the pause, whatever the bucket drew.
                if let Some(call) = self.failed_calls.last_mut().filter(|call| call.real_wait_ms.is_none()) {
                    call.computed_wait_ms = Some(millis(pause));
                }
                Step::Pause(pause)
            }
            Move::Hold(held) => self.hold(held, now),
            Move::End => self.end_pass(now, rng),
        }
    }

    fn call(&mut self, permit: Option<PermitId>, is_probe: bool, now: Timestamp) -> Step {
        let (tier, asking) = self.asked;
        if let (Some(call), Some(failed_at)) = (self.failed_calls.last_mut(), self.failed_at.last()) {
            call.real_wait_ms = Some(millis(now.since(*failed_at)));
        }
        let limits = Limits::new(self.policy().call, self.budget_left(now));
        let call = Call { model: self.candidates.model(tier), permit, asking, is_probe, limits };
        self.call = Some(call.clone());
        Step::Call(call)
    }

    /// The pass was in vain: an attempt, unless the outage is the gate's business; then a wait, or the end.
    fn end_pass(&mut self, now: Timestamp, rng: &mut fastrand::Rng) -> Step {
        if let Some(call) = self.failed_calls.last_mut() {
            call.costs_attempt = self.costs_attempt;
        }
        let attempts = self.claimed.attempts + u32::from(self.costs_attempt);
        if attempts >= self.max_attempts() || self.counted_calls() >= self.max_calls() {
            return self.exhausted(now, rng);
        }
        let (wanted, floor) = self.wait.map_or_else(Default::default, |wait| (wait.wanted, wait.floor));
        let cause = self.last_failure.as_ref().map_or(Cause::Overloaded, |failure| failure.cause);
        match deadline::fit(wanted, floor, self.remaining(now)) {
            Some(fitting) => {
                let (wait_ms, slow) = (queue_wait_ms(fitting), self.slow);
                self.settle(Then::Retry(Retry { cause, wait_ms, slow }), now)
            }
            None => self.deadline_exceeded(None, now),
        }
    }

    /// Our own waits may be cut to end a little before the deadline: somebody else may have closed the gate by then.
    fn hold(&mut self, held: Held, now: Timestamp) -> Step {
        let Held { after, reason, ticket, eta, slow, .. } = held;
        match deadline::fit(after, Duration::ZERO, self.remaining(now)) {
            Some(fitting) => {
                let (wait_ms, eta_ms) = (queue_wait_ms(fitting), eta.map(millis));
                self.settle(Then::Hold(Hold { reason, wait_ms, ticket, eta_ms, slow }), now)
            }
            None => self.deadline_exceeded(Some(reason), now),
        }
    }

    /// The upstream has refused the request itself (B5), or a spend cap has: no retry helps this job.
    fn refused(&mut self, failure: &Failure, now: Timestamp) -> Step {
        self.fail(FailReason::Refused(failure.cause), failure.message.clone(), now)
    }

    /// Every attempt is used up (A5, stage 3).
    fn exhausted(&mut self, now: Timestamp, rng: &mut fastrand::Rng) -> Step {
        let when_exhausted = self.claimed.when_exhausted.unwrap_or(self.candidates.kind.when_exhausted);
        if when_exhausted == WhenExhausted::Fail || self.claimed.deferrals >= self.policy().max_deferrals {
            let why = self.last_failure.as_ref().map_or_else(String::new, |failure| format!(": {}", failure.message));
            let calls = self.counted_calls();
            let message = format!("Claude could not answer within {calls} calls{why}");
            return self.fail(FailReason::AttemptsExhausted, message, now);
        }
        let settings = self.policy().deferral;
        let at_least = Duration::from_secs(settings.at_least_seconds);
        let resume_ms = millis(self.policy().hours.off_peak_utc.defer(at_least, now, rng));
        let answer_ms = settings.answer_seconds.saturating_mul(1000);
        let then = match when_exhausted {
            WhenExhausted::Ask => Then::Stall { answer_ms, resume_ms: resume_ms.max(answer_ms) },
            WhenExhausted::Defer | WhenExhausted::Fail => Then::Defer { resume_ms },
        };
        self.settle(then, now)
    }

    fn deadline_exceeded(&mut self, held: Option<HoldReason>, now: Timestamp) -> Step {
        let message = match (&self.last_failure, held) {
            (Some(failure), _) => {
                format!("the next call could only come after the job's deadline: {}", failure.message)
            }
            (None, Some(reason)) => {
                format!("the job's deadline leaves no time for another call, and {}", reason.sentence())
            }
            (None, None) => "the job's deadline passed before Claude could answer it".to_owned(),
        };
        self.fail(FailReason::DeadlineExceeded, message, now)
    }

    fn fail(&mut self, reason: FailReason, message: String, now: Timestamp) -> Step {
        let failure = self.last_failure.as_ref();
        let (cause, error_type) =
            (failure.map(|failure| failure.cause), failure.and_then(|failure| failure.kind.clone()));
        self.settle(Then::End(Ending::Failed { reason, cause, error_type, message }), now)
    }

    fn settle(&mut self, then: Then, now: Timestamp) -> Step {
        let mut failed_calls = std::mem::take(&mut self.failed_calls);
        for (call, failed_at) in failed_calls.iter_mut().zip(&self.failed_at) {
            call.ago_ms = millis(now.since(*failed_at));
        }
        Step::Settle(Settlement { failed_calls, then })
    }

    /// How long a low job that may not have the fallback waits for quieter hours (B8); `None` if now is as good.
    fn off_peak(&self, now: Timestamp, rng: &mut fastrand::Rng) -> Option<Duration> {
        let waits = self.claimed.priority == Priority::Low
            && self.ladder.first() == Tier::Primary
            && !self.claimed.first_choice_only;
        let hours = self.policy().hours.off_peak_utc;
        waits.then(|| hours.wait_for_off_peak(now, self.remaining(now), rng)).flatten()
    }

    const fn policy(&self) -> &'a Policy {
        &self.config.policy
    }

    /// The record has counted each call when it began.
    fn counted_calls(&self) -> u32 {
        let counted = self.failed_calls.iter().filter(|call| call.costs_call).count();
        self.claimed.counted_calls.saturating_add(u32::try_from(counted).unwrap_or(u32::MAX))
    }

    fn max_attempts(&self) -> u32 {
        self.claimed.preset.map_or(self.policy().max_attempts, |preset| preset.attempts())
    }

    /// Attempts that cost no call, and calls that cost no attempt, must not starve each other.
    fn max_calls(&self) -> u32 {
        self.policy().max_calls.max(self.max_attempts().saturating_mul(3))
    }

    fn remaining(&self, now: Timestamp) -> Duration {
        Duration::from_millis(self.claimed.remaining_ms).saturating_sub(now.since(self.claimed_at))
    }

    fn budget_left(&self, now: Timestamp) -> Duration {
        DELIVERY_BUDGET.saturating_sub(now.since(self.began_at))
    }
}

/// What a queue can wait: whole seconds, at least one.
fn queue_wait_ms(wait: Duration) -> u64 {
    whole_seconds(wait).saturating_mul(1000)
}

/// The platform ends a consumer's invocation after 15 min; what is left covers settling.
const DELIVERY_BUDGET: Duration = Duration::from_secs(840);

/// No call starts with less than this left: it would be cut, and abandoned calls are paid for.
const MIN_CALL_BUDGET: Duration = Duration::from_secs(60);

/// What asking the gate may take, twice its patience included.
const GATE_BUDGET: Duration = Duration::from_secs(10);

/// How long to leave a gate alone that does not answer.
const GATE_PAUSE_MS: std::ops::RangeInclusive<u64> = 5_000..=15_000;
