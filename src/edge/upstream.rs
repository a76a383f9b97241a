//! One Messages call of the synchronous path: opened, looked into until it is known to be an answer, and passed through.
//!
//! What the caller gets is what the upstream sent, byte for byte. Only the beginning is held back: `message_start` comes from an
//! overloaded upstream, too, and once a byte is out nothing can be tried again (A2). From the first content on each chunk
//! goes out as it comes; it is read on the way, so that the gate can be told how the call ended.

use std::rc::Rc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::unfold;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::AbortController;
use worker::{ByteStream, Context, Env, Error, Headers, Response};

use super::stubs::GateStub;
use super::{clock, js, log, views};
use crate::call::Call;
use crate::claude::failure::{self, Failure};
use crate::claude::ratelimits;
use crate::claude::response::{Assembler, Usage};
use crate::claude::sse::Decoder;
use crate::config::Config;
use crate::json;
use crate::policy::answer::{Ended, Report};
use crate::policy::cause::Cause;
use crate::policy::rate_limits::{RateLimits, Used};
use crate::policy::time::Timestamp;

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
        body: Option<&[u8]>,
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
            members.extend(body.map(|body| ("body", js::bytes(body))));
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

    /// Makes the call, and looks into its answer until there is one. Headers of ours go with it.
    pub(super) async fn open(&self, call: &Call, body: &[u8], ours: &[(&str, String)]) -> Opened {
        let began_at = clock::now();
        let transport = |cause| Opened::Failed(Box::new((Failure::transport(cause), None)));
        let Ok(abort) = AbortController::new() else { return transport(Cause::ConnectionFailed) };
        let mut reporter = Reporter::new(self, call, abort);
        let sent = self.send("POST", "/v1/messages", Some(body), call.limits.headers, &reporter.abort).await;
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
            reporter.report(Report::Success, None);
            return Opened::Flowing(response.with_headers(passed));
        }
        if status == 200 {
            let Ok(stream) = response.stream() else { return transport(Cause::ConnectionFailed) };
            let flow = Flow {
                stream,
                decoder: Decoder::new(),
                assembler: Assembler::new(),
                idle: call.limits.idle,
                until: began_at + call.limits.total,
                held: Vec::new(),
                end: None,
                reporter,
            };
            return flow.begin(passed).await;
        }
        let body = body_of(&mut response, call.limits.idle).await;
        let failure = failure::classify(status, &headers, &body, clock::now());
        reporter.failed(&failure, false);
        Opened::Failed(Box::new((failure, Some(Raw { status, headers: passed, body }))))
    }
}

/// Tells the gate how a call ended, behind the caller's back. Dropped without a word, the call was given up.
struct Reporter {
    env: Env,
    context: Rc<Context>,
    config: Rc<Config>,
    call: Call,
    abort: AbortController,
    limits: RateLimits,
    is_told: bool,
}

impl Reporter {
    fn new(line: &Line<'_>, call: &Call, abort: AbortController) -> Self {
        Self {
            env: line.env.clone(),
            context: line.context.clone(),
            config: line.config.clone(),
            call: call.clone(),
            abort,
            limits: RateLimits::default(),
            is_told: false,
        }
    }

    fn failed(&mut self, failure: &Failure, after_content: bool) {
        let Failure { cause, retry_after, .. } = *failure;
        self.report(Report::Failure { cause, after_content, retry_after }, None);
    }

    fn report(&mut self, report: Report, used: Option<Used>) {
        if std::mem::replace(&mut self.is_told, true) {
            return;
        }
        views::forget(&self.call.model);
        let Call { model, permit, asking, .. } = self.call.clone();
        let limits = RateLimits { used, ..self.limits };
        let ended = Ended { permit, asking, report, limits, backoff: self.config.policy.backoff.clone() };
        let env = self.env.clone();
        self.context.wait_until(async move {
            if let Err(error) = GateStub::new(&env, &model, "").report(ended).await {
                log::trouble(None, "gate", &error.to_string());
            }
        });
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        if !self.is_told {
            self.report(Report::Abandoned, None);
            self.abort.abort();
        }
    }
}

