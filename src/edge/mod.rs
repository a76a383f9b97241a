//! The edge ring: the only code that awaits anything. It decides nothing.

use worker::{Context, Env, Request, Response, Result, event};

#[event(start)]
fn start() {
    console_error_panic_hook::set_once();
}

#[event(fetch)]
async fn fetch(_request: Request, _env: Env, _context: Context) -> Result<Response> {
    Response::from_json(&"spillway")
}
