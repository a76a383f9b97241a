//! How the Worker and its objects talk: a line of JSON, and where there is one a raw text after it. A text of megabytes is
//! then neither quoted nor parsed on its way.

use worker::Result;

use crate::json::{self, FromJson, ToJson};

/// Reads one value.
pub(super) fn decode<T: FromJson>(bytes: &[u8]) -> Result<T> {
    parse(std::str::from_utf8(bytes).map_err(|error| error.to_string())?)
}

/// Reads one value.
pub(super) fn parse<T: FromJson>(text: &str) -> Result<T> {
    Ok(json::read(text).map_err(|error| error.to_string())?)
}

/// Writes one value with a raw text after it.
pub(super) fn frame(head: &dyn ToJson, raw: &[u8]) -> Vec<u8> {
    let mut bytes = json::write(head).into_bytes();
    bytes.push(b'\n');
    bytes.extend_from_slice(raw);
    bytes
}

/// The value's bytes, and the raw text after them.
pub(super) fn unframe(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|byte| *byte == b'\n').and_then(|at| bytes.split_at_checked(at)) {
        Some((head, rest)) => (head, rest.get(1..).unwrap_or_default()),
        None => (bytes, &[]),
    }
}
