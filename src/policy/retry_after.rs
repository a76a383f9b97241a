//! The wait that the upstream asks for (B3): `retry-after-ms`, `retry-after` in seconds or as an HTTP date.

use std::time::Duration;

use super::time::Timestamp;
use crate::json::decimal;

/// The wait asked for by the headers, `retry-after-ms` first; `None` if neither makes sense.
///
/// Seconds may be fractional; a date is turned into a wait from `now`, and one in the past is a wait of zero. Rubbish and
/// negative numbers are no hint at all.
#[must_use]
pub fn parse(retry_after_ms: Option<&str>, retry_after: Option<&str>, now: Timestamp) -> Option<Duration> {
    let number = |text: &str, unit_ms: f64| {
        let value = decimal(text.trim()).filter(|value| *value >= 0.0)?;
        Some(Duration::from_millis((value * unit_ms).min(MAX_MS) as u64))
    };
    let date = |text: &str| {
        let at = httpdate::parse_http_date(text.trim()).ok()?;
        let since_epoch = at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Some((Timestamp::default() + since_epoch).after(now))
    };
    retry_after_ms
        .and_then(|text| number(text, 1.0))
        .or_else(|| retry_after.and_then(|text| number(text, 1000.0).or_else(|| date(text))))
}

/// A hundred years: keeps sums of hints far from overflow.
const MAX_MS: f64 = 100.0 * 365.25 * 86_400_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT
    const NOW: Timestamp = Timestamp::from_millis(784_111_777_000);

    #[test]
    fn a_hint_is_read_as_seconds_or_a_date_and_rubbish_is_none() {
        for (text, ms) in [
            ("0", Some(0)),
            ("1", Some(1_000)),
            (" 2.5 ", Some(2_500)),
            ("86401", Some(86_401_000)),
            ("1577880000", Some(1_577_880_000_000)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10_000)),
            ("Sun, 06 Nov 1994 08:49:27 GMT", Some(0)),
            ("-1", None),
            ("soon", None),
            ("", None),
            ("NaN", None),
            ("inf", None),
        ] {
            assert_eq!(parse(None, Some(text), NOW), ms.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn milliseconds_win_over_seconds_and_rubbish_falls_through() {
        assert_eq!(parse(Some("250"), Some("9"), NOW), Some(Duration::from_millis(250)));
        assert_eq!(parse(Some("x"), Some("9"), NOW), Some(Duration::from_secs(9)));
        assert_eq!(parse(None, None, NOW), None);
    }

    #[test]
    fn an_absurd_hint_is_capped_instead_of_overflowing() {
        for digits in [20, 300, 400] {
            let wait = parse(None, Some(&"9".repeat(digits)), NOW);
            assert_eq!(wait, Some(Duration::from_millis(MAX_MS as u64)), "{digits} digits");
        }
    }
}
