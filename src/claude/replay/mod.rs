//! The stream that a finished Message would have come in.
//!
//! Whoever asks for a stream gets one, also if the answer was there before they asked. Its events are those of the API, so
//! that every client puts the same Message together again; they only come faster, and in larger pieces.
//!
//! What goes where is decided by what the official SDKs do with it. They begin with the Message of `message_start` and the
//! block of `content_block_start`, keep all that they do not know, append the deltas that they do know, and then *replace*
//! what `message_delta` is known to bring, by nothing if it does not bring it. So:
//!
//! - `message_start` has all members, with no content, no stop reason, and one output token, as in the API;
//! - `message_delta` has the members that SDKs take from there: `stop_reason`, `stop_sequence`, `stop_details` and
//!   `container` as its delta, `usage` whole, `context_management` beside it;
//! - a block's text, thinking, input and compaction begin empty and come as deltas, its citations and its signature after
//!   them, for many clients read nothing but deltas. Blocks of all other kinds are whole from the start, and so is one of a
//!   known kind that is not as it should be.
//!
//! The law: [`Assembler`](super::response::Assembler) makes the same Message of it.

#[cfg(test)]
mod tests;

use super::raw::{self, Fields, Json, Object};

/// The events of a Message, in chunks of some 64 KB that are sent one after the other. Only one of them and one block's text
/// are in memory beside the Message.
#[derive(Debug)]
pub struct Replay {
    json: String,
    /// What is to be sent first.
    ready: String,
    /// Where the blocks are that have not begun.
    blocks: std::vec::IntoIter<(usize, usize)>,
    index: usize,
    growing: Option<Growing>,
    /// What is to be sent last.
    end: String,
}

