//! From JSON to types: every fault is noted with its place, and reading goes on.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde_json::value::RawValue;

use super::map::Map;
use super::scalar::decimal;
use super::scan::Malformed;
use super::text::{Fields, Json, Text, for_each_element, for_each_member};

/// A type that can be read from JSON.
pub trait FromJson: Sized {
    /// Reads `json`. `None` says that `faults` has been told why.
    fn read(json: Json<'_>, faults: &mut Faults) -> Option<Self>;

    /// Reads `json`, where `default` has what it may leave out.
    fn read_over(default: Self, json: Json<'_>, faults: &mut Faults) -> Option<Self> {
        drop(default);
        Self::read(json, faults)
    }

    /// What a member that is not there stands for, if it may be left out.
    fn absent() -> Option<Self> {
        None
    }
}

/// Something that is wrong with a value, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The place, as a path: `breaker.open_seconds`. Empty for the value itself.
    pub place: String,
    /// What has to be different there.
    pub message: String,
}

/// What has been found wrong so far.
#[derive(Debug, Default)]
pub struct Faults {
    place: String,
    list: Vec<Fault>,
}

impl Faults {
    fn missing<T>(&mut self) -> Option<T> {
        self.add("is missing");
        None
    }

    /// Notes a fault of the value that is being read.
    pub fn add(&mut self, message: impl Into<String>) {
        self.list.push(Fault { place: self.place.clone(), message: message.into() });
    }

    /// Goes to the member `name`; [`Faults::leave`] goes back. Two plain functions, where one around a closure would be there
    /// once for every type that is read.
    fn enter(&mut self, name: &str) -> usize {
        let length = self.place.len();
        if length > 0 {
            self.place.push('.');
        }
        self.place.push_str(name);
        length
    }

    fn leave(&mut self, length: usize) {
        self.place.truncate(length);
    }
}

