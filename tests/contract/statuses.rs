//! The status of a job in every state, whole.

use std::time::Duration;

use serde_json::{Value, json};
use spillway::api::auth::Caller;
use spillway::api::status::{Published, Question, etag, wording, wording_changes_in};
use spillway::claude::response::Message;
use spillway::job::notice::Patience;
use spillway::job::settlement::FailedCall;
use spillway::job::{
    Broken, Claim, Effect, Ending, FailReason, Hold, JobId, Record, Retry, Settlement, Then, Timing, Token,
};
use spillway::policy::answer::HoldReason;
use spillway::policy::backoff::Jitter;
use spillway::policy::cause::Cause;
use spillway::policy::settings::Backoff;
use spillway::policy::time::Timestamp;
use spillway::policy::wording::{LONG_WAIT, Messages};

/// 2023-11-14T22:13:20Z
const T0: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const TIMING: Timing = Timing {
    lease: Duration::from_secs(120),
    watchdog: Duration::from_secs(600),
    retention: Duration::from_secs(86_400),
    webhooks: Patience {
        answer: Duration::from_secs(15),
        give_up: Duration::from_secs(86_400),
        backoff: Backoff { base_ms: 5_000, cap_ms: 7_200_000, jitter: Jitter::Equal },
    },
};

fn at(seconds: u64) -> Timestamp {
    T0 + Duration::from_secs(seconds)
}

fn job() -> Record {
    let spec =
        r#"{"kind":"tagging","priority":"medium","model":"m-large","deadline_seconds":3600,"metadata":{"user": 42}}"#;
    Record::new(JobId::random(1), "app".into(), serde_json::from_str(spec).unwrap(), "f".into(), T0)
}

fn claim(record: &mut Record, turn: u64, now: Timestamp) -> Token {
    match record.claim(turn, now, &TIMING) {
        Claim::Claimed(claimed) => claimed.token,
        other => panic!("{other:?}"),
    }
}

/// A job whose first call is under way, a second after its submission.
fn calling() -> (Record, Token) {
    let mut record = job();
    let token = claim(&mut record, 1, at(1));
    record.begin(token, "m-large".into(), at(1), &TIMING);
    (record, token)
}

fn failed_calls(cause: Cause, wait_ms: Option<u64>) -> Vec<FailedCall> {
    vec![FailedCall {
        model: "m-large".into(),
        cause,
        status: Some(529),
        request_id: Some("req_1".into()),
        costs_attempt: true,
        costs_call: true,
        computed_wait_ms: wait_ms,
        real_wait_ms: None,
        ago_ms: 0,
    }]
}

fn view(record: &Record, answer: Option<&Message>, now: Timestamp) -> (Published, Value) {
    let published = Published::new(record, answer.map(|answer| answer.json.as_bytes()), LONG_WAIT, now).unwrap();
    let view = serde_json::from_str(&written(&published)).unwrap();
    (published, view)
}

fn written(published: &Published) -> String {
    published.written(&Messages::default(), "en").0
}

/// The fields that every status has, of a job with so many attempts and calls.
fn status(name: &str, message: (&str, &str), counts: (u32, u32), updated: &str) -> Value {
    json!({
        "id": "job_00000000000000000000000000000001",
        "status": name,
        "message": {"code": message.0, "text": message.1},
        "kind": "tagging",
        "priority": "medium",
        "model_requested": "m-large",
        "attempts": counts.0,
        "calls": counts.1,
        "history": [],
        "metadata": {"user": 42},
        "created_at": "2023-11-14T22:13:20.000Z",
        "updated_at": updated,
        "deadline_at": "2023-11-14T23:13:20.000Z",
    })
}

fn and(mut base: Value, more: Value) -> Value {
    let (Some(base_members), Value::Object(more)) = (base.as_object_mut(), more) else { panic!("objects") };
    base_members.extend(more);
    base
}

const RECEIVED: (&str, &str) = ("received", "We have your request and will start on it in a moment.");
const WORKING: (&str, &str) = ("working", "We are working on your request.");
const DELAYED: (&str, &str) =
    ("delayed", "This is taking a little longer than usual. We are still on it, and you do not need to do anything.");

