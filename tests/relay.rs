//! The synchronous path's rules, driven through its steps: the classifier of A2, row by row.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)] // a test may fail

use std::time::Duration;

use spillway::api::error::ErrorKind;
use spillway::api::status::Outcome;
use spillway::api::wish::{Handoff, Wish};
use spillway::claude::failure::Failure;
use spillway::config::Config;
use spillway::job::Spec;
use spillway::policy::answer::{Decision, Held, HoldReason, PermitId};
use spillway::policy::cause::Cause;
use spillway::policy::gate::{Outlook, View};
use spillway::policy::ladder::Downgrade;
use spillway::policy::priority::Priority;
use spillway::policy::switches::{Name, Order, Switches};
use spillway::policy::time::Timestamp;
use spillway::policy::wording::Wording;
use spillway::relay::{self, Next, Refusal, Relay, Says, Step};
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
        Step::Refuse(Refusal { kind, .. }) => format!("refuse {}", kind.status()),
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

/// What has nothing new taken.
fn drained() -> Switches {
    let order = Order { since: NOW, until: NOW + Duration::from_secs(60), note: "Why.".into(), author: "ada".into() };
    let mut switches = Switches::default();
    let switch = switches.set(Name::Drain, Some(order), NOW);
    switches.learn(Name::Drain, Some(switch), NOW);
    switches
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
    assert_eq!(way(&never, vec![open()]), ["look primary", "refuse 529"]);
}

#[test]
fn a_degraded_model_is_left_by_who_may() {
    let degraded = || Sees(View { is_degraded: true, ..FREE });
    assert_eq!(way(&kind("tagging"), vec![degraded(), free()])[2], "call fallback");
    assert_eq!(way(&Wish::default(), vec![degraded()])[1], "call primary");
}

#[test]
fn a_permit_is_asked_for_where_the_gate_wants_that() {
    let asks = || Sees(View { outlook: Outlook::Ask, ..FREE });
    let ask = |decision| way(&Wish::default(), vec![asks(), Decides(decision)]);
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
    let at_once = way(&Wish::default(), vec![free(), limited(Some(0)), free()]);
    assert_eq!(at_once[2..], ["pause 250 ms", "look primary", "call primary"], "which is not taken at its word");
    let twice = way(&Wish::default(), vec![free(), limited(Some(1)), free(), limited(Some(1))]);
    assert_eq!(twice[2..], ["pause 1000 ms", "look primary", "call primary", "hand over"]);
    // The gate holds a little longer than was asked, and lets one call try first whether that is over.
    let held = |ms| Sees(refused(HoldReason::RetryAfter, ms));
    let others = way(&Wish::default(), vec![free(), limited(Some(1)), held(80), held(1_200), free()]);
    let waits = ["pause 1000 ms", "look primary", "pause 80 ms", "look primary", "pause 1200 ms", "look primary"];
    assert_eq!(others[2..], [&waits[..], &["call primary"]].concat());
    let too_long = way(&Wish::default(), vec![held(1_500), held(1_500), held(1_500)]);
    assert_eq!(too_long.last().map(String::as_str), Some("hand over"), "four seconds in all");
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
    assert_eq!((relay.calls(), relay.is_final(), relay.downgrade()), (1, false, None));
    relay.on_failure(&failure(Cause::Overloaded, None), NOW, &mut rng);
    relay.on_pause(NOW);
    relay.on_view(Some(FREE), NOW);
    relay.on_failure(&failure(Cause::Overloaded, None), NOW, &mut rng);
    relay.on_view(Some(FREE), NOW);
    assert_eq!((relay.calls(), relay.is_final(), relay.downgrade()), (3, true, Some(Downgrade::Overloaded)));
}

#[test]
fn an_error_that_is_passed_on_because_the_gate_refuses_is_final_since_a_retry_would_meet_the_same_gate() {
    let (config, mut rng) = (config(), fastrand::Rng::with_seed(1));
    let spec = spec(&Wish::default(), &config);
    let (mut relay, _) = Relay::start(&spec, Handoff::Never, &config, NOW + Duration::from_secs(10), NOW);
    relay.on_view(Some(FREE), NOW);
    relay.on_failure(&failure(Cause::Overloaded, None), NOW, &mut rng);
    relay.on_pause(NOW);
    let step = relay.on_view(Some(refused(HoldReason::BreakerOpen, 40_000)), NOW);
    assert_eq!((step, relay.calls(), relay.is_final()), (Step::PassOn, 1, true));
}

