//! How long a job waits, and that no wait goes past its deadline.

use std::time::Duration;

use proptest::prelude::*;
use spillway::delivery::{Delivery, Step};
use spillway::job::{Ending, Hold, Retry, Settlement, State, Then};
use spillway::policy::answer::{Decision, Held, HoldReason, Verdict};
use spillway::policy::backoff::{BucketName, Wait};
use spillway::policy::cause::Cause;
use spillway::policy::presets::Preset;
use spillway::policy::switches::Switches;

use super::bench::{Outcome, T0, asks, bench, claimed, config, fails, failure, first_decision, job, wait_of};

/// The settlement of a delivery whose one call failed with `verdict`, `deadline_seconds` before its job's deadline.
fn settled(deadline_seconds: u64, cause: Cause, verdict: &Verdict) -> Settlement {
    let (claimed, config, mut rng) = (claimed(deadline_seconds), config("{}"), fastrand::Rng::with_seed(1));
    let (mut delivery, _) = Delivery::start(&claimed, &config, &Switches::default(), T0, T0, &mut rng);
    delivery.on_decision(first_decision(), T0, &mut rng);
    match delivery.on_failure(&failure(cause, None), verdict, T0, &mut rng) {
        Step::Settle(settlement) => settlement,
        step => panic!("{step:?}"),
    }
}

fn verdict(wanted_ms: u64, floor_ms: u64) -> Verdict {
    let [wanted, floor] = [wanted_ms, floor_ms].map(Duration::from_millis);
    let wait = Wait { bucket: BucketName::Overloaded, failures: 1, computed: wanted, floor, wanted };
    Verdict { wait: Some(wait), costs_attempt: true, ..Verdict::default() }
}

#[test]
fn a_wait_is_whole_seconds_at_least_one_and_ends_before_the_deadline() {
    for (deadline_seconds, wanted_ms, floor_ms, wait_ms) in [
        (86_400, 0, 0, Some(1_000)),
        (86_400, 1, 0, Some(1_000)),
        (86_400, 1_001, 0, Some(2_000)),
        (86_400, 20_500, 20_000, Some(21_000)),
        // A computed wait is cut, so that one more call is left.
        (60, 120_000, 0, Some(55_000)),
        (60, 55_400, 55_000, Some(55_000)),
        // What the upstream asked for is not: the job fails now instead of after a wait in vain.
        (60, 56_000, 55_001, None),
        (86_400, 86_401_500, 86_401_000, None),
        // Hardly any time is left.
        (6, 120_000, 0, Some(1_000)),
        (5, 1_000, 0, None),
    ] {
        let then = settled(deadline_seconds, Cause::ServerError, &verdict(wanted_ms, floor_ms)).then;
        let (label, retry) =
            ((deadline_seconds, wanted_ms, floor_ms), |wait_ms| Then::Retry(Retry::new(Cause::ServerError, wait_ms)));
        match wait_ms {
            Some(wait_ms) => assert_eq!(then, retry(wait_ms), "{label:?}"),
            None => assert_eq!(reason(&then), Some("deadline_exceeded"), "{label:?}"),
        }
    }
}

#[test]
fn a_retry_is_told_whether_jobs_wait_long_these_minutes() {
    for slow in [false, true] {
        let then = settled(86_400, Cause::ServerError, &Verdict { slow, ..verdict(1_000, 0) }).then;
        assert_eq!(then, Then::Retry(Retry { slow, ..Retry::new(Cause::ServerError, 1_000) }));
    }
}

#[test]
fn what_a_call_took_is_no_longer_left_to_wait() {
    let (claimed, config, mut rng) = (claimed(60), config("{}"), fastrand::Rng::with_seed(1));
    let (mut delivery, _) = Delivery::start(&claimed, &config, &Switches::default(), T0, T0, &mut rng);
    delivery.on_decision(first_decision(), T0, &mut rng);
    let later = T0 + Duration::from_secs(40);
    let server_error = failure(Cause::ServerError, None);
    let step = delivery.on_failure(&server_error, &verdict(120_000, 0), later, &mut rng);
    let Step::Settle(settlement) = step else { panic!("{step:?}") };
    assert_eq!(settlement.then, Then::Retry(Retry::new(Cause::ServerError, 15_000)));
}

fn reason(then: &Then) -> Option<&'static str> {
    match then {
        Then::End(spillway::job::Ending::Failed { reason, .. }) => Some(reason.name()),
        _ => None,
    }
}

