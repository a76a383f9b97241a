//! What an operator can set about the gate, with the sources' numbers as defaults.
//!
//! Every field has its unit in its name. Unknown keys are refused while parsing; values that parse but make no sense are
//! found by `validate`, which reports *all* of them, each with its key and what would be allowed, so that a broken POLICY is
//! repaired in one go. Small values (a cooldown of one second) are allowed: tests and impatient operators need them.
//!
//! A partial object keeps the defaults of what it leaves out, also inside `backoff`: `{"overloaded": {"base_ms": 500}}` keeps
//! the cap and the jitter of *overloaded*.

use std::time::Duration;

use super::backoff::Jitter;
use super::hours::Windows;
use crate::json;

/// What is wrong with a value: its key, relative to the object that was validated, and what is allowed.
pub type Problem = (String, String);

/// The breaker's settings (A7; requirements, "What the sources get wrong", 3).
#[derive(Clone, Debug, PartialEq)]
pub struct BreakerSettings {
    /// Length of the window that the failure rate is judged over. Seconds, 1–3600, default 60 (A7).
    pub window_seconds: u32,
    /// The rate is not judged before the window holds this many decided calls. 1–10000, default 10 (A7).
    pub minimum_calls: u32,
    /// Trips when at least this share fails. Percent, 1–100, default 50 (A7).
    pub failure_rate_percent: u32,
    /// How sure the rate must be: z of the Wilson lower bound. 0 (A7's plain rate) – 10, default 3.0.
    pub confidence_z: f64,
    /// Trips after this many failures in a row that span `consecutive_seconds`. 1–10000, default 5.
    pub consecutive_failures: u32,
    /// How long those failures must have gone on without a success. Seconds, 0–3600, default 20.
    pub consecutive_seconds: u32,
    /// Trips after this many failures in a row, however fast they came. `consecutive_failures`–10000, default 15.
    pub consecutive_hard: u32,
    /// How long the gate stays open before one probe. Seconds, 1–3600, default 45 (A7 has 90; docs/adr/0016).
    pub open_seconds: u32,
    /// Each opening is drawn up to this much shorter, or it beats in time with a flapping upstream.
    /// Percent, 0–90, default 20.
    pub open_jitter_percent: u32,
    /// How long a probe lives without being renewed; then another may. Seconds, 1–3600, default 120.
    pub probe_lease_seconds: u32,
}

json::object!(only default BreakerSettings { window_seconds, minimum_calls, failure_rate_percent, confidence_z, consecutive_failures, consecutive_seconds, consecutive_hard, open_seconds, open_jitter_percent, probe_lease_seconds });

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            window_seconds: 60,
            minimum_calls: 10,
            failure_rate_percent: 50,
            confidence_z: 3.0,
            consecutive_failures: 5,
            consecutive_seconds: 20,
            consecutive_hard: 15,
            open_seconds: 45,
            open_jitter_percent: 20,
            probe_lease_seconds: 120,
        }
    }
}

impl BreakerSettings {
    /// Everything that is wrong.
    #[must_use]
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Problems::default();
        problems.range("window_seconds", self.window_seconds, 1, 3600);
        problems.range("minimum_calls", self.minimum_calls, 1, 10_000);
        problems.range("failure_rate_percent", self.failure_rate_percent, 1, 100);
        if !(0.0..=10.0).contains(&self.confidence_z) {
            problems.add("confidence_z", "must be a number from 0 to 10".to_owned());
        }
        problems.range("consecutive_failures", self.consecutive_failures, 1, 10_000);
        problems.range("consecutive_seconds", self.consecutive_seconds, 0, 3600);
        problems.range("consecutive_hard", self.consecutive_hard, self.consecutive_failures.clamp(1, 10_000), 10_000);
        problems.range("open_seconds", self.open_seconds, 1, 3600);
        problems.range("open_jitter_percent", self.open_jitter_percent, 0, 90);
        problems.range("probe_lease_seconds", self.probe_lease_seconds, 1, 3600);
        problems.0
    }
}

/// One bucket's backoff (B2): `raw = min(cap, base · 2^failures)`, then jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait before doubling. Milliseconds, 1–86400000.
    pub base_ms: u32,
    /// No wait is longer (but for jitter `additive`, which adds up to 2 s). Milliseconds, `base_ms`–86400000.
    pub cap_ms: u32,
    /// How the wait is drawn.
    pub jitter: Jitter,
}

json::object!(only default Backoff { base_ms, cap_ms, jitter });

/// What is none of the others is transient.
impl Default for Backoff {
    fn default() -> Self {
        TRANSIENT
    }
}

