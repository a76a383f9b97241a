//! A body's members and what is wrong with them: every fault at once, each with its place. A person who mends a body wants
//! the whole list, so nothing returns at the first fault; whoever reads a form asks for `problems` at the end.

use std::borrow::Cow;

use super::error::{ApiError, ErrorKind};
use crate::claude::request::Problem;
use crate::json::{self, Fields, FromJson, Json};

/// The members of a body and what has been found wrong with them.
#[derive(Debug)]
pub struct Form<'a> {
    /// The members.
    pub fields: Fields<'a>,
    /// What has been found wrong so far.
    pub problems: Vec<Problem>,
}

impl<'a> Form<'a> {
    /// The members of `body`; those that are not among `names`, and those that come twice, are problems.
    ///
    /// # Errors
    /// 400 if it is no JSON object.
    pub fn parse(body: &'a [u8], names: &[&str]) -> Result<Self, ApiError> {
        let not_json = |error: &dyn std::fmt::Display| {
            ApiError::new(ErrorKind::InvalidRequest, format!("the body is not a JSON object: {error}"))
        };
        let text = std::str::from_utf8(body).map_err(|error| not_json(&error))?;
        let fields = Fields::parse(text).map_err(|error| not_json(&error))?;
        let mut form = Self { fields, problems: Vec::new() };
        form.refuse_unknown_and_doubled(names);
        Ok(form)
    }

    /// Notes that something is wrong at `place`.
    pub fn problem(&mut self, place: &str, message: impl Into<String>) {
        self.problems.push(Problem { place: place.to_owned(), message: message.into() });
    }

    fn refuse_unknown_and_doubled(&mut self, known: &[&str]) {
        let names: Vec<Cow<'a, str>> = self.fields.0.iter().map(|(name, _)| name.clone()).collect();
        for (index, name) in names.iter().enumerate() {
            if !known.contains(&name.as_ref()) {
                self.problem(&printable(name), format!("is not a known field; there are {}", known.join(", ")));
            } else if names.iter().take(index).any(|earlier| earlier == name) {
                self.problem(name, "appears twice");
            }
        }
    }

    /// The member `name`, raw; a null is as good as none.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<Json<'a>> {
        self.fields.get(name).filter(|value| value.get() != "null")
    }

    /// The value of `name`; a problem if it is not there.
    pub fn required<T: FromJson>(&mut self, name: &str, expected: &str) -> Option<T> {
        if self.value(name).is_none() {
            self.problem(name, format!("is required: {expected}"));
        }
        self.optional(name, expected)
    }

    /// The value of `name`, if there is one.
    pub fn optional<T: FromJson>(&mut self, name: &str, expected: &str) -> Option<T> {
        let parsed = json::read(self.value(name)?.get()).ok();
        if parsed.is_none() {
            self.problem(name, format!("must be {expected}"));
        }
        parsed
    }

    /// The text of `name`, if there is one; a problem if it is not valid.
    pub fn checked(&mut self, name: &str, expected: &str, is_valid: impl Fn(&str) -> bool) -> Option<String> {
        let value: String = self.optional(name, expected)?;
        if !is_valid(&value) {
            self.problem(name, format!("must be {expected}"));
        }
        Some(value)
    }
}

/// A name that a caller made up, fit for a message.
fn printable(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(64).collect()
}
