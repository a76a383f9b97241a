//! `PUT /v1/gates/{model}/override`: what the operator sends, and what the gate is told (B11).
//!
//! `{"state": "open" | "closed"}` and what every [`order`](super::order) has. The end is a moment, as it is
//! what people agree on; it becomes a duration here, by the clock of the Worker that was asked, because between machines
//! only durations travel.
//!
//! Any id that a job could name as its model is taken, heard of or not: a gate is made when it is first asked for, and to keep
//! a model from being called before it ever was is a reason to override.

use super::error::ApiError;
use super::form::Form;
use super::order::{self, Ordered};
use crate::claude::request::{MAX_MODEL_BYTES, Problem};
use crate::policy::forced::Order;
use crate::policy::time::Timestamp;

/// Reads an order for the gate of `model`: `None` if that cannot be one.
///
/// # Errors
/// 400 with every fault, the model's among them.
pub fn order<'m>(model: Option<&'m str>, body: &[u8], now: Timestamp) -> Result<(&'m str, Order), ApiError> {
    let [until, note, author] = order::FIELDS;
    let mut form = Form::parse(body, &["state", until, note, author])?;
    let state = form.required("state", "\"open\" or \"closed\"");
    let ordered = Ordered::read(&mut form, now);
    if model.is_none() {
        form.problems.insert(0, no_model());
    }
    match (model, state, ordered) {
        (Some(model), Some(state), Some(Ordered { lasts, note, author, .. })) if form.problems.is_empty() => {
            Ok((model, Order { state, lasts, note, author }))
        }
        _ => Err(ApiError::invalid(form.problems)),
    }
}

/// The model whose order is taken back.
///
/// # Errors
/// 400 if it cannot be one.
pub fn model(model: Option<&str>) -> Result<&str, ApiError> {
    model.ok_or_else(|| ApiError::invalid(vec![no_model()]))
}

fn no_model() -> Problem {
    Problem::new("model", format!("must be the id of a model, of 1 to {MAX_MODEL_BYTES} visible ASCII characters"))
}
