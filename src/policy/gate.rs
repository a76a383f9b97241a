//! The gate of one upstream model: everything that all instances have to agree on before one of them calls (B15, C5).
//!
//! It composes, and decides in this order:
//! 1. **Holds**: did the upstream ask everyone to wait? ([`super::hold`])
//! 2. **Breaker**: is the upstream there at all? ([`super::breaker`])
//! 3. **In-flight limit**: does it bear one more call? ([`super::inflight`])
//!
//! A call's life at the gate is `permit`, `renew` … `renew`, `content` at first content, `report` at its end. Each may be lost,
//! late, or come twice: a report implies the content it tells of, a second one finds no permit and is a straggler's, and a
//! permit whose holder died ends with its lease. A job that called without asking, because the gate did not answer, reports
//! without a permit: evidence like any other while Closed.
//!
//! **Held jobs sleep, they do not fail** (A7): `NotBefore` carries how long, and [`super::sleepers`] spreads the wake-ups. No
//! hold costs an attempt.
//!
//! **What costs an attempt** (design, "Attempts, calls, waits"): every retryable failure, but for
//! - an overload before content that opened the gate, or came while it was not Closed, or from a straggler: the outage is
//!   the gate's business, not this job's fault;
//! - a 429 with a Retry-After: the job is paced, and waits what the upstream asked for.
//!
//! The state is one serde value below 64 KB, however long the gate lives and however many jobs wait.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::answer::{Decision, Held, HoldReason, PermitId, Report, Verdict};
use super::backoff::{Buckets, BucketsStatus};
use super::breaker::{self, Breaker, Stand, State, Transition};
use super::cause::{Cause, Class};
use super::hold::{HoldStand, HoldStatus, Holds};
use super::inflight::{InFlight, Permit};
use super::priority::Priority;
use super::settings::{BackoffSettings, GateSettings};
use super::sleepers::Sleepers;
use super::time::{Timestamp, whole_seconds};
use super::window::Counts;

/// The gate's whole state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gate {
    breaker: Breaker,
    holds: Holds,
    in_flight: InFlight,
    buckets: Buckets,
    sleepers: Sleepers,
}

/// Where a report comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// From a permit granted since the breaker moved last, or from a call that never had one.
    Current,
    /// From one granted before a trip, or whose lease has ended.
    Straggler,
}

impl Gate {
    /// May a job call now?
    pub fn permit(
        &mut self,
        priority: Priority,
        now: Timestamp,
        rng: &mut fastrand::Rng,
        settings: &GateSettings,
    ) -> Decision {
        self.expire(now, settings);
        let hold = self.holds.stand(settings.spend_cap_retry(), now);
        let stand = self.breaker.stand(now);
        let (until, reason) = match (hold, stand) {
            (HoldStand::Wait(hold, _), Stand::Refuse(cooldown)) if cooldown > hold => {
                (cooldown, HoldReason::BreakerOpen)
            }
            (HoldStand::Wait(hold, reason), _) => (hold, reason),
            (_, Stand::Refuse(cooldown)) => (cooldown, HoldReason::BreakerOpen),
            (_, Stand::ProbeInFlight) => (self.in_flight.latency(), HoldReason::ProbeInFlight),
            (HoldStand::Trying(reason), _) => (self.in_flight.latency(), reason),
            (_, Stand::Serve) if self.in_flight.full(&settings.pace) => {
                return self.hold_for_a_slot(now, rng, settings);
            }
            (HoldStand::Free | HoldStand::MayTry, Stand::Serve | Stand::MayProbe) => {
                return self.grant(hold, stand, priority, now, settings);
            }
        };
        let after = self.sleepers.hold(until, 1, self.in_flight.latency(), now, rng);
        Decision::NotBefore { after, reason }
    }

    /// Lets the permit's lease run anew; false if it has ended: the gate counts this call no more.
    pub fn renew(&mut self, permit: PermitId, now: Timestamp, settings: &GateSettings) -> bool {
        self.expire(now, settings);
        let lease = self.lease(permit, settings);
        self.in_flight.renew(permit, lease, now)
    }