/// A block whose deltas are being sent.
#[derive(Debug)]
struct Growing {
    /// The delta's type, and the name of its text.
    delta: [&'static str; 2],
    text: String,
    sent: usize,
    /// The events after it.
    rest: String,
}

impl Replay {
    /// The replay of the Message in `json`; `None` if that is no Message, or one of more than [`MAX_BLOCKS`] blocks.
    #[must_use]
    pub fn new(json: String) -> Option<Self> {
        let fields = Fields::parse(&json).ok()?;
        let content = fields.get("content").filter(|_| fields.string("type").is_some_and(|kind| kind == "message"))?;
        let mut blocks = Vec::new();
        let mut count = 0_usize;
        raw::for_each_element(content.get(), &mut |block| {
            count += 1;
            if count <= MAX_BLOCKS {
                let start = block.get().as_ptr().addr().saturating_sub(json.as_ptr().addr());
                blocks.push((start, start + block.get().len()));
            }
        })
        .ok()?;
        if count > MAX_BLOCKS {
            return None;
        }
        let usage = fields.object("usage").map(|usage| {
            let tokens = usage.get("output_tokens").map_or("", Json::get);
            let at_first = if tokens.parse().is_ok_and(|tokens: u64| tokens > 1) { "1" } else { tokens };
            with(&usage, &[("output_tokens", at_first)])
        });
        let mut changes =
            vec![("content", "[]"), ("stop_reason", "null"), ("stop_sequence", "null"), ("stop_details", "null")];
        changes.extend(usage.as_deref().map(|usage| ("usage", usage)));
        let message = with(&fields, &changes);
        let mut ready = String::new();
        push(&mut ready, "message_start", &format!(r#""message":{message}"#));

        let mut delta = Object::default();
        for name in ["container", "stop_details", "stop_reason", "stop_sequence"] {
            if let Some(value) = fields.get(name) {
                delta.set(name, value.get().to_owned());
            }
        }
        let mut update = String::from(r#""delta":"#);
        delta.write(&mut update);
        for (name, is_sent) in [("usage", usage.is_some()), ("context_management", true)] {
            if let Some(value) = fields.get(name).filter(|_| is_sent) {
                update.push_str(&format!(r#","{name}":{}"#, value.get()));
            }
        }
        let mut end = String::new();
        push(&mut end, "message_delta", &update);
        push(&mut end, "message_stop", "");
        Some(Self { ready, blocks: blocks.into_iter(), index: 0, growing: None, end, json })
    }

    /// Begins the next block: adds its first events to `out`, and the rest of them to what is being sent.
    fn begin(&mut self, (start, end): (usize, usize), out: &mut String) {
        let index = self.index;
        self.index += 1;
        let block = self.json.get(start..end).unwrap_or_default();
        let fields = Fields::parse(block).unwrap_or_default();
        let string = |name: &str| fields.string(name).map(String::from);
        let raw = |name: &str| fields.get(name).map_or("null", Json::get);
        let mut rest = String::new();
        let mut changes = Vec::new();
        let mut growing = None;
        match fields.string("type").as_deref() {
            Some("text") => {
                growing = string("text").map(|text| (["text_delta", "text"], text));
                if growing.is_some() {
                    changes.push(("text", r#""""#));
                    let mut has_citations = false;
                    let _ = raw::for_each_element(raw("citations"), &mut |citation| {
                        has_citations = true;
                        push_delta(&mut rest, index, "citations_delta", &format!(r#""citation":{}"#, citation.get()));
                    });
                    if has_citations {
                        changes.push(("citations", "[]"));
                    }
                }
            }
            Some("thinking") => {
                growing = string("thinking").map(|text| (["thinking_delta", "thinking"], text));
                if growing.is_some() {
                    changes.push(("thinking", r#""""#));
                    if string("signature").is_some_and(|signature| !signature.is_empty()) {
                        changes.push(("signature", r#""""#));
                        let signature = format!(r#""signature":{}"#, raw("signature"));
                        push_delta(&mut rest, index, "signature_delta", &signature);
                    }
                }
            }
            Some("tool_use" | "server_tool_use" | "mcp_tool_use") if raw("input").starts_with('{') => {
                let input = if raw("input") == "{}" { "" } else { raw("input") };
                growing = Some((["input_json_delta", "partial_json"], input.to_owned()));
                changes.push(("input", "{}"));
            }
            Some("compaction") if string("content").is_some() => {
                changes.push(("content", "null"));
                let encrypted = fields.get("encrypted_content").map(Json::get);
                let encrypted = encrypted.map(|text| format!(r#","encrypted_content":{text}"#)).unwrap_or_default();
                let members = format!(r#""content":{}{encrypted}"#, raw("content"));
                push_delta(&mut rest, index, "compaction_delta", &members);
            }
            _ => {}
        }
        let block = if changes.is_empty() { block.to_owned() } else { with(&fields, &changes) };
        push(out, "content_block_start", &format!(r#""index":{index},"content_block":{block}"#));
        push(&mut rest, "content_block_stop", &format!(r#""index":{index}"#));
        match growing {
            Some((delta, text)) => {
                if delta[0] == "input_json_delta" {
                    // As the API does, so that a tool without input has a delta too.
                    push_delta(out, index, delta[0], r#""partial_json":"""#);
                }
                self.growing = Some(Growing { delta, text, sent: 0, rest });
            }
            None => out.push_str(&rest),
        }
    }
}

impl Iterator for Replay {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut out = std::mem::take(&mut self.ready);
        while out.len() < CHUNK_BYTES {
            if let Some(growing) = &mut self.growing {
                let text = growing.text.get(growing.sent..).unwrap_or_default();
                let piece = text.get(..text.floor_char_boundary(PIECE_BYTES)).unwrap_or_default();
                if piece.is_empty() {
                    out.push_str(&growing.rest);
                    self.growing = None;
                    continue;
                }
                let [kind, name] = growing.delta;
                let index = self.index.saturating_sub(1);
                push_delta(&mut out, index, kind, &format!(r#""{name}":{}"#, raw::quote(piece)));
                growing.sent += piece.len();
            } else if let Some(block) = self.blocks.next() {
                self.begin(block, &mut out);
            } else {
                out.push_str(&std::mem::take(&mut self.end));
                break;
            }
        }
        (!out.is_empty()).then_some(out)
    }
}

/// The object with other values for some of the members that it has.
fn with(fields: &Fields<'_>, changes: &[(&str, &str)]) -> String {
    let mut object = Object::default();
    for (name, value) in &fields.0 {
        if object.get(name).is_none() {
            let change = changes.iter().find(|(changed, _)| changed == name);
            object.set(name, change.map_or(value.get(), |(_, json)| json).to_owned());
        }
    }
    let mut json = String::new();
    object.write(&mut json);
    json
}

fn push_delta(out: &mut String, index: usize, kind: &str, member: &str) {
    push(out, "content_block_delta", &format!(r#""index":{index},"delta":{{"type":"{kind}",{member}}}"#));
}

/// Appends an event. What is between the tokens of an upstream's JSON may be a line end, which would end the data.
fn push(out: &mut String, name: &str, members: &str) {
    let comma = if members.is_empty() { "" } else { "," };
    out.push_str(&format!("event: {name}\ndata: {{\"type\":\"{name}\"{comma}"));
    for part in members.split_inclusive(['\n', '\r']) {
        match part.strip_suffix(['\n', '\r']) {
            Some(line) => {
                out.push_str(line);
                out.push(' ');
            }
            None => out.push_str(part),
        }
    }
    out.push_str("}\n\n");
}

/// The most blocks of one Message: far above any answer, and an isolate's memory has room for their places.
pub const MAX_BLOCKS: usize = 100_000;

/// How much text a delta has: SDKs parse a tool's input again with every one.
const PIECE_BYTES: usize = 4 * 1024;

/// How much is sent at once, more or less.
const CHUNK_BYTES: usize = 64 * 1024;
