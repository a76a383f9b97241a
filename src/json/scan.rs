//! The pass over a JSON text: where a value ends, and whether its syntax is right.
//!
//! Without recursion and without a copy, however deep and however large a value is. It knows nothing of what a value means.

use std::borrow::Cow;
use std::fmt;

use super::scalar::unquote;
use super::text::Json;

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

/// Where the pass has come to.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The next value. Containers that are still open are a list of the brackets that will close them, not a recursion.
    pub(super) fn value(&mut self) -> Result<Json<'a>, Malformed> {
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
                let Some(&close) = open.last() else { return Ok(Json::checked(self.since(start))) };
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
    pub(super) fn member(
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

    pub(super) fn end(&mut self) -> Result<(), Malformed> {
        if self.next().is_none() { Ok(()) } else { Err(self.malformed("something follows the value")) }
    }

    pub(super) fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), Malformed> {
        if self.take(byte) { Ok(()) } else { Err(self.malformed(what)) }
    }

    /// Whether the next byte after white space is `byte`; if it is, it is taken.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let is_it = self.next() == Some(byte);
        self.at += usize::from(is_it);
        is_it
    }

    /// The next byte after white space.
    pub(super) fn next(&mut self) -> Option<u8> {
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
    fn depth_is_no_matter() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert!(Json::parse(&deep).is_ok());
        assert!(Json::parse(deep.get(1..).unwrap()).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_judged_as_elsewhere(text in r#"[\[\]{},:"a\\0-9.eE+\- ntrufals]{0,12}"#) {
            let elsewhere = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
            prop_assert_eq!(Json::parse(&text).is_ok(), elsewhere, "{}", text);
        }
    }
}
