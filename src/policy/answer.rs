//! What goes in and out of the gate: questions, answers, reports and verdicts, as data.
//!
//! Across machines only durations travel, never instants: the asker's clock is not the gate's.

use std::time::Duration;

use super::backoff::Wait;
use super::cause::Cause;
use super::priority::Priority;
use super::rate_limits::RateLimits;
use super::settings::BackoffSettings;
use super::slots::Ticket;
use super::transition::Transition;
use crate::json;

/// Names one permit. Rises by one per grant and stays far below 2^53, so that JavaScript can carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitId(pub u64);

impl std::fmt::Display for PermitId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for PermitId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

json::transparent!(PermitId);

/// "May I call?"
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asking {
    /// For a job of this priority.
    pub priority: Priority,
    /// Whether the job would rather leave for another model than wait; then a refusal gives it no place in the order.
    pub may_leave: bool,
    /// Its place in this gate's order, if it has been held here before.
    pub ticket: Option<Ticket>,
    /// Whether it has been called for before: it has had its turn, and does not queue behind those who have not.
    pub again: bool,
    /// Whether nobody comes back with this refusal: a call that is waited for becomes a job then, which asks for itself. It gets no
    /// place in the order, which the others would wait behind.
    pub in_passing: bool,
    /// How long ago the job was submitted, if this is its first call; for the dwell.
    pub dwell_ms: Option<u64>,
}

json::object!(Asking { priority, may_leave, ticket, again = false, in_passing = false, dwell_ms });

/// The answer to "may I call?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Call now; renew the permit, report with it.
    Granted(PermitId),
    /// The same, and the breaker's next move hangs on this call: it is the only one in the whole fleet.
    Probe(PermitId),
    /// Do not call; ask again later.
    NotBefore(Held),
}

json::choice!(Decision {
    "granted" => Granted(permit),
    "probe" => Probe(permit),
    "not_before" => NotBefore(held),
});

impl Decision {
    /// The permit, if there is one.
    #[must_use]
    pub const fn permit(&self) -> Option<PermitId> {
        match *self {
            Self::Granted(permit) | Self::Probe(permit) => Some(permit),
            Self::NotBefore(_) => None,
        }
    }
}

/// Why a job is held. The name in snake case is log field, metric label and API code in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldReason {
    /// The breaker is open.
    BreakerOpen,
    /// The breaker is half-open, and its one probe is on its way.
    ProbeInFlight,
    /// A 429 asked everyone to wait, or one call is trying whether that is over.
    RetryAfter,
    /// A 529 asked everyone to wait, or one call is trying whether that is over.
    Overloaded,
    /// Too many overloads in a row: who may leave should.
    Degraded,
    /// The account's spend cap is reached, or one call is trying whether that is over.
    SpendCap,
    /// The operator has forced the gate open.
    Overridden,
    /// As many calls are in flight as the upstream has shown to bear.
    InFlightLimit,
    /// The rate that the deployment or the upstream allows is used up for the moment.
    Pacing,
    /// A job of low priority waits for quieter hours.
    OffPeak,
    /// The operator has paused the deliveries of its priority.
    Paused,
    /// The gate itself does not answer.
    GateUnavailable,
    /// The delivery has too little time left to begin a call.
    DeliveryBudget,
    /// The consumer that was calling went silent; the turn is begun anew.
    DeliveryLost,
}

impl HoldReason {
    /// Whether it is the platform's load, in some form: a reason to leave for another model (A5). The own rate is none.
    #[must_use]
    pub const fn is_overload(self) -> bool {
        matches!(self, Self::BreakerOpen | Self::ProbeInFlight | Self::Overloaded | Self::Degraded | Self::Overridden)
    }

    /// Whether Claude's load kept the job waiting, and not an order, a rate, an hour, or a part of our own.
    #[must_use]
    pub const fn is_load(self) -> bool {
        matches!(
            self,
            Self::BreakerOpen | Self::ProbeInFlight | Self::Overloaded | Self::Degraded | Self::InFlightLimit
        )
    }

