//! Finished jobs in KV: cheap reads everywhere in the world for the status route.
//!
//! Nothing depends on KV being fresh, or there at all: a miss asks the Job object, and a read that fails is a miss.

use std::cell::RefCell;
use std::time::Duration;

use js_sys::{Array, Reflect};
use wasm_bindgen::JsValue;
use worker::Env;

use super::{clock, js, log};
use crate::api::status::Published;
use crate::job::JobId;
use crate::json::{self, Map};
use crate::policy::time::Timestamp;

thread_local! {
    /// By their prefix, and when KV was asked.
    static NAMES: RefCell<Map<&'static str, (Timestamp, Vec<String>)>> = RefCell::default();
}

/// The finished job, if KV has it.
pub(super) async fn get(env: &Env, id: &JobId) -> Option<Published> {
    let read = async { js::settle(&js::binding(env, BINDING)?, "get", &[key(id)]).await };
    match clock::within(PATIENCE, read).await {
        Some(Ok(text)) => json::read(&text.as_string()?).ok(),
        Some(Err(error)) => {
            log::trouble(Some(&id.to_string()), "kv", &error.to_string());
            None
        }
        None => {
            log::trouble(Some(&id.to_string()), "kv", "a read took too long");
            None
        }
    }
}

/// Stores a finished job for so long.
pub(super) async fn put(env: &Env, id: &JobId, published: &Published, ttl_seconds: u64) -> Result<(), String> {
    let value = json::write(published);
    let options =
        js::object(&[("expirationTtl", JsValue::from_f64(ttl_seconds as f64))]).map_err(|error| error.to_string())?;
    write(env, "put", &[key(id), value.into(), options]).await
}

/// Deletes a finished job.
pub(super) async fn delete(env: &Env, id: &JobId) -> Result<(), String> {
    write(env, "delete", &[key(id)]).await
}

/// Notes that `model` has a gate, so that the operator's list can name it.
pub(super) async fn note_gate(env: &Env, model: &str) -> Result<(), String> {
    remember(GATE_PREFIX, model);
    write(env, "put", &[format!("{GATE_PREFIX}{model}").into(), "".into()]).await
}

/// Notes that `client` has an index, so that the operator's list has its jobs also when its key is gone.
pub(super) async fn note_client(env: &Env, client: &str) -> Result<(), String> {
    remember(CLIENT_PREFIX, client);
    write(env, "put", &[format!("{CLIENT_PREFIX}{client}").into(), "".into()]).await
}

/// The clients that have an index; those of the last minute may be missing.
pub(super) async fn clients(env: &Env) -> Result<Vec<String>, String> {
    names(env, CLIENT_PREFIX).await
}

/// The models that have gates; those of the last minute may be missing.
pub(super) async fn gates(env: &Env) -> Result<Vec<String>, String> {
    names(env, GATE_PREFIX).await
}

/// What KV says that there is, remembered for as long as KV itself may be behind: there are a thousand lists a day on the free plan,
/// and who looks at the page has two of them every five seconds.
async fn names(env: &Env, prefix: &'static str) -> Result<Vec<String>, String> {
    let now = clock::now();
    let known = NAMES.with_borrow(|known| known.get(prefix).cloned());
    if let Some((_, names)) = known.filter(|(at, _)| *at <= now && now.since(*at) < REMEMBERED) {
        return Ok(names);
    }
    let names = listed(env, prefix).await?;
    NAMES.with_borrow_mut(|known| known.insert(prefix, (now, names.clone())));
    Ok(names)
}

/// What this isolate has noted itself, KV need not say.
fn remember(prefix: &'static str, name: &str) {
    NAMES.with_borrow_mut(|known| {
        if let Some((_, names)) = known.get_mut(&prefix).filter(|(_, names)| !names.iter().any(|it| it == name)) {
            names.push(name.to_owned());
        }
    });
}

async fn listed(env: &Env, prefix: &str) -> Result<Vec<String>, String> {
    let list = async {
        let options = js::object(&[("prefix", prefix.into())])?;
        let list = js::settle(&js::binding(env, BINDING)?, "list", &[options]).await?;
        Ok::<_, worker::Error>(Reflect::get(&list, &"keys".into())?)
    };
    let keys = match clock::within(PATIENCE, list).await {
        Some(Ok(keys)) => Array::from(&keys),
        Some(Err(error)) => return Err(error.to_string()),
        None => return Err("a list took too long".into()),
    };
    let name = |key: JsValue| Reflect::get(&key, &"name".into()).ok()?.as_string();
    Ok(keys.iter().filter_map(|key| name(key)?.strip_prefix(prefix).map(str::to_owned)).collect())
}

pub(super) async fn write(env: &Env, method: &str, arguments: &[JsValue]) -> Result<(), String> {
    let write = async { js::settle(&js::binding(env, BINDING)?, method, arguments).await };
    match clock::within(PATIENCE, write).await {
        Some(result) => result.map(drop).map_err(|error| error.to_string()),
        None => Err("a write took too long".into()),
    }
}

fn key(id: &JobId) -> JsValue {
    format!("job:{id}").into()
}

pub(super) const BINDING: &str = "RESULTS";
const GATE_PREFIX: &str = "gate:";
const CLIENT_PREFIX: &str = "client:";
const REMEMBERED: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(10);
