//! One level of a JSON object at a time, its values left as the text that they are.
//!
//! `serde_json::Value` would be shorter, and wrong here: it re-formats numbers, needs several times the memory of the text,
//! and recurses. A [`RawValue`] is skipped over without recursion and without a copy.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::value::RawValue;

/// The members of an object, in order, borrowed from its text. Of two members with one name the first counts.
#[derive(Debug, Default)]
pub struct Fields<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// The members of the object that `text` is.
    ///
    /// # Errors
    /// If it is anything else, or has over [`MAX_FIELDS`] members.
    pub fn parse(text: &'a str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// The value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
    }

    /// The value of `name`, if it is a string.
    pub(super) fn string(&self, name: &str) -> Option<Cow<'a, str>> {
        self.get(name).and_then(|value| string(value.get()))
    }

    /// The value of `name`, if it is an object.
    pub(super) fn object(&self, name: &str) -> Option<Self> {
        self.get(name).and_then(|value| Self::parse(value.get()).ok())
    }
}

/// The string that `json` is; `None` if it is anything else.
pub(super) fn string(json: &str) -> Option<Cow<'_, str>> {
    serde_json::from_str::<Text>(json).ok().map(|text| text.0)
}

/// `text` as a JSON string.
pub(super) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Calls `each` with every element of the array that `json` is, one after the other and without collecting them; an error
/// if it is anything else.
pub(super) fn for_each_element<'a>(json: &'a str, each: impl FnMut(&'a RawValue)) -> serde_json::Result<()> {
    struct Elements<F>(F);

    impl<'de, F: FnMut(&'de RawValue)> Visitor<'de> for Elements<F> {
        type Value = ();

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
            while let Some(element) = elements.next_element()? {
                (self.0)(element);
            }
            Ok(())
        }
    }

    impl<'de, F: FnMut(&'de RawValue)> DeserializeSeed<'de> for Elements<F> {
        type Value = ();

        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
            deserializer.deserialize_seq(self)
        }
    }

    let mut deserializer = serde_json::Deserializer::from_str(json);
    Elements(each).deserialize(&mut deserializer)?;
    deserializer.end()
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

/// A string, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Fields<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
                    if members.len() >= MAX_FIELDS {
                        return Err(de::Error::custom(format_args!("more than {MAX_FIELDS} members")));
                    }
                    members.push((name.0, value));
                }
                Ok(Fields(members))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// No object of the protocol has a tenth of this; without a bound, eight megabytes of `"":0,` would become sixty of list.
pub const MAX_FIELDS: usize = 256;
