//! What the operator reads: the figures, and how the gates stand.

use std::cell::RefCell;
use std::time::Duration;

use futures_util::future::{LocalBoxFuture, join3};
use worker::{Env, Request};

use super::http::{Answer, json, respond, unavailable};
use super::stubs::{GateStub, MeterStub};
use super::{clock, listing, log, meter, results, switches, together};
use crate::api::address::Address;
use crate::api::auth::Caller;
use crate::api::metrics::{self, Format};
use crate::config::Config;
use crate::json::{self, Map, Text};

/// `GET /v1/metrics`
pub(super) async fn metrics(
    request: &Request,
    address: &Address<'_>,
    caller: &Caller,
    config: &Config,
    env: &Env,
) -> Answer {
    caller.check_operator()?;
    let accept = request.headers().get("accept").ok().flatten();
    let (format, wanted) = metrics::question(address, accept.as_deref())?;
    // What this isolate knows is told first: who asks after a call wants to see it.
    meter::flush_now(env).await;
    let mut readings = MeterStub::new(env).read(wanted).await.map_err(|error| unavailable(None, &error))?;
    let (body, content_type) = match format {
        Format::Json => (metrics::json(&readings), "application/json"),
        Format::Prometheus => {
            let (gates, oldest, switches) =
                join3(all_gates(config, env), listing::oldest(env), switches::asked(env)).await;
            let longest_wait = oldest.map(|at| at.map_or(Duration::ZERO, |at| clock::now().since(at)));
            metrics::add_gauges(&mut readings, &gates, &switches, longest_wait.ok());
            (readings.totals.exposition(), "text/plain; version=0.0.4; charset=utf-8")
        }
    };
    respond(200, body, &[("content-type", content_type), ("cache-control", "no-store")])
}

/// `GET /v1/gates`
pub(super) async fn gates(caller: &Caller, config: &Config, env: &Env) -> Answer {
    caller.check_operator()?;
    json(200, &Gates { gates: all_gates(config, env).await }, &[("cache-control", "no-store")])
}

/// How each gate stands, or that it does not say.
async fn all_gates(config: &Config, env: &Env) -> Map<String, Text> {
    let mut models = results::gates(env).await.unwrap_or_else(|error| {
        log::trouble(None, "kv", &error);
        Vec::new()
    });
    for model in [&config.primary_model, &config.fallback_model] {
        if !models.contains(model) {
            models.push(model.clone());
        }
    }
    let gates = RefCell::new(Map::default());
    let asked = models.into_iter().map(|model| -> LocalBoxFuture<'_, ()> { Box::pin(gate(model, &gates, env)) });
    together::all(asked.collect()).await;
    gates.take()
}

async fn gate(model: String, gates: &RefCell<Map<String, Text>>, env: &Env) {
    let status = GateStub::new(env, &model, "").status().await.unwrap_or_else(|error| {
        log::trouble(None, "gate", &error.to_string());
        json::write_text(&Silent { error: error.to_string() })
    });
    gates.borrow_mut().insert(model, status);
}

struct Gates {
    gates: Map<String, Text>,
}

json::output!(Gates { gates });

/// In place of a gate that does not answer.
struct Silent {
    error: String,
}

json::output!(Silent { error });