    /// First content has come: the breaker has its success, the probe and the try are decided, the buckets count down (B4).
    pub fn content(&mut self, permit: PermitId, now: Timestamp, settings: &GateSettings) -> Option<Transition> {
        self.expire(now, settings);
        let live = self.in_flight.get(permit)?;
        if live.content {
            return None;
        }
        self.in_flight.content(permit, now, &settings.pace);
        self.holds.content(permit);
        self.succeed(Some(permit), standing(live), now, settings)
    }

    /// How a call ended. `backoff` is its job's own preset; `None` for the permit: the call was made without one.
    pub fn report(
        &mut self,
        permit: Option<PermitId>,
        report: Report,
        backoff: &BackoffSettings,
        now: Timestamp,
        rng: &mut fastrand::Rng,
        settings: &GateSettings,
    ) -> Verdict {
        self.expire(now, settings);
        let came = matches!(report, Report::Success | Report::Failure { after_content: true, .. });
        let content = match permit {
            Some(id) if came => self.content(id, now, settings),
            None if came => self.succeed(None, Standing::Current, now, settings),
            _ => None,
        };
        let live = permit.and_then(|id| self.in_flight.release(id));
        let mut verdict = match report {
            Report::Success => {
                if let Some(live) = live {
                    self.in_flight.finished(live, now);
                }
                Verdict::default()
            }
            Report::Failure { cause, after_content, retry_after } => {
                let standing =
                    if permit.is_none() { Standing::Current } else { live.map_or(Standing::Straggler, standing) };
                let call = Failed { permit, live, standing, cause, after_content, retry_after };
                self.fail(call, backoff, now, rng, settings)
            }
            Report::Abandoned => Verdict::default(),
        };
        if let Some(id) = permit {
            self.breaker.free(id);
            self.holds.free(id, now);
        }
        verdict.transition = verdict.transition.or(content);
        verdict
    }

    /// The gate as the operator sees it.
    #[must_use]
    pub fn status(&self, now: Timestamp, settings: &GateSettings) -> GateStatus {
        GateStatus {
            state: self.breaker.state(),
            since_seconds: (self.breaker.since() != Timestamp::default())
                .then(|| now.since(self.breaker.since()).as_secs()),
            next_check_seconds: self.breaker.cooldown(now).map(whole_seconds),
            probe_in_flight: self.breaker.probe().is_some(),
            in_flight: self.in_flight.live(now),
            in_flight_limit: self.in_flight.limit(&settings.pace),
            held: self.sleepers.count(now),
            holds: self.holds.status(now),
            window: self.breaker.counts(now),
            buckets: self.buckets.status(now),
            history: self
                .breaker
                .history()
                .rev()
                .map(|past| PastStatus { seconds_ago: now.since(past.at).as_secs(), transition: past.transition })
                .collect(),
        }
    }

    fn grant(
        &mut self,
        hold: HoldStand,
        stand: Stand,
        priority: Priority,
        now: Timestamp,
        settings: &GateSettings,
    ) -> Decision {
        let decides = hold == HoldStand::MayTry || stand == Stand::MayProbe;
        let lease = if decides { settings.probe_lease() } else { settings.lease() };
        let permit = self.in_flight.grant(priority, lease, now);
        self.sleepers.serve();
        if hold == HoldStand::MayTry {
            self.holds.begin_try(permit);
        }
        if stand == Stand::MayProbe {
            self.breaker.begin_probe(permit, now);
            return Decision::Probe(permit);
        }
        Decision::Granted(permit)
    }

    /// A slot is free again after about a call's length divided by the slots.
    fn hold_for_a_slot(&mut self, now: Timestamp, rng: &mut fastrand::Rng, settings: &GateSettings) -> Decision {
        let (limit, length) = (self.in_flight.limit(&settings.pace), self.in_flight.call());
        let after = self.sleepers.hold(length / limit, limit, length, now, rng);
        Decision::NotBefore { after, reason: HoldReason::InFlightLimit }
    }

    fn succeed(
        &mut self,
        permit: Option<PermitId>,
        standing: Standing,
        now: Timestamp,
        settings: &GateSettings,
    ) -> Option<Transition> {
        self.buckets.succeed();
        let transition = match standing {
            Standing::Current => self.breaker.succeed(permit, now, &settings.breaker),
            Standing::Straggler => None,
        };
        if transition.is_some() {
            self.buckets.reset_outage();
        }
        transition
    }

