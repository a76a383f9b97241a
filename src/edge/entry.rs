//! What the platform calls.

use std::rc::Rc;

use worker::{Context, Env, MessageBatch, Request, Response, Result, event};

use super::{consumer, http};

#[event(start)]
fn start() {
    console_error_panic_hook::set_once();
}

#[event(fetch)]
async fn fetch(request: Request, env: Env, context: Context) -> Result<Response> {
    http::answer(request, &env, &Rc::new(context)).await
}

/// Never fails: the macro makes an `Err` into a panic, which would take every other request of the isolate with it.
#[event(queue)]
async fn queue(batch: MessageBatch<String>, env: Env, _context: Context) -> Result<()> {
    consumer::consume(&batch, &env).await;
    Ok(())
}
