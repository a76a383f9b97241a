//! The synchronous path's rules, driven through its steps: the classifier of A2, row by row.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)] // a test may fail

use std::time::Duration;

use spillway::api::wish::{Handoff, Wish};
use spillway::claude::failure::Failure;
use spillway::config::Config;
use spillway::job::Spec;
use spillway::policy::answer::{Decision, Held, HoldReason, PermitId};
use spillway::policy::cause::Cause;
use spillway::policy::gate::{Outlook, View};
use spillway::policy::ladder::Downgrade;
use spillway::policy::priority::Priority;
use spillway::policy::time::Timestamp;
use spillway::relay::{Refusal, Relay, Step};
use spillway::submission::{self, Incoming};

const PRIMARY: &str = "claude-sonnet-5-5";
const FALLBACK: &str = "claude-haiku-5-5";
const NOW: Timestamp = Timestamp::from_millis(1_793_577_600_000);
const FREE: View = View { outlook: Outlook::Free, is_degraded: false, one_is_enough: false };

fn config() -> Config {
    let vars = |key: &str| match key {
        "PRIMARY_MODEL" => Some(PRIMARY.into()),
        "FALLBACK_MODEL" => Some(FALLBACK.into()),
        _ => None,
    };
    Config::parse(vars).unwrap()
}

