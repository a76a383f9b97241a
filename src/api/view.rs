//! What a job's status shows of it: everything in the document but its name, its state and its message.
//!
//! It is put together where the job is, and is the same for every reader; what the operator is shown besides is `backstage`.
//! Members that do not apply are left out. Moments are RFC 3339, what is left of a wait is whole seconds.

use super::status::rfc3339;
use super::webhook;
use crate::claude::response::Message;
use crate::job::history::Entry;
use crate::job::notice::{Notice, Progress};
use crate::job::{Record, State};
use crate::json::{self, Json, Malformed, Text};
use crate::policy::ladder::Downgrade;
use crate::policy::priority::Priority;
use crate::policy::time::{Timestamp, whole_seconds};

/// Of this job, with what is kept beside its record of what Claude said.
///
/// # Errors
/// If the answer that was stored is no JSON, which it was when it came.
pub(super) fn of(record: &Record, said: Option<&[u8]>, now: Timestamp) -> Result<Text, Malformed> {
    Ok(json::write_text(&view(record, &Said::of(record, said), now)?))
}

/// What Claude said.
enum Said<'a> {
    Nothing,
    Answer(Message),
    /// The text of an answer that broke off.
    Partial(&'a str),
}

impl<'a> Said<'a> {
    fn of(record: &Record, said: Option<&'a [u8]>) -> Self {
        let (Some(said), is_partial) = (said, record.is_interrupted()) else { return Self::Nothing };
        if is_partial {
            return std::str::from_utf8(said).map_or(Self::Nothing, Self::Partial);
        }
        // An answer that was stored is one that was read before.
        Message::from_json(said).map_or(Self::Nothing, Self::Answer)
    }

    const fn answer(&self) -> Option<&Message> {
        match self {
            Self::Answer(answer) => Some(answer),
            _ => None,
        }
    }

    const fn partial(&self) -> Option<&str> {
        match self {
            Self::Partial(text) => Some(text),
            _ => None,
        }
    }
}

/// The text of what is kept beside the record of what Claude said: of an answer, or of the part of one.
#[must_use]
pub fn text_of(record: &Record, said: Option<&[u8]>) -> Option<String> {
    match Said::of(record, said) {
        Said::Nothing => None,
        Said::Answer(answer) => Some(answer.text),
        Said::Partial(text) => Some(text.to_owned()),
    }
}

/// What comes after the message; `kind` is always there.
struct View<'a> {
    waiting: Option<Waiting>,
    offer: Option<Offer>,
    kind: &'a str,
    priority: Priority,
    model_requested: &'a str,
    model_used: Option<&'a str>,
    downgraded: Option<bool>,
    downgrade_reason: Option<&'static str>,
    attempts: u32,
    calls: u32,
    text: Option<&'a str>,
    partial_text: Option<&'a str>,
    result: Option<Json<'a>>,
    reason: Option<&'static str>,
    error: Option<ErrorView<'a>>,
    history: Vec<HistoryView<'a>>,
    metadata: Option<&'a Text>,
    regenerates: Option<String>,
    webhook: Option<WebhookView>,
    created_at: String,
    updated_at: String,
    deadline_at: String,
    finished_at: Option<String>,
}

