//! How urgent a job is (B8).

use crate::json;

/// How urgent a job is. Each priority has a queue of its own; the ladder and the shares of the in-flight limit follow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// A person waits for it: the primary model only.
    High,
    /// The default.
    #[default]
    Medium,
    /// Bulk work that may wait.
    Low,
}

json::names!(Priority {
    High => "high",
    Medium => "medium",
    Low => "low",
});

impl Priority {
    /// All of them, the most urgent first.
    pub const ALL: [Self; 3] = [Self::High, Self::Medium, Self::Low];

    /// The part of the in-flight limit, and of the wake-ups, that this priority can count on while others want the rest. In
    /// percent; under no pressure anyone may have all of it.
    #[must_use]
    pub const fn share_percent(self) -> u32 {
        match self {
            Self::High => 60,
            Self::Medium => 30,
            Self::Low => 10,
        }
    }
}
