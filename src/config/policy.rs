//! `POLICY`: one JSON object, over the defaults.
//!
//! Its values are read one by one and checked one by one, and every fault is told at once: whoever mends a deployment in the
//! middle of an outage has no time to be told of one mistake after the other. Nothing is brought into its range silently.

use std::time::Duration;

use super::fault::Fault;
use super::sections::{
    AlertSettings, CallSettings, DeferralSettings, EventSettings, HourSettings, SyncSettings, WebhookSettings,
};
use super::{MAX_DEADLINE_SECONDS, MIN_DEADLINE_SECONDS, is_model};
use crate::job::Timing;
use crate::job::notice::Patience;
use crate::json::{self, Map};
use crate::policy::kinds::Kind;
use crate::policy::models::Models;
use crate::policy::settings::{BackoffSettings, BreakerSettings, DegradedSettings, GateSettings, PaceSettings};
use crate::policy::wording::{LONG_WAIT, Messages};

/// The absorption policy's settings. Durations are integers with the unit in the name.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Passes over the ladder before a job is exhausted. 1–100, default 5 (C4, B6).
    pub max_attempts: u32,
    /// Upstream requests that one job may make. 1–1,000, default 20; at least three per attempt are always allowed.
    pub max_calls: u32,
    /// Times that a job may be deferred. 0–10, default 1 (A5).
    pub max_deferrals: u32,
    /// How long a job may wait if it does not say. 30–604,800 s, default 86,400 (B14).
    pub deadline_seconds: u64,
    /// How long a finished job is kept, from its end. 60–2,592,000 s, default 86,400 (A3).
    pub retention_seconds: u64,
    /// How long a consumer is believed to live without a word from it. 1–900 s, default 120.
    pub lease_seconds: u32,
    /// How long a turn's message may be overdue before it is sent again, doubling. 1–86,400 s, default 600.
    pub watchdog_seconds: u64,
    /// How often one call tries whether a spend cap is over. 1–86,400 s, default 900.
    pub spend_cap_retry_seconds: u32,
    /// From which wait on an unfinished job says that it takes longer. 1–86,400 s, default 25 (A10).
    pub long_wait_seconds: u64,
    /// The limits of one call.
    pub call: CallSettings,
    /// When the breaker trips and for how long (A7).
    pub breaker: BreakerSettings,
    /// The waits after failures (B2).
    pub backoff: BackoffSettings,
    /// Rate and concurrency towards a model (B9).
    pub pace: PaceSettings,
    /// When the fallback is preferred (B7).
    pub degraded: DegradedSettings,
    /// Peak and off-peak hours (A11, B9).
    pub hours: HourSettings,
    /// Deferral of exhausted jobs (A5).
    pub deferral: DeferralSettings,
    /// The synchronous path.
    pub sync: SyncSettings,
    /// Live events.
    pub events: EventSettings,
    /// What the operator is told of (A8).
    pub alerts: AlertSettings,
    /// Webhooks to the app (A12).
    pub webhooks: WebhookSettings,
    /// Rows added to the kind table, or replacing its own (A6).
    pub kinds: Map<String, Kind>,
    /// What models can do: rows and values over the built-in table.
    pub models: Models,
    /// What a job's user reads, by language and code, over our own texts: 1–500 characters each (A9).
    pub messages: Messages,
}

json::object!(only default Policy {
    max_attempts,
    max_calls,
    max_deferrals,
    deadline_seconds,
    retention_seconds,
    lease_seconds,
    watchdog_seconds,
    spend_cap_retry_seconds,
    long_wait_seconds,
    call,
    breaker,
    backoff,
    pace,
    degraded,
    hours,
    deferral,
    sync,
    events,
    alerts,
    webhooks,
    kinds,
    models,
    messages,
});

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            max_calls: 20,
            max_deferrals: 1,
            deadline_seconds: 86_400,
            retention_seconds: 86_400,
            lease_seconds: 120,
            watchdog_seconds: 600,
            spend_cap_retry_seconds: 900,
            long_wait_seconds: LONG_WAIT.as_secs(),
            call: CallSettings::default(),
            breaker: BreakerSettings::default(),
            backoff: BackoffSettings::default(),
            pace: PaceSettings::default(),
            degraded: DegradedSettings::default(),
            hours: HourSettings::default(),
            deferral: DeferralSettings::default(),
            sync: SyncSettings::default(),
            events: EventSettings::default(),
            alerts: AlertSettings::default(),
            webhooks: WebhookSettings::default(),
            kinds: Map::default(),
            models: Models::default(),
            messages: Messages::default(),
        }
    }
}

impl Policy {
    /// Reads the `POLICY` object.
    ///
    /// # Errors
    /// Every fault at once, each with its key.
    pub fn parse(json: &str) -> Result<Self, Vec<Fault>> {
        let (policy, unfit) = json::read_and_fault::<Self>(json)
            .map_err(|error| vec![Fault::new("POLICY", format!("is not JSON: {error}"))])?;
        let mut faults: Vec<Fault> = unfit.into_iter().map(Fault::from).collect();
        faults.extend(policy.iter().flat_map(Self::validate));
        policy.filter(|_| faults.is_empty()).ok_or(faults)
    }

