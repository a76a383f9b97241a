//! A job's status as the app sees it.
//!
//! A status is put together where the job is, kept in KV, and read everywhere in the world; the message in it is for whoever
//! reads. So what is kept names the message by its code only ([`Published`]), and the words are set in when it is answered.
//! Hence the ETag: the same revision with another code, or in another language, is news. What only the operator is shown raises no
//! revision, or apps would be woken for what they cannot see; the operator's ETag ends with a mark of it.

use std::borrow::Cow;
use std::time::{Duration, UNIX_EPOCH};

use super::auth::Caller;
use super::error::{ApiError, ErrorKind};
use super::{backstage, view};
use crate::job::{Record, State};
use crate::json::{self, Fields, Json, Malformed, Text};
use crate::policy::time::{Timestamp, millis, whole_seconds};
use crate::policy::wording::{Facts, Messages, Stage, Wording};

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
    /// What its user is told.
    pub wording: Wording,
    /// The language that the job wants to be spoken of in.
    pub locale: Option<String>,
    /// The status itself: an object with what comes before the message,
    head: Text,
    /// and one with what comes after it.
    body: Text,
    /// What the operator is told besides; a copy of an older version has none.
    operator: Option<Text>,
    /// What the operator's tag ends with.
    operator_mark: Option<String>,
}

json::object!(Published {
    client,
    revision,
    is_final,
    retry_after_seconds,
    wording,
    locale,
    head,
    body,
    operator,
    operator_mark
});

/// What a reader of a status knows, how long it will wait for more, and which language it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The tag that it has (`If-None-Match`), without quotes; empty, which no job's is, if it cannot be one of ours.
    pub known: Option<String>,
    /// How long its answer may be held (`?wait=`).
    pub wait_seconds: u64,
    /// The language that suits it best (`Accept-Language`), where the job has none.
    pub language: String,
    /// Whether it is the operator's, whose status has more that can be news.
    pub of_operator: bool,
}

json::object!(Question { known, wait_seconds, language, of_operator = false });

impl Question {
    /// From the query string, the `If-None-Match` header, and the language that `Accept-Language` comes to.
    ///
    /// # Errors
    /// 400 if `wait` is no whole number from 0 to 60.
    pub fn parse(wait: Option<&str>, if_none_match: Option<&str>, language: &str) -> Result<Self, ApiError> {
        let wait_seconds = match wait.map(str::parse::<u64>) {
            None => 0,
            Some(Ok(seconds)) if seconds <= MAX_WAIT_SECONDS => seconds,
            Some(_) => {
                let message = format!("wait: must be a whole number of seconds from 0 to {MAX_WAIT_SECONDS}");
                return Err(ApiError::new(ErrorKind::InvalidRequest, message));
            }
        };
        let known = if_none_match.map(|header| unquoted(header).unwrap_or_default().to_owned());
        Ok(Self { known, wait_seconds, language: language.to_owned(), of_operator: false })
    }

    /// The same, asked by `caller`.
    #[must_use]
    pub fn asked_by(self, caller: &Caller) -> Self {
        Self { of_operator: *caller == Caller::Operator, ..self }
    }

    /// The tag that the job's status has for who asks, in `language`: that of [`Published::tag`], without putting it together.
    #[must_use]
    pub fn tag(&self, record: &Record, long_wait: Duration, now: Timestamp, language: &str) -> String {
        let mark = self.of_operator.then(|| backstage::mark(record));
        tag(record.revision, wording(record, long_wait, now), language, mark.as_deref())
    }

    /// Whether a status with this tag answers the question: it is news to who knows another one, or else final.
    #[must_use]
    pub fn is_answered_by(&self, tag: &str, is_final: bool) -> bool {
        match &self.known {
            Some(known) => known != tag,
            None => is_final,
        }
    }
}

/// How a job ended, for a caller who expects a Message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// With this Message, by this model.
    Done {
        /// The Message's JSON.
        message: &'a str,
        /// Who gave it.
        model_used: Cow<'a, str>,
    },
    /// With an error.
    Failed {
        /// Anthropic's `error.type`.
        kind: Cow<'a, str>,
        /// A sentence.
        message: Cow<'a, str>,
    },
    /// By the app's own wish.
    Cancelled,
}

