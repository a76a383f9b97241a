//! What a delivery decides, rule by rule, from design "Attempts, calls, waits": put together with the real gate and the
//! real record, since none of the three could keep these rules alone.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may panic")]

mod bench;
mod limits;
mod passes;
mod pauses;
mod waits;

use bench::{Bench, Outcome, asks, bench, breaks_off, fails, job};
use spillway::job::{Ending, FailReason, Hold, State, Then};
use spillway::policy::answer::{HoldReason, Report};
use spillway::policy::cause::Cause;
use spillway::policy::presets::Preset;
use spillway::policy::transition;

/// A breaker that trips at the first failure and reopens after ten seconds.
const TOUCHY: &str = r#"{"breaker":{"consecutive_failures":1,"consecutive_seconds":0,"consecutive_hard":1,"open_seconds":10,"open_jitter_percent":0}}"#;

#[test]
fn what_costs_an_attempt_while_the_gate_is_closed() {
    for (outcome, costs_attempt) in [
        // The job had its chance.
        (fails(Cause::Overloaded), true),
        (breaks_off(Cause::Overloaded), true),
        (fails(Cause::ServerError), true),
        (fails(Cause::UpstreamTimeout), true),
        (fails(Cause::Conflict), true),
        (fails(Cause::ConnectionFailed), true),
        (fails(Cause::HeadersTimeout), true),
        (fails(Cause::MalformedAnswer), true),
        (breaks_off(Cause::IdleTimeout), true),
        (breaks_off(Cause::TotalTimeout), true),
        (breaks_off(Cause::Truncated), true),
        // A 429 that says how long is pacing; one that does not is a failure.
        (asks(Cause::RateLimited, 7), false),
        (asks(Cause::Acceleration, 7), false),
        (fails(Cause::RateLimited), true),
        (asks(Cause::RateLimited, 0), true),
        // Retry-After on an overload sets the wait; the attempt is used all the same.
        (asks(Cause::Overloaded, 7), true),
    ] {
        let mut record = job(86_400, None);
        let delivered = bench("{}").deliver(&mut record, outcome.clone());
        assert_eq!((delivered.costs_attempt(), delivered.costs_call()), (costs_attempt, true), "{outcome:?}");
        // An overload before content is tried once more; together they are one attempt.
        assert_eq!(
            (record.attempts, record.calls as usize),
            (u32::from(costs_attempt), delivered.calls),
            "{outcome:?}"
        );
        assert!(matches!(record.state, State::Retrying { .. }), "{outcome:?}");
    }
}

#[test]
fn the_overload_that_opens_the_gate_costs_no_attempt() {
    let mut record = job(86_400, None);
    let mut bench = bench(TOUCHY);
    let delivered = bench.deliver(&mut record, fails(Cause::Overloaded));
    assert_eq!(delivered.call.unwrap().1.transition.unwrap().to, transition::State::Open);
    assert_eq!((record.attempts, record.calls), (0, 1));
}

#[test]
fn an_overload_of_a_straggler_costs_no_attempt() {
    let mut record = job(86_400, None);
    bench(TOUCHY).deliver_with(&mut record, fails(Cause::Overloaded), Bench::trip);
    assert_eq!((record.attempts, record.calls), (0, 1));
}

#[test]
fn a_job_that_ends_while_it_is_held_names_what_its_last_call_met() {
    let (mut bench, mut record) = (bench(TOUCHY), job(30, None));
    bench.deliver(&mut record, fails(Cause::Overloaded));
    bench.now = bench.now + std::time::Duration::from_secs(26);
    bench.trip();
    bench.deliver(&mut record, Outcome::Answer);
    let State::Failed { reason, cause, message, .. } = &record.state else { panic!("{:?}", record.state) };
    assert_eq!((reason.name(), *cause), ("deadline_exceeded", Some(Cause::Overloaded)));
    assert!(message.contains("Claude"), "{message}");
}

#[test]
fn waiting_costs_nothing() {
    let (mut bench, mut record) = (bench(TOUCHY), job(86_400, None));
    bench.trip();
    let delivered = bench.deliver(&mut record, Outcome::Answer);
    assert!(matches!(
        delivered.settlement.then,
        Then::Hold(Hold { reason: HoldReason::BreakerOpen, wait_ms: 10_000..=15_000, .. })
    ));
    assert_eq!((record.attempts, record.calls, record.history.len()), (0, 0, 0));
    assert_eq!(record.state, State::Held { reason: HoldReason::BreakerOpen });
}

