//! The gate against a naive reference: a breaker that remembers every call it ever heard of and works each answer out from
//! that list and the rules as the modules state them. No buckets, no counters, no state to load or store.
//!
//! Only what the reference knows is compared: who is granted, who probes, who is refused and why, how the breaker moves, which
//! permits live, when the model is degraded, and what the operator's orders do to all that. Holds, pacing and the in-flight
//! limit have tables and laws of their own; where the limit refuses, the reference only checks that nothing else would have.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)] // a test may fail

use std::time::Duration;

use proptest::prelude::*;
use spillway::policy::answer::{Asking, Decision, Ended, HoldReason, PermitId, Report};
use spillway::policy::cause::Cause;
use spillway::policy::forced::{Order, Side};
use spillway::policy::gate::Gate;
use spillway::policy::rate_limits::RateLimits;
use spillway::policy::settings::{BackoffSettings, BreakerSettings, DegradedSettings, GateSettings, PaceSettings};
use spillway::policy::time::Timestamp;
use spillway::policy::transition::State;

const WINDOW_MS: u64 = 12_000;
const STEP_MS: u64 = WINDOW_MS / 12;
const MINIMUM: usize = 4;
const Z: f64 = 1.5;
const IN_A_ROW: usize = 3;
const IN_A_ROW_MS: u64 = 5_000;
const HARD: usize = 6;
const OPEN_MS: u64 = 5_000;
const PROBE_LEASE_MS: u64 = 4_000;
const LEASE_MS: u64 = 9_000;
const DEGRADED: usize = 4;
const DEGRADED_RETRY_MS: u64 = 3_000;

fn settings() -> GateSettings {
    GateSettings {
        lease_seconds: 9,
        breaker: BreakerSettings {
            window_seconds: 12,
            minimum_calls: 4,
            failure_rate_percent: 50,
            confidence_z: Z,
            consecutive_failures: 3,
            consecutive_seconds: 5,
            consecutive_hard: 6,
            open_seconds: 5,
            open_jitter_percent: 0,
            probe_lease_seconds: 4,
        },
        degraded: DegradedSettings { consecutive_overloads: 4, retry_seconds: 3 },
        pace: PaceSettings { start_in_flight: 512, ..PaceSettings::default() },
        ..GateSettings::default()
    }
}

#[derive(Clone, Debug)]
struct Call {
    granted: u64,
    lease_ends: u64,
    /// When first content came.
    content: Option<u64>,
    /// It is not on its way any more: how many had been granted by then.
    over: Option<usize>,
    /// It is over, and was not answered.
    refused: bool,
}

/// How the breaker moved, and when: the present state is the last one's.
#[derive(Clone, Debug)]
struct Era {
    state: State,
    since: u64,
    /// Successes and failures heard in this era, in order: (when, which call, whether it succeeded).
    heard: Vec<(u64, usize, bool)>,
}

#[derive(Clone)]
struct Reference {
    calls: Vec<Call>,
    era: Era,
    probe: Option<usize>,
    /// Calls from this one on were granted since the last trip.
    since_trip: usize,
    /// How many were being answered at once, and when that was seen, since the last trip.
    served: Vec<(u64, usize)>,
    /// Overloads since the last success.
    overloads: usize,
    /// The operator's order, and until when it is in force.
    forced: Option<(Side, u64)>,
}

impl Reference {
    fn new() -> Self {
        let era = Era { state: State::Closed, since: 0, heard: Vec::new() };
        Self { calls: Vec::new(), era, probe: None, since_trip: 0, served: Vec::new(), overloads: 0, forced: None }
    }

    fn lives(&self, call: usize, now: u64) -> bool {
        self.calls.get(call).is_some_and(|it| it.over.is_none() && it.lease_ends > now)
    }

    fn probing(&self, now: u64) -> bool {
        self.probe.is_some_and(|probe| self.lives(probe, now))
    }

    fn enter(&mut self, state: State, now: u64) {
        self.era = Era { state, since: now, heard: Vec::new() };
    }

    fn trip(&mut self, now: u64) {
        self.enter(State::Open, now);
        (self.since_trip, self.served) = (self.calls.len(), Vec::new());
    }

    /// How many were answered at once when this call was granted, as far as is known by now: it, and those that were on their
    /// way then and have not been refused since.
    fn together(&self, call: usize) -> usize {
        let granted = self.calls[call].granted;
        let beside = self.calls[self.since_trip..call]
            .iter()
            .filter(|other| other.lease_ends > granted && other.over.is_none_or(|by| by > call) && !other.refused);
        beside.count() + 1
    }

