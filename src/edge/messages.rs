//! `POST /v1/messages`: Anthropic's own API, for which a person waits. The steps are [`relay`](crate::relay)'s.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use worker::{Context, Delay, Env, Request, Response};

use super::account::{Account, Closing};
use super::http::{self, Answer};
use super::large::{self, CallBody};
use super::stubs::{GateStub, JobStub};
use super::upstream::{Line, Opened, Raw};
use super::{clock, entropy, js, line, log, passing, switches, views};
use crate::api::address::Address;
use crate::api::auth::Caller;
use crate::api::error::{ApiError, ErrorKind};
use crate::api::status::{self, Published, Question};
use crate::api::wish::Wish;
use crate::call::Call;
use crate::claude::failure::Failure;
use crate::claude::replay::Replay;
use crate::claude::request::call_body_prefix;
use crate::claude::{rewrite, version};
use crate::config::Config;
use crate::job::JobId;
use crate::policy::time::{Timestamp, whole_seconds};
use crate::relay::{Next, Outcome, Refusal, Relay, Says, Step};
use crate::submission::{self, AcceptedCall, Creation};

/// The deployment, for one request.
pub(super) struct Place<'a> {
    pub(super) config: &'a Rc<Config>,
    pub(super) env: &'a Env,
    pub(super) context: &'a Rc<Context>,
    pub(super) request_id: &'a str,
}

/// Answers a Messages call, unless its caller goes away first: that ends it, and the call to the upstream with it.
pub(super) async fn create(mut request: Request, address: Address<'_>, caller: &Caller, place: &Place<'_>) -> Answer {
    let arrived = clock::now();
    let Caller::Client(client) = caller else {
        return Err(ApiError::new(ErrorKind::Permission, "calls belong to clients: call with a client key"));
    };
    submission::check_content_type(request.headers().get("content-type").ok().flatten().as_deref())?;
    let body = large::read(&mut request, place.context).await?;
    let wish = Wish::parse(|name| request.headers().get(name).ok().flatten())?;
    let passed = passed_headers(&request);
    let line = Line { config: place.config, env: place.env, context: place.context, headers: &passed };
    let accepted = match &body {
        CallBody::Whole(body) => {
            let headers = http::SubmissionHeaders::of(&request);
            let incoming = headers.incoming(client, body);
            let random = entropy::bits().ok_or_else(|| ApiError::unavailable("no randomness to name a job with", 1))?;
            submission::accept_call(incoming, &wish, place.config, random, arrived)?
        }
        CallBody::Large(beginning, _) => {
            submission::accept_unread_call(client, beginning, &wish, place.config, arrived)?
        }
    };
    let Some(call) = accepted.map(|call| call.at(address.origin)) else {
        return passing::pass(&request, ("POST", "/v1/messages"), Some(body), &[NO_JOB], caller, &line).await;
    };
    let patience = wish.max_wait.unwrap_or(Duration::from_secs(place.config.policy.sync.max_wait_seconds));
    let at_work = AtWork {
        place,
        line,
        request: &request,
        address,
        body: &body,
        account: Account::open(call),
        // What is sent as a stream is gone with its first call.
        until: if matches!(body, CallBody::Whole(_)) { arrived + patience } else { arrived },
    };
    match line::while_held(&request, place.context, at_work.work()).await {
        Some(answer) => answer.inspect_err(|_| at_work.account.close(Outcome::Refused, &Closing::default())),
        None => Err(ApiError::new(ErrorKind::Unavailable, "the caller has gone")),
    }
}

/// A call at work.
struct AtWork<'a> {
    place: &'a Place<'a>,
    line: Line<'a>,
    request: &'a Request,
    address: Address<'a>,
    body: &'a CallBody,
    account: Rc<Account>,
    until: Timestamp,
}

