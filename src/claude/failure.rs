//! What a failed call means: from status, headers and body to one [`Cause`].
//!
//! A body's `overloaded_error` is an overload whatever the status, for that is how one arrives in a 200. Otherwise a status
//! that the table names decides by itself, since bodies are often missing, cut or a page of HTML from something in between:
//!
//! | status | cause |
//! | --- | --- |
//! | 529, or any with `overloaded_error` | `Overloaded` |
//! | 429 | `SpendCap` with error code `enforced_spend_limit_reached` or a spend-limit message, `Acceleration` if it names that, else `RateLimited` |
//! | 400 | `SpendCap` with a spend-limit message, else `InvalidRequest` |
//! | 401, 402, 403, 404, 413 | `AuthenticationFailed`, `BillingFailed`, `PermissionDenied`, `NotFound`, `RequestTooLarge` |
//! | 408 and 504, 409 | `UpstreamTimeout`, `Conflict` |
//! | any other 4xx | `Rejected`, or `ServerError` if `x-should-retry: true` |
//! | 5xx, and anything that is no status | `ServerError` |
//! | 2xx with an error for a body | by its type, as in a stream |
//! | any other 2xx, 1xx, 3xx | `MalformedAnswer` |
//!
//! `x-should-retry` decides only where no row does. It cannot make a named final cause transient (a 401 is not healed by
//! asking again), nor a 5xx final: the attempts already bound that, and a wrong "final" loses the job. It is kept in the
//! failure for whoever wants to log it. Rows: A1, B3, B5 and the table of causes.

use std::time::Duration;

use crate::policy::cause::Cause;
use crate::policy::retry_after;
use crate::policy::time::Timestamp;

use super::raw::Fields;
use super::wording::{describe, identifier, sanitise, sentence};

/// Why a call did not end in an answer, with everything that a log, a status and the next decision need.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", cause.name())]
pub struct Failure {
    /// What it amounts to.
    pub cause: Cause,
    /// The HTTP status, if there was one. A failure inside a stream or a 200's body has none of its own.
    pub status: Option<u16>,
    /// The upstream's `error.type`.
    pub kind: Option<String>,
    /// One sentence for a person: the upstream's, at most [`MAX_MESSAGE_CHARS`] characters with no control characters among
    /// them, or ours if it gave none.
    pub message: String,
    /// The wait that the upstream asks for (B3).
    pub retry_after: Option<Duration>,
    /// The upstream's id of the request, which its support asks for.
    pub request_id: Option<String>,
    /// `x-should-retry`.
    pub should_retry: Option<bool>,
}

impl Failure {
    /// A failure of the transport, or of our patience with it: no status, no headers, no body.
    #[must_use]
    pub fn transport(cause: Cause) -> Self {
        Self::own(cause, sentence(cause).to_owned())
    }

    /// An answer that is no Messages answer. `what` is a whole sentence, and quotes nothing of the answer.
    pub(super) fn malformed(what: &str) -> Self {
        Self::own(Cause::MalformedAnswer, what.to_owned())
    }

    /// The failure that the data of a stream's `error` event describes. Its type decides; one that nobody knows, or data
    /// that is no JSON, is a server error, for the stream did end in one.
    #[must_use]
    pub fn in_stream(data: &str) -> Self {
        let error = ErrorBody::parse(data.as_bytes());
        let cause = cause_of_type(&error).unwrap_or(Cause::ServerError);
        error.into_failure(cause, || sentence(cause).to_owned())
    }

    fn own(cause: Cause, message: String) -> Self {
        Self { cause, status: None, kind: None, message, retry_after: None, request_id: None, should_retry: None }
    }
}

/// The headers of an answer that say something about a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// `retry-after`: seconds or an HTTP date.
    pub retry_after: Option<String>,
    /// `retry-after-ms`: milliseconds.
    pub retry_after_ms: Option<String>,
    /// `x-should-retry`: "true" or "false".
    pub should_retry: Option<String>,
    /// `request-id`.
    pub request_id: Option<String>,
    /// `content-type`.
    pub content_type: Option<String>,
}

