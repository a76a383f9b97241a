//! Why a call failed, and what kind of failure that is.
//!
//! 429 and 529 are different things (A1): the first is the operator's own rate (slow down), the second the platform's load
//! (wait, route around). Everything else is either transient, and tried again, or final (B5). The table of status codes and
//! bodies that lead to each cause is in `claude::failure`.

use crate::json;

/// Why an upstream call did not end in an answer. The name in snake case is log field, metric label and API code in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// 529, or `overloaded_error` in a 200 stream: the platform has no capacity.
    Overloaded,
    /// 429: the operator's own rate limit.
    RateLimited,
    /// 429 that names acceleration: usage grows too fast.
    Acceleration,
    /// A spend cap: 429 `enforced_spend_limit_reached`, or 400 "You have reached your specified API usage limits".
    SpendCap,
    /// 500, 502, 503, 520–524, or `api_error` in a stream.
    ServerError,
    /// 504 or 408, or `timeout_error` in a stream: the upstream itself gave up.
    UpstreamTimeout,
    /// 409.
    Conflict,
    /// The connection was refused or broke before any content.
    ConnectionFailed,
    /// No response headers within `call.headers_seconds`.
    HeadersTimeout,
    /// The stream was silent for `call.idle_seconds`.
    IdleTimeout,
    /// The call took longer than `call.total_seconds`.
    TotalTimeout,
    /// The stream ended, or the connection broke, with no `message_stop` and no stop reason.
    Truncated,
    /// A 2xx answer that is no Messages answer (an HTML page, broken JSON), or a redirect.
    MalformedAnswer,
    /// 400.
    InvalidRequest,
    /// 401.
    AuthenticationFailed,
    /// 402.
    BillingFailed,
    /// 403.
    PermissionDenied,
    /// 404: often a retired model id.
    NotFound,
    /// 413.
    RequestTooLarge,
    /// Any other 4xx.
    Rejected,
}

json::names!(Cause {
    Overloaded => "overloaded",
    RateLimited => "rate_limited",
    Acceleration => "acceleration",
    SpendCap => "spend_cap",
    ServerError => "server_error",
    UpstreamTimeout => "upstream_timeout",
    Conflict => "conflict",
    ConnectionFailed => "connection_failed",
    HeadersTimeout => "headers_timeout",
    IdleTimeout => "idle_timeout",
    TotalTimeout => "total_timeout",
    Truncated => "truncated",
    MalformedAnswer => "malformed_answer",
    InvalidRequest => "invalid_request",
    AuthenticationFailed => "authentication_failed",
    BillingFailed => "billing_failed",
    PermissionDenied => "permission_denied",
    NotFound => "not_found",
    RequestTooLarge => "request_too_large",
    Rejected => "rejected",
});

/// What a cause asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The platform's load: absorb, with the overloaded bucket.
    Overload,
    /// The operator's own rate: pace, with the rate-limited bucket.
    RateLimit,
    /// No retry helps this job; later jobs are held and one call is tried now and then.
    SpendCap,
    /// Try again, with the transient bucket.
    Transient,
    /// The request itself is refused: fail at once (B5).
    Final,
}

impl Cause {
    /// Whether it ends only when somebody does something about the account or its key.
    #[must_use]
    pub const fn is_the_operators(self) -> bool {
        matches!(self, Self::SpendCap | Self::AuthenticationFailed | Self::BillingFailed | Self::PermissionDenied)
    }

    /// What this cause asks for.
    #[must_use]
    pub const fn class(self) -> Class {
        match self {
            Self::Overloaded => Class::Overload,
            Self::RateLimited | Self::Acceleration => Class::RateLimit,
            Self::SpendCap => Class::SpendCap,
            Self::ServerError
            | Self::UpstreamTimeout
            | Self::Conflict
            | Self::ConnectionFailed
            | Self::HeadersTimeout
            | Self::IdleTimeout
            | Self::TotalTimeout
            | Self::Truncated
            | Self::MalformedAnswer => Class::Transient,
            Self::InvalidRequest
            | Self::AuthenticationFailed
            | Self::BillingFailed
            | Self::PermissionDenied
            | Self::NotFound
            | Self::RequestTooLarge
            | Self::Rejected => Class::Final,
        }
    }
}
