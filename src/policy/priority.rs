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