    /// What the gate needs to know.
    #[must_use]
    pub fn gate(&self) -> GateSettings {
        GateSettings {
            lease_seconds: self.lease_seconds,
            spend_cap_retry_seconds: self.spend_cap_retry_seconds,
            breaker: self.breaker.clone(),
            pace: self.pace.clone(),
            degraded: self.degraded.clone(),
            long_wait_seconds: self.long_wait_seconds,
            peak: self.hours.peak_utc,
        }
    }

    /// What a job's schedule needs to know.
    #[must_use]
    pub const fn timing(&self) -> Timing {
        Timing {
            lease: Duration::from_secs(self.lease_seconds as u64),
            watchdog: Duration::from_secs(self.watchdog_seconds),
            retention: Duration::from_secs(self.retention_seconds),
            webhooks: Patience {
                answer: Duration::from_secs(self.webhooks.timeout_seconds),
                give_up: Duration::from_secs(self.webhooks.give_up_seconds),
                backoff: self.webhooks.backoff,
            },
        }
    }

    /// From which wait on an unfinished job says that it takes longer.
    #[must_use]
    pub const fn long_wait(&self) -> Duration {
        Duration::from_secs(self.long_wait_seconds)
    }

    fn validate(&self) -> Vec<Fault> {
        let ranges = [
            ("max_attempts", u64::from(self.max_attempts), 1, 100),
            ("max_calls", u64::from(self.max_calls), 1, 1_000),
            ("max_deferrals", u64::from(self.max_deferrals), 0, 10),
            ("deadline_seconds", self.deadline_seconds, MIN_DEADLINE_SECONDS, MAX_DEADLINE_SECONDS),
            ("retention_seconds", self.retention_seconds, 60, 2_592_000),
            ("lease_seconds", u64::from(self.lease_seconds), 1, 900),
            ("watchdog_seconds", self.watchdog_seconds, 1, 86_400),
            ("spend_cap_retry_seconds", u64::from(self.spend_cap_retry_seconds), 1, 86_400),
            ("long_wait_seconds", self.long_wait_seconds, 1, 86_400),
            ("call.total_seconds", self.call.total_seconds, 1, MAX_CALL_SECONDS),
            ("call.headers_seconds", self.call.headers_seconds, 1, MAX_CALL_SECONDS),
            ("call.idle_seconds", self.call.idle_seconds, 1, MAX_CALL_SECONDS),
            ("deferral.answer_seconds", self.deferral.answer_seconds, 1, 86_400),
            ("deferral.at_least_seconds", self.deferral.at_least_seconds, 0, 86_400),
            ("sync.max_wait_seconds", self.sync.max_wait_seconds, 0, 600),
            ("events.heartbeat_seconds", self.events.heartbeat_seconds, 1, 30),
            ("alerts.quiet_seconds", self.alerts.quiet_seconds, 1, 86_400),
            ("events.life_seconds", self.events.life_seconds, 1, 3_600),
            ("webhooks.timeout_seconds", self.webhooks.timeout_seconds, 1, 60),
            ("webhooks.give_up_seconds", self.webhooks.give_up_seconds, 1, 604_800),
        ];
        let mut faults: Vec<Fault> = ranges
            .into_iter()
            .filter(|(_, value, min, max)| !(*min..=*max).contains(value))
            .map(|(key, _, min, max)| Fault::new(format!("POLICY.{key}"), format!("must be from {min} to {max}")))
            .collect();
        for (name, model) in self.models.iter() {
            if model.context_tokens == 0 || model.output_tokens == 0 {
                faults.push(Fault::new(
                    format!("POLICY.models.{name}"),
                    "its context_tokens and output_tokens must be above 0",
                ));
            }
        }
        for (name, kind) in self.kinds.iter() {
            if !(1..=MAX_KIND_CHARS).contains(&name.len()) || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
                let what = format!("its name must be 1 to {MAX_KIND_CHARS} visible ASCII characters");
                faults.push(Fault::new("POLICY.kinds", what));
            }
            for (key, model) in [("primary_model", &kind.primary_model), ("fallback_model", &kind.fallback_model)] {
                if model.as_deref().is_some_and(|model| !is_model(model)) {
                    faults.push(Fault::new(format!("POLICY.kinds.{name}.{key}"), "must be a model id"));
                }
            }
        }
        let sections = [
            ("breaker", self.breaker.validate()),
            ("backoff", self.backoff.validate()),
            ("webhooks.backoff", self.webhooks.backoff.validate()),
            ("pace", self.pace.validate()),
            ("degraded", self.degraded.validate()),
            ("messages", self.messages.validate()),
        ];
        for (section, problems) in sections {
            let faults_of = problems.into_iter().map(|(key, what)| Fault::new(format!("POLICY.{section}.{key}"), what));
            faults.extend(faults_of);
        }
        faults
    }
}