impl Headers {
    /// Asks `get` for every header that matters, by its lower-case name.
    #[must_use]
    pub fn read(mut get: impl FnMut(&str) -> Option<String>) -> Self {
        Self {
            retry_after: get("retry-after"),
            retry_after_ms: get("retry-after-ms"),
            should_retry: get("x-should-retry"),
            request_id: get("request-id"),
            content_type: get("content-type"),
        }
    }

    /// The request id, if it is one: short and of visible ASCII.
    #[must_use]
    pub fn request_id(&self) -> Option<String> {
        self.request_id.as_deref().and_then(identifier)
    }

    fn should_retry(&self) -> Option<bool> {
        match self.should_retry.as_deref()?.trim() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }
}

/// Classifies an answer that is no success: any status but 2xx, or a 2xx that turned out to be no Messages answer.
///
/// `body` may be empty, cut or anything at all; only the first [`MAX_BODY_BYTES`] can matter, so read no more than that.
#[must_use]
pub fn classify(status: u16, headers: &Headers, body: &[u8], now: Timestamp) -> Failure {
    let error = ErrorBody::parse(body);
    let should_retry = headers.should_retry();
    let cause = cause_of(status, should_retry, &error);
    let failure = if error.kind.is_some() {
        error.into_failure(cause, || sentence(cause).to_owned())
    } else {
        let body = describe(headers.content_type.as_deref(), body);
        error.into_failure(cause, || format!("The upstream answered {status} with {body}."))
    };
    Failure {
        status: Some(status),
        retry_after: retry_after::parse(headers.retry_after_ms.as_deref(), headers.retry_after.as_deref(), now),
        request_id: headers.request_id().or(failure.request_id),
        should_retry,
        ..failure
    }
}

fn cause_of(status: u16, should_retry: Option<bool>, error: &ErrorBody) -> Cause {
    if error.is("overloaded_error") {
        return Cause::Overloaded;
    }
    match status {
        529 => Cause::Overloaded,
        429 => limit(error),
        400 if error.spend_cap => Cause::SpendCap,
        400 => Cause::InvalidRequest,
        401 => Cause::AuthenticationFailed,
        402 => Cause::BillingFailed,
        403 => Cause::PermissionDenied,
        404 => Cause::NotFound,
        408 | 504 => Cause::UpstreamTimeout,
        409 => Cause::Conflict,
        413 => Cause::RequestTooLarge,
        _ => match status / 100 {
            2 => cause_of_type(error).unwrap_or(Cause::MalformedAnswer),
            1 | 3 => Cause::MalformedAnswer,
            4 if should_retry != Some(true) => Cause::Rejected,
            _ => Cause::ServerError,
        },
    }
}

/// The cause by `error.type` alone; `None` if the body is no error at all.
fn cause_of_type(error: &ErrorBody) -> Option<Cause> {
    Some(match error.kind.as_deref()? {
        "overloaded_error" => Cause::Overloaded,
        "rate_limit_error" => limit(error),
        "timeout_error" => Cause::UpstreamTimeout,
        "invalid_request_error" if error.spend_cap => Cause::SpendCap,
        "invalid_request_error" => Cause::InvalidRequest,
        "authentication_error" => Cause::AuthenticationFailed,
        "billing_error" => Cause::BillingFailed,
        "permission_error" => Cause::PermissionDenied,
        "not_found_error" => Cause::NotFound,
        "conflict_error" => Cause::Conflict,
        "request_too_large" => Cause::RequestTooLarge,
        // `api_error`, and the types that are still to come.
        _ => Cause::ServerError,
    })
}

/// Which of the three kinds of limit a 429 is about.
fn limit(error: &ErrorBody) -> Cause {
    if error.spend_cap {
        Cause::SpendCap
    } else if error.acceleration {
        Cause::Acceleration
    } else {
        Cause::RateLimited
    }
}

/// `{"type":"error","error":{"type":T,"message":M,"details":{"error_code":C}},"request_id":R}`, as much of it as there is.
#[derive(Debug, Default)]
struct ErrorBody {
    kind: Option<String>,
    message: String,
    spend_cap: bool,
    acceleration: bool,
    request_id: Option<String>,
}

