//! JSON that is put together from texts, member by member.
//!
//! `serde_json::Value` would be shorter, and wrong here: it re-formats numbers, needs several times the memory of the text,
//! and recurses.

pub(super) use crate::json::{Fields, Json, for_each_element, quote};

/// The string in `json`, a text whose syntax has been checked; `None` if it is anything else.
pub(super) fn string(json: &str) -> Option<std::borrow::Cow<'_, str>> {
    Json::parse(json).ok().and_then(Json::string)
}

/// An object that is being put together: names, and values as JSON text.
#[derive(Clone, Debug, Default)]
pub(super) struct Object(Vec<(String, String)>);

impl Object {
    /// The text of `name`'s value.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, json)| json.as_str())
    }

    /// Gives `name` the value `json`: in place if the object has it, else at the end.
    pub(super) fn set(&mut self, name: &str, json: String) {
        match self.0.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => *old = json,
            None => self.0.push((name.to_owned(), json)),
        }
    }

    /// Like [`Object::set`], except that `null` never replaces a value.
    pub(super) fn merge(&mut self, name: &str, json: &str) {
        if json != "null" || self.get(name).is_none() {
            self.set(name, json.to_owned());
        }
    }

    /// Appends the object's text to `out`.
    pub(super) fn write(&self, out: &mut String) {
        out.push('{');
        for (index, (name, json)) in self.0.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            out.push_str(&quote(name));
            out.push(':');
            out.push_str(json);
        }
        out.push('}');
    }
}

impl From<&Fields<'_>> for Object {
    fn from(fields: &Fields<'_>) -> Self {
        let mut object = Self::default();
        for (name, value) in &fields.0 {
            if object.get(name).is_none() {
                object.set(name, value.get().to_owned());
            }
        }
        object
    }
}
