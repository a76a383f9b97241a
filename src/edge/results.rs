//! Finished jobs in KV: cheap reads everywhere in the world for the status route.
//!
//! Nothing depends on KV being fresh, or there at all: a miss asks the Job object, and a read that fails is a miss.

use std::time::Duration;

use worker::Env;

use super::{clock, log};
use crate::api::status::Published;
use crate::job::JobId;
use crate::json;

/// The finished job, if KV has it.
pub(super) async fn get(env: &Env, id: &JobId) -> Option<Published> {
    let read = async { Ok::<_, worker::Error>(env.kv(BINDING)?.get(&key(id)).text().await?) };
    match clock::within(PATIENCE, read).await {
        Some(Ok(text)) => json::read(&text?).ok(),
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
    let value = serde_json::to_string(published).map_err(|error| error.to_string())?;
    let write = async { Ok(env.kv(BINDING)?.put(&key(id), value)?.expiration_ttl(ttl_seconds).execute().await?) };
    settled(clock::within(PATIENCE, write).await)
}

/// Deletes a finished job.
pub(super) async fn delete(env: &Env, id: &JobId) -> Result<(), String> {
    let delete = async { Ok(env.kv(BINDING)?.delete(&key(id)).await?) };
    settled(clock::within(PATIENCE, delete).await)
}

/// Notes that `model` has a gate, so that the operator's list can name it.
pub(super) async fn note_gate(env: &Env, model: &str) -> Result<(), String> {
    let write = async { Ok(env.kv(BINDING)?.put(&format!("{GATE_PREFIX}{model}"), "")?.execute().await?) };
    settled(clock::within(PATIENCE, write).await)
}

/// The models that have gates; those of the last minute may be missing.
pub(super) async fn gates(env: &Env) -> Result<Vec<String>, String> {
    let list = async { Ok::<_, worker::Error>(env.kv(BINDING)?.list().prefix(GATE_PREFIX.into()).execute().await?) };
    let list = match clock::within(PATIENCE, list).await {
        Some(Ok(list)) => list,
        Some(Err(error)) => return Err(error.to_string()),
        None => return Err("a list took too long".into()),
    };
    Ok(list.keys.iter().filter_map(|key| key.name.strip_prefix(GATE_PREFIX)).map(str::to_owned).collect())
}

fn settled(outcome: Option<worker::Result<()>>) -> Result<(), String> {
    match outcome {
        Some(result) => result.map_err(|error| error.to_string()),
        None => Err("a write took too long".into()),
    }
}

fn key(id: &JobId) -> String {
    format!("job:{id}")
}

const BINDING: &str = "RESULTS";
const GATE_PREFIX: &str = "gate:";
const PATIENCE: Duration = Duration::from_secs(10);
