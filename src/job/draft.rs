//! Text that somebody has seen before it was an answer, and what becomes of it when the upstream breaks off.
//!
//! A **draft** is what one call has brought so far; its number is the call's. As long as nobody has seen any of it, a job that has
//! to begin again does so silently. Once somebody has, that is no longer nothing: [`WhenInterrupted`] says whether the draft is
//! discarded before their eyes and another one begun, or the job ends with what there is. Whether it was seen, the Job
//! object alone knows, and it is kept in the record: the object may be gone by the time that it matters.

use super::claim::{Renewal, Token};
use super::record::Record;
use super::schedule::Timing;
use super::spec::WhenInterrupted;
use super::state::{FailReason, State};
use crate::json;
use crate::policy::cause::Cause;
use crate::policy::time::Timestamp;

/// A draft that was seen and is void.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discarded {
    /// Its number.
    pub draft: u32,
    /// Why the upstream broke off, where anybody knows.
    pub cause: Option<Cause>,
}

json::object!(Discarded { draft, cause });

/// The answer to a consumer whose call broke off after content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// Go on as after any failure: nobody has seen anything, or it has been discarded.
    GoOn,
    /// End the job as interrupted, with the text so far.
    End,
    /// The claim is void, or the job is over.
    Void,
}

json::names!(Interruption {
    GoOn => "go_on",
    End => "end",
    Void => "void",
});

impl Record {
    /// The number of the draft that is being written, if one is.
    #[must_use]
    pub const fn draft(&self) -> Option<u32> {
        match self.state {
            State::Generating { .. } | State::Refining { .. } => Some(self.calls),
            _ => None,
        }
    }

    /// Somebody is about to see text of the draft. True if nobody had before.
    pub fn see(&mut self, draft: u32) -> bool {
        self.draft() == Some(draft) && self.seen_draft.replace(draft) != Some(draft)
    }

    /// The call of the holder of `token` broke off after content.
    pub fn interrupted(&mut self, token: Token, cause: Cause, now: Timestamp, timing: &Timing) -> Interruption {
        if self.renew(token, now, timing) != Renewal::Renewed {
            return Interruption::Void;
        }
        if self.is_seen() && self.spec.when_interrupted == WhenInterrupted::Fail {
            return Interruption::End;
        }
        self.discard(Some(cause));
        self.enter(State::Retrying { cause }, now);
        Interruption::GoOn
    }

    /// The draft comes to nothing. True if that ends the job.
    pub(super) fn leave_draft(&mut self, cause: Option<Cause>, now: Timestamp) -> bool {
        let ends = self.is_seen() && self.spec.when_interrupted == WhenInterrupted::Fail;
        if ends {
            let state =
                State::Failed { reason: FailReason::Interrupted, cause, error_type: None, message: INTERRUPTED.into() };
            self.finish(state, now);
        } else {
            self.discard(cause);
        }
        ends
    }

    /// Whether somebody has seen text of what is being written.
    fn is_seen(&self) -> bool {
        self.draft().is_some() && self.draft() == self.seen_draft
    }

    pub(super) fn discard(&mut self, cause: Option<Cause>) {
        if let Some(draft) = self.seen_draft.take().filter(|draft| Some(*draft) == self.draft()) {
            self.discarded = Some(Discarded { draft, cause });
        }
    }
}

/// What an interrupted job says.
pub const INTERRUPTED: &str = "Claude broke off in the middle of its answer, and the job was not to begin again; partial_text is what is left of it, and regenerating the job asks anew";
