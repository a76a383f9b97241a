//! What a delivery may spend: the budget of its invocation, the limits of its call, calls without a gate.

use std::time::Duration;

use spillway::delivery::{Delivery, GateTrouble, Limits, Step};
use spillway::job::{Claimed, Then};
use spillway::policy::answer::{Decision, HoldReason, PermitId};
use spillway::policy::switches::Switches;
use spillway::policy::time::Timestamp;
use spillway::policy::unguarded::Unguarded;

use super::bench::{T0, claimed, config};

fn after(seconds: u64) -> Timestamp {
    T0 + Duration::from_secs(seconds)
}

/// What a delivery does that starts so many seconds into its invocation, and whose gate answers later on.
fn first_step(claimed: &Claimed, started: u64, answered: u64) -> Step {
    let (config, mut rng) = (config("{}"), fastrand::Rng::with_seed(1));
    let (mut delivery, step) = Delivery::start(claimed, &config, &Switches::default(), T0, after(started), &mut rng);
    match step {
        Step::AskGate { .. } => delivery.on_decision(Decision::Granted(PermitId(1)), after(answered), &mut rng),
        other => other,
    }
}

fn hold_of(step: &Step) -> Option<(HoldReason, u64)> {
    match step {
        Step::Settle(settlement) => match settlement.then {
            Then::Hold(hold) => Some((hold.reason, hold.wait_ms)),
            _ => None,
        },
        _ => None,
    }
}

#[test]
fn a_call_gets_what_is_left_of_the_invocation_and_none_starts_with_less_than_a_minute() {
    let limits = |headers, idle, total| {
        let [headers, idle, total] = [headers, idle, total].map(Duration::from_secs);
        Limits { headers, idle, total }
    };
    for (started, expected) in [
        (0, Some(limits(60, 60, 480))),
        (360, Some(limits(60, 60, 480))),
        (361, Some(limits(60, 60, 479))),
        (700, Some(limits(60, 60, 140))),
        (770, Some(limits(60, 60, 70))),
        (771, None),
        (840, None),
        (100_000, None),
    ] {
        match (first_step(&claimed(86_400), started, started), expected) {
            (Step::Call(call), Some(limits)) => assert_eq!(call.limits, limits, "{started}"),
            (step, None) => assert_eq!(hold_of(&step), Some((HoldReason::DeliveryBudget, 1_000)), "{started}"),
            (step, Some(_)) => panic!("{started}: {step:?}"),
        }
    }
}

#[test]
fn a_call_has_its_minute_even_if_the_gate_takes_its_time() {
    let Step::Call(call) = first_step(&claimed(86_400), 770, 780) else { panic!("there was time enough") };
    assert_eq!(call.limits.total, Duration::from_secs(60));
}

#[test]
fn no_limit_of_a_call_is_longer_than_the_call() {
    let config = config(r#"{"call":{"total_seconds":20,"headers_seconds":60,"idle_seconds":90}}"#);
    let (claimed, mut rng) = (claimed(86_400), fastrand::Rng::with_seed(1));
    let (mut delivery, _) = Delivery::start(&claimed, &config, &Switches::default(), T0, T0, &mut rng);
    let Step::Call(call) = delivery.on_decision(Decision::Granted(PermitId(1)), T0, &mut rng) else {
        panic!("granted")
    };
    let twenty = Duration::from_secs(20);
    assert_eq!(call.limits, Limits { headers: twenty, idle: twenty, total: twenty });
}

#[test]
fn a_job_past_its_deadline_or_its_calls_is_not_called_for() {
    let past = Claimed { remaining_ms: 0, ..claimed(86_400) };
    let spent = Claimed { counted_calls: 20, ..claimed(86_400) };
    for (claimed, reason, words) in [
        (past, "deadline_exceeded", "the job's deadline passed before Claude could answer it"),
        (spent, "attempts_exhausted", "Claude could not answer within 20 calls"),
    ] {
        let Step::Settle(settlement) = first_step(&claimed, 0, 0) else { panic!("called") };
        let Then::End(spillway::job::Ending::Failed { reason: code, message, .. }) = settlement.then else { panic!() };
        assert_eq!((code.name(), message.as_str()), (reason, words));
    }
}

#[test]
fn the_last_call_may_begin_at_any_time_before_the_deadline() {
    let claimed = Claimed { remaining_ms: 1, ..claimed(86_400) };
    assert!(matches!(first_step(&claimed, 0, 0), Step::Call(_)));
}

/// The steps that jobs of one invocation take whose gate has this trouble, each so many seconds after its beginning.
fn troubled(trouble: GateTrouble, moments: &[u64], seed: u64) -> Vec<Step> {
    let (claimed, config) = (claimed(86_400), config("{}"));
    let (mut unguarded, mut rng) = (Unguarded::default(), fastrand::Rng::with_seed(seed));
    let step = |seconds: &u64| {
        let (mut delivery, _) = Delivery::start(&claimed, &config, &Switches::default(), T0, after(*seconds), &mut rng);
        delivery.on_gate_trouble(trouble, &mut unguarded, after(*seconds), &mut rng)
    };
    moments.iter().map(step).collect()
}

#[test]
fn an_overloaded_gate_is_left_alone_for_five_to_fifteen_seconds_and_costs_nothing() {
    let mut waits = Vec::new();
    for seed in 0..100 {
        for step in troubled(GateTrouble::Overloaded, &[0, 1, 20], seed) {
            let Some((HoldReason::GateUnavailable, wait_ms)) = hold_of(&step) else { panic!("{step:?}") };
            let Step::Settle(settlement) = step else { panic!() };
            assert_eq!(settlement.failed_calls, []);
            waits.push(wait_ms);
        }
    }
    // Whole seconds: between five and six is six.
    assert_eq!((waits.iter().min(), waits.iter().max()), (Some(&6_000), Some(&15_000)));
}

#[test]
fn a_silent_gate_lets_one_call_through_every_ten_seconds_for_the_whole_invocation() {
    let steps = troubled(GateTrouble::Silent, &[0, 0, 3, 9, 10, 11, 25], 1);
    let calls: Vec<bool> = steps.iter().map(|step| matches!(step, Step::Call(_))).collect();
    assert_eq!(calls, [true, false, false, false, true, false, true]);
    for step in steps {
        match step {
            Step::Call(call) => {
                assert_eq!((call.permit, call.is_probe, call.permit_name()), (None, false, "unguarded"))
            }
            held => {
                let Some((HoldReason::GateUnavailable, wait_ms)) = hold_of(&held) else { panic!("{held:?}") };
                assert!((1_000..=10_000).contains(&wait_ms), "{wait_ms}");
            }
        }
    }
}