    /// Whether it is a part of our own that did not do what it should.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::GateUnavailable | Self::DeliveryBudget | Self::DeliveryLost)
    }

    /// What to tell a person, as the second half of a sentence.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::BreakerOpen => "Claude is overloaded or out of reach",
            Self::ProbeInFlight => "one call is trying whether Claude answers again",
            Self::RetryAfter => "the account's rate limit asks for a wait",
            Self::Overloaded => "Claude is overloaded and has asked for a wait",
            Self::Degraded => "Claude is overloaded, call after call",
            Self::SpendCap => "the account's spend cap is reached",
            Self::Overridden => "the operator keeps this model from being called",
            Self::InFlightLimit => "as many calls are on their way as Claude bears",
            Self::Pacing => "the rate that is allowed is used up for the moment",
            Self::OffPeak => "a job of low priority waits for quieter hours",
            Self::Paused => "the operator has paused the jobs of its priority",
            Self::GateUnavailable => "the gate in front of Claude does not answer",
            Self::DeliveryBudget => "the delivery had no time left for a call",
            Self::DeliveryLost => "the last delivery was lost",
        }
    }
}

json::names!(HoldReason {
    BreakerOpen => "breaker_open",
    ProbeInFlight => "probe_in_flight",
    RetryAfter => "retry_after",
    Overloaded => "overloaded",
    Degraded => "degraded",
    SpendCap => "spend_cap",
    Overridden => "overridden",
    InFlightLimit => "in_flight_limit",
    Pacing => "pacing",
    OffPeak => "off_peak",
    Paused => "paused",
    GateUnavailable => "gate_unavailable",
    DeliveryBudget => "delivery_budget",
    DeliveryLost => "delivery_lost",
});

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A complete answer.
    Success,
    /// Anything else that the upstream, or the way to it, did.
    Failure {
        /// Why.
        cause: Cause,
        /// Whether content had arrived before it.
        after_content: bool,
        /// What the upstream asked for.
        retry_after: Option<Duration>,
    },
    /// We gave up ourselves (cancelled, fenced, never called): says nothing about the upstream.
    Abandoned,
}

json::choice!(Report {
    "success" => Success,
    "failure" => Failure { cause, after_content, retry_after },
    "abandoned" => Abandoned,
});

/// The end of a call, and whose it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The permit; none if the gate did not answer when it was asked for one.
    pub permit: Option<PermitId>,
    /// What the job asked with.
    pub asking: Asking,
    /// How the call ended.
    pub report: Report,
    /// What its answer said about the upstream's limits, and what it used.
    pub limits: RateLimits,
    /// The job's own backoff.
    pub backoff: BackoffSettings,
}

json::object!(Ended { permit, asking, report, limits, backoff });

/// What the gate makes of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What the cause's bucket says about the job's next call; `None` if the cause is never retried.
    pub wait: Option<Wait>,
    /// Goes before `wait`: the job has met what the gate holds everyone for (an open breaker, a spend cap that was known), and
    /// is held with the others instead of waiting on its own, or failing.
    pub held: Option<Held>,
    /// Whether this was one of the job's attempts (design, "Attempts, calls, waits").
    pub costs_attempt: bool,
    /// Whether one overload is enough to leave this model for another: a peak hour, or it is degraded.
    pub leave: bool,
    /// What the breaker did because of it.
    pub transition: Option<Transition>,
    /// Whether jobs wait longer for this model these minutes than users are told to expect (A10).
    pub slow: bool,
}

json::object!(Verdict { wait, held, costs_attempt, leave, transition, slow = false });

/// How long a job is held, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// How long from now.
    pub after: Duration,
    /// Why.
    pub reason: HoldReason,
    /// Its place in the gate's order, for the next time that it asks.
    pub ticket: Option<Ticket>,
    /// How long until it should have its answer, once the gate is closed; while it is not, nobody knows.
    pub eta: Option<Duration>,
    /// Whether it should leave for another model instead, as it said that it may.
    pub leave: bool,
    /// Whether jobs wait longer for this model these minutes than users are told to expect (A10).
    pub slow: bool,
}

json::object!(Held { after, reason, ticket, eta, leave, slow });

impl Held {
    /// Held for `after`, without a place in a gate's order.
    #[must_use]
    pub const fn new(after: Duration, reason: HoldReason) -> Self {
        Self { after, reason, ticket: None, eta: None, leave: false, slow: false }
    }
}