#[test]
fn received() {
    let (published, view) = view(&job(), None, at(5));
    assert_eq!(view, status("received", RECEIVED, (0, 0), "2023-11-14T22:13:20.000Z"));
    assert_eq!((published.is_final, published.retry_after_seconds), (false, Some(2)));
    assert_eq!(published.client, "app");
    assert_eq!(published.tag("ja", &app()), "1-received-ja");
    assert_eq!(etag(&published.tag("ja", &app())), "W/\"1-received-ja\"");
}

#[test]
fn generating_and_refining_have_the_same_words_and_different_names() {
    let (mut record, token) = calling();
    assert_eq!(view(&record, None, at(2)).1, status("generating", WORKING, (0, 1), "2023-11-14T22:13:21.000Z"));
    record.refine(token, at(2), &TIMING);
    let (published, view) = view(&record, None, at(2));
    assert_eq!(view, status("refining", WORKING, (0, 1), "2023-11-14T22:13:22.000Z"));
    assert_eq!((published.is_final, published.retry_after_seconds), (false, Some(2)));
}

#[test]
fn retrying_says_why_and_when_it_goes_on_and_what_has_failed() {
    let (mut record, token) = calling();
    let then = Then::Retry(Retry::new(Cause::Overloaded, 4_000));
    record.settle(token, Settlement { failed_calls: failed_calls(Cause::Overloaded, Some(3_712)), then }, at(2));
    let expected = |next_check_seconds, real_wait_ms: Option<u64>| {
        json!({
            "waiting": {"reason": "overloaded", "next_check_seconds": next_check_seconds},
            "history": [{
                "at": "2023-11-14T22:13:22.000Z", "model": "m-large", "cause": "overloaded", "status": 529,
                "request_id": "req_1", "costs_attempt": true, "computed_wait_ms": 3712, "real_wait_ms": real_wait_ms,
            }],
        })
    };
    for (now, message, next_check_seconds) in [(2, WORKING, 4), (4, WORKING, 2), (6, WORKING, 1), (60, DELAYED, 1)] {
        let (published, view) = view(&record, None, at(now));
        let base = status("retrying", message, (1, 1), "2023-11-14T22:13:22.000Z");
        assert_eq!(view, and(base, expected(next_check_seconds, None)), "{now}");
        assert_eq!(published.retry_after_seconds, Some(next_check_seconds), "never in 0 s");
    }
    claim(&mut record, 2, at(7));
    let claimed = status("retrying", WORKING, (1, 1), "2023-11-14T22:13:27.000Z");
    assert_eq!(view(&record, None, at(7)).1, and(claimed, expected(1, Some(5_000))));
}

#[test]
fn a_wait_that_begins_while_jobs_wait_long_says_so_at_once_and_the_next_one_only_if_they_still_do() {
    let (retry, hold) = (Retry::new(Cause::Overloaded, 4_000), Hold::new(HoldReason::RetryAfter, 4_000));
    for (slow, code) in [(true, "delayed"), (false, "working")] {
        for then in [Then::Retry(Retry { slow, ..retry }), Then::Hold(Hold { slow, ..hold })] {
            let (mut record, token) = calling();
            record.settle(token, Settlement { failed_calls: Vec::new(), then }, at(2));
            assert_eq!(view(&record, None, at(2)).1["message"]["code"], code);
            let token = claim(&mut record, 2, at(6));
            let then = Then::Retry(retry);
            record.settle(token, Settlement { failed_calls: Vec::new(), then }, at(6));
            assert_eq!(view(&record, None, at(6)).1["message"]["code"], "working");
        }
    }
}

