//! From a stream's events to the Message that a non-streaming call would have returned.
//!
//! We always stream (a non-streaming call holds one of six connections for as long as the model thinks), and callers must
//! not notice. What is not ours to understand stays the text that it was: the Message is `message_start`'s, member by
//! member, with blocks, `usage` and the members of `message_delta` spliced in. Three rules keep it honest:
//!
//! 1. **Unknown is harmless, wrong is not.** Unknown events, deltas and blocks are ignored or kept as they came. A known
//!    event that does not fit (a delta for a block that is not open, a block out of turn, no `message_start`) is
//!    `MalformedAnswer`: guessing would hand out an answer that nobody gave.
//! 2. **Complete is said, not assumed.** `message_stop`, or at least a stop reason; without either the answer is `Truncated`,
//!    however well it reads.
//! 3. **First content is a milestone.** It decides a probe and whether a later failure counts as overload, so
//!    `message_start`, `ping` and the start of an empty block, which an overloaded upstream sends too, are none.
//!
//! `message_delta` reports cumulative usage: its figures replace those of `message_start`, and `null` replaces nothing.

use std::borrow::Cow;

use crate::policy::cause::Cause;

use super::failure::Failure;
use super::raw::{self, Fields, Object};
use super::sse::{Event, EventTooLarge};

mod block;
mod message;
#[cfg(test)]
mod tests;

pub use message::{Message, Usage};

use block::Block;

/// What an event brought. Several may be true of one event, so these are facts side by side and not variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress<'a> {
    /// This was the answer's first content.
    pub first_content: bool,
    /// What the event adds to the answer's text ([`Message::text`]); may be empty.
    pub text: &'a str,
    /// The answer is complete: nothing that follows matters.
    pub complete: bool,
}

/// Puts an answer together, event by event.
#[derive(Debug, Default)]
pub struct Assembler {
    message: Option<Object>,
    blocks: Vec<Block>,
    bytes: usize,
    has_events: bool,
    has_content: bool,
    complete: bool,
}

impl Assembler {
    /// An assembler for one call's answer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether any content has arrived.
    #[must_use]
    pub const fn has_content(&self) -> bool {
        self.has_content
    }

