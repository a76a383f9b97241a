//! How a caller of the synchronous path wants to be treated when Claude is overloaded: its headers (A2).
//!
//! The body is Anthropic's own and stays so; what is ours is in headers that start with `spillway-`. Each is optional, and an
//! official SDK sends none of them.

use std::time::Duration;

use super::error::ApiError;
use super::webhook;
use crate::claude::request::Problem;
use crate::json;
use crate::policy::priority::Priority;

/// What becomes of a call that overload, or a long rate limit, has kept from an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handoff {
    /// It becomes a job, and the connection is held for as long as the caller is patient. (A receipt instead of a Message
    /// would break an SDK's user, who reads `content[0]` of it.)
    #[default]
    Wait,
    /// It becomes a job, and the caller gets its receipt at once.
    Auto,
    /// The caller gets the upstream's error, and there is no job.
    Never,
}

json::names!(Handoff {
    Wait => "wait",
    Auto => "auto",
    Never => "never",
});

/// What a caller wishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// `spillway-handoff`
    pub handoff: Handoff,
    /// `spillway-max-wait`: from arrival to the end of the hold.
    pub max_wait: Option<Duration>,
    /// `spillway-kind`
    pub kind: Option<String>,
    /// `spillway-priority`
    pub priority: Priority,
    /// `spillway-fallback`: whether the kind's word on the fallback is overruled.
    pub fallback: Option<bool>,
    /// `spillway-webhook`: where it is told how the job ended, if the call becomes one.
    pub webhook: Option<String>,
}

impl Wish {
    /// Reads the headers.
    ///
    /// # Errors
    /// 400 with every fault.
    pub fn parse(header: impl Fn(&str) -> Option<String>) -> Result<Self, ApiError> {
        let mut problems = Vec::new();
        let mut one_of = |name: &str, names: &[&str]| {
            let value = header(name).map(|value| value.trim().to_ascii_lowercase())?;
            let found = names.iter().position(|known| *known == value);
            if found.is_none() {
                problems.push(Problem::new(name, format!("must be one of {}", names.join(", "))));
            }
            found
        };
        let handoff = one_of("spillway-handoff", &["wait", "auto", "never"])
            .and_then(|index| [Handoff::Wait, Handoff::Auto, Handoff::Never].get(index).copied());
        let priority =
            one_of("spillway-priority", &["high", "medium", "low"]).and_then(|index| Priority::ALL.get(index).copied());
        let fallback = one_of("spillway-fallback", &["allow", "never"]).map(|index| index == 0);
        let max_wait = header("spillway-max-wait").map(|value| value.trim().parse::<u64>());
        if max_wait.as_ref().is_some_and(|wait| !matches!(wait, Ok(0..=MAX_WAIT_SECONDS))) {
            let what = format!("must be a whole number of seconds from 0 to {MAX_WAIT_SECONDS}");
            problems.push(Problem::new("spillway-max-wait", what));
        }
        let webhook = header("spillway-webhook").map(|address| address.trim().to_owned());
        if webhook.as_deref().is_some_and(|address| !webhook::is_address(address)) {
            problems.push(Problem::new("spillway-webhook", format!("must be {}", webhook::ADDRESS)));
        }
        if !problems.is_empty() {
            return Err(ApiError::invalid(problems));
        }
        Ok(Self {
            handoff: handoff.unwrap_or_default(),
            max_wait: max_wait.and_then(Result::ok).map(Duration::from_secs),
            kind: header("spillway-kind").map(|kind| kind.trim().to_owned()),
            priority: priority.unwrap_or_default(),
            fallback,
            webhook,
        })
    }
}

/// The longest hold, as for `sync.max_wait_seconds`.
const MAX_WAIT_SECONDS: u64 = 600;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(headers: &[(&str, &str)]) -> Result<Wish, ApiError> {
        Wish::parse(|name| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn without_headers_the_connection_is_held_and_the_kind_decides() {
        let wish = parse(&[]).unwrap();
        assert_eq!(wish, Wish::default());
        assert_eq!((wish.handoff, wish.priority), (Handoff::Wait, Priority::Medium));
    }

    #[test]
    fn each_header_is_read_however_it_is_written() {
        let wish = parse(&[
            ("spillway-handoff", " Auto"),
            ("spillway-max-wait", "30"),
            ("spillway-kind", "tagging "),
            ("spillway-priority", "HIGH"),
            ("spillway-fallback", "never"),
            ("spillway-webhook", " https://app.example/hook"),
        ]);
        let expected = Wish {
            handoff: Handoff::Auto,
            max_wait: Some(Duration::from_secs(30)),
            kind: Some("tagging".into()),
            priority: Priority::High,
            fallback: Some(false),
            webhook: Some("https://app.example/hook".into()),
        };
        assert_eq!(wish, Ok(expected));
    }

    #[test]
    fn every_fault_is_told_at_once_with_its_header() {
        let error = parse(&[
            ("spillway-handoff", "perhaps"),
            ("spillway-max-wait", "601"),
            ("spillway-priority", ""),
            ("spillway-fallback", "yes"),
            ("spillway-webhook", "http://app.example/hook"),
        ])
        .unwrap_err();
        let places: Vec<_> = error.problems.iter().map(|problem| problem.place.as_str()).collect();
        assert_eq!(
            places,
            ["spillway-handoff", "spillway-priority", "spillway-fallback", "spillway-max-wait", "spillway-webhook",]
        );
        for wait in ["-1", "1.5", "soon", ""] {
            assert!(parse(&[("spillway-max-wait", wait)]).is_err(), "{wait:?}");
        }
    }
}
