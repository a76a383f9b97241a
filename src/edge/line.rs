//! The line to who called. People go away: they close the page, abort, lose the network.

use std::future::{Future, pending};
use std::pin::pin;

use futures_channel::oneshot;
use futures_util::future::{Either, select};
use js_sys::Reflect;
use wasm_bindgen::JsCast;
use wasm_bindgen::closure::Closure;
use web_sys::AbortSignal;
use worker::{Context, Request};

/// What `work` comes to. If the caller goes away before, it is dropped where it stands.
pub(super) async fn while_held<F: Future>(request: &Request, context: &Context, work: F) -> Option<F::Output> {
    // A request whose caller is gone has no time left but for what is waited for, and what was dropped has ends to tie.
    let (_over, is_over) = oneshot::channel::<()>();
    context.wait_until(async move {
        let _ = is_over.await;
    });
    match select(pin!(work), pin!(hung_up(request))).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(((), _)) => None,
    }
}

/// Comes when the caller has gone; never, where the platform does not say (`enable_request_signal` in wrangler.toml).
async fn hung_up(request: &Request) {
    let signal = Reflect::get(request.inner(), &"signal".into()).ok();
    let Some(signal) = signal.and_then(|signal| signal.dyn_into::<AbortSignal>().ok()) else {
        return pending().await;
    };
    let (tell, told) = oneshot::channel::<()>();
    let on_abort = Closure::once(move || drop(tell));
    signal.set_onabort(Some(on_abort.as_ref().unchecked_ref()));
    let listening = Listening { signal, _on_abort: on_abort };
    if !listening.signal.aborted() {
        let _ = told.await;
    }
}

/// Nobody may call what is dropped.
struct Listening {
    signal: AbortSignal,
    _on_abort: Closure<dyn FnMut()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.signal.set_onabort(None);
    }
}