impl ErrorBody {
    fn parse(body: &[u8]) -> Self {
        let text = if body.len() > MAX_BODY_BYTES { "" } else { std::str::from_utf8(body).unwrap_or_default() };
        let Ok(body) = Fields::parse(text) else { return Self::default() };
        let error = body.object("error").unwrap_or_default();
        let message = error.string("message").unwrap_or_default();
        let code = error.object("details").and_then(|details| details.string("error_code"));
        Self {
            kind: error.string("type").and_then(|kind| identifier(&kind)),
            spend_cap: code.as_deref() == Some("enforced_spend_limit_reached")
                || (message.starts_with("You have reached your specified") && message.contains("API usage limits")),
            acceleration: message.to_ascii_lowercase().contains("acceleration"),
            message: sanitise(&message, MAX_MESSAGE_CHARS),
            request_id: body.string("request_id").and_then(|id| identifier(&id)),
        }
    }

    fn is(&self, kind: &str) -> bool {
        self.kind.as_deref() == Some(kind)
    }

    fn into_failure(self, cause: Cause, otherwise: impl FnOnce() -> String) -> Failure {
        let message = if self.message.is_empty() { otherwise() } else { self.message };
        Failure { kind: self.kind, request_id: self.request_id, ..Failure::own(cause, message) }
    }
}

/// How much of an error's body can matter. Real ones have a few hundred bytes.
pub const MAX_BODY_BYTES: usize = 64 * 1024;

