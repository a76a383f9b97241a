//! `PUT /v1/gates/{model}/override`: what the operator sends, and what the gate is told (B11).
//!
//! `{"state": "open" | "closed", "until": RFC 3339, "note": "…", "author"?: "operator"}`. Every order has an end and a reason:
//! whoever finds a gate forced has to know why, and nobody should have to remember to undo it. The end is a moment, as it is
//! what people agree on; it becomes a duration here, by the clock of the Worker that was asked, because between machines
//! only durations travel.
//!
//! Any id that a job could name as its model is taken, heard of or not: a gate is made when it is first asked for, and to keep
//! a model from being called before it ever was is a reason to override.

use super::error::ApiError;
use super::form::Form;
use super::moment;
use crate::claude::request::{MAX_MODEL_BYTES, Problem};
use crate::policy::forced::{LONGEST_ORDER, Order};
use crate::policy::time::Timestamp;

/// Reads an order for the gate of `model`: `None` if that cannot be one.
///
/// # Errors
/// 400 with every fault, the model's among them.
pub fn order<'m>(model: Option<&'m str>, body: &[u8], now: Timestamp) -> Result<(&'m str, Order), ApiError> {
    let mut form = Form::parse(body, &FIELDS)?;
    let state = form.required("state", "\"open\" or \"closed\"");
    let until = form.required::<String>("until", UNTIL);
    let lasts = until.as_deref().and_then(moment::parse).map(|until| until.after(now));
    let in_range = lasts.filter(|lasts| !lasts.is_zero() && *lasts <= LONGEST_ORDER);
    if until.is_some() && in_range.is_none() {
        form.problem("until", format!("must be {UNTIL}"));
    }
    let note = form.required::<String>("note", NOTE);
    if note.as_deref().is_some_and(|note| !is_text(note, MAX_NOTE_CHARS)) {
        form.problem("note", format!("must be {NOTE}"));
    }
    let author = form.checked("author", AUTHOR, |author| is_text(author, MAX_AUTHOR_CHARS));
    if model.is_none() {
        form.problems.insert(0, no_model());
    }
    match (model, state, in_range, note) {
        (Some(model), Some(state), Some(lasts), Some(note)) if form.problems.is_empty() => {
            let author = author.unwrap_or_else(|| DEFAULT_AUTHOR.to_owned());
            Ok((model, Order { state, lasts, note, author }))
        }
        _ => Err(ApiError::invalid(form.problems)),
    }
}

/// The model whose order is taken back.
///
/// # Errors
/// 400 if it cannot be one.
pub fn model(model: Option<&str>) -> Result<&str, ApiError> {
    model.ok_or_else(|| ApiError::invalid(vec![no_model()]))
}

fn no_model() -> Problem {
    Problem::new("model", format!("must be the id of a model, of 1 to {MAX_MODEL_BYTES} visible ASCII characters"))
}

/// Something to read, and not too much of it.
fn is_text(text: &str, most: usize) -> bool {
    !text.trim().is_empty() && text.chars().count() <= most
}

const FIELDS: [&str; 4] = ["state", "until", "note", "author"];
const UNTIL: &str =
    "a moment in the future, at most 7 days away, in RFC 3339: \"2026-11-30T13:05:12Z\", \"2026-11-30T14:05:12+01:00\"";
const NOTE: &str = "a text of 1 to 500 characters, why";
const AUTHOR: &str = "a text of 1 to 100 characters, who";
const DEFAULT_AUTHOR: &str = "operator";
const MAX_NOTE_CHARS: usize = 500;
const MAX_AUTHOR_CHARS: usize = 100;
