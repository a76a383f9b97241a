//! A pass over the ladder, with the gates of two models: who is called, in which order, what it costs, and how it ends.

use std::time::Duration;

use spillway::claude::failure::Failure;
use spillway::config::Config;
use spillway::delivery::{Delivery, Step};
use spillway::job::{Claim, Claimed, Ending, Hold, JobId, Record, Retry, Settlement, State, Then};
use spillway::policy::answer::{Asking, Ended, HoldReason, Report};
use spillway::policy::cause::Cause;
use spillway::policy::gate::Gate;
use spillway::policy::ladder::Downgrade;
use spillway::policy::rate_limits::RateLimits;
use spillway::policy::settings::BackoffSettings;
use spillway::policy::switches::Switches;
use spillway::policy::time::Timestamp;

use super::bench::{T0, config, failure};

/// Trips at the first failure, for a minute and a half.
const TOUCHY: &str = r#"{"breaker":{"consecutive_failures":1,"consecutive_seconds":0,"consecutive_hard":1,"open_jitter_percent":0},"hours":{"peak_utc":"","off_peak_utc":"0-24"}}"#;
const CALM: &str = r#"{"hours":{"peak_utc":"","off_peak_utc":"0-24"}}"#;
const PRIMARY: &str = "claude-sonnet-5-5";
const FALLBACK: &str = "claude-haiku-5-5";

struct Pass {
    config: Config,
    primary: Gate,
    fallback: Gate,
    rng: fastrand::Rng,
    now: Timestamp,
    /// The calls that were made, in their order.
    called: Vec<String>,
    /// The short waits within the delivery.
    pauses: Vec<u128>,
    /// Whether failures come in the middle of an answer.
    after_content: bool,
}

fn pass(policy: &str) -> Pass {
    Pass {
        config: config(policy),
        primary: Gate::default(),
        fallback: Gate::default(),
        rng: fastrand::Rng::with_seed(7),
        now: T0,
        called: Vec::new(),
        pauses: Vec::new(),
        after_content: false,
    }
}

/// A job of the spec's members over a tagging job for the primary that asks little.
fn job(members: &str) -> Record {
    let base = r#""kind":"tagging","priority":"medium","model":"claude-sonnet-5-5","deadline_seconds":86400"#;
    let demands = r#""demands":{"max_tokens":100,"input_tokens":10}"#;
    let mut spec: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&format!("{{{base},{demands}}}")).unwrap();
    spec.extend(serde_json::from_str::<serde_json::Map<_, _>>(&format!("{{{members}}}")).unwrap());
    let spec = serde_json::from_value(spec.into()).unwrap();
    Record::new(JobId::random(1), "app".into(), spec, "f".into(), T0)
}

impl Pass {
    fn gate(&mut self, model: &str) -> &mut Gate {
        if model == PRIMARY { &mut self.primary } else { &mut self.fallback }
    }

    /// Somebody else's call to `model` fails.
    fn fails_elsewhere(&mut self, model: &str) {
        let (settings, now, mut rng) = (self.config.policy.gate(), self.now, fastrand::Rng::with_seed(1));
        let gate = self.gate(model);
        let permit = gate.permit(Asking::default(), now, &settings).permit();
        let report = Report::Failure { cause: Cause::Overloaded, after_content: false, retry_after: None };
        let (limits, backoff) = (RateLimits::default(), BackoffSettings::default());
        gate.report(&Ended { permit, asking: Asking::default(), report, limits, backoff }, now, &mut rng, &settings);
    }

