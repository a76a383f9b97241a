//! Typed calls to the Durable Objects, each with its own timeout and a fresh stub: a stub can stay broken after its object
//! was reset, and an object that trapped never answers.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use wasm_bindgen::{JsCast, JsValue};
use worker::{Env, Error, Response};

use super::{clock, js, wire};
use crate::api::auth::Caller;
use crate::api::listing::Query;
use crate::api::status::{Published, Question};
use crate::job::{Begun, Claim, Interruption, JobId, Kept, Record, Renewal, Row, Settled, Settlement, Token, Which};
use crate::json::{self, FromJson, Text, ToJson};
use crate::policy::answer::{Asking, Decision, Ended, PermitId, Verdict};
use crate::policy::cause::Cause;
use crate::policy::forced::Order;
use crate::policy::gate::View;
use crate::policy::priority::Priority;
use crate::policy::rate_limits::RateLimits;
use crate::policy::time::Timestamp;
use crate::submission::Creation;
use crate::telemetry::readings::{Readings, Wanted};
use crate::telemetry::{Dispatch, News};

/// Why an object gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ObjectError {
    /// It has more to do than it can; asking again makes it worse.
    #[error("the object is overloaded")]
    Overloaded,
    /// Nothing within the timeout.
    #[error("the object did not answer in time")]
    Silent,
    /// Anything else that the platform or the object said.
    #[error("{0}")]
    Failed(String),
}

/// The object of one job.
pub(super) struct JobStub<'a> {
    env: &'a Env,
    name: String,
}

/// What a consumer says to a Job object while it is calling; more of the answer's text follows, raw.
pub(super) struct Renew {
    pub(super) token: Token,
    pub(super) has_content: bool,
    /// How many bytes of text come before it.
    pub(super) text_from: u32,
}

json::object!(Renew { token, has_content, text_from });

/// A Job object's answer to that.
pub(super) struct Renewed {
    pub(super) renewal: Renewal,
    /// How many bytes of text it has, if somebody watches.
    pub(super) text_from: Option<u32>,
}

json::object!(Renewed { renewal, text_from });

/// What a consumer says to a Job object when its call broke off after content.
pub(super) struct Interrupted {
    pub(super) token: Token,
    pub(super) cause: Cause,
}

json::object!(Interrupted { token, cause });

/// Somebody who wants to see a job's events.
pub(super) struct Watch {
    pub(super) caller: Caller,
    pub(super) last_event_id: Option<String>,
    /// The language that suits it best, where the job has none.
    pub(super) language: String,
}

json::object!(Watch { caller, last_event_id, language });

/// What a consumer says to a Job object before it calls.
pub(super) struct Begin {
    pub(super) token: Token,
    pub(super) model: String,
}

json::object!(Begin { token, model });

/// What a consumer says to a Job object at the end of a delivery; the answer follows, raw.
pub(super) struct Settle {
    pub(super) token: Token,
    pub(super) settlement: Settlement,
}

json::object!(Settle { token, settlement });

/// A user's answer to the offer to defer.
pub(super) struct AnswerDeferral {
    pub(super) caller: Caller,
    pub(super) accept: bool,
}

json::object!(AnswerDeferral { caller, accept });

/// A Job object's answer to a caller that wants something of its job.
pub(super) enum Reply {
    /// There is no such job for this caller.
    Unknown,
    /// There is nothing to be done about it: it is not asking, or has nothing to tell.
    Void,
    /// It is done.
    Taken(Published),
}

json::choice!(Reply {
    "unknown" => Unknown,
    "void" => Void,
    "taken" => Taken(published),
});

/// A wish to have a job done again.
pub(super) struct Regenerate {
    pub(super) caller: Caller,
    pub(super) id: JobId,
    /// The job that did it again before, and was taken back.
    pub(super) instead_of: Option<JobId>,
    /// Whether it is the operator who drives the job on: then it is only done again if it has failed.
    pub(super) redrive: Option<Which>,
}

json::object!(Regenerate { caller, id, instead_of, redrive });

/// A Job object's answer to that; the request follows, raw.
#[allow(clippy::large_enum_variant, reason = "there is one of them at a time, and it is taken apart at once")]
pub(super) enum Regeneration {
    /// There is no such job for this caller.
    Unknown,
    /// There is nothing to do better.
    NotNeeded,
    /// It waited, and goes on now.
    SentAgain,
    /// The job, and the one that does it again.
    As { record: Record, id: JobId },
}

json::choice!(Regeneration {
    "unknown" => Unknown,
    "not_needed" => NotNeeded,
    "sent_again" => SentAgain,
    "as" => As { record, id },
});

