//! One content block while it grows.
//!
//! A delta names the member that it belongs to, so blocks need no list of their kinds: a block that is new to us is kept as
//! it came, and still grows by the deltas that are known. Which delta does what:
//!
//! | delta | does |
//! | --- | --- |
//! | `text_delta`, `thinking_delta` | append to `text`, `thinking` |
//! | `input_json_delta` | append to the text of `input`, parsed when the answer is over |
//! | `citations_delta` | add to `citations` |
//! | `signature_delta` | sets `signature` |
//! | `compaction_delta` | appends to `content`, sets `encrypted_content` |
//! | any other | nothing |

use super::super::failure::Failure;
use super::super::raw::{self, Fields, Json, Object};
use crate::json::Map;

/// A content block: what `content_block_start` said, and what has been added since.
#[derive(Debug)]
pub(super) struct Block {
    start: Object,
    is_text: bool,
    /// Members that grow as strings, by name.
    strings: Map<&'static str, String>,
    /// The text of `input`; empty until a delta brings some.
    input: String,
    /// The elements of `citations` that deltas have added.
    citations: Vec<String>,
    pub(super) open: bool,
}

impl Block {
    pub(super) fn new(start: &Fields<'_>) -> Self {
        Self {
            start: Object::from(start),
            is_text: start.string("type").is_some_and(|kind| kind == "text"),
            strings: Map::default(),
            input: String::new(),
            citations: Vec::new(),
            open: true,
        }
    }

    /// Whether the block carries content before any delta: it has a member that can grow and is not empty, or none at all
    /// (`redacted_thinking`, the results of server tools).
    pub(super) fn has_content(&self) -> bool {
        let mut growing =
            ["text", "thinking", "input", "content"].iter().filter_map(|name| self.start.get(name)).peekable();
        growing.peek().is_none() || growing.any(|json| !matches!(json, r#""""# | "{}" | "null"))
    }

    /// The text that the block began with, if it is a text block.
    pub(super) fn first_text(&mut self) -> &str {
        if !self.is_text || !self.has_content() {
            return "";
        }
        self.append("text", "");
        self.strings.get("text").map_or("", String::as_str)
    }

    /// Takes a delta; answers with what it adds to the answer's text.
    pub(super) fn grow(&mut self, delta: &Fields<'_>) -> Result<&str, Failure> {
        let broken = || Failure::malformed("The upstream sent a delta without its content.");
        let string = |name| delta.string(name).ok_or_else(broken);
        match delta.string("type").ok_or_else(broken)?.as_ref() {
            "text_delta" => {
                let is_text = self.is_text;
                let added = self.append("text", &string("text")?);
                return Ok(if is_text { added } else { "" });
            }
            "thinking_delta" => {
                self.append("thinking", &string("thinking")?);
            }
            "input_json_delta" => self.input.push_str(&string("partial_json")?),
            "citations_delta" => self.citations.push(delta.get("citation").ok_or_else(broken)?.get().to_owned()),
            "signature_delta" => self.start.set("signature", raw::quote(&string("signature")?)),
            "compaction_delta" => {
                if let Some(content) = delta.string("content") {
                    self.append("content", &content);
                }
                if let Some(encrypted) = delta.get("encrypted_content") {
                    self.start.merge("encrypted_content", encrypted.get());
                }
            }
            _ => {}
        }
        Ok("")
    }

    /// Appends the block as JSON to `out`.
    ///
    /// The `input` that a model was cut off in (`may_be_cut`: the last block of an answer that hit its limit) is no JSON.
    /// Such an answer is a result all the same, and a non-streaming call shows the input that the block began with, `{}`.
    pub(super) fn write(mut self, may_be_cut: bool, out: &mut String) -> Result<(), Failure> {
        for (name, value) in self.strings.iter() {
            self.start.set(name, raw::quote(value));
        }
        if !self.input.is_empty() {
            match Json::parse(&self.input) {
                Ok(input) => self.start.set("input", input.get().to_owned()),
                Err(_) if may_be_cut => {}
                Err(_) => return Err(Failure::malformed("The input of the upstream's tool call is not JSON.")),
            }
        }
        if !self.citations.is_empty() {
            let mut all = Vec::new();
            if let Some(first) = self.start.get("citations") {
                // Anything but a list (it is null as a rule) has nothing to keep.
                let _ = raw::for_each_element(first, &mut |citation| all.push(citation.get().to_owned()));
            }
            all.append(&mut self.citations);
            self.start.set("citations", format!("[{}]", all.join(",")));
        }
        self.start.write(out);
        Ok(())
    }

    /// Appends to the growing string `name`, which begins with what the block began with. Answers with what is new in it.
    fn append(&mut self, name: &'static str, more: &str) -> &str {
        let begin = || self.start.get(name).and_then(raw::string).unwrap_or_default().into_owned();
        let mut string = self.strings.remove(&name).unwrap_or_else(begin);
        let old = string.len();
        string.push_str(more);
        self.strings.insert(name, string);
        self.strings.get(name).and_then(|string| string.get(old..)).unwrap_or_default()
    }
}
