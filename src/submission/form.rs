//! What a submission must look like. Every fault is reported at once, each with its place.

use crate::api::error::ApiError;
use crate::api::form::Form;
use crate::api::webhook;
use crate::api::wish::Wish;
use crate::claude::betas::Betas;
use crate::claude::request::{MessagesRequest, is_model};
use crate::claude::version;
use crate::config::{Config, MAX_DEADLINE_SECONDS, MIN_DEADLINE_SECONDS};
use crate::job::{Spec, WhenInterrupted};
use crate::json::{Text, for_each_of_members};
use crate::policy::demands::Demands;
use crate::policy::priority::Priority;
use crate::policy::wording::language;

/// The largest submission: 8 MiB. It is held in memory once, raw.
pub const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;

/// The largest call that is passed on: what the Messages API takes.
pub const MAX_CALL_BYTES: usize = 32 * 1024 * 1024;

/// A checked submission.
#[derive(Debug)]
pub struct Submission {
    /// Its fields.
    pub spec: Spec,
    /// Its Messages body, without model and stream.
    pub request: MessagesRequest,
}

impl Submission {
    /// Reads the body of `POST /v1/jobs` and the upstream's headers that came with it.
    ///
    /// # Errors
    /// 400 with every fault.
    pub fn parse(body: &[u8], betas: Option<&str>, version: Option<&str>, config: &Config) -> Result<Self, ApiError> {
        let mut form = Form::parse(body, &FIELDS)?;
        let names = || config.kinds.names().collect::<Vec<_>>().join(", ");
        let kind: Option<String> = form.required("kind", "a string");
        if kind.as_deref().is_some_and(|kind| config.kinds.get(kind).is_none()) {
            form.problem("kind", format!("must be one of {}", names()));
        }
        let priority = form.optional("priority", "\"high\", \"medium\" or \"low\"").unwrap_or(Priority::Medium);
        let preset = form.optional("preset", "\"realtime\", \"batch\" or \"offline\"");
        let when_exhausted = form.optional("when_exhausted", "\"ask\", \"defer\" or \"fail\"");
        let when_interrupted = form.optional("when_interrupted", "\"restart\" or \"fail\"").unwrap_or_default();
        let deadline_range = format!("a whole number of seconds from {MIN_DEADLINE_SECONDS} to {MAX_DEADLINE_SECONDS}");
        let deadline: Option<u64> = form.optional("deadline_seconds", &deadline_range);
        if deadline.is_some_and(|seconds| !(MIN_DEADLINE_SECONDS..=MAX_DEADLINE_SECONDS).contains(&seconds)) {
            form.problem("deadline_seconds", format!("must be {deadline_range}"));
        }
        let webhook = form.checked("webhook", webhook::ADDRESS, webhook::is_address);
        let locale = form.checked("locale", "a BCP 47 language tag, such as \"en\" or \"zh-CN\"", language::is_tag);
        let metadata = metadata(&mut form);
        let request = request(&mut form);
        let betas = Betas::parse(betas.unwrap_or_default()).unwrap_or_else(|problem| {
            form.problems.push(problem);
            None
        });
        form.problems.extend(version.and_then(|version| version::check(version).err()));
        match (kind, request) {
            (Some(kind), Some(request)) if form.problems.is_empty() => {
                let own = config.kinds.get(&kind).and_then(|kind| kind.primary_model.clone());
                let model = request.model.clone().or(own).unwrap_or_else(|| config.primary_model.clone());
                let deadline_seconds = deadline.unwrap_or(config.policy.deadline_seconds);
                let spec = Spec {
                    kind,
                    priority,
                    model,
                    betas: None,
                    version: version.map(str::to_owned),
                    preset,
                    deadline_seconds,
                    when_exhausted,
                    when_interrupted,
                    webhook,
                    origin: None,
                    metadata,
                    locale,
                    demands: request.demands.clone(),
                    first_choice_only: false,
                    fallback_allowed: false,
                    handed_over: false,
                    regenerates: None,
                };
                Ok(Self { spec: with_betas(spec, betas), request })
            }
            _ => Err(ApiError::invalid(form.problems)),
        }
    }
}

/// The fields of the job that a Messages call becomes if it is handed over, and its body without model and stream. `None` if
/// the body is none that a job could have.
#[must_use]
pub(super) fn of_call(
    body: &[u8],
    betas: Option<&str>,
    version: Option<&str>,
    wish: &Wish,
    config: &Config,
) -> Option<Submission> {
    let request = MessagesRequest::parse(std::str::from_utf8(body).ok()?, "request").ok()?;
    let betas = Betas::parse(betas.unwrap_or_default()).ok()?;
    version.map_or(Ok(()), version::check).ok()?;
    let spec = of_wish(wish, request.model.as_deref(), request.demands.clone(), config);
    let spec = Spec { version: version.map(str::to_owned), ..spec };
    Some(Submission { spec: with_betas(spec, betas), request })
}

/// The fields of a call of which no more is known than the model that it names.
#[must_use]
pub(super) fn of_unread_call(beginning: &[u8], wish: &Wish, config: &Config) -> Option<Spec> {
    let model = model_of(beginning)?;
    let spec = of_wish(wish, Some(&model), Demands::default(), config);
    Some(Spec { first_choice_only: true, fallback_allowed: false, handed_over: false, ..spec })
}