    fn fail(
        &mut self,
        call: Failed,
        backoff: &BackoffSettings,
        now: Timestamp,
        rng: &mut fastrand::Rng,
        settings: &GateSettings,
    ) -> Verdict {
        let class = call.cause.class();
        let asked = call.retry_after.filter(|wait| !wait.is_zero());
        let was_closed = self.breaker.state() == State::Closed;
        let borne = (self.breaker.counts(now).successes, self.breaker.covered(now));

        let transition = (call.standing == Standing::Current && !call.after_content && breaker::counts(call.cause))
            .then(|| {
                let started = call.live.map_or(now, |live| live.granted);
                let undecided = self.in_flight.undecided(self.breaker.last_success(), started);
                self.breaker.fail(call.permit, undecided, now, rng, &settings.breaker)
            })
            .flatten();
        if transition.is_some() {
            self.in_flight.trip();
            self.sleepers.reset();
        }

        let overload = class == Class::Overload && !call.after_content;
        let steady = call.standing == Standing::Current && was_closed && transition.is_none();
        if overload && steady {
            self.in_flight.cut(borne.0, borne.1, now, &settings.pace);
        }

        let held = match (class, asked) {
            (Class::RateLimit | Class::Overload, Some(wait)) => {
                self.holds.retry_after(wait, now);
                None
            }
            (Class::SpendCap, _) => self
                .holds
                .spend_cap(settings.spend_cap_retry(), now)
                .then(|| Held { after: settings.spend_cap_retry(), reason: HoldReason::SpendCap }),
            _ => None,
        };
        let costs_attempt = match class {
            Class::Overload => !overload || steady,
            Class::RateLimit => call.after_content || asked.is_none(),
            Class::Transient => true,
            Class::SpendCap | Class::Final => false,
        };
        Verdict { wait: self.buckets.fail(class, backoff, call.retry_after, now, rng), held, costs_attempt, transition }
    }

    /// Ends the leases that are over; whoever was probing or trying decides nothing any more.
    fn expire(&mut self, now: Timestamp, settings: &GateSettings) {
        for permit in self.in_flight.expire(settings.lease().max(settings.probe_lease()), now) {
            self.breaker.free(permit);
            self.holds.free(permit, now);
        }
    }

    fn lease(&self, permit: PermitId, settings: &GateSettings) -> Duration {
        if self.breaker.probe() == Some(permit) || self.holds.is_try(permit) {
            settings.probe_lease()
        } else {
            settings.lease()
        }
    }
}

/// A call that failed.
struct Failed {
    permit: Option<PermitId>,
    live: Option<Permit>,
    standing: Standing,
    cause: Cause,
    after_content: bool,
    retry_after: Option<Duration>,
}

fn standing(permit: Permit) -> Standing {
    if permit.straggler { Standing::Straggler } else { Standing::Current }
}

/// The gate as the operator sees it. Ages and times left, no instants: the reader's clock is not the gate's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GateStatus {
    /// Closed (serving), Open (refusing) or HalfOpen (one probe).
    pub state: State,
    /// For how long; `null` if it never moved.
    pub since_seconds: Option<u64>,
    /// While Open: how long until the next probe may start.
    pub next_check_seconds: Option<u64>,
    /// While HalfOpen: whether a probe is on its way.
    pub probe_in_flight: bool,
    /// Calls on their way.
    pub in_flight: u32,
    /// How many there may be.
    pub in_flight_limit: u32,
    /// Jobs that were held and have not been served since, about.
    pub held: u32,
    /// What holds everyone, if anything does.
    pub holds: Vec<HoldStatus>,
    /// Calls that counted in the breaker's window.
    pub window: Counts,
    /// The backoff buckets.
    pub buckets: BucketsStatus,
    /// The breaker's last moves, newest first.
    pub history: Vec<PastStatus>,
}

/// One move of the breaker, and how long ago it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PastStatus {
    /// How long ago.
    pub seconds_ago: u64,
    /// What.
    #[serde(flatten)]
    pub transition: Transition,
}
