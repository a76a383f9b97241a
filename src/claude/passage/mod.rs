//! A stream that is passed on while it comes: what of it may go out, and what becomes of it when it breaks off.
//!
//! What goes out is what came in, byte for byte. It is looked into on the way, and three things follow from that:
//!
//! 1. **Only whole events go out.** No client can do anything with a part of one; but what has gone out cannot be taken back, and
//!    an error event after half an event would be read as the rest of it. An event of more than [`MAX_HELD_BYTES`] goes out
//!    in parts: memory is worth more than a clean seam that nobody has ever needed.
//! 2. **An error event is held back** until it is known what has been kept of the answer, for it is the last thing that a client
//!    reads: the name of a job can only be told in it. Official SDKs hand its whole body to their caller.
//! 3. **A stream that ends too early gets an error event** of ours, as the API would write one. Without it, a client that reads
//!    events takes half an answer for a whole one.
//!
//! The [`Assembler`](super::response::Assembler) could tell all of this, too, but keeps the whole answer, for every call that is
//! on its way at the same time. Here nothing is kept but the text, and that up to a bound. What is first content, when an answer
//! is complete, and what an error means is the same for both; the tests hold them against each other.

#[cfg(test)]
mod tests;

use super::failure::Failure;
use super::raw::{self, Fields};
use super::response::{Usage, is_first_content};
use super::sse::{Decoder, Event};
use crate::json;
use crate::policy::cause::Cause;

/// A stream on its way.
#[derive(Debug)]
pub struct Passage {
    decoder: Decoder,
    /// What has come and has not gone out.
    held: Vec<u8>,
    /// How much of it can go: whole events.
    ready: usize,
    /// Whether the beginning of the first event in `held` has gone out.
    is_torn: bool,
    has_events: bool,
    has_message: bool,
    has_content: bool,
    has_stop_reason: bool,
    is_closed: bool,
    usage: Usage,
    text: String,
    end: Option<End>,
    /// The upstream's own error event: its data, if that could be told from what is before it.
    error: Option<String>,
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With a whole answer.
    Complete(Usage),
    /// Not so: nothing that was to come will come.
    Broken(Failure),
    /// It cannot be read, and goes on all the same: whoever gets it may understand more of it.
    Unreadable(Failure),
}

impl Passage {
    /// A stream of which nothing has come.
    #[must_use]
    pub fn new() -> Self {
        Self {
            decoder: Decoder::new(),
            held: Vec::new(),
            ready: 0,
            is_torn: false,
            has_events: false,
            has_message: false,
            has_content: false,
            has_stop_reason: false,
            is_closed: false,
            usage: Usage::default(),
            text: String::new(),
            end: None,
            error: None,
        }
    }

    /// Whether any content has come.
    #[must_use]
    pub const fn has_content(&self) -> bool {
        self.has_content
    }

    /// What is billed, as far as the upstream has said.
    #[must_use]
    pub const fn usage(&self) -> Usage {
        self.usage
    }

    /// How it ended, once that is known.
    #[must_use]
    pub const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The text of the answer so far, up to [`MAX_TEXT_BYTES`].
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Takes a chunk.
    pub fn push(&mut self, chunk: &[u8]) {
        if matches!(self.end, Some(End::Broken(_))) {
            return;
        }
        let looked_at = self.held.len().saturating_sub(BOUNDARY_BYTES).max(self.ready);
        self.held.extend_from_slice(chunk);
        if self.end.is_none() {
            match self.decoder.push(chunk) {
                Err(error) => self.end = Some(End::Unreadable(error.into())),
                Ok(events) => events.iter().for_each(|event| self.look(event)),
            }
        }
        match self.end {
            Some(End::Broken(_)) => self.hold_error_back(),
            Some(End::Unreadable(_)) => self.ready = self.held.len(),
            _ => {
                let new = self.held.get(looked_at..).unwrap_or_default();
                if let Some(boundary) = last_boundary(new) {
                    self.ready = looked_at + boundary;
                } else if self.held.len() - self.ready > MAX_HELD_BYTES {
                    self.ready = self.held.len();
                }
            }
        }
    }

