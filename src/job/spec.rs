//! What was asked for: the fields of a submission, checked, without the request body itself.

use super::id::JobId;
use crate::json;
use crate::policy::demands::Demands;
use crate::policy::kinds::WhenExhausted;
use crate::policy::presets::Preset;
use crate::policy::priority::Priority;

/// A submission's fields, as they are kept with the job.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The kind of job (A6): a name of the kind table.
    pub kind: String,
    /// Which queue the job waits in (B8).
    pub priority: Priority,
    /// The model that was asked for; the deployment's primary model where the request named none.
    pub model: String,
    /// `anthropic-beta`, forwarded as it came.
    pub betas: Option<String>,
    /// `anthropic-version`: which of the API's rules the request was written for. None: the deployment's.
    pub version: Option<String>,
    /// The backoff preset (B6); none means the deployment's own backoff.
    pub preset: Option<Preset>,
    /// How long after its submission the job may still be waited for, in seconds.
    pub deadline_seconds: u64,
    /// What happens after the last attempt; none means what the kind says.
    pub when_exhausted: Option<WhenExhausted>,
    /// What happens if the stream breaks after somebody saw text.
    pub when_interrupted: WhenInterrupted,
    /// Where the app wants to be told.
    pub webhook: Option<String>,
    /// Where the app submitted it, for what it is told there: scheme, host and port.
    pub origin: Option<String>,
    /// The app's own data, returned as it came.
    pub metadata: Option<json::Text>,
    /// The language of the job's messages, a BCP 47 tag.
    pub locale: Option<String>,
    /// What the request asks of a model: whether it fits another one.
    pub demands: Demands,
    /// Whether only the model that was asked for will do: a regenerated job, or the caller's wish.
    pub first_choice_only: bool,
    /// Whether another model may answer although the kind says no: the caller's wish.
    pub fallback_allowed: bool,
    /// Whether somebody was waiting for its answer when it became a job.
    pub handed_over: bool,
    /// The job that this one does again.
    pub regenerates: Option<JobId>,
}

json::object!(Spec { kind, priority, model, betas, version, preset, deadline_seconds, when_exhausted, when_interrupted = WhenInterrupted::default(), webhook, origin, metadata, locale, demands = Demands::default(), first_choice_only = false, fallback_allowed = false, handed_over = false, regenerates });

/// What happens if the upstream breaks after somebody saw part of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenInterrupted {
    /// The draft is discarded and the call made again.
    #[default]
    Restart,
    /// The job fails with reason `interrupted`.
    Fail,
}

json::names!(WhenInterrupted {
    Restart => "restart",
    Fail => "fail",
});
