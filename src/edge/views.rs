//! How the gates stand, as seen from this isolate: for calls that nobody can ask the gate for (A2). A view is good for a second,
//! or until a call of this isolate has gone wrong.

use std::cell::RefCell;
use std::time::Duration;

use worker::Env;

use super::stubs::GateStub;
use super::{clock, log};
use crate::policy::gate::View;
use crate::policy::priority::Priority;
use crate::policy::time::Timestamp;

thread_local! {
    static SEEN: RefCell<Vec<Seen>> = const { RefCell::new(Vec::new()) };
}

struct Seen {
    model: String,
    priority: Priority,
    at: Timestamp,
    view: View,
}

/// How the gate of `model` stands for a call of `priority`; `None` if it did not say soon enough.
pub(super) async fn look(env: &Env, model: &str, priority: Priority) -> Option<View> {
    let now = clock::now();
    let known = SEEN.with_borrow(|seen| {
        let is_fresh = |seen: &&Seen| now.since(seen.at) < GOOD_FOR && seen.at <= now;
        seen.iter().filter(is_fresh).find(|seen| seen.model == model && seen.priority == priority).map(|seen| seen.view)
    });
    if known.is_some() {
        return known;
    }
    match clock::within(PATIENCE, GateStub::new(env, model, "").view(priority)).await {
        Some(Ok(view)) => {
            forget(model);
            let seen = Seen { model: model.to_owned(), priority, at: clock::now(), view };
            SEEN.with_borrow_mut(|all| {
                all.retain(|seen| clock::now().since(seen.at) < GOOD_FOR);
                all.push(seen);
            });
            Some(view)
        }
        Some(Err(error)) => {
            log::trouble(None, "gate", &error.to_string());
            None
        }
        None => None,
    }
}

/// Something has happened to this gate: the next one looks again.
pub(super) fn forget(model: &str) {
    SEEN.with_borrow_mut(|all| all.retain(|seen| seen.model != model));
}

const GOOD_FOR: Duration = Duration::from_secs(1);
/// A person waits: a gate that takes longer is taken to be open for all.
const PATIENCE: Duration = Duration::from_millis(500);
