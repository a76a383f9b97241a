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
//! hold costs an attempt. A job whose overload opened the gate, or was a probe's or a straggler's, is held with the others
//! instead of waiting for its bucket: the reopening is what it needs, be it sooner or later than what the bucket drew.
//!
//! **What costs an attempt** (design, "Attempts, calls, waits"): every retryable failure, but for
//! - an overload before content that opened the gate, or came while it was not Closed, or from a straggler: the outage is
//!   the gate's business, not this job's fault;
//! - a 429 with a Retry-After: the job is paced, and waits what the upstream asked for.
//!
//! The state is one value below 64 KB, however long the gate lives and however many jobs wait.

use std::time::Duration;

use super::answer::{Decision, Held, HoldReason, PermitId, Report, Verdict};
use super::backoff::{Buckets, Wait};
use super::breaker::{Breaker, Stand};
use super::cause::{Cause, Class};
use super::evidence;
use super::hold::{HoldStand, Holds};
use super::inflight::{InFlight, Permit};
use super::priority::Priority;
use super::settings::{BackoffSettings, GateSettings};
use super::sleepers::Sleepers;
use super::status::{GateStatus, PastStatus};
use super::time::{Timestamp, whole_seconds};
use super::transition::{Past, State, Transition};
use crate::json;

/// The gate's whole state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    breaker: Breaker,
    holds: Holds,
    in_flight: InFlight,
    buckets: Buckets,
    sleepers: Sleepers,
}

json::object!(default Gate { breaker, holds, in_flight, buckets, sleepers });

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
        if let Some((until, reason)) = self.refusal(hold, stand) {
            let after = self.sleepers.until(until, self.in_flight.latency(), now, rng);
            return Decision::NotBefore { after, reason };
        }
        if stand == Stand::Serve && self.in_flight.full(&settings.pace) {
            let limit = self.in_flight.limit(&settings.pace);
            let after = self.sleepers.for_a_slot(limit, self.in_flight.call(), now, rng);
            return Decision::NotBefore { after, reason: HoldReason::InFlightLimit };
        }
        let decides = hold == HoldStand::MayTry || stand == Stand::MayProbe;
        let lease = if decides { settings.probe_lease() } else { settings.lease() };
        let permit = self.in_flight.grant(priority, lease, now);
        if hold == HoldStand::MayTry {
            self.holds.begin_try(permit);
        }
        if stand == Stand::MayProbe {
            self.breaker.begin_probe(permit, now);
            return Decision::Probe(permit);
        }
        Decision::Granted(permit)
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
                let after_content = after_content || live.is_some_and(|live| live.content);
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

    /// The breaker's last move, so that whoever has asked the gate something can tell whether it moved.
    #[must_use]
    pub fn last_move(&self) -> Option<Past> {
        self.breaker.history().next_back().copied()
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

    /// Until when hold and breaker refuse everyone, and why; `None` if they do not. The later moment counts.
    fn refusal(&self, hold: HoldStand, stand: Stand) -> Option<(Duration, HoldReason)> {
        let a_moment = self.in_flight.latency();
        match (hold, stand) {
            (HoldStand::Wait(hold, _), Stand::Refuse(cooldown)) if cooldown > hold => {
                Some((cooldown, HoldReason::BreakerOpen))
            }
            (HoldStand::Wait(hold, reason), _) => Some((hold, reason)),
            (_, Stand::Refuse(cooldown)) => Some((cooldown, HoldReason::BreakerOpen)),
            (_, Stand::ProbeInFlight) => Some((a_moment, HoldReason::ProbeInFlight)),
            (HoldStand::Trying(reason), _) => Some((a_moment, reason)),
            (HoldStand::Free | HoldStand::MayTry, Stand::Serve | Stand::MayProbe) => None,
        }
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
        let transition = (call.standing == Standing::Current && !call.after_content && evidence::counts(call.cause))
            .then(|| {
                let newest = self.in_flight.newest();
                let undecided = |from| self.in_flight.undecided(from, call.permit.unwrap_or(newest));
                self.breaker.fail(call.permit, newest, undecided, now, rng, &settings.breaker)
            })
            .flatten();
        if transition.is_some() {
            self.in_flight.trip();
        }
        let overload = class == Class::Overload && !call.after_content;
        let steady = call.standing == Standing::Current && was_closed && transition.is_none();
        if overload && steady {
            let refusal = call.live.map_or(Duration::MAX, |live| now.since(live.granted));
            self.in_flight.cut(refusal, now, &settings.pace);
        }

        let met_again = class == Class::SpendCap && self.holds.spend_cap(settings.spend_cap_retry(), now);
        if let (Class::RateLimit | Class::Overload, Some(wait)) = (class, asked) {
            self.holds.retry_after(wait, now);
        }
        let wait = self.buckets.fail(class, backoff, call.retry_after, now, rng);
        let outage = overload && !steady;
        let held = (met_again || outage).then(|| self.hold_on(wait, now, rng, settings)).flatten();
        let costs_attempt = match class {
            Class::Overload => !outage,
            Class::RateLimit => call.after_content || asked.is_none(),
            Class::Transient => true,
            Class::SpendCap | Class::Final => false,
        };
        Verdict { wait, held, costs_attempt, transition }
    }

    /// A job that met what everyone is held for waits with everyone, but no shorter than the upstream asked it to.
    fn hold_on(
        &mut self,
        wait: Option<Wait>,
        now: Timestamp,
        rng: &mut fastrand::Rng,
        settings: &GateSettings,
    ) -> Option<Held> {
        let (hold, stand) = (self.holds.stand(settings.spend_cap_retry(), now), self.breaker.stand(now));
        let (until, reason) = self.refusal(hold, stand)?;
        let after = self.sleepers.until(until, self.in_flight.latency(), now, rng);
        let asked = wait.filter(|wait| !wait.floor.is_zero()).map(|wait| wait.wanted);
        Some(Held { after: after.max(asked.unwrap_or_default()), reason })
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
