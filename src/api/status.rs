//! A job's status as the app sees it.

use std::time::UNIX_EPOCH;

use super::error::{ApiError, ErrorKind};
use crate::claude::response::Message;
use crate::job::history::Entry;
use crate::job::{Record, State};
use crate::json::{self, Json, Malformed, Text};
use crate::policy::ladder::Downgrade;
use crate::policy::priority::Priority;
use crate::policy::time::{Timestamp, millis, whole_seconds};
use crate::policy::wording::Wording;

/// The status of a job, ready to be sent, with what is needed to decide who may have it and whether it is news.
#[derive(Debug)]
pub struct Published {
    /// Whose job it is.
    pub client: String,
    /// The status' revision, for its ETag.
    pub revision: u64,
    /// Whether nothing will change any more.
    pub is_final: bool,
    /// When to ask again, in seconds; `None` once it is final.
    pub retry_after_seconds: Option<u64>,
    /// The status itself.
    pub status: Text,
}

json::object!(Published { client, revision, is_final, retry_after_seconds, status });

/// What a reader of a status knows, and how long it will wait for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The revision that it has (`If-None-Match`); 0, which no job has, if the tag is none of ours.
    pub known_revision: Option<u64>,
    /// How long its answer may be held (`?wait=`).
    pub wait_seconds: u64,
}

json::object!(Question { known_revision, wait_seconds });

impl Question {
    /// From the query string and the `If-None-Match` header.
    ///
    /// # Errors
    /// 400 if `wait` is no whole number from 0 to 60.
    pub fn parse(wait: Option<&str>, if_none_match: Option<&str>) -> Result<Self, ApiError> {
        let wait_seconds = match wait.map(str::parse::<u64>) {
            None => 0,
            Some(Ok(seconds)) if seconds <= MAX_WAIT_SECONDS => seconds,
            Some(_) => {
                let message = format!("wait: must be a whole number of seconds from 0 to {MAX_WAIT_SECONDS}");
                return Err(ApiError::new(ErrorKind::InvalidRequest, message));
            }
        };
        let known_revision = if_none_match.map(|tag| revision_of(tag).unwrap_or_default());
        Ok(Self { known_revision, wait_seconds })
    }

    /// Whether a job at `revision` answers the question: it is news to who knows an older one, or else final.
    #[must_use]
    pub const fn is_answered_by(&self, revision: u64, is_final: bool) -> bool {
        match self.known_revision {
            Some(known) => known != revision,
            None => is_final,
        }
    }
}

impl Published {
    /// What is stored in KV for a finished job, and what the Job object answers for any.
    ///
    /// # Errors
    /// If the answer that was stored is no JSON, which it was when it came.
    pub fn new(record: &Record, answer: Option<&Message>, now: Timestamp) -> Result<Self, Malformed> {
        let status = json::write_text(&view(record, answer, now)?);
        let is_final = record.state.is_terminal();
        let next_check = record.next_check(now).map_or(ASK_AGAIN_SECONDS, whole_seconds);
        let retry_after_seconds = (!is_final).then_some(next_check);
        Ok(Self { client: record.client.clone(), revision: record.revision, is_final, retry_after_seconds, status })
    }

    /// The ETag; weak, since the seconds left of a wait change without it.
    #[must_use]
    pub fn etag(&self) -> String {
        format!("W/\"{}\"", self.revision)
    }
}

/// The revision that an `If-None-Match` header names, weak or not.
fn revision_of(if_none_match: &str) -> Option<u64> {
    let tag = if_none_match.trim();
    tag.strip_prefix("W/").unwrap_or(tag).strip_prefix('"')?.strip_suffix('"')?.parse().ok()
}

/// The sentence for a job in `state`.
#[must_use]
pub const fn wording(state: &State) -> Wording {
    match state {
        State::Received => Wording::Received,
        State::Generating { .. } | State::Refining { .. } | State::Retrying { .. } | State::Held { .. } => {
            Wording::Working
        }
        State::Stalled { .. } => Wording::Stalled,
        State::Deferred => Wording::Deferred,
        State::Done { .. } => Wording::Done,
        State::Failed { .. } => Wording::Failed,
        State::Cancelled => Wording::Cancelled,
    }
}

struct View<'a> {
    id: String,
    status: &'static str,
    message: MessageView,
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
    result: Option<Json<'a>>,
    reason: Option<&'static str>,
    error: Option<ErrorView<'a>>,
    history: Vec<HistoryView<'a>>,
    metadata: Option<&'a Text>,
    regenerates: Option<String>,
    created_at: String,
    updated_at: String,
    deadline_at: String,
    finished_at: Option<String>,
}