/// Long enough for the longest rate-limit sentence, short enough for a log line and a status.
pub const MAX_MESSAGE_CHARS: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use Cause::*;

    const NOW: Timestamp = Timestamp::from_millis(784_111_777_000);

    fn error(kind: &str, message: &str) -> String {
        format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}},"request_id":"req_body"}}"#)
    }

    fn cause(status: u16, body: &str) -> Cause {
        classify(status, &Headers::default(), body.as_bytes(), NOW).cause
    }

    #[test]
    fn every_row_of_the_table_has_its_cause() {
        const HTML: &str = "<!DOCTYPE html><html><body>Error</body></html>";
        let own_limit = "You have reached your specified API usage limits. You will regain access on 2026-12-01.";
        let workspace_limit = "You have reached your specified workspace API usage limits.";
        let enforced = r#"{"type":"error","error":{"type":"rate_limit_error","message":"Spend limit reached.",
            "details":{"error_code":"enforced_spend_limit_reached"}},"request_id":null}"#;
        let other_code =
            r#"{"error":{"type":"rate_limit_error","message":"Slow down.","details":{"error_code":"other"}}}"#;
        let no_details = r#"{"error":{"type":"rate_limit_error","message":"Slow down.","details":null}}"#;
        let accelerating = "This request would exceed your organization's Acceleration limit.";
        for (status, body, expected) in [
            (400, error("invalid_request_error", "max_tokens: Field required"), InvalidRequest),
            (400, error("invalid_request_error", own_limit), SpendCap),
            (400, error("invalid_request_error", workspace_limit), SpendCap),
            (
                400,
                error("invalid_request_error", "Do not say: You have reached your specified API usage limits"),
                InvalidRequest,
            ),
            (401, error("authentication_error", "invalid x-api-key"), AuthenticationFailed),
            (402, error("billing_error", "No funds."), BillingFailed),
            (403, error("permission_error", "No."), PermissionDenied),
            (404, error("not_found_error", "model: claude-2"), NotFound),
            (408, String::new(), UpstreamTimeout),
            (409, error("conflict_error", "Conflict."), Conflict),
            (413, error("request_too_large", "Too large."), RequestTooLarge),
            (413, HTML.to_owned(), RequestTooLarge),
            (429, error("rate_limit_error", "50 requests per minute"), RateLimited),
            (429, error("rate_limit_error", accelerating), Acceleration),
            (429, error("rate_limit_error", own_limit), SpendCap),
            (429, enforced.to_owned(), SpendCap),
            (429, other_code.to_owned(), RateLimited),
            (429, no_details.to_owned(), RateLimited),
            (429, HTML.to_owned(), RateLimited),
            (500, error("api_error", "Internal server error"), ServerError),
            (502, HTML.to_owned(), ServerError),
            (503, error("api_error", "Unavailable"), ServerError),
            (504, error("timeout_error", "Timed out"), UpstreamTimeout),
            (520, HTML.to_owned(), ServerError),
            (522, HTML.to_owned(), ServerError),
            (524, HTML.to_owned(), ServerError),
            (529, error("overloaded_error", "Overloaded"), Overloaded),
            (529, HTML.to_owned(), Overloaded),
            (529, String::new(), Overloaded),
            (529, r#"{"type":"error","error":{"type":"overl"#.to_owned(), Overloaded),
            // An overload in somebody else's clothes.
            (503, error("overloaded_error", "Overloaded"), Overloaded),
            (500, error("overloaded_error", "Overloaded"), Overloaded),
            (429, error("overloaded_error", "Overloaded"), Overloaded),
            (200, error("overloaded_error", "Overloaded"), Overloaded),
            // A 200 that is no answer.
            (200, error("api_error", "Internal server error"), ServerError),
            (200, error("invalid_request_error", "no"), InvalidRequest),
            (200, error("something_new", "?"), ServerError),
            (200, HTML.to_owned(), MalformedAnswer),
            (200, String::new(), MalformedAnswer),
            (200, r#"{"hello":"world"}"#.to_owned(), MalformedAnswer),
            (204, String::new(), MalformedAnswer),
            // Redirects are not followed: they lead away from the API.
            (301, HTML.to_owned(), MalformedAnswer),
            (307, String::new(), MalformedAnswer),
            (101, String::new(), MalformedAnswer),
            // Nobody's rows.
            (405, String::new(), Rejected),
            (418, error("something_new", "?"), Rejected),
            (422, error("invalid_request_error", "?"), Rejected),
            (451, HTML.to_owned(), Rejected),
            (499, "\u{0}".to_owned(), Rejected),
            (501, String::new(), ServerError),
            (599, "[[[[".to_owned(), ServerError),
            (0, String::new(), ServerError),
            (999, String::new(), ServerError),
        ] {
            assert_eq!(cause(status, &body), expected, "{status} {body}");
        }
    }

    #[test]
    fn a_stream_error_is_judged_by_its_type() {
        for (kind, expected) in [
            ("overloaded_error", Overloaded),
            ("rate_limit_error", RateLimited),
            ("api_error", ServerError),
            ("timeout_error", UpstreamTimeout),
            ("invalid_request_error", InvalidRequest),
            ("authentication_error", AuthenticationFailed),
            ("billing_error", BillingFailed),
            ("permission_error", PermissionDenied),
            ("not_found_error", NotFound),
            ("conflict_error", Conflict),
            ("request_too_large", RequestTooLarge),
            ("something_new", ServerError),
        ] {
            let failure = Failure::in_stream(&error(kind, "Why."));
            assert_eq!((failure.cause, failure.status), (expected, None), "{kind}");
            assert_eq!((failure.kind.as_deref(), failure.message.as_str()), (Some(kind), "Why."));
            assert_eq!(failure.request_id.as_deref(), Some("req_body"));
        }
        for data in ["", "upstream exploded", "{}", r#"{"type":"error","error":"overloaded_error"}"#] {
            assert_eq!(Failure::in_stream(data).cause, ServerError, "{data}");
        }
    }

    #[test]
    fn should_retry_decides_only_where_no_row_does() {
        for (status, hint, expected) in [
            (418, "true", ServerError),
            (418, "false", Rejected),
            (418, "perhaps", Rejected),
            (400, "true", InvalidRequest),
            (401, "true", AuthenticationFailed),
            (529, "false", Overloaded),
            (500, "false", ServerError),
        ] {
            let headers = Headers { should_retry: Some(hint.to_owned()), ..Headers::default() };
            let failure = classify(status, &headers, b"", NOW);
            assert_eq!(failure.cause, expected, "{status} {hint}");
            assert_eq!(failure.should_retry, hint.parse().ok(), "{status} {hint}");
        }
    }

    #[test]
    fn the_headers_give_the_wait_and_the_request_id_and_the_body_only_what_they_leave_out() {
        let headers = Headers::read(|name| match name {
            "retry-after" => Some("Sun, 06 Nov 1994 08:49:47 GMT".to_owned()),
            "request-id" => Some("req_header".to_owned()),
            _ => None,
        });
        let body = error("overloaded_error", "Overloaded");
        let failure = classify(529, &headers, body.as_bytes(), NOW);
        assert_eq!(failure.retry_after, Some(Duration::from_secs(10)));
        assert_eq!(failure.request_id.as_deref(), Some("req_header"));
        assert_eq!(failure.status, Some(529));

        let failure = classify(529, &Headers::default(), body.as_bytes(), NOW);
        assert_eq!((failure.retry_after, failure.request_id.as_deref()), (None, Some("req_body")));

        for bad in ["", "req 1", "req\n1", &"r".repeat(129)] {
            let headers = Headers { request_id: Some(bad.to_owned()), ..Headers::default() };
            assert_eq!(classify(500, &headers, b"", NOW).request_id, None, "{bad:?}");
        }
    }

    #[test]
    fn a_message_is_one_bounded_line_that_cannot_rewrite_a_terminal() {
        let long = "é".repeat(MAX_MESSAGE_CHARS + 1);
        for (message, shown) in [
            ("Overloaded".to_owned(), "Overloaded".to_owned()),
            (r"  a\nb\u0000c\u001b[2J\u202ed ".to_owned(), "a b c [2J d".to_owned()),
            ("é".repeat(MAX_MESSAGE_CHARS), "é".repeat(MAX_MESSAGE_CHARS)),
            (long, format!("{}…", "é".repeat(MAX_MESSAGE_CHARS - 1))),
        ] {
            assert_eq!(classify(500, &Headers::default(), error("api_error", &message).as_bytes(), NOW).message, shown);
        }
    }

    #[test]
    fn a_body_without_a_message_is_described_and_never_quoted() {
        let html = Headers { content_type: Some("text/HTML; charset=utf-8".to_owned()), ..Headers::default() };
        let none = Headers::default();
        for (headers, body, expected) in [
            (&none, "", "The upstream answered 502 with an empty body."),
            (&html, "  ", "The upstream answered 502 with an empty body."),
            (&none, "\n<html>secret", "The upstream answered 502 with a web page instead of JSON."),
            (&html, "secret", "The upstream answered 502 with a web page instead of JSON."),
            (&none, "secret", "The upstream answered 502 with a body that is not JSON."),
            (&none, r#"{"secret":1}"#, "The upstream answered 502 with JSON that names no error."),
        ] {
            assert_eq!(classify(502, headers, body.as_bytes(), NOW).message, expected);
        }
        let wordless = r#"{"error":{"type":"overloaded_error"}}"#;
        assert_eq!(classify(529, &none, wordless.as_bytes(), NOW).message, "The upstream is overloaded.");
    }

    #[test]
    fn a_hostile_body_is_survived_and_the_status_decides() {
        let bodies: [Vec<u8>; 5] = [
            vec![0xff; 100],
            "[".repeat(100_000).into_bytes(),
            format!(r#"{{"error":{}"#, r#"{"error":"#.repeat(10_000)).into_bytes(),
            format!(r#"{{"error":{{"type":"api_error","message":"{}"}}}}"#, "x".repeat(20_000_000)).into_bytes(),
            format!("{{{}}}", [r#""a":0"#; 10_000].join(",")).into_bytes(),
        ];
        for body in bodies {
            assert_eq!(classify(529, &Headers::default(), &body, NOW).cause, Overloaded);
        }
    }

    #[test]
    fn a_failure_of_the_transport_is_a_sentence() {
        for cause in [ConnectionFailed, HeadersTimeout, IdleTimeout, TotalTimeout, Truncated] {
            let failure = Failure::transport(cause);
            assert_eq!((failure.cause, failure.status), (cause, None));
            assert!(failure.message.ends_with('.') && failure.message.starts_with("The "), "{}", failure.message);
            assert_eq!(failure.to_string(), format!("{}: {}", cause.name(), failure.message));
        }
    }
}
