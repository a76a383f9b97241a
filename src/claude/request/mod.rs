//! Whether a Messages body can be sent at all, and what its calls consist of.
//!
//! The body stays the text that the client sent. `model` and `stream` are ours (the ladder picks the one, we always stream),
//! so they are taken out and spliced in again at the front of every call; all other members go upstream byte for byte.
//!
//! What is checked is what the upstream is certain to refuse: a wrong `max_tokens` found here costs a client milliseconds,
//! found there it costs a job. What we cannot be certain about passes, because a check that is wrong, or becomes wrong with
//! the next model, cannot be worked around. Hence: unknown members and blocks pass, an optional member may be `null`, the
//! last message of the assistant may be empty (a prefill). A role must be one of three (`system` messages exist on newer
//! models): those are few and old enough that another is a typing error.
//!
//! All problems are reported at once, each with its place, up to [`MAX_PROBLEMS`]: a body of eight megabytes can hold
//! millions. For the same reason nothing is collected but the top level: messages and blocks are looked at one by one, by
//! skipping over the text; each level skips over what is inside it again, and skipping is fast and does not recurse.

use super::demands::Gathering;
use super::raw::{self, Fields, Json};
use super::wording::sanitise;
use crate::policy::demands::Demands;

mod shape;
#[cfg(test)]
mod tests;

pub use shape::{MAX_PROBLEMS, Problem};

use shape::{Kind, Path, Problems, check_escapes, each, expect, kind, object};

/// A Messages body, ready to be called with any model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagesRequest {
    /// The model that the client asks for, if it names one.
    pub model: Option<String>,
    /// `max_tokens`
    pub max_tokens: u64,
    /// All members but `model` and `stream`, raw, in order, separated by commas. Never empty. A call's body is
    /// [`call_body_prefix`] + `body_rest` + `}`.
    pub body_rest: String,
    /// `stream`
    pub stream: bool,
    /// What it asks of a model. The betas are in a header, and not among it yet.
    pub demands: Demands,
}

