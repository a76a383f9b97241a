//! One Messages call of the synchronous path: opened, and looked into until it is known to be an answer. What the caller gets is
//! what the upstream sent, byte for byte; how it gets it is in `flow`.

use std::rc::Rc;
use std::time::Duration;

use futures_util::StreamExt;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::AbortController;
use worker::{Context, Env, Headers, Response};

use super::account::Account;
use super::flow::{Flow, Reporter};
use super::{clock, js};
use crate::call::Call;
use crate::claude::failure::{self, Failure};
use crate::claude::ratelimits;
use crate::claude::response::{MAX_ANSWER_BYTES, Message, Usage};
use crate::config::Config;
use crate::policy::cause::Cause;
use crate::policy::rate_limits::RateLimits;

/// What goes along with every call of one request.
pub(super) struct Line<'a> {
    pub(super) config: &'a Rc<Config>,
    pub(super) env: &'a Env,
    pub(super) context: &'a Rc<Context>,
    /// `anthropic-version` and `anthropic-beta`, as they came.
    pub(super) headers: &'a [(&'static str, String)],
}

/// What became of a call.
pub(super) enum Opened {
    /// An answer, on its way to the caller.
    Flowing(Response),
    /// None, and nothing of it has been seen.
    Failed(Box<(Failure, Option<Raw>)>),
}

/// An upstream's answer as it came.
pub(super) struct Raw {
    pub(super) status: u16,
    pub(super) headers: Headers,
    pub(super) body: Vec<u8>,
}

impl Line<'_> {
    /// Sends `body` to `path`; the answer, or how the way to it failed.
    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<JsValue>,
        patience: Duration,
        abort: &AbortController,
    ) -> Result<Response, Cause> {
        let mut headers = vec![("cf-aig-max-attempts", JsValue::from("1"))];
        headers.extend(self.config.api_key.as_deref().map(|key| ("x-api-key", key.into())));
        headers.extend(self.headers.iter().map(|(name, value)| (*name, value.as_str().into())));
        let request = || -> worker::Result<JsValue> {
            let mut members = vec![
                ("method", method.into()),
                ("headers", js::object(&headers)?),
                ("redirect", "manual".into()),
                ("signal", abort.signal().into()),
            ];
            members.extend(body.clone().map(|body| ("body", body)));
            js::object(&members)
        };
        let request = request().map_err(|_| Cause::ConnectionFailed)?;
        let url = JsValue::from(format!("{}{path}", self.config.base_url));
        match clock::within(patience, js::settle(&js_sys::global(), "fetch", &[url, request])).await {
            Some(Ok(response)) => Ok(Response::from(response.unchecked_into::<web_sys::Response>())),
            Some(Err(_)) => Err(Cause::ConnectionFailed),
            None => Err(Cause::HeadersTimeout),
        }
    }

    /// Makes the call and looks into its answer until there is one. Headers of ours go with it.
    pub(super) async fn open(
        &self,
        call: &Call,
        body: JsValue,
        ours: &[(&str, String)],
        account: &Rc<Account>,
    ) -> Opened {
        let began_at = clock::now();
        let transport = |cause| Opened::Failed(Box::new((Failure::transport(cause), None)));
        let Ok(abort) = AbortController::new() else { return transport(Cause::ConnectionFailed) };
        let mut reporter = Reporter {
            env: self.env.clone(),
            context: self.context.clone(),
            config: self.config.clone(),
            call: call.clone(),
            account: account.clone(),
            abort,
            began_at,
            billed: Usage::default(),
            limits: RateLimits::default(),
            is_told: false,
        };
        let patience = call.limits.until_headers(account.call.stream);
        let sent = self.send("POST", "/v1/messages", Some(body), patience, &reporter.abort).await;
        let mut response = match sent {
            Ok(response) => response,
            Err(cause) => {
                reporter.failed(&Failure::transport(cause), false);
                return transport(cause);
            }
        };
        let read = |name: &str| response.headers().get(name).ok().flatten();
        reporter.limits = ratelimits::parse(read, began_at, clock::now());
        let headers = failure::Headers::read(read);
        let status = response.status_code();
        let passed = passed_on(response.headers(), ours);
        let is_stream = headers.content_type.as_deref().is_some_and(|kind| kind.starts_with("text/event-stream"));
        if status == 200 && !is_stream {
            let failed = match whole(&mut response, call.limits.idle).await {
                Ok((message, body)) => {
                    reporter.answered(Some(message.usage));
                    let response = Response::from_bytes(body).map(|response| response.with_headers(passed));
                    return response.map_or_else(|_| transport(Cause::ConnectionFailed), Opened::Flowing);
                }
                Err(failure) => Failure { request_id: headers.request_id(), ..failure },
            };
            reporter.failed(&failed, true);
            return Opened::Failed(Box::new((failed, None)));
        }
        if status == 200 {
            let Ok(stream) = response.stream() else {
                // Told: dropped without a word it would be a call that its caller has given up.
                reporter.failed(&Failure::transport(Cause::ConnectionFailed), false);
                return transport(Cause::ConnectionFailed);
            };
            return Flow::new(stream, began_at, headers.request_id(), reporter).begin(passed).await;
        }
        let body = body_of(&mut response, call.limits.idle).await;
        let failure = failure::classify(status, &headers, &body, clock::now());
        reporter.failed(&failure, false);
        Opened::Failed(Box::new((failure, Some(Raw { status, headers: passed, body }))))
    }
}

/// An answer that is no stream. Its caller sees none of it before all of it has come: one that breaks off can be asked for again.
async fn whole(response: &mut Response, idle: Duration) -> Result<(Message, Vec<u8>), Failure> {
    let broken = |cause| Err(Failure::transport(cause));
    let mut body = Vec::new();
    let Ok(mut stream) = response.stream() else { return broken(Cause::MalformedAnswer) };
    while body.len() < MAX_ANSWER_BYTES {
        match clock::within(idle, stream.next()).await {
            Some(Some(Ok(mut chunk))) => body.append(&mut chunk),
            Some(Some(Err(_))) => return broken(Cause::Truncated),
            None => return broken(Cause::IdleTimeout),
            Some(None) => break,
        }
    }
    Message::from_json(&body).map(|message| (message, body))
}

/// A body that is no stream; of an error's more than this says nothing.
pub(super) async fn body_of(response: &mut Response, idle: Duration) -> Vec<u8> {
    let mut body = Vec::new();
    let Ok(mut stream) = response.stream() else { return body };
    while body.len() < failure::MAX_BODY_BYTES {
        match clock::within(idle, stream.next()).await {
            Some(Some(Ok(mut chunk))) => body.append(&mut chunk),
            _ => break,
        }
    }
    body
}

/// The upstream's headers, but for those that are the connection's own, and ours.
pub(super) fn passed_on(theirs: &Headers, ours: &[(&str, String)]) -> Headers {
    let headers = Headers::new();
    let of_theirs = theirs.entries().filter(|(name, _)| !HOP_BY_HOP.contains(&name.as_str()));
    for (name, value) in of_theirs.chain(ours.iter().map(|(name, value)| ((*name).to_owned(), value.clone()))) {
        // A header that the platform refuses is no reason to lose the answer.
        let _ = headers.set(&name, &value);
    }
    headers
}

const HOP_BY_HOP: [&str; 7] =
    ["connection", "content-encoding", "content-length", "keep-alive", "set-cookie", "transfer-encoding", "upgrade"];
