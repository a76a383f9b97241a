//! What travels through a queue: which job, and which of its turns. The request itself stays in the Job object, since a
//! message carries 128 KB and a request up to 8 MB.

use serde::{Deserialize, Serialize};

use super::id::JobId;

/// One turn of one job. A turn is a scheduled delivery; a message for an old turn is stale and harmless.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    v: u32,
    /// The job.
    pub job: JobId,
    /// The turn that this message may claim.
    pub turn: u64,
}

/// The message is none of ours, or of a version that this Worker does not know.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// Not the JSON of an envelope.
    #[error("not an envelope: {0}")]
    Malformed(#[from] serde_json::Error),
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
        let envelope: Self = serde_json::from_str(body)?;
        if envelope.v == VERSION { Ok(envelope) } else { Err(EnvelopeError::UnknownVersion(envelope.v)) }
    }

    /// The message body: a string, because workers-rs turns nested structures into JS maps that arrive empty.
    #[must_use]
    pub fn encode(&self) -> String {
        format!(r#"{{"v":{},"job":"{}","turn":{}}}"#, self.v, self.job, self.turn)
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
    fn other_messages_are_refused_with_the_reason() {
        let job = JobId::random(7);
        for (body, reason) in [
            (String::new(), "not an envelope"),
            ("[]".into(), "not an envelope"),
            (r#"{"v":1,"job":"x","turn":1}"#.into(), "job id"),
            (format!(r#"{{"v":1,"job":"{job}","turn":-1}}"#), "not an envelope"),
            (format!(r#"{{"v":1,"job":"{job}","turn":1,"x":1}}"#), "unknown field"),
            (format!(r#"{{"v":2,"job":"{job}","turn":1}}"#), "version 2"),
        ] {
            let error = Envelope::decode(&body).unwrap_err().to_string();
            assert!(error.contains(reason), "{body}: {error}");
        }
    }
}
