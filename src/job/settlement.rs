//! How a delivery ends: what the consumer reports to the Job object, as data.

use super::state::FailReason;
use crate::json;
use crate::policy::answer::HoldReason;
use crate::policy::cause::Cause;
use crate::policy::ladder::Downgrade;
use crate::policy::slots::Ticket;

/// The end of one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The calls that failed in this delivery, in their order.
    pub failed_calls: Vec<FailedCall>,
    /// What comes next.
    pub then: Then,
}

json::object!(Settlement { failed_calls, then });

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCall {
    /// The model that was called.
    pub model: String,
    /// Why it failed.
    pub cause: Cause,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// The upstream's request id.
    pub request_id: Option<String>,
    /// Whether it used up an attempt.
    pub costs_attempt: bool,
    /// Whether it counts towards `max_calls`; an overloaded probe does not.
    pub costs_call: bool,
    /// The wait that was drawn, in milliseconds, before the deadline was looked at.
    pub computed_wait_ms: Option<u64>,
    /// The wait that passed until the delivery called again, in milliseconds, if it did.
    pub real_wait_ms: Option<u64>,
    /// How long before the settlement it failed, in milliseconds.
    pub ago_ms: u64,
}

json::object!(FailedCall {
    model,
    cause,
    status,
    request_id,
    costs_attempt,
    costs_call,
    computed_wait_ms,
    real_wait_ms,
    ago_ms
});

/// What comes after a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// Another turn after a failed call.
    Retry(Retry),
    /// Another turn, since the gate let the job not through.
    Hold(Hold),
    /// The attempts are used up: the user is asked whether the job may wait for quieter hours. No answer is a yes.
    Stall {
        /// How long the offer stands, in milliseconds.
        answer_ms: u64,
        /// Until the turn that it offers, in milliseconds.
        resume_ms: u64,
    },
    /// The attempts are used up: the job waits for quieter hours.
    Defer {
        /// Until the next turn, in milliseconds.
        resume_ms: u64,
    },
    /// The job is over.
    End(Ending),
}

json::choice!(Then {
    "retry" => Retry(retry),
    "hold" => Hold(hold),
    "stall" => Stall { answer_ms, resume_ms },
    "defer" => Defer { resume_ms },
    "end" => End(ending),
});

/// A wait after a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Why the call failed.
    pub cause: Cause,
    /// Until the next turn, in milliseconds.
    pub wait_ms: u64,
    /// Whether jobs wait longer these minutes than users are told to expect.
    pub slow: bool,
}

json::object!(Retry { cause, wait_ms, slow = false });

impl Retry {
    /// A wait while jobs do not wait long.
    #[must_use]
    pub const fn new(cause: Cause, wait_ms: u64) -> Self {
        Self { cause, wait_ms, slow: false }
    }
}

/// A wait that is nobody's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Why.
    pub reason: HoldReason,
    /// Until the next turn, in milliseconds.
    pub wait_ms: u64,
    /// The job's place in its gate's order.
    pub ticket: Option<Ticket>,
    /// Until the answer should be there, in milliseconds, if anybody can say.
    pub eta_ms: Option<u64>,
    /// Whether jobs wait longer these minutes than users are told to expect.
    pub slow: bool,
}

json::object!(Hold { reason, wait_ms, ticket, eta_ms, slow });

impl Hold {
    /// A wait without a place in a gate's order.
    #[must_use]
    pub const fn new(reason: HoldReason, wait_ms: u64) -> Self {
        Self { reason, wait_ms, ticket: None, eta_ms: None, slow: false }
    }
}

/// How a job ends; the answer itself travels beside it, raw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With an answer.
    Done {
        /// The model that gave it.
        model_used: String,
        /// Why it was not the one that was asked for, if it was not.
        downgrade: Option<Downgrade>,
    },
    /// Without one.
    Failed {
        /// The stable code.
        reason: FailReason,
        /// Why the last call failed.
        cause: Option<Cause>,
        /// The upstream's error type, where it gave one.
        error_type: Option<String>,
        /// A sentence that a person can read.
        message: String,
    },
}

json::choice!(Ending {
    "done" => Done { model_used, downgrade },
    "failed" => Failed { reason, cause, error_type, message },
});

impl Then {
    /// The stable name, for logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Retry(_) => "retry",
            Self::Hold(_) => "hold",
            Self::Stall { .. } => "stall",
            Self::Defer { .. } => "defer",
            Self::End(Ending::Done { .. }) => "done",
            Self::End(Ending::Failed { .. }) => "failed",
        }
    }
}
