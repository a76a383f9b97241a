//! What a submission may be: every fault at once, each with its place.

use spillway::api::error::ErrorKind;
use spillway::job::Spec;
use spillway::policy::demands::{Demands, Thinking};
use spillway::policy::fit::{Misfit, fits};
use spillway::submission::Submission;

use super::config;

const REQUEST: &str = r#"{"max_tokens":10,"messages":[{"role":"user","content":"Hi"}]}"#;

/// A submission of kind `tagging` with more fields.
fn with(fields: &str) -> String {
    format!(r#"{{"kind":"tagging","request":{REQUEST}{}{fields}}}"#, if fields.is_empty() { "" } else { "," })
}

fn with_request(request: &str) -> String {
    format!(r#"{{"kind":"tagging","request":{request}}}"#)
}

fn problems(body: &str, betas: Option<&str>) -> Vec<String> {
    let Err(error) = Submission::parse(body.as_bytes(), betas, None, &config()) else { return Vec::new() };
    assert_eq!(error.kind, ErrorKind::InvalidRequest, "{body}");
    assert!(!error.message.is_empty(), "an error that says nothing: {body}");
    error.problems.iter().map(|problem| format!("{}: {}", problem.place, problem.message)).collect()
}

const FIELDS: &str =
    "kind, priority, request, deadline_seconds, when_exhausted, preset, when_interrupted, webhook, metadata, locale";
const KINDS: &str =
    "classification, code_generation, default, long_form_writing, short_summary, structured_extract, tagging";
const DEADLINE: &str = "deadline_seconds: must be a whole number of seconds from 30 to 604800";
const WEBHOOK: &str = "webhook: must be an https:// address of at most 2,048 characters, without user and password";
const LOCALE: &str = r#"locale: must be a BCP 47 language tag, such as "en" or "zh-CN""#;
const METADATA: &str = "metadata: must be an object of at most 4096 bytes";

#[test]
fn each_fault_has_its_place_and_says_what_is_allowed() {
    let unknown = format!("colour: is not a known field; there are {FIELDS}");
    let kind = format!("kind: must be one of {KINDS}");
    let metadata = format!(r#""metadata":{{"x":"{}"}}"#, "y".repeat(4_096));
    for (body, expected) in [
        (with(r#""colour":1"#), unknown.as_str()),
        (with(r#""kind":"tagging""#), "kind: appears twice"),
        (format!(r#"{{"request":{REQUEST}}}"#), "kind: is required: a string"),
        (format!(r#"{{"kind":null,"request":{REQUEST}}}"#), "kind: is required: a string"),
        (format!(r#"{{"kind":7,"request":{REQUEST}}}"#), "kind: must be a string"),
        (format!(r#"{{"kind":"poem","request":{REQUEST}}}"#), kind.as_str()),
        (r#"{"kind":"tagging"}"#.into(), "request: is required: the body of a Messages request"),
        (with_request("null"), "request: must be a JSON object"),
        (with_request("[]"), "request: must be a JSON object"),
        (with(r#""priority":"urgent""#), r#"priority: must be "high", "medium" or "low""#),
        (with(r#""priority":1"#), r#"priority: must be "high", "medium" or "low""#),
        (with(r#""preset":"fast""#), r#"preset: must be "realtime", "batch" or "offline""#),
        (with(r#""when_exhausted":"cry""#), r#"when_exhausted: must be "ask", "defer" or "fail""#),
        (with(r#""when_interrupted":"go on""#), r#"when_interrupted: must be "restart" or "fail""#),
        (with(r#""deadline_seconds":29"#), DEADLINE),
        (with(r#""deadline_seconds":604801"#), DEADLINE),
        (with(r#""deadline_seconds":60.5"#), DEADLINE),
        (with(r#""deadline_seconds":"60""#), DEADLINE),
        (with(r#""deadline_seconds":-1"#), DEADLINE),
        (with(r#""webhook":"http://example.com/""#), WEBHOOK),
        (with(r#""webhook":"https://""#), WEBHOOK),
        (with(r#""webhook":"https:///path""#), WEBHOOK),
        (with(r#""webhook":"ftp://example.com""#), WEBHOOK),
        (with(r#""webhook":"https://exa mple.com""#), WEBHOOK),
        (with(r#""webhook":"http://localhost.example.com/""#), WEBHOOK),
        (with(r#""webhook":"http://127.0.0.1@example.com/""#), WEBHOOK),
        (with(r#""webhook":"https://app:password@example.com/""#), WEBHOOK),
        (with(r#""webhook":"https://?x""#), WEBHOOK),
        (with(r#""webhook":7"#), WEBHOOK),
        (with(r#""locale":"en_US""#), LOCALE),
        (with(r#""locale":"""#), LOCALE),
        (with(r#""locale":"en-""#), LOCALE),
        (with(r#""metadata":[]"#), METADATA),
        (with(r#""metadata":"x""#), METADATA),
        (with(&metadata), METADATA),
        (with_request("{}"), "request.messages: is missing; request.max_tokens: is missing"),
        (
            with_request(r#"{"max_tokens":0,"messages":[]}"#),
            "request.max_tokens: must be a whole number, at least 1; request.messages: must hold at least one message",
        ),
    ] {
        assert_eq!(problems(&body, None).join("; "), expected, "{body}");
    }
}

#[test]
fn every_fault_is_found_at_once_whichever_part_it_is_in() {
    let body = r#"{"colour":1,"kind":"poem","priority":"urgent","request":{"messages":[{"role":"cat","content":"Hi"}]},
        "deadline_seconds":1,"webhook":"x","metadata":1,"locale":"?"}"#;
    let places: Vec<String> = problems(body, Some("a b"))
        .iter()
        .map(|problem| problem.split(": ").next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(
        places,
        [
            "colour",
            "kind",
            "priority",
            "deadline_seconds",
            "webhook",
            "locale",
            "metadata",
            "request.messages[0].role",
            "request.max_tokens",
            "anthropic-beta"
        ]
    );
}

#[test]
fn what_is_no_json_object_is_refused_with_the_place_where_it_stops_being_one() {
    for (body, says) in [
        (&b""[..], "breaks off at line 1 column 1"),
        (b"hello", "line 1 column 1"),
        (b"[]", "expected an object"),
        (b"{\"kind\":\"tagging\",}", "expected a name in quotes at line 1 column 19"),
        (b"{} {}", "something follows the value at line 1 column 4"),
        (b"{\"kind\":\"\xff\"}", "invalid utf-8"),
    ] {
        let error = Submission::parse(body, None, None, &config()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidRequest);
        assert!(error.message.starts_with("the body is not a JSON object: "), "{}", error.message);
        assert!(error.message.contains(says), "{}", error.message);
    }
}

#[test]
fn a_field_that_a_caller_made_up_cannot_rewrite_a_log() {
    let body = with(&format!(r#""\u001b[2J{}":1"#, "x".repeat(10_000)));
    let problem = problems(&body, None).join("; ");
    assert!(problem.len() < 300 && !problem.contains('\u{1b}'), "{problem}");
}

#[test]
fn every_kind_of_the_table_and_every_field_is_accepted() {
    for kind in KINDS.split(", ") {
        let body = format!(r#"{{"kind":"{kind}","request":{REQUEST}}}"#);
        assert_eq!(problems(&body, None), [""; 0], "{kind}");
    }
    for field in [
        r#""priority":"high""#,
        r#""priority":null"#,
        r#""deadline_seconds":30"#,
        r#""deadline_seconds":604800"#,
        r#""when_exhausted":"defer""#,
        r#""preset":"offline""#,
        r#""when_interrupted":"fail""#,
        r#""webhook":"https://example.com/hook?x=1""#,
        r#""webhook":"http://localhost:9000/hook""#,
        r#""webhook":"http://127.0.0.1/""#,
        r#""webhook":"http://[::1]:80/""#,
        r#""metadata":{"user":"42"}"#,
        r#""locale":"zh-Hans-CN""#,
    ] {
        assert_eq!(problems(&with(field), None), [""; 0], "{field}");
    }
}

#[test]
fn a_submission_says_what_it_means_and_the_rest_is_the_deployments() {
    let json = |body: &str, betas| {
        let Submission { mut spec, .. } = Submission::parse(body.as_bytes(), betas, None, &config()).unwrap();
        spec.demands = Demands::default();
        serde_json::to_string(&spec).unwrap()
    };
    assert_eq!(
        json(&with(""), None),
        r#"{"kind":"tagging","priority":"medium","model":"claude-sonnet-5-5","deadline_seconds":86400}"#
    );
    let full = format!(
        r#"{{"kind":"code_generation","priority":"low","deadline_seconds":60,"when_exhausted":"fail","preset":"batch",
        "when_interrupted":"fail","webhook":"https://example.com/","metadata":{{"n": 1.0}},"locale":"de",
        "request":{}}}"#,
        REQUEST.replace(r#"{"max"#, r#"{"model":"claude-opus-5-5","max"#)
    );
    assert_eq!(
        json(&full, Some("b-1, b-2")),
        concat!(
            r#"{"kind":"code_generation","priority":"low","model":"claude-opus-5-5","betas":"b-1,b-2","preset":"batch","#,
            r#""deadline_seconds":60,"when_exhausted":"fail","when_interrupted":"fail","webhook":"https://example.com/","#,
            r#""metadata":{"n": 1.0},"locale":"de"}"#
        )
    );
}

#[test]
fn a_request_goes_on_byte_for_byte_but_for_model_and_stream() {
    let request = r#"{"model":"m","stream":false,"max_tokens":10, "temperature": 0.70 ,"messages":[ {"role":"user","content":"é\u00e9"} ],
        "x":1e2}"#;
    let submission = Submission::parse(with_request(request).as_bytes(), None, None, &config()).unwrap();
    assert_eq!(submission.spec.model, "m");
    assert_eq!(
        submission.request.body_rest,
        r#""max_tokens":10,"temperature":0.70,"messages":[ {"role":"user","content":"é\u00e9"} ],"x":1e2"#
    );
}

#[test]
fn what_a_request_asks_of_a_model_is_kept_with_the_job_its_betas_included() {
    let request = r#"{"max_tokens":10,"messages":[{"role":"user","content":"Hi"}],"thinking":{"type":"adaptive"},
        "tools":[{"type":"web_search_20250305","name":"web_search"}]}"#;
    let betas = Some("interleaved-thinking-2025-05-14, new-2026-11-30");
    let Submission { spec, .. } = Submission::parse(with_request(request).as_bytes(), betas, None, &config()).unwrap();
    let expected = Demands {
        max_tokens: 10,
        input_tokens: spec.demands.input_tokens,
        thinking: Thinking::Adaptive,
        tools: true,
        typed_tools: vec!["web_search_20250305".into()],
        features: vec!["interleaved-thinking-2025-05-14".into(), "new-2026-11-30".into()],
        ..Demands::default()
    };
    assert_eq!(spec.demands, expected);
    let models = config().models;
    assert_eq!(fits(&spec.demands, models.get("claude-haiku-5-5")), Err(Misfit::FeatureNotSupported));
    let stored = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<Spec>(&stored).unwrap().demands, expected);
}

#[test]
fn a_record_from_before_there_were_demands_fits_no_other_model() {
    let json = r#"{"kind":"tagging","priority":"medium","model":"claude-sonnet-5-5","deadline_seconds":86400}"#;
    let spec: Spec = serde_json::from_str(json).unwrap();
    assert_eq!(spec.demands, Demands::default());
    assert_eq!(fits(&spec.demands, config().models.get("claude-haiku-5-5")), Err(Misfit::RequestUnknown));
}