/// A Job object's answer to a caller that takes its job back.
pub(super) enum Cancellation {
    /// There is no such job for this caller.
    Unknown,
    /// It was unfinished, and is cancelled.
    Cancelled(Published),
    /// It was finished, and its content is gone.
    Erased,
    /// The same, but KV has not forgotten it yet.
    Withdrawing,
}

json::choice!(Cancellation {
    "unknown" => Unknown,
    "cancelled" => Cancelled(published),
    "erased" => Erased,
    "withdrawing" => Withdrawing,
});

impl<'a> JobStub<'a> {
    pub(super) fn new(env: &'a Env, id: &JobId) -> Self {
        Self { env, name: id.to_string() }
    }

    /// Stores a job with its request.
    pub(super) async fn create(&self, record: &Record, request: &[u8]) -> Result<Creation, ObjectError> {
        self.ask("create", wire::frame(record, request)).await
    }

    /// Stores a job that is over from its beginning, with its request.
    pub(super) async fn keep(&self, kept: &Kept, request: &[u8]) -> Result<(), ObjectError> {
        self.ask("keep", wire::frame(kept, request)).await
    }

    /// The job, if there is one already.
    pub(super) async fn peek(&self) -> Result<Option<Creation>, ObjectError> {
        self.ask("peek", Vec::new()).await
    }

    pub(super) async fn answer_deferral(&self, caller: &Caller, accept: bool) -> Result<Reply, ObjectError> {
        self.ask("deferral", json::write(&AnswerDeferral { caller: caller.clone(), accept }).into_bytes()).await
    }

    /// Has the job's webhook told once more.
    pub(super) async fn tell_again(&self, caller: &Caller) -> Result<Reply, ObjectError> {
        self.ask("webhook", json::write(caller).into_bytes()).await
    }

    /// What it takes to have the job done again as `id`, and its request.
    pub(super) async fn regenerate(
        &self,
        caller: &Caller,
        id: JobId,
        instead_of: Option<JobId>,
        redrive: Option<Which>,
    ) -> Result<(Regeneration, Vec<u8>), ObjectError> {
        self.ask_for_request("regenerate", &Regenerate { caller: caller.clone(), id, instead_of, redrive }).await
    }

    pub(super) async fn claim(&self, turn: u64) -> Result<Claim, ObjectError> {
        self.ask("claim", json::write(&turn).into_bytes()).await
    }

    /// The request's body, if the call may be made.
    pub(super) async fn begin(&self, token: Token, model: &str) -> Result<(Begun, Vec<u8>), ObjectError> {
        self.ask_for_request("begin", &Begin { token, model: model.to_owned() }).await
    }

    pub(super) async fn renew(&self, renew: &Renew, text: &str) -> Result<Renewed, ObjectError> {
        self.ask("renew", wire::frame(renew, text.as_bytes())).await
    }

    pub(super) async fn interrupted(&self, token: Token, cause: Cause) -> Result<Interruption, ObjectError> {
        self.ask("interrupted", json::write(&Interrupted { token, cause }).into_bytes()).await
    }

    /// The stream of its events, as the object answers it.
    pub(super) async fn events(&self, watch: &Watch) -> Result<Response, ObjectError> {
        let body = json::write(watch).into_bytes();
        let opening = open(self.env, JOB_BINDING, &self.name, &self.name, "events", &body);
        clock::within(PATIENCE, opening).await.ok_or(ObjectError::Silent)?
    }

    pub(super) async fn settle(
        &self,
        token: Token,
        settlement: Settlement,
        answer: &str,
    ) -> Result<Settled, ObjectError> {
        self.ask("settle", wire::frame(&Settle { token, settlement }, answer.as_bytes())).await
    }

    pub(super) async fn revive(&self, turn: u64) -> Result<(), ObjectError> {
        self.ask("revive", json::write(&turn).into_bytes()).await
    }

    pub(super) async fn cancel(&self, caller: &Caller) -> Result<Cancellation, ObjectError> {
        self.ask("cancel", json::write(caller).into_bytes()).await
    }

    /// The status, once it answers `question`, or when its wait is over.
    pub(super) async fn status(&self, question: &Question) -> Result<Option<Published>, ObjectError> {
        let patience = PATIENCE + Duration::from_secs(question.wait_seconds);
        ask(self.env, JOB_BINDING, &self.name, "status", &json::write(question).into_bytes(), patience).await
    }

    /// What its client's index should know; `None` if the job is there no more.
    pub(super) async fn row(&self) -> Result<Option<Row>, ObjectError> {
        ask(self.env, JOB_BINDING, &self.name, "row", &[], LIST_PATIENCE).await
    }

