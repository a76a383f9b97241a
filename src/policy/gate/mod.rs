//! The gate of one upstream model: everything that all instances have to agree on before one of them calls (B15, C5).
//!
//! It composes, and decides in this order:
//! 0. **Override**: has the operator decided? ([`crate::policy::forced`])
//! 1. **Holds**: did the upstream ask everyone to wait? ([`crate::policy::hold`])
//! 2. **Breaker**: is the upstream there at all? ([`crate::policy::breaker`])
//! 3. **Degraded**: should those who may leave do so? ([`crate::policy::degraded`])
//! 4. **Pacer**: is the rate used up for the moment? ([`crate::policy::pacer`])
//! 5. **In-flight limit**: does it bear one more call, of this priority? ([`crate::policy::inflight`])
//!
//! A call's life at the gate is `permit`, `renew` … `renew`, `content` at first content, `report` at its end. Each may be lost,
//! late, or come twice: a report implies the content it tells of, a second one finds no permit and is a straggler's, and a
//! permit whose holder died ends with its lease. Who called without asking, because the gate did not answer or a person was
//! waiting, reports without a permit: evidence like any other while Closed, and a call like any other for rate and hours.
//!
//! **Held jobs sleep, they do not fail** (A7): `NotBefore` carries how long, a ticket that keeps the job's place, and once the
//! gate is closed when the answer should be there; [`crate::policy::slots`] orders the wake-ups. A job that may leave for another model
//! gets no ticket when it is refused for what one leaves for: overload in any form, or a wait for a slot that is a long one. A
//! rate limit is no such reason. No hold costs an attempt. A job whose overload opened the gate, or was a probe's or a
//! straggler's, is held with the others instead of waiting for its bucket: the reopening is what it needs, be it sooner or
//! later than what the bucket drew.
//!
//! **What costs an attempt** (design, "Attempts, calls, waits"): every retryable failure, but for
//! - an overload before content that opened the gate, or came while it was not Closed, or from a straggler: the outage is
//!   the gate's business, not this job's fault;
//! - a 429 with a Retry-After: the job is paced, and waits what the upstream asked for.
//!
//! **An override** goes before all evidence, for a while. Forced open: nobody calls, not even a probe; calls on their way end
//! as stragglers, and when it is over the breaker is Closed with a slow start, since nothing is known. Forced closed: neither
//! breaker nor holds refuse, failures do not trip, the in-flight limit stays; what held everyone when it began is cleared. It
//! is the Closed state in everything else, so overloads cost attempts again; but who meets a spend cap that is known is
//! held by itself, for an order cannot pay the account. Evidence begins anew when it is over, a hold that the upstream asked
//! for meanwhile is kept then.
//!
//! The state is one value below 64 KB, however long the gate lives and however many jobs wait.

use std::time::Duration;

use crate::json;
use crate::policy::answer::{Asking, Decision, Ended, Held, HoldReason, PermitId, Report, Verdict};
use crate::policy::backoff::{Buckets, Wait};
use crate::policy::breaker::{Breaker, Stand};
use crate::policy::cause::{Cause, Class};
use crate::policy::degraded::Degraded;
use crate::policy::dwell::Dwell;
use crate::policy::evidence::{self, Others};
use crate::policy::forced::{Forced, Order, RECHECK, Side};
use crate::policy::hold::{HoldStand, Holds};
use crate::policy::hour_log::HourLog;
use crate::policy::inflight::InFlight;
use crate::policy::pacer::Pacer;
use crate::policy::permits::Permit;
use crate::policy::rate_limits::RateLimits;
use crate::policy::settings::{BackoffSettings, GateSettings};
use crate::policy::slots::{Ramp, Slots};
use crate::policy::time::Timestamp;
use crate::policy::transition::{State, Transition, Why};

mod view;

pub use view::{Outlook, View};

/// The gate's whole state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    breaker: Breaker,
    holds: Holds,
    in_flight: InFlight,
    buckets: Buckets,
    pacer: Pacer,
    degraded: Degraded,
    slots: Slots,
    dwell: Dwell,
    hours: HourLog,
    forced: Option<Forced>,
}

