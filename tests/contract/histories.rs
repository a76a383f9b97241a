//! A tool history that is mended: for a job, for a call, and when either is done again.

use spillway::api::wish::Wish;
use spillway::claude::rewrite;
use spillway::job::{JobId, Record};
use spillway::policy::models::Models;
use spillway::policy::time::Timestamp;
use spillway::submission::{self, By, Incoming};

use super::config;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// A Messages body's members, whose last message has this content.
fn body_rest(last: &str) -> String {
    format!(
        r#""max_tokens":10,"messages":[{{"role":"user","content":"Hi"}},{{"role":"assistant","content":[{{"type":"tool_use","id":"t1","name":"look","input":{{}}}}]}},{{"role":"user","content":{last}}}]"#
    )
}

const INTERRUPTED: &str = r#"[{"type":"text","text":"go on"}]"#;
const BROKEN: &str = r#"[{"type":"tool_result","tool_use_id":"t9","content":"?"}]"#;

fn job(last: &str) -> Result<submission::Accepted, spillway::api::error::ApiError> {
    let body = format!(r#"{{"kind":"tagging","request":{{{}}}}}"#, body_rest(last));
    submission::accept(incoming(body.as_bytes(), Some("beta-1")), &config(), 1, NOW)
}

const fn incoming<'a>(body: &'a [u8], betas: Option<&'a str>) -> Incoming<'a> {
    Incoming { client: "app", body, betas, version: None, idempotency_key: None }
}

#[test]
fn a_mended_history_is_read_again_for_what_it_asks_of_a_model() {
    let accepted = job(INTERRUPTED).unwrap();
    assert_eq!(accepted.mended.as_deref(), Some("completed request.messages.1.content.0"), "in the body that came");
    let demands = accepted.record.spec.demands;
    assert!(demands.answers_tools, "the mended body answers a tool");
    let whole = job(r#"[{"type":"tool_result","tool_use_id":"t1"},{"type":"text","text":"go on"}]"#).unwrap();
    assert_eq!(whole.mended, None);
    assert_eq!(demands.features, whole.record.spec.demands.features, "betas are among them as before");

    let body = format!(r#"{{"model":"m","stream":true,{}}}"#, body_rest(INTERRUPTED));
    let call = submission::accept_call(incoming(body.as_bytes(), None), &Wish::default(), &config(), 1, NOW);
    let call = call.unwrap().unwrap();
    assert!(call.accepted.record.spec.demands.answers_tools && call.accepted.record.spec.handed_over);
    assert_eq!(call.accepted.mended.as_deref(), Some("completed messages.1.content.0"));
    assert!(!call.is_as_it_came);
}

/// A job that was kept with this history, done again.
fn again(last: &str) -> Result<(Record, Vec<u8>), spillway::api::error::ApiError> {
    let mut old = job(INTERRUPTED).unwrap().record;
    old.spec.handed_over = true;
    submission::again(old, JobId::random(2), body_rest(last).into_bytes(), By::User, NOW)
}

#[test]
fn what_is_done_again_is_checked_again() {
    let (record, body) = again(INTERRUPTED).unwrap();
    assert_eq!(String::from_utf8(body).unwrap(), job(INTERRUPTED).unwrap().request);
    assert!(record.spec.demands.answers_tools && record.spec.first_choice_only && !record.spec.handed_over);
    let refused = again(BROKEN).unwrap_err();
    assert_eq!(refused.problems[0].place, "request.messages.2.content.0");
    let sound = body_rest(r#"[{"type":"tool_result","tool_use_id":"t1"}]"#);
    let old = job(INTERRUPTED).unwrap().record;
    assert_eq!(
        submission::again(old, JobId::random(2), sound.clone().into_bytes(), By::User, NOW).unwrap().1,
        sound.into_bytes()
    );
}

#[test]
fn what_its_user_does_again_is_for_the_first_choice_and_what_the_operator_does_as_it_was() {
    for (by, was, is) in
        [(By::User, false, true), (By::User, true, true), (By::Operator, false, false), (By::Operator, true, true)]
    {
        let mut old = job(INTERRUPTED).unwrap().record;
        old.spec.first_choice_only = was;
        let (record, _) =
            submission::again(old, JobId::random(2), body_rest(INTERRUPTED).into_bytes(), by, NOW).unwrap();
        assert_eq!(record.spec.first_choice_only, is, "{by:?}");
    }
}

#[test]
fn what_is_rewritten_for_another_model_is_checked_too() {
    let models = Models::default();
    let sent = |last: &str| {
        let body = body_rest(last);
        let sent = rewrite::for_model(body.as_bytes(), "claude-sonnet-5-5", "claude-haiku-5-5", &models);
        String::from_utf8(sent.into_owned()).unwrap()
    };
    assert_eq!(sent(INTERRUPTED), job(INTERRUPTED).unwrap().request);
    assert_eq!(sent(BROKEN), body_rest(BROKEN), "nobody but the client can mend it");
}