    /// What is billed, as far as the upstream has said.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.message.as_ref().and_then(|message| message.get("usage")).map(Usage::of).unwrap_or_default()
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// The [`Failure`] that the upstream reports by an `error` event, or `MalformedAnswer`. Either ends the answer.
    pub fn feed(&mut self, event: &Event) -> Result<Progress<'_>, Failure> {
        if self.complete {
            return Ok(Progress { complete: true, ..Progress::default() });
        }
        if event.name.as_deref() == Some("error") {
            return Err(Failure::in_stream(&event.data));
        }
        self.bytes = self.bytes.saturating_add(event.data.len());
        if self.bytes > MAX_ANSWER_BYTES {
            return Err(Failure::malformed("The upstream's answer is larger than an answer can be."));
        }
        let data = Fields::parse(&event.data);
        let kind = match &data {
            Ok(data) => data.string("type").or(event.name.as_deref().map(Cow::from)),
            Err(_) => event.name.as_deref().map(Cow::from),
        };
        let data = match (kind.as_deref(), data) {
            (None | Some(MESSAGE_START | BLOCK_START | BLOCK_DELTA | BLOCK_STOP | MESSAGE_DELTA), Err(_)) => {
                return Err(Failure::malformed("An event of the upstream's answer is not JSON."));
            }
            (_, data) => data.unwrap_or_default(),
        };
        self.has_events |= kind.is_some();
        match kind.as_deref() {
            Some(MESSAGE_START) => self.start(&data),
            Some(BLOCK_START) => self.start_block(&data),
            Some(BLOCK_DELTA) => self.grow_block(&data),
            Some(BLOCK_STOP) => self.stop_block(&data),
            Some(MESSAGE_DELTA) => self.update(&data),
            Some("message_stop") => self.stop(),
            Some("error") => Err(Failure::in_stream(&event.data)),
            _ => Ok(Progress::default()),
        }
    }

    /// The Message, when the stream has ended. `rest` is what [`super::sse::Decoder::finish`] found: taken if it is whole,
    /// and otherwise only the sign that the stream was cut.
    ///
    /// # Errors
    /// `Truncated` if the answer is not complete, `MalformedAnswer` if it is none, or what `rest` reports.
    pub fn finish(mut self, rest: Option<Event>) -> Result<Message, Failure> {
        if let Some(Err(failure)) = rest.map(|event| self.feed(&event).map(drop))
            && failure.cause != Cause::MalformedAnswer
        {
            return Err(failure);
        }
        let Some(mut message) = self.message else {
            return Err(if self.has_events {
                Failure::transport(Cause::Truncated)
            } else {
                Failure::malformed("The upstream's answer holds no event of a Messages stream.")
            });
        };
        let stop_reason = message.get("stop_reason").and_then(raw::string).map(Cow::into_owned);
        if !self.complete && stop_reason.is_none() {
            return Err(Failure::transport(Cause::Truncated));
        }
        let finished = matches!(stop_reason.as_deref(), Some("end_turn" | "tool_use" | "stop_sequence" | "pause_turn"));
        let last = self.blocks.len().saturating_sub(1);
        let mut content = String::from("[");
        for (index, block) in self.blocks.into_iter().enumerate() {
            if index > 0 {
                content.push(',');
            }
            block.write(!finished && index == last, &mut content)?;
        }
        content.push(']');
        message.set("content", content);
        let mut json = String::new();
        message.write(&mut json);
        Message::read(json)
    }

    fn start(&mut self, data: &Fields<'_>) -> Result<Progress<'_>, Failure> {
        let message =
            data.object("message").ok_or_else(|| Failure::malformed("The upstream's message_start has no message."))?;
        if self.message.is_some() {
            return Err(Failure::malformed("The upstream began its answer twice."));
        }
        self.message = Some(Object::from(&message));
        Ok(Progress::default())
    }

    fn start_block(&mut self, data: &Fields<'_>) -> Result<Progress<'_>, Failure> {
        let block = data
            .object("content_block")
            .ok_or_else(|| Failure::malformed("The upstream began a block with nothing."))?;
        if self.message.is_none() || index(data)? != self.blocks.len() {
            return Err(out_of_turn());
        }
        let block = Block::new(&block);
        let first_content = block.has_content() && !std::mem::replace(&mut self.has_content, true);
        self.blocks.push(block);
        Ok(Progress { first_content, text: self.blocks.last_mut().map_or("", Block::first_text), complete: false })
    }

    fn grow_block(&mut self, data: &Fields<'_>) -> Result<Progress<'_>, Failure> {
        let delta = data.object("delta").ok_or_else(|| Failure::malformed("The upstream sent an empty delta."))?;
        let block = self.blocks.get_mut(index(data)?).filter(|block| block.open).ok_or_else(out_of_turn)?;
        let text = block.grow(&delta)?;
        let first_content = !std::mem::replace(&mut self.has_content, true);
        Ok(Progress { first_content, text, complete: false })
    }

    fn stop_block(&mut self, data: &Fields<'_>) -> Result<Progress<'_>, Failure> {
        let block = self.blocks.get_mut(index(data)?).filter(|block| block.open).ok_or_else(out_of_turn)?;
        block.open = false;
        Ok(Progress::default())
    }

    fn update(&mut self, data: &Fields<'_>) -> Result<Progress<'_>, Failure> {
        let message = self.message.as_mut().ok_or_else(out_of_turn)?;
        for (name, value) in data.object("delta").unwrap_or_default().0 {
            message.merge(&name, value.get());
        }
        for (name, value) in &data.0 {
            match name.as_ref() {
                "type" | "delta" => {}
                "usage" => {
                    let known = message.get("usage").and_then(|usage| Fields::parse(usage).ok()).unwrap_or_default();
                    let mut usage = Object::from(&known);
                    for (name, value) in data.object("usage").unwrap_or_default().0 {
                        usage.merge(&name, value.get());
                    }
                    let mut json = String::new();
                    usage.write(&mut json);
                    message.set("usage", json);
                }
                _ => message.merge(name, value.get()),
            }
        }
        Ok(Progress::default())
    }

    fn stop(&mut self) -> Result<Progress<'_>, Failure> {
        if self.message.is_none() {
            return Err(out_of_turn());
        }
        self.complete = true;
        Ok(Progress { complete: true, ..Progress::default() })
    }
}

impl From<EventTooLarge> for Failure {
    fn from(_: EventTooLarge) -> Self {
        Self::malformed("An event of the upstream's answer is larger than an event can be.")
    }
}

/// Whether a block that begins like this is content before any delta of it.
pub(super) fn is_first_content(start: &Fields<'_>) -> bool {
    Block::new(start).has_content()
}

fn index(data: &Fields<'_>) -> Result<usize, Failure> {
    data.get("index").and_then(|index| index.get().parse().ok()).ok_or_else(out_of_turn)
}

fn out_of_turn() -> Failure {
    Failure::malformed("The events of the upstream's answer do not follow from one another.")
}

const MESSAGE_START: &str = "message_start";
const BLOCK_START: &str = "content_block_start";
const BLOCK_DELTA: &str = "content_block_delta";
const BLOCK_STOP: &str = "content_block_stop";
const MESSAGE_DELTA: &str = "message_delta";

/// The largest answer: three times what 64,000 tokens in as many events amount to, and an isolate has 128 MB for all.
pub const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;