    async fn ask<T: FromJson>(&self, operation: &str, body: Vec<u8>) -> Result<T, ObjectError> {
        ask(self.env, JOB_BINDING, &self.name, operation, &body, PATIENCE).await
    }

    /// The answer, and the job's request behind it.
    async fn ask_for_request<T: FromJson>(
        &self,
        operation: &str,
        question: &impl ToJson,
    ) -> Result<(T, Vec<u8>), ObjectError> {
        let body = json::write(question).into_bytes();
        let bytes = exchange(self.env, JOB_BINDING, &self.name, &self.name, operation, &body, PATIENCE).await?;
        let (head, request) = wire::unframe(&bytes);
        Ok((wire::decode(head)?, request.to_vec()))
    }
}

/// The index of one client's jobs.
pub(super) struct IndexStub<'a> {
    env: &'a Env,
    client: &'a str,
    job: &'a str,
}

impl<'a> IndexStub<'a> {
    /// For a row of `job`; whoever lists has none.
    pub(super) const fn new(env: &'a Env, client: &'a str, job: &'a str) -> Self {
        Self { env, client, job }
    }

    pub(super) async fn tell(&self, row: &Row) -> Result<(), ObjectError> {
        self.exchange("tell", &json::write(row).into_bytes()).await.map(drop)
    }

    pub(super) async fn list(&self, query: &Query) -> Result<Vec<Row>, ObjectError> {
        Ok(wire::decode(&self.exchange("list", &json::write(query).into_bytes()).await?)?)
    }

    /// When the oldest of its jobs was submitted that are not over.
    pub(super) async fn oldest(&self) -> Result<Option<Timestamp>, ObjectError> {
        Ok(wire::decode(&self.exchange("oldest", b"").await?)?)
    }

    async fn exchange(&self, operation: &str, body: &[u8]) -> Result<Vec<u8>, ObjectError> {
        exchange(self.env, INDEX_BINDING, self.client, self.job, operation, body, LIST_PATIENCE).await
    }
}

/// The one object that counts.
pub(super) struct MeterStub<'a> {
    env: &'a Env,
}

impl<'a> MeterStub<'a> {
    pub(super) const fn new(env: &'a Env) -> Self {
        Self { env }
    }

    pub(super) async fn take(&self, news: &News) -> Result<(), ObjectError> {
        self.exchange("take", &json::write(news).into_bytes(), TAKE_PATIENCE).await.map(drop)
    }

    pub(super) async fn hear(&self, dispatch: &Dispatch) -> Result<(), ObjectError> {
        self.exchange("hear", &json::write(dispatch).into_bytes(), PATIENCE).await.map(drop)
    }

    pub(super) async fn read(&self, wanted: Wanted) -> Result<Readings, ObjectError> {
        Ok(wire::decode(&self.exchange("read", &json::write(&wanted).into_bytes(), PATIENCE).await?)?)
    }

    async fn exchange(&self, operation: &str, body: &[u8], patience: Duration) -> Result<Vec<u8>, ObjectError> {
        exchange(self.env, METER_BINDING, METER_NAME, "", operation, body, patience).await
    }
}

/// The gate of one model. A gate that is silent is asked once more, through a fresh stub; an overloaded one is not.
pub(super) struct GateStub<'a> {
    env: &'a Env,
    model: &'a str,
    job: &'a str,
}

/// A question to a gate.
pub(super) enum GateQuestion {
    Permit(Asking),
    Renew { permit: PermitId },
    Content { permit: PermitId, limits: RateLimits },
    Report(Ended),
    View { priority: Priority },
    Status,
    Force { order: Order },
    Release,
}

json::choice!(GateQuestion {
    "permit" => Permit(asking),
    "renew" => Renew { permit },
    "content" => Content { permit, limits },
    "report" => Report(ended),
    "view" => View { priority },
    "status" => Status,
    "force" => Force { order },
    "release" => Release,
});

impl<'a> GateStub<'a> {
    /// For a question of `job`; an operator's has none.
    pub(super) const fn new(env: &'a Env, model: &'a str, job: &'a str) -> Self {
        Self { env, model, job }
    }

    pub(super) async fn permit(&self, asking: Asking) -> Result<Decision, ObjectError> {
        self.ask(&GateQuestion::Permit(asking)).await
    }

    pub(super) async fn renew(&self, permit: PermitId) -> Result<bool, ObjectError> {
        self.ask(&GateQuestion::Renew { permit }).await
    }

