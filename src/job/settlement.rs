//! How a delivery ends: what the consumer reports to the Job object, as data.

use super::state::FailReason;
use crate::json;
use crate::policy::answer::HoldReason;
use crate::policy::cause::Cause;

/// The end of one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The call that failed in this delivery, if one did.
    pub failed_call: Option<FailedCall>,
    /// What comes next.
    pub then: Then,
}

json::object!(Settlement { failed_call, then });

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
}

json::object!(FailedCall { model, cause, status, request_id, costs_attempt, costs_call, computed_wait_ms });

/// What comes after a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// Another turn after a failed call.
    Retry {
        /// Why the call failed.
        cause: Cause,
        /// Until the next turn, in milliseconds.
        wait_ms: u64,
    },
    /// Another turn, since the gate let the job not through.
    Hold {
        /// Why not.
        reason: HoldReason,
        /// Until the next turn, in milliseconds.
        wait_ms: u64,
    },
    /// The job is over.
    End(Ending),
}

json::choice!(Then {
    "retry" => Retry { cause, wait_ms },
    "hold" => Hold { reason, wait_ms },
    "end" => End(ending),
});

/// How a job ends; the answer itself travels beside it, raw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With an answer.
    Done {
        /// The model that gave it.
        model_used: String,
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
    "done" => Done { model_used },
    "failed" => Failed { reason, cause, error_type, message },
});

impl Then {
    /// The stable name, for logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Retry { .. } => "retry",
            Self::Hold { .. } => "hold",
            Self::End(Ending::Done { .. }) => "done",
            Self::End(Ending::Failed { .. }) => "failed",
        }
    }
}
