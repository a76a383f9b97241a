//! What travels through a queue: which job, and which of its turns. The request itself stays in the Job object, since a
//! message carries 128 KB and a request up to 8 MB.

use super::id::JobId;
use crate::json;

/// One turn of one job. A turn is a scheduled delivery; a message for an old turn is stale and harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    v: u32,
    /// The job.
    pub job: JobId,
    /// The turn that this message may claim.
    pub turn: u64,
}

json::object!(only Envelope { v, job, turn });

/// The message is none of ours, or of a version that this Worker does not know.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// Not the JSON of an envelope. What it holds is not repeated: it may be anything, of any length, and the error is
    /// logged.
    #[error("not an envelope: {}", what(.0))]
    Malformed(#[from] json::Unreadable),
    /// From another version of the Worker.
    #[error("envelope version {0} is not known to this Worker")]
    UnknownVersion(u32),
}

impl Envelope {
    /// The message for `turn` of `job`.
    #[must_use]
    pub const fn new(job: JobId, turn: u64) -> Self {
        Self { v: VERSION, job, turn }
    }

    /// Reads a message body.
    ///
    /// # Errors
    /// If the body is no envelope, or one of an unknown version.
    pub fn decode(body: &str) -> Result<Self, EnvelopeError> {
        let envelope: Self = json::read(body)?;
        if envelope.v == VERSION { Ok(envelope) } else { Err(EnvelopeError::UnknownVersion(envelope.v)) }
    }

    /// The message body: a string, because workers-rs turns nested structures into JS maps that arrive empty.
    #[must_use]
    pub fn encode(&self) -> String {
        format!(r#"{{"v":{},"job":"{}","turn":{}}}"#, self.v, self.job, self.turn)
    }
}

fn what(error: &json::Unreadable) -> String {
    match error {
        json::Unreadable::Malformed(error) => format!("it is not JSON: {error}"),
        json::Unreadable::Unfit(_) => "it has another shape".to_owned(),
    }
}

const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_survives_the_queue() {
        let envelope = Envelope::new(JobId::random(7), 3);
        assert_eq!(envelope.encode(), r#"{"v":1,"job":"job_00000000000000000000000000000007","turn":3}"#);
        assert_eq!(Envelope::decode(&envelope.encode()).unwrap(), envelope);
    }

    #[test]
    fn other_messages_are_refused_with_the_reason_and_never_repeated() {
        let job = JobId::random(7);
        for (body, reason) in [
            (String::new(), "breaks off"),
            ("Dear Claude".into(), "at line 1 column 1"),
            ("[]".into(), "another shape"),
            (r#""secret""#.into(), "another shape"),
            (r#"{"v":1,"job":"secret","turn":1}"#.into(), "another shape"),
            (format!(r#"{{"v":1,"job":"{job}","turn":-1}}"#), "another shape"),
            (format!(r#"{{"v":1,"job":"{job}","turn":1,"secret":1}}"#), "another shape"),
            (format!(r#"{{"v":2,"job":"{job}","turn":1}}"#), "version 2"),
        ] {
            let error = Envelope::decode(&body).unwrap_err().to_string();
            assert!(error.contains(reason), "{body}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
