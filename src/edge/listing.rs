//! `GET /v1/jobs`, by the steps of `api::listing`.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use worker::Env;

use super::http::{Answer, respond};
use super::stubs::{IndexStub, JobStub};
use super::{clock, log, results, settings, together};
use crate::api::address::Address;
use crate::api::auth::Caller;
use crate::api::error::{ApiError, ErrorKind};
use crate::api::listing::{Asked, Page};
use crate::config::Config;
use crate::job::JobId;
use crate::policy::time::Timestamp;

/// The jobs that `caller` may see.
pub(super) async fn list(address: Address<'_>, caller: &Caller, config: &Config, env: &Env) -> Answer {
    let asked = Asked::parse(address)?;
    let clients = match caller {
        Caller::Client(name) => vec![name.clone()],
        Caller::Operator => everybody(config, env).await,
        Caller::Reader => return Err(ApiError::new(ErrorKind::Permission, "a read token opens one job, and no list")),
    };
    let page = RefCell::new(ask_indexes(&clients, &asked, env).await?);
    let open = page.borrow().unconfirmed();
    let asking = open.iter().map(|id| -> LocalBoxFuture<'_, ()> { Box::pin(confirm(id, &page, env)) });
    // Whoever has not answered by then stays as it was told.
    clock::within(ALL_JOBS_PATIENCE, together::six_at_a_time(asking.collect())).await;
    let body = page.borrow().written(&asked, address.origin, *caller == Caller::Operator);
    respond(200, body, &[("cache-control", "no-store")])
}

/// Every client that has a key, or had one while it had jobs.
pub(super) async fn everybody(config: &Config, env: &Env) -> Vec<String> {
    let mut clients = results::clients(env).await.unwrap_or_else(|error| {
        log::trouble(None, "kv", &error);
        Vec::new()
    });
    for client in config.keys.clients() {
        if !clients.iter().any(|known| known == client) {
            clients.push(client.to_owned());
        }
    }
    clients
}

/// A page of all of them. A list with a client's jobs left out would look like a whole one: all answer, or there is none.
pub(super) async fn ask_indexes(clients: &[String], asked: &Asked, env: &Env) -> Result<Page, ApiError> {
    let (query, found) = (asked.query(), RefCell::new(Vec::new()));
    let asking = clients.iter().map(|client| -> LocalBoxFuture<'_, ()> {
        Box::pin(async {
            match IndexStub::new(env, client, "").list(&query).await {
                Ok(rows) => found.borrow_mut().push((client.clone(), rows)),
                Err(error) => log::trouble(None, "index", &error.to_string()),
            }
        })
    });
    together::six_at_a_time(asking.collect()).await;
    let found = found.into_inner();
    if found.len() < clients.len() {
        return Err(ApiError::unavailable("the list of jobs did not answer; the jobs themselves are not affected", 2));
    }
    Ok(Page::of(found, asked))
}

/// When the oldest job of all clients was submitted that is not over, as far as their indexes answer. That there is none has to be said
/// by all of them.
pub(super) async fn oldest(env: &Env) -> Result<Option<Timestamp>, Unknown> {
    let config = settings::load(env).map_err(|_| Unknown)?;
    let (clients, found) = (everybody(&config, env).await, RefCell::new(Vec::new()));
    let are_all_heard = Cell::new(true);
    let asking = clients.iter().map(|client| -> LocalBoxFuture<'_, ()> {
        Box::pin(async {
            match IndexStub::new(env, client, "").oldest().await {
                Ok(at) => found.borrow_mut().extend(at),
                Err(error) => {
                    log::trouble(None, "index", &error.to_string());
                    are_all_heard.set(false);
                }
            }
        })
    });
    if clock::within(OLDEST_PATIENCE, together::six_at_a_time(asking.collect())).await.is_none() {
        are_all_heard.set(false);
    }
    let oldest = found.into_inner().into_iter().min();
    if oldest.is_some() || are_all_heard.get() { Ok(oldest) } else { Err(Unknown) }
}

/// Nobody has said.
pub(super) struct Unknown;

async fn confirm(id: &JobId, page: &RefCell<Page>, env: &Env) {
    match JobStub::new(env, id).row().await {
        Ok(row) => page.borrow_mut().confirm(id, row),
        Err(error) => log::trouble(Some(&id.to_string()), "job_object", &error.to_string()),
    }
}

/// An alert waits for it.
const OLDEST_PATIENCE: Duration = Duration::from_secs(2);
/// Of a page's jobs together; each has less.
const ALL_JOBS_PATIENCE: Duration = Duration::from_secs(10);
