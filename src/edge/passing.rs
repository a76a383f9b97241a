//! What is passed to the upstream as it came: the paths that are its alone, and calls whose body names no model, so that nobody
//! knows whose gate they go through. No gate hears of them, neither before nor after: they have other limits than calls have.
//!
//! They are counted and logged like all others, or an overload that a user has seen would be in no figure (A10). Their kind is
//! `passed_through`, they have no priority, and their model is the one that the body names, if the configuration knows it: nothing keeps
//! who asks from naming a thousand, and each would be a series. All others are `unnamed`. How they ended is what
//! the answer's status says: an answer is not looked into, and an error is read before it is passed on.

use std::cell::Cell;
use std::time::Duration;

use wasm_bindgen::JsValue;
use web_sys::AbortController;
use worker::{Method, Request, Response};

use super::http::Answer;
use super::large::{self, CallBody};
use super::messages::{Place, passed_headers};
use super::upstream::{self, Line, body_of};
use super::{clock, js, line, log};
use crate::api::address::Address;
use crate::api::auth::Caller;
use crate::api::error::{ApiError, ErrorKind};
use crate::claude::failure::{self, Failure};
use crate::policy::time::{Timestamp, millis};
use crate::relay::{self, Outcome};
use crate::submission;
use crate::telemetry::Event;
use crate::telemetry::metric::PASSED_THROUGH;

/// Anything else of the upstream's API than Messages.
pub(super) async fn pass_through(
    mut request: Request,
    address: Address<'_>,
    caller: &Caller,
    place: &Place<'_>,
) -> Answer {
    let method = request.method();
    let body = match method {
        Method::Post => Some(large::read(&mut request, place.context).await?),
        _ => None,
    };
    let headers = passed_headers(&request);
    let line = Line { config: place.config, env: place.env, context: place.context, headers: &headers };
    pass(&request, (method.as_ref(), address.path_and_query), body, &[], caller, &line).await
}

/// Passes a request on, and its answer back, with headers of ours; unless its caller goes away first, which ends it.
pub(super) async fn pass(
    request: &Request,
    (method, path): (&str, &str),
    body: Option<CallBody>,
    ours: &[(&str, &str)],
    caller: &Caller,
    line: &Line<'_>,
) -> Answer {
    let abort = AbortController::new().map_err(|_| ApiError::unavailable("nothing can be called", 1))?;
    let named = body.as_ref().and_then(|body| submission::model_of(body.beginning()));
    let told = Told {
        client: if let Caller::Client(client) = caller { client } else { "operator" },
        model: named.as_deref().filter(|model| line.config.knows(model)).unwrap_or(UNNAMED),
        began_at: clock::now(),
        abort,
        is_over: Cell::new(false),
    };
    let body = body.map(|body| match body {
        CallBody::Whole(body) => js::bytes(&body),
        CallBody::Large(_, body) => body,
    });
    let ours: Vec<_> = ours.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    match line::while_held(request, line.context, send((method, path), body, &ours, line, &told)).await {
        Some(answer) => answer,
        None => Err(ApiError::new(ErrorKind::Unavailable, "the caller has gone")),
    }
}

async fn send(
    (method, path): (&str, &str),
    body: Option<JsValue>,
    ours: &[(&str, String)],
    line: &Line<'_>,
    told: &Told<'_>,
) -> Answer {
    let patience = Duration::from_secs(line.config.policy.call.total_seconds);
    let mut response = match line.send(method, path, body, patience, &told.abort).await {
        Ok(response) => response,
        Err(cause) => {
            let failure = Failure::transport(cause);
            told.failed(&failure, Outcome::Refused);
            return Err(ApiError::unavailable(failure.message, 1));
        }
    };
    let headers = failure::Headers::read(|name| response.headers().get(name).ok().flatten());
    let passed = upstream::passed_on(response.headers(), ours);
    let status = response.status_code();
    if (200..300).contains(&status) {
        told.answered(headers.request_id().as_deref());
        return Ok(response.with_headers(passed));
    }
    let body = body_of(&mut response, Duration::from_secs(line.config.policy.call.idle_seconds)).await;
    told.failed(&failure::classify(status, &headers, &body, clock::now()), Outcome::PassedOn);
    let response = Response::from_bytes(body).map_err(|error| ApiError::unavailable(error.to_string(), 1))?;
    Ok(response.with_status(status).with_headers(passed))
}

/// The two lines that it leaves in the log. Dropped without them, its caller has gone.
struct Told<'a> {
    client: &'a str,
    model: &'a str,
    began_at: Timestamp,
    abort: AbortController,
    is_over: Cell<bool>,
}

impl Told<'_> {
    fn answered(&self, request_id: Option<&str>) {
        log::event(&Event::CallSucceeded {
            job: None,
            model: self.model,
            kind: PASSED_THROUGH,
            priority: "",
            request_id,
            duration_ms: self.age(),
            input_tokens: 0,
            output_tokens: 0,
        });
        self.close(Outcome::Answered, None, false);
    }

    fn failed(&self, failure: &Failure, outcome: Outcome) {
        log::event(&Event::CallFailed {
            job: None,
            model: self.model,
            cause: failure.cause.name(),
            kind: PASSED_THROUGH,
            priority: "",
            status: failure.status,
            request_id: failure.request_id.as_deref(),
            duration_ms: self.age(),
            input_tokens: 0,
            output_tokens: 0,
        });
        self.close(outcome, Some(failure.cause.name()), relay::exposes(failure.cause));
    }

    fn close(&self, outcome: Outcome, cause: Option<&str>, exposed: bool) {
        self.is_over.set(true);
        log::event(&Event::SyncCall {
            job: None,
            client: self.client,
            kind: PASSED_THROUGH,
            priority: "",
            model: self.model,
            model_used: None,
            ended: outcome.name(),
            cause,
            exposed,
            calls: 1,
            age_ms: self.age(),
        });
    }

    fn age(&self) -> u64 {
        millis(clock::now().since(self.began_at))
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if self.is_over.get() {
            return;
        }
        log::event(&Event::CallAbandoned {
            job: None,
            reason: "caller_gone",
            model: self.model,
            kind: PASSED_THROUGH,
            priority: "",
            duration_ms: self.age(),
            input_tokens: 0,
            output_tokens: 0,
        });
        self.close(Outcome::Abandoned, None, false);
        self.abort.abort();
    }
}

/// In the place of a model's name.
const UNNAMED: &str = "unnamed";