    pub(super) async fn content(&self, permit: PermitId, limits: RateLimits) -> Result<(), ObjectError> {
        self.ask(&GateQuestion::Content { permit, limits }).await
    }

    pub(super) async fn report(&self, ended: Ended) -> Result<Verdict, ObjectError> {
        self.ask(&GateQuestion::Report(ended)).await
    }

    pub(super) async fn view(&self, priority: Priority) -> Result<View, ObjectError> {
        self.ask(&GateQuestion::View { priority }).await
    }

    pub(super) async fn status(&self) -> Result<Text, ObjectError> {
        self.ask(&GateQuestion::Status).await
    }

    /// Forces the gate, or with `None` takes that back. Asked twice, it does the same again.
    pub(super) async fn command(&self, order: Option<Order>) -> Result<Text, ObjectError> {
        self.ask(&order.map_or(GateQuestion::Release, |order| GateQuestion::Force { order })).await
    }

    async fn ask<T: FromJson>(&self, question: &GateQuestion) -> Result<T, ObjectError> {
        let body = json::write(question).into_bytes();
        let exchange = || exchange(self.env, GATE_BINDING, self.model, self.job, "gate", &body, GATE_PATIENCE);
        let answer = match exchange().await {
            Err(ObjectError::Silent | ObjectError::Failed(_)) => exchange().await?,
            answered => answered?,
        };
        Ok(wire::decode(&answer)?)
    }
}

async fn ask<T: FromJson>(
    env: &Env,
    binding: &str,
    name: &str,
    operation: &str,
    body: &[u8],
    patience: Duration,
) -> Result<T, ObjectError> {
    Ok(wire::decode(&exchange(env, binding, name, name, operation, body, patience).await?)?)
}

/// One request to an object, and its answer. The same code for every type that is asked for.
fn exchange<'a>(
    env: &'a Env,
    binding: &'a str,
    name: &'a str,
    job: &'a str,
    operation: &'a str,
    body: &'a [u8],
    patience: Duration,
) -> LocalBoxFuture<'a, Result<Vec<u8>, ObjectError>> {
    let exchange = async move {
        let mut response = open(env, binding, name, job, operation, body).await?;
        if response.status_code() == 200 {
            return Ok(response.bytes().await?);
        }
        let said = response.text().await.unwrap_or_default();
        Err(ObjectError::Failed(format!("{operation}: {} {said}", response.status_code())))
    };
    Box::pin(async move { clock::within(patience, exchange).await.ok_or(ObjectError::Silent)? })
}

/// The head of an object's answer.
fn open<'a>(
    env: &'a Env,
    binding: &'a str,
    name: &'a str,
    job: &'a str,
    operation: &'a str,
    body: &'a [u8],
) -> LocalBoxFuture<'a, Result<Response, ObjectError>> {
    Box::pin(async move {
        let stub = js::call(&js::binding(env, binding)?, "getByName", &[name.into()])?;
        let headers = js::object(&[(NAME_HEADER, name.into()), (ASKER_HEADER, job.into())])?;
        let init = [("method", "POST".into()), ("body", js::bytes(body)), ("headers", headers)];
        let url = format!("https://object/{operation}");
        let response = js::settle(&stub, "fetch", &[url.into(), js::object(&init)?]).await?;
        Ok(Response::from(response.unchecked_into::<web_sys::Response>()))
    })
}

impl From<Error> for ObjectError {
    /// Platform errors carry `overloaded` and `retryable` as properties of the thrown object.
    fn from(error: Error) -> Self {
        if let Error::UnknownJsError { original, .. } = &error
            && js_sys::Reflect::get(original, &JsValue::from_str("overloaded")).is_ok_and(|flag| flag.is_truthy())
        {
            return Self::Overloaded;
        }
        Self::Failed(error.to_string())
    }
}

/// Objects do not know their own name; their callers tell them.
pub(super) const NAME_HEADER: &str = "spillway-name";
/// The job that somebody asks for, for the log.
pub(super) const ASKER_HEADER: &str = "spillway-job";
const JOB_BINDING: &str = "JOB";
const GATE_BINDING: &str = "GATE";
const INDEX_BINDING: &str = "INDEX";
const METER_BINDING: &str = "METER";
const METER_NAME: &str = "meter";
const PATIENCE: Duration = Duration::from_secs(10);
/// A batch of jobs waits for it; what is taken too late is told again, and not counted twice.
const TAKE_PATIENCE: Duration = Duration::from_secs(2);
/// Twice this, and the job goes on without the gate.
const GATE_PATIENCE: Duration = Duration::from_secs(3);
/// Nothing but a list waits for these.
const LIST_PATIENCE: Duration = Duration::from_secs(3);