json::output!(sparse View<'_> { waiting, offer, kind, priority, model_requested, model_used, downgraded, downgrade_reason, attempts, calls, text, partial_text, result, reason, error, history, metadata, regenerates, webhook, created_at, updated_at, deadline_at, finished_at });

struct Waiting {
    reason: &'static str,
    next_check_seconds: u64,
    eta_seconds: Option<u64>,
}

json::output!(sparse Waiting { reason, next_check_seconds, eta_seconds });

/// What a stalled job asks.
pub(super) struct Offer {
    answer_within_seconds: u64,
    without_answer: &'static str,
    resumes_at: String,
}

json::output!(Offer { answer_within_seconds, without_answer, resumes_at });

impl Offer {
    /// As it is at `now`.
    pub(super) fn new(until: Timestamp, resume_at: Timestamp, now: Timestamp) -> Self {
        Self {
            answer_within_seconds: whole_seconds(until.after(now)),
            without_answer: "deferred",
            resumes_at: rfc3339(resume_at),
        }
    }
}

/// How the telling of the app stands.
struct WebhookView {
    disabled_at: Option<String>,
    events: Vec<EventView>,
}

json::output!(sparse WebhookView { disabled_at, events });

struct EventView {
    id: String,
    r#type: &'static str,
    attempts: u32,
    delivered_at: Option<String>,
    next_attempt_seconds: Option<u64>,
    given_up_at: Option<String>,
    last_error: Option<String>,
}

json::output!(sparse EventView { id, r#type, attempts, delivered_at, next_attempt_seconds, given_up_at, last_error });

fn event_view(record: &Record, notice: &Notice, now: Timestamp) -> EventView {
    let mut view = EventView {
        id: webhook::id(record, notice),
        r#type: notice.news.event(),
        attempts: notice.tries,
        delivered_at: None,
        next_attempt_seconds: None,
        given_up_at: None,
        last_error: notice.last_error.clone(),
    };
    match notice.progress {
        Progress::Due { at } => view.next_attempt_seconds = Some(whole_seconds(at.after(now))),
        Progress::Delivered { at } => view.delivered_at = Some(rfc3339(at)),
        Progress::GivenUp { at } => view.given_up_at = Some(rfc3339(at)),
    }
    view
}

struct ErrorView<'a> {
    r#type: &'a str,
    message: &'a str,
    cause: Option<&'static str>,
    status: Option<u16>,
    request_id: Option<&'a str>,
}

json::output!(sparse ErrorView<'_> { r#type, message, cause, status, request_id });

struct HistoryView<'a> {
    at: String,
    model: &'a str,
    cause: &'static str,
    status: Option<u16>,
    request_id: Option<&'a str>,
    costs_attempt: bool,
    computed_wait_ms: Option<u64>,
    real_wait_ms: Option<u64>,
}

json::output!(HistoryView<'_> { at, model, cause, status, request_id, costs_attempt, computed_wait_ms, real_wait_ms });

fn view<'a>(record: &'a Record, said: &'a Said<'a>, now: Timestamp) -> Result<View<'a>, Malformed> {
    let last = record.history.last();
    let (mut model_used, mut downgrade, mut reason, mut error) = (None, None, None, None);
    match &record.state {
        State::Done { model_used: model, downgrade: why } => {
            (model_used, downgrade) = (Some(model.as_str()), why.map(Downgrade::name));
        }
        State::Failed { reason: code, cause, error_type, message } => {
            reason = Some(code.name());
            error = Some(ErrorView {
                r#type: error_type.as_deref().unwrap_or("api_error"),
                message,
                cause: cause.map(|cause| cause.name()),
                status: last.and_then(|entry| entry.status),
                request_id: last.and_then(|entry| entry.request_id.as_deref()),
            });
        }
        _ => {}
    }
    let offer = match record.state {
        State::Stalled { until, resume_at } => Some(Offer::new(until, resume_at, now)),
        _ => None,
    };
    let waiting = record.next_check(now).zip(record.state.waiting_reason()).map(|(wait, reason)| Waiting {
        reason,
        next_check_seconds: whole_seconds(wait),
        eta_seconds: record.eta_at.map(|at| whole_seconds(at.after(now))),
    });
    Ok(View {
        waiting,
        offer,
        kind: &record.spec.kind,
        priority: record.spec.priority,
        model_requested: &record.spec.model,
        downgraded: model_used.map(|_| record.is_downgraded()),
        downgrade_reason: downgrade,
        model_used,
        attempts: record.attempts,
        calls: record.calls,
        text: said.answer().map(|answer| answer.text.as_str()),
        partial_text: said.partial(),
        result: said.answer().map(|answer| Json::parse(&answer.json)).transpose()?,
        reason,
        error,
        history: record.history.iter().map(history_view).collect(),
        metadata: record.spec.metadata.as_ref(),
        regenerates: record.spec.regenerates.as_ref().map(ToString::to_string),
        webhook: record.spec.webhook.as_ref().map(|_| WebhookView {
            disabled_at: record.notices.disabled_at().map(rfc3339),
            events: record.notices.iter().map(|notice| event_view(record, notice, now)).collect(),
        }),
        created_at: rfc3339(record.created_at),
        updated_at: rfc3339(record.updated_at),
        deadline_at: rfc3339(record.deadline_at),
        finished_at: record.finished_at.map(rfc3339),
    })
}

fn history_view(entry: &Entry) -> HistoryView<'_> {
    HistoryView {
        at: rfc3339(entry.at),
        model: &entry.model,
        cause: entry.cause.name(),
        status: entry.status,
        request_id: entry.request_id.as_deref(),
        costs_attempt: entry.costs_attempt,
        computed_wait_ms: entry.computed_wait_ms,
        real_wait_ms: entry.real_wait_ms,
    }
}
