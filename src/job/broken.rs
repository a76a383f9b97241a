//! What is left of a call that somebody waited for and that broke off in the middle of its answer (A2).
//!
//! It is not made again: half an answer has been seen. But what had come is worth keeping, and so is the request: it becomes a job
//! that is over from its beginning, with the text so far, that can be regenerated like any job that failed. No queue ever hears
//! of it.

use super::history::{self, Entry};
use super::id::JobId;
use super::record::Record;
use super::state::{FailReason, State};
use crate::json;
use crate::policy::cause::Cause;
use crate::policy::time::Timestamp;

/// The call that broke off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The model that was answering.
    pub model: String,
    /// Why it stopped.
    pub cause: Cause,
    /// The upstream's error type, where it gave one.
    pub error_type: Option<String>,
    /// The upstream's request id.
    pub request_id: Option<String>,
    /// How many calls had been made, this one included.
    pub calls: u32,
    /// When it broke off.
    pub at: Timestamp,
}

impl Record {
    /// The job under `id` that keeps what is left of the call that this one would have become.
    #[must_use]
    pub fn broken_off(mut self, id: JobId, broken: Broken) -> Self {
        let Broken { model, cause, error_type, request_id, calls, at } = broken;
        self.id = id;
        self.spec.handed_over = false;
        self.calls = calls;
        let entry = Entry {
            at,
            model,
            cause,
            status: None,
            request_id,
            costs_attempt: false,
            computed_wait_ms: None,
            real_wait_ms: None,
        };
        history::push(&mut self.history, entry);
        let (reason, message) = (FailReason::Interrupted, INTERRUPTED.to_owned());
        self.finish(State::Failed { reason, cause: Some(cause), error_type, message }, at);
        self
    }
}

/// A call to be kept, and the text that had come; its request follows, raw.
#[derive(Debug)]
pub struct Kept {
    /// The job.
    pub record: Record,
    /// The text so far.
    pub text: String,
}

json::object!(Kept { record, text });

const INTERRUPTED: &str =
    "the answer broke off after some of it had been seen, so it was not asked for again; regenerate it to do that";
