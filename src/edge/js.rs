//! The bindings as JavaScript has them.
//!
//! workers-rs has a builder for each of these calls. They put their options together with serde, and with the options of
//! image resizing, custom metadata and the like that we never use: a tenth of the Worker, for five calls.

use js_sys::{Array, Function, Object, Promise, Reflect, Uint8Array};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use worker::{Env, Error, Result};

/// The binding `name`.
pub(super) fn binding(env: &Env, name: &str) -> Result<JsValue> {
    match Reflect::get(env, &name.into())? {
        value if value.is_object() => Ok(value),
        _ => Err(Error::BindingError(name.into())),
    }
}

/// What `method` of `object` returns.
pub(super) fn call(object: &JsValue, method: &str, arguments: &[JsValue]) -> Result<JsValue> {
    let function = Reflect::get(object, &method.into())?.dyn_into::<Function>();
    let function = function.map_err(|_| Error::RustError(format!("there is no {method}")))?;
    Ok(function.apply(object, &arguments.iter().collect::<Array>())?)
}

/// What the promise that `method` of `object` returns comes to.
pub(super) async fn settle(object: &JsValue, method: &str, arguments: &[JsValue]) -> Result<JsValue> {
    let promise = Promise::resolve(&call(object, method, arguments)?);
    Ok(JsFuture::from(promise).await?)
}

/// An object with these members.
pub(super) fn object(members: &[(&str, JsValue)]) -> Result<JsValue> {
    let object = Object::new();
    for (name, value) in members {
        Reflect::set(&object, &(*name).into(), value)?;
    }
    Ok(object.into())
}

/// A copy of `bytes` that JavaScript can have.
pub(super) fn bytes(bytes: &[u8]) -> JsValue {
    Uint8Array::from(bytes).into()
}
