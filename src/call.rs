//! What a delivery and a call that is waited for begin with, and what both come to: the models that may answer, the way over
//! them, and one call with its limits.

use std::time::Duration;

use crate::config::{CallSettings, Config};
use crate::policy::answer::{Asking, PermitId};
use crate::policy::demands::Demands;
use crate::policy::kinds::Kind;
use crate::policy::ladder::{Ladder, Tier};
use crate::policy::priority::Priority;

/// A call to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The model to call.
    pub model: String,
    /// The gate's permit; `None` if the gate did not answer.
    pub permit: Option<PermitId>,
    /// What it was asked for with.
    pub asking: Asking,
    /// Whether the breaker's next move hangs on it.
    pub is_probe: bool,
    /// For how long to wait for what.
    pub limits: Limits,
}

impl Call {
    /// By what right the call is made: a stable name for logs.
    #[must_use]
    pub const fn permit_name(&self) -> &'static str {
        match (self.permit, self.is_probe) {
            (None, _) => "unguarded",
            (Some(_), true) => "probe",
            (Some(_), false) => "granted",
        }
    }
}

/// The limits of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Until the response headers.
    pub headers: Duration,
    /// Silence in the stream.
    pub idle: Duration,
    /// The whole call.
    pub total: Duration,
}

impl Limits {
    /// What is configured, for a call that has `budget` at most.
    #[must_use]
    pub fn new(settings: CallSettings, budget: Duration) -> Self {
        let total = Duration::from_secs(settings.total_seconds).min(budget);
        Self {
            headers: Duration::from_secs(settings.headers_seconds).min(total),
            idle: Duration::from_secs(settings.idle_seconds).min(total),
            total,
        }
    }

    /// Until the response headers of an answer that is streamed, or of a whole one, whose headers come with its end.
    #[must_use]
    pub const fn until_headers(&self, is_streamed: bool) -> Duration {
        if is_streamed { self.headers } else { self.total }
    }
}

/// What the choice of a model depends on.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The kind's name.
    pub kind: &'a str,
    /// The model asked for.
    pub model: &'a str,
    /// How urgent it is.
    pub priority: Priority,
    /// What the request asks of a model.
    pub demands: &'a Demands,
    /// Whether only the model asked for will do.
    pub first_choice_only: bool,
    /// Whether another model may answer whatever the kind says.
    pub fallback_allowed: bool,
}

/// The models that may answer.
#[derive(Debug)]
pub struct Candidates {
    /// The row of the kind.
    pub kind: Kind,
    primary: String,
    fallback: String,
}

impl Candidates {
    /// Who may answer, and the way over them.
    #[must_use]
    pub fn new(asked: Asked<'_>, config: &Config) -> (Self, Ladder) {
        let kind = config.kinds.get(asked.kind).cloned().unwrap_or_default();
        let is_wanted = (kind.fallback || asked.fallback_allowed) && !asked.first_choice_only;
        let fits = config.fallback_for(&kind, asked.model, asked.demands).is_some();
        let fallback = config.fallback_of(&kind).to_owned();
        let ladder = Ladder::new(asked.priority, is_wanted && fits);
        (Self { kind, primary: asked.model.to_owned(), fallback }, ladder)
    }

    /// The id of one of them.
    #[must_use]
    pub fn model(&self, tier: Tier) -> String {
        match tier {
            Tier::Primary => self.primary.clone(),
            Tier::Fallback => self.fallback.clone(),
        }
    }
}
