//! One call to the Messages API.
//!
//! Always with `stream: true`: the headers come at once, so that a call does not hold one of the invocation's six
//! connections for as long as the model thinks, and nothing on the way cuts it for being idle. Redirects are not followed:
//! they would carry the key to wherever they lead.

use std::time::Duration;

use futures_util::StreamExt;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{AbortController, AbortSignal};
use worker::Response;

use super::keeper::{Keeper, Stop};
use super::{clock, js};
use crate::claude::failure::{self, Failure};
use crate::claude::ratelimits;
use crate::claude::request::call_body_prefix;
use crate::claude::response::{Assembler, Message};
use crate::claude::sse::{Decoder, EventTooLarge};
use crate::config::Config;
use crate::delivery::Call;
use crate::policy::cause::Cause;
use crate::policy::time::Timestamp;

/// How a call ended without an answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// The upstream, or the way to it, failed.
    Failed {
        /// How.
        failure: Box<Failure>,
        /// Whether content had come before.
        after_content: bool,
    },
    /// We gave the call up ourselves.
    Stopped(Stop),
}

impl Unanswered {
    /// Whatever breaks after the headers has the id that they brought.
    fn with_request_id(mut self, request_id: Option<String>) -> Self {
        if let Self::Failed { failure, .. } = &mut self {
            failure.request_id = failure.request_id.take().or(request_id);
        }
        self
    }
}

/// An answer, with the upstream's id of its request.
pub(super) struct Answered {
    pub(super) message: Message,
    pub(super) request_id: Option<String>,
}

/// Calls Claude with `request`, the body without model and stream.
pub(super) async fn call(
    config: &Config,
    call: &Call,
    request: &[u8],
    headers: &[(&str, Option<&str>)],
    keeper: &mut Keeper<'_>,
) -> Result<Answered, Unanswered> {
    let abort = AbortController::new().map_err(|_| failed(Failure::transport(Cause::ConnectionFailed), false))?;
    let upstream = Upstream { abort, until: clock::now() + call.limits.total };
    upstream.call(config, call, request, headers, keeper).await
}

/// A call under way. Dropping it aborts the request: nobody reads what would still come.
struct Upstream {
    abort: AbortController,
    until: Timestamp,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

impl Upstream {
    async fn call(
        &self,
        config: &Config,
        call: &Call,
        request: &[u8],
        headers: &[(&str, Option<&str>)],
        keeper: &mut Keeper<'_>,
    ) -> Result<Answered, Unanswered> {
        let broken = |_| failed(Failure::transport(Cause::ConnectionFailed), false);
        let request = build(config, &call.model, request, headers, &self.abort.signal()).map_err(broken)?;
        let url = JsValue::from(format!("{}/v1/messages", config.base_url));
        let patience = self.patience(call.limits.headers);
        let began_at = clock::now();
        let sent = keeper.drive(patience, js::settle(&js_sys::global(), "fetch", &[url, request])).await;
        let mut response = match sent {
            Ok(response) => Response::from(response.map_err(broken)?.unchecked_into::<web_sys::Response>()),
            Err(Stop::TimedOut) => return Err(self.timed_out(Cause::HeadersTimeout, false)),
            Err(stop) => return Err(Unanswered::Stopped(stop)),
        };
        let read = |name: &str| response.headers().get(name).ok().flatten();
        let headers = failure::Headers::read(read);
        keeper.note(ratelimits::parse(read, began_at, clock::now()));
        let is_stream = headers.content_type.as_deref().is_some_and(|kind| kind.starts_with("text/event-stream"));
        if response.status_code() == 200 && is_stream {
            let request_id = headers.request_id();
            return match self.read_stream(&mut response, call.limits.idle, keeper).await {
                Ok(message) => Ok(Answered { message, request_id }),
                Err(unanswered) => Err(unanswered.with_request_id(request_id)),
            };
        }
        let body = self
            .read_body(&mut response, call.limits.idle, keeper)
            .await
            .map_err(|unanswered| unanswered.with_request_id(headers.request_id()))?;
        if response.status_code() == 200
            && let Ok(message) = Message::from_json(&body)
        {
            keeper.first_content().await.map_err(Unanswered::Stopped)?;
            return Ok(Answered { message, request_id: headers.request_id() });
        }
        Err(failed(failure::classify(response.status_code(), &headers, &body, clock::now()), false))
    }

