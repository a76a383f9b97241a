//! From types to JSON, appended to a text.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::value::RawValue;

use super::map::Map;
use super::scalar::quote;
use super::text::{Json, Text};

/// A type that can be written as JSON.
pub trait ToJson {
    /// Appends it to `out`.
    fn write(&self, out: &mut String);

    /// Whether a member with this value may be left out.
    fn is_absent(&self) -> bool {
        false
    }
}

/// The JSON of `value`.
pub fn write(value: &(impl ToJson + ?Sized)) -> String {
    let mut out = String::new();
    value.write(&mut out);
    out
}

/// The JSON of `value`, as a value that can be part of others.
pub fn write_text(value: &(impl ToJson + ?Sized)) -> Text {
    Text::new(write(value))
}

/// Writes `value` into any data that serde has a writer for, by way of its JSON.
///
/// # Errors
/// Those of the writer.
pub fn write_any<S: Serializer>(value: &impl ToJson, serializer: S) -> Result<S::Ok, S::Error> {
    RawValue::from_string(write(value)).map_err(S::Error::custom)?.serialize(serializer)
}

/// Appends an object with these members.
pub fn write_object(members: &[(&str, &dyn ToJson)], out: &mut String) {
    let mut separator = '{';
    for (name, value) in members {
        out.push(separator);
        out.push_str(&quote(name));
        out.push(':');
        value.write(out);
        separator = ',';
    }
    out.push_str(if separator == '{' { "{}" } else { "}" });
}

/// The same without the members that may be left out.
pub fn write_sparse_object(members: &[(&str, &dyn ToJson)], out: &mut String) {
    let present: Vec<_> = members.iter().filter(|(_, value)| !value.is_absent()).copied().collect();
    write_object(&present, out);
}

/// Appends an array of these elements.
fn write_array(elements: &mut dyn Iterator<Item = &dyn ToJson>, out: &mut String) {
    let mut separator = '[';
    for element in elements {
        out.push(separator);
        element.write(out);
        separator = ',';
    }
    out.push_str(if separator == '[' { "[]" } else { "]" });
}

impl ToJson for bool {
    fn write(&self, out: &mut String) {
        out.push_str(if *self { "true" } else { "false" });
    }
}

impl ToJson for u64 {
    fn write(&self, out: &mut String) {
        out.push_str(&self.to_string());
    }
}

impl ToJson for u32 {
    fn write(&self, out: &mut String) {
        u64::from(*self).write(out);
    }
}

impl ToJson for u16 {
    fn write(&self, out: &mut String) {
        u64::from(*self).write(out);
    }
}

impl ToJson for usize {
    fn write(&self, out: &mut String) {
        (*self as u64).write(out);
    }
}

impl ToJson for f64 {
    fn write(&self, out: &mut String) {
        out.push_str(&format!("{self:?}"));
    }
}

impl ToJson for str {
    fn write(&self, out: &mut String) {
        out.push_str(&quote(self));
    }
}

impl ToJson for String {
    fn write(&self, out: &mut String) {
        self.as_str().write(out);
    }
}

impl ToJson for () {
    fn write(&self, out: &mut String) {
        out.push_str("null");
    }
}

impl ToJson for Json<'_> {
    fn write(&self, out: &mut String) {
        out.push_str(self.get());
    }
}

impl ToJson for Text {
    fn write(&self, out: &mut String) {
        out.push_str(self.get());
    }
}

impl ToJson for Duration {
    fn write(&self, out: &mut String) {
        write_object(&[("secs", &self.as_secs()), ("nanos", &self.subsec_nanos())], out);
    }
}

impl<T: ToJson + ?Sized> ToJson for &T {
    fn write(&self, out: &mut String) {
        (**self).write(out);
    }

    fn is_absent(&self) -> bool {
        (**self).is_absent()
    }
}

impl<T: ToJson> ToJson for Option<T> {
    fn write(&self, out: &mut String) {
        match self {
            Some(value) => value.write(out),
            None => ().write(out),
        }
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl<T: ToJson> ToJson for [T] {
    fn write(&self, out: &mut String) {
        write_array(&mut self.iter().map(|element| element as &dyn ToJson), out);
    }
}

impl<T: ToJson> ToJson for Vec<T> {
    fn write(&self, out: &mut String) {
        self.as_slice().write(out);
    }
}

impl<T: ToJson> ToJson for VecDeque<T> {
    fn write(&self, out: &mut String) {
        write_array(&mut self.iter().map(|element| element as &dyn ToJson), out);
    }
}

impl<K: Ord + fmt::Display, V: ToJson> ToJson for Map<K, V> {
    fn write(&self, out: &mut String) {
        let names: Vec<String> = self.iter().map(|(key, _)| key.to_string()).collect();
        let members: Vec<(&str, &dyn ToJson)> =
            names.iter().zip(self.values()).map(|(name, value)| (name.as_str(), value as &dyn ToJson)).collect();
        write_object(&members, out);
    }
}
