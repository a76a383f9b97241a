//! Job ids: 128 bits, random, or derived from an idempotency key.
//!
//! With a key the id is an HMAC of client and key under the deployment's signing secret: the same key *is* the same job,
//! with no table to look up, nothing to expire and no race between two submissions (B12). Nobody can work out another
//! client's ids, since the secret never leaves the deployment.

use std::fmt;
use std::str::FromStr;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::json;

/// A job's public name: `job_` and 32 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u128);

impl JobId {
    /// An id from 128 random bits.
    #[must_use]
    pub const fn random(bits: u128) -> Self {
        Self(bits)
    }

    /// The id that `client`'s idempotency key stands for.
    ///
    /// # Errors
    /// If the secret cannot be a key, which HMAC rules out; passed on rather than assumed.
    pub fn for_key(secret: &[u8], client: &str, key: &str) -> Result<Self, hmac::digest::InvalidLength> {
        // The length keeps («a», «bc») and («ab», «c») apart.
        let length = u64::try_from(client.len()).unwrap_or(u64::MAX).to_be_bytes();
        mac(secret, &[&length, client.as_bytes(), key.as_bytes()]).map(Self)
    }
}

/// The first 128 bits of the HMAC-SHA-256 of `parts`, one after the other.
///
/// # Errors
/// If the secret cannot be a key, which HMAC rules out; passed on rather than assumed.
pub fn mac(secret: &[u8], parts: &[&[u8]]) -> Result<u128, hmac::digest::InvalidLength> {
    Ok(digest(secret, parts)?.iter().take(16).fold(0, |bits, byte| (bits << 8) | u128::from(*byte)))
}

/// The HMAC-SHA-256 of `parts`, one after the other.
///
/// # Errors
/// As for [`mac`].
pub fn digest(secret: &[u8], parts: &[&[u8]]) -> Result<[u8; 32], hmac::digest::InvalidLength> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret)?;
    parts.iter().for_each(|part| mac.update(part));
    Ok(mac.finalize().into_bytes().into())
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job_{:032x}", self.0)
    }
}

/// The text is no job id.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a job id is `job_` and 32 lower-case hexadecimal digits")]
pub struct InvalidJobId;

impl FromStr for JobId {
    type Err = InvalidJobId;

    fn from_str(text: &str) -> Result<Self, InvalidJobId> {
        let digits = text.strip_prefix("job_").ok_or(InvalidJobId)?;
        let lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if digits.len() != 32 || !digits.bytes().all(lower_hex) {
            return Err(InvalidJobId);
        }
        u128::from_str_radix(digits, 16).map(Self).map_err(|_| InvalidJobId)
    }
}

impl json::FromJson for JobId {
    fn read(json: json::Json<'_>, faults: &mut json::Faults) -> Option<Self> {
        let id = json.string().unwrap_or_default().parse();
        id.map_err(|InvalidJobId| faults.add(format!("must be a job id: {InvalidJobId}"))).ok()
    }
}

impl json::ToJson for JobId {
    fn write(&self, out: &mut String) {
        self.to_string().as_str().write(out);
    }
}
json::output!(@serde JobId);
json::object!(@serde JobId);

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_text_form_and_nothing_else_is_one() {
        let id = JobId::random(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        assert_eq!(id.to_string(), "job_0123456789abcdef0011223344556677");
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "job_", "0123456789abcdef0011223344556677", "job_0123456789ABCDEF0011223344556677"] {
            assert_eq!(text.parse::<JobId>(), Err(InvalidJobId), "{text}");
        }
        assert_eq!("job_+123456789abcdef001122334455667".parse::<JobId>(), Err(InvalidJobId));
    }

    #[test]
    fn the_same_client_and_key_are_the_same_job_and_no_others_are() {
        let id = |secret: &str, client, key| JobId::for_key(secret.as_bytes(), client, key).unwrap();
        assert_eq!(id("s", "app", "k1"), id("s", "app", "k1"));
        assert_ne!(id("s", "app", "k1"), id("s", "app", "k2"));
        assert_ne!(id("s", "app", "k1"), id("s", "ap", "pk1"));
        assert_ne!(id("s", "app", "k1"), id("t", "app", "k1"));
    }
}
