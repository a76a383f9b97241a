//! What an operator's order may be: every fault at once, each with its place.

use std::time::Duration;

use spillway::api::error::ErrorKind;
use spillway::api::overriding;
use spillway::policy::forced::{Order, Side};
use spillway::policy::time::Timestamp;

/// 2023-11-14T22:13:20Z
const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const MODEL: Option<&str> = Some("m-large");

/// An order with these members in place of, or beside, the ordinary ones; an empty value leaves one out.
fn with(own: &[(&str, &str)]) -> String {
    let ordinary = [("state", r#""open""#), ("until", r#""2023-11-14T23:13:20Z""#), ("note", r#""Why.""#)];
    let beside = own.iter().filter(|(name, _)| !ordinary.iter().any(|(known, _)| known == name));
    let members = ordinary.iter().chain(beside).map(|(name, value)| {
        let value = own.iter().find(|(known, _)| known == name).map_or(value, |(_, value)| value);
        if value.is_empty() { String::new() } else { format!(r#""{name}":{value}"#) }
    });
    format!("{{{}}}", members.filter(|member| !member.is_empty()).collect::<Vec<_>>().join(","))
}

fn order(body: &str) -> Order {
    overriding::order(MODEL, body.as_bytes(), NOW).unwrap().1
}

fn problems(model: Option<&str>, body: &str) -> Vec<String> {
    let Err(error) = overriding::order(model, body.as_bytes(), NOW) else { return Vec::new() };
    assert_eq!(error.kind, ErrorKind::InvalidRequest, "{body}");
    error.problems.iter().map(|problem| format!("{}: {}", problem.place, problem.message)).collect()
}

const STATE: &str = r#"state: must be "open" or "closed""#;
const UNTIL: &str = r#"until: must be a moment in the future, at most 7 days away, in RFC 3339: "2026-11-30T13:05:12Z", "2026-11-30T14:05:12+01:00""#;
const NOTE: &str = "note: must be a text of 1 to 500 characters, why";
const AUTHOR: &str = "author: must be a text of 1 to 100 characters, who";
const NO_MODEL: &str = "model: must be the id of a model, of 1 to 200 visible ASCII characters";
const UNKNOWN: &str = "is not a known field; there are state, until, note, author";

#[test]
fn an_order_says_what_until_when_why_and_who() {
    let hour = Duration::from_secs(3_600);
    let expected = Order { state: Side::Open, lasts: hour, note: "Why.".into(), author: "operator".into() };
    assert_eq!(order(&with(&[])), expected);
    assert_eq!(order(&with(&[("author", "null")])), expected);
    assert_eq!(order(&with(&[("author", r#""Ada""#)])), Order { author: "Ada".into(), ..expected.clone() });
    assert_eq!(order(&with(&[("state", r#""closed""#)])), Order { state: Side::Closed, ..expected });
    let (model, _) = overriding::order(MODEL, with(&[]).as_bytes(), NOW).unwrap();
    assert_eq!(Some(model), MODEL);
}

#[test]
fn its_end_is_ahead_and_at_most_seven_days_away_by_any_offset() {
    for (until, seconds) in [
        ("2023-11-14T22:13:20.001Z", Some(0)),
        ("2023-11-14T22:13:21Z", Some(1)),
        ("2023-11-15T00:13:20+01:00", Some(3_600)),
        ("2023-11-14T14:14:20-08:00", Some(60)),
        ("2023-11-21T22:13:20Z", Some(7 * 86_400)),
        ("2023-11-21T22:13:20.001Z", None),
        ("2023-11-14T22:13:20Z", None),
        ("2023-11-14T22:13:19Z", None),
        ("2023-11-14T23:13:20+01:00", None),
        ("9999-12-31T23:59:59Z", None),
        ("2023-11-14T23:13:20", None),
        ("in an hour", None),
        ("", None),
    ] {
        let body = with(&[("until", &format!("\"{until}\""))]);
        match seconds {
            Some(seconds) => assert_eq!(order(&body).lasts.as_secs(), seconds, "{until}"),
            None => assert_eq!(problems(MODEL, &body), [UNTIL], "{until}"),
        }
    }
}

#[test]
fn each_fault_has_its_place_and_says_what_is_allowed() {
    let text = |length: usize| format!("\"{}\"", "é".repeat(length));
    let unknown = format!("reason: {UNKNOWN}");
    for (own, expected) in [
        (("state", "".to_owned()), r#"state: is required: "open" or "closed""#),
        (("state", r#""half_open""#.into()), STATE),
        (("state", "true".into()), STATE),
        (("until", "1700003600".into()), UNTIL),
        (("note", "".into()), "note: is required: a text of 1 to 500 characters, why"),
        (("note", "null".into()), "note: is required: a text of 1 to 500 characters, why"),
        (("note", r#""""#.into()), NOTE),
        (("note", r#"" \n""#.into()), NOTE),
        (("note", "7".into()), NOTE),
        (("note", text(501)), NOTE),
        (("author", text(101)), AUTHOR),
        (("author", r#""""#.into()), AUTHOR),
        (("reason", "1".into()), &unknown),
    ] {
        let (name, value) = own;
        assert_eq!(problems(MODEL, &with(&[(name, &value)])), [expected], "{name}: {value}");
    }
    assert_eq!(order(&with(&[("note", &text(500)), ("author", &text(100))])).note.chars().count(), 500);
    assert_eq!(problems(MODEL, &with(&[]).replace('{', r#"{"note":"x","#)), ["note: appears twice"]);
}

#[test]
fn every_fault_is_found_at_once_the_models_too() {
    let body = r#"{"state":1,"until":"soon","note":"","author":[],"why":1}"#;
    assert_eq!(problems(None, body), [NO_MODEL, &format!("why: {UNKNOWN}"), STATE, UNTIL, NOTE, AUTHOR]);
    assert_eq!(problems(None, "{}").len(), 4);
}

#[test]
fn what_is_no_json_object_says_so() {
    for body in ["", "[]", "open", "{"] {
        let error = overriding::order(MODEL, body.as_bytes(), NOW).unwrap_err();
        assert!(error.message.starts_with("the body is not a JSON object: "), "{}", error.message);
    }
}

#[test]
fn to_take_an_order_back_needs_a_model_that_can_be_one() {
    assert_eq!(overriding::model(MODEL).ok(), MODEL);
    let error = overriding::model(None).unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::InvalidRequest, NO_MODEL));
}
