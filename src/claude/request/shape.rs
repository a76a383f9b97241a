//! Looking at raw JSON: what a value is, and a list of everything that is wrong with it.

use super::super::raw::{self, Fields};
use crate::json;

/// Something that is wrong with a request, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The place, as a path: `request.messages[2].role`.
    pub place: String,
    /// What has to be different there, without the place: "must be a string".
    pub message: String,
}

json::output!(Problem { place, message });

impl Problem {
    /// A problem at `place`.
    #[must_use]
    pub fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: place.into(), message: message.into() }
    }
}

/// The problems so far: the first [`MAX_PROBLEMS`] of them, and whether there were more.
#[derive(Debug, Default)]
pub(super) struct Problems {
    pub(super) list: Vec<Problem>,
    pub(super) more: bool,
}

impl Problems {
    pub(super) fn add(&mut self, problem: impl FnOnce() -> Problem) {
        if self.list.len() < MAX_PROBLEMS {
            self.list.push(problem());
        } else {
            self.more = true;
        }
    }
}

/// The path of a value, put together only if there is a problem with it.
pub(super) type Path<'a> = &'a dyn Fn() -> String;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Array,
    String,
    Number,
    Boolean,
    Null,
    Nothing,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Object => "a JSON object",
            Self::Array => "an array",
            Self::String => "a string",
            Self::Number => "a number",
            Self::Boolean => "true or false",
            Self::Null => "null",
            Self::Nothing => "nothing",
        }
    }
}

/// What `json` is, by its first byte: enough, as its syntax has been checked (or will be).
pub(super) fn kind(json: &str) -> Kind {
    match json.trim_start().as_bytes().first() {
        Some(b'{') => Kind::Object,
        Some(b'[') => Kind::Array,
        Some(b'"') => Kind::String,
        Some(b'-' | b'0'..=b'9') => Kind::Number,
        Some(b't' | b'f') => Kind::Boolean,
        Some(b'n') => Kind::Null,
        _ => Kind::Nothing,
    }
}

/// Whether `json` is of one of the `kinds`; a problem if not.
pub(super) fn expect(json: &str, kinds: &[Kind], path: Path<'_>, problems: &mut Problems) -> bool {
    let fits = kinds.contains(&kind(json));
    if !fits {
        problems.add(|| {
            let names: Vec<_> = kinds.iter().filter(|kind| **kind != Kind::Null).map(|kind| kind.name()).collect();
            Problem::new(path(), format!("must be {}", names.join(" or ")))
        });
    }
    fits
}

/// Calls `check` with every element of the array `json` and its path; a problem if it is no array.
pub(super) fn each(
    json: &str,
    path: Path<'_>,
    problems: &mut Problems,
    mut check: impl FnMut(&str, Path<'_>, &mut Problems),
) {
    if !expect(json, &[Kind::Array], path, problems) {
        return;
    }
    let mut index = 0_usize;
    let walked = raw::for_each_element(json, &mut |element| {
        check(element.get(), &|| format!("{}[{index}]", path()), problems);
        index += 1;
    });
    if let Err(error) = walked {
        problems.add(|| Problem::new(path(), format!("cannot be read: {error}")));
    }
}

/// The members of the object `json`; a problem if it is none, or one that cannot be read.
pub(super) fn object<'a>(json: &'a str, path: Path<'_>, problems: &mut Problems) -> Option<Fields<'a>> {
    if !expect(json, &[Kind::Object], path, problems) {
        return None;
    }
    Fields::parse(json).map_err(|error| problems.add(|| Problem::new(path(), format!("cannot be read: {error}")))).ok()
}

/// Refuses `\ud83d` without its other half: no character, and a 400 for the whole request.
pub(super) fn check_escapes(json: &str, path: Path<'_>, problems: &mut Problems) {
    let unit = |escape: &[u8]| {
        let digits = escape.strip_prefix(b"\\u")?.get(..4)?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut rest = json.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        let escape = rest.get(at..).unwrap_or_default();
        let next = escape.get(6..).unwrap_or_default();
        let length = match (unit(escape), unit(next)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                problems.add(|| {
                    Problem::new(path(), "holds half of a surrogate pair (\\ud800 to \\udfff), which is no character")
                });
                return;
            }
            (Some(_), _) => 6,
            (None, _) => 2,
        };
        rest = escape.get(length..).unwrap_or_default();
    }
}

/// More than anyone reads, and little enough to answer with.
pub const MAX_PROBLEMS: usize = 50;
