//! The HTTP routes, each a list of steps.

use std::rc::Rc;

use futures_util::StreamExt;
use worker::{Context, Env, Headers, Method, Request, Response, Result};

use super::messages::{self, Place};
use super::operations::{self, Driven};
use super::stubs::{Cancellation, JobStub, ObjectError, Reply, Watch};
use super::{clock, entropy, figures, listing, log, meter, passing, results, settings};
use crate::api::address::Address;
use crate::api::auth::{self, Caller};
use crate::api::error::{ApiError, ErrorKind};
use crate::api::read_token;
use crate::api::route::Route;
use crate::api::status::{self, Published, Question};
use crate::config::{Config, Fault};
use crate::job::JobId;
use crate::json::{self, ToJson};
use crate::policy::wording::Messages;
use crate::submission::{self, Creation, Incoming, MAX_BODY_BYTES};

/// Answers a request; an error is an answer too.
pub(super) async fn answer(request: Request, env: &Env, context: &Rc<Context>) -> Result<Response> {
    let request_id = entropy::request_id();
    let is_for_browsers = Route::of(&request.path()).is_some_and(|route| route.is_for_browsers());
    let response = match route(request, env, context, &request_id).await {
        Ok(response) => response,
        Err(error) => refusal(&error, &request_id)?,
    };
    if is_for_browsers {
        // A read token is no cookie: whoever has it may read, from wherever that is.
        response.headers().set("access-control-allow-origin", "*")?;
        response.headers().set("access-control-expose-headers", "etag, retry-after, request-id, content-language")?;
    }
    // What the upstream has answered has the upstream's id, for its support.
    if response.headers().get("request-id")?.is_none() {
        response.headers().set("request-id", &request_id)?;
    }
    Ok(response)
}

pub(super) type Answer = std::result::Result<Response, ApiError>;

async fn route(request: Request, env: &Env, context: &Rc<Context>, request_id: &str) -> Answer {
    let url = request.inner().url();
    let address = Address::of(&url);
    let Some(route) = Route::of(&request.path()) else {
        let message = "there is nothing here; jobs are at /v1/jobs, Messages calls at /v1/messages";
        return Err(ApiError::new(ErrorKind::NotFound, message));
    };
    let loaded = settings::load(env);
    if route == Route::Health && route.allows(request.method().as_ref()) {
        let response = health(loaded.as_deref().map_err(|faults| faults.as_slice()))?;
        return if request.method() == Method::Head { head_of(&response) } else { Ok(response) };
    }
    let config = loaded.map_err(|faults| misconfigured(&faults))?;
    let method = request.method();
    if method == Method::Options && route.is_for_browsers() {
        return preflight();
    }
    if !route.allows(method.as_ref()) {
        return Err(ApiError::method_not_allowed(route.allow()));
    }
    let caller = caller(&request, &address, &route, &config)?;
    // Of somebody who has a key.
    meter::note_origin(address.origin);
    let place = Place { config: &config, env, context, request_id };
    match (route, method) {
        (Route::Messages, _) => messages::create(request, address, &caller, &place).await,
        (Route::Upstream, _) => passing::pass_through(request, address, &caller, &place).await,
        (Route::Jobs, Method::Get) => listing::list(address, &caller, &config, env).await,
        (Route::Jobs, _) => submit(request, address, &caller, &config, env).await,
        (
            Route::Job(None)
            | Route::Events(None)
            | Route::Deferral(None)
            | Route::Regenerate(None)
            | Route::Webhook(None)
            | Route::Redrive(None),
            _,
        ) => Err(ApiError::no_such_job()),
        (Route::Webhook(Some(id)), _) => tell_again(&request, &id, &caller, &config, env).await,
        (Route::Regenerate(Some(id)), _) => regenerate(&request, &id, address, &caller, &config, env).await,
        (Route::Deferral(Some(id)), _) => answer_deferral(request, &id, &caller, &config.policy.messages, env).await,
        (Route::Job(Some(id)), Method::Delete) => {
            let messages = &config.policy.messages;
            cancel(&id, &question(&request, None, &caller, messages)?, &caller, messages, env).await
        }
        (Route::Job(Some(id)), _) => {
            let messages = &config.policy.messages;
            let wait = address.parameter("wait");
            job_status(&id, &question(&request, wait, &caller, messages)?, &caller, messages, env).await
        }
        (Route::Events(Some(id)), _) => watch(&request, &id, &address, caller, &config, env).await,
        (Route::Override(model), method) => operations::force(model.as_deref(), &method, request, &caller, env).await,
        (Route::Switch(name), method) => operations::switch(name, &method, request, &caller, env, context).await,
        (Route::Queues, _) => operations::queues(&caller, env).await,
        (Route::Redrive(Some(id)), _) => operations::redrive(&id, &caller, env).await,
        (Route::RedriveMany, _) => operations::redrive_many(request, &caller, &config, env).await,
        (Route::Metrics, _) => figures::metrics(&request, &address, &caller, &config, env).await,
        (Route::Gates | Route::Health, _) => figures::gates(&caller, &config, env).await,
    }
}