/// What comes before [`MessagesRequest::body_rest`] in the body of a call to `model`.
#[must_use]
pub fn call_body_prefix(model: &str, stream: bool) -> String {
    format!(r#"{{"model":{},"stream":{stream},"#, raw::quote(model))
}

impl MessagesRequest {
    /// Parses the body in `json`, which the problems call `place`.
    ///
    /// # Errors
    /// Every problem, in the order of the body; at most [`MAX_PROBLEMS`], and one more that says so.
    pub fn parse(json: &str, place: &str) -> Result<Self, Vec<Problem>> {
        let mut problems = Problems::default();
        match parse(json, place, &mut problems) {
            Some(request) if problems.list.is_empty() => Ok(request),
            _ => {
                if problems.more {
                    problems.list.push(Problem::new(place, "has more problems than are listed here"));
                }
                Err(problems.list)
            }
        }
    }
}

fn parse(json: &str, place: &str, problems: &mut Problems) -> Option<MessagesRequest> {
    if !expect(json, &[Kind::Object], &|| place.to_owned(), problems) {
        return None;
    }
    let fields = match Fields::parse(json) {
        Ok(fields) => fields,
        Err(error) => {
            problems.add(|| Problem::new(place, format!("is not a usable JSON object: {error}")));
            return None;
        }
    };
    let (mut model, mut max_tokens, mut stream) = (None, None, false);
    let mut gathering = Gathering::default();
    let mut rest = String::with_capacity(json.len());
    for (index, (name, value)) in fields.0.iter().enumerate() {
        let path = || format!("{place}.{}", sanitise(name, MAX_NAME_CHARS));
        if fields.0.iter().take(index).any(|(earlier, _)| earlier == name) {
            problems.add(|| Problem::new(path(), "appears twice"));
            continue;
        }
        let value = value.get();
        check_escapes(value, &path, problems);
        gathering.member(name, value);
        match name.as_ref() {
            "model" => model = check_model(value, &path, problems),
            "stream" => stream = expect(value, &[Kind::Boolean, Kind::Null], &path, problems) && value == "true",
            "max_tokens" => max_tokens = check_max_tokens(value, &path, problems),
            "messages" => check_messages(value, &path, problems, &mut gathering),
            name => {
                if let Some((_, kinds)) = TYPES.iter().find(|(known, _)| *known == name) {
                    expect(value, kinds, &path, problems);
                }
            }
        }
        if !matches!(name.as_ref(), "model" | "stream") {
            if !rest.is_empty() {
                rest.push(',');
            }
            rest.push_str(&raw::quote(name));
            rest.push(':');
            rest.push_str(value);
        }
    }
    for required in ["messages", "max_tokens"] {
        if fields.get(required).is_none() {
            problems.add(|| Problem::new(format!("{place}.{required}"), "is missing"));
        }
    }
    let demands = gathering.finish(rest.len());
    Some(MessagesRequest { model, max_tokens: max_tokens?, stream, body_rest: rest, demands })
}

/// Whether this can be a model's id: nobody knows them all.
#[must_use]
pub fn is_model(text: &str) -> bool {
    (1..=MAX_MODEL_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn check_model(json: &str, path: Path<'_>, problems: &mut Problems) -> Option<String> {
    if kind(json) == Kind::Null {
        return None;
    }
    let model = raw::string(json).filter(|model| is_model(model));
    if model.is_none() {
        let what = format!("must be the id of a model, of 1 to {MAX_MODEL_BYTES} visible ASCII characters");
        problems.add(|| Problem::new(path(), what));
    }
    model.map(String::from)
}

fn check_max_tokens(json: &str, path: Path<'_>, problems: &mut Problems) -> Option<u64> {
    let max_tokens = json.parse().ok().filter(|&tokens| tokens > 0);
    if max_tokens.is_none() {
        problems.add(|| Problem::new(path(), "must be a whole number, at least 1"));
    }
    max_tokens
}

fn check_messages(json: &str, path: Path<'_>, problems: &mut Problems, gathering: &mut Gathering) {
    let (mut count, mut empty_assistant) = (0_usize, None);
    each(json, path, problems, |message, path, problems| {
        if let Some(place) = empty_assistant.take() {
            problems.add(|| Problem::new(place, EMPTY_CONTENT));
        }
        count += 1;
        let Some(fields) = object(message, path, problems) else { return };
        gathering.message(&fields);
        let role = fields.string("role");
        if !matches!(role.as_deref(), Some("user" | "assistant" | "system")) {
            problems.add(|| Problem::new(format!("{}.role", path()), r#"must be "user", "assistant" or "system""#));
        }
        let path = || format!("{}.content", path());
        match fields.get("content").map(Json::get) {
            None => problems.add(|| Problem::new(path(), "is missing")),
            Some(content) if is_empty(content) => {
                if role.as_deref() == Some("assistant") {
                    empty_assistant = Some(path());
                } else {
                    problems.add(|| Problem::new(path(), EMPTY_CONTENT));
                }
            }
            Some(content) if kind(content) == Kind::Array => check_blocks(content, &path, problems, gathering),
            Some(content) => drop(expect(content, &[Kind::String, Kind::Array], &path, problems)),
        }
    });
    if count == 0 && kind(json) == Kind::Array {
        problems.add(|| Problem::new(path(), "must hold at least one message"));
    }
}

fn check_blocks(json: &str, path: Path<'_>, problems: &mut Problems, gathering: &mut Gathering) {
    each(json, path, problems, |block, path, problems| {
        let Some(fields) = object(block, path, problems) else { return };
        gathering.block(&fields);
        if fields.get("type").is_none_or(|kind_of_block| kind(kind_of_block.get()) != Kind::String) {
            problems.add(|| Problem::new(format!("{}.type", path()), "must be a string"));
        }
    });
}

/// An empty string or array, however it is spaced.
fn is_empty(json: &str) -> bool {
    let inner = json.strip_prefix('[').and_then(|json| json.strip_suffix(']'));
    json == r#""""# || inner.is_some_and(|inner| inner.trim().is_empty())
}

/// Optional members whose type the upstream insists on.
const TYPES: &[(&str, &[Kind])] = &[
    ("system", &[Kind::String, Kind::Array, Kind::Null]),
    ("tools", &[Kind::Array, Kind::Null]),
    ("tool_choice", &[Kind::Object, Kind::Null]),
    ("thinking", &[Kind::Object, Kind::Null]),
    ("metadata", &[Kind::Object, Kind::Null]),
    ("stop_sequences", &[Kind::Array, Kind::Null]),
    ("temperature", &[Kind::Number, Kind::Null]),
    ("top_p", &[Kind::Number, Kind::Null]),
    ("top_k", &[Kind::Number, Kind::Null]),
    ("service_tier", &[Kind::String, Kind::Null]),
];

const EMPTY_CONTENT: &str = "must not be empty";

/// The longest model id; it becomes part of keys, logs and metrics.
pub const MAX_MODEL_BYTES: usize = 200;

const MAX_NAME_CHARS: usize = 60;
