//! The one place where time is read.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use worker::{Date, Delay};

use crate::policy::time::Timestamp;

/// The time now. It stands still during computation on Cloudflare, and moves with I/O.
pub(super) fn now() -> Timestamp {
    Timestamp::from_millis(Date::now().as_millis())
}

/// What `future` came to, unless it took longer than `patience`.
pub(super) async fn within<F: Future>(patience: Duration, future: F) -> Option<F::Output> {
    match select(pin!(future), pin!(Delay::from(patience))).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(((), _)) => None,
    }
}
