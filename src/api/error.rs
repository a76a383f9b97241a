//! Errors as the API gives them: in Anthropic's shape, so that an app's existing error handling understands them.

use crate::claude::request::Problem;
use crate::json;

/// An error for a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The HTTP status and Anthropic's name for it.
    pub kind: ErrorKind,
    /// What is wrong and what to do about it.
    pub message: String,
    /// Every fault of a submission, with its place.
    pub problems: Vec<Problem>,
    /// When to try again, in seconds.
    pub retry_after_seconds: Option<u64>,
    /// The methods that a route has, on 405.
    pub allow: Option<&'static str>,
}

/// What kind of error, with its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// 400
    InvalidRequest,
    /// 401
    Authentication,
    /// 403
    Permission,
    /// 404
    NotFound,
    /// 405
    MethodNotAllowed,
    /// 409
    Conflict,
    /// 413
    TooLarge,
    /// 415
    UnsupportedMediaType,
    /// 429
    RateLimited,
    /// 503
    Unavailable,
    /// 529
    Overloaded,
}

impl ErrorKind {
    /// The HTTP status.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::InvalidRequest => 400,
            Self::Authentication => 401,
            Self::Permission => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::Conflict => 409,
            Self::TooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::RateLimited => 429,
            Self::Unavailable => 503,
            Self::Overloaded => 529,
        }
    }

    /// The kind of Anthropic's `error.type`; what nobody knows is the upstream's own trouble.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let known = [
            Self::InvalidRequest,
            Self::Authentication,
            Self::Permission,
            Self::NotFound,
            Self::Conflict,
            Self::TooLarge,
            Self::RateLimited,
            Self::Overloaded,
        ];
        known.into_iter().find(|kind| kind.name() == name).unwrap_or(Self::Unavailable)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::InvalidRequest | Self::MethodNotAllowed | Self::UnsupportedMediaType => "invalid_request_error",
            Self::Authentication => "authentication_error",
            Self::Permission => "permission_error",
            Self::NotFound => "not_found_error",
            Self::Conflict => "conflict_error",
            Self::TooLarge => "request_too_large",
            Self::RateLimited => "rate_limit_error",
            Self::Unavailable => "api_error",
            Self::Overloaded => "overloaded_error",
        }
    }
}

impl ApiError {
    /// An error with nothing but its message.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), problems: Vec::new(), retry_after_seconds: None, allow: None }
    }

    /// A submission with faults: all of them at once.
    #[must_use]
    pub fn invalid(problems: Vec<Problem>) -> Self {
        let list: Vec<String> =
            problems.iter().map(|problem| format!("{}: {}", problem.place, problem.message)).collect();
        Self { problems, ..Self::new(ErrorKind::InvalidRequest, list.join("; ")) }
    }

    /// Something of ours does not answer: the caller should try again.
    #[must_use]
    pub fn unavailable(message: impl Into<String>, retry_after_seconds: u64) -> Self {
        Self { retry_after_seconds: Some(retry_after_seconds), ..Self::new(ErrorKind::Unavailable, message) }
    }

    /// A method that the route does not have.
    #[must_use]
    pub fn method_not_allowed(allow: &'static str) -> Self {
        let message = format!("this route has {allow}");
        Self { allow: Some(allow), ..Self::new(ErrorKind::MethodNotAllowed, message) }
    }

    /// No job for this caller under this id, whether it exists or not.
    #[must_use]
    pub fn no_such_job() -> Self {
        Self::new(ErrorKind::NotFound, "there is no such job; finished jobs are kept for the retention time only")
    }

    /// The body, for the request `request_id`.
    #[must_use]
    pub fn body(&self, request_id: &str) -> String {
        struct Body<'a> {
            r#type: &'a str,
            error: Inner<'a>,
            request_id: &'a str,
        }
        json::output!(Body<'_> { r#type, error, request_id });
        struct Inner<'a> {
            r#type: &'a str,
            message: &'a str,
            problems: Option<&'a [Problem]>,
        }
        json::output!(sparse Inner<'_> { r#type, message, problems });
        let problems = (!self.problems.is_empty()).then_some(self.problems.as_slice());
        let error = Inner { r#type: self.kind.name(), message: &self.message, problems };
        json::write(&Body { r#type: "error", error, request_id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_anthropics_shape_and_names_every_problem() {
        let error =
            ApiError::invalid(vec![Problem::new("kind", "is required"), Problem::new("request.x", "is \"odd\"")]);
        assert_eq!(error.kind.status(), 400);
        assert_eq!(
            error.body("req_1"),
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"kind: is required; request.x: is \"odd\"","#
                .to_owned()
                + r#""problems":[{"place":"kind","message":"is required"},{"place":"request.x","message":"is \"odd\""}]},"request_id":"req_1"}"#
        );
    }
}
