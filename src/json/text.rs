//! JSON as text: values, and the members and elements in them, borrowed from the text that they stand in.
//!
//! A value that is not ours to understand is handed on as it came: numbers are never re-formatted.

use std::borrow::Cow;

use super::scalar::unquote;
use super::scan::{Malformed, Scanner};

/// The text of one JSON value, whose syntax is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json<'a>(&'a str);

impl<'a> Json<'a> {
    /// The one value that `text` is.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn parse(text: &'a str) -> Result<Self, Malformed> {
        let mut scanner = Scanner::new(text);
        let value = scanner.value()?;
        scanner.end()?;
        Ok(value)
    }

    /// A value whose syntax has been checked.
    pub(super) const fn checked(text: &'a str) -> Self {
        Self(text)
    }

    /// The text.
    #[must_use]
    pub const fn get(self) -> &'a str {
        self.0
    }

    /// The string that it is, borrowed where it has no escapes; `None` if it is anything else, or holds half a surrogate pair.
    #[must_use]
    pub fn string(self) -> Option<Cow<'a, str>> {
        unquote(self.0)
    }
}

/// The same, owned: a value that is not ours to understand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(String);

impl Text {
    /// The text.
    #[must_use]
    pub fn get(&self) -> &str {
        &self.0
    }

    /// What was written by [`ToJson`](super::ToJson).
    pub(crate) const fn new(json: String) -> Self {
        Self(json)
    }
}

impl From<Json<'_>> for Text {
    fn from(json: Json<'_>) -> Self {
        Self(json.get().to_owned())
    }
}

/// The members of an object, in order, borrowed from its text. Of two members with one name the first counts.
#[derive(Debug, Default)]
pub struct Fields<'a>(pub Vec<(Cow<'a, str>, Json<'a>)>);

impl<'a> Fields<'a> {
    /// The members of the object that `text` is.
    ///
    /// # Errors
    /// If it is anything else, or has over [`MAX_FIELDS`] members.
    pub fn parse(text: &'a str) -> Result<Self, Malformed> {
        let mut fields = Vec::new();
        for_each_member(text, &mut |name, value| {
            fields.push((name, value));
            if fields.len() > MAX_FIELDS { Err(TOO_MANY) } else { Ok(()) }
        })?;
        Ok(Self(fields))
    }

    /// The value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Json<'a>> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
    }

    /// The value of `name`, if it is a string.
    #[must_use]
    pub fn string(&self, name: &str) -> Option<Cow<'a, str>> {
        self.get(name).and_then(Json::string)
    }

    /// The value of `name`, if it is an object.
    #[must_use]
    pub fn object(&self, name: &str) -> Option<Self> {
        self.get(name).and_then(|value| Self::parse(value.get()).ok())
    }
}

/// Calls `each` with every member of the object that `text` is, until it says what is wrong with one.
///
/// # Errors
/// If `text` is anything else, or `each` has found something wrong.
pub fn for_each_member<'a>(
    text: &'a str,
    each: &mut dyn FnMut(Cow<'a, str>, Json<'a>) -> Result<(), &'static str>,
) -> Result<(), Malformed> {
    let mut scanner = Scanner::new(text);
    scanner.expect(b'{', "expected an object")?;
    if !scanner.take(b'}') {
        loop {
            scanner.member(each)?;
            if scanner.take(b'}') {
                break;
            }
            scanner.expect(b',', "expected `,` or `}`")?;
        }
    }
    scanner.end()
}

/// The same for `members` without the braces around them, of which there is at least one.
///
/// # Errors
/// If `members` is anything else, or `each` has found something wrong.
pub fn for_each_of_members<'a>(
    members: &'a str,
    each: &mut dyn FnMut(Cow<'a, str>, Json<'a>) -> Result<(), &'static str>,
) -> Result<(), Malformed> {
    let mut scanner = Scanner::new(members);
    loop {
        scanner.member(each)?;
        if scanner.next().is_none() {
            return Ok(());
        }
        scanner.expect(b',', "expected `,`")?;
    }
}

/// Calls `each` with every element of the array that `text` is, one after the other and without collecting them.
///
/// # Errors
/// If `text` is anything else.
pub fn for_each_element<'a>(text: &'a str, each: &mut dyn FnMut(Json<'a>)) -> Result<(), Malformed> {
    let mut scanner = Scanner::new(text);
    scanner.expect(b'[', "expected an array")?;
    if !scanner.take(b']') {
        loop {
            each(scanner.value()?);
            if scanner.take(b']') {
                break;
            }
            scanner.expect(b',', "expected `,` or `]`")?;
        }
    }
    scanner.end()
}

/// No object of the protocol, and none of ours, has a tenth of this; without a bound, eight megabytes of `"":0,` would
/// become sixty of list.
pub const MAX_FIELDS: usize = 256;
const TOO_MANY: &str = "an object has more than 256 members";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_says_where_it_is() {
        let error = Json::parse("{\n \"a\": x}").unwrap_err().to_string();
        assert_eq!(error, "expected a value at line 2 column 7");
        assert!(Fields::parse("[]").unwrap_err().to_string().starts_with("expected an object"));
        assert!(for_each_element("{}", &mut |_| ()).unwrap_err().to_string().starts_with("expected an array"));
    }

    #[test]
    fn members_come_in_order_with_their_names_unescaped() {
        let fields = Fields::parse(r#" { "a" : 1 , "\u0062" : [ 2 ] , "a" : "x\ty" } "#).unwrap();
        let list: Vec<_> = fields.0.iter().map(|(name, value)| (name.as_ref(), value.get())).collect();
        assert_eq!(list, [("a", "1"), ("b", "[ 2 ]"), ("a", r#""x\ty""#)]);
        assert_eq!(fields.get("a").map(Json::get), Some("1"));
        assert!(Fields::parse(r#"{"\ud83d":1}"#).is_err());
        let many = |count: usize| format!("{{{}}}", vec![r#""":0"#; count].join(","));
        assert!(Fields::parse(&many(MAX_FIELDS)).is_ok() && Fields::parse(&many(MAX_FIELDS + 1)).is_err());
    }

    #[test]
    fn members_are_read_without_their_braces_too() {
        let read = |members: &str| {
            let mut list = Vec::new();
            let walked = for_each_of_members(members, &mut |name, value| {
                list.push(format!("{name}={}", value.get()));
                Ok(())
            });
            walked.map(|()| list.join(" ")).map_err(|error| error.to_string())
        };
        assert_eq!(read(r#""a":1 , "\u0062" : [ 2 ] "#).unwrap(), "a=1 b=[ 2 ]");
        for members in ["", "{}", r#""a""#, r#""a":1,"#, r#""a":1}"#, r#""a":1 "b":2"#] {
            assert!(read(members).is_err(), "{members}");
        }
        assert!(for_each_of_members(r#""a":1"#, &mut |_, _| Err("no")).is_err());
    }
}
