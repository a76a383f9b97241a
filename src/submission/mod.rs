//! The way in: from an HTTP request to a job that is stored, and its receipt.
//!
//! 1. [`accept`]: checked, named, made into a record. Nothing has happened yet; every fault is a clear error.
//! 2. The edge asks the Job object to create it. The object stores the record and an alarm; from then on the receipt is
//!    true, whatever becomes of the queue.
//! 3. [`receipt`]: the same idempotency key with the same submission gets the same receipt again, with another one a
//!    conflict (B12).

mod form;

pub use form::{MAX_BODY_BYTES, Submission};

use sha2::{Digest, Sha256};

use crate::api::error::{ApiError, ErrorKind};
use crate::api::status::wording;
use crate::config::{Config, Policy};
use crate::job::{JobId, Record};
use crate::json;
use crate::policy::time::Timestamp;
use crate::policy::wording::Message;

/// What came in, apart from the route.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Who submits.
    pub client: &'a str,
    /// The body.
    pub body: &'a [u8],
    /// The `anthropic-beta` header.
    pub betas: Option<&'a str>,
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
    /// A sentence for the user.
    pub message: Message<'a>,
}

json::output!(Receipt<'_> { id, status, status_url, message });

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
    let Submission { spec, request } = Submission::parse(incoming.body, incoming.betas, config)?;
    let fingerprint = fingerprint(incoming.body, incoming.betas);
    let record = Record::new(id, incoming.client.to_owned(), spec, fingerprint, now);
    Ok(Accepted { record, request: request.body_rest })
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

/// The job `id` that does `old` again, on the model that was asked for and no other. Somebody asks for it now: it does not
/// wait for quieter hours.
#[must_use]
pub fn again(old: Record, id: JobId, now: Timestamp) -> Record {
    let mut spec = old.spec;
    spec.first_choice_only = true;
    spec.regenerates = Some(old.id);
    Record::new(id, old.client, spec, old.fingerprint, now)
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
    policy: &'a Policy,
    now: Timestamp,
) -> Result<Receipt<'a>, ApiError> {
    let conflict = |message: &str| Err(ApiError::new(ErrorKind::Conflict, message));
    if creation.record.fingerprint != fingerprint {
        return conflict("this idempotency key was used for another submission; send the same one, or use a new key");
    }
    if creation.record.erased {
        return conflict("the job of this idempotency key was cancelled and erased; use a new key");
    }
    let language = policy.messages.language(creation.record.spec.locale.as_deref(), accept_language);
    let wording = wording(&creation.record, policy.long_wait(), now);
    let id = creation.record.id.to_string();
    Ok(Receipt {
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

/// Everything that makes a submission another one. The length keeps header and body apart.
fn fingerprint(body: &[u8], betas: Option<&str>) -> String {
    let betas = betas.unwrap_or_default();
    let mut hash = Sha256::new();
    hash.update(u64::try_from(betas.len()).unwrap_or(u64::MAX).to_be_bytes());
    hash.update(betas.as_bytes());
    hash.update(body);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

const MAX_KEY_CHARS: usize = 255;
