//! What a person gets to read about a failure, and what of an upstream's words is safe to show.
//!
//! An upstream's text ends up in logs, statuses and terminals. So it is bounded, on one line, and without characters that
//! rewrite what stands around them; a body that says nothing is described and never quoted, for it may echo the prompt.

use crate::policy::cause::Cause;

/// What the body was, in words that quote nothing of it.
pub(super) fn describe(content_type: Option<&str>, body: &[u8]) -> &'static str {
    let html = content_type.is_some_and(|kind| kind.to_ascii_lowercase().contains("html"));
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    match first {
        None => "an empty body",
        Some(b'<') => "a web page instead of JSON",
        Some(_) if html => "a web page instead of JSON",
        Some(b'{') => "JSON that names no error",
        Some(_) => "a body that is not JSON",
    }
}

/// What to tell a person about a cause when the upstream itself says nothing.
pub(super) const fn sentence(cause: Cause) -> &'static str {
    match cause {
        Cause::Overloaded => "The upstream is overloaded.",
        Cause::RateLimited => "The upstream's rate limit for this account is reached.",
        Cause::Acceleration => "The account's usage grows faster than the upstream allows.",
        Cause::SpendCap => "The account's spend limit is reached.",
        Cause::ServerError => "The upstream failed with an internal error.",
        Cause::UpstreamTimeout => "The upstream took too long and gave up.",
        Cause::Conflict => "The upstream reported a conflict with another request.",
        Cause::ConnectionFailed => "The connection to the upstream failed before it had answered anything.",
        Cause::HeadersTimeout => "The upstream did not begin to answer in time.",
        Cause::IdleTimeout => "The upstream stopped sending in the middle of its answer.",
        Cause::TotalTimeout => "The answer took longer than one call may take.",
        Cause::Truncated => "The upstream's answer ended before it was complete.",
        Cause::MalformedAnswer => "The upstream answered with something that is not a Messages answer.",
        Cause::InvalidRequest => "The upstream refused the request as invalid.",
        Cause::AuthenticationFailed => "The upstream does not accept the API key.",
        Cause::BillingFailed => "The upstream reports a problem with the account's billing.",
        Cause::PermissionDenied => "The API key may not do this.",
        Cause::NotFound => "The upstream does not know this model or address.",
        Cause::RequestTooLarge => "The request is larger than the upstream accepts.",
        Cause::Rejected => "The upstream refused the request.",
    }
}

/// `text`, if it can be an identifier: visible ASCII, and no longer than one.
pub(super) fn identifier(text: &str) -> Option<String> {
    let fits = (1..=MAX_IDENTIFIER_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then(|| text.to_owned())
}

/// At most `max` characters of `text` on one line, without characters that could rewrite a terminal or a log line.
pub(super) fn sanitise(text: &str, max: usize) -> String {
    let unsafe_to_show = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{feff}')
    };
    let mut shown: String = text.trim().chars().take(max).map(|c| if unsafe_to_show(c) { ' ' } else { c }).collect();
    if text.trim().chars().nth(max).is_some() {
        shown.pop();
        shown.push('…');
    }
    shown
}

const MAX_IDENTIFIER_BYTES: usize = 128;
