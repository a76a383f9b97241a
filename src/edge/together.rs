//! Several futures side by side.

use std::future::poll_fn;
use std::task::Poll;

use futures_util::future::LocalBoxFuture;

/// Waits until all of them are done. There are a handful, so each wake-up may ask every one; the queue that `join_all` keeps
/// for thousands is code that nobody runs.
pub(super) async fn all(futures: Vec<LocalBoxFuture<'_, ()>>) {
    at_a_time(usize::MAX, futures).await;
}

/// The same with no more than six of them begun and unfinished: as many as one invocation may have waiting for an answer.
pub(super) async fn six_at_a_time(futures: Vec<LocalBoxFuture<'_, ()>>) {
    at_a_time(6, futures).await;
}

async fn at_a_time(most: usize, mut futures: Vec<LocalBoxFuture<'_, ()>>) {
    poll_fn(|context| {
        let mut pending = 0;
        futures.retain_mut(|future| {
            let is_kept = pending == most || future.as_mut().poll(context).is_pending();
            pending += usize::from(is_kept && pending < most);
            is_kept
        });
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
