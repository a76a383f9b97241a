//! From a request to a receipt: content types, idempotency keys, and what the same key means twice (B12).

use std::time::Duration;

use spillway::api::error::{ApiError, ErrorKind};
use spillway::api::read_token::ReadToken;
use spillway::policy::time::Timestamp;
use spillway::policy::wording::Wording;
use spillway::submission::{Accepted, Creation, Incoming, accept, check_content_type, receipt};

use super::{config, config_with};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const BODY: &str = r#"{"kind":"tagging","request":{"max_tokens":10,"messages":[{"role":"user","content":"Hi"}]}}"#;

fn submit(client: &str, body: &str, key: Option<&str>, random: u128) -> Result<Accepted, ApiError> {
    let incoming = Incoming { client, body: body.as_bytes(), betas: None, version: None, idempotency_key: key };
    accept(incoming, &config(), random, NOW)
}

/// What somebody without a language gets.
fn receipt_of(creation: &Creation, fingerprint: &str, origin: &str) -> Result<String, ApiError> {
    receipt(creation, fingerprint, origin, None, &config(), NOW).map(|receipt| serde_json::to_string(&receipt).unwrap())
}

#[test]
fn only_json_is_taken_and_a_body_that_says_nothing_has_the_benefit_of_the_doubt() {
    for content_type in
        [None, Some("application/json"), Some("Application/JSON; charset=utf-8"), Some("application/vnd.app+json")]
    {
        assert_eq!(check_content_type(content_type), Ok(()), "{content_type:?}");
    }
    for content_type in ["", "text/plain", "text/json", "multipart/form-data; boundary=x", "application/xml"] {
        let error = check_content_type(Some(content_type)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::UnsupportedMediaType, "{content_type}");
        assert_eq!(error.message, "send JSON, with the header `content-type: application/json`");
    }
}

#[test]
fn without_a_key_every_submission_is_a_job_of_its_own() {
    let id = |random| submit("app", BODY, None, random).unwrap().record.id.to_string();
    assert_eq!(id(1), "job_00000000000000000000000000000001");
    assert_ne!(id(1), id(2));
}

#[test]
fn with_a_key_the_job_is_the_clients_and_the_keys_alone() {
    let id = |client, key, random| submit(client, BODY, Some(key), random).unwrap().record.id;
    assert_eq!(id("app", "k1", 1), id("app", "k1", 2));
    assert_ne!(id("app", "k1", 1), id("app", "k2", 1));
    assert_ne!(id("app", "k1", 1), id("web", "k1", 1));
    let other = submit("app", &BODY.replace("Hi", "Ho"), Some("k1"), 3).unwrap();
    assert_eq!(id("app", "k1", 1), other.record.id);
}

#[test]
fn a_key_is_1_to_255_printable_characters_and_needs_the_signing_secret() {
    let problem = |key: &str| submit("app", BODY, Some(key), 1).unwrap_err();
    for key in ["", "a\nb", "é", &"k".repeat(256)] {
        let error = problem(key);
        assert_eq!(error.message, "idempotency-key: must be 1 to 255 printable ASCII characters", "{key:?}");
        assert_eq!(error.kind, ErrorKind::InvalidRequest);
    }
    assert!(submit("app", BODY, Some(&"k".repeat(255)), 1).is_ok());

    let bare = config_with(|name| (name == "SIGNING_SECRET").then_some(""));
    let incoming =
        Incoming { client: "app", body: BODY.as_bytes(), betas: None, version: None, idempotency_key: Some("k") };
    let error = accept(incoming, &bare, 1, NOW).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("SIGNING_SECRET"), "{}", error.message);
}

