//! The operator's override at the gate, one rule a test (B11); its laws over random histories at the end.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // a test may fail

use std::time::Duration;

use proptest::prelude::*;
use spillway::json;
use spillway::policy::answer::{Asking, Decision, Ended, Held, HoldReason, PermitId, Report, Verdict};
use spillway::policy::cause::Cause::{self, Overloaded, RateLimited, SpendCap};
use spillway::policy::forced::{LONGEST_ORDER, Order, RECHECK, Side};
use spillway::policy::gate::Gate;
use spillway::policy::rate_limits::RateLimits;
use spillway::policy::settings::{BackoffSettings, BreakerSettings, GateSettings, PaceSettings};
use spillway::policy::time::Timestamp;
use spillway::policy::transition::{State, Why};

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + seconds * 1000)
}

fn ended(permit: Option<PermitId>, report: Report) -> Ended {
    let (limits, backoff) = (RateLimits::default(), BackoffSettings::default());
    Ended { permit, asking: Asking::default(), report, limits, backoff }
}

fn order(state: Side, seconds: u64) -> Order {
    Order { state, lasts: Duration::from_secs(seconds), note: "Why.".into(), author: "ada".into() }
}

/// A gate that trips at the third failure; every line is one event.
struct Bench {
    gate: Gate,
    rng: fastrand::Rng,
    settings: GateSettings,
}

impl Bench {
    fn new() -> Self {
        let breaker = BreakerSettings {
            consecutive_failures: 3,
            consecutive_seconds: 0,
            open_jitter_percent: 0,
            ..BreakerSettings::default()
        };
        let settings = GateSettings { breaker, ..GateSettings::default() };
        Self { gate: Gate::default(), rng: fastrand::Rng::with_seed(5), settings }
    }

    /// The evidence has opened it at second 0.
    fn open() -> Self {
        let mut bench = Self::new();
        for _ in 0..3 {
            bench.fails_anew(Overloaded, 0);
        }
        assert_eq!(bench.state(0), State::Open);
        bench
    }

    fn forced(state: Side, seconds: u64) -> Self {
        let mut bench = Self::new();
        bench.force(state, seconds, 0);
        bench
    }

    fn force(&mut self, state: Side, seconds: u64, now: u64) {
        self.gate.force(order(state, seconds), at(now), &self.settings);
    }

    fn asks(&mut self, now: u64) -> Decision {
        self.gate.permit(Asking::default(), at(now), &self.settings)
    }

    fn granted(&mut self, now: u64) -> PermitId {
        match self.asks(now) {
            Decision::Granted(permit) => permit,
            decision => panic!("not granted: {decision:?}"),
        }
    }

    fn held(&mut self, now: u64) -> (HoldReason, u64) {
        match self.asks(now) {
            Decision::NotBefore(held) => (held.reason, held.after.as_secs()),
            decision => panic!("not held: {decision:?}"),
        }
    }

    fn reports(&mut self, permit: PermitId, report: Report, now: u64) -> Verdict {
        self.gate.report(&ended(Some(permit), report), at(now), &mut self.rng, &self.settings)
    }

    fn fails(&mut self, permit: PermitId, cause: Cause, retry_after: Option<u64>, now: u64) -> Verdict {
        let retry_after = retry_after.map(Duration::from_secs);
        self.reports(permit, Report::Failure { cause, after_content: false, retry_after }, now)
    }

    fn fails_anew(&mut self, cause: Cause, now: u64) -> Verdict {
        let permit = self.granted(now);
        self.fails(permit, cause, None, now)
    }

    fn state(&self, now: u64) -> State {
        self.gate.status(at(now), &self.settings).state
    }

    /// The moves, oldest first.
    fn moves(&self) -> Vec<(State, State, Why)> {
        self.gate
            .moves_since(None)
            .map(|past| (past.transition.from, past.transition.to, past.transition.why))
            .collect()
    }
}

