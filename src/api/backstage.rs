//! What the operator is told of a job besides its status: `operator` in `GET /v1/jobs/{id}` with `ADMIN_KEY`.
//!
//! Whose job it is, how it was to be treated, what it has waited for, and where its webhook goes. An app knows its own wishes and is
//! told in words why it waits; how often the gate has sent its job back to sleep is the business of whoever runs the gate, and
//! would be one more promise if apps read it. It is a member of its own, so that an app's status is the same for both but for that.

use sha2::{Digest, Sha256};

use super::status::rfc3339;
use crate::job::history::Stay;
use crate::job::{Record, State};
use crate::json::{self, Text};
use crate::policy::kinds::WhenExhausted;
use crate::policy::presets::Preset;

/// Of this job.
pub(super) fn of(record: &Record) -> Text {
    let spec = &record.spec;
    json::write_text(&Backstage {
        client: &record.client,
        model_called: match &record.state {
            State::Generating { model } | State::Refining { model } => Some(model),
            _ => None,
        },
        preset: spec.preset.map(Preset::name),
        when_exhausted: spec.when_exhausted.map(WhenExhausted::name),
        handed_over: spec.handed_over.then_some(true),
        deferrals: record.deferrals,
        stays: record.stays.iter().map(StayView::of).collect(),
        regenerated_as: record.regenerated_as.as_ref().map(ToString::to_string),
        webhook_target: spec.webhook.as_deref().map(without_query),
    })
}

/// What tells one state of it from another, and of the webhook's tries, for which no revision rises either. A digest of the
/// whole document would be another one with every second that a wait in it gets shorter.
pub(super) fn mark(record: &Record) -> String {
    let shown = format!("{}{}", of(record).get(), json::write(&record.notices));
    Sha256::digest(shown).iter().take(MARK_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

struct Backstage<'a> {
    client: &'a str,
    /// While it is called.
    model_called: Option<&'a str>,
    preset: Option<&'static str>,
    when_exhausted: Option<&'static str>,
    handed_over: Option<bool>,
    deferrals: u32,
    stays: Vec<StayView<'a>>,
    regenerated_as: Option<String>,
    webhook_target: Option<&'a str>,
}

json::output!(sparse Backstage<'_> { client, model_called, preset, when_exhausted, handed_over, deferrals, stays, regenerated_as, webhook_target });

struct StayView<'a> {
    reason: &'a str,
    from: String,
    until: Option<String>,
    waits: u32,
}

json::output!(sparse StayView<'_> { reason, from, until, waits });

impl<'a> StayView<'a> {
    fn of(stay: &'a Stay) -> Self {
        let Stay { reason, from, until, waits } = stay;
        Self { reason, from: rfc3339(*from), until: until.map(rfc3339), waits: *waits }
    }
}

/// What follows a question mark is often a secret of the app's.
fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url)
}

/// Two states of one job are not to be confused; nobody gains by making them so.
const MARK_BYTES: usize = 8;
