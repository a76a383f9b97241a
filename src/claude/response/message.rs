//! A finished answer.

use super::super::failure::Failure;
use super::super::raw::{self, Fields};

/// A complete Message, and what the house itself needs to know of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The Message as JSON: exactly what a non-streaming call would have returned.
    pub json: String,
    /// All text blocks, one after the other.
    pub text: String,
    /// The model that answered; empty if the upstream did not say.
    pub model: String,
    /// Why the model stopped. `refusal`, `max_tokens`, `pause_turn` and the like are results, not failures.
    pub stop_reason: Option<String>,
    /// What it cost.
    pub usage: Usage,
}

/// Tokens as the Message reports them; a figure that it does not report is 0. Cached input is not part of `input_tokens`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// `usage.input_tokens`
    pub input_tokens: u64,
    /// `usage.output_tokens`
    pub output_tokens: u64,
}

impl Usage {
    /// From the text of a `usage` member; what is missing or no number is 0.
    #[must_use]
    pub fn of(json: &str) -> Self {
        let fields = Fields::parse(json).unwrap_or_default();
        let tokens = |name| fields.get(name).and_then(|count| count.get().parse().ok()).unwrap_or(0);
        Self { input_tokens: tokens("input_tokens"), output_tokens: tokens("output_tokens") }
    }
}

impl Message {
    /// The Message in the body of a non-streaming answer (an upstream may answer `stream: true` with one).
    ///
    /// # Errors
    /// A [`Failure`] by the type of the error if the body is one, else `MalformedAnswer`.
    pub fn from_json(body: &[u8]) -> Result<Self, Failure> {
        if body.len() > super::MAX_ANSWER_BYTES {
            return Err(Failure::malformed("The upstream's answer is larger than an answer can be."));
        }
        let text = std::str::from_utf8(body).map_err(|_| Failure::malformed("The upstream's answer is not UTF-8."))?;
        Self::read(text.trim().to_owned())
    }

    pub(super) fn read(json: String) -> Result<Self, Failure> {
        let not_a_message = || Failure::malformed("The upstream answered with something that is not a Message.");
        let fields = Fields::parse(&json).map_err(|_| not_a_message())?;
        match fields.string("type").as_deref() {
            Some("message") => {}
            Some("error") => return Err(Failure::in_stream(&json)),
            _ => return Err(not_a_message()),
        }
        let content = fields.get("content").ok_or_else(not_a_message)?;
        let (mut text, mut blocks_are_objects) = (String::new(), true);
        raw::for_each_element(content.get(), &mut |block| match Fields::parse(block.get()) {
            Ok(block) if block.string("type").is_some_and(|kind| kind == "text") => {
                text.push_str(&block.string("text").unwrap_or_default());
            }
            Ok(_) => {}
            Err(_) => blocks_are_objects = false,
        })
        .map_err(|_| not_a_message())?;
        if !blocks_are_objects {
            return Err(not_a_message());
        }
        Ok(Self {
            text,
            model: fields.string("model").unwrap_or_default().into_owned(),
            stop_reason: fields.string("stop_reason").map(String::from),
            usage: fields.get("usage").map(|usage| Usage::of(usage.get())).unwrap_or_default(),
            json,
        })
    }
}