#[test]
fn an_overloaded_probe_costs_neither_attempt_nor_call_and_one_that_fails_otherwise_costs_both() {
    for (outcome, costs) in [
        (fails(Cause::Overloaded), false),
        (fails(Cause::ServerError), true),
        (fails(Cause::ConnectionFailed), true),
        (fails(Cause::HeadersTimeout), true),
        (fails(Cause::MalformedAnswer), true),
    ] {
        let (mut bench, mut record) = (bench(TOUCHY), job(86_400, None));
        bench.trip();
        bench.now = bench.now + std::time::Duration::from_secs(10);
        let delivered = bench.deliver(&mut record, outcome.clone());
        assert!(delivered.call.as_ref().unwrap().0.is_probe);
        assert_eq!((delivered.costs_attempt(), delivered.costs_call()), (costs, costs), "{outcome:?}");
        assert_eq!((record.calls, record.uncounted_calls), (1, u32::from(!costs)), "{outcome:?}");
    }
}

#[test]
fn a_poisonous_request_ends_by_its_attempts_and_says_why() {
    for (preset, attempts) in
        [(None, 5), (Some(Preset::Realtime), 5), (Some(Preset::Batch), 8), (Some(Preset::Offline), 10)]
    {
        // Never closed for it: what it does to the gate is not the point here.
        let mut bench =
            bench(r#"{"breaker":{"consecutive_failures":10000,"consecutive_hard":10000,"minimum_calls":10000}}"#);
        let mut record = job(86_400, preset);
        let deliveries = bench.run(&mut record, 100, || fails(Cause::ServerError));
        assert_eq!((record.attempts, record.calls, deliveries.len()), (attempts, attempts, attempts as usize));
        let State::Failed { reason, cause, message, .. } = &record.state else { panic!("{:?}", record.state) };
        assert_eq!((*reason, *cause), (FailReason::AttemptsExhausted, Some(Cause::ServerError)));
        let expected = format!("Claude could not answer within {attempts} calls: The upstream says: server_error.");
        assert_eq!(*message, expected);
    }
}

#[test]
fn a_poisonous_request_ends_by_its_attempts_even_as_the_only_probe() {
    let (mut bench, mut record) = (bench(TOUCHY), job(86_400, None));
    bench.run(&mut record, 100, || fails(Cause::ServerError));
    assert_eq!(record.state.reason(), Some("attempts_exhausted"));
    assert_eq!((record.attempts, record.calls), (5, 5));
}

#[test]
fn calls_are_bounded_by_max_calls_and_at_least_three_for_every_attempt() {
    for (policy, preset, calls) in [
        ("{}", None, 20),
        (r#"{"max_calls":1}"#, None, 15),
        (r#"{"max_calls":7,"max_attempts":2}"#, None, 7),
        (r#"{"max_calls":100}"#, None, 100),
        ("{}", Some(Preset::Batch), 24),
        ("{}", Some(Preset::Offline), 30),
    ] {
        // Paced for ever: no attempt is ever used.
        let mut record = job(604_800, preset);
        let deliveries = bench(policy).run(&mut record, 200, || asks(Cause::RateLimited, 1));
        assert!(deliveries.last().is_some_and(|last| last.call.is_some()), "it ends with its last call, not after it");
        assert!(matches!(record.state, State::Failed { cause: Some(Cause::RateLimited), .. }), "{:?}", record.state);
        assert_eq!((record.state.reason(), record.attempts), (Some("attempts_exhausted"), 0), "{policy} {preset:?}");
        assert_eq!(record.calls, calls, "{policy} {preset:?}");
    }
}

#[test]
fn what_costs_no_attempt_does_not_use_up_the_last_one() {
    let (mut bench, mut record) = (bench(r#"{"max_attempts":2}"#), job(86_400, None));
    bench.run(&mut record, 1, || fails(Cause::ServerError));
    bench.run(&mut record, 3, || asks(Cause::RateLimited, 1));
    assert_eq!((record.attempts, record.calls), (1, 4));
    assert!(!record.state.is_terminal(), "{:?}", record.state);
    bench.run(&mut record, 1, || fails(Cause::ServerError));
    assert_eq!(record.state.reason(), Some("attempts_exhausted"));
}

#[test]
fn overloaded_probes_do_not_count_towards_max_calls() {
    let (mut bench, mut record) = (bench(TOUCHY), job(86_400, None));
    bench.trip();
    let deliveries = bench.run(&mut record, 200, || fails(Cause::Overloaded));
    assert_eq!(deliveries.len(), 200, "still waiting: {:?}", record.state);
    assert!(record.calls > 90, "{} probes", record.calls);
    assert_eq!((record.attempts, record.calls - record.uncounted_calls), (0, 0));
}

#[test]
fn a_call_whose_consumer_died_is_counted_so_that_a_request_that_kills_its_consumer_ends() {
    let (mut bench, mut record) = (bench("{}"), job(604_800, None));
    let timing = bench.config.policy.timing();
    // The index knows it: what rings is the end of each lease.
    record.listed(record.row().version);
    for _ in 0..20 {
        let spillway::job::Claim::Claimed(dead) = record.claim(1, bench.now, &timing) else { panic!("{record:?}") };
        record.begin(dead.token, "m".into(), bench.now, &timing);
        bench.now = record.next_alarm(&timing);
        record.tick(bench.now, &timing);
    }
    let delivered = bench.deliver(&mut record, Outcome::Answer);
    assert!(delivered.call.is_none());
    assert_eq!((record.state.reason(), record.calls), (Some("attempts_exhausted"), 20));
}

#[test]
fn a_refused_request_fails_at_once_with_its_cause_as_the_reason() {
    for (cause, name) in [
        (Cause::InvalidRequest, "invalid_request"),
        (Cause::AuthenticationFailed, "authentication_failed"),
        (Cause::BillingFailed, "billing_failed"),
        (Cause::PermissionDenied, "permission_denied"),
        (Cause::NotFound, "not_found"),
        (Cause::RequestTooLarge, "request_too_large"),
        (Cause::Rejected, "rejected"),
    ] {
        let mut record = job(86_400, None);
        bench("{}").deliver(&mut record, fails(cause));
        let State::Failed { reason, cause: last, error_type, message } = &record.state else { panic!("{record:?}") };
        assert_eq!((reason.name(), *last), (name, Some(cause)));
        assert_eq!(error_type.as_deref(), Some(format!("{name}_error").as_str()));
        assert_eq!(*message, format!("The upstream says: {name}."));
        assert_eq!((record.attempts, record.calls), (0, 1));
    }
}

#[test]
fn a_spend_cap_fails_the_job_that_meets_it_and_holds_the_others() {
    let mut bench = bench(r#"{"spend_cap_retry_seconds":900}"#);
    let (mut first, mut second) = (job(604_800, None), job(604_800, None));
    bench.deliver(&mut first, fails(Cause::SpendCap));
    assert_eq!((first.state.reason(), first.calls), (Some("spend_cap"), 1));

    let held = |record: &spillway::job::Record| record.state == State::Held { reason: HoldReason::SpendCap };
    let delivered = bench.deliver(&mut second, Outcome::Answer);
    assert!(held(&second) && delivered.call.is_none());
    assert_eq!(delivered.wait_ms(), Some(120_000), "an override may end it sooner");

    // The one that tries and is refused again is held again, at the price of a call.
    bench.now = bench.now + std::time::Duration::from_secs(900);
    let delivered = bench.deliver(&mut second, fails(Cause::SpendCap));
    assert!(held(&second) && delivered.call.is_some());
    assert_eq!((second.attempts, second.calls, second.history.len()), (0, 1, 1));

    bench.now = bench.now + std::time::Duration::from_secs(900);
    bench.deliver(&mut second, Outcome::Answer);
    assert_eq!(second.state.name(), "done");
}

#[test]
fn an_answer_ends_the_job_and_says_which_model_gave_it() {
    let mut record = job(86_400, None);
    let delivered = bench("{}").deliver(&mut record, Outcome::Answer);
    assert_eq!(delivered.settlement.then, Then::End(Ending::Done { model_used: "m".into(), downgrade: None }));
    assert_eq!((record.attempts, record.calls), (0, 1));
}

#[test]
fn a_probe_that_is_given_up_frees_its_place_for_the_next() {
    let mut bench = bench(TOUCHY);
    bench.trip();
    bench.now = bench.now + std::time::Duration::from_secs(10);
    let probe = bench.permit();
    bench.report(probe, Report::Abandoned);
    let mut record = job(86_400, None);
    let delivered = bench.deliver(&mut record, Outcome::Answer);
    assert!(delivered.call.unwrap().0.is_probe);
}
