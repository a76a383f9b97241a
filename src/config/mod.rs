//! The deployment's settings, parsed once into types that cannot be wrong.
//!
//! Vars and secrets come by name; `POLICY` is one JSON object whose every value may be left out. An unknown key or an
//! impossible value is never ignored: the Worker answers 503 naming the key until it is mended, and keeps its deliveries.
//! A setting that is silently without effect is found in the middle of an outage, and then it is too late.
//!
//! Here vars and secrets are read; `policy` has the `POLICY` object, `sections` the parts of it, `fault` what is said of a mistake.

mod fault;
mod policy;
mod sections;

pub use fault::Fault;
pub use policy::Policy;
pub use sections::{
    AlertSettings, CallSettings, DeferralSettings, EventSettings, HourSettings, SyncSettings, WebhookSettings,
};

use crate::api::auth::Keys;
use crate::api::webhook::Secrets;
use crate::policy::demands::Demands;
use crate::policy::fit;
use crate::policy::kinds::{Kind, Kinds};
use crate::policy::models::Models;

/// Everything a deployment is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// `ANTHROPIC_BASE_URL`, without a slash at the end.
    pub base_url: String,
    /// `ANTHROPIC_API_KEY`; none for a gateway that adds its own.
    pub api_key: Option<String>,
    /// `PRIMARY_MODEL`: what a request that names no model is sent to.
    pub primary_model: String,
    /// `FALLBACK_MODEL`: the smaller model.
    pub fallback_model: String,
    /// `CLIENT_KEYS` and `ADMIN_KEY`.
    pub keys: Keys,
    /// `SIGNING_SECRET`: idempotency keys and read tokens need it.
    pub signing_secret: Option<String>,
    /// `SLACK_WEBHOOK_URL`: who is told of what the operator should know.
    pub alerts_url: Option<String>,
    /// `WEBHOOK_SECRET`: webhooks are signed with it.
    pub webhook_secrets: Secrets,
    /// `POLICY`.
    pub policy: Policy,
    /// The kind table, with the deployment's own rows.
    pub kinds: Kinds,
    /// What models can do, with the deployment's own rows.
    pub models: Models,
}

impl Config {
    /// Whether this model is named anywhere in the configuration.
    #[must_use]
    pub fn knows(&self, model: &str) -> bool {
        [&self.primary_model, &self.fallback_model].iter().any(|own| *own == model) || self.models.get(model).is_some()
    }

    /// The model that may answer in place of a kind's own.
    #[must_use]
    pub fn fallback_of<'a>(&'a self, kind: &'a Kind) -> &'a str {
        kind.fallback_model.as_deref().unwrap_or(&self.fallback_model)
    }

    /// That model, if a request to `model` with these demands fits it.
    #[must_use]
    pub fn fallback_for<'a>(&'a self, kind: &'a Kind, model: &str, demands: &Demands) -> Option<&'a str> {
        let fallback = self.fallback_of(kind);
        (fallback != model && fit::fits(demands, self.models.get(fallback)).is_ok()).then_some(fallback)
    }