/// Why a text could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It is no JSON.
    Malformed(Malformed),
    /// It is not the JSON of this type.
    Unfit(Vec<Fault>),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => error.fmt(f),
            Self::Unfit(faults) => {
                for (index, Fault { place, message }) in faults.iter().enumerate() {
                    let (before, between) =
                        (if index > 0 { "; " } else { "" }, if place.is_empty() { "" } else { ": " });
                    write!(f, "{before}{place}{between}{message}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Unreadable {}

/// Reads the value that `text` is.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read<T: FromJson>(text: &str) -> Result<T, Unreadable> {
    match read_and_fault(text).map_err(Unreadable::Malformed)? {
        (Some(value), faults) if faults.is_empty() => Ok(value),
        (_, faults) => Err(Unreadable::Unfit(faults)),
    }
}

/// Reads the value that `text` is, and everything that is wrong with it: a value in spite of faults serves to find more.
///
/// # Errors
/// It is no JSON.
pub fn read_and_fault<T: FromJson>(text: &str) -> Result<(Option<T>, Vec<Fault>), Malformed> {
    let json = Json::parse(text)?;
    let mut faults = Faults::default();
    let value = T::read(json, &mut faults);
    Ok((value, faults.list))
}

/// Reads a value out of any data that serde has a reader for, by way of its JSON.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read_any<'de, T: FromJson, D: Deserializer<'de>>(data: D) -> Result<T, D::Error> {
    let json = Box::<RawValue>::deserialize(data)?;
    read(json.get()).map_err(D::Error::custom)
}

/// The entry of `table` that the string `json` names.
pub fn named<T: Copy>(table: &[(&'static str, T)], json: Json<'_>, faults: &mut Faults) -> Option<T> {
    let name = json.string().unwrap_or_default();
    let found = table.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    if found.is_none() {
        one_of(table.iter().map(|(known, _)| *known).collect(), faults);
    }
    found
}

fn one_of(names: Vec<&str>, faults: &mut Faults) {
    faults.add(format!("must be one of {}", names.join(", ")));
}

impl<'a> Json<'a> {
    /// Its members, if it is an object.
    pub fn fields(self, faults: &mut Faults) -> Option<Fields<'a>> {
        match Fields::parse(self.get()) {
            Ok(fields) => Some(fields),
            Err(_) => {
                faults.add("must be a JSON object");
                None
            }
        }
    }

    /// Which of several shapes it has: the name of one as a string, or as the one member of an object whose value goes with it.
    #[must_use]
    pub fn choice(self) -> (std::borrow::Cow<'a, str>, Self) {
        let fields = Fields::parse(self.get()).unwrap_or_default();
        match fields.0.into_iter().next() {
            Some(member) => member,
            None => (self.string().unwrap_or_default(), self),
        }
    }

    /// Notes that it is none of the shapes with these names.
    pub fn no_choice<T>(self, names: &[&str], faults: &mut Faults) -> Option<T> {
        one_of(names.to_vec(), faults);
        None
    }
}

impl Fields<'_> {
    /// Reads the member `name`.
    pub fn read<T: FromJson>(&self, name: &str, faults: &mut Faults) -> Option<T> {
        let above = faults.enter(name);
        let value = match self.get(name) {
            Some(json) => T::read(json, faults),
            None => T::absent().or_else(|| faults.missing()),
        };
        faults.leave(above);
        value
    }

    /// Reads the member `name`, over what it is without.
    pub fn read_over<T: FromJson>(&self, default: T, name: &str, faults: &mut Faults) -> Option<T> {
        match self.get(name) {
            Some(json) => {
                let above = faults.enter(name);
                let value = T::read_over(default, json, faults);
                faults.leave(above);
                value
            }
            None => Some(default),
        }
    }

    /// Refuses members that are not among `names`, and those that come twice.
    pub fn only(&self, names: &[&str], faults: &mut Faults) {
        for (index, (name, _)) in self.0.iter().enumerate() {
            let message = if !names.contains(&name.as_ref()) {
                format!("is an unknown field; there are {}", names.join(", "))
            } else if self.0.iter().take(index).any(|(earlier, _)| earlier == name) {
                "is a duplicate".to_owned()
            } else {
                continue;
            };
            let above = faults.enter(name);
            faults.add(message);
            faults.leave(above);
        }
    }
}

fn parsed<T: FromStr>(json: Json<'_>, what: &str, faults: &mut Faults) -> Option<T> {
    let value = json.get().parse().ok();
    if value.is_none() {
        faults.add(what);
    }
    value
}

impl FromJson for bool {
    fn read(json: Json<'_>, faults: &mut Faults) -> Option<Self> {
        parsed(json, "must be true or false", faults)
    }
}

impl FromJson for u16 {
    fn read(json: Json<'_>, faults: &mut Faults) -> Option<Self> {
        parsed(json, "must be a whole number from 0 to 65535", faults)
    }
}

impl FromJson for u32 {
    fn read(json: Json<'_>, faults: &mut Faults) -> Option<Self> {
        parsed(json, "must be a whole number from 0 to 4294967295", faults)
    }
}

impl FromJson for u64 {
    fn read(json: Json<'_>, faults: &mut Faults) -> Option<Self> {
        parsed(json, "must be a whole number, not below 0", faults)
    }
}

impl FromJson for f64 {
    fn read(json: Json<'_>, faults: &mut Faults) -> Option<Self> {
        let value = decimal(json.get());
        if value.is_none() {
            faults.add("must be a number, without an exponent");
        }
        value
    }
}

impl FromJson for String {
    fn read(json: Json<'_>, faults: &mut Faults) -> Option<Self> {
        let text = json.string();
        if text.is_none() {
            faults.add("must be a string");
        }
        text.map(std::borrow::Cow::into_owned)
    }
}

impl FromJson for () {
    fn read(json: Json<'_>, faults: &mut Faults) -> Option<Self> {
        let is_null = json.get() == "null";
        if !is_null {
            faults.add("must be null");
        }
        is_null.then_some(())
    }
}

impl FromJson for Duration {
    /// As serde writes it.
    fn read(json: Json<'_>, faults: &mut Faults) -> Option<Self> {
        let fields = json.fields(faults)?;
        let (seconds, nanos) = (fields.read("secs", faults), fields.read::<u32>("nanos", faults));
        Self::from_secs(seconds?).checked_add(Self::from_nanos(nanos?.into()))
    }
}

impl FromJson for Text {
    fn read(json: Json<'_>, _: &mut Faults) -> Option<Self> {
        Some(json.into())
    }
}

impl<T: FromJson> FromJson for Option<T> {
    fn read(json: Json<'_>, faults: &mut Faults) -> Option<Self> {
        if json.get() == "null" { Some(None) } else { T::read(json, faults).map(Some) }
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: FromJson> FromJson for Vec<T> {
    fn read(json: Json<'_>, faults: &mut Faults) -> Option<Self> {
        let mut list = Self::new();
        let walked = for_each_element(json.get(), &mut |element| list.extend(T::read(element, faults)));
        if walked.is_err() {
            faults.add("must be an array");
        }
        Some(list)
    }
}

impl<T: FromJson> FromJson for VecDeque<T> {
    fn read(json: Json<'_>, faults: &mut Faults) -> Option<Self> {
        Vec::read(json, faults).map(Into::into)
    }
}

impl<K: FromStr + Ord, V: FromJson> FromJson for Map<K, V> {
    fn read(json: Json<'_>, faults: &mut Faults) -> Option<Self> {
        let mut map = Self::default();
        let walked = for_each_member(json.get(), &mut |name, value| {
            let above = faults.enter(&name);
            let value = V::read(value, faults);
            faults.leave(above);
            match (name.parse(), value) {
                (Ok(key), Some(value)) => map.insert(key, value),
                (Err(_), _) => faults.add(format!("cannot have the key {name}")),
                (Ok(_), None) => {}
            }
            Ok(())
        });
        if walked.is_err() {
            faults.add("must be a JSON object");
        }
        Some(map)
    }
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "what `names` makes is public")]
mod tests {
    use super::*;
    use crate::json;

    #[derive(Debug, PartialEq)]
    struct Cat {
        name: String,
        lives: u32,
        mood: Option<Mood>,
    }
    json::object!(Cat { name, lives as "l" = 9, mood });

    #[derive(Debug, Default, PartialEq)]
    struct House {
        rooms: u64,
        cats: Map<String, Cat>,
    }
    json::object!(only default House { rooms, cats });

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Mood {
        Asleep,
        Hungry,
    }
    json::names!(Mood { Asleep => "asleep", Hungry => "hungry" });

    #[derive(Debug, PartialEq)]
    enum Event {
        Rain,
        Fed(Mood),
        Moved { from: House, doors: Vec<bool> },
    }
    json::choice!(Event { "rain" => Rain, "fed" => Fed(mood), "moved" => Moved { from, doors } });

    fn cat(lives: u32, mood: Option<Mood>) -> Cat {
        Cat { name: "Tom".into(), lives, mood }
    }

    #[test]
    fn members_may_be_left_out_where_they_have_a_value_without() {
        assert_eq!(read(r#"{"name":"Tom"}"#), Ok(cat(9, None)));
        assert_eq!(read(r#"{"l":3,"mood":null,"name":"Tom","new":[]}"#), Ok(cat(3, None)));
        assert_eq!(read(r#"{"mood":"hungry","name":"Tom"}"#), Ok(cat(9, Some(Mood::Hungry))));
        assert_eq!(read("{}"), Ok(House::default()));
    }

    #[test]
    fn variants_are_strings_or_objects_with_one_member() {
        let moved = Event::Moved { from: House { rooms: 2, cats: Map::default() }, doors: vec![true, false] };
        assert_eq!(read(r#""rain""#), Ok(Event::Rain));
        assert_eq!(read(r#"{"fed":"asleep"}"#), Ok(Event::Fed(Mood::Asleep)));
        assert_eq!(read(r#"{"moved":{"from":{"rooms":2},"doors":[true,false]}}"#), Ok(moved));
    }

    #[test]
    fn every_fault_is_named_with_its_place() {
        let faults = |text: &str| read::<House>(text).unwrap_err().to_string();
        assert_eq!(
            faults(r#"{"rooms":-1,"cats":{"a":{"l":"x","mood":"angry"},"b":7},"roms":1,"rooms":2}"#),
            "rooms: must be a whole number, not below 0; cats.a.name: is missing; \
             cats.a.l: must be a whole number from 0 to 4294967295; cats.a.mood: must be one of asleep, hungry; \
             cats.b: must be a JSON object; roms: is an unknown field; there are rooms, cats; rooms: is a duplicate"
        );
        assert_eq!(faults("[]"), "must be a JSON object");
        assert_eq!(faults("{"), "it breaks off at line 1 column 2");
        let event = |text: &str| read::<Event>(text).unwrap_err().to_string();
        assert_eq!(event(r#""snow""#), "must be one of rain, fed, moved");
        assert_eq!(event("{}"), "must be one of rain, fed, moved");
        assert_eq!(event(r#"{"moved":{"from":{},"doors":[1]}}"#), "doors: must be true or false");
    }

    #[test]
    fn a_null_and_a_wrong_type_are_no_value() {
        for text in ["null", "1.0", "-0", "4294967296", "true", "\"1\"", "[1]"] {
            assert!(read::<u32>(text).is_err(), "{text}");
            assert!(read::<bool>(text).is_ok() == (text == "true"), "{text}");
            assert!(read::<String>(text).is_ok() == (text == "\"1\""), "{text}");
        }
    }

    #[test]
    fn what_serde_has_read_can_be_read() {
        let value = serde_json::json!({"name": "Tom", "l": 1});
        assert_eq!(serde_json::from_value::<Cat>(value).unwrap(), cat(1, None));
        assert_eq!(
            serde_json::from_str::<Duration>("{\"secs\":1,\"nanos\":5}").ok(),
            read("{\"secs\":1,\"nanos\":5}").ok()
        );
    }
}