    /// How many have come to content, or have been on their way for longer than that.
    fn lasting(&self, than: u64, now: u64) -> usize {
        let lasts = |call: &usize| self.calls[*call].content.is_some() || now - self.calls[*call].granted > than;
        (self.since_trip..self.calls.len()).filter(|&call| self.lives(call, now)).filter(lasts).count()
    }

    /// Whether enough others are being answered, of the most in this half-minute and the one before.
    fn is_answering(&self, refusal: u64, now: u64) -> bool {
        let answered = self.lasting(refusal, now);
        let recent = self.served.iter().filter(|(at, _)| now / 30_000 - at / 30_000 <= 1);
        let most = recent.map(|(_, served)| *served).max().unwrap_or(0);
        answered > 0 && answered * 5 >= most * 2
    }

    fn force(&mut self, side: Side, lasts: u64, now: u64) {
        match side {
            Side::Open => self.trip(now),
            Side::Closed => self.enter(State::Closed, now),
        }
        self.forced = Some((side, now + lasts));
    }

    /// Ends the order, whose time has come or not: whatever it was, the breaker is closed and knows nothing.
    fn release(&mut self, now: u64) {
        if self.forced.take().is_some() {
            self.overloads = 0;
            self.enter(State::Closed, now);
        }
    }

    fn look(&mut self, now: u64) {
        if let Some((_, ends_at)) = self.forced.filter(|(_, ends_at)| *ends_at <= now) {
            self.release(ends_at);
        }
    }

    fn forced_to(&self, side: Side) -> bool {
        self.forced.is_some_and(|(forced, _)| forced == side)
    }

    /// Whether a job should leave a model that has refused call after call, and was called a moment ago.
    fn leaves(&self, now: u64) -> bool {
        let tried = self.calls.last().is_some_and(|call| now < call.granted + DEGRADED_RETRY_MS);
        self.overloads >= DEGRADED && tried && !self.forced_to(Side::Closed)
    }

    /// `Ok(true)`: probe.
    fn ask(&mut self, may_leave: bool, now: u64) -> Result<bool, HoldReason> {
        let probes = match self.era.state {
            _ if self.forced_to(Side::Open) => return Err(HoldReason::Overridden),
            State::Closed if may_leave && self.leaves(now) => return Err(HoldReason::Degraded),
            State::Closed => false,
            State::Open if now < self.era.since + OPEN_MS => return Err(HoldReason::BreakerOpen),
            State::HalfOpen if self.probing(now) => return Err(HoldReason::ProbeInFlight),
            State::Open | State::HalfOpen => true,
        };
        if self.era.state == State::Open {
            self.enter(State::HalfOpen, now);
        }
        if probes {
            self.probe = Some(self.calls.len());
        }
        let lease = if probes { PROBE_LEASE_MS } else { LEASE_MS };
        self.calls.push(Call { granted: now, lease_ends: now + lease, content: None, over: None, refused: false });
        Ok(probes)
    }

    fn renew(&mut self, call: usize, now: u64) -> bool {
        let lives = self.lives(call, now);
        // The one that closed the gate is an ordinary call from then on.
        let probes = self.era.state == State::HalfOpen && self.probe == Some(call);
        if lives {
            self.calls[call].lease_ends = now + if probes { PROBE_LEASE_MS } else { LEASE_MS };
        }
        lives
    }

    /// A straggler was granted in an era before the breaker opened last; the probe belongs to the era that it ends.
    fn evidence(&self, call: usize) -> bool {
        match self.era.state {
            State::Closed => call >= self.since_trip,
            State::HalfOpen => self.probe == Some(call),
            State::Open => false,
        }
    }

    fn content(&mut self, call: usize, now: u64) {
        if !self.lives(call, now) || self.calls[call].content.is_some() {
            return;
        }
        self.calls[call].content = Some(now);
        if call >= self.since_trip {
            self.served.push((now, self.together(call)));
            self.overloads = 0;
        }
        if !self.evidence(call) {
            return;
        }
        if self.era.state == State::HalfOpen {
            self.enter(State::Closed, now);
        } else {
            self.era.heard.push((now, call, true));
        }
    }

