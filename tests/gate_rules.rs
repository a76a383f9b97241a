//! The gate's rules, one a test: what it answers, what a report does, what costs an attempt.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)] // a test may fail

use std::time::Duration;

use spillway::policy::answer::{Asking, Decision, Ended, Held, HoldReason, PermitId, Report, Verdict};
use spillway::policy::backoff::Jitter;
use spillway::policy::cause::Cause::{self, InvalidRequest, Overloaded, RateLimited, ServerError, SpendCap};
use spillway::policy::cause::Class;
use spillway::policy::forced::{Order, Side};
use spillway::policy::gate::{Gate, Outlook, View};
use spillway::policy::hours::Windows;
use spillway::policy::priority::Priority;
use spillway::policy::rate_limits::{RateLimit, RateLimits};
use spillway::policy::settings::{Backoff, BackoffSettings, GateSettings};
use spillway::policy::status::GateStatus;
use spillway::policy::time::Timestamp;
use spillway::policy::transition::{State, Why};

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + seconds * 1000)
}

fn ended(permit: Option<PermitId>, report: Report) -> Ended {
    let (limits, backoff) = (RateLimits::default(), BackoffSettings::default());
    Ended { permit, asking: Asking::default(), report, limits, backoff }
}

/// An overload without a hint.
const OVERLOAD: Report = Report::Failure { cause: Overloaded, after_content: false, retry_after: None };

/// A gate and its surroundings; every line is one event.
struct Bench {
    gate: Gate,
    rng: fastrand::Rng,
    settings: GateSettings,
}

impl Bench {
    fn new() -> Self {
        Self { gate: Gate::default(), rng: fastrand::Rng::with_seed(5), settings: GateSettings::default() }
    }

    /// Opened at second 0 by ten overloads; a straggler is still on its way.
    fn open() -> (Self, PermitId) {
        let mut bench = Self::new();
        let straggler = bench.granted(0);
        bench.settings.breaker.consecutive_seconds = 0;
        for _ in 0..5 {
            let permit = bench.granted(0);
            bench.fails(Some(permit), Overloaded, 0);
        }
        bench.settings.breaker.consecutive_seconds = 20;
        assert_eq!(bench.status(0).state, State::Open);
        (bench, straggler)
    }

    fn half_open() -> (Self, PermitId) {
        let (mut bench, _) = Self::open();
        let Decision::Probe(probe) = bench.asks(110) else { panic!("no probe") };
        (bench, probe)
    }

    fn asks(&mut self, seconds: u64) -> Decision {
        self.gate.permit(Asking::default(), at(seconds), &self.settings)
    }

    fn granted(&mut self, seconds: u64) -> PermitId {
        self.asks(seconds).permit().expect("granted")
    }

    fn held(&mut self, seconds: u64) -> (HoldReason, u64) {
        match self.asks(seconds) {
            Decision::NotBefore(Held { after, reason, .. }) => (reason, after.as_secs()),
            decision => panic!("not held: {decision:?}"),
        }
    }

    fn reports(&mut self, permit: Option<PermitId>, report: Report, seconds: u64) -> Verdict {
        self.gate.report(&ended(permit, report), at(seconds), &mut self.rng, &self.settings)
    }

    fn fails(&mut self, permit: Option<PermitId>, cause: Cause, seconds: u64) -> Verdict {
        self.reports(permit, Report::Failure { cause, after_content: false, retry_after: None }, seconds)
    }

    fn asked_to_wait(&mut self, permit: PermitId, cause: Cause, wait: u64, seconds: u64) -> Verdict {
        let retry_after = Some(Duration::from_secs(wait));
        self.reports(Some(permit), Report::Failure { cause, after_content: false, retry_after }, seconds)
    }

    fn view(&mut self, seconds: u64) -> View {
        self.gate.view(Priority::Medium, at(seconds), &self.settings)
    }

    fn outlook(&mut self, seconds: u64) -> Outlook {
        self.view(seconds).outlook
    }

