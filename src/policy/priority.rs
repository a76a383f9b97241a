//! How urgent a job is (B8).

use serde::{Deserialize, Serialize};

/// How urgent a job is. Each priority has a queue of its own; the ladder and the shares of the in-flight limit follow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// A person waits for it: the primary model only.
    High,
    /// The default.
    #[default]
    Medium,
    /// Bulk work that may wait.
    Low,
}

impl Priority {
    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}
