//! What a delivery of a paused priority does.

use std::time::Duration;

use spillway::config::Policy;
use spillway::delivery::{Delivery, Step};
use spillway::job::{Claim, Ending, FailReason, Hold, Settlement, State, Then};
use spillway::policy::answer::HoldReason;
use spillway::policy::priority::Priority;
use spillway::policy::slots::Ticket;
use spillway::policy::switches::{Name, Order, Switches};
use spillway::policy::time::Timestamp;

use super::bench::{T0, claimed, config, job};

const DAY: u64 = 86_400;
/// No hour is better than another.
const ALWAYS_QUIET: &str = r#"{"hours":{"peak_utc":"","off_peak_utc":"0-24"}}"#;

fn after(seconds: u64) -> Timestamp {
    T0 + Duration::from_secs(seconds)
}

/// A pause of these jobs from T0 on.
fn paused(priority: Priority, lasts: u64) -> Switches {
    let order = Order { since: T0, until: after(lasts), note: "Why.".into(), author: "ada".into() };
    let mut switches = Switches::default();
    let name = Name::Pause(priority);
    let switch = switches.set(name, Some(order), T0);
    switches.learn(name, Some(switch), T0);
    switches
}

fn then(step: Step) -> Then {
    match step {
        Step::Settle(Settlement { then, failed_calls }) if failed_calls.is_empty() => then,
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_holds_its_job_before_it_asks_any_gate_and_only_if_it_is_of_that_priority() {
    let config = config(ALWAYS_QUIET);
    for priority in Priority::ALL {
        let mut claimed = claimed(DAY);
        claimed.priority = priority;
        for other in Priority::ALL {
            let mut rng = fastrand::Rng::with_seed(1);
            let (_, step) = Delivery::start(&claimed, &config, &paused(other, 600), T0, after(60), &mut rng);
            let asks = matches!(step, Step::AskGate { .. });
            assert_eq!(asks, other != priority, "{priority:?} while {other:?} is paused");
            if !asks {
                let Then::Hold(Hold { reason, wait_ms, ticket, eta_ms, slow }) = then(step) else { panic!() };
                assert_eq!((reason, ticket, eta_ms, slow), (HoldReason::Paused, None, None, false));
                assert!((15_000..=19_000).contains(&wait_ms), "{wait_ms}");
            }
        }
    }
}

#[test]
fn a_pause_that_is_over_holds_nobody() {
    let (mut claimed, config) = (claimed(DAY), config(ALWAYS_QUIET));
    claimed.priority = Priority::Low;
    let switches = paused(Priority::Low, 600);
    let (_, step) = Delivery::start(&claimed, &config, &switches, T0, after(600), &mut fastrand::Rng::with_seed(1));
    assert!(matches!(step, Step::AskGate { .. }), "{step:?}");
}

#[test]
fn a_place_in_an_order_is_kept() {
    let (mut claimed, config) = (claimed(DAY), config(ALWAYS_QUIET));
    claimed.ticket = Some(Ticket(7));
    let switches = paused(claimed.priority, 600);
    let (_, step) = Delivery::start(&claimed, &config, &switches, T0, T0, &mut fastrand::Rng::with_seed(1));
    let Then::Hold(hold) = then(step) else { panic!() };
    assert_eq!(hold.ticket, Some(Ticket(7)));
}

/// A job's whole way through a pause that lasts longer than it may: no attempt, no call, and an end that says why.
#[test]
fn deadlines_go_on_and_a_job_that_misses_its_own_says_that_it_was_paused() {
    let (config, timing) = (config(ALWAYS_QUIET), Policy::default().timing());
    let mut record = job(600, None);
    let switches = paused(record.spec.priority, DAY);
    let (mut now, mut turn, mut rng) = (T0, 1, fastrand::Rng::with_seed(1));
    while !record.state.is_terminal() {
        let Claim::Claimed(claimed) = record.claim(turn, now, &timing) else { panic!("at {now:?}") };
        let (_, step) = Delivery::start(&claimed, &config, &switches, now, now, &mut rng);
        let then = then(step);
        let wait_ms = if let Then::Hold(hold) = then { hold.wait_ms } else { 0 };
        record.settle(claimed.token, Settlement { failed_calls: Vec::new(), then }, now);
        (now, turn) = (now + Duration::from_millis(wait_ms), turn + 1);
    }
    let State::Failed { reason, message, .. } = &record.state else { panic!("{:?}", record.state) };
    assert_eq!(*reason, FailReason::DeadlineExceeded);
    assert!(message.ends_with("the operator has paused the jobs of its priority"), "{message}");
    assert_eq!((record.attempts, record.calls), (0, 0));
    assert!(now >= after(590) && now <= after(600), "as late as a call could still have been made");
    assert!(turn < 16, "{turn} deliveries");
}

#[test]
fn a_job_whose_calls_are_used_up_is_not_held_for_a_pause() {
    let (mut claimed, config) = (claimed(DAY), config(ALWAYS_QUIET));
    claimed.counted_calls = 1_000;
    let switches = paused(claimed.priority, 600);
    let (_, step) = Delivery::start(&claimed, &config, &switches, T0, T0, &mut fastrand::Rng::with_seed(1));
    assert!(matches!(then(step), Then::Stall { .. } | Then::Defer { .. } | Then::End(Ending::Failed { .. })));
}
