//! What the `anthropic-ratelimit-*` headers say, as the pacer wants to hear it.
//!
//! Each limit has three headers: its size, what is left, and when it is full again, as a moment. Moments do not travel between
//! machines, so it is made a duration here. A limit that lacks one of the three, or has one that cannot be, is no hint at all;
//! the others count all the same.

use std::time::{Duration, UNIX_EPOCH};

use crate::policy::rate_limits::{RateLimit, RateLimits};
use crate::policy::time::Timestamp;

/// What an answer's headers say, which `get` finds by their lower-case names; its call had `begun`, and they came `now`.
#[must_use]
pub fn parse(get: impl Fn(&str) -> Option<String>, begun: Timestamp, now: Timestamp) -> RateLimits {
    let limit = |kind: &str| {
        let header = |what: &str| get(&format!("anthropic-ratelimit-{kind}-{what}"));
        let said = RateLimit {
            limit: number(&header("limit")?)?,
            remaining: number(&header("remaining")?)?,
            reset_after: until(&header("reset")?, now)?,
        };
        said.is_possible().then_some(said)
    };
    RateLimits {
        requests: limit("requests"),
        tokens: limit("tokens"),
        input_tokens: limit("input-tokens"),
        output_tokens: limit("output-tokens"),
        used: None,
        begun_ago: now.since(begun),
        came_ago: Duration::ZERO,
    }
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// From `now` until an RFC 3339 moment in UTC. One that has just passed is now, for clocks differ; one long ago is rubbish.
fn until(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    let utc = text.strip_suffix("+00:00").map(|moment| format!("{moment}Z"));
    let at = humantime::parse_rfc3339(utc.as_deref().unwrap_or(text)).ok()?;
    let at = Timestamp::default() + at.duration_since(UNIX_EPOCH).ok()?;
    (now.since(at) <= LONG_AGO).then(|| at.after(now))
}

const LONG_AGO: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-30T13:05:12Z
    const NOW: Timestamp = Timestamp::from_millis(1_796_043_912_000);

    fn read(headers: &[(&str, &str)]) -> RateLimits {
        let get = |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        parse(get, NOW - Duration::from_secs(2), NOW)
    }

    fn requests(limit: &str, remaining: &str, reset: &str) -> Option<RateLimit> {
        read(&[
            ("anthropic-ratelimit-requests-limit", limit),
            ("anthropic-ratelimit-requests-remaining", remaining),
            ("anthropic-ratelimit-requests-reset", reset),
        ])
        .requests
    }

    #[test]
    fn every_limit_is_read_from_its_own_three_headers() {
        let mut headers = Vec::new();
        for (kind, limit) in
            [("requests", "4000"), ("tokens", "480000"), ("input-tokens", "400000"), ("output-tokens", "80000")]
        {
            for (what, value) in [("limit", limit), ("remaining", "1000"), ("reset", "2026-11-30T13:05:42Z")] {
                headers.push((format!("anthropic-ratelimit-{kind}-{what}"), value));
            }
        }
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let said = |limit| Some(RateLimit { limit, remaining: 1_000, reset_after: Duration::from_secs(30) });
        let expected = RateLimits {
            requests: said(4_000),
            tokens: said(480_000),
            input_tokens: said(400_000),
            output_tokens: said(80_000),
            begun_ago: Duration::from_secs(2),
            ..RateLimits::default()
        };
        assert_eq!(read(&headers), expected);
        assert_eq!(
            read(&headers[3..6]),
            RateLimits { tokens: expected.tokens, begun_ago: expected.begun_ago, ..RateLimits::default() }
        );
        assert_eq!(read(&headers[1..3]).requests, None, "one of the three is missing");
    }

    #[test]
    fn a_reset_is_a_moment_that_becomes_a_wait() {
        for (reset, seconds) in [
            ("2026-11-30T13:05:12Z", Some(0)),
            (" 2026-11-30T13:06:12Z ", Some(60)),
            ("2026-11-30T13:05:13.500Z", Some(1)),
            ("2026-11-30T13:05:22+00:00", Some(10)),
            ("2026-11-30T13:05:02Z", Some(0)),
            ("2026-11-30T13:15:12Z", Some(600)),
            ("2026-11-30T13:15:13Z", None),
            ("2026-11-30T12:55:11Z", None),
            ("2026-11-30T13:05:22+09:00", None),
            ("1969-12-31T23:59:59Z", None),
            ("9999-12-31T23:59:59Z", None),
            ("30", None),
            ("", None),
            ("2026-13-30T13:05:22Z", None),
        ] {
            let read = requests("50", "0", reset);
            assert_eq!(read.map(|limit| limit.reset_after.as_secs()), seconds, "{reset:?}");
        }
    }

    #[test]
    fn numbers_that_cannot_be_are_no_hint() {
        for (limit, remaining, is_hint) in [
            ("50", "49", true),
            (" 50 ", "0", true),
            ("50", "50", true),
            ("50", "51", false),
            ("0", "0", false),
            ("50", "-1", false),
            ("50", "1.5", false),
            ("50", "", false),
            ("many", "1", false),
            ("99999999999", "1", false),
            ("99999999999999999999999", "1", false),
        ] {
            assert_eq!(requests(limit, remaining, "2026-11-30T13:05:42Z").is_some(), is_hint, "{remaining} of {limit}");
        }
    }
}
