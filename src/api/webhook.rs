//! What a webhook says: Standard Webhooks (https://www.standardwebhooks.com, version 1.0.0).
//!
//! The body is `{"type":"job.done","timestamp":…,"data":{…}}`. The headers `webhook-id`, `webhook-timestamp` (seconds) and
//! `webhook-signature`: for each secret `v1,` and the base64 of the HMAC-SHA-256 of `id.timestamp.body`, separated by
//! spaces. The id stays the same however often a notice is sent, so that a receiver can drop what it has had; the timestamp is
//! that of the try, since a receiver refuses an old one.
//!
//! The data is what an app needs to decide what to do: which job, how it ended, its own metadata, what its user reads. The
//! answer is not in it. It may have megabytes, which receivers and the services that push to phones do not take; it would
//! lie in the logs of whatever stands between; and a receiver that trusts the address alone, without the signature, would be
//! fed answers. `status_url` has it, for who has the key (docs/adr/0024). So a body has a few KB at most, 4 of them metadata.
//!
//! A secret is `whsec_` and the base64 of 16 to 64 bytes; without the prefix it is taken too, as the official libraries do.

use std::time::Duration;

use super::status::{rfc3339, wording};
use super::view::Offer;
use crate::job::id::digest;
use crate::job::{News, Notice, Record, State};
use crate::json::{self, Text};
use crate::policy::ladder::Downgrade;
use crate::policy::time::Timestamp;
use crate::policy::wording::{Message, Messages, Wording};

/// The secrets that webhooks are signed with; none where there are no webhooks.
#[derive(Clone, Default)]
pub struct Secrets(Vec<Vec<u8>>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

impl Secrets {
    /// From `WEBHOOK_SECRET`: one, or for a rotation several, separated by spaces or commas.
    ///
    /// # Errors
    /// What is wrong, never with the secret in it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut secrets = Vec::new();
        for word in text.split([',', ' ', '\t', '\r', '\n']).filter(|word| !word.is_empty()) {
            match decode(word.strip_prefix("whsec_").unwrap_or(word)) {
                Some(secret) if (16..=64).contains(&secret.len()) => secrets.push(secret),
                _ => {
                    let number = secrets.len() + 1;
                    return Err(format!("secret {number} is not `whsec_` and the base64 of 16 to 64 random bytes"));
                }
            }
        }
        Ok(Self(secrets))
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The header `webhook-signature`.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp: u64, body: &str) -> String {
        let signed = format!("{id}.{timestamp}.{body}");
        let mut signatures = String::new();
        for secret in &self.0 {
            let separator = if signatures.is_empty() { "v1," } else { " v1," };
            // HMAC takes a key of any length.
            let Ok(digest) = digest(secret, &[signed.as_bytes()]) else { continue };
            signatures.push_str(separator);
            signatures.push_str(&encode(&digest));
        }
        signatures
    }
}

/// A notice, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// `webhook-id`.
    pub id: String,
    /// `webhook-timestamp`.
    pub timestamp: String,
    /// `webhook-signature`.
    pub signature: String,
    /// The body.
    pub body: String,
}

impl Signed {
    /// `notice` of `record`, as it is sent at `now`.
    #[must_use]
    pub fn new(
        record: &Record,
        notice: &Notice,
        secrets: &Secrets,
        messages: &Messages,
        long_wait: Duration,
        now: Timestamp,
    ) -> Self {
        let (id, timestamp) = (id(record, notice), now.as_millis() / 1000);
        let body = json::write(&Payload {
            r#type: notice.news.event(),
            timestamp: rfc3339(notice.at),
            data: data(record, notice, messages, long_wait),
        });
        let signature = secrets.sign(&id, timestamp, &body);
        Self { id, timestamp: timestamp.to_string(), signature, body }
    }
}

/// A notice's id. The moment of submission is in it: the job that has the same idempotency key once the first one is forgotten
/// has the same name, and other news.
#[must_use]
pub fn id(record: &Record, notice: &Notice) -> String {
    let job = record.id.to_string();
    let job = job.strip_prefix("job_").unwrap_or(&job);
    format!("evt_{job}_{:x}_{}", record.created_at.as_millis(), notice.number)
}

struct Payload<'a> {
    r#type: &'static str,
    timestamp: String,
    data: Data<'a>,
}

json::output!(Payload<'_> { r#type, timestamp, data });

struct Data<'a> {
    id: String,
    status: &'static str,
    message: Message<'a>,
    kind: &'a str,
    metadata: Option<&'a Text>,
    offer: Option<Offer>,
    model_requested: &'a str,
    model_used: Option<&'a str>,
    downgraded: Option<bool>,
    downgrade_reason: Option<&'static str>,
    reason: Option<&'static str>,
    regenerates: Option<String>,
    created_at: String,
    finished_at: Option<String>,
    status_url: Option<String>,
}