#[test]
fn the_same_submission_gets_the_same_receipt_and_another_one_a_conflict() {
    let first = submit("app", BODY, Some("k"), 1).unwrap();
    let stored = |is_new| Creation { is_new, record: first.record.clone() };
    let again = submit("app", BODY, Some("k"), 2).unwrap();
    let receipts = [true, false]
        .map(|is_new| receipt_of(&stored(is_new), &again.record.fingerprint, "https://w.example").unwrap());
    let id = first.record.id.to_string();
    let expected = format!(
        concat!(
            r#"{{"id":"{id}","status":"received","status_url":"https://w.example/v1/jobs/{id}","#,
            r#""events_url":"https://w.example/v1/jobs/{id}/events","read_token":"{token}","#,
            r#""read_token_expires_at":"2023-11-19T22:13:20Z","#,
            r#""message":{{"code":"received","text":"We have your request and will start on it in a moment."}}}}"#
        ),
        id = id,
        token = ReadToken::of(&first.record, Some("signing"), Duration::from_secs(86_400)).unwrap().token,
    );
    assert_eq!(receipts, [expected.clone(), expected]);

    let other = submit("app", &BODY.replace("Hi", "Ho"), Some("k"), 3).unwrap();
    let error = receipt_of(&stored(false), &other.record.fingerprint, "https://w.example").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert!(error.message.contains("another submission"), "{}", error.message);
}

#[test]
fn other_headers_of_the_upstreams_make_another_submission() {
    let of = |betas, version| {
        let incoming = Incoming { client: "app", body: BODY.as_bytes(), betas, version, idempotency_key: None };
        accept(incoming, &config(), 1, NOW).unwrap().record.fingerprint
    };
    let fingerprint = |betas| of(betas, None);
    assert_eq!(fingerprint(None), fingerprint(None));
    assert_ne!(of(None, Some("2026-10-21")), fingerprint(None));
    assert_ne!(fingerprint(None), fingerprint(Some("a")));
    assert_ne!(fingerprint(Some("b")), fingerprint(Some("a")));
}

#[test]
fn the_key_of_a_job_that_was_erased_says_so() {
    let accepted = submit("app", BODY, Some("k"), 1).unwrap();
    let mut record = accepted.record.clone();
    record.cancel(NOW);
    let error = receipt_of(&Creation { is_new: false, record }, &accepted.record.fingerprint, "https://w").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert!(error.message.contains("cancelled and erased"), "{}", error.message);
}

#[test]
fn the_message_is_in_the_jobs_language_or_else_in_the_submitters() {
    let policy = r#"{"messages":{"en":{"received":"Got it."},"fr":{"received":"Bien reçu."}}}"#;
    let config = config_with(|name| (name == "POLICY").then_some(policy));
    let localised = |locale: &str| BODY.replacen('{', &format!(r#"{{"locale":"{locale}","#), 1);
    for (body, accept_language, language, text) in [
        (BODY.to_owned(), None, "en", "Got it."),
        (BODY.to_owned(), Some("zh-CN,zh;q=0.9"), "zh-Hans", "已收到您的请求，马上就开始处理。"),
        (BODY.to_owned(), Some("de, fr;q=0.5"), "fr", "Bien reçu."),
        (localised("ja-JP"), Some("fr"), "ja", "ご依頼を受け付けました。まもなく取りかかります。"),
        (localised("de"), Some("fr"), "fr", "Bien reçu."),
    ] {
        let Accepted { record, .. } = submit("app", &body, None, 1).unwrap();
        let (fingerprint, creation) = (record.fingerprint.clone(), Creation { is_new: true, record });
        let receipt = receipt(&creation, &fingerprint, "https://w", accept_language, &config, NOW).unwrap();
        let message = receipt.message;
        assert_eq!((message.code, message.language, message.text), (Wording::Received, language, text));
    }
}

#[test]
fn a_receipt_that_is_asked_for_again_says_that_it_takes_longer() {
    let Accepted { record, .. } = submit("app", BODY, Some("k"), 1).unwrap();
    let config = config_with(|name| (name == "POLICY").then_some(r#"{"long_wait_seconds":3}"#));
    let (fingerprint, creation) = (record.fingerprint.clone(), Creation { is_new: false, record });
    for (seconds, code) in [(2, Wording::Received), (3, Wording::Delayed)] {
        let now = NOW + Duration::from_secs(seconds);
        let receipt = receipt(&creation, &fingerprint, "https://w", None, &config, now).unwrap();
        assert_eq!((receipt.status, receipt.message.code), ("received", code));
    }
}