    async fn read_stream(
        &self,
        response: &mut Response,
        idle: Duration,
        keeper: &mut Keeper<'_>,
    ) -> Result<Message, Unanswered> {
        let mut stream = response.stream().map_err(|_| failed(Failure::transport(Cause::ConnectionFailed), false))?;
        let mut decoder = Decoder::new();
        let mut assembler = Assembler::new();
        let broken = loop {
            let after_content = assembler.has_content();
            let chunk = match keeper.drive(self.patience(idle), stream.next()).await {
                Ok(Some(Ok(chunk))) => chunk,
                Ok(None) => break None,
                Ok(Some(Err(_))) => {
                    let cause = if after_content { Cause::Truncated } else { Cause::ConnectionFailed };
                    break Some(failed(Failure::transport(cause), after_content));
                }
                Err(Stop::TimedOut) => break Some(self.timed_out(Cause::IdleTimeout, after_content)),
                Err(stop) => return Err(Unanswered::Stopped(stop)),
            };
            let too_large = |error: EventTooLarge| failed(error.into(), after_content);
            for event in decoder.push(&chunk).map_err(too_large)? {
                // One chunk may bring the first content and what fails after it.
                let after_content = assembler.has_content();
                let progress = assembler.feed(&event).map_err(|failure| failed(failure, after_content))?;
                let (first_content, complete) = (progress.first_content, progress.complete);
                keeper.grow(progress.text);
                if first_content {
                    keeper.bill(assembler.usage());
                    keeper.first_content().await.map_err(Unanswered::Stopped)?;
                }
                if complete {
                    return assembler.finish(None).map_err(|failure| failed(failure, true));
                }
            }
        };
        // Also a stream that broke is an answer if its stop reason had come.
        let after_content = assembler.has_content();
        let rest = if broken.is_none() { decoder.finish() } else { None };
        assembler.finish(rest).map_err(|failure| broken.unwrap_or_else(|| failed(failure, after_content)))
    }

    /// A body that is no stream. Of an error's body more than this says nothing.
    async fn read_body(
        &self,
        response: &mut Response,
        idle: Duration,
        keeper: &mut Keeper<'_>,
    ) -> Result<Vec<u8>, Unanswered> {
        let limit = if response.status_code() == 200 { MAX_ANSWER_BYTES } else { failure::MAX_BODY_BYTES };
        let mut body = Vec::new();
        // Without a body there is nothing to read, and the status says it all.
        let Ok(mut stream) = response.stream() else { return Ok(body) };
        while body.len() < limit {
            match keeper.drive(self.patience(idle), stream.next()).await {
                Ok(Some(Ok(mut chunk))) => body.append(&mut chunk),
                // An error whose body breaks off still has its status.
                Ok(None | Some(Err(_))) => break,
                Err(Stop::TimedOut) => return Err(self.timed_out(Cause::IdleTimeout, false)),
                Err(stop) => return Err(Unanswered::Stopped(stop)),
            }
        }
        Ok(body)
    }

    fn patience(&self, step: Duration) -> Duration {
        step.min(self.until.after(clock::now()))
    }

    fn timed_out(&self, step: Cause, after_content: bool) -> Unanswered {
        let cause = if clock::now() >= self.until { Cause::TotalTimeout } else { step };
        failed(Failure::transport(cause), after_content)
    }
}

fn build(
    config: &Config,
    model: &str,
    rest: &[u8],
    headers: &[(&str, Option<&str>)],
    signal: &AbortSignal,
) -> worker::Result<JsValue> {
    // Behind Cloudflare AI Gateway its retries would multiply with ours; nobody else minds the header.
    let mut sent = vec![("content-type", "application/json".into()), ("cf-aig-max-attempts", "1".into())];
    sent.extend(config.api_key.as_deref().map(|key| ("x-api-key", key.into())));
    sent.extend(headers.iter().filter_map(|(name, value)| Some((*name, (*value)?.into()))));
    let mut body = call_body_prefix(model, true).into_bytes();
    body.extend_from_slice(rest);
    body.push(b'}');
    js::object(&[
        ("method", "POST".into()),
        ("headers", js::object(&sent)?),
        ("redirect", "manual".into()),
        ("body", js::bytes(&body)),
        ("signal", signal.into()),
    ])
}

fn failed(failure: Failure, after_content: bool) -> Unanswered {
    Unanswered::Failed { failure: Box::new(failure), after_content }
}

/// As much as an assembled answer may have.
const MAX_ANSWER_BYTES: usize = crate::claude::response::MAX_ANSWER_BYTES;