#[test]
fn forced_open_nobody_calls_whatever_the_breaker_was_and_not_even_a_probe() {
    let half_open = || {
        let mut bench = Bench::open();
        assert!(matches!(bench.asks(100), Decision::Probe(_)));
        bench
    };
    for (name, bench) in [("closed", Bench::new()), ("open", Bench::open()), ("half-open", half_open())] {
        let mut bench = bench;
        bench.force(Side::Open, 3_600, 100);
        for now in [100, 101, 200, 1_000, 3_699] {
            let (reason, after) = bench.held(now);
            assert_eq!(reason, HoldReason::Overridden, "{name} at {now}");
            assert!(after <= 130, "{name} at {now}: {after} s");
        }
        bench.granted(3_700);
    }
}

#[test]
fn who_is_refused_is_told_two_minutes_at_most_and_exactly_the_end_when_that_is_sooner() {
    let mut bench = Bench::forced(Side::Open, 600);
    assert_eq!(bench.held(0), (HoldReason::Overridden, RECHECK.as_secs()));
    assert_eq!(Bench::forced(Side::Open, 30).held(0), (HoldReason::Overridden, 30));
}

#[test]
fn after_forced_open_it_is_closed_with_a_slow_start_and_nothing_known() {
    type End = fn(&mut Bench);
    let ends: [(End, Why); 2] = [
        (|bench| bench.gate.expire(at(600), &bench.settings), Why::OverrideEnded),
        (|bench| assert!(bench.gate.release(at(600), &bench.settings)), Why::OverrideReleased),
    ];
    for (end, why) in ends {
        let mut bench = Bench::open();
        let lasts = if why == Why::OverrideEnded { 600 } else { 6_000 };
        bench.force(Side::Open, lasts, 0);
        end(&mut bench);
        let status = bench.gate.status(at(600), &bench.settings);
        assert_eq!((status.state, status.in_flight_limit, status.since_seconds), (State::Closed, 1, Some(0)));
        assert_eq!((status.window.calls(), status.buckets.overloaded.failures), (0, 0));
        assert_eq!((status.forced, status.next_check_seconds), (None, None));
        bench.granted(600);
        assert_eq!(bench.held(600).0, HoldReason::InFlightLimit);
        let moves = [
            (State::Closed, State::Open, Why::FailuresOverTime),
            (State::Open, State::Open, Why::OverrideOpened),
            (State::Open, State::Closed, why),
        ];
        assert_eq!(bench.moves(), moves);
    }
}

#[test]
fn it_ends_at_the_time_that_was_asked_for_however_late_somebody_looks() {
    for side in [Side::Open, Side::Closed] {
        let mut bench = Bench::forced(side, 60);
        bench.granted(1_000);
        assert_eq!(
            bench.gate.last_move().map(|past| (past.at, past.transition.why)),
            Some((at(60), Why::OverrideEnded))
        );
    }
}

#[test]
fn calls_on_their_way_end_as_stragglers_when_it_is_forced_open() {
    let mut bench = Bench::new();
    let (failing, answered) = (bench.granted(0), bench.granted(0));
    bench.force(Side::Open, 600, 1);
    let verdict = bench.fails(failing, Overloaded, None, 2);
    assert_eq!((verdict.costs_attempt, verdict.transition), (false, None));
    assert_eq!(verdict.held.map(|held| held.reason), Some(HoldReason::Overridden));
    assert!(bench.gate.renew(answered, at(3), &bench.settings), "it goes on to its end");
    assert_eq!(bench.reports(answered, Report::Success, 4), Verdict::default());
    assert_eq!(bench.held(5).0, HoldReason::Overridden);
}

#[test]
fn after_forced_open_only_one_may_call_and_older_calls_tell_nothing() {
    let mut bench = Bench::new();
    let older: Vec<_> = (0..6).map(|_| bench.granted(0)).collect();
    bench.force(Side::Open, 60, 1);
    for permit in older {
        assert_eq!(bench.fails(permit, Overloaded, None, 60).transition, None);
    }
    assert_eq!(bench.gate.status(at(60), &bench.settings).in_flight_limit, 1);
    assert_eq!(bench.gate.status(at(60), &bench.settings).window.calls(), 0);
}