    fn report(&mut self, call: usize, report: Report, now: u64) {
        if !self.lives(call, now) {
            return;
        }
        if matches!(report, Report::Success | Report::Failure { after_content: true, .. }) {
            self.content(call, now);
        }
        self.calls[call].over = Some(self.calls.len());
        let Report::Failure { cause, after_content: false, .. } = report else { return };
        if self.calls[call].content.is_some() {
            return;
        }
        self.calls[call].refused = true;
        let (closed, overload) = (self.era.state == State::Closed, cause == Cause::Overloaded);
        let refusal = now - self.calls[call].granted;
        if overload && call >= self.since_trip {
            self.overloads += 1;
        }
        if self.evidence(call)
            && !self.forced_to(Side::Closed)
            && matches!(cause, Cause::Overloaded | Cause::ServerError)
        {
            self.era.heard.push((now, call, false));
            let answered = overload && self.is_answering(refusal, now);
            if !closed || self.trips(call, answered, now) {
                return self.trip(now);
            }
        }
        if overload && closed && call >= self.since_trip {
            self.served.push((now, self.lasting(refusal * 3, now)));
        }
    }

    fn trips(&self, failing: usize, answered: bool, now: u64) -> bool {
        let heard = &self.era.heard;
        let undecided = |from: usize| {
            (from.max(self.since_trip)..=failing)
                .filter(|&call| self.lives(call, now) && self.calls[call].content.is_none())
                .count()
        };

        // The window moves in twelfths.
        let recent: Vec<_> = heard.iter().filter(|(at, ..)| now - at / STEP_MS * STEP_MS < WINDOW_MS).collect();
        let failures = recent.iter().filter(|(.., ok)| !ok).count();
        let calls = (recent.len() + undecided(0)) as f64;
        // Surely half: the rate seen lies at least z deviations above one half.
        let above = failures as f64 / calls - 0.5;
        let rate = recent.len() >= MINIMUM && above + 1e-9 >= Z * (0.25 / calls).sqrt();

        // The failures that no success broke: one does if its call began no earlier than the first of them.
        let mut run: Vec<(u64, usize)> = Vec::new();
        for &(at, call, ok) in heard {
            match ok {
                false => run.push((at, call)),
                true if run.iter().map(|(_, failed)| *failed).min().is_none_or(|first| call >= first) => run.clear(),
                true => {}
            }
        }
        let first = run.iter().map(|(_, call)| *call).min().unwrap_or(0);
        let clear = undecided(first) * 8 <= run.len();
        let lasted = run.first().is_some_and(|(at, _)| now - at >= IN_A_ROW_MS);
        rate || (clear && (run.len() >= HARD && !answered || run.len() >= IN_A_ROW && lasted))
    }
}

#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    Ask { may_leave: bool },
    Renew(usize),
    Content(usize),
    Report(usize, Report),
    Force(Side, u64),
    Release,
}

