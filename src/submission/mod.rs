//! The way in: from an HTTP request to a job that is stored, and its receipt.
//!
//! 1. [`accept`]: checked, named, made into a record. Nothing has happened yet; every fault is a clear error.
//! 2. The edge asks the Job object to create it. The object stores the record and an alarm; from then on the receipt is
//!    true, whatever becomes of the queue.
//! 3. [`receipt`]: the same idempotency key with the same submission gets the same receipt again, with another one a
//!    conflict (B12).

mod form;

pub use form::{MAX_BODY_BYTES, MAX_CALL_BYTES, Submission, model_of};

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::api::error::{ApiError, ErrorKind};
use crate::api::read_token::ReadToken;
use crate::api::status::{rfc3339, wording};
use crate::api::wish::{Handoff, Wish};
use crate::claude::request::Problem;
use crate::claude::tool_history::{self, History};
use crate::config::Config;
use crate::job::{JobId, Record, Spec};
use crate::json;
use crate::policy::switches::Switches;
use crate::policy::time::{Timestamp, whole_seconds};
use crate::policy::wording::Message;

/// A call of the synchronous path.
#[derive(Debug)]
pub struct AcceptedCall {
    /// The job that it becomes if it is handed over.
    pub accepted: Accepted,
    /// Whether its body can be sent as it came: it names a model, and nothing had to be mended.
    pub is_as_it_came: bool,
    /// Whether the caller wants a stream.
    pub stream: bool,
    /// What becomes of it when it cannot be answered.
    pub handoff: Handoff,
    /// Whether it has an idempotency key: it may have become a job before.
    pub is_keyed: bool,
    /// The job in which the answer is kept if it breaks off, if the call can be kept. Never the one of the idempotency key: who sends
    /// the same call again wants it answered, and that job never will be.
    pub kept_as: Option<JobId>,
}

/// What came in, apart from the route.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Who submits.
    pub client: &'a str,
    /// The body.
    pub body: &'a [u8],
    /// The `anthropic-beta` header.
    pub betas: Option<&'a str>,
    /// The `anthropic-version` header.
    pub version: Option<&'a str>,
    /// The `idempotency-key` header.
    pub idempotency_key: Option<&'a str>,
}

/// A job that can be stored.
#[derive(Debug)]
pub struct Accepted {
    /// Its record.
    pub record: Record,
    /// Its Messages body without model and stream, to be kept beside it.
    pub request: String,
    /// What had to be mended in its tool history, for a header.
    pub mended: Option<String>,
}

impl Accepted {
    /// Submitted at this deployment's `origin`: what the app is told by its webhook leads back there.
    #[must_use]
    pub fn at(mut self, origin: &str) -> Self {
        let spec = &mut self.record.spec;
        spec.origin = spec.webhook.as_ref().map(|_| origin.to_owned());
        self
    }
}

/// The Job object's answer to a creation.
#[derive(Debug)]
pub struct Creation {
    /// Whether the job was stored now; otherwise it was there before.
    pub is_new: bool,
    /// The job as it is.
    pub record: Record,
}

json::object!(Creation { is_new, record });

/// What the caller gets.
#[derive(Debug)]
pub struct Receipt<'a> {
    /// The job's name.
    pub id: String,
    /// Where it stands; `received` for a new one.
    pub status: &'static str,
    /// Where to ask for it.
    pub status_url: String,
    /// Where to listen to it.
    pub events_url: String,
    /// What opens these two, and nothing else, where the deployment has a SIGNING_SECRET.
    pub read_token: Option<String>,
    /// Until when. RFC 3339.
    pub read_token_expires_at: Option<String>,
    /// A sentence for the user.
    pub message: Message<'a>,
}