/// A stream on its way.
struct Flow {
    stream: ByteStream,
    decoder: Decoder,
    assembler: Assembler,
    idle: Duration,
    until: Timestamp,
    /// What has come and has not gone out.
    held: Vec<u8>,
    /// How it ended, once that is known.
    end: Option<Result<Usage, Failure>>,
    reporter: Reporter,
}

impl Flow {
    /// Reads on until there is content, or an end.
    async fn begin(mut self, headers: Headers) -> Opened {
        while self.end.is_none() && !self.assembler.has_content() {
            match self.next().await {
                Ok(Some(chunk)) => self.held.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(cause) => self.end = Some(Err(Failure::transport(cause))),
            }
        }
        if let Some(Err(failure)) = self.end.take_if(|end| end.is_err() && !self.assembler.has_content()) {
            self.reporter.failed(&failure, false);
            let raw = Raw { status: 200, headers, body: std::mem::take(&mut self.held) };
            return Opened::Failed(Box::new((failure, Some(raw).filter(|raw| !raw.body.is_empty()))));
        }
        let stream = unfold(self, Self::pass);
        match Response::from_stream(stream) {
            Ok(response) => Opened::Flowing(response.with_headers(headers)),
            Err(_) => Opened::Failed(Box::new((Failure::transport(Cause::ConnectionFailed), None))),
        }
    }

    /// The next chunk for the caller.
    async fn pass(mut self) -> Option<(Result<Vec<u8>, Error>, Self)> {
        if !self.held.is_empty() {
            return Some((Ok(std::mem::take(&mut self.held)), self));
        }
        if self.reporter.is_told {
            return None;
        }
        match self.next().await {
            Ok(Some(chunk)) => Some((Ok(chunk), self)),
            Ok(None) => {
                self.tell();
                None
            }
            // Nobody may take half an answer for a whole one: what broke is said as the API would.
            Err(cause) => {
                let failure = Failure::transport(cause);
                let event = format!("event: error\ndata: {}\n\n", error_event(&failure));
                self.end = Some(Err(failure));
                self.tell();
                self.reporter.abort.abort();
                Some((Ok(event.into_bytes()), self))
            }
        }
    }

    /// The next chunk of the upstream, looked into; `None` at its end.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Cause> {
        let patience = self.idle.min(self.until.after(clock::now()));
        match clock::within(patience, self.stream.next()).await {
            Some(Some(Ok(chunk))) => {
                self.look(&chunk);
                Ok(Some(chunk))
            }
            Some(None) => Ok(None),
            _ if self.end.is_some() => Ok(None),
            Some(Some(Err(_))) => Err(Cause::Truncated),
            None => Err(Cause::IdleTimeout),
        }
    }

    fn look(&mut self, chunk: &[u8]) {
        let Ok(events) = self.decoder.push(chunk) else { return };
        for event in events {
            if self.end.is_some() {
                return;
            }
            match self.assembler.feed(&event) {
                Err(failure) => self.end = Some(Err(failure)),
                Ok(progress) if progress.complete => {
                    let message = std::mem::take(&mut self.assembler).finish(None);
                    self.end = Some(message.map(|message| message.usage));
                }
                Ok(_) => {}
            }
        }
    }

    fn tell(&mut self) {
        match self.end.take() {
            Some(Ok(Usage { input_tokens, output_tokens })) => {
                self.reporter.report(Report::Success, Some(Used { input_tokens, output_tokens }));
            }
            Some(Err(failure)) => self.reporter.failed(&failure, true),
            None => self.reporter.failed(&Failure::transport(Cause::Truncated), true),
        }
    }
}

fn error_event(failure: &Failure) -> String {
    struct Body<'a> {
        r#type: &'static str,
        error: Inner<'a>,
    }
    json::output!(Body<'_> { r#type, error });
    struct Inner<'a> {
        r#type: &'static str,
        message: &'a str,
    }
    json::output!(Inner<'_> { r#type, message });
    json::write(&Body { r#type: "error", error: Inner { r#type: "api_error", message: &failure.message } })
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