#[test]
fn held_says_why() {
    for (reason, name) in [
        (HoldReason::BreakerOpen, "breaker_open"),
        (HoldReason::ProbeInFlight, "probe_in_flight"),
        (HoldReason::RetryAfter, "retry_after"),
        (HoldReason::SpendCap, "spend_cap"),
        (HoldReason::Overridden, "overridden"),
        (HoldReason::InFlightLimit, "in_flight_limit"),
        (HoldReason::Paused, "paused"),
        (HoldReason::GateUnavailable, "gate_unavailable"),
        (HoldReason::DeliveryBudget, "delivery_budget"),
        (HoldReason::DeliveryLost, "delivery_lost"),
    ] {
        let mut record = job();
        let token = claim(&mut record, 1, at(1));
        record.settle(
            token,
            Settlement { failed_calls: Vec::new(), then: Then::Hold(Hold::new(reason, 90_000)) },
            at(1),
        );
        let (published, view) = view(&record, None, at(1));
        let waiting = json!({"waiting": {"reason": name, "next_check_seconds": 90}});
        assert_eq!(view, and(status("held", WORKING, (0, 0), "2023-11-14T22:13:21.000Z"), waiting));
        assert_eq!(published.retry_after_seconds, Some(90));
    }
}

#[test]
fn done_has_the_message_verbatim_its_text_and_who_gave_it() {
    let json =
        r#"{"type":"message","content":[{"type":"text","text":"A, "},{"type":"text","text":"B"}],"usage":{"x":1.50}}"#;
    let lightweight = "Your answer is ready. A smaller, lightweight model wrote it this time; if you like, we can generate it again with the usual one.";
    for (model_used, downgraded, words) in
        [("m-large", false, ("done", "Your answer is ready.")), ("m-small", true, ("downgraded", lightweight))]
    {
        let (mut record, token) = calling();
        let then = Then::End(Ending::Done { model_used: model_used.into(), downgrade: None });
        record.settle(token, Settlement { failed_calls: Vec::new(), then }, at(3));
        let answer = Message::from_json(json.as_bytes()).unwrap();
        let (published, view) = view(&record, Some(&answer), at(9));
        let base = status("done", words, (0, 1), "2023-11-14T22:13:23.000Z");
        let more = json!({
            "model_used": model_used, "downgraded": downgraded, "text": "A, B",
            "result": serde_json::from_str::<Value>(json).unwrap(), "finished_at": "2023-11-14T22:13:23.000Z",
        });
        assert_eq!(view, and(base, more));
        assert!(written(&published).contains(&format!(r#""result":{json}"#)), "byte for byte");
        assert_eq!((published.is_final, published.retry_after_seconds), (true, None));
    }
}

#[test]
fn failed_has_a_stable_reason_the_last_cause_and_a_sentence() {
    let error = |r#type: &str, cause: &str| json!({"type": r#type, "message": "Why.", "cause": cause, "status": 529, "request_id": "req_1"});
    for (reason, cause, error_type, code, shown) in [
        (
            FailReason::AttemptsExhausted,
            Some(Cause::Overloaded),
            Some("overloaded_error"),
            "attempts_exhausted",
            error("overloaded_error", "overloaded"),
        ),
        (FailReason::DeadlineExceeded, None, None, "deadline_exceeded", error("api_error", "overloaded")),
        (
            FailReason::Refused(Cause::AuthenticationFailed),
            Some(Cause::AuthenticationFailed),
            Some("authentication_error"),
            "authentication_failed",
            error("authentication_error", "authentication_failed"),
        ),
    ] {
        let (mut record, token) = calling();
        let failed_calls = failed_calls(cause.unwrap_or(Cause::Overloaded), None);
        let error_type = error_type.map(str::to_owned);
        let then = Then::End(Ending::Failed { reason, cause, error_type, message: "Why.".into() });
        record.settle(token, Settlement { failed_calls, then }, at(3));
        let (published, mut view) = view(&record, None, at(9));
        assert!(published.is_final);
        let history = view.as_object_mut().unwrap().insert("history".into(), json!([])).unwrap();
        assert_eq!(history.as_array().map(Vec::len), Some(1));
        let words = ("failed", "We are sorry, but we could not complete your request.");
        let more = json!({"reason": code, "error": shown, "finished_at": "2023-11-14T22:13:23.000Z"});
        assert_eq!(view, and(status("failed", words, (1, 1), "2023-11-14T22:13:23.000Z"), more));
    }
}

#[test]
fn cancelled_has_no_content_any_more() {
    let (mut record, _) = calling();
    record.cancel(at(4));
    let (published, view) = view(&record, None, at(9));
    let words = ("cancelled", "This request was cancelled.");
    let mut expected = and(
        status("cancelled", words, (0, 1), "2023-11-14T22:13:24.000Z"),
        json!({"finished_at": "2023-11-14T22:13:24.000Z"}),
    );
    expected.as_object_mut().unwrap().remove("metadata");
    assert_eq!(view, expected);
    assert!(published.is_final);
}

#[test]
fn the_message_comes_after_the_status_and_before_all_else() {
    let (published, _) = view(&job(), None, at(5));
    let start = concat!(
        r#"{"id":"job_00000000000000000000000000000001","status":"received","#,
        r#""message":{"code":"received","text":"We have your request and will start on it in a moment."},"kind":"tagging","#
    );
    assert!(written(&published).starts_with(start), "{}", written(&published));
}

#[test]
fn an_unfinished_job_says_that_it_takes_longer_from_the_long_wait_on() {
    let (mut calling, token) = calling();
    for (record, before) in [(job(), "received"), (calling.clone(), "working")] {
        for (milliseconds, code) in [(24_999, before), (25_000, "delayed"), (3_600_000, "delayed")] {
            let now = T0 + Duration::from_millis(milliseconds);
            assert_eq!(wording(&record, LONG_WAIT, now).name(), code, "{milliseconds}");
            assert_eq!(view(&record, None, now).0.tag("en", &app()), format!("{}-{code}-en", record.revision));
        }
        assert_eq!(wording_changes_in(&record, LONG_WAIT, at(5)), Some(Duration::from_secs(20)));
        assert_eq!(wording_changes_in(&record, LONG_WAIT, at(25)), None);
        assert_eq!(wording(&record, Duration::from_secs(3), at(5)).name(), "delayed");
    }
    let then = Then::End(Ending::Done { model_used: "m-large".into(), downgrade: None });
    calling.settle(token, Settlement { failed_calls: Vec::new(), then }, at(100));
    assert_eq!(view(&calling, None, at(100)).1["message"]["code"], "done");
    assert_eq!(wording_changes_in(&calling, LONG_WAIT, at(1)), None);
}

#[test]
fn the_words_are_for_whoever_reads_unless_the_job_has_a_language() {
    let own: Messages = serde_json::from_str(r#"{"fr":{"received":"Bien reçu."}}"#).unwrap();
    let mut german = job();
    german.spec.locale = Some("de".into());
    let mut japanese = job();
    japanese.spec.locale = Some("ja-JP".into());
    for (record, reader, language, text) in [
        (&job(), "en", "en", "We have your request and will start on it in a moment."),
        (&job(), "ja", "ja", "ご依頼を受け付けました。まもなく取りかかります。"),
        (&job(), "zh-Hans", "zh-Hans", "已收到您的请求，马上就开始处理。"),
        (&job(), "fr", "fr", "Bien reçu."),
        (&japanese, "zh-Hans", "ja", "ご依頼を受け付けました。まもなく取りかかります。"),
        (&german, "zh-Hans", "zh-Hans", "已收到您的请求，马上就开始处理。"),
    ] {
        let (published, _) = view(record, None, at(5));
        let question = Question::parse(None, None, reader).unwrap();
        assert_eq!(published.language(&own, &question), language);
        let (status, spoken) = published.written(&own, language);
        assert_eq!(spoken, language);
        assert_eq!(serde_json::from_str::<Value>(&status).unwrap()["message"]["text"], text);
    }
    let mut cancelled = job();
    cancelled.cancel(at(1));
    let (_, spoken) = view(&cancelled, None, at(5)).0.written(&own, "fr");
    assert_eq!(spoken, "en", "a text that the language lacks is not said to be in it");
}

#[test]
fn a_published_status_survives_kv_in_no_language() {
    let mut record = job();
    record.spec.locale = Some("ja".into());
    let (published, before) = view(&record, None, at(5));
    let json = serde_json::to_string(&published).unwrap();
    let kept: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&kept["wording"], &kept["locale"]), (&json!("received"), &json!("ja")));
    assert!(!json.contains("We have your request"), "{json}");
    let back: Published = serde_json::from_str(&json).unwrap();
    assert_eq!((back.client.as_str(), back.revision, back.is_final), ("app", 1, false));
    assert_eq!(serde_json::from_str::<Value>(&written(&back)).unwrap(), before);
}

#[test]
fn what_is_kept_of_a_call_that_broke_off_is_a_job_that_is_over_from_its_beginning_and_can_be_done_again() {
    let broken = Broken {
        model: "m-small".into(),
        cause: Cause::Overloaded,
        error_type: Some("overloaded_error".into()),
        request_id: Some("req_1".into()),
        calls: 2,
        at: at(3),
    };
    let mut called = job();
    called.spec.handed_over = true;
    let mut record = called.broken_off(JobId::random(2), broken);
    let published = Published::new(&record, Some("Once upon".as_bytes()), LONG_WAIT, at(3)).unwrap();
    let view: Value = serde_json::from_str(&written(&published)).unwrap();
    assert!(published.is_final);
    assert_eq!(view["id"], "job_00000000000000000000000000000002");
    assert_eq!((&view["status"], &view["reason"]), (&json!("failed"), &json!("interrupted")));
    assert_eq!((&view["partial_text"], &view["text"]), (&json!("Once upon"), &Value::Null));
    assert_eq!((&view["calls"], &view["attempts"]), (&json!(2), &json!(0)));
    assert_eq!((&view["error"]["type"], &view["error"]["cause"]), (&json!("overloaded_error"), &json!("overloaded")));
    assert_eq!((&view["history"][0]["model"], &view["history"][0]["request_id"]), (&json!("m-small"), &json!("req_1")));
    assert!(!record.spec.handed_over, "its user has seen what there is to see, and the call says so");

    assert!(matches!(record.claim(1, at(3), &TIMING), Claim::Finished), "no queue may run it");
    let effects = record.tick(at(3), &TIMING);
    assert!(matches!(effects[..], [Effect::Publish { .. }, Effect::List { .. }]), "{effects:?}");
    assert_eq!(record.regenerate(JobId::random(3), None), Some(JobId::random(3)));
}

fn app() -> Caller {
    Caller::Client("app".into())
}

fn told_to(caller: &Caller, record: &Record, now: Timestamp) -> (Published, Value) {
    let published = Published::new(record, None, LONG_WAIT, now).unwrap().told_to(caller);
    let view = serde_json::from_str(&written(&published)).unwrap();
    (published, view)
}

#[test]
fn the_operator_is_told_whose_it_is_what_it_waited_for_and_what_it_is_done_again_as_and_nobody_else_is() {
    let mut record = job();
    record.spec.webhook = Some("https://app.example/hook?secret=1".into());
    let held = |reason| Settlement { failed_calls: Vec::new(), then: Then::Hold(Hold::new(reason, 1_000)) };
    for (turn, reason) in
        [HoldReason::BreakerOpen, HoldReason::BreakerOpen, HoldReason::ProbeInFlight].iter().enumerate()
    {
        let token = claim(&mut record, turn as u64 + 1, at(turn as u64 * 10 + 1));
        record.settle(token, held(*reason), at(turn as u64 * 10 + 1));
    }
    let token = claim(&mut record, 4, at(40));
    record.begin(token, "m-small".into(), at(40), &TIMING);
    let stays = json!([
        {"reason": "breaker_open", "from": "2023-11-14T22:13:21.000Z", "until": "2023-11-14T22:13:41.000Z", "waits": 2},
        {"reason": "probe_in_flight", "from": "2023-11-14T22:13:41.000Z", "until": "2023-11-14T22:14:00.000Z", "waits": 1},
    ]);
    let mut expected = json!({
        "client": "app", "model_called": "m-small", "deferrals": 0, "stays": stays,
        "webhook_target": "https://app.example/hook",
    });
    let (_, mut view) = told_to(&Caller::Operator, &record, at(41));
    assert_eq!(view["operator"], expected);
    view.as_object_mut().unwrap().remove("operator");
    for caller in [app(), Caller::Reader] {
        assert_eq!(told_to(&caller, &record, at(41)).1, view, "all else is the same");
    }

    let then = Then::End(Ending::Failed {
        reason: FailReason::AttemptsExhausted,
        cause: None,
        error_type: None,
        message: "Why.".into(),
    });
    record.settle(token, Settlement { failed_calls: Vec::new(), then }, at(42));
    record.regenerate(JobId::random(2), None);
    let (published, view) = told_to(&Caller::Operator, &record, at(43));
    expected.as_object_mut().unwrap().remove("model_called");
    expected["regenerated_as"] = json!("job_00000000000000000000000000000002");
    assert_eq!(view["operator"], expected);
    assert!(!published.is_final, "its webhook may be tried again, and it may be done again");
    assert!(told_to(&app(), &record, at(43)).0.is_final);
}

#[test]
fn the_operators_tag_changes_with_what_apps_are_not_woken_for_and_with_nothing_else() {
    let tags = |record: &Record, now: Timestamp| {
        let question = Question::parse(None, None, "en").unwrap();
        [app(), Caller::Operator].map(|caller| {
            let tag = told_to(&caller, record, now).0.tag("en", &caller);
            let asked = question.clone().asked_by(&caller).tag(record, LONG_WAIT, now, "en");
            assert_eq!(tag, asked, "who waits for another tag waits for this one");
            assert!(Question::parse(None, Some(&etag(&tag)), "en").unwrap().known == Some(tag.clone()), "{tag}");
            tag
        })
    };
    let (mut record, token) = calling();
    record.spec.webhook = Some("https://app.example/hook".into());
    let then = Then::End(Ending::Failed {
        reason: FailReason::AttemptsExhausted,
        cause: None,
        error_type: None,
        message: "Why.".into(),
    });
    record.settle(token, Settlement { failed_calls: Vec::new(), then }, at(2));
    type Change = fn(&mut Record);
    let changes: [(&str, Change); 4] = [
        ("a try of its webhook", |record| assert!(!record.tick(at(3), &TIMING).is_empty())),
        ("its being done again", |record| assert!(record.regenerate(JobId::random(2), None).is_some())),
        ("by another job", |record| assert!(record.regenerate(JobId::random(3), Some(&JobId::random(2))).is_some())),
        ("its webhook told again", |record| assert!(record.tell_again(at(9)))),
    ];
    let [app_tag, mut known] = tags(&record, at(2));
    for (change, make) in changes {
        assert_eq!(tags(&record, at(8)), [app_tag.clone(), known.clone()], "before {change}: time alone is no news");
        make(&mut record);
        let [for_app, for_operator] = tags(&record, at(8));
        assert_eq!(for_app, app_tag, "{change}");
        assert_ne!(for_operator, known, "{change}");
        known = for_operator;
    }
}

#[test]
fn an_offer_and_a_deferral_are_stays_too() {
    let (mut record, token) = calling();
    let then = Then::Stall { answer_ms: 900_000, resume_ms: 7_200_000 };
    record.settle(token, Settlement { failed_calls: failed_calls(Cause::Overloaded, None), then }, at(2));
    record.answer_deferral(true, at(60));
    let (_, view) = told_to(&Caller::Operator, &record, at(61));
    let expected = json!([
        {"reason": "stalled", "from": "2023-11-14T22:13:22.000Z", "until": "2023-11-14T22:14:20.000Z", "waits": 1},
        {"reason": "deferred", "from": "2023-11-14T22:14:20.000Z", "waits": 1},
    ]);
    assert_eq!((&view["operator"]["stays"], &view["operator"]["deferrals"]), (&expected, &json!(1)));
}

#[test]
fn a_copy_in_kv_that_an_older_version_wrote_is_told_to_the_operator_without_it() {
    let (published, _) = view(&job(), None, at(5));
    let mut kept: Value = serde_json::from_str(&serde_json::to_string(&published).unwrap()).unwrap();
    for member in ["operator", "operator_mark"] {
        kept.as_object_mut().unwrap().remove(member).unwrap();
    }
    let old: Published = serde_json::from_value(kept).unwrap();
    let view: Value = serde_json::from_str(&written(&old.told_to(&Caller::Operator))).unwrap();
    assert_eq!((&view["status"], view.get("operator")), (&json!("received"), None));
}
