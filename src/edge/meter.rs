//! The way of the figures from where something happens to the Meter object.
//!
//! What is logged is added up in the isolate, and taken to the object at the end of whatever the isolate was doing: of a batch, of a
//! request once it is answered, of an alarm. Nothing waits for that, and nothing fails with it: what the object does not take is
//! kept for the next time, up to a bound; what an isolate had that is evicted is lost, and so much less is counted.

use std::cell::RefCell;
use std::time::Duration;

use worker::{Delay, Env};

use super::stubs::MeterStub;
use super::{js, log};
use crate::telemetry::metric::Counts;
use crate::telemetry::{Event, News};

thread_local! {
    static PENDING: RefCell<News> = RefCell::default();
}

/// Counts an event.
pub(super) fn note(event: &Event<'_>) {
    PENDING.with_borrow_mut(|pending| pending.note(event));
}

/// Notes what the deployment is called by: who is alerted is shown the way to its page.
pub(super) fn note_origin(origin: &str) {
    PENDING.with_borrow_mut(|pending| {
        if pending.origin.is_none() {
            pending.origin = Some(origin.to_owned());
        }
    });
}

/// Whether there is something to be taken to the object.
pub(super) fn has_news() -> bool {
    PENDING.with_borrow(|pending| !pending.is_empty())
}

/// The same a little later, so that what happens at the same time goes together.
pub(super) async fn flush_soon(env: &Env) {
    Delay::from(TOGETHER).await;
    flush(env).await;
}

/// Takes all that there is to the Meter object, and to Analytics Engine where a dataset is bound.
pub(super) async fn flush(env: &Env) {
    let news = PENDING.take();
    if news.is_empty() {
        return;
    }
    match MeterStub::new(env).take(&news).await {
        Ok(()) => analyse(env, &news.counts),
        Err(error) => {
            log::trouble(None, "meter", &error.to_string());
            PENDING.with_borrow_mut(|pending| pending.put_back(news));
        }
    }
}

/// One data point for each series; what is bound locally, or not at all, does nothing.
fn analyse(env: &Env, counts: &Counts) {
    let Ok(dataset) = js::binding(env, "METRICS") else { return };
    for (series, value) in counts.0.iter().take(POINTS_AT_ONCE) {
        let name = series.split('{').next().unwrap_or_default();
        // A sum of tokens has no more than the 53 bits of a double.
        #[allow(clippy::cast_precision_loss, reason = "counts are far smaller")]
        let value = *value as f64;
        let list = |item: wasm_bindgen::JsValue| js_sys::Array::of1(&item).into();
        let point = js::object(&[
            ("indexes", list(name.into())),
            ("blobs", list(series.as_str().into())),
            ("doubles", list(value.into())),
        ]);
        if let Ok(point) = point {
            let _ = js::call(&dataset, "writeDataPoint", &[point]);
        }
    }
}

const TOGETHER: Duration = Duration::from_millis(100);
/// The most that one invocation may write is 250.
const POINTS_AT_ONCE: usize = 200;
