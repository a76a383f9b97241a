//! How the Worker and its objects talk: a line of JSON, and where there is one a raw text after it. A text of megabytes is
//! then neither quoted nor parsed on its way.
//!
//! JSON is read from text only, never from bytes: serde generates its parsers once per kind of input, and each kind costs
//! the Wasm some hundred kilobytes.

use serde::Serialize;
use serde::de::DeserializeOwned;
use worker::Result;

/// Reads one value.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    Ok(serde_json::from_str(text)?)
}

/// Writes one value.
pub(super) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    Ok(serde_json::to_string(value)?.into_bytes())
}

/// Writes one value with a raw text after it.
pub(super) fn frame(head: &impl Serialize, raw: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = encode(head)?;
    bytes.push(b'\n');
    bytes.extend_from_slice(raw);
    Ok(bytes)
}

/// The value's bytes, and the raw text after them.
pub(super) fn unframe(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|byte| *byte == b'\n').and_then(|at| bytes.split_at_checked(at)) {
        Some((head, rest)) => (head, rest.get(1..).unwrap_or_default()),
        None => (bytes, &[]),
    }
}
