//! The one line that a call which is waited for leaves in the log, however it ends.

use std::cell::Cell;
use std::rc::Rc;

use super::{clock, log};
use crate::policy::time::millis;
use crate::relay::Outcome;
use crate::submission::AcceptedCall;
use crate::telemetry::Event;

/// A call's, open until it has ended or has become a job. Dropped before, the call was given up.
pub(super) struct Account {
    pub(super) call: AcceptedCall,
    calls: Cell<u32>,
    is_closed: Cell<bool>,
}

/// What it is closed with.
#[derive(Default)]
pub(super) struct Closing<'a> {
    pub(super) job: Option<&'a str>,
    pub(super) model_used: Option<&'a str>,
    pub(super) cause: Option<&'a str>,
    pub(super) exposed: bool,
}

impl Account {
    pub(super) fn open(call: AcceptedCall) -> Rc<Self> {
        Rc::new(Self { call, calls: Cell::new(0), is_closed: Cell::new(false) })
    }

    /// Calls to the upstream so far.
    pub(super) fn calls(&self) -> u32 {
        self.calls.get()
    }

    pub(super) fn count(&self, calls: u32) {
        self.calls.set(calls);
    }

    /// The first time counts.
    pub(super) fn close(&self, outcome: Outcome, closing: &Closing<'_>) {
        if self.is_closed.replace(true) {
            return;
        }
        let record = &self.call.accepted.record;
        log::event(&Event::SyncCall {
            job: closing.job,
            client: &record.client,
            kind: &record.spec.kind,
            priority: record.spec.priority.name(),
            model: &record.spec.model,
            model_used: closing.model_used,
            ended: outcome.name(),
            cause: closing.cause,
            exposed: closing.exposed,
            calls: self.calls(),
            age_ms: millis(clock::now().since(record.created_at)),
        });
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.close(Outcome::Abandoned, &Closing::default());
    }
}