    /// Delivers the job once; `upstream` says what becomes of the nth call to a model.
    fn deliver(&mut self, record: &mut Record, upstream: impl Fn(usize, &str) -> Result<(), Failure>) -> Settlement {
        let config = self.config.clone();
        let (timing, settings) = (config.policy.timing(), config.policy.gate());
        let turn = serde_json::to_value(&*record).unwrap()["turn"].as_u64().unwrap();
        let Claim::Claimed(claimed) = record.claim(turn, self.now, &timing) else { panic!("not its turn") };
        let mut rng = self.rng.clone();
        let (mut delivery, mut step) =
            Delivery::start(&claimed, &config, &Switches::default(), self.now, self.now, &mut rng);
        loop {
            let now = self.now;
            step = match step {
                Step::AskGate { model, asking } => {
                    let decision = self.gate(&model).permit(asking, now, &settings);
                    delivery.on_decision(decision, now, &mut rng)
                }
                Step::Pause(pause) => {
                    self.pauses.push(pause.as_millis());
                    self.now = now + pause;
                    delivery.on_pause(self.now, &mut rng)
                }
                Step::Call(call) => {
                    record.begin(claimed.token, call.model.clone(), now, &timing);
                    let outcome = upstream(self.called.len(), &call.model);
                    self.called.push(call.model.clone());
                    let report = match &outcome {
                        Ok(()) => Report::Success,
                        Err(Failure { cause, retry_after, .. }) => {
                            let after_content = self.after_content;
                            Report::Failure { cause: *cause, after_content, retry_after: *retry_after }
                        }
                    };
                    let ended = delivery.ended(&call, report, RateLimits::default());
                    let verdict = self.gate(&call.model).report(&ended, now, &mut rng, &settings);
                    match outcome {
                        Ok(()) => delivery.on_answer(self.now),
                        Err(failure) => delivery.on_failure(&failure, &verdict, now, &mut rng),
                    }
                }
                Step::Settle(settlement) => {
                    self.rng = rng;
                    record.settle(claimed.token, settlement.clone(), now);
                    return settlement;
                }
            };
        }
    }
}

fn overloaded() -> Failure {
    failure(Cause::Overloaded, None)
}

fn down(model: &'static str) -> impl Fn(usize, &str) -> Result<(), Failure> {
    move |_, called| if called == model { Err(overloaded()) } else { Ok(()) }
}

