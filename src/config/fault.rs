//! What is wrong with a setting: its key, so that it is found, and what is allowed.

use std::fmt;

use crate::json;

/// What is wrong with a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The var or secret, with the path inside `POLICY`.
    pub key: String,
    /// What is wrong, and what is allowed.
    pub message: String,
}

json::output!(Fault { key, message });

impl Fault {
    /// A fault of `key`.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into() }
    }
}

impl From<json::Fault> for Fault {
    fn from(json::Fault { place, message }: json::Fault) -> Self {
        let dot = if place.is_empty() { "" } else { "." };
        Self { key: format!("POLICY{dot}{place}"), message }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}