/// Who it is: by a key, or by the read token of the job that is asked for, which a browser can only put into the address where it
/// listens to events.
fn caller(
    request: &Request,
    address: &Address<'_>,
    route: &Route,
    config: &Config,
) -> std::result::Result<Caller, ApiError> {
    let header = |name: &str| request.headers().get(name).ok().flatten();
    let (authorization, key) = (header("authorization"), header("x-api-key"));
    let known = config.keys.authenticate(authorization.as_deref(), key.as_deref());
    let given = auth::credential(authorization.as_deref(), key.as_deref()).or_else(|| address.parameter("token"));
    match given.filter(|given| known.is_err() && read_token::is_read_token(given)) {
        Some(token) => {
            let job = route.readable_job(request.method().as_ref());
            read_token::check(token, job, config.signing_secret.as_deref(), clock::now())?;
            Ok(Caller::Reader)
        }
        None => known,
    }
}

/// What a browser asks before it sends a header of ours to another origin.
fn preflight() -> Answer {
    let allowed = "authorization, x-api-key, if-none-match, last-event-id, accept-language, cache-control";
    let headers = [
        ("access-control-allow-methods", "GET"),
        ("access-control-allow-headers", allowed),
        ("access-control-max-age", "86400"),
    ];
    respond(204, String::new(), &headers)
}

async fn watch(
    request: &Request,
    id: &JobId,
    address: &Address<'_>,
    caller: Caller,
    config: &Config,
    env: &Env,
) -> Answer {
    let last_event_id = request.headers().get("last-event-id").ok().flatten();
    let last_event_id = last_event_id.or_else(|| address.parameter("last_event_id").map(str::to_owned));
    let language = config.policy.messages.language(None, accept_language(request).as_deref()).to_owned();
    let watch = Watch { caller, last_event_id, language };
    let response = JobStub::new(env, id).events(&watch).await.map_err(|error| unavailable(Some(id), &error))?;
    let headers = Headers::new();
    let set = |(name, value)| headers.set(name, value).map_err(|error| ApiError::unavailable(error.to_string(), 1));
    match response.status_code() {
        200 => [("content-type", "text/event-stream"), ("cache-control", "no-store"), VARY]
            .into_iter()
            .try_for_each(set)?,
        204 => set(("cache-control", "no-store"))?,
        404 => return Err(ApiError::no_such_job()),
        status => return Err(unavailable(Some(id), &ObjectError::Failed(format!("events: {status}")))),
    }
    Ok(response.with_headers(headers))
}

