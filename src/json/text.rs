//! JSON as text: where its values are, and whether its syntax is right.
//!
//! A value is skipped over in one pass, without recursion and without a copy, however deep and however large it is; numbers
//! are never re-formatted.

use std::borrow::Cow;
use std::fmt;

/// The text of one JSON value, whose syntax is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json<'a>(&'a str);

/// Not JSON: what is wrong, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    what: &'static str,
    line: usize,
    column: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at line {} column {}", self.what, self.line, self.column)
    }
}

impl std::error::Error for Malformed {}

impl<'a> Json<'a> {
    /// The one value that `text` is.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn parse(text: &'a str) -> Result<Self, Malformed> {
        let mut scanner = Scanner { text, at: 0 };
        let value = scanner.value()?;
        scanner.end()?;
        Ok(value)
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
    let mut scanner = Scanner { text, at: 0 };
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
    let mut scanner = Scanner { text: members, at: 0 };
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
    let mut scanner = Scanner { text, at: 0 };
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

/// `text` as a JSON string.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\0'..='\x1f' => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The number that `text` is, without an exponent; exact up to fifteen digits. The standard parser is exact for all, by
/// tables that would be a tenth of the Worker.
#[must_use]
pub fn decimal(text: &str) -> Option<f64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1.0, text), |digits| (-1.0, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    if whole.is_empty() || fraction.is_empty() {
        return None;
    }
    let (mut value, mut unit) = (0.0, 1.0);
    for byte in whole.bytes() {
        value = value * 10.0 + digit(byte)?;
    }
    for byte in fraction.bytes() {
        (value, unit) = (value * 10.0 + digit(byte)?, unit * 10.0);
    }
    Some(sign * value / unit)
}

fn digit(byte: u8) -> Option<f64> {
    byte.is_ascii_digit().then(|| f64::from(byte - b'0'))
}

/// The string in `json`, whose syntax has been checked.
fn unquote(json: &str) -> Option<Cow<'_, str>> {
    let mut rest = json.strip_prefix('"')?.strip_suffix('"')?;
    if !rest.contains('\\') {
        return Some(Cow::Borrowed(rest));
    }
    let mut text = String::with_capacity(rest.len());
    while let Some((plain, escape)) = rest.split_once('\\') {
        text.push_str(plain);
        let (kind, after) = escape.split_at_checked(1)?;
        rest = after;
        text.push(match kind {
            "n" => '\n',
            "r" => '\r',
            "t" => '\t',
            "b" => '\u{8}',
            "f" => '\u{c}',
            "u" => {
                let (unit, after) = code_unit(after)?;
                let low = after.strip_prefix("\\u").and_then(code_unit);
                let (code, after) = match (unit, low) {
                    (0xd800..=0xdbff, Some((low @ 0xdc00..=0xdfff, after))) => {
                        (0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00), after)
                    }
                    _ => (unit, after),
                };
                rest = after;
                char::from_u32(code)?
            }
            other => other.chars().next()?,
        });
    }
    text.push_str(rest);
    Some(Cow::Owned(text))
}

