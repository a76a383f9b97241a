//! What a webhook says, whole, and who may have one.

use std::time::Duration;

use serde_json::{Value, json};
use spillway::api::error::ErrorKind;
use spillway::api::status::Published;
use spillway::api::webhook::{Secrets, Signed};
use spillway::job::{Claim, Ending, FailReason, Reception, Record, Settlement, Then};
use spillway::policy::cause::Cause;
use spillway::policy::ladder::Downgrade;
use spillway::policy::time::Timestamp;
use spillway::policy::wording::{LONG_WAIT, Messages};
use spillway::submission::{Accepted, Incoming, accept};

use super::{config, config_with};

/// 2023-11-14T22:13:20Z
const T0: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const BODY: &str = r#"{"kind":"tagging","webhook":"https://app.example/hook","metadata":{"user": 42},
    "request":{"max_tokens":10,"messages":[{"role":"user","content":"Hi"}]}}"#;

fn at(seconds: u64) -> Timestamp {
    T0 + Duration::from_secs(seconds)
}

fn incoming(body: &str) -> Incoming<'_> {
    Incoming { client: "app", body: body.as_bytes(), betas: None, version: None, idempotency_key: None }
}

fn accepted(body: &str) -> Accepted {
    accept(incoming(body), &config(), 1, T0).unwrap().at("https://w.example")
}

fn settled(body: &str, then: Then) -> Record {
    let mut record = accepted(body).record;
    let timing = config().policy.timing();
    let Claim::Claimed(claimed) = record.claim(1, at(1), &timing) else { panic!("the first turn is due at once") };
    record.settle(claimed.token, Settlement { failed_calls: Vec::new(), then }, at(1));
    record
}

fn secrets() -> Secrets {
    Secrets::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap()
}

fn sent(record: &Record, now: Timestamp) -> Vec<Signed> {
    let messages = Messages::default();
    record.notices.iter().map(|notice| Signed::new(record, notice, &secrets(), &messages, LONG_WAIT, now)).collect()
}

fn bodies(record: &Record) -> Vec<Value> {
    sent(record, at(100)).iter().map(|signed| serde_json::from_str(&signed.body).unwrap()).collect()
}

fn done_by(model: &str, downgrade: Option<Downgrade>) -> Then {
    Then::End(Ending::Done { model_used: model.into(), downgrade })
}

const ID: &str = "job_00000000000000000000000000000001";

fn expected(kind: &str, status: &str, message: (&str, &str), more: Value) -> Value {
    let mut data = json!({
        "id": ID, "status": status, "message": {"code": message.0, "text": message.1}, "kind": "tagging",
        "metadata": {"user": 42}, "model_requested": "claude-sonnet-5-5", "created_at": "2023-11-14T22:13:20.000Z",
        "status_url": format!("https://w.example/v1/jobs/{ID}"),
    });
    data.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    json!({ "type": kind, "timestamp": "2023-11-14T22:13:21.000Z", "data": data })
}

#[test]
fn each_event_says_what_an_app_needs_to_act_and_not_the_answer() {
    let finished = "2023-11-14T22:13:21.000Z";
    let done = json!({"model_used": "claude-sonnet-5-5", "downgraded": false, "finished_at": finished});
    let ready = ("done", "Your answer is ready.");
    let record = settled(BODY, done_by("claude-sonnet-5-5", None));
    assert_eq!(bodies(&record), [expected("job.done", "done", ready, done)]);

    let smaller = json!({"model_used": "claude-haiku-5-5", "downgraded": true, "downgrade_reason": "overloaded",
        "finished_at": finished});
    let both = bodies(&settled(BODY, done_by("claude-haiku-5-5", Some(Downgrade::Overloaded))));
    let text = both[0]["data"]["message"]["text"].as_str().unwrap();
    let by = |kind| expected(kind, "done", ("downgraded", text), smaller.clone());
    assert_eq!(both, [by("job.done"), by("job.downgraded")]);

    let (reason, cause) = (FailReason::Refused(Cause::InvalidRequest), Some(Cause::InvalidRequest));
    let message = "the upstream's words, which may quote the prompt".to_owned();
    let failed = bodies(&settled(BODY, Then::End(Ending::Failed { reason, cause, error_type: None, message })));
    let text = failed[0]["data"]["message"]["text"].as_str().unwrap();
    let why = json!({"reason": "invalid_request", "finished_at": finished});
    assert_eq!(failed, [expected("job.failed", "failed", ("failed", text), why)]);
}