impl Published {
    /// What is stored in KV for a finished job, and what the Job object answers for any. `said`: what is kept beside the record
    /// of what Claude said. A job that takes longer than
    /// `long_wait` says so.
    ///
    /// # Errors
    /// If the answer that was stored is no JSON, which it was when it came.
    pub fn new(record: &Record, said: Option<&[u8]>, long_wait: Duration, now: Timestamp) -> Result<Self, Malformed> {
        let is_final = record.state.is_terminal();
        let next_check = record.next_check(now).map_or(ASK_AGAIN_SECONDS, whole_seconds);
        let retry_after_seconds = (!is_final).then_some(next_check);
        Ok(Self {
            client: record.client.clone(),
            revision: record.revision,
            is_final,
            retry_after_seconds,
            wording: wording(record, long_wait, now),
            locale: record.spec.locale.clone(),
            head: json::write_text(&Head { id: record.id.to_string(), status: record.state.name() }),
            body: view::of(record, said, now)?,
            operator: Some(backstage::of(record)),
            operator_mark: Some(backstage::mark(record)),
        })
    }

    /// The language that it is answered in.
    #[must_use]
    pub fn language<'a>(&self, messages: &'a Messages, question: &Question) -> &'a str {
        messages.language(self.locale.as_deref(), Some(&question.language))
    }

    /// What a caller who holds the line can be told: nothing while the job goes on.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome<'_>> {
        let fields = Fields::parse(self.body.get()).ok()?;
        let text = |name: &str| fields.get(name).and_then(Json::string);
        if let Some(message) = fields.get("result") {
            return Some(Outcome::Done { message: message.get(), model_used: text("model_used").unwrap_or_default() });
        }
        if let Some(error) = fields.get("error").and_then(|error| Fields::parse(error.get()).ok()) {
            let kind = error.get("type").and_then(Json::string).unwrap_or_default();
            let message = error.get("message").and_then(Json::string).unwrap_or_default();
            return Some(Outcome::Failed { kind, message });
        }
        self.is_final.then_some(Outcome::Cancelled)
    }

    /// Its tag in `language`, for `caller`.
    #[must_use]
    pub fn tag(&self, language: &str, caller: &Caller) -> String {
        let mark = self.operator_mark.as_deref().filter(|_| *caller == Caller::Operator);
        tag(self.revision, self.wording, language, mark)
    }

    /// The same, with what is not for apps if it is the operator who asks.
    #[must_use]
    pub fn told_to(mut self, caller: &Caller) -> Self {
        if *caller != Caller::Operator {
            return self;
        }
        // Another try of its webhook, or its being done again, is news after the end.
        self.is_final = false;
        if let Some(operator) = self.operator.take()
            && let Some(body) = self.body.get().strip_suffix('}')
        {
            self.body = Text::new(format!("{body},\"operator\":{}}}", operator.get()));
        }
        self
    }

    /// The status in `language`, and the language that its message really is in.
    #[must_use]
    pub fn written<'a>(&self, messages: &'a Messages, language: &str) -> (String, &'a str) {
        let message = messages.message(language, self.wording);
        let (head, body) = (self.head.get(), self.body.get());
        let head = head.strip_suffix('}').unwrap_or(head);
        let body = body.strip_prefix('{').unwrap_or(body);
        (format!("{head},\"message\":{},{body}", json::write(&message)), message.language)
    }
}

/// What tells one status of a job from another, for its ETag: a revision, what its user is told, and in which language; and for
/// the operator a mark of what else is shown.
fn tag(revision: u64, wording: Wording, language: &str, mark: Option<&str>) -> String {
    let dash = if mark.is_some() { "-" } else { "" };
    format!("{revision}-{}-{language}{dash}{}", wording.name(), mark.unwrap_or_default())
}

/// The header of a tag; weak, since the seconds left of a wait change without it.
#[must_use]
pub fn etag(tag: &str) -> String {
    format!("W/\"{tag}\"")
}

