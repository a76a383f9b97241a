//! JSON: what every ring reads and writes it with.
//!
//! Three things decided for our own over serde's derive and `serde_json`'s parser. *Size*: the derive makes a state machine of
//! every type, each of them with two ways in, and together they were a third of the Worker (docs/adr/0008). *Faults*: serde
//! stops at the first, without its place; a configuration is mended in one go if all are named. *Text*: a request goes
//! upstream byte for byte, so values are handed about as the text that they are, skipped over without recursion.
//!
//! - `text` finds values in a text; `scan` passes over them and checks their syntax; `scalar` has strings and numbers.
//! - `read` makes values into types, noting every fault with its place; `write` makes types into text.
//! - `map` is a map for the few entries that an object has.
//! - `shapes` are the macros by which a type says which members it has: once, by name.
//!
//! The types implement serde's traits as well, by way of their text, so that whatever else has serde data has them too.

mod map;
mod read;
mod scalar;
mod scan;
mod shapes;
mod text;
mod write;

pub use map::Map;
pub use read::{Fault, Faults, FromJson, Unreadable, named, read, read_and_fault, read_any};
pub use scalar::{decimal, quote};
pub use scan::Malformed;
pub(crate) use shapes::{choice, names, object, output, transparent};
pub use text::{Fields, Json, MAX_FIELDS, Text, for_each_element, for_each_member, for_each_of_members};
pub use write::{ToJson, write, write_any, write_object, write_sparse_object, write_text};
