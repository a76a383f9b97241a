//! A job's row in its client's index: what a list of jobs needs, so that it need not ask every job that ever was.
//!
//! A row is told when the job is created, when a deferral moves its end, when its webhook is given up, when it is over and when it is
//! erased; what happens
//! in between stays in the job, which is asked for it when somebody lists it. Writing every status into the index as well
//! would put one object behind all jobs of a client, to know a little earlier what is only known for certain here.
//!
//! The telling is an effect like the others (`schedule`): put off by growing delays until the index says that it has it, and
//! so done twice, late, or in another order. Hence the rules: each telling has a *version*, and an older one never replaces a
//! newer; an erased job's row stays as `gone` until its time is over, or a late creation would bring it back; and every row
//! says itself when that is, so that one whose news never come is not kept for ever (docs/adr/0019).

use std::time::Duration;

use super::id::JobId;
use super::notice::Unheard;
use super::record::Record;
use super::schedule::{Effect, put_off};
use super::state::State;
use crate::json;
use crate::policy::time::Timestamp;

/// A job, as its client's index knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The job.
    pub id: JobId,
    /// The how manieth telling this is.
    pub version: u32,
    /// What does not change unseen.
    pub standing: Standing,
    /// The status when this was told.
    pub status: String,
    /// The kind of job; empty once it is gone.
    pub kind: String,
    /// When it was submitted. With the id, the row's place.
    pub created_at: Timestamp,
    /// When it ended; while it is open, when it will have ended at the latest. The row is kept for the retention after that.
    pub ends_at: Timestamp,
    /// What its app has not been told.
    pub unheard: Option<Unheard>,
}

json::object!(Row { id, version, standing, status, kind, created_at, ends_at, unheard });

/// A job's status, as far as an index can know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is not over: its status is asked of the job.
    Open,
    /// Over, with an answer.
    Done,
    /// Over, without one.
    Failed,
    /// Taken back.
    Cancelled,
    /// Erased.
    Gone,
}

json::names!(Standing {
    Open => "open",
    Done => "done",
    Failed => "failed",
    Cancelled => "cancelled",
    Gone => "gone",
});

impl Standing {
    const fn of(state: &State) -> Self {
        match state {
            State::Done { .. } => Self::Done,
            State::Failed { .. } => Self::Failed,
            State::Cancelled => Self::Cancelled,
            _ => Self::Open,
        }
    }
}

/// Whether the client's index knows how the job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listing {
    /// To be told at this moment, after so many failures.
    Due { version: u32, at: Timestamp, failures: u32 },
    /// It knows.
    Told { version: u32 },
}

json::choice!(Listing {
    "due" => Due { version, at, failures },
    "told" => Told { version },
});

impl Default for Listing {
    /// Of a job that an older version of the Worker has stored: no index knows it.
    fn default() -> Self {
        Self::Due { version: 0, at: Timestamp::default(), failures: 0 }
    }
}

impl Listing {
    /// There is news at `at`.
    pub(super) fn news(self, at: Timestamp) -> Self {
        Self::Due { version: self.version().saturating_add(1), at, failures: 0 }
    }

    const fn version(self) -> u32 {
        match self {
            Self::Due { version, .. } | Self::Told { version } => version,
        }
    }

    /// When it is to be told.
    pub(super) const fn due_at(self) -> Option<Timestamp> {
        match self {
            Self::Due { at, .. } => Some(at),
            Self::Told { .. } => None,
        }
    }
}

impl Record {
    /// Its row, as it is now.
    #[must_use]
    pub fn row(&self) -> Row {
        let (standing, status, kind) = if self.is_gone() {
            (Standing::Gone, Standing::Gone.name(), "")
        } else {
            (Standing::of(&self.state), self.state.name(), self.spec.kind.as_str())
        };
        Row {
            id: self.id.clone(),
            version: self.listing.version(),
            standing,
            status: status.to_owned(),
            kind: kind.to_owned(),
            created_at: self.created_at,
            ends_at: self.finished_at.unwrap_or(self.deadline_at + OVERTIME),
            unheard: self.notices.unheard(),
        }
    }

    /// The index has taken the row's `version`.
    pub fn listed(&mut self, version: u32) {
        if version == self.listing.version() {
            self.listing = Listing::Told { version };
        }
    }

    /// What is due to the index at `now`.
    pub(super) fn tick_listing(&mut self, now: Timestamp) -> Option<Effect> {
        let Listing::Due { version, at, failures } = self.listing else { return None };
        if at > now {
            return None;
        }
        let failures = failures.saturating_add(1);
        self.listing = Listing::Due { version, at: now + put_off(failures - 1), failures };
        Some(Effect::List { client: self.client.clone(), row: self.row() })
    }
}

/// By how much a job may outlive its deadline without news of it: a call that is under way (13 min at most), an offer to defer
/// that nobody answers (`deferral.answer_seconds`, a day at most), and clocks that differ.
const OVERTIME: Duration = Duration::from_secs(2 * 86_400);