/// What a caller is told whose call met this and became a job, if the job does not end in time: at once, and at the end.
fn told_who_waits(meets: Meets, patience: Duration) -> (Next, Next) {
    let (config, mut rng) = (config(), fastrand::Rng::with_seed(1));
    let spec = spec(&Wish::default(), &config);
    let (mut relay, _) = Relay::start(&spec, Handoff::Wait, &config, NOW + patience, NOW);
    let step = match meets {
        Sees(view) => relay.on_view(Some(view), NOW),
        Decides(decision) => relay.on_decision(Some(decision), NOW),
        Fails(cause, retry_after) => {
            relay.on_view(Some(FREE), NOW);
            relay.on_failure(&failure(cause, retry_after), NOW, &mut rng)
        }
    };
    assert_eq!(step, Step::HandOver);
    (relay.on_handed_over(NOW), relay.wait(NOW + patience))
}

fn draft_saved(kind: ErrorKind) -> Next {
    let says = Says::Message(Wording::DraftSaved);
    Next::Refuse(Refusal { kind, says, retry_after_seconds: None, is_final: true })
}

#[test]
fn who_waits_in_vain_is_told_that_the_draft_is_saved_as_a_529_or_after_a_rate_limit_a_429() {
    let patience = Duration::from_secs(1);
    for (meets, kind) in [
        (Fails(Cause::Overloaded, None), ErrorKind::Overloaded),
        (Fails(Cause::ServerError, None), ErrorKind::Overloaded),
        (Fails(Cause::RateLimited, Some(9)), ErrorKind::RateLimited),
        (Sees(refused(HoldReason::BreakerOpen, 30_000)), ErrorKind::Overloaded),
        (Sees(refused(HoldReason::InFlightLimit, 30_000)), ErrorKind::Overloaded),
        (Sees(refused(HoldReason::RetryAfter, 30_000)), ErrorKind::RateLimited),
        (Sees(refused(HoldReason::Pacing, 30_000)), ErrorKind::RateLimited),
        (Sees(refused(HoldReason::SpendCap, 30_000)), ErrorKind::RateLimited),
    ] {
        assert_eq!(told_who_waits(meets, patience), (Next::Await(patience), draft_saved(kind)));
    }
}

#[test]
fn no_question_to_a_job_is_open_for_more_than_a_minute_and_no_patience_means_no_question() {
    let overload = || Fails(Cause::Overloaded, None);
    assert_eq!(
        told_who_waits(Sees(refused(HoldReason::BreakerOpen, 1)), Duration::ZERO).0,
        draft_saved(ErrorKind::Overloaded)
    );
    assert_eq!(told_who_waits(overload(), Duration::from_secs(1)).0, Next::Await(Duration::from_secs(1)));
    let shut = Sees(refused(HoldReason::BreakerOpen, 1));
    assert_eq!(told_who_waits(shut, Duration::from_secs(600)).0, Next::Await(Duration::from_secs(60)));
}

/// A call that has become a job, and its caller's patience of ten seconds.
fn handed_over<'a>(spec: &'a Spec, handoff: Handoff, config: &'a Config) -> Relay<'a> {
    let (mut relay, _) = Relay::start(spec, handoff, config, NOW + Duration::from_secs(10), NOW);
    assert_eq!(relay.on_view(Some(refused(HoldReason::BreakerOpen, 30_000)), NOW), Step::HandOver);
    relay
}

#[test]
fn auto_is_a_receipt_and_nobody_waits() {
    let config = config();
    let spec = spec(&Wish::default(), &config);
    assert_eq!(handed_over(&spec, Handoff::Auto, &config).on_handed_over(NOW), Next::Receipt);
}

#[test]
fn a_job_that_is_over_is_answered_as_the_call_would_have_been() {
    let config = config();
    let spec = spec(&Wish::default(), &config);
    let relay = handed_over(&spec, Handoff::Wait, &config);
    let over = |outcome| relay.on_status(Some(&outcome), Wording::Done, NOW);
    assert_eq!(over(Outcome::Done { message: "{}", model_used: PRIMARY.into() }), Next::Replay);
    let failed = Outcome::Failed { kind: "invalid_request_error".into(), message: "no".into() };
    for (outcome, status, sentence) in
        [(failed, 400, "no"), (Outcome::Cancelled, 409, "the job of this call was cancelled")]
    {
        let Next::Refuse(refusal) = over(outcome) else { panic!("no error") };
        assert_eq!((refusal.kind.status(), refusal.is_final), (status, true));
        assert_eq!(refusal.says, Says::Sentence(sentence.into()));
    }
}

#[test]
fn while_a_job_goes_on_its_caller_waits_and_one_that_asks_for_hours_is_not_waited_for() {
    let config = config();
    let spec = spec(&Wish::default(), &config);
    let relay = handed_over(&spec, Handoff::Wait, &config);
    let later = NOW + Duration::from_secs(4);
    assert_eq!(relay.on_status(None, Wording::Working, later), Next::Await(Duration::from_secs(6)));
    assert_eq!(relay.on_status(None, Wording::Stalled, later), draft_saved(ErrorKind::Overloaded));
    assert_eq!(relay.wait(NOW + Duration::from_secs(11)), draft_saved(ErrorKind::Overloaded));
}