json::output!(sparse Receipt<'_> { id, status, status_url, events_url, read_token, read_token_expires_at, message });

/// Refuses a body that does not say it is JSON; one that says nothing is given the benefit of the doubt.
///
/// # Errors
/// 415, saying what to send.
pub fn check_content_type(content_type: Option<&str>) -> Result<(), ApiError> {
    let media_type = content_type.unwrap_or("application/json").split(';').next().unwrap_or_default().trim();
    let is_json = media_type.eq_ignore_ascii_case("application/json")
        || (media_type.starts_with("application/") && media_type.ends_with("+json"));
    let message = "send JSON, with the header `content-type: application/json`";
    if is_json { Ok(()) } else { Err(ApiError::new(ErrorKind::UnsupportedMediaType, message)) }
}

/// Checks a submission and makes it into a record. `random` are 128 fresh random bits.
///
/// # Errors
/// What is wrong with it, all at once.
pub fn accept(incoming: Incoming<'_>, config: &Config, random: u128, now: Timestamp) -> Result<Accepted, ApiError> {
    let id = match incoming.idempotency_key {
        None => JobId::random(random),
        Some(key) => keyed_id(incoming.client, key, config)?,
    };
    let Submission { mut spec, request } = Submission::parse(incoming.body, incoming.betas, incoming.version, config)?;
    if spec.webhook.is_some() {
        check_webhooks(config)?;
    }
    let (request, mended) = mend(request.body_rest, &mut spec, "request.")?;
    let fingerprint = fingerprint(&incoming);
    let record = Record::new(id, incoming.client.to_owned(), spec, fingerprint, now);
    Ok(Accepted { record, request, mended })
}

/// Refuses webhooks where there is nothing to sign them with: one that nobody can verify is one that nobody should act on.
///
/// # Errors
/// 503, naming the secret.
pub fn check_webhooks(config: &Config) -> Result<(), ApiError> {
    if config.webhook_secrets.is_empty() {
        let not_set = "webhooks are signed with the secret WEBHOOK_SECRET, which this deployment does not have yet";
        return Err(ApiError::new(ErrorKind::Unavailable, not_set));
    }
    Ok(())
}

/// Refuses new work while the operator has none taken.
///
/// # Errors
/// 503, with the operator's note and what to do.
pub fn check_drain(switches: &Switches, now: Timestamp) -> Result<(), ApiError> {
    let Some(order) = switches.drain(now) else { return Ok(()) };
    let message = format!(
        "this deployment takes no new jobs until {}: {}; keep the request and submit it then, or to another deployment",
        rfc3339(order.until),
        order.note
    );
    // An order may be taken back before its end.
    Err(ApiError::unavailable(message, whole_seconds(order.left(now).min(LOOK_AGAIN))))
}

/// Checks a call of the synchronous path, and makes it into the record of the job that it becomes if it is handed over. If its body
/// is none that a job could have, the upstream will say what is wrong with it: see [`accept_unread_call`].
///
/// # Errors
/// What is wrong with the headers that are ours.
pub fn accept_call(
    incoming: Incoming<'_>,
    wish: &Wish,
    config: &Config,
    random: u128,
    now: Timestamp,
) -> Result<Option<AcceptedCall>, ApiError> {
    check_kind(wish, config)?;
    if wish.webhook.is_some() {
        check_webhooks(config)?;
    }
    let id = match incoming.idempotency_key {
        None => JobId::random(random),
        Some(key) => keyed_id(incoming.client, key, config)?,
    };
    let call = form::of_call(incoming.body, incoming.betas, incoming.version, wish, config);
    let Some(Submission { mut spec, request }) = call else {
        return accept_unread_call(incoming.client, incoming.body, wish, config, now);
    };
    let (names_model, stream) = (request.model.is_some(), request.stream);
    let (request, mended) = mend(request.body_rest, &mut spec, "")?;
    let record = Record::new(id, incoming.client.to_owned(), spec, fingerprint(&incoming), now);
    let is_as_it_came = names_model && mended.is_none();
    let kept_as = Some(JobId::random(random));
    let is_keyed = incoming.idempotency_key.is_some();
    let (handoff, accepted) = (wish.handoff, Accepted { record, request, mended });
    Ok(Some(AcceptedCall { accepted, is_as_it_came, stream, handoff, is_keyed, kept_as }))
}

/// A call whose body is none of a job's: too large, of which this is the beginning, or in a way wrong that the upstream may or may
/// not mind (`500.0` tokens, a member that appears twice). It is made as it came, for the model that it names and no other, and can
/// neither be handed over nor kept. `None` if it names none here; then nobody knows whose gate it goes through.
///
/// # Errors
/// What is wrong with the headers that are ours.
pub fn accept_unread_call(
    client: &str,
    beginning: &[u8],
    wish: &Wish,
    config: &Config,
    now: Timestamp,
) -> Result<Option<AcceptedCall>, ApiError> {
    check_kind(wish, config)?;
    let Some(spec) = form::of_unread_call(beginning, wish, config) else { return Ok(None) };
    let record = Record::new(JobId::random(0), client.to_owned(), spec, String::new(), now);
    let accepted = Accepted { record, request: String::new(), mended: None };
    let handoff = Handoff::Never;
    Ok(Some(AcceptedCall { accepted, is_as_it_came: true, stream: false, handoff, is_keyed: false, kept_as: None }))
}

impl AcceptedCall {
    /// Made at this deployment's `origin`.
    #[must_use]
    pub fn at(mut self, origin: &str) -> Self {
        self.accepted = self.accepted.at(origin);
        self
    }

    /// Whether there can be a job of it.
    #[must_use]
    pub const fn can_be_kept(&self) -> bool {
        self.kept_as.is_some()
    }
}

fn check_kind(wish: &Wish, config: &Config) -> Result<(), ApiError> {
    let Some(kind) = wish.kind.as_deref().filter(|kind| config.kinds.get(kind).is_none()) else { return Ok(()) };
    let names = config.kinds.names().collect::<Vec<_>>().join(", ");
    let message = format!("spillway-kind: must be one of {names}, is {kind:?}");
    Err(ApiError::new(ErrorKind::InvalidRequest, message))
}

/// A body whose tool history can be sent, and what was done to it. Its places are within `place`.
fn mend(body_rest: String, spec: &mut Spec, place: &str) -> Result<(String, Option<String>), ApiError> {
    match tool_history::check(&body_rest) {
        History::Sound => Ok((body_rest, None)),
        History::Mended { body_rest, mended } => {
            form::read_demands(spec, &body_rest);
            let list: Vec<String> =
                mended.iter().map(|mend| format!("{} {place}{}", mend.kind.name(), mend.place)).collect();
            Ok((body_rest, Some(list.join(", "))))
        }
        History::Broken(problem) => {
            Err(ApiError::invalid(vec![Problem::new(format!("{place}{}", problem.place), problem.message)]))
        }
    }
}

/// The answer to the offer to defer, from the body of `POST …/deferral`.
///
/// # Errors
/// 400 if it is anything but `{"accept": true}` or `{"accept": false}`.
pub fn parse_deferral(body: &[u8]) -> Result<bool, ApiError> {
    struct Answer {
        accept: bool,
    }
    json::object!(only Answer { accept });
    let answer = std::str::from_utf8(body).ok().and_then(|text| json::read::<Answer>(text).ok());
    let message = "send {\"accept\": true} to let the job wait, or {\"accept\": false} to give it up";
    answer.map(|answer| answer.accept).ok_or_else(|| ApiError::new(ErrorKind::InvalidRequest, message))
}

/// The job `id` that does `old` again with its `request`, and the request to be kept beside it. Somebody asks for it now: it does
/// not wait for quieter hours. Its user wants the model that was asked for and no other; an operator who drives many on after an
/// outage wants what they would have been.
///
/// What is kept was checked when it came; it is checked again, as it may have been kept by an older version with other rules.
///
/// # Errors
/// 400 if its tool history cannot be sent.
pub fn again(old: Record, id: JobId, request: Vec<u8>, by: By, now: Timestamp) -> Result<(Record, Vec<u8>), ApiError> {
    let mut spec = old.spec;
    let request = match String::from_utf8(request) {
        Ok(request) => mend(request, &mut spec, "request.")?.0.into_bytes(),
        Err(error) => error.into_bytes(),
    };
    spec.first_choice_only = spec.first_choice_only || by == By::User;
    spec.handed_over = false;
    spec.regenerates = Some(old.id);
    Ok((Record::new(id, old.client, spec, old.fingerprint, now), request))
}

/// Who has a job done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Whose job it is.
    User,
    /// Whoever runs the deployment.
    Operator,
}

