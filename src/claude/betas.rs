//! The `anthropic-beta` header of a submission: stored with the job, and sent with each of its calls.
//!
//! Which betas exist is the upstream's business, and changes by the month. Ours is that what we store and send is a header
//! and stays small: tokens of letters, digits, `-`, `_` and `.`, parted by commas.

use super::request::Problem;

/// The features that a request asks for, as the value of one header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Betas(String);

impl Betas {
    /// Parses a header's value, or several joined with commas. `None` if it names nothing; what it names twice is kept once.
    ///
    /// # Errors
    /// A [`Problem`] if a name cannot be one, or if there are too many.
    pub fn parse(value: &str) -> Result<Option<Self>, Problem> {
        let problem = |message: String| Problem::new("anthropic-beta", message);
        if value.len() > MAX_BYTES {
            return Err(problem(format!("must not be longer than {MAX_BYTES} bytes")));
        }
        let mut names: Vec<&str> = Vec::new();
        for name in value.split(',').map(|name| name.trim_matches([' ', '\t'])).filter(|name| !name.is_empty()) {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            if !name.bytes().all(fits) {
                return Err(problem("must be names of letters, digits, '-', '_' and '.', parted by commas".to_owned()));
            }
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Ok((!names.is_empty()).then(|| Self(names.join(","))))
    }

    /// The value of the header.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Room for some thirty names.
pub const MAX_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_passed_on_in_order_once_and_without_spaces() {
        for (value, expected) in [
            ("context-1m-2025-08-07", Some("context-1m-2025-08-07")),
            (" a , b.c\t,d_E,", Some("a,b.c,d_E")),
            ("a,b,a", Some("a,b")),
            ("", None),
            (" ,, ", None),
        ] {
            let betas = Betas::parse(value).unwrap();
            assert_eq!(betas.as_ref().map(Betas::as_str), expected, "{value:?}");
        }
    }

    #[test]
    fn what_is_no_header_or_too_long_is_a_problem() {
        for value in ["a b", "a\r\nx-api-key: 1", "é", "a;b", "a\u{0}", "\"a\"", &"a,".repeat(513)] {
            assert_eq!(
                Betas::parse(value).map_err(|problem| problem.place),
                Err("anthropic-beta".to_owned()),
                "{value:?}"
            );
        }
        assert!(Betas::parse(&"a".repeat(1024)).is_ok());
    }
}