fn code_unit(text: &str) -> Option<(u32, &str)> {
    let (digits, after) = text.split_at_checked(4)?;
    Some((u32::from_str_radix(digits, 16).ok()?, after))
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    /// The next value. Containers that are still open are a list of the brackets that will close them, not a recursion.
    fn value(&mut self) -> Result<Json<'a>, Malformed> {
        self.space();
        let start = self.at;
        let mut open = Vec::new();
        loop {
            match self.next() {
                Some(b'{') => {
                    self.at += 1;
                    if !self.take(b'}') {
                        self.key()?;
                        open.push(b'}');
                        continue;
                    }
                }
                Some(b'[') => {
                    self.at += 1;
                    if !self.take(b']') {
                        open.push(b']');
                        continue;
                    }
                }
                Some(b'"') => {
                    self.string()?;
                }
                Some(b't') => self.word("true")?,
                Some(b'f') => self.word("false")?,
                Some(b'n') => self.word("null")?,
                Some(b'-' | b'0'..=b'9') => self.number()?,
                _ => return Err(self.malformed("expected a value")),
            }
            // A value is over, and perhaps the containers that it was the last of.
            loop {
                let Some(&close) = open.last() else { return Ok(Json(self.since(start))) };
                if self.take(close) {
                    open.pop();
                    continue;
                }
                self.expect(b',', "expected `,` or the closing bracket")?;
                if close == b'}' {
                    self.key()?;
                }
                break;
            }
        }
    }

    /// A name and a value, which go to `each`.
    fn member(
        &mut self,
        each: &mut dyn FnMut(Cow<'a, str>, Json<'a>) -> Result<(), &'static str>,
    ) -> Result<(), Malformed> {
        let name = self.key()?;
        let name = unquote(name).ok_or_else(|| self.malformed("a name holds half of a surrogate pair"))?;
        let value = self.value()?;
        each(name, value).map_err(|what| self.malformed(what))
    }

    /// A name with its colon; answers with the name.
    fn key(&mut self) -> Result<&'a str, Malformed> {
        if self.next() != Some(b'"') {
            return Err(self.malformed("expected a name in quotes"));
        }
        let name = self.string()?;
        self.expect(b':', "expected `:`")?;
        Ok(name)
    }

    /// The string that begins here, with its quotes.
    fn string(&mut self) -> Result<&'a str, Malformed> {
        let start = self.at;
        self.at += 1;
        loop {
            let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
            self.at += rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f)).unwrap_or(rest.len());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(self.since(start));
                }
                Some(b'\\') => self.escape()?,
                Some(_) => return Err(self.malformed("a string holds a control character")),
                None => return Err(self.malformed("expected the end of a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Malformed> {
        let escape = self.text.as_bytes().get(self.at + 1..).unwrap_or_default();
        self.at += match escape {
            [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => 2,
            [b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(|digit| digit.is_ascii_hexdigit()) => 6,
            _ => return Err(self.malformed("an escape that does not exist")),
        };
        Ok(())
    }

    fn word(&mut self, word: &str) -> Result<(), Malformed> {
        if !self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            return Err(self.malformed("expected a value"));
        }
        self.at += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), Malformed> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// At least one digit.
    fn digits(&mut self) -> Result<(), Malformed> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        if count > 0 { Ok(()) } else { Err(self.malformed("a number lacks a digit")) }
    }

    fn end(&mut self) -> Result<(), Malformed> {
        if self.next().is_none() { Ok(()) } else { Err(self.malformed("something follows the value")) }
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), Malformed> {
        if self.take(byte) { Ok(()) } else { Err(self.malformed(what)) }
    }

    /// Whether the next byte after white space is `byte`; if it is, it is taken.
    fn take(&mut self, byte: u8) -> bool {
        let is_it = self.next() == Some(byte);
        self.at += usize::from(is_it);
        is_it
    }

    /// The next byte after white space.
    fn next(&mut self) -> Option<u8> {
        self.space();
        self.peek()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Begin and end are always at ASCII characters, so the slice is always there.
    fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn malformed(&self, what: &'static str) -> Malformed {
        let before = self.text.as_bytes().get(..self.at).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        Malformed { what: if self.peek().is_none() { "it breaks off" } else { what }, line, column }
    }
}

/// No object of the protocol, and none of ours, has a tenth of this; without a bound, eight megabytes of `"":0,` would
/// become sixty of list.
pub const MAX_FIELDS: usize = 256;
const TOO_MANY: &str = "an object has more than 256 members";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_json_and_what_is_not() {
        for text in [
            "null",
            " true ",
            "false",
            "0",
            "-0",
            "1.5",
            "-12.50e+3",
            "1E9",
            "\"\"",
            r#""\u00e9\"\\\/\b\f\n\r\t""#,
            "[]",
            "{}",
            "[ 1 , [ ] , { } ]",
            r#"{"a":{"b":[1,{"c":null}]},"d":"e"}"#,
            "\t[\r\n]",
            r#""\ud83d""#,
        ] {
            assert_eq!(Json::parse(text).map(Json::get), Ok(text.trim()), "{text}");
            assert!(serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok(), "{text}");
        }
        for text in [
            "",
            " ",
            "nul",
            "tru",
            "01",
            "1.",
            ".5",
            "-",
            "1e",
            "+1",
            "\"",
            "\"\n\"",
            r#""\x""#,
            r#""\u12g4""#,
            "[1,]",
            "[,]",
            "[1 2]",
            "{,}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a" 1}"#,
            "{1:2}",
            "[}",
            "{]",
            "[1]]",
            "1 2",
            "é",
        ] {
            assert!(Json::parse(text).is_err(), "{text}");
            assert!(serde_json::from_str::<&serde_json::value::RawValue>(text).is_err(), "{text}");
        }
    }

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

    #[test]
    fn depth_is_no_matter() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert!(Json::parse(&deep).is_ok());
        assert!(Json::parse(deep.get(1..).unwrap()).is_err());
    }

    #[test]
    fn decimals_are_exact_up_to_fifteen_digits() {
        for text in ["0", "-0", "3.0", "2.5", "-0.001", "0.1", "123456789.012345", "1.959964", "999999999999999"] {
            assert_eq!(decimal(text), text.parse().ok(), "{text}");
        }
        for text in ["", "-", ".", "1.", ".5", "1e3", "NaN", "inf", " 1", "+1"] {
            assert_eq!(decimal(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_string_survives_its_json(text in any::<String>()) {
            let quoted = quote(&text);
            prop_assert_eq!(&quoted, &serde_json::to_string(&text).unwrap());
            prop_assert_eq!(Json::parse(&quoted).unwrap().string().unwrap(), text);
        }

        #[test]
        fn escapes_mean_what_they_mean_elsewhere(text in r#"(\\[ubnrt"/\\]|\\u[0-9a-fD][0-9a-f89D]{2}[0-9a-f]|[a-zé🦀]){0,6}"#) {
            let json = format!("\"{text}\"");
            let ours = Json::parse(&json).ok().and_then(Json::string).map(Cow::into_owned);
            prop_assert_eq!(ours, serde_json::from_str::<String>(&json).ok());
        }

        #[test]
        fn any_text_is_judged_as_elsewhere(text in r#"[\[\]{},:"a\\0-9.eE+\- ntrufals]{0,12}"#) {
            let elsewhere = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
            prop_assert_eq!(Json::parse(&text).is_ok(), elsewhere, "{}", text);
        }
    }
}