impl Backoff {
    /// Everything that is wrong.
    #[must_use]
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Problems::default();
        problems.range("base_ms", self.base_ms, 1, DAY_MS);
        problems.range("cap_ms", self.cap_ms, self.base_ms.clamp(1, DAY_MS), DAY_MS);
        problems.0
    }
}

/// The buckets' settings: one for the own rate, one for the platform's load (B1, B2), one for everything else that passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackoffSettings {
    /// 429. Default: base 1 s, cap 30 s, equal (B2).
    pub rate_limited: Backoff,
    /// 529. Default: base 2 s, cap 120 s, full (B2).
    pub overloaded: Backoff,
    /// 5xx, connections, timeouts. Default: base 1 s, cap 60 s, full.
    pub transient: Backoff,
}

json::object!(only default BackoffSettings { rate_limited, overloaded, transient });

const RATE_LIMITED: Backoff = Backoff { base_ms: 1_000, cap_ms: 30_000, jitter: Jitter::Equal };
const OVERLOADED: Backoff = Backoff { base_ms: 2_000, cap_ms: 120_000, jitter: Jitter::Full };
const TRANSIENT: Backoff = Backoff { base_ms: 1_000, cap_ms: 60_000, jitter: Jitter::Full };

impl Default for BackoffSettings {
    fn default() -> Self {
        Self { rate_limited: RATE_LIMITED, overloaded: OVERLOADED, transient: TRANSIENT }
    }
}

impl BackoffSettings {
    /// Everything that is wrong.
    #[must_use]
    pub fn validate(&self) -> Vec<Problem> {
        [("rate_limited", self.rate_limited), ("overloaded", self.overloaded), ("transient", self.transient)]
            .into_iter()
            .flat_map(|(name, backoff)| {
                backoff.validate().into_iter().map(move |(key, what)| (format!("{name}.{key}"), what))
            })
            .collect()
    }
}

/// How fast the gate lets calls through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaceSettings {
    /// Calls per minute towards the model (B9); null: no limit of ours. 1–1000000.
    pub calls_per_minute: Option<u32>,
    /// How many of them may come at once; null: a tenth of a minute's, at least 1. 1–100000.
    pub burst: Option<u32>,
    /// No more calls in flight than this; null: only what the gate learns. 1–512.
    pub max_in_flight: Option<u32>,
    /// Calls in flight before anything is known. 1–512, default 8.
    pub start_in_flight: u32,
}

json::object!(only default PaceSettings { calls_per_minute, burst, max_in_flight, start_in_flight });

impl Default for PaceSettings {
    fn default() -> Self {
        Self { calls_per_minute: None, burst: None, max_in_flight: None, start_in_flight: 8 }
    }
}

impl PaceSettings {
    /// Everything that is wrong.
    #[must_use]
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Problems::default();
        problems.optional("calls_per_minute", self.calls_per_minute, 1, 1_000_000);
        problems.optional("burst", self.burst, 1, 100_000);
        problems.optional("max_in_flight", self.max_in_flight, 1, MAX_IN_FLIGHT);
        problems.range("start_in_flight", self.start_in_flight, 1, MAX_IN_FLIGHT);
        problems.0
    }

    /// The most calls that may ever be in flight.
    #[must_use]
    pub fn max(&self) -> u32 {
        self.max_in_flight.unwrap_or(MAX_IN_FLIGHT).clamp(1, MAX_IN_FLIGHT)
    }
}

/// When the primary counts as degraded (B7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DegradedSettings {
    /// Overloads in a row. 1–1000, default 5 (B7: 5–8 is sensible).
    pub consecutive_overloads: u32,
    /// How often one call tries the primary all the same. Seconds, 1–86400, default 90.
    pub retry_seconds: u32,
}

json::object!(only default DegradedSettings { consecutive_overloads, retry_seconds });

impl Default for DegradedSettings {
    fn default() -> Self {
        Self { consecutive_overloads: 5, retry_seconds: 90 }
    }
}

impl DegradedSettings {
    /// Everything that is wrong.
    #[must_use]
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Problems::default();
        problems.range("consecutive_overloads", self.consecutive_overloads, 1, 1000);
        problems.range("retry_seconds", self.retry_seconds, 1, 86_400);
        problems.0
    }
}