    fn status(&self, seconds: u64) -> GateStatus {
        self.gate.status(at(seconds), &self.settings)
    }
}

#[test]
fn what_costs_an_attempt_while_closed() {
    for (cause, after_content, retry_after, costs) in [
        (Overloaded, false, None, true),
        (Overloaded, false, Some(3), true),
        (Overloaded, true, None, true),
        (RateLimited, false, None, true),
        (RateLimited, false, Some(0), true),
        (RateLimited, false, Some(3), false),
        (RateLimited, true, Some(3), true),
        (ServerError, false, Some(3), true),
        (Cause::HeadersTimeout, false, None, true),
        (Cause::Truncated, true, None, true),
        (InvalidRequest, false, None, false),
        (SpendCap, false, None, false),
    ] {
        let mut bench = Bench::new();
        let permit = bench.granted(0);
        let retry_after = retry_after.map(Duration::from_secs);
        let verdict = bench.reports(Some(permit), Report::Failure { cause, after_content, retry_after }, 1);
        assert_eq!(verdict.costs_attempt, costs, "{cause:?} {after_content} {retry_after:?}");
        assert_eq!(verdict.wait.is_some(), !matches!(cause.class(), Class::Final | Class::SpendCap));
        assert_eq!((verdict.held, verdict.transition), (None, None));
    }
}

#[test]
fn an_overload_costs_nothing_when_it_opens_the_gate_or_is_a_probes_or_a_stragglers() {
    let mut bench = Bench::new();
    let permits: Vec<_> = (0..6).map(|_| bench.granted(0)).collect();
    for &permit in &permits[..4] {
        assert!(bench.fails(Some(permit), Overloaded, 0).costs_attempt);
    }
    let fifth = bench.fails(Some(permits[5]), Overloaded, 25);
    assert!(fifth.transition.is_none() && fifth.costs_attempt, "one that began before it is undecided");
    let opens = bench.fails(Some(permits[4]), Overloaded, 26);
    assert_eq!(opens.transition.map(|it| it.to), Some(State::Open));
    assert!(!opens.costs_attempt);
    assert_eq!(opens.held.map(|held| held.reason), Some(HoldReason::BreakerOpen));

    let (mut bench, straggler) = Bench::open();
    let verdict = bench.fails(Some(straggler), Overloaded, 1);
    assert!(!verdict.costs_attempt && verdict.transition.is_none());
    assert!(verdict.held.is_some_and(|held| held.after >= Duration::from_secs(35)));

    let (mut bench, probe) = Bench::half_open();
    let verdict = bench.fails(Some(probe), Overloaded, 111);
    assert!(!verdict.costs_attempt && verdict.held.is_some());
    assert_eq!(verdict.transition.map(|it| it.why), Some(Why::ProbeFailed));
    assert!(!bench.fails(Some(probe), Overloaded, 112).costs_attempt, "the second report is a straggler's");
}

#[test]
fn a_failed_probe_that_was_no_overload_costs_an_attempt_and_cannot_keep_the_gate_shut() {
    for (cause, state, costs) in [
        (ServerError, State::Open, true),
        (Cause::IdleTimeout, State::HalfOpen, true),
        (RateLimited, State::HalfOpen, true),
        (InvalidRequest, State::HalfOpen, false),
    ] {
        let (mut bench, probe) = Bench::half_open();
        let verdict = bench.fails(Some(probe), cause, 111);
        assert_eq!((verdict.costs_attempt, bench.status(111).state), (costs, state), "{cause:?}");
        let next = bench.asks(if state == State::Open { 300 } else { 111 });
        assert!(matches!(next, Decision::Probe(_)), "{cause:?}: the next one probes");
    }
    let (mut bench, probe) = Bench::half_open();
    bench.reports(Some(probe), Report::Abandoned, 111);
    assert!(matches!(bench.asks(111), Decision::Probe(_)));
}

