//! A job's live events, as server-sent events: what is told, and from where on.
//!
//! | event | data |
//! | --- | --- |
//! | `status` | the status, exactly as `GET /v1/jobs/{id}` answers it |
//! | `text` | `{"draft","text"}`: what has been added to the text of that draft |
//! | `draft_discarded` | `{"draft","reason"}`: the draft comes to nothing |
//!
//! Once a job is watched, the Job object keeps a **journal** of what its status was: what a reader missed while it was away is
//! told when it comes back, in order. The journal's newest entry is always the status that the job has now; the text is not in
//! it, since it can be sent from any place on. An event's id says how far its reader has come in both ([`Cursor`]).

use std::fmt;
use std::str::FromStr;

use super::status::Published;
use crate::job::Discarded;
use crate::json;
use crate::policy::wording::Wording;

/// How far a reader has come: an event's `id`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The last entry of the journal that it has been told of.
    pub entry: u64,
    /// The draft that it has text of; 0 for none.
    pub draft: u32,
    /// How many bytes of it.
    pub bytes: usize,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.entry, self.draft, self.bytes)
    }
}

/// The text is no event's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidCursor;

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let mut numbers = text.split('.');
        let mut number = || numbers.next().and_then(|number| number.parse::<u64>().ok()).ok_or(InvalidCursor);
        let (entry, draft, bytes) = (number()?, number()?, number()?);
        let (draft, bytes) = (draft.try_into().ok(), bytes.try_into().ok());
        match (draft, bytes, numbers.next()) {
            (Some(draft), Some(bytes), None) => Ok(Self { entry, draft, bytes }),
            _ => Err(InvalidCursor),
        }
    }
}

/// What the journal keeps.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one of them at a time")]
pub enum Entry {
    /// The job's status was this one, and its user was told that.
    Status {
        /// The status' revision.
        revision: u64,
        /// What its user was told.
        wording: Wording,
        /// The status itself; not kept of a final one, which does not change any more.
        published: Option<Published>,
    },
    /// A draft came to nothing.
    Discarded(Discarded),
}

json::choice!(Entry {
    "status" => Status { revision, wording, published },
    "discarded" => Discarded(discarded),
});

impl Entry {
    /// The status as it is now.
    #[must_use]
    pub fn of(published: Published) -> Self {
        let (revision, wording) = (published.revision, published.wording);
        Self::Status { revision, wording, published: (!published.is_final).then_some(published) }
    }

    /// Whether it tells of this status.
    #[must_use]
    pub fn tells(&self, of_revision: u64, and_wording: Wording) -> bool {
        matches!(self, Self::Status { revision, wording, .. } if (*revision, *wording) == (of_revision, and_wording))
    }
}

/// The beginning of every stream: after how many milliseconds a browser connects again.
pub const RETRY: &str = "retry: 2000\n\n";
/// Says only that the line is not dead.
pub const HEARTBEAT: &str = ": heartbeat\n\n";

/// A status, for a reader who has then come to `cursor`.
#[must_use]
pub fn status(cursor: Cursor, status: &str) -> String {
    event("status", cursor, status)
}

/// Text of a draft.
#[must_use]
pub fn text(cursor: Cursor, text: &str) -> String {
    event("text", cursor, &json::write(&Grown { draft: cursor.draft, text }))
}

/// The end of a draft.
#[must_use]
pub fn discarded(cursor: Cursor, discarded: &Discarded) -> String {
    let reason = discarded.cause.map_or("interrupted", crate::policy::cause::Cause::name);
    event("draft_discarded", cursor, &json::write(&Void { draft: discarded.draft, reason }))
}

fn event(name: &str, cursor: Cursor, data: &str) -> String {
    // Between the members of a Message there may be line breaks; within its strings there are none.
    let data = data.replace(['\r', '\n'], " ");
    format!("event: {name}\nid: {cursor}\ndata: {data}\n\n")
}

struct Grown<'a> {
    draft: u32,
    text: &'a str,
}

json::output!(Grown<'_> { draft, text });

struct Void {
    draft: u32,
    reason: &'static str,
}

json::output!(Void { draft, reason });

/// Where in `text` a reader goes on who has `bytes` of it; a place within a character, which no id of ours is, is its beginning.
#[must_use]
pub fn rest(text: &str, bytes: usize) -> &str {
    let mut at = bytes.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    text.get(at..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written_and_anything_else_is_none() {
        for cursor in [Cursor::default(), Cursor { entry: u64::MAX, draft: u32::MAX, bytes: 7 }] {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for text in ["", "1", "1.2", "1.2.3.4", "1.-2.3", "a.b.c", "1.4294967296.0", "1..2", " 1.2.3"] {
            assert_eq!(text.parse::<Cursor>(), Err(InvalidCursor), "{text}");
        }
    }

    #[test]
    fn an_event_is_three_lines_whatever_is_in_it() {
        let cursor = Cursor { entry: 3, draft: 2, bytes: 9 };
        assert_eq!(status(cursor, "{\r\n \"a\": 1}"), "event: status\nid: 3.2.9\ndata: {   \"a\": 1}\n\n");
        assert_eq!(text(cursor, "a\nb"), "event: text\nid: 3.2.9\ndata: {\"draft\":2,\"text\":\"a\\nb\"}\n\n");
        let unknown = discarded(cursor, &Discarded { draft: 2, cause: None });
        assert_eq!(unknown, "event: draft_discarded\nid: 3.2.9\ndata: {\"draft\":2,\"reason\":\"interrupted\"}\n\n");
    }

    #[test]
    fn a_reader_goes_on_where_it_was_and_never_within_a_character() {
        for (bytes, left) in [(0, "aé漢"), (1, "é漢"), (2, "é漢"), (3, "漢"), (5, "漢"), (6, ""), (99, "")] {
            assert_eq!(rest("aé漢", bytes), left, "{bytes}");
        }
    }
}
