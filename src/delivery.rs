//! One delivery of one job, step by step: claimed → asks the gate → calls → settles.
//!
//! ```text
//! start ──► AskGate ──on_decision──► Call ──on_outcome──► Settle
//!    └────────────────────┴───────────────────────────────► Settle
//! ```
//! No I/O happens here: the edge does what a [`Step`] says and comes back with what happened. The simulator drives exactly
//! the same steps.
//!
//! What the steps decide (design, "Attempts, calls, waits"): whether a failure ends the job, how long it waits otherwise,
//! and that no wait goes past the deadline (B14). What a failure means for everyone else is the gate's business; its
//! verdict says whether an attempt was used up.

use std::time::Duration;

use crate::claude::failure::Failure;
use crate::config::Policy;
use crate::job::settlement::FailedCall;
use crate::job::{Claimed, Ending, FailReason, Settlement, Then};
use crate::policy::answer::{Decision, HoldReason, PermitId, Report, Verdict};
use crate::policy::backoff::Buckets;
use crate::policy::cause::Class;
use crate::policy::deadline;
use crate::policy::priority::Priority;
use crate::policy::settings::BackoffSettings;
use crate::policy::time::{Timestamp, millis, whole_seconds};
use crate::policy::unguarded::Unguarded;

/// What the edge does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask the gate of `model` for a permit, then [`Delivery::on_decision`].
    AskGate {
        /// The model's gate.
        model: String,
        /// For a job of this priority.
        priority: Priority,
    },
    /// Call, then report to the gate, then [`Delivery::on_outcome`].
    Call(Call),
    /// Settle the job: the delivery is over.
    Settle(Settlement),
}

/// A call to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The model to call.
    pub model: String,
    /// The gate's permit; `None` if the gate did not answer.
    pub permit: Option<PermitId>,
    /// Whether the breaker's next move hangs on it.
    pub is_probe: bool,
    /// For how long to wait for what.
    pub limits: Limits,
}

impl Call {
    /// By what right the call is made: a stable name for logs.
    #[must_use]
    pub const fn permit_name(&self) -> &'static str {
        match (self.permit, self.is_probe) {
            (None, _) => "unguarded",
            (Some(_), true) => "probe",
            (Some(_), false) => "granted",
        }
    }
}

/// The limits of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Until the response headers.
    pub headers: Duration,
    /// Silence in the stream.
    pub idle: Duration,
    /// The whole call.
    pub total: Duration,
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
    policy: &'a Policy,
    /// When the invocation began: its budget is counted from here.
    began_at: Timestamp,
    claimed_at: Timestamp,
    call: Option<Call>,
}

impl<'a> Delivery<'a> {
    /// A claimed job, in an invocation that began at `began_at`, and its first step.
    #[must_use]
    pub fn start(claimed: &'a Claimed, policy: &'a Policy, began_at: Timestamp, now: Timestamp) -> (Self, Step) {
        let delivery = Self { claimed, policy, began_at, claimed_at: now, call: None };
        let step = if delivery.remaining(now).is_zero() {
            delivery.deadline_exceeded(None, None)
        } else if claimed.counted_calls >= delivery.max_calls() {
            delivery.exhausted(None)
        } else if delivery.budget_left(now) < GATE_BUDGET + MIN_CALL_BUDGET {
            delivery.hold(Duration::ZERO, HoldReason::DeliveryBudget, now)
        } else {
            Step::AskGate { model: claimed.model.clone(), priority: claimed.priority }
        };
        (delivery, step)
    }

    /// The backoff that this job's failures wait by.
    #[must_use]
    pub fn backoff(&self) -> BackoffSettings {
        let own = &self.policy.backoff;
        self.claimed.preset.map_or_else(|| own.clone(), |preset| preset.backoff(own))
    }