fn events(orders: u32) -> impl Strategy<Value = Vec<Event>> {
    let failure = |cause, after_content| Report::Failure { cause, after_content, retry_after: None };
    let report = prop_oneof![
        3 => Just(Report::Success),
        1 => Just(Report::Abandoned),
        6 => Just(failure(Cause::Overloaded, false)),
        2 => Just(failure(Cause::ServerError, false)),
        1 => Just(failure(Cause::Overloaded, true)),
        1 => Just(failure(Cause::RateLimited, false)),
        1 => Just(failure(Cause::Conflict, false)),
    ];
    let event = prop_oneof![
        4 => prop_oneof![Just(0), 0_u64..300, 0_u64..3_000, Just(OPEN_MS), Just(DEGRADED_RETRY_MS)].prop_map(Event::Pass),
        6 => any::<bool>().prop_map(|may_leave| Event::Ask { may_leave }),
        1 => (0_usize..6).prop_map(Event::Renew),
        2 => (0_usize..3).prop_map(Event::Content),
        5 => (0_usize..6, report).prop_map(|(ago, report)| Event::Report(ago, report)),
        orders => (prop_oneof![Just(Side::Open), Just(Side::Closed)], 1_u64..20).prop_map(|(side, s)| Event::Force(side, s * 1000)),
        orders => Just(Event::Release),
    ];
    prop::collection::vec(event, 1..250)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn the_gate_answers_as_the_reference_does(events in prop_oneof![3 => events(0), 1 => events(1)], seed: u64) {
        let (mut gate, mut reference) = (Gate::default(), Reference::new());
        let (settings, backoff) = (settings(), BackoffSettings::default());
        let mut rng = fastrand::Rng::with_seed(seed);
        // A multiple of the window's step, so that both cut it at the same moments.
        let (mut ms, mut permits) = (STEP_MS * 1_000_000_000, Vec::<PermitId>::new());
        for event in events {
            let now = Timestamp::from_millis(ms);
            // One of the last calls that are on their way by what they know themselves; now and then any of the last.
            let named = |ago: usize| {
                let mut open = (0..permits.len()).rev().filter(|&call| ago >= 4 || reference.calls[call].over.is_none());
                open.nth(ago % 4).map(|call| (call, permits[call]))
            };
            match event {
                Event::Pass(more) => ms += more,
                Event::Ask { may_leave } => {
                    let asking = Asking { may_leave, ..Asking::default() };
                    let decision = gate.permit(asking, now, &settings);
                    let said = match decision {
                        Decision::Granted(_) => Ok(false),
                        Decision::Probe(_) => Ok(true),
                        Decision::NotBefore(held) => Err(held.reason),
                    };
                    if said == Err(HoldReason::InFlightLimit) {
                        prop_assert_eq!(reference.era.state, State::Closed);
                        prop_assert!(!(may_leave && reference.leaves(ms)));
                        continue;
                    }
                    prop_assert_eq!(said, reference.ask(may_leave, ms));
                    permits.extend(decision.permit());
                }
                Event::Renew(ago) => {
                    if let Some((call, permit)) = named(ago) {
                        prop_assert_eq!(gate.renew(permit, now, &settings), reference.renew(call, ms));
                    }
                }
                Event::Content(ago) => {
                    if let Some((call, permit)) = named(ago) {
                        gate.content(permit, &RateLimits::default(), now, &settings);
                        reference.content(call, ms);
                    }
                }
                Event::Force(state, lasts) => {
                    let lasting = Duration::from_millis(lasts);
                    let order = Order { state, lasts: lasting, note: String::new(), author: String::new() };
                    gate.force(order, now, &settings);
                    reference.force(state, lasts, ms);
                }
                Event::Release => {
                    prop_assert_eq!(gate.release(now, &settings), reference.forced.is_some());
                    reference.release(ms);
                }
                Event::Report(ago, report) => {
                    if let Some((call, permit)) = named(ago) {
                        let (permit, backoff) = (Some(permit), backoff.clone());
                        let ended = Ended { permit, asking: Asking::default(), report, limits: RateLimits::default(), backoff };
                        gate.report(&ended, now, &mut rng, &settings);
                        reference.report(call, report, ms);
                    }
                }
            }
            gate.expire(Timestamp::from_millis(ms), &settings);
            reference.look(ms);
            let status = gate.status(Timestamp::from_millis(ms), &settings);
            prop_assert_eq!(status.state, reference.era.state);
            prop_assert_eq!(status.degraded, reference.overloads >= DEGRADED);
            prop_assert_eq!(status.forced.is_some(), reference.forced.is_some());
            let live = (0..permits.len()).filter(|&call| reference.lives(call, ms)).count();
            prop_assert_eq!(status.in_flight as usize, live);
        }
    }
}

/// The comparison is worth something only if the reference gets about.
#[test]
fn the_reference_trips_by_each_rule_and_probes() {
    let overload = Report::Failure { cause: Cause::Overloaded, after_content: false, retry_after: None };
    let fails = |reference: &mut Reference, ms| {
        reference.ask(false, ms).unwrap();
        reference.report(reference.calls.len() - 1, overload, ms);
        reference.era.state == State::Open
    };
    let mut rate = Reference::new();
    assert_eq!([0, 1, 2, 3].map(|ms| fails(&mut rate, ms)), [false, false, false, true]);
    let mut slow = Reference::new();
    assert_eq!([0, 2_500, 5_000].map(|ms| fails(&mut slow, ms)), [false, false, true]);
    let mut hard = Reference::new();
    for _ in 0..40 {
        hard.ask(false, 0).unwrap();
        hard.report(hard.calls.len() - 1, Report::Success, 0);
    }
    let mut full = hard.clone();
    full.ask(false, 0).unwrap();
    full.content(40, 0);
    assert_eq!([(); 9].map(|()| fails(&mut full, 1)), [false; 9], "it is answering one, and that is all it ever did");
    assert_eq!([1, 2, 3, 4, 5, 6].map(|ms| fails(&mut hard, ms)), [false, false, false, false, false, true]);
    assert_eq!(hard.ask(false, 5_005), Err(HoldReason::BreakerOpen));
    assert_eq!(hard.ask(false, 5_006), Ok(true));
    assert_eq!(hard.ask(false, 5_006), Err(HoldReason::ProbeInFlight));
    assert_eq!(Duration::from_millis(LEASE_MS), settings().lease());
    let mut degraded = Reference::new();
    degraded.overloads = DEGRADED;
    assert_eq!(
        [true, true, false].map(|may_leave| degraded.ask(may_leave, 7)),
        [Ok(false), Err(HoldReason::Degraded), Ok(false)]
    );
    degraded.force(Side::Open, 1_000, 8);
    assert_eq!(degraded.ask(true, 9), Err(HoldReason::Overridden));
}