fn spec(wish: &Wish, config: &Config) -> Spec {
    let body = format!(r#"{{"model":"{PRIMARY}","max_tokens":9,"messages":[{{"role":"user","content":"x"}}]}}"#);
    let incoming = Incoming { client: "app", body: body.as_bytes(), betas: None, version: None, idempotency_key: None };
    submission::accept_call(incoming, wish, config, 1, NOW).unwrap().unwrap().accepted.record.spec
}

fn kind(kind: &str) -> Wish {
    Wish { kind: Some(kind.into()), ..Wish::default() }
}

fn failure(cause: Cause, retry_after: Option<u64>) -> Failure {
    Failure { retry_after: retry_after.map(Duration::from_secs), ..Failure::transport(cause) }
}

fn refused(reason: HoldReason, after_ms: u64) -> View {
    View { outlook: Outlook::Refused { reason, after_ms }, ..FREE }
}

/// What happens to a call: how each gate that is looked at stands, and how each call ends.
enum Meets {
    View(View),
    Fails(Cause, Option<u64>),
    Decides(Decision),
}

/// What the relay did, in a word or two each.
fn told(step: &Step) -> String {
    match step {
        Step::Look { model } => format!("look {}", name(model)),
        Step::Ask { model, .. } => format!("ask {}", name(model)),
        Step::Call(call) => format!("call {}{}", name(&call.model), if call.is_probe { " as probe" } else { "" }),
        Step::Pause(pause) if *pause >= Duration::from_millis(1_500) && *pause <= Duration::from_millis(2_500) => {
            "pause".into()
        }
        Step::Pause(pause) => format!("pause {} ms", pause.as_millis()),
        Step::HandOver => "hand over".into(),
        Step::PassOn => "pass on".into(),
        Step::Refuse(Refusal { reason, .. }) => format!("refuse {}", reason.name()),
    }
}

fn name(model: &str) -> &str {
    if model == PRIMARY { "primary" } else { "fallback" }
}

/// Everything that is done about a call that meets this, up to its end or to the first thing that is not said.
fn way(wish: &Wish, meets: Vec<Meets>) -> Vec<String> {
    let (config, mut rng) = (config(), fastrand::Rng::with_seed(1));
    let spec = spec(wish, &config);
    let until = NOW + Duration::from_secs(10);
    let (mut relay, mut step) = Relay::start(&spec, wish.handoff, &config, until, NOW);
    let (mut way, mut meets) = (vec![told(&step)], meets.into_iter());
    loop {
        step = match &step {
            Step::Pause(_) => relay.on_pause(NOW),
            Step::HandOver | Step::PassOn | Step::Refuse(_) => return way,
            _ => match meets.next() {
                Some(Meets::View(view)) => relay.on_view(Some(view), NOW),
                Some(Meets::Decides(decision)) => relay.on_decision(Some(decision), NOW),
                Some(Meets::Fails(cause, retry_after)) => relay.on_failure(&failure(cause, retry_after), NOW, &mut rng),
                None => return way,
            },
        };
        way.push(told(&step));
    }
}

use Meets::{Decides, Fails, View as Sees};

const OVERLOAD: Meets = Fails(Cause::Overloaded, None);

fn free() -> Meets {
    Sees(FREE)
}

#[test]
fn a_healthy_call_is_one_look_and_one_call() {
    assert_eq!(way(&Wish::default(), vec![free()]), ["look primary", "call primary"]);
}

#[test]
fn a_gate_that_says_nothing_keeps_nobody_from_calling() {
    let config = config();
    let spec = spec(&Wish::default(), &config);
    let (mut relay, _) = Relay::start(&spec, Handoff::Wait, &config, NOW + Duration::from_secs(9), NOW);
    assert_eq!(told(&relay.on_view(None, NOW)), "call primary");
    assert_eq!(told(&relay.on_decision(None, NOW)), "call primary");
}

#[test]
fn overload_is_tried_once_more_and_then_handed_over() {
    let twice = || vec![free(), OVERLOAD, free(), OVERLOAD];
    let steps = ["look primary", "call primary", "pause", "look primary", "call primary"];
    for (handoff, end) in [(Handoff::Wait, "hand over"), (Handoff::Auto, "hand over"), (Handoff::Never, "pass on")] {
        let wish = Wish { handoff, ..Wish::default() };
        assert_eq!(way(&wish, twice()), [&steps[..], &[end]].concat(), "{handoff:?}");
    }
}

#[test]
fn the_fallback_is_between_them_where_kind_caller_and_priority_allow_it() {
    let meets = || vec![free(), OVERLOAD, free(), OVERLOAD, free(), OVERLOAD];
    let goes = |wish: Wish| way(&wish, meets()).contains(&"call fallback".to_owned());
    assert!(!goes(Wish::default()));
    assert!(goes(kind("tagging")));
    assert!(goes(Wish { fallback: Some(true), ..Wish::default() }), "the caller allows what the kind does not");
    assert!(!goes(Wish { fallback: Some(false), ..kind("tagging") }));
    assert!(!goes(Wish { priority: Priority::High, ..kind("tagging") }));
    assert_eq!(way(&kind("tagging"), meets()).last().unwrap(), "hand over");
}

#[test]
fn where_one_overload_is_enough_the_second_try_is_left_out() {
    let bad_hour = Sees(View { one_is_enough: true, ..FREE });
    let steps = way(&kind("tagging"), vec![bad_hour, OVERLOAD, free()]);
    assert_eq!(steps, ["look primary", "call primary", "look fallback", "call fallback"]);
}

#[test]
fn an_open_gate_means_the_fallback_or_the_queue_and_no_call() {
    let open = || Sees(refused(HoldReason::BreakerOpen, 30_000));
    assert_eq!(way(&Wish::default(), vec![open()]), ["look primary", "hand over"]);
    let to_fallback = way(&kind("tagging"), vec![open(), free()]);
    assert_eq!(to_fallback, ["look primary", "look fallback", "call fallback"]);
    let never = Wish { handoff: Handoff::Never, ..Wish::default() };
    assert_eq!(way(&never, vec![open()]), ["look primary", "refuse breaker_open"]);
}

#[test]
fn a_degraded_model_is_left_by_who_may() {
    let degraded = || Sees(View { is_degraded: true, ..FREE });
    assert_eq!(way(&kind("tagging"), vec![degraded(), free()])[2], "call fallback");
    assert_eq!(way(&Wish::default(), vec![degraded()])[1], "call primary");
}

#[test]
fn only_the_probe_asks_for_a_permit() {
    let probe = || Sees(View { outlook: Outlook::Probe, ..FREE });
    let ask = |decision| way(&Wish::default(), vec![probe(), Decides(decision)]);
    assert_eq!(ask(Decision::Probe(PermitId(1))), ["look primary", "ask primary", "call primary as probe"]);
    assert_eq!(ask(Decision::Granted(PermitId(1))), ["look primary", "ask primary", "call primary"]);
    let held = Held::new(Duration::from_secs(40), HoldReason::ProbeInFlight);
    assert_eq!(ask(Decision::NotBefore(held)), ["look primary", "ask primary", "hand over"]);
}

#[test]
fn a_retry_after_of_two_seconds_is_waited_out_once_and_a_longer_one_is_the_queues() {
    let limited = |seconds| Fails(Cause::RateLimited, seconds);
    assert_eq!(
        way(&Wish::default(), vec![free(), limited(Some(2)), free()])[2..],
        ["pause", "look primary", "call primary"]
    );
    assert_eq!(way(&Wish::default(), vec![free(), limited(Some(3))])[2..], ["hand over"]);
    assert_eq!(way(&Wish::default(), vec![free(), limited(None)])[2..], ["hand over"]);
    let twice = way(&Wish::default(), vec![free(), limited(Some(1)), free(), limited(Some(1))]);
    assert_eq!(twice[2..], ["pause 1000 ms", "look primary", "call primary", "hand over"]);
    let never = Wish { handoff: Handoff::Never, ..Wish::default() };
    assert_eq!(way(&never, vec![free(), limited(Some(3))])[2..], ["pass on"]);
}

#[test]
fn a_rate_limit_never_causes_a_fallback() {
    let steps = way(&kind("tagging"), vec![free(), Fails(Cause::RateLimited, Some(60))]);
    assert_eq!(steps, ["look primary", "call primary", "hand over"]);
    let paced = |ms| way(&kind("tagging"), vec![Sees(refused(HoldReason::Pacing, ms))]);
    assert_eq!(paced(60_000), ["look primary", "hand over"]);
    assert_eq!(paced(1_200), ["look primary", "pause 1200 ms", "look primary"]);
    let held = |ms| way(&kind("tagging"), vec![Sees(refused(HoldReason::RetryAfter, ms))]);
    assert_eq!(held(60_000), ["look primary", "hand over"]);
}

#[test]
fn what_no_retry_helps_is_passed_on_as_it_came() {
    for cause in [Cause::InvalidRequest, Cause::AuthenticationFailed, Cause::NotFound, Cause::SpendCap] {
        let steps = way(&kind("tagging"), vec![free(), Fails(cause, None)]);
        assert_eq!(steps, ["look primary", "call primary", "pass on"], "{cause:?}");
    }
}

#[test]
fn a_fallback_that_refuses_the_request_sends_it_back_to_the_primary() {
    let open = Sees(refused(HoldReason::BreakerOpen, 30_000));
    let steps = way(&kind("tagging"), vec![open, free(), Fails(Cause::InvalidRequest, None), free()]);
    assert_eq!(steps[2..], ["call fallback", "look primary", "call primary"]);
}

#[test]
fn a_transient_failure_is_tried_once_more_and_then_handed_over() {
    for cause in [Cause::ServerError, Cause::ConnectionFailed, Cause::HeadersTimeout, Cause::Truncated] {
        let steps = way(&kind("tagging"), vec![free(), Fails(cause, None), free(), Fails(cause, None)]);
        assert_eq!(steps[2..], ["pause", "look primary", "call primary", "hand over"], "{cause:?}");
    }
}

#[test]
fn nobody_pauses_beyond_the_callers_patience() {
    let (config, mut rng) = (config(), fastrand::Rng::with_seed(1));
    let spec = spec(&Wish::default(), &config);
    for (patience_ms, end) in [(1_400, "hand over"), (2_600, "pause")] {
        let until = NOW + Duration::from_millis(patience_ms);
        let (mut relay, _) = Relay::start(&spec, Handoff::Wait, &config, until, NOW);
        relay.on_view(Some(FREE), NOW);
        let step = relay.on_failure(&failure(Cause::Overloaded, None), NOW, &mut rng);
        assert_eq!(told(&step), end, "{patience_ms} ms");
    }
}

#[test]
fn it_counts_its_calls_and_says_why_another_model_answers() {
    let (config, mut rng) = (config(), fastrand::Rng::with_seed(1));
    let spec = spec(&kind("tagging"), &config);
    let (mut relay, _) = Relay::start(&spec, Handoff::Wait, &config, NOW + Duration::from_secs(10), NOW);
    relay.on_view(Some(FREE), NOW);
    assert_eq!((relay.calls(), relay.has_retried(), relay.downgrade()), (1, false, None));
    relay.on_failure(&failure(Cause::Overloaded, None), NOW, &mut rng);
    relay.on_pause(NOW);
    relay.on_view(Some(FREE), NOW);
    relay.on_failure(&failure(Cause::Overloaded, None), NOW, &mut rng);
    relay.on_view(Some(FREE), NOW);
    assert_eq!((relay.calls(), relay.has_retried(), relay.downgrade()), (3, true, Some(Downgrade::Overloaded)));
}
