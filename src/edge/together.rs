//! Several futures side by side.

use std::future::poll_fn;
use std::task::Poll;

use futures_util::future::LocalBoxFuture;

/// Waits until all of them are done. There are a handful, so each wake-up may ask every one; the queue that `join_all` keeps
/// for thousands is code that nobody runs.
pub(super) async fn all(mut futures: Vec<LocalBoxFuture<'_, ()>>) {
    poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
