//! What happened to a job, call by call (B10): kept with the job, shown in its status.

use crate::json;
use crate::policy::cause::Cause;
use crate::policy::time::Timestamp;

/// One failed call and the wait after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When the call had failed.
    pub at: Timestamp,
    /// The model that was called.
    pub model: String,
    /// Why it failed.
    pub cause: Cause,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// The upstream's request id, for its support.
    pub request_id: Option<String>,
    /// Whether the call used up an attempt.
    pub costs_attempt: bool,
    /// The wait that was drawn, in milliseconds: what the bucket or Retry-After asked for.
    pub computed_wait_ms: Option<u64>,
    /// The wait that really passed before the job was taken up again, in milliseconds; unknown until then.
    pub real_wait_ms: Option<u64>,
}

json::object!(Entry { at, model, cause, status, request_id, costs_attempt, computed_wait_ms, real_wait_ms });

/// Appends `entry`, letting the oldest go: a job's record stays small however long it waits.
pub fn push(history: &mut Vec<Entry>, entry: Entry) {
    if history.len() >= MAX_ENTRIES {
        history.remove(0);
    }
    history.push(entry);
}

/// More than `max_calls` of any sensible policy; about 250 bytes an entry.
const MAX_ENTRIES: usize = 64;