#[test]
fn while_the_probe_is_on_its_way_all_others_wait_and_its_content_lets_them_in_slowly() {
    let (mut bench, probe) = Bench::half_open();
    assert_eq!(bench.held(110).0, HoldReason::ProbeInFlight);
    let transition = bench.gate.content(probe, &RateLimits::default(), at(112), &bench.settings);
    assert_eq!(transition.map(|it| it.to), Some(State::Closed));
    assert_eq!(bench.status(112).in_flight_limit, 2);
    bench.granted(112);
    assert_eq!(bench.held(112).0, HoldReason::InFlightLimit);
}

#[test]
fn a_dead_probes_lease_ends_and_another_may_and_a_living_one_renews_it() {
    let (mut bench, dead) = Bench::half_open();
    assert!(bench.gate.renew(dead, at(200), &bench.settings));
    assert_eq!(bench.held(319).0, HoldReason::ProbeInFlight);
    let Decision::Probe(next) = bench.asks(320) else { panic!("no second probe") };
    assert!(!bench.gate.renew(dead, at(321), &bench.settings));
    assert_eq!(
        bench.gate.content(dead, &RateLimits::default(), at(322), &bench.settings),
        None,
        "its success comes too late"
    );
    assert_eq!(bench.fails(Some(dead), Overloaded, 323).transition, None, "and so does its failure");
    assert!(bench.gate.content(next, &RateLimits::default(), at(324), &bench.settings).is_some());
}

#[test]
fn a_report_implies_the_content_that_was_lost() {
    for report in [Report::Success, Report::Failure { cause: Cause::Truncated, after_content: true, retry_after: None }]
    {
        let (mut bench, probe) = Bench::half_open();
        let verdict = bench.reports(Some(probe), report, 111);
        assert_eq!(verdict.transition.map(|it| it.to), Some(State::Closed), "{report:?}");
    }
}

#[test]
fn stragglers_do_not_count_even_after_the_gate_has_closed_again() {
    let (mut bench, probe) = Bench::half_open();
    let before = bench.status(110).window;
    bench.gate.content(probe, &RateLimits::default(), at(111), &bench.settings);
    for _ in 0..30 {
        assert_eq!(bench.fails(Some(PermitId(1)), Overloaded, 112).transition, None);
    }
    assert_eq!(bench.status(112).window, before);
}

#[test]
fn a_call_without_a_permit_is_evidence_while_closed_and_no_other_time() {
    let mut bench = Bench::new();
    for _ in 0..4 {
        bench.fails(None, Overloaded, 0);
    }
    bench.reports(None, Report::Success, 0);
    bench.fails(None, Overloaded, 0);
    assert!(!bench.status(0).degraded, "a success is one, too");
    let trips: Vec<_> = (0..10).filter_map(|_| bench.fails(None, Overloaded, 0).transition).collect();
    assert_eq!(trips.len(), 1);
    bench.reports(None, Report::Success, 1);
    assert_eq!(bench.status(1).state, State::Open);
    assert!(!bench.fails(None, Overloaded, 1).costs_attempt);
    assert!(matches!(bench.asks(110), Decision::Probe(_)));
    bench.reports(None, Report::Success, 111);
    assert_eq!(bench.status(111).state, State::HalfOpen);
}

#[test]
fn closing_forgets_the_outages_counts_and_not_the_429s() {
    let (mut bench, probe) = Bench::half_open();
    let straggler = Some(PermitId(999));
    for round in 0..3 {
        let seconds = 111 + round * 60;
        bench.fails(straggler, RateLimited, seconds);
        bench.fails(straggler, Overloaded, seconds);
        bench.fails(straggler, ServerError, seconds);
        bench.gate.renew(probe, at(seconds), &bench.settings);
    }
    let counts = |bench: &Bench| {
        let buckets = bench.status(240).buckets;
        [buckets.overloaded, buckets.transient, buckets.rate_limited].map(|bucket| bucket.failures)
    };
    assert_eq!(counts(&bench), [4, 3, 3]);
    bench.gate.content(probe, &RateLimits::default(), at(240), &bench.settings);
    assert_eq!(counts(&bench), [0, 0, 2]);
}

