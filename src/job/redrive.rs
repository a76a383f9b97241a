//! The operator drives jobs on: those that wait need not wait any longer, those that failed are done again.
//!
//! A final state never changes: who was told that a job has failed, by its webhook, by KV, in its own database, would otherwise be
//! told two ends of it. So a failed job is done again by a new one that is linked to it, as when its user regenerates it.
//!
//! Doing it twice is harmless. A message that is sent once more finds its turn leased or over; a job that is done again already
//! is not done a third time.

use super::record::Record;
use super::schedule::Announcement;
use super::state::{FailReason, State};
use crate::json;
use crate::policy::cause::Cause;
use crate::policy::time::Timestamp;

/// Which jobs are to be driven on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// This one, whatever has become of it.
    Any,
    /// If it waits; for this reason, if there is one.
    Waiting {
        /// `waiting.reason` of its status.
        reason: Option<String>,
    },
    /// If it has failed; for this reason, or without one for any but those after which doing it again is no use: its request was
    /// refused, and would be again; its user declined to wait; or half of it was seen by somebody who has called since.
    Failed {
        /// `reason` of its status.
        reason: Option<String>,
    },
}

json::choice!(Which {
    "any" => Any,
    "waiting" => Waiting { reason },
    "failed" => Failed { reason },
});

/// What is to be done about a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redrive {
    /// Nothing.
    NotNeeded,
    /// Its turn is due now; done.
    SentAgain,
    /// Another job is to do it again.
    DoAgain,
}

impl Record {
    /// The operator drives the job on.
    pub fn redrive(&mut self, which: &Which, now: Timestamp) -> Redrive {
        if let State::Failed { reason, .. } = self.state {
            let is_wanted = match which {
                Which::Any => true,
                Which::Waiting { .. } => false,
                Which::Failed { reason: None } => is_worth_it(reason),
                Which::Failed { reason: Some(wanted) } => reason.name() == wanted,
            };
            return if is_wanted { Redrive::DoAgain } else { Redrive::NotNeeded };
        }
        let is_wanted = match which {
            Which::Any | Which::Waiting { reason: None } => true,
            Which::Failed { .. } => false,
            Which::Waiting { reason: Some(wanted) } => self.state.waiting_reason() == Some(wanted.as_str()),
        };
        // A stalled job waits for its user, and what is leased is being worked on.
        let waits =
            matches!(self.state, State::Received | State::Retrying { .. } | State::Held { .. } | State::Deferred);
        if !is_wanted || !waits || self.lease.is_some() {
            return Redrive::NotNeeded;
        }
        if self.wake_at > now {
            self.wake_at = now;
            self.changed(now);
        }
        self.nudges = 0;
        self.announcement = Announcement::due(now);
        Redrive::SentAgain
    }
}

/// Whether it may succeed now, and somebody waits for it. A key or a spend cap can be mended without the app.
const fn is_worth_it(reason: FailReason) -> bool {
    !matches!(
        reason,
        FailReason::DeferralDeclined
            | FailReason::Interrupted
            | FailReason::Refused(Cause::InvalidRequest | Cause::NotFound | Cause::RequestTooLarge | Cause::Rejected)
    )
}
