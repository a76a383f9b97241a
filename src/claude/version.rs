//! The `anthropic-version` header: the rules that a request was written for. What one version takes another refuses (2026-10-21
//! knows no `temperature`), so it is stored with the job and sent with each of its calls.

use super::request::Problem;

/// Whether this can be a version: a date.
///
/// # Errors
/// A [`Problem`] if it cannot.
pub fn check(value: &str) -> Result<(), Problem> {
    let is_date = value.len() == 10
        && value
            .bytes()
            .enumerate()
            .all(|(at, byte)| if matches!(at, 4 | 7) { byte == b'-' } else { byte.is_ascii_digit() });
    let what = format!("must be a date such as {DEFAULT}");
    if is_date { Ok(()) } else { Err(Problem::new("anthropic-version", what)) }
}

/// What a request is written for that names none.
pub const DEFAULT: &str = "2023-06-01";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_date() {
        for (value, is_one) in [
            ("2023-06-01", true),
            ("2026-10-21", true),
            ("", false),
            ("2026-10-2", false),
            ("2026-10-211", false),
            ("2026/10/21", false),
            ("latest-one", false),
            ("２０２６-1", false),
        ] {
            assert_eq!(check(value).is_ok(), is_one, "{value:?}");
        }
    }
}