    /// Reads the deployment's vars and secrets through `read`.
    ///
    /// # Errors
    /// Every fault at once, each with its key.
    pub fn parse(read: impl Fn(&str) -> Option<String>) -> Result<Self, Vec<Fault>> {
        let text = |key: &str| read(key).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let mut faults = Vec::new();
        let base_url = text("ANTHROPIC_BASE_URL").unwrap_or_else(|| DEFAULT_BASE_URL.into());
        if !is_http_url(&base_url) {
            let message = "must be an http:// or https:// address, with nothing of `?`, `#` and `@` in it";
            faults.push(Fault::new("ANTHROPIC_BASE_URL", message));
        }
        let api_key = text("ANTHROPIC_API_KEY");
        if api_key.as_ref().is_some_and(|key| !key.bytes().all(|byte| byte.is_ascii_graphic())) {
            faults.push(Fault::new("ANTHROPIC_API_KEY", "must be one word of printable ASCII characters"));
        }
        let model = |key: &str, default: &str, faults: &mut Vec<Fault>| {
            let model = text(key).unwrap_or_else(|| default.into());
            if !is_model(&model) {
                faults.push(Fault::new(key, "must be a model id"));
            }
            model
        };
        let primary_model = model("PRIMARY_MODEL", DEFAULT_PRIMARY, &mut faults);
        let fallback_model = model("FALLBACK_MODEL", DEFAULT_FALLBACK, &mut faults);
        let keys = Keys::parse(text("CLIENT_KEYS").as_deref(), text("ADMIN_KEY").as_deref()).unwrap_or_else(|wrong| {
            faults.push(Fault::new("CLIENT_KEYS", wrong));
            Keys::default()
        });
        let alerts_url = text("SLACK_WEBHOOK_URL");
        if alerts_url.as_deref().is_some_and(|url| !url.starts_with("https://") && !url.starts_with("http://")) {
            faults.push(Fault::new("SLACK_WEBHOOK_URL", "must be an address that begins with https://"));
        }
        let secrets = text("WEBHOOK_SECRET").unwrap_or_default();
        let webhook_secrets = Secrets::parse(&secrets).unwrap_or_else(|wrong| {
            faults.push(Fault::new("WEBHOOK_SECRET", wrong));
            Secrets::default()
        });
        let policy = Policy::parse(text("POLICY").as_deref().unwrap_or("{}")).unwrap_or_else(|mut wrong| {
            faults.append(&mut wrong);
            Policy::default()
        });
        if !faults.is_empty() {
            return Err(faults);
        }
        let (kinds, models) = (Kinds::extended(&policy.kinds), policy.models.clone());
        Ok(Self {
            base_url: base_url.trim_end_matches('/').to_owned(),
            api_key,
            primary_model,
            fallback_model,
            keys,
            signing_secret: text("SIGNING_SECRET"),
            alerts_url,
            webhook_secrets,
            policy,
            kinds,
            models,
        })
    }

    /// What is missing for the deployment to be of use, for `/healthz`.
    #[must_use]
    pub fn warnings(&self) -> Vec<Fault> {
        let missing = [
            (!self.keys.has_clients(), "CLIENT_KEYS", "is not set: nobody can submit a job"),
            (!self.keys.has_operator(), "ADMIN_KEY", "is not set: the operator's routes are closed"),
            (
                self.signing_secret.is_none(),
                "SIGNING_SECRET",
                "is not set: idempotency keys are refused, and there are no read tokens",
            ),
            (self.api_key.is_none(), "ANTHROPIC_API_KEY", "is not set: calls are sent without a key"),
            (
                ["/v1", "/v1/messages"].iter().any(|end| self.base_url.ends_with(end)),
                "ANTHROPIC_BASE_URL",
                "ends in a path that is added to it: calls go to it with /v1/messages behind",
            ),
        ];
        missing.into_iter().filter(|(is_missing, ..)| *is_missing).map(|(_, key, what)| Fault::new(key, what)).collect()
    }
}

/// Whether it can be a model's id, as `claude::request` has it for a request's.
fn is_model(text: &str) -> bool {
    (1..=200).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_http_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'@');
        !rest.is_empty() && !rest.starts_with('/') && text.bytes().all(is_plain)
    })
}

/// The shortest deadline a job may have.
pub const MIN_DEADLINE_SECONDS: u64 = 30;
/// The longest deadline a job may have: seven days.
pub const MAX_DEADLINE_SECONDS: u64 = 604_800;

const DEFAULT_BASE_URL: &str = "https://api.anthropic.com";
const DEFAULT_PRIMARY: &str = "claude-sonnet-5-5";
const DEFAULT_FALLBACK: &str = "claude-haiku-5-5";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vars_are_checked_too_and_keys_never_shown() {
        let vars = |key: &str| match key {
            "ANTHROPIC_BASE_URL" => Some("ftp://x".to_owned()),
            "CLIENT_KEYS" => Some("app:secret,hidden".to_owned()),
            _ => None,
        };
        let found: Vec<String> = Config::parse(vars).unwrap_err().iter().map(Fault::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(!found.join(" ").contains("hidden"));
    }

    #[test]
    fn a_deployment_with_nothing_set_works_and_says_what_is_missing() {
        let config = Config::parse(|_| None).unwrap();
        assert_eq!(config.base_url, "https://api.anthropic.com");
        let missing: Vec<String> = config.warnings().into_iter().map(|fault| fault.key).collect();
        assert_eq!(missing, ["CLIENT_KEYS", "ADMIN_KEY", "SIGNING_SECRET", "ANTHROPIC_API_KEY"]);
    }
}
