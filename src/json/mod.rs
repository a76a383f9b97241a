//! JSON: what every ring reads it with.
//!
//! Three things decided for a reader of our own over serde's derive and `serde_json`'s parser. *Size*: the derive makes a
//! state machine of every type, each of them with two ways in, and together they were a third of the Worker (docs/adr/0008).
//! *Faults*: serde stops at the first, without its place; a configuration is mended in one go if all are named. *Text*: a
//! request goes upstream byte for byte, so values are handed about as the text that they are, skipped over without recursion.
//!
//! - [`text`] finds values in a text and checks their syntax.
//! - [`read`] makes values into types, noting every fault with its place.
//! - `shapes` are the macros by which a type says which members it has: once, by name.
//!
//! What is written is still serde's to write: its `Serialize` is small. Types that are read here implement `Deserialize` as
//! well, by way of their text, so that any other reader of serde data has them too.

mod read;
mod shapes;
mod text;

pub use read::{Fault, Faults, FromJson, Unreadable, named, read, read_any};
pub(crate) use shapes::{choice, names, object, transparent};
pub use text::{Fields, Json, MAX_FIELDS, Malformed, decimal, for_each_element, for_each_member, quote};