impl AtWork<'_> {
    async fn work(&self) -> Answer {
        let Place { config, env, .. } = *self.place;
        let call = &self.account.call;
        let spec = &call.accepted.record.spec;
        let mut rng = entropy::rng();
        let mut last: Option<(Failure, Option<Raw>)> = None;
        let (mut relay, mut step) = Relay::start(spec, call.handoff, config, self.until, clock::now());
        if call.is_keyed
            && let Some(creation) = self.known().await?
        {
            return self.wait_for(creation, &relay).await;
        }
        loop {
            step = match step {
                Step::Look { model } => {
                    let view = views::look(env, &model, spec.priority).await;
                    relay.on_view(view, clock::now())
                }
                Step::Ask { model, asking } => {
                    let decision = GateStub::new(env, &model, "").permit(asking).await;
                    let decision = decision.inspect_err(|error| log::trouble(None, "gate", &error.to_string())).ok();
                    relay.on_decision(decision, clock::now())
                }
                Step::Call(to) => {
                    self.account.count(relay.calls());
                    let mut ours = vec![
                        ("spillway-model-used", to.model.clone()),
                        ("spillway-attempts", relay.calls().to_string()),
                    ];
                    ours.extend(self.account.call.accepted.mended.clone().map(|mended| ("spillway-mended", mended)));
                    if !call.can_be_kept() {
                        ours.push((NO_JOB.0, NO_JOB.1.to_owned()));
                    }
                    let body = match self.body {
                        CallBody::Whole(body) => js::bytes(&self.body_for(&to, body)),
                        CallBody::Large(_, stream) => stream.clone(),
                    };
                    match self.line.open(&to, body, &ours, &self.account).await {
                        Opened::Flowing(response) => return Ok(response),
                        Opened::Failed(failed) => {
                            let next = relay.on_failure(&failed.0, clock::now(), &mut rng);
                            last = Some(*failed);
                            next
                        }
                    }
                }
                Step::Pause(pause) => {
                    Delay::from(pause).await;
                    relay.on_pause(clock::now())
                }
                Step::HandOver => match relay.instead_of_a_job(&switches::known(env).await, clock::now()) {
                    Some(step) => step,
                    None => return self.hand_over(&relay).await,
                },
                Step::PassOn => return self.pass_on(last, &relay),
                Step::Refuse(refusal) => return self.refuse(refusal, &relay, None),
            };
        }
    }

    /// The body as it came, for the model that it names; for another one as that one needs it.
    fn body_for<'b>(&self, call: &Call, as_it_came: &'b [u8]) -> Cow<'b, [u8]> {
        let AcceptedCall { accepted, is_as_it_came, stream, .. } = &self.account.call;
        let asked = &accepted.record.spec.model;
        if *is_as_it_came && call.model == *asked {
            return as_it_came.into();
        }
        let mut body = call_body_prefix(&call.model, *stream).into_bytes();
        let rest = rewrite::for_model(accepted.request.as_bytes(), asked, &call.model, &self.place.config.models);
        body.extend_from_slice(&rest);
        body.push(b'}');
        body.into()
    }

    /// The job that a call with this idempotency key has become before.
    async fn known(&self) -> std::result::Result<Option<Creation>, ApiError> {
        let id = &self.account.call.accepted.record.id;
        JobStub::new(self.place.env, id).peek().await.map_err(|error| http::unavailable(Some(id), &error))
    }

    /// The call becomes a job.
    async fn hand_over(&self, relay: &Relay<'_>) -> Answer {
        let accepted = &self.account.call.accepted;
        let id = &accepted.record.id;
        let created = JobStub::new(self.place.env, id).create(&accepted.record, accepted.request.as_bytes()).await;
        self.wait_for(created.map_err(|error| http::unavailable(Some(id), &error))?, relay).await
    }

    /// The line is held for the job, as long as the caller wants.
    async fn wait_for(&self, creation: Creation, relay: &Relay<'_>) -> Answer {
        let (accepted, config) = (&self.account.call.accepted, self.place.config);
        let (id, fingerprint) = (&accepted.record.id, &accepted.record.fingerprint);
        let stub = || JobStub::new(self.place.env, id);
        submission::check_creation(&creation, fingerprint)?;
        self.close(Outcome::HandedOver, relay, Some(id), false);
        let language = self.language().to_owned();
        let mut next = relay.on_handed_over(clock::now());
        let mut answer: Option<Published> = None;
        loop {
            next = match next {
                Next::Receipt => {
                    let receipt = http::receive(self.request, &creation, fingerprint, self.address, config)?;
                    let (id, attempts) = (id.to_string(), relay.calls().to_string());
                    let mended = accepted.mended.as_deref().map(|mended| ("spillway-mended", mended));
                    for (name, value) in
                        [("spillway-job", id.as_str()), ("spillway-attempts", &attempts)].into_iter().chain(mended)
                    {
                        let _ = receipt.headers().set(name, value);
                    }
                    return Ok(receipt);
                }
                Next::Await(patience) => {
                    let (known, wait_seconds) = (None, whole_seconds(patience));
                    let question = Question { known, wait_seconds, language: language.clone(), of_operator: false };
                    match clock::within(patience, stub().status(&question)).await {
                        Some(Ok(Some(published))) => {
                            let next = relay.on_status(published.outcome().as_ref(), published.wording, clock::now());
                            answer = Some(published);
                            next
                        }
                        Some(Ok(None)) => return Err(ApiError::no_such_job()),
                        Some(Err(error)) => return Err(http::unavailable(Some(id), &error)),
                        None => relay.wait(clock::now()),
                    }
                }
                Next::Replay => match answer.as_ref().and_then(Published::outcome) {
                    Some(status::Outcome::Done { message, model_used }) => {
                        return self.replay(message, &model_used, relay);
                    }
                    _ => return Err(ApiError::no_such_job()),
                },
                Next::Refuse(refusal) => return self.refuse(refusal, relay, Some(id)),
            };
        }
    }

    /// The user's.
    fn language(&self) -> &str {
        self.place.config.policy.messages.language(None, http::accept_language(self.request).as_deref())
    }

    /// The job's answer, as the call's own would have come.
    fn replay(&self, message: &str, model_used: &str, relay: &Relay<'_>) -> Answer {
        let id = self.account.call.accepted.record.id.to_string();
        let attempts = relay.calls().to_string();
        let mut headers =
            vec![("spillway-job", id.as_str()), ("spillway-model-used", model_used), ("spillway-attempts", &attempts)];
        headers.extend(self.account.call.accepted.mended.as_deref().map(|mended| ("spillway-mended", mended)));
        match Replay::new(message.to_owned()).filter(|_| self.account.call.stream) {
            None => http::respond(200, message.to_owned(), &headers),
            Some(replay) => {
                headers.extend([("content-type", "text/event-stream"), ("cache-control", "no-cache")]);
                http::respond(200, replay.collect(), &headers)
            }
        }
    }

    fn close(&self, outcome: Outcome, relay: &Relay<'_>, job: Option<&JobId>, exposed: bool) {
        let job = job.map(ToString::to_string);
        let closing = Closing { job: job.as_deref(), model_used: None, cause: relay.reason(), exposed };
        self.account.close(outcome, &closing);
    }

    /// The upstream's last answer.
    fn pass_on(&self, last: Option<(Failure, Option<Raw>)>, relay: &Relay<'_>) -> Answer {
        let Some((_, Some(Raw { status, headers, body }))) = last else {
            return self.refuse(relay.unreachable(), relay, None);
        };
        self.close(Outcome::PassedOn, relay, None, relay.exposes());
        if relay.is_final() {
            let _ = headers.set(SHOULD_RETRY.0, SHOULD_RETRY.1);
        }
        if self.is_no_job(relay) {
            let _ = headers.set(NO_JOB.0, NO_JOB.1);
        }
        let _ = headers.set("spillway-attempts", &relay.calls().to_string());
        let response = Response::from_bytes(body).map_err(|error| ApiError::unavailable(error.to_string(), 1))?;
        Ok(response.with_status(status).with_headers(headers))
    }

    /// Whether it could not have become a job.
    fn is_no_job(&self, relay: &Relay<'_>) -> bool {
        let call = &self.account.call;
        !call.can_be_kept() || relay.is_kept_from_a_job(call.handoff)
    }

    fn refuse(&self, refusal: Refusal, relay: &Relay<'_>, job: Option<&JobId>) -> Answer {
        if job.is_none() {
            self.close(Outcome::Refused, relay, None, refusal.exposes());
        }
        let Refusal { kind, says, retry_after_seconds, is_final } = refusal;
        let message = match says {
            Says::Sentence(sentence) => sentence,
            Says::Message(wording) => {
                self.place.config.policy.messages.message(self.language(), wording).text.to_owned()
            }
        };
        let attempts = relay.calls().to_string();
        let (job, seconds) = (job.map(ToString::to_string), retry_after_seconds.map(|seconds| seconds.to_string()));
        let mut headers = vec![("spillway-attempts", attempts.as_str())];
        headers.extend(self.is_no_job(relay).then_some(NO_JOB));
        headers.extend(is_final.then_some(SHOULD_RETRY));
        headers.extend(job.as_deref().map(|job| ("spillway-job", job)));
        let mended = self.account.call.accepted.mended.as_deref();
        headers.extend(mended.map(|mended| ("spillway-mended", mended)));
        headers.extend(seconds.as_deref().map(|seconds| ("retry-after", seconds)));
        http::respond(kind.status(), ApiError::new(kind, message).body(self.place.request_id), &headers)
    }
}

/// What of the caller's headers is the upstream's business.
pub(super) fn passed_headers(request: &Request) -> Vec<(&'static str, String)> {
    let value = |name: &'static str| request.headers().get(name).ok().flatten().map(|value| (name, value));
    let mut headers: Vec<_> = ["content-type", "anthropic-beta"].into_iter().filter_map(value).collect();
    headers.push(value("anthropic-version").unwrap_or(("anthropic-version", version::DEFAULT.to_owned())));
    headers
}

/// The header of an answer to a call that could not be handed over.
const NO_JOB: (&str, &str) = ("spillway-handoff", "never");
/// Official SDKs obey it.
const SHOULD_RETRY: (&str, &str) = ("x-should-retry", "false");
