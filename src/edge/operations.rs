//! The operator's routes that change something: orders for gates and queues, and jobs that are to be driven on.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use worker::{Context, Delay, Env, Method, Request};

use super::http::{Answer, read_json, respond, unavailable};
use super::stubs::{GateStub, JobStub, MeterStub, Regeneration};
use super::{clock, entropy, listing, log, meter, switches, together};
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::metrics::unfinished;
use crate::api::redriving::{self, Many, Outcome};
use crate::api::{overriding, queues};
use crate::config::Config;
use crate::job::{JobId, Record, Which};
use crate::policy::switches::{Name, Switches};
use crate::submission::{self, By, Creation};
use crate::telemetry::readings::Wanted;
use crate::telemetry::{Dispatch, Event, Noted};

/// `PUT` and `DELETE /v1/gates/{model}/override`.
pub(super) async fn force(
    model: Option<&str>,
    method: &Method,
    mut request: Request,
    caller: &Caller,
    env: &Env,
) -> Answer {
    caller.check_operator()?;
    let (model, order) = if *method == Method::Put {
        let body = read_json(&mut request).await?;
        let (model, order) = overriding::order(model, &body, clock::now())?;
        (model, Some(order))
    } else {
        (overriding::model(model)?, None)
    };
    let status = GateStub::new(env, model, "").command(order).await.map_err(|error| {
        log::trouble(None, "gate", &error.to_string());
        ApiError::unavailable("the gate did not answer; send the same again", 2)
    })?;
    respond(200, status.get().to_owned(), &[("cache-control", "no-store")])
}

/// `GET /v1/queues`.
pub(super) async fn queues(caller: &Caller, env: &Env) -> Answer {
    caller.check_operator()?;
    show(&switches::asked(env).await, env).await
}

/// `PUT` and `DELETE /v1/queues/{priority}/pause` and `/v1/drain`.
pub(super) async fn switch(
    name: Option<Name>,
    method: &Method,
    mut request: Request,
    caller: &Caller,
    env: &Env,
    context: &Context,
) -> Answer {
    caller.check_operator()?;
    let (name, order) = if *method == Method::Put {
        let body = read_json(&mut request).await?;
        let (name, order) = queues::order(name, &body, clock::now())?;
        (name, Some(order))
    } else {
        (queues::name(name)?, None)
    };
    let (number, before) = switches::set(env, name, order.clone()).await.map_err(|error| {
        log::trouble(None, "kv", &error);
        ApiError::unavailable("the order could not be stored; send the same again", 2)
    })?;
    if let Some(event) = queues::switched(name, order.as_ref(), before.as_ref(), clock::now()) {
        log::event(&event);
        let noted = vec![Noted { number, at: clock::now(), line: event.line() }];
        tell(Dispatch { from: name.key().to_owned(), noted }, env, context).await;
    }
    show(&switches::known(env).await, env).await
}

/// Has a job stored, unless nothing new is taken. One that is stored already is not new.
pub(super) async fn take(record: &Record, request: &[u8], env: &Env) -> Result<Creation, ApiError> {
    let job = JobStub::new(env, &record.id);
    let unavailable = |error| unavailable(Some(&record.id), &error);
    match submission::check_drain(&switches::known(env).await, clock::now()) {
        Ok(()) => job.create(record, request).await.map_err(unavailable),
        Err(refusal) => job.peek().await.map_err(unavailable)?.ok_or(refusal),
    }
}

/// What came of a job that is to be done again, or driven on.
pub(super) enum Driven {
    /// There is nothing to do better.
    NotNeeded,
    /// It waited, and goes on now.
    SentAgain,
    /// The job that does it again, with the fingerprint of its submission.
    Job(Box<(Creation, String)>),
}