#[test]
fn failures_from_before_the_outage_do_not_trip_the_gate_again() {
    let mut bench = Bench::new();
    bench.settings.breaker.open_seconds = 2;
    for _ in 0..10 {
        bench.fails(None, Overloaded, 0);
    }
    let Decision::Probe(probe) = bench.asks(3) else { panic!("no probe") };
    bench.reports(Some(probe), Report::Success, 4);
    for seconds in 5..9 {
        let permit = bench.granted(seconds);
        assert_eq!(bench.fails(Some(permit), Overloaded, seconds).transition, None);
    }
    assert_eq!(bench.status(9).window.failures, 4);
}

#[test]
fn a_retry_after_holds_everyone_and_its_job_for_as_long_as_it_says() {
    let mut bench = Bench::new();
    let permit = bench.granted(0);
    let verdict = bench.asked_to_wait(permit, RateLimited, 7, 0);
    assert!(verdict.wait.is_some_and(|wait| wait.seconds() == 8 && wait.floor == Duration::from_secs(7)));
    assert_eq!(bench.held(0), (HoldReason::RetryAfter, 7));
    assert_eq!(bench.held(6).0, HoldReason::RetryAfter);
    bench.granted(7);
}

#[test]
fn of_two_moments_the_later_counts_and_a_held_job_is_told_no_less_than_it_was_asked() {
    let (mut bench, straggler) = Bench::open();
    let verdict = bench.asked_to_wait(straggler, Overloaded, 200, 1);
    assert_eq!(verdict.held.map(|held| held.reason), Some(HoldReason::Overloaded));
    assert!(verdict.held.is_some_and(|held| held.after > Duration::from_secs(200)));
    assert_eq!(bench.held(150).0, HoldReason::Overloaded, "the cooldown is over, the hold is not");
    assert!(matches!(bench.asks(201), Decision::Probe(_)));

    let (mut bench, straggler) = Bench::open();
    let verdict = bench.asked_to_wait(straggler, Overloaded, 1_000, 1);
    assert!(verdict.held.is_some_and(|held| held.after >= Duration::from_secs(1_000)), "longer than the gate holds");

    let (mut bench, straggler) = Bench::open();
    let left = bench.status(1).next_check_seconds.unwrap();
    bench.asked_to_wait(straggler, Overloaded, 5, 1);
    let (reason, after) = bench.held(1);
    assert!(reason == HoldReason::BreakerOpen && after >= left, "the hold is the shorter one: {reason:?} {after} s");
}

#[test]
fn of_two_reasons_for_the_same_moment_the_upstreams_own_is_told() {
    let mut bench = Bench::new();
    (bench.settings.breaker.open_seconds, bench.settings.breaker.open_jitter_percent) = (50, 0);
    let straggler = bench.granted(0);
    for _ in 0..15 {
        bench.fails(None, Overloaded, 0);
    }
    assert_eq!((bench.status(10).next_check_seconds, bench.held(10).0), (Some(40), HoldReason::BreakerOpen));
    bench.asked_to_wait(straggler, Overloaded, 40, 10);
    assert_eq!(bench.held(10).0, HoldReason::Overloaded);
}

#[test]
fn a_job_whose_overload_opened_the_gate_has_had_its_turn_and_waits_behind_those_who_have_not() {
    let (mut bench, straggler) = Bench::open();
    let tickets = [0, 1].map(|_| match bench.asks(0) {
        Decision::NotBefore(held) => held.ticket,
        decision => panic!("not held: {decision:?}"),
    });
    let asking = Asking { ticket: tickets[0], ..Asking::default() };
    let ended = Ended { asking, ..ended(Some(straggler), OVERLOAD) };
    let verdict = bench.gate.report(&ended, at(1), &mut bench.rng, &bench.settings);
    assert!(verdict.held.unwrap().ticket > tickets[1]);
}