async fn submit(mut request: Request, address: Address<'_>, caller: &Caller, config: &Config, env: &Env) -> Answer {
    let Caller::Client(client) = caller else {
        return Err(ApiError::new(ErrorKind::Permission, "jobs belong to clients: submit with a client key"));
    };
    let body = read_json(&mut request).await?;
    let headers = SubmissionHeaders::of(&request);
    let incoming = headers.incoming(client, &body);
    let random = entropy::bits().ok_or_else(|| ApiError::unavailable("no randomness to name the job with", 1))?;
    let accepted = submission::accept(incoming, config, random, clock::now())?.at(address.origin);
    let creation = operations::take(&accepted.record, accepted.request.as_bytes(), env).await?;
    let receipt = receive(&request, &creation, &accepted.record.fingerprint, address, config)?;
    if let Some(mended) = &accepted.mended {
        let _ = receipt.headers().set("spillway-mended", mended);
    }
    Ok(receipt)
}

/// The receipt for a job that is stored.
pub(super) fn receive(
    request: &Request,
    creation: &Creation,
    fingerprint: &str,
    address: Address<'_>,
    config: &Config,
) -> Answer {
    let language = accept_language(request);
    let receipt =
        submission::receipt(creation, fingerprint, address.origin, language.as_deref(), config, clock::now())?;
    let headers = [
        ("location", receipt.status_url.as_str()),
        ("retry-after", "1"),
        ("cache-control", "no-store"),
        ("content-language", receipt.message.language),
        VARY,
    ];
    json(202, &receipt, &headers)
}

async fn job_status(id: &JobId, question: &Question, caller: &Caller, messages: &Messages, env: &Env) -> Answer {
    // KV does not know what came after a job's end: another try of its webhook, or that it was done again.
    let kept = if *caller == Caller::Operator { None } else { results::get(env, id).await };
    let published = match kept {
        Some(published) => Some(published),
        None => match JobStub::new(env, id).status(question).await {
            Ok(published) => published,
            Err(error) => Some(results::get(env, id).await.ok_or_else(|| unavailable(Some(id), &error))?),
        },
    };
    let published =
        published.filter(|published| caller.may_see(&published.client)).ok_or_else(ApiError::no_such_job)?;
    respond_with_status(published, caller, question, messages)
}

async fn answer_deferral(mut request: Request, id: &JobId, caller: &Caller, messages: &Messages, env: &Env) -> Answer {
    let question = question(&request, None, caller, messages)?;
    let accept = submission::parse_deferral(&read_body(&mut request).await?)?;
    let answered = JobStub::new(env, id).answer_deferral(caller, accept).await;
    let message = "this job is not asking whether it may wait; only a job with the status `stalled` does";
    granted(answered, id, message, caller, &question, messages)
}

/// Has the last news sent to the job's webhook once more.
async fn tell_again(request: &Request, id: &JobId, caller: &Caller, config: &Config, env: &Env) -> Answer {
    submission::check_webhooks(config)?;
    let question = question(request, None, caller, &config.policy.messages)?;
    let told = JobStub::new(env, id).tell_again(caller).await;
    let message = "there is nothing to send: the job has no `webhook`, or nothing has happened yet that it is told of";
    granted(told, id, message, caller, &question, &config.policy.messages)
}

/// The status of a job that has done what was wished; a conflict with this message if there was nothing to do.
fn granted(
    answered: std::result::Result<Reply, ObjectError>,
    id: &JobId,
    void: &str,
    caller: &Caller,
    question: &Question,
    messages: &Messages,
) -> Answer {
    match answered.map_err(|error| unavailable(Some(id), &error))? {
        Reply::Unknown => Err(ApiError::no_such_job()),
        Reply::Void => Err(ApiError::new(ErrorKind::Conflict, void)),
        Reply::Taken(published) => respond_with_status(published, caller, question, messages),
    }
}

