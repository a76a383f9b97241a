//! What the platform calls.

use std::rc::Rc;

use worker::{Context, Env, MessageBatch, Request, Response, Result, event};

use super::{consumer, http, meter};

#[event(start)]
fn start() {
    console_error_panic_hook::set_once();
}

#[event(fetch)]
async fn fetch(request: Request, env: Env, context: Context) -> Result<Response> {
    let context = Rc::new(context);
    let response = http::answer(request, &env, &context).await;
    if meter::has_news() {
        context.wait_until(async move { meter::flush_soon(&env).await });
    }
    response
}

/// Never fails: the macro makes an `Err` into a panic, which would take every other request of the isolate with it.
#[event(queue)]
async fn queue(batch: MessageBatch<String>, env: Env, _context: Context) -> Result<()> {
    consumer::consume(&batch, &env).await;
    meter::flush(&env).await;
    Ok(())
}
