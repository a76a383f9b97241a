//! Errors as an app reads them: Anthropic's shape, the right status, and what to do.

use spillway::api::error::{ApiError, ErrorKind};
use spillway::api::status::Question;
use spillway::claude::request::Problem;

#[test]
fn every_kind_has_its_status_and_anthropics_name() {
    for (kind, status, name) in [
        (ErrorKind::InvalidRequest, 400, "invalid_request_error"),
        (ErrorKind::Authentication, 401, "authentication_error"),
        (ErrorKind::Permission, 403, "permission_error"),
        (ErrorKind::NotFound, 404, "not_found_error"),
        (ErrorKind::MethodNotAllowed, 405, "invalid_request_error"),
        (ErrorKind::Conflict, 409, "conflict_error"),
        (ErrorKind::TooLarge, 413, "request_too_large"),
        (ErrorKind::UnsupportedMediaType, 415, "invalid_request_error"),
        (ErrorKind::Unavailable, 503, "api_error"),
    ] {
        assert_eq!(kind.status(), status);
        assert_eq!(
            ApiError::new(kind, "What \"to\" do.").body("req_1"),
            format!(
                r#"{{"type":"error","error":{{"type":"{name}","message":"What \"to\" do."}},"request_id":"req_1"}}"#
            )
        );
    }
}

#[test]
fn problems_are_listed_for_programs_and_joined_for_people() {
    let error = ApiError::invalid(vec![Problem::new("kind", "is required"), Problem::new("request.x", "is odd")]);
    assert_eq!(
        error.body("req_1"),
        concat!(
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"kind: is required; request.x: is odd","#,
            r#""problems":[{"place":"kind","message":"is required"},{"place":"request.x","message":"is odd"}]},"#,
            r#""request_id":"req_1"}"#
        )
    );
}

#[test]
fn what_belongs_in_a_header_is_there() {
    let error = ApiError::method_not_allowed("GET, DELETE");
    assert_eq!((error.kind.status(), error.allow), (405, Some("GET, DELETE")));
    assert_eq!(error.message, "this route has GET, DELETE");
    let error = ApiError::unavailable("later", 60);
    assert_eq!((error.kind.status(), error.retry_after_seconds), (503, Some(60)));
    assert_eq!(ApiError::no_such_job().kind.status(), 404);
}

#[test]
fn a_question_is_a_wait_and_a_tag_weak_or_strong() {
    for (wait, tag, expected) in [
        (None, None, Some((None, 0))),
        (Some("0"), None, Some((None, 0))),
        (Some("60"), Some("W/\"12-done-en\""), Some((Some("12-done-en"), 60))),
        (Some("5"), Some(" \"12-done-en\" "), Some((Some("12-done-en"), 5))),
        // What is none of ours is a tag that no job has: the answer comes at once.
        (None, Some("12"), Some((Some(""), 0))),
        (None, Some("*"), Some((Some(""), 0))),
        (None, Some("W/\"abc\""), Some((Some("abc"), 0))),
        (Some("61"), None, None),
        (Some("-1"), None, None),
        (Some("1.5"), None, None),
        (Some("soon"), None, None),
    ] {
        let question = Question::parse(wait, tag, "en").ok();
        let found = question.as_ref().map(|question| (question.known.as_deref(), question.wait_seconds));
        assert_eq!(found, expected, "{wait:?} {tag:?}");
    }
    let error = Question::parse(Some("61"), None, "en").unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ErrorKind::InvalidRequest, "wait: must be a whole number of seconds from 0 to 60")
    );
}
