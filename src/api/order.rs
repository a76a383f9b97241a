//! What the operator's orders have in common: `{"until": RFC 3339, "note": "…", "author"?: "operator"}`.
//!
//! Every order has an end and a reason: whoever finds something forced, paused or shut has to know why, and nobody should have to
//! remember to undo it.

use std::time::Duration;

use super::form::Form;
use super::moment;
use crate::policy::forced::LONGEST_ORDER;
use crate::policy::time::Timestamp;

/// The members of an order.
pub const FIELDS: [&str; 3] = ["until", "note", "author"];

/// An order that can be carried out, whatever it orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// When it ends.
    pub until: Timestamp,
    /// For how long that is.
    pub lasts: Duration,
    /// Why.
    pub note: String,
    /// Who.
    pub author: String,
}

impl Ordered {
    /// Reads the members of an order; what is wrong with them is among the form's problems then.
    pub fn read(form: &mut Form<'_>, now: Timestamp) -> Option<Self> {
        let until = form.required::<String>("until", UNTIL);
        let end = until.as_deref().and_then(moment::parse).map(|until| (until, until.after(now)));
        let in_range = end.filter(|(_, lasts)| !lasts.is_zero() && *lasts <= LONGEST_ORDER);
        if until.is_some() && in_range.is_none() {
            form.problem("until", format!("must be {UNTIL}"));
        }
        let note = form.required::<String>("note", NOTE);
        if note.as_deref().is_some_and(|note| !is_text(note, MAX_NOTE_CHARS)) {
            form.problem("note", format!("must be {NOTE}"));
        }
        let author = form.checked("author", AUTHOR, |author| is_text(author, MAX_AUTHOR_CHARS));
        let (until, lasts) = in_range?;
        Some(Self { until, lasts, note: note?, author: author.unwrap_or_else(|| DEFAULT_AUTHOR.to_owned()) })
    }
}

/// Something to read, and not too much of it.
fn is_text(text: &str, most: usize) -> bool {
    !text.trim().is_empty() && text.chars().count() <= most
}

const UNTIL: &str =
    "a moment in the future, at most 7 days away, in RFC 3339: \"2026-11-30T13:05:12Z\", \"2026-11-30T14:05:12+01:00\"";
const NOTE: &str = "a text of 1 to 500 characters, why";
const AUTHOR: &str = "a text of 1 to 100 characters, who";
const DEFAULT_AUTHOR: &str = "operator";
const MAX_NOTE_CHARS: usize = 500;
const MAX_AUTHOR_CHARS: usize = 100;