    /// The gate has answered.
    pub fn on_decision(&mut self, decision: Decision, now: Timestamp) -> Step {
        match decision {
            Decision::Granted(permit) => self.call(Some(permit), false, now),
            Decision::Probe(permit) => self.call(Some(permit), true, now),
            Decision::NotBefore { after, reason } => self.hold(after, reason, now),
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
        match trouble {
            GateTrouble::Overloaded => self.hold(pause, HoldReason::GateUnavailable, now),
            GateTrouble::Silent => match unguarded.take(now) {
                Ok(()) => self.call(None, false, now),
                Err(wait) => self.hold(wait.min(pause), HoldReason::GateUnavailable, now),
            },
        }
    }

    /// The verdict on a report that the gate did not take: each failure costs an attempt, and waits as a first one.
    #[must_use]
    pub fn verdict_without_gate(&self, report: Report, now: Timestamp, rng: &mut fastrand::Rng) -> Verdict {
        let Report::Failure { cause, retry_after, .. } = report else { return Verdict::default() };
        let wait = Buckets::default().fail(cause.class(), &self.backoff(), retry_after, now, rng);
        Verdict { wait, costs_attempt: wait.is_some(), ..Verdict::default() }
    }

    /// The call is over and the gate has given its verdict.
    #[must_use]
    pub fn on_outcome(&self, outcome: Result<(), &Failure>, verdict: &Verdict, now: Timestamp) -> Step {
        let model = self.call.as_ref().map_or_else(|| self.claimed.model.clone(), |call| call.model.clone());
        let Err(failure) = outcome else {
            return settle(None, Then::End(Ending::Done { model_used: model }));
        };
        let is_probe = self.call.as_ref().is_some_and(|call| call.is_probe);
        let costs_call = !(is_probe && failure.cause.class() == Class::Overload);
        let call = FailedCall {
            model,
            cause: failure.cause,
            status: failure.status,
            request_id: failure.request_id.clone(),
            costs_attempt: verdict.costs_attempt,
            costs_call,
            computed_wait_ms: verdict.wait.map(|wait| millis(wait.wanted)),
        };
        if let Some(held) = verdict.held {
            return self.hold_after(Some((call, failure)), held.after, held.reason, now);
        }
        let Some(wait) = verdict.wait else { return self.refused(call, failure) };
        let attempts = self.claimed.attempts + u32::from(verdict.costs_attempt);
        // The record has counted this call when it began.
        let calls = self.claimed.counted_calls + u32::from(costs_call);
        if attempts >= self.max_attempts() || calls >= self.max_calls() {
            return self.exhausted(Some((call, failure)));
        }
        match deadline::fit(wait.wanted, wait.floor, self.remaining(now)) {
            Some(fitting) => settle(Some(call), Then::Retry { cause: failure.cause, wait_ms: queue_wait_ms(fitting) }),
            None => self.deadline_exceeded(Some((call, failure)), None),
        }
    }

    fn call(&mut self, permit: Option<PermitId>, is_probe: bool, now: Timestamp) -> Step {
        let settings = self.policy.call;
        let total = Duration::from_secs(settings.total_seconds).min(self.budget_left(now));
        let limits = Limits {
            headers: Duration::from_secs(settings.headers_seconds).min(total),
            idle: Duration::from_secs(settings.idle_seconds).min(total),
            total,
        };
        let call = Call { model: self.claimed.model.clone(), permit, is_probe, limits };
        self.call = Some(call.clone());
        Step::Call(call)
    }

    fn hold(&self, after: Duration, reason: HoldReason, now: Timestamp) -> Step {
        self.hold_after(None, after, reason, now)
    }

    /// Our own waits may be cut to end a little before the deadline: somebody else may have closed the gate by then.
    fn hold_after(
        &self,
        last: Option<(FailedCall, &Failure)>,
        after: Duration,
        reason: HoldReason,
        now: Timestamp,
    ) -> Step {
        match deadline::fit(after, Duration::ZERO, self.remaining(now)) {
            Some(fitting) => settle(last.map(|(call, _)| call), Then::Hold { reason, wait_ms: queue_wait_ms(fitting) }),
            None => self.deadline_exceeded(last, Some(reason)),
        }
    }

    /// The upstream has refused the request itself (B5), or a spend cap has: no retry helps this job.
    fn refused(&self, call: FailedCall, failure: &Failure) -> Step {
        let ending = Ending::Failed {
            reason: FailReason::Refused(failure.cause),
            cause: Some(failure.cause),
            error_type: failure.kind.clone(),
            message: failure.message.clone(),
        };
        settle(Some(call), Then::End(ending))
    }

    fn exhausted(&self, last: Option<(FailedCall, &Failure)>) -> Step {
        let why = last.as_ref().map_or_else(String::new, |(_, failure)| format!(": {}", failure.message));
        let calls = self.claimed.counted_calls + u32::from(last.is_some());
        fail(FailReason::AttemptsExhausted, format!("Claude could not answer within {calls} calls{why}"), last)
    }

    fn deadline_exceeded(&self, last: Option<(FailedCall, &Failure)>, held: Option<HoldReason>) -> Step {
        let message = match (&last, held) {
            (Some((_, failure)), _) => {
                format!("the next call could only come after the job's deadline: {}", failure.message)
            }
            (None, Some(reason)) => {
                format!("the job's deadline leaves no time for another call, and {}", reason.sentence())
            }
            (None, None) => "the job's deadline passed before Claude could answer it".to_owned(),
        };
        fail(FailReason::DeadlineExceeded, message, last)
    }

    fn max_attempts(&self) -> u32 {
        self.claimed.preset.map_or(self.policy.max_attempts, |preset| preset.attempts())
    }

    /// Attempts that cost no call, and calls that cost no attempt, must not starve each other.
    fn max_calls(&self) -> u32 {
        self.policy.max_calls.max(self.max_attempts().saturating_mul(3))
    }

    fn remaining(&self, now: Timestamp) -> Duration {
        Duration::from_millis(self.claimed.remaining_ms).saturating_sub(now.since(self.claimed_at))
    }

    fn budget_left(&self, now: Timestamp) -> Duration {
        DELIVERY_BUDGET.saturating_sub(now.since(self.began_at))
    }
}

fn settle(failed_call: Option<FailedCall>, then: Then) -> Step {
    Step::Settle(Settlement { failed_call, then })
}

fn fail(reason: FailReason, message: String, last: Option<(FailedCall, &Failure)>) -> Step {
    let (call, failure) = last.unzip();
    let ending = Ending::Failed {
        reason,
        cause: failure.map(|failure| failure.cause),
        error_type: failure.and_then(|failure| failure.kind.clone()),
        message,
    };
    settle(call, Then::End(ending))
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