#[test]
fn overloads_before_content_degrade_the_model_and_nothing_else_does() {
    for (cause, after_content, degraded) in [
        (Overloaded, false, true),
        (Overloaded, true, false),
        (RateLimited, false, false),
        (ServerError, false, false),
        (Cause::Truncated, true, false),
    ] {
        let mut bench = Bench::new();
        for _ in 0..5 {
            let permit = bench.granted(0);
            bench.reports(Some(permit), Report::Failure { cause, after_content, retry_after: None }, 0);
        }
        assert_eq!(bench.status(0).degraded, degraded, "{cause:?} {after_content}");
    }
    let mut bench = Bench::new();
    for _ in 0..15 {
        bench.fails(None, Overloaded, 0);
    }
    let Decision::Probe(probe) = bench.asks(110) else { panic!("no probe") };
    bench.gate.content(probe, &RateLimits::default(), at(111), &bench.settings);
    for _ in 0..5 {
        bench.fails(Some(PermitId(999)), Overloaded, 112);
    }
    assert!(!bench.status(112).degraded, "a straggler's are none");
    let (mut bench, straggler) = Bench::open();
    bench.reports(Some(straggler), Report::Success, 1);
    assert!(bench.status(1).degraded, "and neither are its answers the end of it");
}

#[test]
fn a_success_while_closed_takes_one_off_the_counts_and_does_not_clear_them() {
    let mut bench = Bench::new();
    for seconds in [0, 600, 1_200] {
        bench.fails(None, Overloaded, seconds);
    }
    bench.reports(None, Report::Success, 1_300);
    assert_eq!(bench.status(1_300).buckets.overloaded.failures, 2);
}

#[test]
fn an_acceleration_429_ends_the_doubling() {
    for (cause, limit) in [(RateLimited, 15), (Cause::Acceleration, 8)] {
        let mut bench = Bench::new();
        let permits: Vec<_> = (0..8).map(|_| bench.granted(0)).collect();
        bench.fails(Some(permits[7]), cause, 1);
        for &permit in &permits[..7] {
            bench.gate.content(permit, &RateLimits::default(), at(2), &bench.settings);
        }
        assert_eq!(bench.status(2).in_flight_limit, limit, "{cause:?}");
    }
}

#[test]
fn a_job_that_met_the_outage_is_held_for_the_reopening_and_not_for_what_its_bucket_drew() {
    let (mut bench, straggler) = Bench::open();
    let slow = Backoff { base_ms: 1_000_000, cap_ms: 1_000_000, jitter: Jitter::Equal };
    let backoff = BackoffSettings { overloaded: slow, ..BackoffSettings::default() };
    let ended = Ended { backoff, ..ended(Some(straggler), OVERLOAD) };
    let verdict = bench.gate.report(&ended, at(1), &mut bench.rng, &bench.settings);
    assert!(verdict.wait.unwrap().wanted >= Duration::from_secs(500));
    assert!(verdict.held.unwrap().after < Duration::from_secs(100));
}

#[test]
fn a_probes_lease_may_be_longer_than_others() {
    let (mut bench, _) = Bench::open();
    bench.settings.lease_seconds = 30;
    assert!(matches!(bench.asks(110), Decision::Probe(_)));
    for seconds in [111, 150, 229] {
        assert_eq!(bench.held(seconds).0, HoldReason::ProbeInFlight, "at {seconds}");
    }
    assert!(matches!(bench.asks(230), Decision::Probe(_)));
}

#[test]
fn the_time_until_an_answer_counts_the_whole_call() {
    let mut bench = Bench::new();
    let permit = bench.granted(0);
    bench.gate.content(permit, &RateLimits::default(), at(1), &bench.settings);
    bench.reports(Some(permit), Report::Success, 9);
    bench.settings.pace.max_in_flight = Some(1);
    bench.granted(9);
    let Decision::NotBefore(held) = bench.asks(9) else { panic!("not held") };
    assert_eq!(held.eta, Some(Duration::from_secs(18)), "a slot's wait, and a call");
}