/// The tag in an `If-None-Match` header, weak or not.
fn unquoted(if_none_match: &str) -> Option<&str> {
    let tag = if_none_match.trim();
    let tag = tag.strip_prefix("W/").unwrap_or(tag).strip_prefix('"')?.strip_suffix('"')?;
    (tag.len() <= MAX_TAG_BYTES).then_some(tag)
}

/// What the job's user is told.
#[must_use]
pub fn wording(record: &Record, long_wait: Duration, now: Timestamp) -> Wording {
    Wording::of(facts(record, now), long_wait)
}

/// How long until the user is told something else though nothing happens.
#[must_use]
pub fn wording_changes_in(record: &Record, long_wait: Duration, now: Timestamp) -> Option<Duration> {
    Wording::changes_in(facts(record, now), long_wait)
}

fn facts(record: &Record, now: Timestamp) -> Facts {
    let (stage, waited) = (stage(&record.state), now.since(record.created_at));
    Facts { stage, waited, slow: record.slow, downgraded: record.is_downgraded() }
}

const fn stage(state: &State) -> Stage {
    match state {
        State::Received => Stage::Received,
        State::Generating { .. } | State::Refining { .. } => Stage::Working,
        State::Retrying { .. } | State::Held { .. } => Stage::Waiting,
        State::Stalled { .. } => Stage::Stalled,
        State::Deferred => Stage::Deferred,
        State::Done { .. } => Stage::Done,
        State::Failed { .. } => Stage::Failed,
        State::Cancelled => Stage::Cancelled,
    }
}

struct Head {
    id: String,
    status: &'static str,
}

json::output!(Head { id, status });

pub(crate) fn rfc3339(at: Timestamp) -> String {
    // Year 9999 is the last that the format can write.
    let at = at.min(Timestamp::from_millis(253_402_300_799_000));
    let since_epoch = at.since(Timestamp::default());
    humantime::format_rfc3339_millis(UNIX_EPOCH + std::time::Duration::from_millis(millis(since_epoch))).to_string()
}

/// A revision, a code, a language and a mark take less.
const MAX_TAG_BYTES: usize = 100;

/// The longest that an answer is held.
const MAX_WAIT_SECONDS: u64 = 60;

/// When to ask again for a job that is being worked on.
const ASK_AGAIN_SECONDS: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_is_a_number_of_seconds_up_to_sixty() {
        let wait = |text| Question::parse(text, None, "en").map(|question| question.wait_seconds);
        assert_eq!(wait(None), Ok(0));
        assert_eq!(wait(Some("60")), Ok(60));
        for text in ["61", "-1", "1.5", "", "soon"] {
            assert!(wait(Some(text)).unwrap_err().message.contains("from 0 to 60"), "{text}");
        }
    }

    #[test]
    fn a_reader_that_knows_a_tag_waits_for_another_and_one_that_knows_none_for_the_end() {
        let question = |tag: Option<&str>| Question::parse(Some("9"), tag, "en").unwrap();
        let tag = |revision, wording, language| tag(revision, wording, language, None);
        let third = tag(3, Wording::Working, "en");
        assert!(!question(None).is_answered_by(&third, false));
        assert!(question(None).is_answered_by(&third, true));
        for known in [etag(&third), format!(" \"{third}\" ")] {
            assert!(!question(Some(&known)).is_answered_by(&third, true), "{known}");
            for news in [tag(4, Wording::Working, "en"), tag(3, Wording::Delayed, "en"), tag(3, Wording::Working, "ja")]
            {
                assert!(question(Some(&known)).is_answered_by(&news, false), "{news}");
            }
        }
        for rubbish in ["rubbish", "\"", "W/", &format!("\"{}\"", "x".repeat(101))] {
            assert_eq!(question(Some(rubbish)).known.as_deref(), Some(""), "{rubbish}");
        }
        assert!(question(Some("rubbish")).is_answered_by(&third, false));
    }

    #[test]
    fn moments_are_written_as_rfc_3339_and_absurd_ones_do_not_panic() {
        assert_eq!(rfc3339(Timestamp::from_millis(784_111_777_250)), "1994-11-06T08:49:37.250Z");
        assert!(rfc3339(Timestamp::from_millis(u64::MAX)).starts_with("9999-"));
    }
}