json::object!(default Gate { breaker, holds, in_flight, buckets, pacer, degraded, slots, dwell, hours, forced });

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
    pub fn permit(&mut self, asking: Asking, now: Timestamp, settings: &GateSettings) -> Decision {
        self.expire(now, settings);
        let (hold, stand) = self.stands(now, settings);
        if let Some((until, reason)) = self.refusal(hold, stand, now) {
            return Decision::NotBefore(self.hold(asking, until, reason, now, settings));
        }
        let decides = hold == HoldStand::MayTry || stand == Stand::MayProbe;
        if !decides && let Some(held) = self.pressure(asking, now, settings) {
            return Decision::NotBefore(held);
        }
        let lease = if decides { settings.probe_lease() } else { settings.lease() };
        self.slots.granted(asking.priority, asking.ticket);
        self.note_call(now, settings);
        if let Some(dwell_ms) = asking.dwell_ms {
            self.dwell.note(Duration::from_millis(dwell_ms), settings.long_wait(), now);
        }
        let permit = self.in_flight.permits.grant(asking.priority, lease, now);
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
        self.in_flight.permits.renew(permit, lease, now)
    }

    /// First content has come: the breaker has its success, the probe and the try are decided, the buckets count down (B4).
    /// `limits`: what came with it.
    pub fn content(
        &mut self,
        permit: PermitId,
        limits: &RateLimits,
        now: Timestamp,
        settings: &GateSettings,
    ) -> Option<Transition> {
        self.pacer.note(limits, now);
        self.arrive(permit, now, settings)
    }

    fn arrive(&mut self, permit: PermitId, now: Timestamp, settings: &GateSettings) -> Option<Transition> {
        self.expire(now, settings);
        let live = self.in_flight.permits.get(permit)?;
        if live.content {
            return None;
        }
        self.in_flight.content(permit, now, &settings.pace);
        self.holds.content(permit);
        self.succeed(Some(permit), standing(live), now, settings)
    }

    /// How a call ended.
    pub fn report(
        &mut self,
        ended: &Ended,
        now: Timestamp,
        rng: &mut fastrand::Rng,
        settings: &GateSettings,
    ) -> Verdict {
        let Ended { permit, asking, report, ref limits, ref backoff } = *ended;
        self.expire(now, settings);
        self.pacer.note(limits, now);
        let came = matches!(report, Report::Success | Report::Failure { after_content: true, .. });
        if permit.is_none() {
            self.note_call(now, settings);
        }
        let content = match permit {
            Some(id) if came => self.arrive(id, now, settings),
            None if came => self.succeed(None, Standing::Current, now, settings),
            _ => None,
        };
        let live = permit.and_then(|id| self.in_flight.permits.release(id, now));
        let mut verdict = match report {
            Report::Success => {
                if let Some(live) = live {
                    self.in_flight.finished(live, now);
                }
                Verdict::default()
            }
            Report::Failure { cause, after_content, retry_after } => {
                self.hours.note_failure(cause, now);
                let standing =
                    if permit.is_none() { Standing::Current } else { live.map_or(Standing::Straggler, standing) };
                let after_content = after_content || live.is_some_and(|live| live.content);
                let call = Failed { permit, asking, live, standing, cause, after_content, retry_after };
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

    /// The operator decides, in place of an earlier order if there is one.
    pub fn force(&mut self, order: Order, now: Timestamp, settings: &GateSettings) {
        self.expire(now, settings);
        match order.state {
            Side::Open => {
                self.in_flight.trip();
                self.breaker.force(Side::Open, Why::OverrideOpened, now);
            }
            Side::Closed => {
                self.holds.lift();
                self.buckets.reset_outage();
                self.breaker.force(Side::Closed, Why::OverrideClosed, now);
            }
        }
        self.forced = Some(Forced::new(order, now));
    }

    /// The operator takes the order back. False if there was none.
    pub fn release(&mut self, now: Timestamp, settings: &GateSettings) -> bool {
        self.expire(now, settings);
        self.end_force(Why::OverrideReleased, now)
    }

    /// Until when override, hold and breaker refuse everyone, and why; `None` if they do not. The later moment counts.
    fn refusal(&self, hold: HoldStand, stand: Stand, now: Timestamp) -> Option<(Duration, HoldReason)> {
        if let Some(forced) = self.forced.as_ref().filter(|forced| forced.state() == Side::Open) {
            return Some((forced.recheck(now), HoldReason::Overridden));
        }
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

    /// What refuses a call that hold and breaker would let through.
    fn pressure(&mut self, asking: Asking, now: Timestamp, settings: &GateSettings) -> Option<Held> {
        if asking.may_leave
            && self.forced_to() != Some(Side::Closed)
            && let Some(after) = self.degraded.leave(&settings.degraded, now)
        {
            return Some(self.hold(asking, after, HoldReason::Degraded, now, settings));
        }
        if let Err(after) = self.pacer.stand(&settings.pace, now) {
            return Some(self.hold(asking, after, HoldReason::Pacing, now, settings));
        }
        let waits = |priority| self.slots.waits(priority, now);
        // Who is far behind in the order does not overtake the others, unless there is room for all.
        let place = self.slots.place(asking.priority, asking.ticket, now);
        let is_behind = !asking.again && place > self.reach(settings) && !self.in_flight.has_room(&settings.pace);
        if is_behind || self.in_flight.is_full(asking.priority, waits, now, &settings.pace) {
            let slot = self.in_flight.slot(&settings.pace);
            return Some(self.hold(asking, slot, HoldReason::InFlightLimit, now, settings));
        }
        None
    }

    /// How far behind the head of the order one may still be served out of turn.
    fn reach(&self, settings: &GateSettings) -> u64 {
        4 * u64::from(self.in_flight.limit(&settings.pace))
    }

    /// Lets a job wait that can be served in `until` at the earliest: in its place of the order, unless it may and should leave, or
    /// does not stay to wait.
    fn hold(
        &mut self,
        asking: Asking,
        until: Duration,
        reason: HoldReason,
        now: Timestamp,
        settings: &GateSettings,
    ) -> Held {
        // Whoever raises the cap says so by an override, which nobody who sleeps can hear.
        let is_capped = reason == HoldReason::SpendCap;
        let until = if is_capped { until.min(RECHECK) } else { until };
        let ramp = self.ramp(now, settings);
        let slow = self.dwell.is_slow(now);
        if asking.may_leave {
            // What the rate alone makes long is no reason.
            let slots = Ramp { gap: Duration::ZERO, ..ramp };
            let after = self.slots.look_ahead(asking.priority, until, &slots, now);
            if reason.is_overload() || (reason == HoldReason::InFlightLimit && after > settings.long_wait()) {
                return Held { leave: true, slow, ..Held::new(after, reason) };
            }
        }
        if asking.in_passing {
            return Held::new(self.slots.look_ahead(asking.priority, until, &ramp, now), reason);
        }
        // Who was called for before is the first again while the gate serves; at a shut one the next probe is another's.
        let is_closed = self.breaker.state() == State::Closed;
        let ticket = if asking.again && is_closed { Some(self.slots.front(asking.priority)) } else { asking.ticket };
        let turn = self.slots.take(asking.priority, ticket, until, &ramp, now);
        let eta = (is_closed && !is_capped).then(|| turn.served.saturating_add(self.in_flight.call()));
        Held { after: turn.after, reason, ticket: Some(turn.ticket), eta, leave: false, slow }
    }

    /// How fast the gate serves once what it holds for is over.
    fn ramp(&self, now: Timestamp, settings: &GateSettings) -> Ramp {
        Ramp {
            limit: self.in_flight.limit(&settings.pace),
            full: self.in_flight.full(&settings.pace),
            round: self.in_flight.latency(),
            call: self.in_flight.call(),
            gap: self.pacer.interval(&settings.pace, now).unwrap_or_default(),
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
        if standing == Standing::Current {
            self.degraded.succeed();
        }
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
        let overload = class == Class::Overload && !call.after_content;
        let refusal = call.live.map_or(Duration::MAX, |live| now.since(live.granted));
        let unserved = call.permit.filter(|_| call.standing == Standing::Current && !call.after_content);
        if let Some(id) = unserved {
            self.in_flight.permits.unserved(id);
        }
        let answered = overload && self.in_flight.is_answering(refusal, now);
        let may_trip = call.standing == Standing::Current && self.forced_to() != Some(Side::Closed);
        let transition = (may_trip && !call.after_content && evidence::counts(call.cause))
            .then(|| {
                let newest = self.in_flight.permits.newest();
                let undecided = |from| self.in_flight.permits.undecided(from, call.permit.unwrap_or(newest));
                let others = Others { newest, undecided, answered };
                self.breaker.fail(call.permit, &others, now, rng, &settings.breaker)
            })
            .flatten();
        if transition.is_some() {
            self.in_flight.trip();
        }
        let steady = call.standing == Standing::Current && was_closed && transition.is_none();
        if overload && steady {
            self.in_flight.cut(refusal, now, &settings.pace);
        }
        if overload && call.standing == Standing::Current {
            self.degraded.overload();
        }
        if call.cause == Cause::Acceleration {
            self.in_flight.decelerate(now);
        }

        let met_again = class == Class::SpendCap && self.holds.spend_cap(settings.spend_cap_retry(), now);
        match (class, asked) {
            (Class::RateLimit, Some(wait)) => self.holds.retry_after(wait, now),
            (Class::Overload, Some(wait)) => self.holds.overloaded(wait, now),
            _ => {}
        }
        let wait = self.buckets.fail(class, backoff, call.retry_after, now, rng);
        let outage = overload && !steady;
        let held = (met_again || outage).then(|| self.hold_on(call.asking, wait, now, settings)).flatten();
        let costs_attempt = match class {
            Class::Overload => !outage,
            Class::RateLimit => call.after_content || asked.is_none(),
            Class::Transient => true,
            Class::SpendCap | Class::Final => false,
        };
        let (leave, slow) = (self.one_is_enough(now, settings), self.dwell.is_slow(now));
        Verdict { wait, held, costs_attempt, leave, transition, slow }
    }

    fn note_call(&mut self, now: Timestamp, settings: &GateSettings) {
        self.degraded.tried(now);
        self.pacer.take(&settings.pace, now);
        self.hours.note_call(now);
    }

    /// What the holds and the breaker say to a call.
    fn stands(&mut self, now: Timestamp, settings: &GateSettings) -> (HoldStand, Stand) {
        let hold = match self.forced_to() {
            Some(Side::Closed) => HoldStand::Free,
            _ => self.holds.stand(settings.spend_cap_retry(), now),
        };
        (hold, self.breaker.stand(now))
    }

    /// Whether one overload is enough to leave the model: it is degraded, or the hour is a bad one.
    fn one_is_enough(&self, now: Timestamp, settings: &GateSettings) -> bool {
        self.degraded.is_degraded(&settings.degraded) || settings.peak.contains(now) || self.hours.is_peak(now)
    }

    /// A job that met what everyone is held for waits with everyone, but no shorter than the upstream asked it to.
    fn hold_on(&mut self, asking: Asking, wait: Option<Wait>, now: Timestamp, settings: &GateSettings) -> Option<Held> {
        let (hold, stand) = (self.holds.stand(settings.spend_cap_retry(), now), self.breaker.stand(now));
        let (until, reason) = self.refusal(hold, stand, now)?;
        let held = self.hold(Asking { ticket: None, ..asking }, until, reason, now, settings);
        let asked = wait.filter(|wait| !wait.floor.is_zero()).map(|wait| wait.wanted);
        Some(Held { after: held.after.max(asked.unwrap_or_default()), ..held })
    }

    /// Ends what is over: the operator's order, and leases; whoever was probing or trying decides nothing any more. Every
    /// question does that first, but for [`Gate::status`], which changes nothing.
    pub fn expire(&mut self, now: Timestamp, settings: &GateSettings) {
        if let Some(forced) = &mut self.forced {
            forced.look(now);
            let ends_at = forced.ends_at();
            if ends_at <= now {
                self.end_force(Why::OverrideEnded, ends_at);
            }
        }
        for permit in self.in_flight.permits.expire(settings.lease().max(settings.probe_lease()), now) {
            self.breaker.free(permit);
            self.holds.free(permit, now);
        }
    }

    fn end_force(&mut self, why: Why, at: Timestamp) -> bool {
        if self.forced.take().is_none() {
            return false;
        }
        self.buckets.reset_outage();
        self.degraded = Degraded::default();
        self.breaker.force(Side::Closed, why, at);
        true
    }

    fn forced_to(&self) -> Option<Side> {
        self.forced.as_ref().map(Forced::state)
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
    asking: Asking,
    live: Option<Permit>,
    standing: Standing,
    cause: Cause,
    after_content: bool,
    retry_after: Option<Duration>,
}

fn standing(permit: Permit) -> Standing {
    if permit.straggler { Standing::Straggler } else { Standing::Current }
}