    /// No more chunks will come: the upstream has ended the stream, or `cause` has.
    pub fn close(&mut self, cause: Option<Cause>) {
        self.is_closed = true;
        if self.end.is_none() {
            let rest = std::mem::take(&mut self.decoder).finish();
            // Some intermediaries eat the last line end; what is no event is the sign of a cut.
            if let Some(rest) = rest.filter(|rest| cause.is_none() && Fields::parse(&rest.data).is_ok()) {
                self.look(&rest);
            }
        }
        if self.end.is_none() {
            self.end = Some(if self.has_stop_reason {
                End::Complete(self.usage)
            } else if let Some(cause) = cause {
                End::Broken(Failure::transport(cause))
            } else if self.has_events {
                End::Broken(Failure::transport(Cause::Truncated))
            } else {
                End::Broken(Failure::malformed("The upstream's answer holds no event of a Messages stream."))
            });
        }
        match self.end {
            Some(End::Broken(_)) if self.error.is_none() => self.held.truncate(self.ready),
            Some(End::Broken(_)) => {}
            _ => self.ready = self.held.len(),
        }
    }

    /// What may go out now.
    pub fn take(&mut self) -> Vec<u8> {
        let rest = self.held.split_off(self.ready);
        let out = std::mem::replace(&mut self.held, rest);
        self.ready = 0;
        if !out.is_empty() {
            self.is_torn = last_boundary(&out) != Some(out.len());
        }
        out
    }

    /// Everything that has come and has not gone out.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.held
    }

    /// The last thing that the client of a broken stream reads: the upstream's error event, or ours if there was none, with the
    /// job in which the answer so far is kept.
    #[must_use]
    pub fn last(&mut self, job: Option<&str>) -> Vec<u8> {
        let Some(End::Broken(failure)) = &self.end else { return Vec::new() };
        let held = std::mem::take(&mut self.held);
        let data = match (&self.error, job) {
            // Untouched where there is nothing to add.
            (Some(_), None) => return held,
            (Some(data), Some(job)) => with_job(data, job),
            (None, job) => {
                let data = error_body(failure);
                Some(job.and_then(|job| with_job(&data, job)).unwrap_or(data))
            }
        };
        let seam = if std::mem::take(&mut self.is_torn) { "\n\n" } else { "" };
        data.map_or(held, |data| format!("{seam}event: error\ndata: {data}\n\n").into_bytes())
    }

    fn look(&mut self, event: &Event) {
        if self.end.is_some() {
            return;
        }
        if let Err(end) = self.read(event) {
            self.end = Some(end);
        }
    }

    fn read(&mut self, event: &Event) -> Result<(), End> {
        let unreadable = |what| End::Unreadable(Failure::malformed(what));
        let data = Fields::parse(&event.data);
        let kind = data.as_ref().ok().and_then(|data| data.string("type")).map(std::borrow::Cow::into_owned);
        let kind = kind.or_else(|| event.name.clone());
        if event.name.as_deref() == Some("error") || kind.as_deref() == Some("error") {
            self.error = Some(event.data.clone());
            return Err(End::Broken(Failure::in_stream(&event.data)));
        }
        self.has_events |= kind.is_some();
        let known =
            ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"];
        let data = match (kind.as_deref(), data) {
            (Some(kind), Err(_)) if !known.contains(&kind) => Fields::default(),
            (_, data) => data.map_err(|_| unreadable("An event of the upstream's answer is not JSON."))?,
        };
        match kind.as_deref() {
            Some("message_start") => {
                self.has_message = true;
                self.count(&data.object("message").unwrap_or_default());
            }
            Some(kind) if known.contains(&kind) && !self.has_message => {
                return Err(unreadable("The events of the upstream's answer do not follow from one another."));
            }
            Some("content_block_start") => {
                let block = data.object("content_block").unwrap_or_default();
                self.has_content |= is_first_content(&block);
                if block.string("type").is_some_and(|kind| kind == "text") {
                    self.say(block.string("text"));
                }
            }
            Some("content_block_delta") => {
                self.has_content = true;
                let delta = data.object("delta").unwrap_or_default();
                if delta.string("type").is_some_and(|kind| kind == "text_delta") {
                    self.say(delta.string("text"));
                }
            }
            Some("message_delta") => {
                let delta = data.object("delta").unwrap_or_default();
                self.has_stop_reason |= delta.string("stop_reason").is_some();
                self.count(&data);
            }
            Some("message_stop") if self.has_message => return Err(End::Complete(self.usage)),
            _ => {}
        }
        Ok(())
    }

    /// Figures are cumulative: later ones replace what was there.
    fn count(&mut self, of: &Fields<'_>) {
        let Some(usage) = of.object("usage") else { return };
        let tokens = |name| usage.get(name).and_then(|count| count.get().parse().ok());
        self.usage.input_tokens = tokens("input_tokens").unwrap_or(self.usage.input_tokens);
        self.usage.output_tokens = tokens("output_tokens").unwrap_or(self.usage.output_tokens);
    }

    fn say(&mut self, text: Option<std::borrow::Cow<'_, str>>) {
        let text = text.unwrap_or_default();
        let room = MAX_TEXT_BYTES.saturating_sub(self.text.len());
        self.text.push_str(text.get(..text.floor_char_boundary(room)).unwrap_or(&text));
    }

    /// Where the error event begins that is somewhere in what is held.
    fn hold_error_back(&mut self) {
        let mut start = 0;
        while let Some(rest) = self.held.get(start..).filter(|rest| !rest.is_empty()) {
            let length = first_boundary(rest).unwrap_or(rest.len());
            let events = Decoder::new().push(rest.get(..length).unwrap_or_default()).unwrap_or_default();
            if events.iter().any(|event| Some(&event.data) == self.error.as_ref()) {
                self.ready = start;
                return;
            }
            start += length;
        }
        // It cannot be told from the rest (its beginning has gone out): all of it goes as it came.
        self.ready = self.held.len();
    }
}