/// All that the gate needs to decide; the configuration puts it together from its own keys.
#[derive(Clone, Debug, PartialEq)]
pub struct GateSettings {
    /// How long a permit lives without being renewed: the configuration's `lease_seconds`. Seconds, default 120.
    pub lease_seconds: u32,
    /// How often one call tries whether a spend cap is over: the configuration's `spend_cap_retry_seconds`.
    /// Seconds, default 900.
    pub spend_cap_retry_seconds: u32,
    /// A wait that is longer than this is a long one: who may leave for another model does, and words change (A10).
    /// Seconds, default 25.
    pub long_wait_seconds: u64,
    /// The breaker.
    pub breaker: BreakerSettings,
    /// The rate and the in-flight limit.
    pub pace: PaceSettings,
    /// When who may leave should.
    pub degraded: DegradedSettings,
    /// The hours in which one overload is enough to leave: the configuration's `hours.peak_utc`, default 13–16 (A11).
    pub peak: Windows,
}

impl Default for GateSettings {
    fn default() -> Self {
        Self {
            lease_seconds: 120,
            spend_cap_retry_seconds: 900,
            long_wait_seconds: 25,
            breaker: BreakerSettings::default(),
            pace: PaceSettings::default(),
            degraded: DegradedSettings::default(),
            peak: Windows::between(13, 16),
        }
    }
}

impl GateSettings {
    /// How long an ordinary permit lives from its grant or its last renewal.
    #[must_use]
    pub fn lease(&self) -> Duration {
        Duration::from_secs(self.lease_seconds.into())
    }

    /// How long a probe, or the one call that tries whether a hold is over, lives.
    #[must_use]
    pub fn probe_lease(&self) -> Duration {
        Duration::from_secs(self.breaker.probe_lease_seconds.into())
    }

    /// How long the spend cap's hold lasts before one call tries.
    #[must_use]
    pub fn spend_cap_retry(&self) -> Duration {
        Duration::from_secs(self.spend_cap_retry_seconds.into())
    }

    /// A wait that is longer than this is a long one.
    #[must_use]
    pub fn long_wait(&self) -> Duration {
        Duration::from_secs(self.long_wait_seconds)
    }

    /// How often the holder of any permit renews it: a third of the shorter lease, so that one renewal may fail.
    #[must_use]
    pub fn renew_every(&self) -> Duration {
        self.lease().min(self.probe_lease()) / 3
    }
}

/// Bounds the gate's state, and what one gate object can serve anyway.
pub const MAX_IN_FLIGHT: u32 = 512;
const DAY_MS: u32 = 86_400_000;