#[test]
fn a_retry_after_beyond_the_deadline_fails_the_job_now_and_says_so() {
    let mut record = job(86_400, None);
    bench("{}").deliver(&mut record, asks(Cause::Overloaded, 86_401));
    let State::Failed { reason, cause, message, .. } = &record.state else { panic!("{:?}", record.state) };
    assert_eq!((reason.name(), *cause), ("deadline_exceeded", Some(Cause::Overloaded)));
    assert_eq!(*message, "the next call could only come after the job's deadline: The upstream says: overloaded.");
    assert_eq!((record.calls, record.finished_at), (1, Some(T0)));
    assert_eq!(record.history.len(), 1, "the call is not forgotten");
}

#[test]
fn a_retry_after_of_more_than_a_day_is_obeyed_when_the_deadline_allows() {
    let mut record = job(604_800, None);
    let delivered = bench("{}").deliver(&mut record, asks(Cause::RateLimited, 86_401));
    assert!((86_402_000..=86_407_000).contains(&delivered.wait_ms().unwrap()), "{delivered:?}");
}

#[test]
fn the_history_keeps_the_computed_wait_and_later_the_real_one() {
    let (mut bench, mut record) = (bench("{}"), job(86_400, None));
    let delivered = bench.deliver(&mut record, asks(Cause::RateLimited, 20));
    let computed = record.history[0].computed_wait_ms.unwrap();
    assert!((20_001..=22_000).contains(&computed), "{computed}");
    assert_eq!(delivered.wait_ms(), Some(computed.div_ceil(1_000) * 1_000));
    bench.now = bench.now + Duration::from_secs(30);
    bench.deliver(&mut record, Outcome::Answer);
    assert_eq!(record.history[0].real_wait_ms, Some(30_000), "what passed, not what was planned");
}

#[test]
fn each_failed_call_has_its_own_moment_and_the_wait_that_came_after_it() {
    let (mut bench, mut record) = (bench("{}"), job(86_400, None));
    let began_at = bench.now;
    let delivered = bench.deliver(&mut record, fails(Cause::Overloaded));
    let [first, second] = &record.history[..] else { panic!("a pass of a job that may not leave is two calls") };
    let pause = first.computed_wait_ms.unwrap();
    assert!((1_500..=2_500).contains(&pause), "the pause of the ladder, not the bucket's wait: {pause}");
    assert_eq!(first.real_wait_ms, Some(pause));
    assert_eq!((first.at, second.at), (began_at, began_at + Duration::from_millis(pause)));
    assert_eq!(second.real_wait_ms, None, "it is still waited");
    assert_eq!(delivered.wait_ms(), second.computed_wait_ms.map(|ms| ms.div_ceil(1_000).max(1) * 1_000));
}

#[test]
fn each_preset_waits_by_its_own_base_and_cap() {
    // Of overloads it is the second of a pass that is waited for in the queue.
    for (preset, rate_limited_ms, overloaded_ms) in [
        (None, 2_000, 8_000),
        (Some(Preset::Realtime), 1_000, 4_000),
        (Some(Preset::Batch), 2_000, 8_000),
        (Some(Preset::Offline), 4_000, 20_000),
    ] {
        let mut longest = (0, 0);
        for seed in 0..200 {
            let first_wait = |cause| {
                let (mut bench, mut record) = (bench("{}"), job(86_400, preset));
                bench.rng = fastrand::Rng::with_seed(seed);
                bench.deliver(&mut record, fails(cause));
                record.history.last().unwrap().computed_wait_ms.unwrap()
            };
            let (rate_limited, overloaded) = (first_wait(Cause::RateLimited), first_wait(Cause::Overloaded));
            assert!(rate_limited >= rate_limited_ms / 2, "equal jitter: {rate_limited}");
            longest = (longest.0.max(rate_limited), longest.1.max(overloaded));
        }
        let near = |longest: u64, cap: u64| longest <= cap && longest > cap * 9 / 10;
        assert!(near(longest.0, rate_limited_ms) && near(longest.1, overloaded_ms), "{preset:?}: {longest:?}");
    }
}

