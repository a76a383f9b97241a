//! How an upstream changes over time: phases, from a scenario's file.

use serde::Deserialize;

use super::claude::Model;
use super::world::{MINUTE, Ms, SECOND};

/// A stretch of time in which a model, or both, are not themselves.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Phase {
    /// "primary", "fallback" or "both".
    #[serde(default)]
    pub(crate) model: Who,
    /// From this minute of the storm on …
    pub(crate) from_minute: f64,
    /// … for so many minutes.
    pub(crate) minutes: f64,
    /// Every call is refused with a 529.
    #[serde(default)]
    pub(crate) outage: bool,
    /// The phase is an outage but for the first so many seconds of each round …
    #[serde(default)]
    pub(crate) up_seconds: f64,
    /// … which goes on with so many seconds of refusals.
    #[serde(default)]
    pub(crate) down_seconds: f64,
    /// So many percent of the calls are refused, at random.
    #[serde(default)]
    pub(crate) refuse_percent: f64,
    /// What is left of the capacity.
    #[serde(default = "whole")]
    pub(crate) capacity_percent: f64,
    /// How long calls take, of what they take otherwise.
    #[serde(default = "whole")]
    pub(crate) latency_percent: f64,
    /// So many percent of the calls that were accepted end in an overload inside the stream, before its first content …
    #[serde(default)]
    pub(crate) stream_before_percent: f64,
    /// … or after it.
    #[serde(default)]
    pub(crate) stream_after_percent: f64,
    /// So many percent of the calls that are on their way when the phase begins are broken off.
    #[serde(default)]
    pub(crate) breaks_percent: f64,
}

/// Whom a phase is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Who {
    Primary,
    Fallback,
    #[default]
    Both,
}

const fn whole() -> f64 {
    100.0
}

impl Phase {
    /// What is wrong with it in a storm of so many minutes of submissions.
    pub(crate) fn check(&self, minutes: f64) -> Result<(), String> {
        let shares = [
            ("refuse_percent", self.refuse_percent),
            ("capacity_percent", self.capacity_percent),
            ("stream_before_percent", self.stream_before_percent),
            ("stream_after_percent", self.stream_after_percent),
            ("breaks_percent", self.breaks_percent),
        ];
        if let Some((name, _)) = shares.into_iter().find(|(_, share)| !(0.0..=100.0).contains(share)) {
            return Err(format!("{name}: must be from 0 to 100"));
        }
        if !(self.latency_percent > 0.0 && self.latency_percent <= 10_000.0) {
            return Err("latency_percent: must be above 0, and at most 10000".into());
        }
        if !(self.minutes > 0.0 && self.from_minute >= 0.0 && self.from_minute < minutes) {
            return Err("from_minute, minutes: it must begin within the storm, and last".into());
        }
        if !(self.up_seconds >= 0.0 && self.down_seconds >= 0.0) {
            return Err("up_seconds, down_seconds: must not be negative".into());
        }
        Ok(())
    }

    pub(crate) fn from(&self) -> Ms {
        (self.from_minute * MINUTE as f64) as Ms
    }

    pub(crate) fn to(&self) -> Ms {
        self.from() + (self.minutes * MINUTE as f64) as Ms
    }

    pub(crate) fn is_about(&self, model: Model) -> bool {
        match self.model {
            Who::Both => true,
            Who::Primary => model == Model::Primary,
            Who::Fallback => model == Model::Fallback,
        }
    }

    /// Whether it refuses everything, now and then or always.
    pub(crate) fn refuses_all(&self) -> bool {
        self.outage || self.down_seconds > 0.0
    }

    /// Whether it is anything but a clear sky.
    pub(crate) fn is_trouble(&self) -> bool {
        self.refuses_all() || self.refuse_percent > 0.0 || self.capacity_percent < 100.0
    }

    fn refuses_all_at(&self, now: Ms) -> bool {
        let round = ((self.up_seconds + self.down_seconds) * SECOND as f64) as Ms;
        self.outage || (round > 0 && (now - self.from()) % round >= (self.up_seconds * SECOND as f64) as Ms)
    }
}

/// What a model is like at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Weather {
    pub(crate) outage: bool,
    pub(crate) refuse_percent: f64,
    pub(crate) capacity_percent: f64,
    pub(crate) latency_percent: f64,
    pub(crate) stream_before_percent: f64,
    pub(crate) stream_after_percent: f64,
}

impl Weather {
    /// The worst of all phases that it is in.
    pub(crate) fn at(now: Ms, phases: &[Phase], model: Model) -> Self {
        let mut weather = Self {
            outage: false,
            refuse_percent: 0.0,
            capacity_percent: 100.0,
            latency_percent: 100.0,
            stream_before_percent: 0.0,
            stream_after_percent: 0.0,
        };
        for phase in phases.iter().filter(|p| p.is_about(model) && p.from() <= now && now < p.to()) {
            weather.outage |= phase.refuses_all_at(now);
            weather.refuse_percent = weather.refuse_percent.max(phase.refuse_percent);
            weather.capacity_percent = weather.capacity_percent.min(phase.capacity_percent);
            weather.latency_percent = weather.latency_percent.max(phase.latency_percent);
            weather.stream_before_percent = weather.stream_before_percent.max(phase.stream_before_percent);
            weather.stream_after_percent = weather.stream_after_percent.max(phase.stream_after_percent);
        }
        weather
    }
}