#[test]
fn what_an_answer_says_of_the_limits_is_learnt_at_its_content_and_at_its_end_and_every_call_is_counted() {
    let limit = RateLimit { limit: 50, remaining: 20, reset_after: Duration::from_secs(36) };
    let limits = RateLimits { requests: Some(limit), ..RateLimits::default() };
    for at_end in [false, true] {
        let mut bench = Bench::new();
        let permit = bench.granted(0);
        if at_end {
            let ended = Ended { limits, ..ended(Some(permit), Report::Abandoned) };
            bench.gate.report(&ended, at(1), &mut bench.rng, &bench.settings);
        } else {
            bench.gate.content(permit, &limits, at(1), &bench.settings);
        }
        let status = bench.status(1);
        assert_eq!(status.pace.limits.iter().map(|row| row.limit).collect::<Vec<_>>(), [50], "{at_end}");
        assert_eq!(status.hours.by_hour.iter().map(|row| row.calls).sum::<u64>(), 1);
        bench.fails(None, Overloaded, 1);
        let hours = bench.status(1).hours;
        assert_eq!(hours.by_hour.iter().map(|row| row.overloads).sum::<u64>(), 1);
        assert_eq!(hours.last_24_hours.iter().map(|row| (row.cause, row.count)).collect::<Vec<_>>(), [(Overloaded, 1)]);
    }
}

#[test]
fn a_probe_does_not_wait_for_the_rate_and_tries_a_degraded_model() {
    let (mut bench, _) = Bench::open();
    (bench.settings.pace.calls_per_minute, bench.settings.pace.burst) = (Some(1), Some(1));
    bench.settings.degraded.retry_seconds = 86_400;
    let leaves = Asking { may_leave: true, ..Asking::default() };
    assert!(bench.status(60).degraded);
    let Decision::Probe(probe) = bench.gate.permit(leaves, at(60), &bench.settings) else { panic!("no probe") };
    bench.reports(Some(probe), Report::Abandoned, 60);
    assert!(matches!(bench.asks(60), Decision::Probe(_)), "although the minute's call is made");
}

#[test]
fn a_call_that_broke_off_after_its_content_was_answered_all_the_same() {
    let mut bench = Bench::new();
    let permits: Vec<_> = (0..8).map(|_| bench.granted(0)).collect();
    bench.reports(
        Some(permits[0]),
        Report::Failure { cause: Cause::Truncated, after_content: true, retry_after: None },
        1,
    );
    bench.gate.content(permits[7], &RateLimits::default(), at(1), &bench.settings);
    bench.fails(Some(permits[1]), Overloaded, 1);
    assert_eq!(bench.status(1).in_flight_limit, 8, "eight were answered together");
}

#[test]
fn a_spend_cap_fails_its_job_holds_the_others_and_its_try_is_held_again() {
    let mut bench = Bench::new();
    let (meets, in_flight) = (bench.granted(0), bench.granted(0));
    assert_eq!(bench.fails(Some(meets), SpendCap, 0), Verdict::default());
    assert_eq!(bench.held(1), (HoldReason::SpendCap, 120), "an override may end it sooner");
    let also = bench.fails(Some(in_flight), SpendCap, 2);
    assert_eq!(also.held.map(|held| held.reason), Some(HoldReason::SpendCap), "known by then: held, not failed");
    let tries = bench.granted(902);
    assert_eq!(bench.held(902).0, HoldReason::SpendCap, "others wait for the try");
    let again = bench.fails(Some(tries), SpendCap, 903);
    assert!(again.held.is_some_and(|held| held.after >= Duration::from_secs(120)) && !again.costs_attempt);
    let tries = bench.granted(1803);
    bench.gate.content(tries, &RateLimits::default(), at(1804), &bench.settings);
    bench.granted(1804);
}

#[test]
fn permits_of_the_dead_are_free_again_and_the_living_renew_theirs() {
    let mut bench = Bench::new();
    let permits: Vec<_> = (0..8).map(|_| bench.granted(0)).collect();
    assert_eq!(bench.held(0).0, HoldReason::InFlightLimit);
    assert!(bench.gate.renew(permits[0], at(100), &bench.settings));
    assert_eq!(bench.held(119).0, HoldReason::InFlightLimit);
    bench.granted(120);
    assert_eq!(bench.status(120).in_flight, 2);
}