json::output!(sparse View<'_> { id, status, message, waiting, offer, kind, priority, model_requested, model_used, downgraded, downgrade_reason, attempts, calls, text, result, reason, error, history, metadata, regenerates, created_at, updated_at, deadline_at, finished_at });

struct MessageView {
    code: &'static str,
    text: &'static str,
}

json::output!(MessageView { code, text });

struct Waiting {
    reason: &'static str,
    next_check_seconds: u64,
    eta_seconds: Option<u64>,
}

json::output!(sparse Waiting { reason, next_check_seconds, eta_seconds });

/// What a stalled job asks.
struct Offer {
    answer_within_seconds: u64,
    without_answer: &'static str,
    resumes_at: String,
}

json::output!(Offer { answer_within_seconds, without_answer, resumes_at });

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

fn view<'a>(record: &'a Record, answer: Option<&'a Message>, now: Timestamp) -> Result<View<'a>, Malformed> {
    let wording = wording(&record.state);
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
    let waiting_reason = match &record.state {
        State::Retrying { cause } => Some(cause.name()),
        State::Held { reason } => Some(reason.name()),
        State::Deferred => Some("deferred"),
        _ => None,
    };
    let offer = match record.state {
        State::Stalled { until, resume_at } => Some(Offer {
            answer_within_seconds: whole_seconds(until.after(now)),
            without_answer: "deferred",
            resumes_at: rfc3339(resume_at),
        }),
        _ => None,
    };
    let waiting = record.next_check(now).zip(waiting_reason).map(|(wait, reason)| Waiting {
        reason,
        next_check_seconds: whole_seconds(wait),
        eta_seconds: record.eta_at.map(|at| whole_seconds(at.after(now))),
    });
    Ok(View {
        id: record.id.to_string(),
        status: record.state.name(),
        message: MessageView { code: wording.code(), text: wording.text() },
        waiting,
        offer,
        kind: &record.spec.kind,
        priority: record.spec.priority,
        model_requested: &record.spec.model,
        downgraded: model_used.map(|model| model != record.spec.model),
        downgrade_reason: downgrade,
        model_used,
        attempts: record.attempts,
        calls: record.calls,
        text: answer.map(|answer| answer.text.as_str()),
        result: answer.map(|answer| Json::parse(&answer.json)).transpose()?,
        reason,
        error,
        history: record.history.iter().map(history_view).collect(),
        metadata: record.spec.metadata.as_ref(),
        regenerates: record.spec.regenerates.as_ref().map(ToString::to_string),
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

fn rfc3339(at: Timestamp) -> String {
    // Year 9999 is the last that the format can write.
    let at = at.min(Timestamp::from_millis(253_402_300_799_000));
    let since_epoch = at.since(Timestamp::default());
    humantime::format_rfc3339_millis(UNIX_EPOCH + std::time::Duration::from_millis(millis(since_epoch))).to_string()
}

/// The longest that an answer is held.
const MAX_WAIT_SECONDS: u64 = 60;

/// When to ask again for a job that is being worked on.
const ASK_AGAIN_SECONDS: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_is_a_number_of_seconds_up_to_sixty() {
        let wait = |text| Question::parse(text, None).map(|question| question.wait_seconds);
        assert_eq!(wait(None), Ok(0));
        assert_eq!(wait(Some("60")), Ok(60));
        for text in ["61", "-1", "1.5", "", "soon"] {
            assert!(wait(Some(text)).unwrap_err().message.contains("from 0 to 60"), "{text}");
        }
    }

    #[test]
    fn a_reader_that_knows_a_revision_waits_for_another_and_one_that_knows_none_for_the_end() {
        let question = |tag| Question::parse(Some("9"), tag).unwrap();
        assert!(!question(None).is_answered_by(3, false));
        assert!(question(None).is_answered_by(3, true));
        assert!(!question(Some("W/\"3\"")).is_answered_by(3, true));
        assert!(question(Some("\"3\"")).is_answered_by(4, false));
        assert!(question(Some("rubbish")).is_answered_by(3, false));
    }

    #[test]
    fn moments_are_written_as_rfc_3339_and_absurd_ones_do_not_panic() {
        assert_eq!(rfc3339(Timestamp::from_millis(784_111_777_250)), "1994-11-06T08:49:37.250Z");
        assert!(rfc3339(Timestamp::from_millis(u64::MAX)).starts_with("9999-"));
    }
}
