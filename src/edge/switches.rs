//! The operator's switches in KV, and what this isolate remembers of them.
//!
//! A job is never late for them by more than one read in five seconds, and never fails for them: a KV that does not answer leaves
//! everything as it was known last.

use std::cell::RefCell;
use std::time::Duration;

use js_sys::{Array, Map};
use wasm_bindgen::{JsCast, JsValue};
use worker::{Delay, Env};

use super::results::{BINDING, write};
use super::{clock, js, log};
use crate::json;
use crate::policy::switches::{Name, Order, Switch, Switches};

thread_local! {
    static KNOWN: RefCell<Switches> = RefCell::default();
}

/// The switches, at most five seconds after KV has said so here.
pub(super) async fn known(env: &Env) -> Switches {
    if !KNOWN.with_borrow(|known| known.is_fresh(clock::now())) {
        ask(env).await;
    }
    KNOWN.with_borrow(Clone::clone)
}

/// The same, asked now.
pub(super) async fn asked(env: &Env) -> Switches {
    ask(env).await;
    KNOWN.with_borrow(Clone::clone)
}

/// Sets a switch, or with `None` takes that back; this isolate knows of it at once. The setting's number, and the order that was in
/// force before.
pub(super) async fn set(env: &Env, name: Name, order: Option<Order>) -> Result<(u64, Option<Order>), String> {
    let known = asked(env).await;
    let switch = known.set(name, order, clock::now());
    let entry = [name.key().into(), json::write(&switch).into()];
    if write(env, "put", &entry).await.is_err() {
        // Most likely it was set within this very second.
        Delay::from(WRITE_INTERVAL).await;
        write(env, "put", &entry).await?;
    }
    KNOWN.with_borrow_mut(|known| known.learn(name, Some(switch.clone()), clock::now()));
    Ok((switch.number(), known.order(name, clock::now()).cloned()))
}

async fn ask(env: &Env) {
    KNOWN.with_borrow_mut(|known| known.asking(clock::now()));
    let read = async {
        let keys: Array = Name::ALL.into_iter().map(|name| JsValue::from_str(name.key())).collect();
        let options = js::object(&[("cacheTtl", CACHE_SECONDS.into())])?;
        js::settle(&js::binding(env, BINDING)?, "get", &[keys.into(), options]).await
    };
    match clock::within(PATIENCE, read).await.map(|read| read.map(|values| values.dyn_into::<Map>())) {
        Some(Ok(Ok(values))) => KNOWN.with_borrow_mut(|known| {
            for name in Name::ALL {
                let stored = values.get(&name.key().into()).as_string();
                known.learn(name, stored.and_then(|text| json::read::<Switch>(&text).ok()), clock::now());
            }
        }),
        Some(Ok(Err(_))) => log::trouble(None, "kv", "a read of several keys gave no map"),
        Some(Err(error)) => log::trouble(None, "kv", &error.to_string()),
        None => log::trouble(None, "kv", "a read took too long"),
    }
    KNOWN.with_borrow_mut(Switches::asked);
}

/// The least that KV takes: how long the place where this isolate runs may remember what KV said.
const CACHE_SECONDS: u32 = 30;
/// Somebody may be waiting for a receipt.
const PATIENCE: Duration = Duration::from_secs(2);
/// KV takes one write a second for each key.
const WRITE_INTERVAL: Duration = Duration::from_millis(1_100);