#[derive(Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, key: &str, what: String) {
        self.0.push((key.to_owned(), what));
    }

    fn range(&mut self, key: &str, value: u32, low: u32, high: u32) {
        if !(low..=high).contains(&value) {
            self.add(key, format!("must be from {low} to {high}, is {value}"));
        }
    }

    fn optional(&mut self, key: &str, value: Option<u32>, low: u32, high: u32) {
        if value.is_some_and(|value| !(low..=high).contains(&value)) {
            self.add(key, format!("must be null or from {low} to {high}, is {}", value.unwrap_or_default()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_object_is_the_documented_defaults_and_they_are_valid() {
        let breaker: BreakerSettings = serde_json::from_str("{}").unwrap();
        assert_eq!(
            serde_json::to_string(&breaker).unwrap(),
            concat!(
                r#"{"window_seconds":60,"minimum_calls":10,"failure_rate_percent":50,"confidence_z":3.0,"#,
                r#""consecutive_failures":5,"consecutive_seconds":20,"consecutive_hard":15,"#,
                r#""open_seconds":45,"open_jitter_percent":20,"probe_lease_seconds":120}"#
            )
        );
        let backoff: BackoffSettings = serde_json::from_str("{}").unwrap();
        assert_eq!(
            serde_json::to_string(&backoff).unwrap(),
            concat!(
                r#"{"rate_limited":{"base_ms":1000,"cap_ms":30000,"jitter":"equal"},"#,
                r#""overloaded":{"base_ms":2000,"cap_ms":120000,"jitter":"full"},"#,
                r#""transient":{"base_ms":1000,"cap_ms":60000,"jitter":"full"}}"#
            )
        );
        let pace: PaceSettings = serde_json::from_str("{}").unwrap();
        assert_eq!(serde_json::to_string(&pace).unwrap(), r#"{"start_in_flight":8}"#);
        let degraded: DegradedSettings = serde_json::from_str("{}").unwrap();
        assert_eq!(serde_json::to_string(&degraded).unwrap(), r#"{"consecutive_overloads":5,"retry_seconds":90}"#);
        let problems = [breaker.validate(), backoff.validate(), pace.validate(), degraded.validate()].concat();
        assert_eq!(problems, []);
    }

    #[test]
    fn a_permit_is_renewed_three_times_in_the_shorter_lease() {
        for (lease_seconds, probe_lease_seconds, every) in [(120, 90, 30), (60, 120, 20)] {
            let breaker = BreakerSettings { probe_lease_seconds, ..BreakerSettings::default() };
            let settings = GateSettings { lease_seconds, breaker, ..GateSettings::default() };
            assert_eq!(settings.renew_every(), Duration::from_secs(every));
        }
    }

    #[test]
    fn a_partial_bucket_keeps_its_own_defaults() {
        let settings: BackoffSettings =
            serde_json::from_str(r#"{"overloaded":{"base_ms":500},"transient":{"jitter":"decorrelated"}}"#).unwrap();
        assert_eq!(settings.overloaded, Backoff { base_ms: 500, ..OVERLOADED });
        assert_eq!(settings.transient, Backoff { jitter: Jitter::Decorrelated, ..TRANSIENT });
        assert_eq!(settings.rate_limited, RATE_LIMITED);
    }

    #[test]
    fn unknown_keys_and_wrong_types_are_refused_while_parsing() {
        for text in
            [r#"{"open_second":1}"#, r#"{"open_seconds":-1}"#, r#"{"open_seconds":1.5}"#, r#"{"confidence_z":"3"}"#]
        {
            assert!(serde_json::from_str::<BreakerSettings>(text).is_err(), "{text}");
        }
        for text in [
            r#"{"overload":{}}"#,
            r#"{"overloaded":{"base":1}}"#,
            r#"{"overloaded":{"base_ms":null}}"#,
            r#"{"overloaded":{"jitter":"some"}}"#,
            r#"{"overloaded":null}"#,
        ] {
            assert!(serde_json::from_str::<BackoffSettings>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_impossible_value_is_named_at_once() {
        let keys = |problems: Vec<Problem>| problems.into_iter().map(|(key, _)| key).collect::<Vec<_>>().join(" ");
        let breaker = |text| serde_json::from_str::<BreakerSettings>(text).unwrap().validate();
        assert_eq!(keys(breaker(r#"{"window_seconds":0,"minimum_calls":0}"#)), "window_seconds minimum_calls");
        assert_eq!(keys(breaker(r#"{"failure_rate_percent":0}"#)), "failure_rate_percent");
        assert_eq!(keys(breaker(r#"{"failure_rate_percent":101}"#)), "failure_rate_percent");
        assert_eq!(keys(breaker(r#"{"confidence_z":-0.1}"#)), "confidence_z");
        assert_eq!(keys(breaker(r#"{"consecutive_failures":20}"#)), "consecutive_hard");
        assert_eq!(keys(breaker(r#"{"consecutive_failures":0}"#)), "consecutive_failures");
        assert_eq!(keys(breaker(r#"{"open_seconds":0,"probe_lease_seconds":0}"#)), "open_seconds probe_lease_seconds");
        assert_eq!(keys(breaker(r#"{"open_seconds":1,"probe_lease_seconds":1,"open_jitter_percent":0}"#)), "");
        let not_a_number = BreakerSettings { confidence_z: f64::NAN, ..BreakerSettings::default() };
        assert_eq!(keys(not_a_number.validate()), "confidence_z");

        let backoff = |text| serde_json::from_str::<BackoffSettings>(text).unwrap().validate();
        assert_eq!(keys(backoff(r#"{"overloaded":{"base_ms":9,"cap_ms":8}}"#)), "overloaded.cap_ms");
        assert_eq!(keys(backoff(r#"{"transient":{"base_ms":0}}"#)), "transient.base_ms");
        assert_eq!(
            backoff(r#"{"rate_limited":{"base_ms":40000}}"#),
            [("rate_limited.cap_ms".to_owned(), "must be from 40000 to 86400000, is 30000".to_owned())]
        );

        let pace = |text| serde_json::from_str::<PaceSettings>(text).unwrap().validate();
        assert_eq!(
            keys(pace(r#"{"calls_per_minute":0,"burst":0,"max_in_flight":513,"start_in_flight":0}"#)),
            "calls_per_minute burst max_in_flight start_in_flight"
        );
        let max = |max_in_flight| PaceSettings { max_in_flight, ..PaceSettings::default() }.max();
        assert_eq!([None, Some(0), Some(7), Some(9_999)].map(max), [512, 1, 7, 512], "they do no harm");
        let degraded = |text| serde_json::from_str::<DegradedSettings>(text).unwrap().validate();
        assert_eq!(
            keys(degraded(r#"{"consecutive_overloads":0,"retry_seconds":0}"#)),
            "consecutive_overloads retry_seconds"
        );
    }
}
