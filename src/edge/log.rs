//! Events as log lines: one JSON object a line, which Workers Logs indexes; and to be counted.

use worker::{console_error, console_log};

use super::meter;
use crate::telemetry::Event;

/// Writes one event.
pub(super) fn event(event: &Event<'_>) {
    meter::note(event);
    if event.is_trouble() {
        console_error!("{}", event.line());
    } else {
        console_log!("{}", event.line());
    }
}

/// Something of ours did not work.
pub(super) fn trouble(job: Option<&str>, part: &str, message: &str) {
    event(&Event::Trouble { job, part, message });
}