#[test]
fn forced_closed_on_an_open_breaker_lets_calls_through_from_a_slow_start() {
    let mut bench = Bench::open();
    assert_eq!(bench.held(1).0, HoldReason::BreakerOpen);
    bench.force(Side::Closed, 600, 1);
    assert_eq!(bench.state(1), State::Closed);
    assert_eq!(bench.gate.status(at(1), &bench.settings).buckets.overloaded.failures, 0, "as at any closing");
    bench.granted(1);
    assert_eq!(bench.held(1).0, HoldReason::InFlightLimit, "the in-flight limit stays");
}

#[test]
fn forced_closed_a_probe_becomes_a_call_like_any_other() {
    let mut bench = Bench::open();
    let Decision::Probe(probe) = bench.asks(100) else { panic!("no probe") };
    bench.force(Side::Closed, 600, 100);
    assert_eq!(bench.fails(probe, Overloaded, None, 101).transition, None);
    assert_eq!(bench.state(101), State::Closed);
    bench.granted(101);
}

#[test]
fn forced_closed_failures_do_not_trip_it_and_afterwards_only_those_that_come_then_do() {
    let mut bench = Bench::forced(Side::Closed, 600);
    assert_eq!(bench.gate.status(at(0), &bench.settings).next_check_seconds, None, "it serves");
    for now in 0..100 {
        let verdict = bench.fails_anew(Overloaded, now);
        assert_eq!((verdict.transition, verdict.costs_attempt), (None, true), "failure {now}");
    }
    for now in [601, 602] {
        assert_eq!(bench.fails_anew(Overloaded, now).transition, None, "at {now}");
    }
    assert_eq!(bench.fails_anew(Overloaded, 603).transition.map(|it| it.why), Some(Why::FailuresOverTime));
}

#[test]
fn forced_closed_clears_the_holds_and_later_ones_refuse_only_who_met_them() {
    let mut bench = Bench::new();
    let (first, second) = (bench.granted(0), bench.granted(0));
    bench.fails(first, SpendCap, None, 0);
    bench.fails(second, RateLimited, Some(200), 0);
    assert_eq!(bench.held(1).0, HoldReason::SpendCap);
    bench.force(Side::Closed, 600, 1);
    assert_eq!(bench.gate.status(at(1), &bench.settings).holds, []);

    let limited = bench.granted(2);
    let verdict = bench.fails(limited, RateLimited, Some(200), 2);
    assert!(verdict.wait.is_some_and(|wait| wait.wanted >= Duration::from_secs(200)), "its own job obeys it");
    for now in [3, 4] {
        let held = bench.fails_anew(SpendCap, now).held;
        let expected = Some((HoldReason::SpendCap, 120));
        assert_eq!(
            held.map(|held| (held.reason, held.after.as_secs())),
            expected,
            "one has failed for it, no other does"
        );
    }
    bench.granted(5);
    assert_eq!(bench.held(601).0, HoldReason::SpendCap, "what the upstream said meanwhile counts afterwards");
}

#[test]
fn a_cap_that_nobody_knew_of_or_that_was_raised_fails_who_meets_it_first_also_under_an_order() {
    let mut bench = Bench::forced(Side::Closed, 600);
    assert_eq!(bench.fails_anew(SpendCap, 3).held, None, "nobody knew");
    assert!(bench.fails_anew(SpendCap, 4).held.is_some());

    let mut bench = Bench::new();
    bench.fails_anew(SpendCap, 0);
    bench.force(Side::Closed, 600, 1);
    let answered = bench.granted(2);
    bench.gate.content(answered, &RateLimits::default(), at(3), &bench.settings);
    assert_eq!(bench.fails_anew(SpendCap, 4).held, None, "it was raised, and is met anew");
}

#[test]
fn forced_open_a_hold_stays_and_counts_afterwards() {
    let mut bench = Bench::new();
    bench.fails_anew(SpendCap, 0);
    bench.force(Side::Open, 60, 1);
    assert_eq!(bench.held(2).0, HoldReason::Overridden);
    assert_eq!(bench.held(61).0, HoldReason::SpendCap);
}