/// The model that a body, or the beginning of one, names. Of two the upstream takes the later.
#[must_use]
pub fn model_of(beginning: &[u8]) -> Option<String> {
    let text = match std::str::from_utf8(beginning) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(beginning.get(..error.valid_up_to())?).ok()?,
    };
    let mut model = None;
    // Where it breaks off, or makes no sense, that was it.
    let _ = for_each_of_members(text.trim_start().strip_prefix('{')?, &mut |name, value| {
        if name == "model" {
            model = value.string().map(std::borrow::Cow::into_owned);
        }
        Ok(())
    });
    model.filter(|model| is_model(model))
}

fn of_wish(wish: &Wish, model: Option<&str>, demands: Demands, config: &Config) -> Spec {
    let kind = wish.kind.clone().unwrap_or_else(|| DEFAULT_KIND.to_owned());
    let own = config.kinds.get(&kind).and_then(|kind| kind.primary_model.as_deref());
    Spec {
        model: model.or(own).unwrap_or(&config.primary_model).to_owned(),
        kind,
        priority: wish.priority,
        betas: None,
        version: None,
        preset: None,
        deadline_seconds: config.policy.deadline_seconds,
        when_exhausted: None,
        when_interrupted: WhenInterrupted::default(),
        webhook: wish.webhook.clone(),
        origin: None,
        metadata: None,
        locale: None,
        demands,
        first_choice_only: wish.fallback == Some(false),
        fallback_allowed: wish.fallback == Some(true),
        handed_over: true,
        regenerates: None,
    }
}

/// The betas are passed on as they came, and are asked of the model, too.
fn with_betas(mut spec: Spec, betas: Option<Betas>) -> Spec {
    spec.betas = betas.map(|betas| betas.as_str().to_owned());
    demand_betas(&mut spec);
    spec
}

fn demand_betas(spec: &mut Spec) {
    let names = spec.betas.as_deref().unwrap_or_default().split(',');
    names.filter(|name| !name.is_empty()).for_each(|name| spec.demands.add_feature(name));
}

/// What a body asks of a model once it is another one than it was.
pub(super) fn read_demands(spec: &mut Spec, body_rest: &str) {
    if let Ok(request) = MessagesRequest::parse(&format!("{{{body_rest}}}"), "request") {
        spec.demands = request.demands;
        demand_betas(spec);
    }
}

fn metadata(form: &mut Form<'_>) -> Option<Text> {
    let value = form.value("metadata")?;
    if !value.get().starts_with('{') || value.get().len() > MAX_METADATA_BYTES {
        form.problem("metadata", format!("must be an object of at most {MAX_METADATA_BYTES} bytes"));
    }
    Some(value.into())
}

fn request(form: &mut Form<'_>) -> Option<MessagesRequest> {
    let Some(value) = form.fields.get("request") else {
        form.problem("request", "is required: the body of a Messages request");
        return None;
    };
    MessagesRequest::parse(value.get(), "request").map_err(|mut problems| form.problems.append(&mut problems)).ok()
}

const FIELDS: [&str; 10] = [
    "kind",
    "priority",
    "request",
    "deadline_seconds",
    "when_exhausted",
    "preset",
    "when_interrupted",
    "webhook",
    "metadata",
    "locale",
];
/// The kind of a call that names none.
const DEFAULT_KIND: &str = "default";
const MAX_METADATA_BYTES: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::model_of;

    #[test]
    fn a_bodys_model_is_found_if_nothing_long_or_wrong_is_before_it() {
        let long = "x".repeat(9_000);
        for (body, model) in [
            (
                format!(r#"{{"model":"m-1","max_tokens":9,"messages":[{{"role":"user","content":"{long}"}}]}}"#),
                Some("m-1"),
            ),
            (format!(r#" {{ "max_tokens":9, "stream":true,"model" : "m-1", "system":"{long}"}}"#), Some("m-1")),
            (format!(r#"{{"model":"\u006d-1","system":"{long}"}}"#), Some("m-1")),
            (format!(r#"{{"system":"{long}","model":"m-1"}}"#), None),
            (format!(r#"{{"model":7,"system":"{long}"}}"#), None),
            (format!(r#"{{"model":"","system":"{long}"}}"#), None),
            (format!(r#"{{"metadata":{{"model":"no"}},"system":"{long}"}}"#), None),
            (r#"["model","m-1"]"#.to_owned(), None),
            (r#"{"model":"m-0","model":"m-1","system":"\ud800"}"#.to_owned(), Some("m-1")),
            (r#"{"model":"m-1","max_tokens":,"model":"m-2"}"#.to_owned(), Some("m-1")),
            (String::new(), None),
        ] {
            let beginning = &body.as_bytes()[..body.len().min(4_096)];
            assert_eq!(model_of(beginning).as_deref(), model, "{:.40}", body);
        }
        let cut = &r#"{"model":"m-1","system":"é"#.as_bytes()[..26];
        assert_eq!(model_of(cut).as_deref(), Some("m-1"), "in the middle of a character");
    }
}