/// Has a job done again, as its user wants it; with `redrive` driven on, as the operator does.
///
/// 1. The job names the one that does it again, the same to everybody who asks.
/// 2. That one is created. Twice, it is created once; and if this is lost, whoever asks again does it.
/// 3. If its user has taken that one back, another is named.
pub(super) async fn do_again(
    id: &JobId,
    caller: &Caller,
    redrive: Option<&Which>,
    env: &Env,
) -> Result<Driven, ApiError> {
    let random = entropy::bits().ok_or_else(|| ApiError::unavailable("no randomness to name the job with", 1))?;
    let mut instead_of = None;
    loop {
        let job = JobStub::new(env, id);
        let asked = job.regenerate(caller, JobId::random(random), instead_of.clone(), redrive.cloned()).await;
        let (old, new_id, body) = match asked.map_err(|error| unavailable(Some(id), &error))? {
            (Regeneration::Unknown, _) => return Err(ApiError::no_such_job()),
            (Regeneration::NotNeeded, _) => return Ok(Driven::NotNeeded),
            (Regeneration::SentAgain, _) => return Ok(Driven::SentAgain),
            (Regeneration::As { record, id }, body) => (record, id, body),
        };
        let by = if redrive.is_some() { By::Operator } else { By::User };
        let (record, body) = submission::again(old, new_id, body, by, clock::now())?;
        let creation = take(&record, &body, env).await?;
        if instead_of.is_some() || !submission::is_taken_back(&creation) {
            return Ok(Driven::Job(Box::new((creation, record.fingerprint))));
        }
        instead_of = Some(record.id);
    }
}

/// `POST /v1/jobs/{id}/redrive`.
pub(super) async fn redrive(id: &JobId, caller: &Caller, env: &Env) -> Answer {
    caller.check_operator()?;
    let outcome = drive(id, caller, &Which::Any, env).await?;
    respond(200, redriving::one(id, &outcome), &[("cache-control", "no-store")])
}

/// `POST /v1/jobs/redrive`.
pub(super) async fn redrive_many(mut request: Request, caller: &Caller, config: &Config, env: &Env) -> Answer {
    caller.check_operator()?;
    let many = Many::parse(&read_json(&mut request).await?)?;
    if many.starts_jobs() {
        submission::check_drain(&switches::known(env).await, clock::now())?;
    }
    let clients = listing::everybody(config, env).await;
    let (jobs, next_cursor) = many.pick(&listing::ask_indexes(&clients, &many.asked, env).await?);
    // The answer has the list's order, whichever is driven on first.
    let mut outcomes = vec![Outcome::Unanswered; jobs.len()];
    let driving = jobs.iter().zip(&mut outcomes).map(|(id, outcome)| -> LocalBoxFuture<'_, ()> {
        let which = &many.which;
        Box::pin(async move {
            let driven = drive(id, caller, which, env).await;
            *outcome = driven.unwrap_or_else(|error| Outcome::of(&error));
        })
    });
    together::six_at_a_time(driving.collect()).await;
    let outcomes: Vec<_> = jobs.into_iter().zip(outcomes).collect();
    respond(200, redriving::many(&outcomes, next_cursor), &[("cache-control", "no-store")])
}

async fn drive(id: &JobId, caller: &Caller, which: &Which, env: &Env) -> Result<Outcome, ApiError> {
    let outcome = match do_again(id, caller, Some(which), env).await? {
        Driven::NotNeeded => Outcome::NotNeeded(None),
        Driven::SentAgain => Outcome::SentAgain,
        Driven::Job(done_again) if done_again.0.is_new => Outcome::StartedAgain(done_again.0.record.id),
        Driven::Job(done_again) => Outcome::NotNeeded(Some(done_again.0.record.id)),
    };
    if outcome.is_news() {
        let new_job = outcome.new_job().map(ToString::to_string);
        let job = id.to_string();
        log::event(&Event::JobRedriven { job: &job, outcome: outcome.name(), new_job: new_job.as_deref() });
    }
    Ok(outcome)
}

/// Tells the Meter object what was ordered; if it does not hear, again and again behind the answer. Told twice, it has heard it once.
async fn tell(dispatch: Dispatch, env: &Env, context: &Context) {
    let Err(error) = MeterStub::new(env).hear(&dispatch).await else { return };
    log::trouble(None, "meter", &error.to_string());
    let env = env.clone();
    context.wait_until(async move {
        for pause in TELL_PAUSES {
            Delay::from(pause).await;
            if MeterStub::new(&env).hear(&dispatch).await.is_ok() {
                return;
            }
        }
        log::trouble(None, "meter", "an order was not told to anybody");
    });
}

async fn show(switches: &Switches, env: &Env) -> Answer {
    meter::flush_now(env).await;
    let unfinished = match MeterStub::new(env).read(Wanted::default()).await {
        Ok(readings) => Some(unfinished(&readings.totals)),
        Err(error) => {
            log::trouble(None, "meter", &error.to_string());
            None
        }
    };
    let document = queues::document(switches, unfinished.as_ref(), clock::now());
    respond(200, document, &[("cache-control", "no-store")])
}

/// What is waited for behind an answer has half a minute.
const TELL_PAUSES: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5), Duration::from_secs(10)];