impl Default for Passage {
    fn default() -> Self {
        Self::new()
    }
}

/// How many bytes the first event has, its empty line included.
fn first_boundary(bytes: &[u8]) -> Option<usize> {
    let find = |pattern: &[u8]| bytes.windows(pattern.len()).position(|at| at == pattern).map(|at| at + pattern.len());
    BOUNDARIES.iter().filter_map(|pattern| find(pattern)).min()
}

/// How many bytes there are up to the end of the last event that is whole.
fn last_boundary(bytes: &[u8]) -> Option<usize> {
    let find = |pattern: &[u8]| bytes.windows(pattern.len()).rposition(|at| at == pattern).map(|at| at + pattern.len());
    BOUNDARIES.iter().filter_map(|pattern| find(pattern)).max()
}

/// An error event's data, with the job's name as a member.
fn with_job(data: &str, job: &str) -> Option<String> {
    let members = Fields::parse(data).ok().filter(|fields| !fields.0.is_empty())?;
    let text = data.trim_end().strip_suffix('}').filter(|_| members.get(JOB_MEMBER).is_none())?;
    // What is between the tokens of the JSON may be a line end, which would end the data.
    Some(format!("{},\"{JOB_MEMBER}\":{}}}", text.replace(['\n', '\r'], " "), raw::quote(job)))
}

/// An error as the API writes it.
fn error_body(failure: &Failure) -> String {
    struct Body<'a> {
        r#type: &'static str,
        error: Inner<'a>,
    }
    json::output!(Body<'_> { r#type, error });
    struct Inner<'a> {
        r#type: &'static str,
        message: &'a str,
    }
    json::output!(Inner<'_> { r#type, message });
    json::write(&Body { r#type: "error", error: Inner { r#type: "api_error", message: &failure.message } })
}

const BOUNDARIES: [&[u8]; 3] = [b"\n\n", b"\n\r\n", b"\r\r"];
/// The longest of them.
const BOUNDARY_BYTES: usize = 3;

/// The member of an error event that names the job.
pub const JOB_MEMBER: &str = "spillway_job";

/// As much of an unfinished event is held back.
pub const MAX_HELD_BYTES: usize = 256 * 1024;

/// As much text is kept: several times what a model can say at once.
pub const MAX_TEXT_BYTES: usize = 2 * 1024 * 1024;
