//! What a person reads while a job is on its way (A9): not one "busy", but what really holds.

/// A message to the job's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wording {
    /// Accepted, and nothing has happened yet.
    Received,
    /// Being worked on, or waiting to be.
    Working,
    /// Asked whether it may wait.
    Stalled,
    /// Waiting for quieter hours.
    Deferred,
    /// The answer is there.
    Done,
    /// There will be none.
    Failed,
    /// The user took the job back.
    Cancelled,
}

impl Wording {
    /// The stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Working => "working",
            Self::Stalled => "stalled",
            Self::Deferred => "deferred",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The sentence.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Received => "We have your request and will start on it in a moment.",
            Self::Working => "We are working on your request.",
            Self::Stalled => "This is taking unusually long. May we finish it later, at a quieter time?",
            Self::Deferred => "We will finish your request later, at a quieter time.",
            Self::Done => "Your answer is ready.",
            Self::Failed => "We could not complete your request.",
            Self::Cancelled => "This request was cancelled.",
        }
    }
}
