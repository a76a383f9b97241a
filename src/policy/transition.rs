//! How a breaker moves, as data: from which state to which, why, and when. The table of what may move where is the
//! [`breaker`](super::breaker)'s.

use super::time::Timestamp;
use crate::json;

/// Nygard's three states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Serving.
    Closed,
    /// Refusing.
    Open,
    /// Refusing, but for one probe.
    HalfOpen,
}

json::names!(State {
    Closed => "closed",
    Open => "open",
    HalfOpen => "half_open",
});

/// Why the breaker moved. The name in snake case is log field and metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// Trip rule 1.
    FailureRate,
    /// Trip rule 2.
    FailuresOverTime,
    /// Trip rule 3.
    FailuresInARow,
    /// The cooldown ran out, and a probe was let through.
    CooldownOver,
    /// The probe came to content.
    ProbeSucceeded,
    /// The probe failed for a reason that counts.
    ProbeFailed,
    /// The operator forced it open.
    OverrideOpened,
    /// The operator forced it closed.
    OverrideClosed,
    /// The override came to its end by itself.
    OverrideEnded,
    /// The operator ended the override early.
    OverrideReleased,
}

json::names!(Why {
    FailureRate => "failure_rate",
    FailuresOverTime => "failures_over_time",
    FailuresInARow => "failures_in_a_row",
    CooldownOver => "cooldown_over",
    ProbeSucceeded => "probe_succeeded",
    ProbeFailed => "probe_failed",
    OverrideOpened => "override_opened",
    OverrideClosed => "override_closed",
    OverrideEnded => "override_ended",
    OverrideReleased => "override_released",
});

/// One move of the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// What it was.
    pub from: State,
    /// What it is now.
    pub to: State,
    /// Why.
    pub why: Why,
}

json::object!(Transition { from, to, why });

/// One move, and when it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    /// When.
    pub at: Timestamp,
    /// What.
    pub transition: Transition,
}

impl json::ToJson for Past {
    fn write(&self, out: &mut String) {
        let Transition { from, to, why } = &self.transition;
        json::write_object(&[("at", &self.at), ("from", from), ("to", to), ("why", why)], out);
    }
}

impl json::FromJson for Past {
    fn read(json: json::Json<'_>, faults: &mut json::Faults) -> Option<Self> {
        let (at, transition) = (json.fields(faults)?.read("at", faults), Transition::read(json, faults));
        Some(Self { at: at?, transition: transition? })
    }
}

json::output!(@serde Past);
json::object!(@serde Past);
