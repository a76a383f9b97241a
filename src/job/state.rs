//! Where a job stands.
//!
//! ```text
//! received → generating → refining → done
//! received | generating | refining  ⇄  retrying | held
//! → stalled (asked: defer?) → deferred → generating
//! any unfinished → failed{reason} · cancelled
//! ```
//! Terminal states never change; a state never moves backwards except into `retrying`, `held`, `stalled` and `deferred`, and on
//! from there.

use crate::json;
use crate::policy::answer::HoldReason;
use crate::policy::cause::{Cause, Class};
use crate::policy::ladder::Downgrade;
use crate::policy::time::Timestamp;

/// A job's state, with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Stored, and not called yet.
    Received,
    /// The upstream has been called.
    Generating {
        /// With this model.
        model: String,
    },
    /// The first content has come.
    Refining {
        /// From this model.
        model: String,
    },
    /// A call failed, and the next one waits for its backoff.
    Retrying {
        /// Why the last call failed.
        cause: Cause,
    },
    /// Waiting without a failed call of its own: the gate lets nobody through.
    Held {
        /// Why.
        reason: HoldReason,
    },
    /// Every attempt was in vain, and the user is asked whether the job may wait for quieter hours.
    Stalled {
        /// When no answer becomes a yes.
        until: Timestamp,
        /// When the job is taken up again if it may wait.
        resume_at: Timestamp,
    },
    /// Waiting for quieter hours.
    Deferred,
    /// The answer is there.
    Done {
        /// The model that gave it.
        model_used: String,
        /// Why it was not the one that was asked for, if it was not.
        downgrade: Option<Downgrade>,
    },
    /// There will be no answer.
    Failed {
        /// The stable code.
        reason: FailReason,
        /// Why the last call failed, if there was one.
        cause: Option<Cause>,
        /// The upstream's error type, where it gave one.
        error_type: Option<String>,
        /// A sentence that a person can read.
        message: String,
    },
    /// The app took it back.
    Cancelled,
}

json::choice!(State {
    "received" => Received,
    "generating" => Generating { model },
    "refining" => Refining { model },
    "retrying" => Retrying { cause },
    "held" => Held { reason },
    "stalled" => Stalled { until, resume_at },
    "deferred" => Deferred,
    "done" => Done { model_used, downgrade },
    "failed" => Failed { reason, cause, error_type, message },
    "cancelled" => Cancelled,
});

impl State {
    /// Whether nothing can change any more.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Failed { .. } | Self::Cancelled)
    }

    /// Whether whoever waits for the job should look at it: it is over, or asks something.
    #[must_use]
    pub const fn wants_reader(&self) -> bool {
        self.is_terminal() || matches!(self, Self::Stalled { .. })
    }

    /// What the job waits for without a failure of its own: a hold's reason, its user, or quieter hours.
    #[must_use]
    pub const fn waits_for(&self) -> Option<&'static str> {
        match self {
            Self::Held { reason } => Some(reason.name()),
            Self::Stalled { .. } | Self::Deferred => Some(self.name()),
            _ => None,
        }
    }

    /// `waiting.reason` of its status: why it is not being worked on, though nobody is asked anything.
    #[must_use]
    pub const fn waiting_reason(&self) -> Option<&'static str> {
        match self {
            Self::Retrying { cause } => Some(cause.name()),
            Self::Held { reason } => Some(reason.name()),
            Self::Deferred => Some(self.name()),
            _ => None,
        }
    }

    /// The stable code of a failure.
    #[must_use]
    pub const fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Failed { reason, .. } => Some(reason.name()),
            _ => None,
        }
    }

    /// The model that answered.
    #[must_use]
    pub const fn model_used(&self) -> Option<&str> {
        match self {
            Self::Done { model_used, .. } => Some(model_used.as_str()),
            _ => None,
        }
    }

    /// Whether the job failed because of the upstream's load, and not by the own rate, by its user's wish, or by what was asked
    /// for (A10). Without a failed call it is what it was held for that counts: an order of the operator is no load.
    #[must_use]
    pub fn is_failed_by_load(&self, has_met_load: bool) -> bool {
        match self {
            Self::Failed { reason, cause, .. } => {
                let is_out_of_luck = matches!(
                    reason,
                    FailReason::AttemptsExhausted | FailReason::DeadlineExceeded | FailReason::Interrupted
                );
                let is_load = |cause: Cause| matches!(cause.class(), Class::Overload | Class::Transient);
                is_out_of_luck && cause.map_or(has_met_load, is_load)
            }
            _ => false,
        }
    }

    /// The stable name, as `status` in the API.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Generating { .. } => "generating",
            Self::Refining { .. } => "refining",
            Self::Retrying { .. } => "retrying",
            Self::Held { .. } => "held",
            Self::Stalled { .. } => "stalled",
            Self::Deferred => "deferred",
            Self::Done { .. } => "done",
            Self::Failed { .. } => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Why a job failed: a stable code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailReason {
    /// Every attempt, or every call that one job may make, has been used.
    AttemptsExhausted,
    /// The deadline has passed, or the next call could only come after it.
    DeadlineExceeded,
    /// The attempts were used up, and the user would not wait for quieter hours.
    DeferralDeclined,
    /// The upstream broke off after somebody had seen text, and the job was not to begin again. What had come is kept.
    Interrupted,
    /// The upstream refused the request itself; the cause says how.
    Refused(Cause),
}

json::choice!(FailReason {
    "attempts_exhausted" => AttemptsExhausted,
    "deadline_exceeded" => DeadlineExceeded,
    "deferral_declined" => DeferralDeclined,
    "interrupted" => Interrupted,
    "refused" => Refused(cause),
});

impl FailReason {
    /// The stable name: for a refusal, its cause's.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AttemptsExhausted => "attempts_exhausted",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::DeferralDeclined => "deferral_declined",
            Self::Interrupted => "interrupted",
            Self::Refused(cause) => cause.name(),
        }
    }
}
