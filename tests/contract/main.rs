//! The HTTP contract as data: what a submission may be, what an app reads in return, and what an operator may set. Bodies
//! are compared whole, so that a field that is renamed, lost or added by accident is seen.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod errors;
mod histories;
mod operations;
mod overrides;
mod policy;
mod receipts;
mod statuses;
mod submissions;
mod webhooks;

use spillway::config::Config;

/// A deployment with every secret set.
pub(crate) fn config() -> Config {
    config_with(|_| None)
}

/// The same, with what `own` answers.
pub(crate) fn config_with(own: impl Fn(&str) -> Option<&'static str>) -> Config {
    Config::parse(|name| own(name).or_else(|| default(name)).filter(|value| !value.is_empty()).map(str::to_owned))
        .unwrap()
}

fn default(name: &str) -> Option<&'static str> {
    match name {
        "CLIENT_KEYS" => Some("app:secret"),
        "SIGNING_SECRET" => Some("signing"),
        "WEBHOOK_SECRET" => Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        _ => None,
    }
}