#[test]
fn a_hold_is_cut_to_the_deadline_too_and_fails_when_nothing_is_left() {
    let hold = |deadline_seconds, seconds| {
        let (claimed, config, mut rng) = (claimed(deadline_seconds), config("{}"), fastrand::Rng::with_seed(1));
        let (mut delivery, _) = Delivery::start(&claimed, &config, &Switches::default(), T0, T0, &mut rng);
        let held = Held::new(Duration::from_secs(seconds), HoldReason::BreakerOpen);
        delivery.on_decision(Decision::NotBefore(held), T0, &mut rng)
    };
    let held = |wait_ms| {
        let then = Then::Hold(Hold::new(HoldReason::BreakerOpen, wait_ms));
        Step::Settle(Settlement { failed_calls: Vec::new(), then })
    };
    assert_eq!(hold(86_400, 90), held(90_000));
    assert_eq!(hold(60, 90), held(55_000));
    assert_eq!(hold(60, 0), held(1_000));
    let Step::Settle(settlement) = hold(5, 90) else { panic!("nothing to call with") };
    assert_eq!(reason(&settlement.then), Some("deadline_exceeded"));
    let Then::End(Ending::Failed { message, .. }) = settlement.then else { panic!("it has failed") };
    let says = "the job's deadline leaves no time for another call, and Claude is overloaded or out of reach";
    assert_eq!(message, says);
}

#[test]
fn a_call_that_ends_in_a_hold_beyond_the_deadline_is_not_forgotten() {
    let held = Held::new(Duration::from_secs(900), HoldReason::SpendCap);
    let verdict = Verdict { held: Some(held), ..Verdict::default() };
    let settlement = settled(5, Cause::SpendCap, &verdict);
    assert_eq!(reason(&settlement.then), Some("deadline_exceeded"));
    assert_eq!(settlement.failed_calls[0].cause, Cause::SpendCap);
}

#[test]
fn a_report_that_the_gate_did_not_take_waits_as_a_first_failure_and_costs_an_attempt() {
    use spillway::policy::answer::Report;
    let (claimed, config) = (claimed(86_400), config("{}"));
    let (delivery, _) =
        Delivery::start(&claimed, &config, &Switches::default(), T0, T0, &mut fastrand::Rng::with_seed(1));
    for (cause, retry_after, costs) in [
        (Cause::Overloaded, None, true),
        (Cause::ServerError, None, true),
        (Cause::RateLimited, Some(Duration::from_secs(9)), true),
        (Cause::InvalidRequest, None, false),
        (Cause::SpendCap, None, false),
    ] {
        let report = Report::Failure { cause, after_content: false, retry_after };
        let verdict = delivery.verdict_without_gate(report, T0, &mut fastrand::Rng::with_seed(3));
        assert_eq!((verdict.costs_attempt, verdict.wait.is_some()), (costs, costs), "{cause:?}");
        let expected = wait_of(&failure(cause, retry_after), 3).wait;
        assert_eq!(verdict.wait, expected, "{cause:?}");
    }
    let success = delivery.verdict_without_gate(Report::Success, T0, &mut fastrand::Rng::with_seed(3));
    assert_eq!(success, Verdict::default());
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    let causes = prop::sample::select(vec![
        Cause::Overloaded,
        Cause::RateLimited,
        Cause::ServerError,
        Cause::HeadersTimeout,
        Cause::Truncated,
        Cause::SpendCap,
    ]);
    let asked = prop::option::weighted(0.3, prop_oneof![0..100_u64, 0..200_000_u64]);
    (causes, asked, any::<bool>()).prop_map(|(cause, asked, after_content)| Outcome::Fails {
        failure: failure(cause, asked.map(Duration::from_secs)),
        after_content,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_upstream_does_a_job_ends_within_its_attempts_its_calls_and_its_deadline(
        deadline in 30..604_800_u64, seed in any::<u64>(), outcomes in prop::collection::vec(outcomes(), 1..12),
    ) {
        let (mut bench, mut record) = (bench("{}"), job(deadline, None));
        bench.rng = fastrand::Rng::with_seed(seed);
        let mut upstream = outcomes.into_iter().cycle();
        // The longest deadline, and no call but a probe after each of the shortest cooldowns: 604,800 s by 36 s.
        let deliveries = bench.run(&mut record, 16_800, || upstream.next().unwrap());
        prop_assert!(record.state.is_terminal(), "{:?}", record);
        prop_assert!(record.attempts <= 5 && record.calls - record.uncounted_calls <= 20, "{:?}", record);
        prop_assert!(record.finished_at.unwrap() <= record.deadline_at, "{:?}", record);
        for delivered in &deliveries {
            if let Some(wait_ms) = delivered.wait_ms() {
                prop_assert!(wait_ms >= 1_000 && wait_ms % 1_000 == 0, "{:?}", delivered);
            }
        }
    }
}