#[test]
fn a_new_order_takes_the_place_of_the_old_one() {
    let mut bench = Bench::forced(Side::Open, 6_000);
    bench.force(Side::Closed, 60, 10);
    bench.granted(11);
    bench.force(Side::Open, 30, 12);
    assert_eq!(bench.held(41).0, HoldReason::Overridden);
    bench.granted(42);
    assert_eq!(
        bench.moves(),
        [
            (State::Closed, State::Open, Why::OverrideOpened),
            (State::Open, State::Closed, Why::OverrideClosed),
            (State::Closed, State::Open, Why::OverrideOpened),
            (State::Open, State::Closed, Why::OverrideEnded),
        ]
    );
}

#[test]
fn to_release_what_is_not_forced_changes_nothing() {
    let mut bench = Bench::open();
    let before = bench.gate.clone();
    assert!(!bench.gate.release(at(1), &bench.settings));
    assert_eq!(bench.gate, before);
}

#[test]
fn to_release_what_has_ended_finds_that_it_has_ended() {
    let mut bench = Bench::forced(Side::Open, 60);
    assert!(!bench.gate.release(at(60), &bench.settings));
    assert_eq!(bench.moves().last(), Some(&(State::Open, State::Closed, Why::OverrideEnded)));
}

#[test]
fn the_operator_sees_it_with_author_note_and_time_left() {
    let bench = Bench::forced(Side::Open, 600);
    let status = bench.gate.status(at(10), &bench.settings);
    assert_eq!((status.state, status.since_seconds, status.next_check_seconds), (State::Open, Some(10), Some(590)));
    let shown = json::write(&status);
    assert!(
        shown.contains(r#""override":{"state":"open","author":"ada","note":"Why.","seconds_left":590}"#),
        "{shown}"
    );
    assert!(shown.contains(r#""history":[{"seconds_ago":10,"from":"closed","to":"open","why":"override_opened"}]"#));
    assert!(json::write(&bench.gate.status(at(600), &bench.settings)).contains(r#""override":null"#));
}

#[test]
fn what_is_left_of_an_order_is_known_until_somebody_has_ended_it() {
    let mut bench = Bench::forced(Side::Open, 600);
    for (now, left) in [(0, 600), (599, 1), (600, 0), (700, 0)] {
        assert_eq!(bench.gate.order_left(at(now)), Some(Duration::from_secs(left)), "at {now}");
    }
    bench.gate.expire(at(700), &bench.settings);
    assert_eq!(bench.gate.order_left(at(700)), None);
}

#[test]
fn every_move_since_the_last_one_known_is_told_once_and_in_order() {
    let mut bench = Bench::forced(Side::Closed, 60);
    let before = bench.gate.last_move();
    assert_eq!(bench.gate.moves_since(before).count(), 0);
    bench.force(Side::Open, 60, 100);
    let new: Vec<_> = bench.gate.moves_since(before).map(|past| past.transition.why).collect();
    assert_eq!(new, [Why::OverrideEnded, Why::OverrideOpened]);
}

#[test]
fn a_gate_that_knew_no_overrides_can_be_read() {
    assert_eq!(json::read::<Gate>("{}"), Ok(Gate::default()));
    assert!(!json::write(&Gate::default()).contains("forced"));
}

#[derive(Clone, Debug)]
enum Event {
    /// The clock moves on or back.
    Clock(i64),
    Ask,
    Content,
    Report(Report),
    /// It is stored and loaded.
    Restart,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let failure = |cause, retry_after| Report::Failure { cause, after_content: false, retry_after };
    let report = prop_oneof![
        Just(Report::Success),
        Just(failure(Overloaded, None)),
        Just(failure(SpendCap, None)),
        Just(failure(RateLimited, Some(Duration::from_secs(400)))),
    ];
    let clock = prop_oneof![0_i64..2_000, 0_i64..200_000, -100_000_i64..0, Just(-2_000_000_000_000)];
    let event = prop_oneof![
        3 => clock.prop_map(Event::Clock),
        4 => Just(Event::Ask),
        1 => Just(Event::Content),
        3 => report.prop_map(Event::Report),
        1 => Just(Event::Restart),
    ];
    prop::collection::vec(event, 1..120)
}

/// Plays `events` on a gate that was just forced; `look` sees each answer, the time that has passed by a watch that is
/// never set back, and the gate.
fn play(
    side: Side,
    lasts: Duration,
    events: Vec<Event>,
    seed: u64,
    mut look: impl FnMut(&Gate, Option<Decision>, Duration, Timestamp) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let pace = PaceSettings { start_in_flight: 512, ..PaceSettings::default() };
    let settings = GateSettings { pace, ..GateSettings::default() };
    let (mut gate, mut rng) = (Gate::default(), fastrand::Rng::with_seed(seed));
    let mut permits: Vec<PermitId> =
        (0..3).filter_map(|_| gate.permit(Asking::default(), at(0), &settings).permit()).collect();
    let (mut now, mut passed) = (at(0), Duration::ZERO);
    gate.force(Order { lasts, ..order(side, 0) }, now, &settings);
    for event in events {
        let mut decision = None;
        match event {
            Event::Clock(ms) => {
                let by = Duration::from_millis(ms.unsigned_abs());
                now = if ms < 0 { now - by } else { now + by };
                passed += if ms < 0 { Duration::ZERO } else { by };
                gate.expire(now, &settings);
            }
            Event::Ask => {
                let answer = gate.permit(Asking::default(), now, &settings);
                permits.extend(answer.permit());
                decision = Some(answer);
            }
            Event::Content => {
                permits.last().map(|permit| gate.content(*permit, &RateLimits::default(), now, &settings));
            }
            Event::Report(report) => {
                gate.report(&ended(permits.pop(), report), now, &mut rng, &settings);
            }
            Event::Restart => gate = json::read(&json::write(&gate)).expect("what was written can be read"),
        }
        look(&gate, decision, passed, now)?;
    }
    Ok(())
}

fn lasts() -> impl Strategy<Value = Duration> {
    prop_oneof![0_u64..5_000, 0_u64..2_000_000, any::<u64>()].prop_map(Duration::from_millis)
}

proptest! {
    #[test]
    fn what_is_left_never_rises_and_it_is_over_when_that_much_time_has_passed(lasts in lasts(), events in events(), seed: u64) {
        let mut left = lasts.min(LONGEST_ORDER).as_millis().div_ceil(1000) as u64;
        let settings = GateSettings::default();
        play(Side::Open, lasts, events, seed, |gate, _, passed, now| {
            let shown = gate.status(now, &settings).forced.map_or(0, |forced| forced.seconds_left);
            prop_assert!(shown <= left, "{} after {}", shown, left);
            prop_assert!(passed < lasts || shown == 0);
            left = shown;
            Ok(())
        })?;
    }

    #[test]
    fn while_it_is_forced_open_nobody_is_let_through_and_nobody_sleeps_long(lasts in lasts(), events in events(), seed: u64) {
        let settings = GateSettings::default();
        play(Side::Open, lasts, events, seed, |gate, decision, _, now| {
            if let (Some(_), Some(decision)) = (gate.status(now, &settings).forced, decision) {
                let Decision::NotBefore(Held { after, reason, .. }) = decision else { panic!("let through") };
                prop_assert_eq!(reason, HoldReason::Overridden);
                prop_assert!(after <= RECHECK + Duration::from_secs(120), "{:?}", after);
            }
            Ok(())
        })?;
    }

    #[test]
    fn while_it_is_forced_closed_nothing_but_the_in_flight_limit_refuses(lasts in lasts(), events in events(), seed: u64) {
        let settings = GateSettings::default();
        play(Side::Closed, lasts, events, seed, |gate, decision, _, now| {
            if gate.status(now, &settings).forced.is_some() {
                prop_assert_eq!(gate.status(now, &settings).state, State::Closed);
                match decision {
                    None | Some(Decision::Granted(_)) => {}
                    Some(Decision::NotBefore(held)) => prop_assert_eq!(held.reason, HoldReason::InFlightLimit),
                    Some(Decision::Probe(_)) => panic!("a probe of a closed gate"),
                }
            }
            Ok(())
        })?;
    }
}