/// Whether a job that was there before is that of the submission with `fingerprint`.
///
/// # Errors
/// 409 if the idempotency key stands for another submission, or for a job that is erased.
pub fn check_creation(creation: &Creation, fingerprint: &str) -> Result<(), ApiError> {
    let conflict = |message: &str| Err(ApiError::new(ErrorKind::Conflict, message));
    if creation.record.fingerprint != fingerprint {
        return conflict("this idempotency key was used for another submission; send the same one, or use a new key");
    }
    if creation.record.erased {
        return conflict("the job of this idempotency key was cancelled and erased; use a new key");
    }
    Ok(())
}

/// Whether the job that was there before is no more than a name: whoever has one done again wants another then.
#[must_use]
pub const fn is_taken_back(creation: &Creation) -> bool {
    creation.record.erased
}

/// The receipt for a submission with `fingerprint`, from what the Job object answered. `origin` is the deployment's own.
///
/// Its message is in the job's language, or else in the one that suits whoever sent this `Accept-Language`.
///
/// # Errors
/// 409 if the idempotency key stands for another submission.
pub fn receipt<'a>(
    creation: &Creation,
    fingerprint: &str,
    origin: &str,
    accept_language: Option<&str>,
    config: &'a Config,
    now: Timestamp,
) -> Result<Receipt<'a>, ApiError> {
    check_creation(creation, fingerprint)?;
    let policy = &config.policy;
    let language = policy.messages.language(creation.record.spec.locale.as_deref(), accept_language);
    let wording = wording(&creation.record, policy.long_wait(), now);
    let id = creation.record.id.to_string();
    let token = ReadToken::of(&creation.record, config.signing_secret.as_deref(), policy.timing().retention);
    let (read_token, read_token_expires_at) = token.map(|token| (token.token, token.expires_at)).unzip();
    Ok(Receipt {
        events_url: format!("{origin}/v1/jobs/{id}/events"),
        read_token,
        read_token_expires_at,
        status: creation.record.state.name(),
        status_url: format!("{origin}/v1/jobs/{id}"),
        message: policy.messages.message(language, wording),
        id,
    })
}

fn keyed_id(client: &str, key: &str, config: &Config) -> Result<JobId, ApiError> {
    if !(1..=MAX_KEY_CHARS).contains(&key.len()) || !key.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        let message = format!("idempotency-key: must be 1 to {MAX_KEY_CHARS} printable ASCII characters");
        return Err(ApiError::new(ErrorKind::InvalidRequest, message));
    }
    let not_set = "idempotency keys need the secret SIGNING_SECRET, which this deployment does not have yet";
    let secret = config.signing_secret.as_deref().ok_or_else(|| ApiError::new(ErrorKind::Unavailable, not_set))?;
    JobId::for_key(secret.as_bytes(), client, key).map_err(|_| ApiError::new(ErrorKind::Unavailable, not_set))
}

/// Everything that makes a submission another one. The lengths keep headers and body apart.
fn fingerprint(incoming: &Incoming<'_>) -> String {
    let mut hash = Sha256::new();
    for header in [incoming.betas, incoming.version].map(Option::unwrap_or_default) {
        hash.update(u64::try_from(header.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(header.as_bytes());
    }
    hash.update(incoming.body);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

const MAX_KEY_CHARS: usize = 255;
/// How soon a drain that was ended early is noticed.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