fn ending(then: &Then) -> (String, Option<Downgrade>) {
    match then {
        Then::End(Ending::Done { model_used, downgrade }) => (model_used.clone(), *downgrade),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_primary_is_tried_once_more_after_a_short_pause_and_that_is_no_attempt() {
    let (mut pass, mut record) = (pass(CALM), job(""));
    let settlement = pass.deliver(&mut record, |n, _| if n == 0 { Err(overloaded()) } else { Ok(()) });
    assert_eq!(ending(&settlement.then), (PRIMARY.into(), None));
    assert_eq!(pass.called, [PRIMARY, PRIMARY]);
    assert!((1_500..=2_500).contains(&pass.pauses[0]), "{:?}", pass.pauses);
    assert_eq!((record.attempts, record.calls, record.history.len()), (0, 2, 1));
}

#[test]
fn who_may_have_the_fallback_per_kind_and_priority() {
    let fallback_after = |members: &str| {
        let (mut pass, mut record) = (pass(CALM), job(members));
        pass.deliver(&mut record, down(PRIMARY));
        pass.called.join(" ")
    };
    let leaves = format!("{PRIMARY} {PRIMARY} {FALLBACK}");
    let stays = format!("{PRIMARY} {PRIMARY}");
    for (kind, allowed) in [
        ("default", false),
        ("short_summary", true),
        ("tagging", true),
        ("classification", true),
        ("structured_extract", true),
        ("long_form_writing", false),
        ("code_generation", false),
        ("a_kind_that_is_no_more", false),
    ] {
        assert_eq!(
            fallback_after(&format!(r#""kind":"{kind}""#)),
            if allowed { &leaves } else { &stays }.as_str(),
            "{kind}"
        );
    }
    assert_eq!(fallback_after(r#""priority":"high""#), stays);
    assert_eq!(fallback_after(r#""priority":"low""#), FALLBACK);
    assert_eq!(fallback_after(r#""first_choice_only":true"#), stays);
    assert_eq!(fallback_after(r#""demands":{"max_tokens":10000000,"input_tokens":1}"#), stays, "it does not fit");
    assert_eq!(fallback_after(r#""model":"claude-haiku-5-5""#), FALLBACK, "there is nothing smaller");
}

#[test]
fn a_result_says_which_model_gave_it_and_why_it_was_not_the_one_asked_for() {
    let (mut met, mut record) = (pass(CALM), job(""));
    assert_eq!(ending(&met.deliver(&mut record, down(PRIMARY)).then), (FALLBACK.into(), Some(Downgrade::Overloaded)));
    assert_eq!(record.history.iter().filter(|entry| entry.costs_attempt).count(), 0);

    let (mut shut, mut record) = (pass(TOUCHY), job(""));
    shut.fails_elsewhere(PRIMARY);
    assert_eq!(ending(&shut.deliver(&mut record, down(PRIMARY)).then), (FALLBACK.into(), Some(Downgrade::BreakerOpen)));
    assert_eq!(shut.called, [FALLBACK], "the primary is not even called");

    let (mut low, mut record) = (pass(CALM), job(r#""priority":"low""#));
    assert_eq!(ending(&low.deliver(&mut record, down(PRIMARY)).then), (FALLBACK.into(), Some(Downgrade::LowPriority)));
}

#[test]
fn five_overloads_in_a_row_send_who_may_to_the_fallback_and_one_call_tries_the_primary_after_90_s() {
    let mut pass = pass(CALM);
    for _ in 0..5 {
        pass.fails_elsewhere(PRIMARY);
    }
    let settlement = pass.deliver(&mut job(""), |_, _| Ok(()));
    assert_eq!(ending(&settlement.then), (FALLBACK.into(), Some(Downgrade::Degraded)));
    let settlement = pass.deliver(&mut job(r#""priority":"high""#), down(FALLBACK));
    assert_eq!(ending(&settlement.then), (PRIMARY.into(), None), "who may not leave calls as ever, and mends it");
    for _ in 0..5 {
        pass.fails_elsewhere(PRIMARY);
    }
    pass.now = pass.now + std::time::Duration::from_secs(90);
    let settlement = pass.deliver(&mut job(""), |_, _| Ok(()));
    assert_eq!(ending(&settlement.then), (PRIMARY.into(), None));
}

#[test]
fn in_a_peak_hour_one_overload_is_enough_to_leave() {
    let mut pass = pass(r#"{"hours":{"peak_utc":"0-24"}}"#);
    let settlement = pass.deliver(&mut job(""), down(PRIMARY));
    assert_eq!(ending(&settlement.then), (FALLBACK.into(), Some(Downgrade::Overloaded)));
    assert_eq!((pass.called.len(), pass.pauses.len()), (2, 0));
}

#[test]
fn a_rate_limit_never_leaves_and_is_one_call() {
    let mut pass = pass(CALM);
    let wait = Some(std::time::Duration::from_secs(7));
    let settlement = pass.deliver(&mut job(""), |_, _| Err(failure(Cause::RateLimited, wait)));
    assert!(matches!(settlement.then, Then::Retry(Retry { cause: Cause::RateLimited, .. })));
    let settlement = pass.deliver(&mut job(""), |_, _| Ok(()));
    assert!(matches!(settlement.then, Then::Hold(Hold { reason: HoldReason::RetryAfter, .. })), "{settlement:?}");
    assert_eq!(pass.called, [PRIMARY]);
}

#[test]
fn when_both_are_overloaded_three_calls_are_one_attempt() {
    let (mut pass, mut record) = (pass(CALM), job(""));
    let settlement = pass.deliver(&mut record, |_, _| Err(overloaded()));
    assert!(matches!(settlement.then, Then::Retry(Retry { cause: Cause::Overloaded, .. })));
    assert_eq!((record.attempts, record.calls, record.history.len()), (1, 3, 3));
    let costs: Vec<_> = record.history.iter().map(|entry| entry.costs_attempt).collect();
    assert_eq!(costs, [false, false, true]);
}

#[test]
fn an_overload_in_the_middle_of_an_answer_climbs_like_one_before_it_and_is_an_attempt() {
    let (mut pass, mut record) = (pass(CALM), job(""));
    pass.after_content = true;
    let settlement = pass.deliver(&mut record, down(PRIMARY));
    assert!(matches!(settlement.then, Then::End(Ending::Done { .. })), "{settlement:?}");
    assert_eq!(pass.called, [PRIMARY, PRIMARY, FALLBACK]);
    let settlement = pass.deliver(&mut job(""), |_, _| Err(overloaded()));
    assert!(matches!(settlement.then, Then::Retry(Retry { cause: Cause::Overloaded, .. })));
    assert!(settlement.failed_calls.iter().any(|call| call.costs_attempt));
}

#[test]
fn a_fallback_that_has_refused_a_request_is_not_asked_again() {
    let (mut pass, mut record) = (pass(CALM), job(""));
    let upstream = |_: usize, model: &str| match model {
        FALLBACK => Err(failure(Cause::InvalidRequest, None)),
        _ => Err(overloaded()),
    };
    pass.deliver(&mut record, upstream);
    assert_eq!(pass.called.iter().filter(|model| *model == FALLBACK).count(), 1);
    pass.now = pass.now + Duration::from_secs(3_600);
    pass.deliver(&mut record, upstream);
    assert_eq!(pass.called.iter().filter(|model| *model == FALLBACK).count(), 1);
    assert!(pass.called.len() >= 4, "the primary is");
}

#[test]
fn when_both_gates_are_shut_it_waits_in_the_primarys_order_without_a_call() {
    let (mut pass, mut record) = (pass(TOUCHY), job(""));
    pass.fails_elsewhere(PRIMARY);
    pass.fails_elsewhere(FALLBACK);
    let Then::Hold(hold) = pass.deliver(&mut record, |_, _| Ok(())).then else { panic!("not held") };
    assert_eq!((hold.reason, hold.eta_ms), (HoldReason::BreakerOpen, None), "nobody knows when a shut gate opens");
    assert!((45_000..=48_000).contains(&hold.wait_ms), "right behind the one that shut it: {}", hold.wait_ms);
    assert_eq!(record.ticket, hold.ticket);
    assert!(hold.ticket.is_some() && pass.called.is_empty());
}

#[test]
fn a_request_that_the_fallback_refuses_goes_back_to_the_primary() {
    let (mut pass, mut record) = (pass(TOUCHY), job(r#""priority":"low""#));
    let refuses = |_: usize, model: &str| match model {
        FALLBACK => Err(failure(Cause::InvalidRequest, None)),
        _ => Ok(()),
    };
    assert_eq!(ending(&pass.deliver(&mut record, refuses).then), (PRIMARY.into(), None));
    assert_eq!(pass.called, [FALLBACK, PRIMARY]);
}

#[test]
fn a_low_job_without_a_fallback_waits_for_off_peak_if_that_opens_before_its_deadline() {
    // T0 is 22:13 UTC.
    for (members, hours, held_hours) in [
        (r#""kind":"default","priority":"low""#, "06-12", Some(7..11)),
        (r#""kind":"default","priority":"low""#, "20-23", None),
        (r#""kind":"default","priority":"low""#, "", None),
        (r#""kind":"default","priority":"low","deadline_seconds":3600"#, "06-12", None),
        (r#""kind":"default","priority":"low","first_choice_only":true"#, "06-12", None),
        (r#""kind":"default""#, "06-12", None),
        (r#""kind":"tagging","priority":"low""#, "06-12", None),
    ] {
        let mut pass = pass(&format!(r#"{{"hours":{{"off_peak_utc":"{hours}"}}}}"#));
        let then = pass.deliver(&mut job(members), |_, _| Ok(())).then;
        match (then, held_hours) {
            (Then::Hold(hold), Some(expected)) => {
                assert_eq!(hold.reason, HoldReason::OffPeak);
                assert!(expected.contains(&(hold.wait_ms / 3_600_000)), "{members} {hours}: {}", hold.wait_ms);
            }
            (Then::End(Ending::Done { .. }), None) => {}
            (then, _) => panic!("{members} {hours}: {then:?}"),
        }
    }
}

#[test]
fn after_its_attempts_a_job_asks_waits_or_fails_as_it_or_its_kind_says() {
    let exhausted = |policy: &str, members: &str| {
        let (mut pass, mut record) = (pass(policy), job(members));
        while record.attempts < 5 && !matches!(record.state, State::Stalled { .. }) && !record.state.is_terminal() {
            let then = pass.deliver(&mut record, |_, _| Err(failure(Cause::ServerError, None))).then;
            if !matches!(then, Then::Retry(_) | Then::Hold(_)) {
                return then;
            }
            pass.now = pass.now + std::time::Duration::from_secs(120);
        }
        panic!("{record:?}");
    };
    let hour = 3_600_000;
    // T0 is 22:13 UTC; off-peak from 06 to 12, at least four hours away.
    let peaky = r#"{"breaker":{"consecutive_failures":1000,"consecutive_hard":1000,"minimum_calls":1000}}"#;
    let Then::Stall { answer_ms, resume_ms } = exhausted(peaky, "") else { panic!("not asked") };
    assert_eq!(answer_ms, 900_000);
    assert!((7 * hour..11 * hour).contains(&resume_ms), "{resume_ms}");
    assert!(matches!(exhausted(peaky, r#""when_exhausted":"defer""#), Then::Defer { .. }));
    assert!(matches!(exhausted(peaky, r#""when_exhausted":"fail""#), Then::End(Ending::Failed { .. })));
    let own = r#"{"breaker":{"consecutive_failures":1000,"consecutive_hard":1000,"minimum_calls":1000},"kinds":{"tagging":{"when_exhausted":"defer"}}}"#;
    assert!(matches!(exhausted(own, ""), Then::Defer { .. }));
    let never =
        r#"{"breaker":{"consecutive_failures":1000,"consecutive_hard":1000,"minimum_calls":1000},"max_deferrals":0}"#;
    assert!(matches!(exhausted(never, ""), Then::End(Ending::Failed { .. })));
}

#[test]
fn no_call_begins_after_the_deadline_not_even_the_second_of_a_pass() {
    let mut record = job(r#""deadline_seconds":30"#);
    let mut pass = pass(CALM);
    pass.now = T0 + std::time::Duration::from_secs(29);
    let then = pass.deliver(&mut record, down(PRIMARY)).then;
    assert_eq!(pass.called, [PRIMARY]);
    assert!(matches!(then, Then::End(Ending::Failed { .. })), "{then:?}");
}

#[test]
fn a_kinds_own_models_are_used() {
    let policy = r#"{"kinds":{"tagging":{"fallback":true,"fallback_model":"claude-haiku-4-5"}}}"#;
    let (mut pass, mut record) = (pass(policy), job(""));
    let settlement = pass.deliver(&mut record, down(PRIMARY));
    assert_eq!(ending(&settlement.then).0, "claude-haiku-4-5");
}

/// The claim carries all that the ladder needs.
#[test]
fn a_job_that_was_never_called_for_says_how_long_it_has_dwelled() {
    let mut record = job("");
    let timing = config("{}").policy.timing();
    let later = T0 + std::time::Duration::from_secs(4);
    let Claim::Claimed(Claimed { dwell_ms, .. }) = record.claim(1, later, &timing) else { panic!("its turn") };
    assert_eq!(dwell_ms, Some(4_000));
}