#[test]
fn a_shut_gate_without_a_job_says_when_to_come_back_and_the_sdk_is_not_to_retry() {
    let config = config();
    let spec = spec(&Wish::default(), &config);
    for (reason, kind) in
        [(HoldReason::BreakerOpen, ErrorKind::Overloaded), (HoldReason::RetryAfter, ErrorKind::RateLimited)]
    {
        let (mut relay, _) = Relay::start(&spec, Handoff::Never, &config, NOW + Duration::from_secs(10), NOW);
        let step = relay.on_view(Some(refused(reason, 30_001)), NOW);
        let says = Says::Sentence(reason.sentence().into());
        let refusal = Refusal { kind, says, retry_after_seconds: Some(31), is_final: true };
        assert_eq!(step, Step::Refuse(refusal));
    }
}

#[test]
fn what_no_answer_came_from_is_a_503_that_is_final_once_it_was_tried_again() {
    let (config, mut rng) = (config(), fastrand::Rng::with_seed(1));
    let spec = spec(&Wish::default(), &config);
    let (mut relay, _) = Relay::start(&spec, Handoff::Never, &config, NOW + Duration::from_secs(10), NOW);
    for (calls, is_final) in [(1, false), (2, true)] {
        relay.on_view(Some(FREE), NOW);
        relay.on_failure(&failure(Cause::ConnectionFailed, None), NOW, &mut rng);
        let refusal = relay.unreachable();
        assert_eq!((relay.calls(), refusal.kind, refusal.is_final), (calls, ErrorKind::Unavailable, is_final));
        assert_eq!(refusal.says, Says::Sentence(Failure::transport(Cause::ConnectionFailed).message));
    }
}

#[test]
fn who_sees_claudes_trouble_is_exposed_and_who_sees_their_own_is_not() {
    let exposing = [Cause::Overloaded, Cause::ServerError, Cause::IdleTimeout, Cause::Truncated];
    assert!(exposing.into_iter().all(relay::exposes));
    let own = [Cause::RateLimited, Cause::SpendCap, Cause::InvalidRequest, Cause::AuthenticationFailed];
    assert!(!own.into_iter().any(relay::exposes));
    let config = config();
    let spec = spec(&Wish::default(), &config);
    for (reason, name, exposes) in [
        (HoldReason::BreakerOpen, "breaker_open", true),
        (HoldReason::Overridden, "overridden", true),
        (HoldReason::Pacing, "pacing", false),
    ] {
        let (mut relay, _) = Relay::start(&spec, Handoff::Never, &config, NOW + Duration::from_secs(10), NOW);
        let step = relay.on_view(Some(refused(reason, 30_000)), NOW);
        let Step::Refuse(refusal) = step else { panic!("{step:?}") };
        assert_eq!((refusal.exposes(), relay.reason()), (exposes, Some(name)));
    }
}

#[test]
fn while_nothing_new_is_taken_a_call_ends_as_if_its_caller_wanted_no_job() {
    for (view, failed, expected) in [
        (FREE, true, "pass on"),
        (refused(HoldReason::BreakerOpen, 30_000), false, "refuse 529"),
        (refused(HoldReason::RetryAfter, 30_000), false, "refuse 429"),
    ] {
        for handoff in [Handoff::Auto, Handoff::Wait] {
            let (config, mut rng) = (config(), fastrand::Rng::with_seed(1));
            let wish = Wish { handoff, ..Wish::default() };
            let spec = spec(&wish, &config);
            let (mut relay, mut step) = Relay::start(&spec, handoff, &config, NOW + Duration::from_secs(10), NOW);
            while step != Step::HandOver {
                step = match step {
                    Step::Look { .. } => relay.on_view(Some(view), NOW),
                    Step::Call(_) if failed => relay.on_failure(&failure(Cause::Overloaded, None), NOW, &mut rng),
                    Step::Pause(_) => relay.on_pause(NOW),
                    other => panic!("{other:?}"),
                };
            }
            assert_eq!(relay.instead_of_a_job(&Switches::default(), NOW), None);
            assert!(!relay.is_kept_from_a_job(handoff));
            let over = NOW + Duration::from_secs(60);
            assert_eq!(relay.instead_of_a_job(&drained(), over), None, "its end");
            let step = relay.instead_of_a_job(&drained(), NOW).unwrap();
            assert_eq!((told(&step).as_str(), relay.is_kept_from_a_job(handoff)), (expected, true));
            assert_eq!(relay.exposes(), failed, "its user sees an error that is Claude's");
        }
    }
    assert!(
        !Relay::start(&spec(&Wish::default(), &config()), Handoff::Never, &config(), NOW, NOW)
            .0
            .is_kept_from_a_job(Handoff::Never)
    );
}