async fn regenerate(
    request: &Request,
    id: &JobId,
    address: Address<'_>,
    caller: &Caller,
    config: &Config,
    env: &Env,
) -> Answer {
    match operations::do_again(id, caller, None, env).await? {
        Driven::Job(done_again) => {
            let (creation, fingerprint) = *done_again;
            receive(request, &creation, &fingerprint, address, config)
        }
        Driven::NotNeeded | Driven::SentAgain => {
            let message = "only a job that failed, or that another model answered, can be done again";
            Err(ApiError::new(ErrorKind::Conflict, message))
        }
    }
}

/// What a reader knows and wants: how long it waits, which status it has, and its language.
fn question(
    request: &Request,
    wait: Option<&str>,
    caller: &Caller,
    messages: &Messages,
) -> std::result::Result<Question, ApiError> {
    let known = request.headers().get("if-none-match").ok().flatten();
    let language = messages.language(None, accept_language(request).as_deref());
    Ok(Question::parse(wait, known.as_deref(), language)?.asked_by(caller))
}

pub(super) fn accept_language(request: &Request) -> Option<String> {
    request.headers().get("accept-language").ok().flatten()
}

async fn cancel(id: &JobId, question: &Question, caller: &Caller, messages: &Messages, env: &Env) -> Answer {
    match JobStub::new(env, id).cancel(caller).await.map_err(|error| unavailable(Some(id), &error))? {
        Cancellation::Unknown => Err(ApiError::no_such_job()),
        Cancellation::Cancelled(published) => respond_with_status(published, caller, question, messages),
        Cancellation::Erased => respond(204, String::new(), &[("cache-control", "no-store")]),
        Cancellation::Withdrawing => {
            Err(ApiError::unavailable("the job is erased, but a copy for readers is not yet; try again", 2))
        }
    }
}

fn head_of(response: &Response) -> Answer {
    let head = Response::empty().map_err(|error| ApiError::unavailable(error.to_string(), 1))?;
    Ok(head.with_status(response.status_code()).with_headers(response.headers().clone()))
}

fn health(loaded: std::result::Result<&Config, &[Fault]>) -> Answer {
    struct Health<'a> {
        status: &'static str,
        version: &'static str,
        problems: &'a [Fault],
        warnings: Vec<Fault>,
    }
    json::output!(Health<'_> { status, version, problems, warnings });
    let version = env!("CARGO_PKG_VERSION");
    match loaded {
        Ok(config) => {
            let warnings = config.warnings();
            json(200, &Health { status: "ok", version, problems: &[], warnings }, &[("cache-control", "no-store")])
        }
        Err(problems) => {
            let health = Health { status: "misconfigured", version, problems, warnings: Vec::new() };
            json(503, &health, &[("cache-control", "no-store")])
        }
    }
}

/// The headers of a submission, or of a call that may become one.
pub(super) struct SubmissionHeaders {
    betas: Option<String>,
    version: Option<String>,
    key: Option<String>,
}

impl SubmissionHeaders {
    pub(super) fn of(request: &Request) -> Self {
        let header = |name: &str| request.headers().get(name).ok().flatten();
        Self { betas: header("anthropic-beta"), version: header("anthropic-version"), key: header("idempotency-key") }
    }

    pub(super) fn incoming<'a>(&'a self, client: &'a str, body: &'a [u8]) -> Incoming<'a> {
        Incoming {
            client,
            body,
            betas: self.betas.as_deref(),
            version: self.version.as_deref(),
            idempotency_key: self.key.as_deref(),
        }
    }
}

/// The body, which has to say that it is JSON if it says anything.
pub(super) async fn read_json(request: &mut Request) -> std::result::Result<Vec<u8>, ApiError> {
    submission::check_content_type(request.headers().get("content-type").ok().flatten().as_deref())?;
    read_body(request).await
}

