//! One POST to somebody else's server, who may answer, hang, or send elsewhere: webhooks and alerts.
//!
//! Redirects are not followed: they would carry the body to wherever they lead. Only the head of the answer is waited for, and
//! whatever is still under way then is aborted: nobody reads it.

use std::time::Duration;

use wasm_bindgen::{JsCast, JsValue};
use web_sys::AbortController;
use worker::Response;

use super::{clock, js};

/// The head of the answer, or in a sentence why there is none.
pub(super) async fn post(
    address: &str,
    headers: &[(&str, JsValue)],
    body: JsValue,
    patience: Duration,
) -> Result<Response, String> {
    let abort = AbortController::new().map(Abort).map_err(|_| "it cannot be sent".to_owned())?;
    let sent = async {
        let init = js::object(&[
            ("method", "POST".into()),
            ("headers", js::object(headers)?),
            ("redirect", "manual".into()),
            ("body", body),
            ("signal", abort.0.signal().into()),
        ])?;
        js::settle(&js_sys::global(), "fetch", &[address.into(), init]).await
    };
    match clock::within(patience, sent).await {
        None => Err(format!("no answer within {} s", patience.as_secs())),
        Some(Err(_)) => Err("the connection failed".to_owned()),
        Some(Ok(response)) => Ok(Response::from(response.unchecked_into::<web_sys::Response>())),
    }
}

struct Abort(AbortController);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}