/// A kind's name becomes part of logs and metrics.
const MAX_KIND_CHARS: usize = 64;

const MAX_CALL_SECONDS: u64 = 780;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::hours::Windows;
    use crate::policy::kinds::WhenExhausted;

    fn faults(json: &str) -> Vec<String> {
        Policy::parse(json).err().unwrap_or_default().iter().map(Fault::to_string).collect()
    }

    #[test]
    fn partial_objects_are_merged_into_the_defaults() {
        let policy = Policy::parse(r#"{"breaker":{"open_seconds":5},"max_attempts":12}"#).unwrap();
        assert_eq!((policy.breaker.open_seconds, policy.breaker.minimum_calls), (5, 10));
        assert_eq!((policy.max_attempts, policy.max_calls), (12, 20));
    }

    /// Every value in a POLICY by its place; rows of tables are examples.
    fn places(policy: &str) -> Vec<String> {
        fn collect(value: &serde_json::Value, place: &str, all: &mut Vec<String>) {
            match value.as_object().filter(|_| !["kinds", "models", "messages"].contains(&place)) {
                Some(members) => {
                    members.iter().for_each(|(name, value)| collect(value, &format!("{place}.{name}"), all))
                }
                None => all.push(place.to_owned()),
            }
        }
        let mut all = Vec::new();
        let policy: serde_json::Map<String, serde_json::Value> = serde_json::from_str(policy).unwrap();
        policy.iter().for_each(|(name, value)| collect(value, name, &mut all));
        all.sort();
        all
    }

    #[test]
    fn the_readme_documents_every_default_as_it_is() {
        let (_, block) = include_str!("../../README.md").split_once("The defaults:\n\n```json\n").unwrap();
        let (documented, _) = block.split_once("```").unwrap();
        let mut policy = Policy::parse(documented).unwrap();
        policy.kinds.clear();
        assert_eq!(format!("{policy:?}"), format!("{:?}", Policy::default()));
        // What is absent is not written.
        let (calls_per_minute, burst, max_in_flight) = (Some(1), Some(1), Some(1));
        let pace = PaceSettings { calls_per_minute, burst, max_in_flight, start_in_flight: 1 };
        let all = Policy { pace, ..Policy::default() };
        assert_eq!(places(documented), places(&json::write(&all)));
    }

    #[test]
    fn hours_are_windows_and_may_be_none() {
        let policy = Policy::parse(r#"{"hours":{"peak_utc":"","off_peak_utc":"22-04, 12-13"}}"#).unwrap();
        assert_eq!(policy.hours.peak_utc, Windows::default());
        assert_eq!(policy.hours.off_peak_utc.to_string(), "12-13,22-04");
    }

    #[test]
    fn every_fault_is_named_by_its_key() {
        let found =
            faults(r#"{"max_atempts":1,"breaker":{"open_seconds":"long","opens":1},"kinds":{"x":{"fallback":3}}}"#);
        for (fault, key) in
            found.iter().zip(["breaker.open_seconds", "breaker.opens", "kinds.x.fallback", "max_atempts"])
        {
            assert!(fault.starts_with(&format!("POLICY.{key}")), "{fault}");
        }
        assert_eq!(found.len(), 4, "{found:?}");
    }

    #[test]
    fn impossible_values_are_refused_and_say_what_is_possible() {
        for (json, key, says) in [
            ("[]", "POLICY", "object"),
            ("{", "POLICY", "not JSON"),
            (r#"{"max_attempts":1,"max_attempts":2}"#, "POLICY", "duplicate"),
            (r#"{"max_attempts":0}"#, "POLICY.max_attempts", "1 to 100"),
            (r#"{"deadline_seconds":29}"#, "POLICY.deadline_seconds", "30 to 604800"),
            (r#"{"call":{"total_seconds":900}}"#, "POLICY.call.total_seconds", "1 to 780"),
            (r#"{"hours":{"peak_utc":"25-3"}}"#, "POLICY.hours.peak_utc", "0 to 24"),
            (r#"{"hours":{"off_peak_utc":"6-12,"}}"#, "POLICY.hours.off_peak_utc", "22-04"),
            (r#"{"hours":{"off_peak_utc":6}}"#, "POLICY.hours.off_peak_utc", "22-04"),
            (r#"{"models":{"m":{"context_tokens":1}}}"#, "POLICY.models.m", "output_tokens"),
            (r#"{"backoff":{"overloaded":{"base_ms":9,"cap_ms":3}}}"#, "POLICY.backoff.overloaded", "cap_ms"),
        ] {
            let found = faults(json).join("\n");
            assert!(found.starts_with(key) && found.contains(says), "{json}: {found}");
        }
    }

    #[test]
    fn kinds_default_to_asking() {
        let policy = Policy::parse(r#"{"kinds":{"poem":{"fallback":true}}}"#).unwrap();
        assert_eq!(policy.kinds.get("poem").map(|kind| kind.when_exhausted), Some(WhenExhausted::Ask));
    }
}
