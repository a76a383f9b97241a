//! Read tokens: what lets a browser read one job, and nothing else, for a while.
//!
//! A client key opens all of a client's jobs and spends its money, so it stays with the app's own server. The receipt has a token
//! beside it that the server may hand on: it opens the status and the events of its one job until the job is forgotten. It is an
//! HMAC under the deployment's signing secret, so nothing is stored, and the same receipt has the same token.

use std::time::{Duration, UNIX_EPOCH};

use subtle::ConstantTimeEq;

use super::error::{ApiError, ErrorKind};
use crate::job::{JobId, Record, id};
use crate::policy::time::{Timestamp, millis};

/// A token, and when it expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadToken {
    /// What is sent as `Authorization: Bearer`, or as `?token=`.
    pub token: String,
    /// RFC 3339.
    pub expires_at: String,
}

impl ReadToken {
    /// The token of a job that is kept for `retention` after its end; `None` without a secret. It outlives the job even if that
    /// is deferred, which begins its deadline anew.
    #[must_use]
    pub fn of(record: &Record, secret: Option<&str>, retention: Duration) -> Option<Self> {
        let deadline = Duration::from_secs(record.spec.deadline_seconds);
        let expires_at = record.created_at + deadline.saturating_mul(2) + LONGEST_DEFERRAL + retention;
        let seconds = millis(expires_at.since(Timestamp::from_millis(0))) / 1000;
        let mac = mac(secret?, &record.id, seconds)?;
        let expires_at = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string();
        Some(Self { token: format!("{PREFIX}{seconds}_{mac}"), expires_at })
    }
}

/// Whether a credential is meant to be a read token.
#[must_use]
pub fn is_read_token(credential: &str) -> bool {
    credential.starts_with(PREFIX)
}

/// Refuses a token that is not that of `job`, or not any more. `job` is `None` where a token opens nothing.
///
/// # Errors
/// 401, or 403 where it opens nothing.
pub fn check(token: &str, job: Option<&JobId>, secret: Option<&str>, now: Timestamp) -> Result<(), ApiError> {
    let Some(job) = job else {
        let message = "a read token opens the status and the events of its one job, and nothing else: use a client key";
        return Err(ApiError::new(ErrorKind::Permission, message));
    };
    let refuse = |message: &str| Err(ApiError::new(ErrorKind::Authentication, message));
    let parts = token.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'));
    let parts = parts.and_then(|(seconds, mac)| Some((seconds.parse::<u64>().ok()?, mac)));
    let Some((seconds, given)) = parts else {
        return refuse("this is no read token; the receipt of a submission has one");
    };
    let is_right = secret
        .and_then(|secret| mac(secret, job, seconds))
        .is_some_and(|mac| bool::from(mac.as_bytes().ct_eq(given.as_bytes())));
    if !is_right {
        return refuse("this is not the read token of this job");
    }
    if Timestamp::from_millis(seconds.saturating_mul(1000)) <= now {
        return refuse("this read token has expired; the job it was for is no longer kept");
    }
    Ok(())
}

fn mac(secret: &str, job: &JobId, expires_at_seconds: u64) -> Option<String> {
    // Nothing else that is signed begins so: an idempotency key's text begins with a length of eight bytes.
    let (job, expires_at) = (job.to_string(), expires_at_seconds.to_be_bytes());
    id::mac(secret.as_bytes(), &[b"read-token", job.as_bytes(), &expires_at]).ok().map(|mac| format!("{mac:032x}"))
}

const PREFIX: &str = "rt_";
/// To the off-peak window after the next four hours, and to its end.
const LONGEST_DEFERRAL: Duration = Duration::from_secs(48 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const SECRET: Option<&str> = Some("a secret of the deployment");

    fn token(id: &JobId, expires_at_seconds: u64) -> String {
        format!("rt_{expires_at_seconds}_{}", mac("a secret of the deployment", id, expires_at_seconds).unwrap())
    }

    #[test]
    fn a_token_opens_its_own_job_until_it_expires_and_nothing_else() {
        let (id, other) = (JobId::random(1), JobId::random(2));
        let now_seconds = 1_700_000_000;
        let status = |token: &str, job: Option<&JobId>, secret| {
            check(token, job, secret, NOW).map_err(|error| error.kind.status()).err()
        };
        let good = token(&id, now_seconds + 1);
        assert_eq!(status(&good, Some(&id), SECRET), None);
        assert_eq!(status(&good, Some(&other), SECRET), Some(401), "another job");
        assert_eq!(status(&good, None, SECRET), Some(403), "another route");
        assert_eq!(status(&good, Some(&id), Some("another secret")), Some(401));
        assert_eq!(status(&good, Some(&id), None), Some(401), "no secret any more");
        assert_eq!(status(&token(&id, now_seconds), Some(&id), SECRET), Some(401), "expired");
        let longer = good.replace("1700000001", "1800000000");
        assert_eq!(status(&longer, Some(&id), SECRET), Some(401), "its end is signed too");
        for broken in ["rt_", "rt_1", "rt_1_", "rt_x_y", "rt_18446744073709551616_0", "rt_18446744073709551615_0"] {
            assert_eq!(status(broken, Some(&id), SECRET), Some(401), "{broken}");
        }
    }
}