/// The body, unless it is too large. Up to a bound the rest of such a one is read all the same, and dropped: to a client
/// that is still writing, a connection that is closed after an early answer is a broken pipe, and the answer is lost.
pub(super) async fn read_body(request: &mut Request) -> std::result::Result<Vec<u8>, ApiError> {
    let too_large = || ApiError::new(ErrorKind::TooLarge, format!("a submission has at most {MAX_BODY_BYTES} bytes"));
    let announced =
        request.headers().get("content-length").ok().flatten().and_then(|length| length.parse::<usize>().ok());
    if announced.is_some_and(|length| length > MAX_DRAINED_BYTES) {
        return Err(too_large());
    }
    let mut body = Vec::with_capacity(announced.filter(|length| *length <= MAX_BODY_BYTES).unwrap_or_default());
    // A request without a body has no stream either; an empty body is not JSON, and is told so.
    let Ok(mut stream) = request.stream() else { return Ok(body) };
    let mut received = 0_usize;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| ApiError::new(ErrorKind::InvalidRequest, "the body broke off"))?;
        received = received.saturating_add(chunk.len());
        if received > MAX_DRAINED_BYTES {
            break;
        }
        if received <= MAX_BODY_BYTES {
            body.extend_from_slice(&chunk);
        } else {
            body = Vec::new();
        }
    }
    if received > MAX_BODY_BYTES { Err(too_large()) } else { Ok(body) }
}

/// 304 to who knows it already.
fn respond_with_status(published: Published, caller: &Caller, question: &Question, messages: &Messages) -> Answer {
    let published = published.told_to(caller);
    let language = published.language(messages, question);
    let tag = published.tag(language, caller);
    let etag = status::etag(&tag);
    let caching = if published.is_final { "private, max-age=60" } else { "no-store" };
    let mut headers = vec![("etag", etag.as_str()), ("cache-control", caching), VARY];
    if question.known.as_ref() == Some(&tag) {
        return respond(304, String::new(), &headers);
    }
    let (status, language) = published.written(messages, language);
    headers.push(("content-language", language));
    let retry_after = published.retry_after_seconds.map(|seconds| seconds.to_string());
    headers.extend(retry_after.as_deref().map(|seconds| ("retry-after", seconds)));
    respond(200, status, &headers)
}

fn refusal(error: &ApiError, request_id: &str) -> Result<Response> {
    let retry_after = error.retry_after_seconds.map(|seconds| seconds.to_string());
    let headers = Headers::new();
    headers.set("content-type", "application/json")?;
    headers.set("cache-control", "no-store")?;
    for (name, value) in [("retry-after", retry_after.as_deref()), ("allow", error.allow)] {
        if let Some(value) = value {
            headers.set(name, value)?;
        }
    }
    Ok(Response::ok(error.body(request_id))?.with_status(error.kind.status()).with_headers(headers))
}

fn misconfigured(faults: &[Fault]) -> ApiError {
    let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
    ApiError::unavailable(format!("this deployment's configuration is broken: {}", list.join("; ")), 60)
}

pub(super) fn unavailable(job: Option<&JobId>, error: &ObjectError) -> ApiError {
    log::trouble(job.map(ToString::to_string).as_deref(), "job_object", &error.to_string());
    ApiError::unavailable("the job's storage did not answer; try again, with the same idempotency-key if you submit", 2)
}

pub(super) fn json(status: u16, value: &dyn ToJson, headers: &[(&str, &str)]) -> Answer {
    respond(status, json::write(value), headers)
}

pub(super) fn respond(status: u16, body: String, headers: &[(&str, &str)]) -> Answer {
    let build = || -> Result<Response> {
        let response = if body.is_empty() { Response::empty()? } else { Response::ok(body)? };
        let all = Headers::new();
        all.set("content-type", "application/json")?;
        for (name, value) in headers {
            all.set(name, value)?;
        }
        Ok(response.with_status(status).with_headers(all))
    };
    build().map_err(|error| ApiError::unavailable(error.to_string(), 1))
}

/// Of what holds a message to the job's user.
const VARY: (&str, &str) = ("vary", "accept-language");

/// Twice the largest body that the Messages API takes: whoever sends more is no client of ours.
const MAX_DRAINED_BYTES: usize = 64 * 1024 * 1024;