json::output!(sparse Data<'_> { id, status, message, kind, metadata, offer, model_requested, model_used, downgraded, downgrade_reason, reason, regenerates, created_at, finished_at, status_url });

/// What is said of a job that is stalled is what it was then, whatever has become of it since.
fn data<'a>(record: &'a Record, notice: &Notice, messages: &'a Messages, long_wait: Duration) -> Data<'a> {
    let id = record.id.to_string();
    let language = messages.language(record.spec.locale.as_deref(), None);
    let mut data = Data {
        status: "stalled",
        message: messages.message(language, Wording::Stalled),
        kind: &record.spec.kind,
        metadata: record.spec.metadata.as_ref(),
        offer: None,
        model_requested: &record.spec.model,
        model_used: None,
        downgraded: None,
        downgrade_reason: None,
        reason: None,
        regenerates: record.spec.regenerates.as_ref().map(ToString::to_string),
        created_at: rfc3339(record.created_at),
        finished_at: None,
        status_url: record.spec.origin.as_ref().map(|origin| format!("{origin}/v1/jobs/{id}")),
        id,
    };
    if let News::Stalled { until, resume_at } = notice.news {
        data.offer = Some(Offer::new(until, resume_at, notice.at));
        return data;
    }
    data.status = record.state.name();
    data.message = messages.message(language, wording(record, long_wait, notice.at));
    data.finished_at = record.finished_at.map(rfc3339);
    data.reason = record.state.reason();
    if let State::Done { model_used, downgrade } = &record.state {
        data.model_used = Some(model_used);
        data.downgraded = Some(record.is_downgraded());
        data.downgrade_reason = downgrade.map(Downgrade::name);
    }
    data
}

fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, at| bits << 8 | u32::from(chunk.get(at).copied().unwrap_or_default()));
        for digit in 0..4 {
            let index = usize::try_from(bits >> (18 - 6 * digit) & 63).unwrap_or_default();
            let has_bits = digit <= chunk.len();
            text.push(if has_bits { DIGITS.get(index).map_or('=', |byte| char::from(*byte)) } else { '=' });
        }
    }
    text
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for chunk in text.as_bytes().chunks(4) {
        let (mut bits, mut digits) = (0_u32, 0_usize);
        for byte in chunk.iter().take_while(|byte| **byte != b'=') {
            let value = DIGITS.iter().position(|digit| digit == byte)?;
            bits |= u32::try_from(value).ok()? << (18 - 6 * digits);
            digits += 1;
        }
        bytes.extend_from_slice(bits.to_be_bytes().get(1..digits)?);
    }
    // One way only to write a key: whole groups, the padding at the end, no bits that say nothing.
    (encode(&bytes) == text).then_some(bytes)
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Whether an app can be told something there.
#[must_use]
pub fn is_address(address: &str) -> bool {
    let authority = |scheme: &str| address.strip_prefix(scheme).and_then(|rest| rest.split(['/', '?', '#']).next());
    // A password in an address is dropped by whoever sends to it, and the receiver would refuse every try.
    let is_remote = authority("https://").is_some_and(|host| !host.is_empty() && !host.contains('@'));
    // Without TLS only to this very machine, for trying things out: the whole host has to be one of these.
    let is_local = authority("http://").is_some_and(|authority| {
        let is_port = |port: &str| port.parse::<u16>().is_ok();
        ["localhost", "127.0.0.1", "[::1]"].iter().any(|host| {
            authority
                .strip_prefix(host)
                .is_some_and(|port| port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
        })
    });
    address.len() <= 2_048 && address.bytes().all(|byte| byte.is_ascii_graphic()) && (is_remote || is_local)
}

/// What such an address has to be.
pub const ADDRESS: &str = "an https:// address of at most 2,048 characters, without user and password";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_64_is_that_of_rfc_4648_and_what_is_not_is_none() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Some(all));
        for text in ["Z", "Zg", "Zg=", "Zh==", "Zg==Zg==", "=Zg=", "Z=g=", "Zm8-", "Zm8_", "Zm 8", "====", "é==="] {
            assert_eq!(decode(text), None, "{text}");
        }
    }

    #[test]
    fn a_signature_is_that_of_the_official_libraries() {
        // Computed by the JavaScript library, version 1.1.1.
        let secrets = Secrets::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = secrets.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signature, OFFICIAL);
    }

    const OFFICIAL: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn each_secret_of_a_rotation_signs() {
        let (one, two) = (encode(&[1; 24]), encode(&[2; 64]));
        for text in
            [format!("whsec_{one} whsec_{two}"), format!("whsec_{one},{two}"), format!(" {one} ,\n whsec_{two} ")]
        {
            let secrets = Secrets::parse(&text).unwrap();
            let alone = [&one, &two].map(|secret| Secrets::parse(secret).unwrap().sign("a", 1, "b"));
            assert_eq!(secrets.sign("a", 1, "b"), alone.join(" "), "{text}");
        }
    }

    #[test]
    fn what_is_no_secret_is_refused_by_its_place_and_never_shown() {
        let good = format!("whsec_{}", encode(&[1; 24]));
        for wrong in
            ["hunter2", "whsec_", "whsec_????", &encode(&[1; 15]), &encode(&[1; 65]), "whsec_AAAAAAAAAAAAAAAAAAAAAAA"]
        {
            let error = Secrets::parse(&format!("{good},{wrong}")).unwrap_err();
            assert!(error.starts_with("secret 2 is not"), "{wrong}: {error}");
            assert!(wrong.len() < 8 || !error.contains(wrong), "{error}");
        }
        assert!(Secrets::parse(" , ").unwrap().is_empty());
        assert_eq!(format!("{:?}", Secrets::parse(&good).unwrap()), "1 secrets");
    }
}
