//! The deployment's settings, read from the bindings once per isolate.

use std::cell::OnceCell;
use std::rc::Rc;

use wasm_bindgen::JsValue;
use worker::Env;

use crate::config::{Config, Fault};

type Loaded = Result<Rc<Config>, Rc<Vec<Fault>>>;

thread_local! {
    /// Bindings never change in an isolate's life.
    static LOADED: OnceCell<Loaded> = const { OnceCell::new() };
}

/// The settings, or everything that is wrong with them.
pub(super) fn load(env: &Env) -> Loaded {
    LOADED
        .with(|loaded| loaded.get_or_init(|| Config::parse(|key| var(env, key)).map(Rc::new).map_err(Rc::new)).clone())
}

/// A var or secret; one that wrangler.toml gives as an object comes back as its JSON. `object_var` is not used: it
/// accepts unknown keys in silence.
fn var(env: &Env, key: &str) -> Option<String> {
    let value = js_sys::Reflect::get(env, &JsValue::from_str(key)).ok()?;
    if value.is_undefined() || value.is_null() {
        return None;
    }
    value.as_string().or_else(|| js_sys::JSON::stringify(&value).ok().and_then(|json| json.as_string()))
}
