//! Moments as people and programs write them, RFC 3339.
//!
//! humantime reads the date and the time of day, but takes any offset other than `Z` and `+00:00` for a mistake, and lets
//! things pass that leave out the offset. An operator copies what their clock shows, so the offset is read here, and has to
//! be there.

use std::time::UNIX_EPOCH;

use crate::policy::time::Timestamp;

/// The moment that `text` is, if it is one of RFC 3339, from 1970 on: `2026-11-30T13:05:12Z`, `2026-11-30t14:05:12.5+01:00`.
/// Parts of a millisecond are dropped.
#[must_use]
pub fn parse(text: &str) -> Option<Timestamp> {
    let text = text.to_ascii_uppercase();
    let (local, offset_minutes) = match text.strip_suffix('Z') {
        Some(local) => (local, 0),
        None => {
            let (local, offset) = text.split_at_checked(text.len().checked_sub(OFFSET.len())?)?;
            (local, minutes(offset)?)
        }
    };
    let is_date_and_time = local.as_bytes().get(10) == Some(&b'T')
        && local.ends_with(|c: char| c.is_ascii_digit())
        && !local.contains(['Z', '+']);
    let moment = humantime::parse_rfc3339_weak(local).ok().filter(|_| is_date_and_time)?;
    let local_ms = i64::try_from(moment.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()?;
    u64::try_from(local_ms.checked_sub(offset_minutes * 60_000)?).ok().map(Timestamp::from_millis)
}

/// The minutes of an offset, `+05:30`.
fn minutes(offset: &str) -> Option<i64> {
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let number = |digits: &str, most: i64| {
        let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<i64>().ok().filter(|number| is_number && *number <= most)
    };
    let total = number(hours, 23)? * 60 + number(minutes, 59)?;
    match offset.as_bytes().first() {
        Some(b'+') => Some(total),
        Some(b'-') => Some(-total),
        _ => None,
    }
}

const OFFSET: &str = "+00:00";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_offset_names_the_same_moment() {
        for text in [
            "2023-11-14T22:13:20Z",
            "2023-11-14t22:13:20z",
            "2023-11-14T22:13:20.000Z",
            "2023-11-14T22:13:20+00:00",
            "2023-11-14T22:13:20-00:00",
            "2023-11-14T23:13:20+01:00",
            "2023-11-15T03:43:20.000+05:30",
            "2023-11-14T14:13:20-08:00",
            "2023-11-15T22:12:20+23:59",
        ] {
            assert_eq!(parse(text), Some(Timestamp::from_millis(1_700_000_000_000)), "{text}");
        }
    }

    #[test]
    fn fractions_are_read_to_the_millisecond() {
        for (fraction, ms) in [(".1", 100), (".123", 123), (".123999999", 123), (".1239999999999", 123)] {
            assert_eq!(
                parse(&format!("1970-01-01T00:00:00{fraction}Z")),
                Some(Timestamp::from_millis(ms)),
                "{fraction}"
            );
        }
    }

    #[test]
    fn what_is_no_moment_of_rfc_3339_is_none() {
        for text in [
            "",
            "Z",
            "+00:00",
            "soon",
            "1700000000",
            "2023-11-14",
            "2023-11-14T22:13Z",
            "2023-11-14T22:13:20",
            "2023-11-14T22:13:20.5",
            "2023-11-14 22:13:20Z",
            "2023-11-14T22:13:20 Z",
            "2023-11-14T22:13:20ZZ",
            "2023-11-14T22:13:20Z+01:00",
            "2023-11-14T22:13:20.5Z+01:00",
            "2023-11-14T22:13:20+00:00+01:00",
            "2023-11-14T22:13:20.5+00:00Z",
            "2023-11-14T22:13:20.Z",
            "2023-11-14T22:13:20+0100",
            "2023-11-14T22:13:20+01",
            "2023-11-14T22:13:20+24:00",
            "2023-11-14T22:13:20+01:60",
            "2023-11-14T22:13:20+-1:00",
            "2023-11-14T22:13:20*01:00",
            "2023-13-14T22:13:20Z",
            "2023-02-29T22:13:20Z",
            "2023-11-14T24:13:20Z",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "12023-11-14T22:13:20Z",
            "2023-11-14T22:13:2\u{e9}Z",
            "2023-11-14T22:13:20\u{e9}01:00",
            "\u{1f600}\u{1f600}\u{1f600}\u{1f600}\u{1f600}\u{1f600}",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_last_moment_that_it_can_name_does_no_harm() {
        assert!(parse("9999-12-31T23:59:59-23:59").is_some());
    }
}