#[test]
fn the_status_speaks_in_durations_and_stable_names() {
    let (bench, _) = Bench::open();
    let status = serde_json::to_value(bench.status(30)).unwrap();
    assert_eq!(status["state"], "open");
    assert_eq!(status["since_seconds"], 30);
    assert!(status["next_check_seconds"].as_u64().is_some_and(|left| (6..=24).contains(&left)));
    assert_eq!(
        status["history"],
        serde_json::json!([{"seconds_ago": 30, "from": "closed", "to": "open", "why": "failures_over_time"}])
    );
    assert_eq!(status["buckets"]["overloaded"]["cap_ms"], 120_000);
    assert_eq!(status["in_flight"], 1);
}

#[test]
fn a_call_that_is_waited_for_asks_for_a_permit_only_while_there_may_be_too_little_room() {
    let mut bench = Bench::new();
    assert_eq!(bench.outlook(0), Outlook::Free);
    let permit = bench.granted(0);
    bench.fails(Some(permit), Overloaded, 0);
    assert_eq!(bench.outlook(59), Outlook::Ask, "the limit was cut");
    assert_eq!(bench.outlook(60), Outlook::Free);

    let mut permits = vec![];
    while let Decision::Granted(permit) = bench.asks(100) {
        permits.push(permit);
    }
    assert!(matches!(bench.outlook(100), Outlook::Refused { reason: HoldReason::InFlightLimit, .. }));
    for permit in permits {
        bench.reports(Some(permit), Report::Success, 100);
    }
    assert_eq!(bench.outlook(100), Outlook::Ask, "a job waits for its turn");
}

#[test]
fn a_call_that_is_waited_for_asks_where_one_call_is_let_through_to_see() {
    let mut bench = Bench::new();
    let permit = bench.granted(0);
    bench.fails(Some(permit), SpendCap, 0);
    assert!(matches!(bench.outlook(899), Outlook::Refused { reason: HoldReason::SpendCap, .. }));
    assert_eq!(bench.outlook(900), Outlook::Ask, "the try");
    bench.granted(900);
    assert!(matches!(bench.outlook(900), Outlook::Refused { reason: HoldReason::SpendCap, .. }), "another's");
    let (mut bench, _) = Bench::open();
    assert_eq!(bench.outlook(110), Outlook::Ask, "the probe");
    bench.asks(110);
    assert!(matches!(bench.outlook(110), Outlook::Refused { reason: HoldReason::ProbeInFlight, .. }));
}

#[test]
fn a_degraded_model_is_none_to_a_call_that_is_waited_for_while_an_override_holds_the_gate_closed() {
    let (mut bench, _) = Bench::open();
    assert!(bench.view(1).is_degraded);
    let lasts = Duration::from_secs(600);
    let order = Order { state: Side::Closed, lasts, note: String::new(), author: "ada".into() };
    bench.gate.force(order, at(1), &bench.settings);
    assert!(!bench.view(1).is_degraded);
}

#[test]
fn one_overload_is_enough_to_leave_in_a_configured_hour_in_one_that_was_bad_or_while_the_model_is_degraded() {
    assert!(!Bench::new().view(0).one_is_enough);
    let mut configured = Bench::new();
    configured.settings.peak = Windows::between(22, 23);
    assert!(configured.view(0).one_is_enough, "it is a quarter past ten");
    let (mut degraded, _) = Bench::open();
    assert!(degraded.view(1).one_is_enough);
    let mut learnt = Bench::new();
    for call in 0..60 {
        let permit = learnt.granted(call);
        let report = if call % 10 == 0 { OVERLOAD } else { Report::Success };
        let verdict = learnt.reports(Some(permit), report, call);
        assert!(call < 50 || call % 10 != 0 || verdict.leave, "the verdict says it, too: {call}");
    }
    assert!(learnt.view(60).one_is_enough, "six of sixty in this hour, and it is not degraded");
    assert!(!learnt.view(3_600).one_is_enough, "the next hour is another");
}