#[test]
fn a_stalled_job_is_told_of_as_it_was_asked_whatever_has_become_of_it() {
    let mut record = settled(BODY, Then::Stall { answer_ms: 900_000, resume_ms: 14_400_000 });
    let before = bodies(&record);
    let text = before[0]["data"]["message"]["text"].as_str().unwrap();
    let offer = json!({"offer": {"answer_within_seconds": 900, "without_answer": "deferred",
        "resumes_at": "2023-11-15T02:13:21.000Z"}});
    assert_eq!(before, [expected("job.stalled", "stalled", ("stalled", text), offer)]);
    record.answer_deferral(false, at(50));
    assert_eq!(bodies(&record)[0], before[0]);
    assert_eq!(bodies(&record)[1]["data"]["reason"], "deferral_declined");
}

#[test]
fn the_words_are_in_the_jobs_language() {
    let record = settled(&BODY.replace(r#""kind""#, r#""locale":"ja","kind""#), done_by("claude-sonnet-5-5", None));
    let text = bodies(&record)[0]["data"]["message"]["text"].as_str().unwrap().to_owned();
    assert!(!text.is_ascii(), "{text}");
}

#[test]
fn the_id_stays_the_same_and_the_timestamp_is_that_of_the_try() {
    let record = settled(BODY, done_by("claude-haiku-5-5", None));
    let (first, second) = (sent(&record, at(5)), sent(&record, at(500)));
    assert_eq!(first[0].id, "evt_00000000000000000000000000000001_18bcfe56800_1");
    assert_eq!((&first[0].id, &first[0].body), (&second[0].id, &second[0].body));
    assert_ne!(first[0].id, first[1].id);
    assert_eq!([&first[0].timestamp, &second[0].timestamp], ["1700000005", "1700000500"]);
    assert_eq!(first[0].signature, secrets().sign(&first[0].id, 1_700_000_005, &first[0].body));
    assert_ne!(first[0].signature, second[0].signature);
    let mut later = record;
    later.created_at = at(86_400);
    assert_ne!(sent(&later, at(5))[0].id, first[0].id, "the next job of the same idempotency key");
}

#[test]
fn a_body_is_small_whatever_the_submission_was() {
    let metadata = format!(r#"{{"user":"{}"}}"#, "x".repeat(4_085));
    let prompt = "Hi ".repeat(100_000);
    let body = BODY.replace(r#"{"user": 42}"#, &metadata).replace("Hi", &prompt);
    let record = settled(&body, done_by("claude-sonnet-5-5", None));
    assert!(sent(&record, T0)[0].body.len() < 5_000);
}

#[test]
fn without_the_secret_a_submission_that_names_a_webhook_is_refused_and_another_is_not() {
    let bare = config_with(|name| (name == "WEBHOOK_SECRET").then_some(""));
    let error = accept(incoming(BODY), &bare, 1, T0).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("WEBHOOK_SECRET"), "{}", error.message);
    let without = BODY.replace(r#""webhook":"https://app.example/hook","#, "");
    assert!(accept(incoming(&without), &bare, 1, T0).is_ok());
    assert_eq!(accepted(&without).record.spec.origin, None);
}

#[test]
fn a_status_says_how_the_telling_stands() {
    let timing = config().policy.timing();
    let view = |record: &Record, now| {
        let published = Published::new(record, None, LONG_WAIT, now).unwrap();
        let status: Value = serde_json::from_str(&published.written(&Messages::default(), "en").0).unwrap();
        status["webhook"].clone()
    };
    assert_eq!(view(&accepted(BODY).record, T0), json!({"events": []}));
    let mut record = settled(BODY, done_by("claude-haiku-5-5", None));
    record.tick(at(1), &timing);
    let mut rng = fastrand::Rng::with_seed(1);
    record.told(1, 1, Reception::Taken, at(2), &timing, &mut rng);
    record.told(2, 1, Reception::of(503, Some(Duration::from_secs(60))), at(2), &timing, &mut rng);
    let mut shown = view(&record, at(3));
    let wait = shown["events"][1]["next_attempt_seconds"].as_u64().unwrap();
    assert!((59..=65).contains(&wait), "{wait}");
    shown["events"][1]["next_attempt_seconds"] = json!(60);
    let id = |n| format!("evt_00000000000000000000000000000001_18bcfe56800_{n}");
    let delivered = json!({"id": id(1), "type": "job.done", "attempts": 1, "delivered_at": "2023-11-14T22:13:22.000Z"});
    let waiting =
        json!({"id": id(2), "type": "job.downgraded", "attempts": 1, "next_attempt_seconds": 60, "last_error": "503"});
    assert_eq!(shown, json!({"events": [delivered, waiting]}));
    record.tick(at(100), &timing);
    record.told(2, 2, Reception::Gone, at(100), &timing, &mut rng);
    let shown = view(&record, at(101));
    let gone = "2023-11-14T22:15:00.000Z";
    assert_eq!([&shown["disabled_at"], &shown["events"][1]["given_up_at"]], [gone, gone]);
    assert!(shown["events"][1]["last_error"].as_str().unwrap().starts_with("410"));
}
