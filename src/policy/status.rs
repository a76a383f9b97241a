//! The gate as the operator sees it. Ages and times left, no instants: the reader's clock is not the gate's.

use super::backoff::BucketsStatus;
use super::forced::ForcedStatus;
use super::hold::HoldStatus;
use super::hour_log::HourLogStatus;
use super::pacer::PaceStatus;
use super::transition::{State, Transition};
use super::window::Counts;
use crate::json;

/// The gate as the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateStatus {
    /// Closed (serving), Open (refusing) or HalfOpen (one probe).
    pub state: State,
    /// For how long; `null` if it never moved.
    pub since_seconds: Option<u64>,
    /// While Open: how long until the next probe may start, or until the override ends.
    pub next_check_seconds: Option<u64>,
    /// While HalfOpen: whether a probe is on its way.
    pub probe_in_flight: bool,
    /// Calls on their way.
    pub in_flight: u32,
    /// How many there may be.
    pub in_flight_limit: u32,
    /// Jobs asleep because they were held, about.
    pub held: u64,
    /// Whether those who may leave for another model should (B7).
    pub degraded: bool,
    /// What holds everyone, if anything does.
    pub holds: Vec<HoldStatus>,
    /// Calls that counted in the breaker's window.
    pub window: Counts,
    /// The backoff buckets.
    pub buckets: BucketsStatus,
    /// The rate.
    pub pace: PaceStatus,
    /// What each hour of the day has been like.
    pub hours: HourLogStatus,
    /// The operator's override, while there is one.
    pub forced: Option<ForcedStatus>,
    /// The breaker's last moves, newest first.
    pub history: Vec<PastStatus>,
}

json::output!(GateStatus {
    state,
    since_seconds,
    next_check_seconds,
    probe_in_flight,
    in_flight,
    in_flight_limit,
    held,
    degraded,
    holds,
    window,
    buckets,
    pace,
    hours,
    forced as "override",
    history
});

/// One move of the breaker, and how long ago it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastStatus {
    /// How long ago.
    pub seconds_ago: u64,
    /// What.
    pub transition: Transition,
}

impl json::ToJson for PastStatus {
    fn write(&self, out: &mut String) {
        let Transition { from, to, why } = &self.transition;
        json::write_object(&[("seconds_ago", &self.seconds_ago), ("from", from), ("to", to), ("why", why)], out);
    }
}
json::output!(@serde PastStatus);
