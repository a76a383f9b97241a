//! The way of the figures from where something happens to the Meter object.
//!
//! What is logged is added up in the isolate (`telemetry::teller`), and told to the object at the end of whatever the isolate was doing:
//! of a batch, of a request once it is answered, of an alarm. Nothing fails with it, and only a batch and an alarm wait for it, 2 s at
//! most, and not each time if the object does not answer. What it does not take is told again; what an isolate had that is evicted is
//! lost, and so much less is counted.

use std::cell::RefCell;
use std::time::Duration;

use worker::{Delay, Env};

use super::stubs::MeterStub;
use super::{clock, entropy, js, log};
use crate::telemetry::{Event, Teller};

thread_local! {
    static TELLER: RefCell<Teller> = RefCell::default();
}

/// Counts an event.
pub(super) fn note(event: &Event<'_>) {
    TELLER.with_borrow_mut(|teller| teller.note(event));
}

/// Notes what the deployment is called by: who is alerted is shown the way to its page.
pub(super) fn note_origin(origin: &str) {
    TELLER.with_borrow_mut(|teller| teller.note_origin(origin));
}

/// Whether there is something to be taken to the object.
pub(super) fn has_news() -> bool {
    let now = clock::now();
    TELLER.with_borrow(|teller| teller.has_news(now))
}

/// The same a little later, so that what happens at the same time goes together.
pub(super) async fn flush_soon(env: &Env) {
    Delay::from(TOGETHER).await;
    flush(env).await;
}

/// Tells the Meter object what there is, and Analytics Engine where a dataset is bound.
pub(super) async fn flush(env: &Env) {
    tell(env, false).await;
}

/// For somebody who wants to see it: also if the object did not answer just now.
pub(super) async fn flush_now(env: &Env) {
    tell(env, true).await;
}

async fn tell(env: &Env, insists: bool) {
    let now = clock::now();
    let news = TELLER.with_borrow_mut(|teller| teller.begin(now, insists, entropy::bits));
    analyse(env);
    let Some(news) = news else { return };
    let told = MeterStub::new(env).take(&news).await;
    let now = clock::now();
    TELLER.with_borrow_mut(|teller| teller.end(&news, told.is_ok(), now));
    if let Err(error) = told {
        log::trouble(None, "meter", &error.to_string());
    }
}

/// One data point for each series, as many as an invocation may write; what is bound locally, or not at all, does nothing.
fn analyse(env: &Env) {
    let Ok(dataset) = js::binding(env, "METRICS") else {
        return TELLER.with_borrow_mut(Teller::forget_points);
    };
    let points = TELLER.with_borrow_mut(|teller| teller.points(POINTS_AT_ONCE));
    for (series, value) in points.0.iter() {
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
/// One invocation may write 250
/// (<https://developers.cloudflare.com/analytics/analytics-engine/limits/>), and tells three times at most: when it is over, what its
/// call came to, and what is left of one that broke off.
const POINTS_AT_ONCE: usize = 80;
