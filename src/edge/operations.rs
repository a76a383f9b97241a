//! The operator's routes that change something: orders for gates and queues, and jobs that are to be driven on.

use worker::{Env, Method, Request};

use super::http::{Answer, read_json, respond};
use super::stubs::{GateStub, MeterStub};
use super::{clock, log, meter, switches};
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::metrics::unfinished;
use crate::api::{overriding, queues};
use crate::policy::priority::Priority;
use crate::policy::switches::{Name, Order, Switches};
use crate::telemetry::readings::Wanted;

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

/// `PUT` and `DELETE /v1/queues/{priority}/pause`.
pub(super) async fn pause(
    priority: Option<Priority>,
    method: &Method,
    mut request: Request,
    caller: &Caller,
    env: &Env,
) -> Answer {
    caller.check_operator()?;
    if *method == Method::Put {
        let body = read_json(&mut request).await?;
        let (name, order) = queues::pause(priority, &body, clock::now())?;
        switch(name, Some(order), env).await
    } else {
        switch(queues::queue(priority)?, None, env).await
    }
}

/// `PUT` and `DELETE /v1/drain`.
pub(super) async fn drain(method: &Method, mut request: Request, caller: &Caller, env: &Env) -> Answer {
    caller.check_operator()?;
    if *method == Method::Put {
        let body = read_json(&mut request).await?;
        let (name, order) = queues::drain(&body, clock::now())?;
        switch(name, Some(order), env).await
    } else {
        switch(Name::Drain, None, env).await
    }
}

async fn switch(name: Name, order: Option<Order>, env: &Env) -> Answer {
    switches::set(env, name, order).await.map_err(|error| {
        log::trouble(None, "kv", &error);
        ApiError::unavailable("the order could not be stored; send the same again", 2)
    })?;
    show(&switches::known(env).await, env).await
}

async fn show(switches: &Switches, env: &Env) -> Answer {
    meter::flush(env).await;
    let unfinished = match MeterStub::new(env).read(Wanted { minutes: 0 }).await {
        Ok(readings) => Some(unfinished(&readings.totals)),
        Err(error) => {
            log::trouble(None, "meter", &error.to_string());
            None
        }
    };
    let document = queues::document(switches, unfinished.as_ref(), clock::now());
    respond(200, document, &[("cache-control", "no-store")])
}
