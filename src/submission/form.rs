//! What a submission must look like. Every fault is reported at once, each with its place.

use std::borrow::Cow;

use crate::api::error::{ApiError, ErrorKind};
use crate::claude::betas::Betas;
use crate::claude::request::{MessagesRequest, Problem};
use crate::config::{Config, MAX_DEADLINE_SECONDS, MIN_DEADLINE_SECONDS};
use crate::job::Spec;
use crate::json::{self, Fields, FromJson, Json, Text};
use crate::policy::priority::Priority;
use crate::policy::wording::language;

/// The largest submission: 8 MiB. It is held in memory once, raw.
pub const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;

/// A checked submission.
#[derive(Debug)]
pub struct Submission {
    /// Its fields.
    pub spec: Spec,
    /// Its Messages body, without model and stream.
    pub request: MessagesRequest,
}

impl Submission {
    /// Reads the body of `POST /v1/jobs` and the `anthropic-beta` header that came with it.
    ///
    /// # Errors
    /// 400 with every fault.
    pub fn parse(body: &[u8], betas: Option<&str>, config: &Config) -> Result<Self, ApiError> {
        let not_json = |error: &dyn std::fmt::Display| {
            ApiError::new(ErrorKind::InvalidRequest, format!("the body is not a JSON object: {error}"))
        };
        let text = std::str::from_utf8(body).map_err(|error| not_json(&error))?;
        let fields = Fields::parse(text).map_err(|error| not_json(&error))?;
        let mut form = Form { fields, problems: Vec::new() };
        form.refuse_unknown_and_doubled();

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
        let webhook = form.checked("webhook", "an https:// address of at most 2,048 characters", is_webhook);
        let locale = form.checked("locale", "a BCP 47 language tag, such as \"en\" or \"zh-CN\"", language::is_tag);
        let metadata = form.metadata();
        let request = form.request();
        let betas = Betas::parse(betas.unwrap_or_default()).unwrap_or_else(|problem| {
            form.problems.push(problem);
            None
        });
        match (kind, request) {
            (Some(kind), Some(request)) if form.problems.is_empty() => {
                let own = config.kinds.get(&kind).and_then(|kind| kind.primary_model.clone());
                let model = request.model.clone().or(own).unwrap_or_else(|| config.primary_model.clone());
                let mut demands = request.demands.clone();
                let names = betas.as_ref().map(Betas::as_str).unwrap_or_default().split(',');
                names.filter(|name| !name.is_empty()).for_each(|name| demands.add_feature(name));
                let deadline_seconds = deadline.unwrap_or(config.policy.deadline_seconds);
                let spec = Spec {
                    kind,
                    priority,
                    model,
                    betas: betas.map(|betas| betas.as_str().to_owned()),
                    preset,
                    deadline_seconds,
                    when_exhausted,
                    when_interrupted,
                    webhook,
                    metadata,
                    locale,
                    demands,
                    first_choice_only: false,
                    regenerates: None,
                };
                Ok(Self { spec, request })
            }
            _ => Err(ApiError::invalid(form.problems)),
        }
    }
}

/// The members of a submission and what has been found wrong with them.
struct Form<'a> {
    fields: Fields<'a>,
    problems: Vec<Problem>,
}

impl<'a> Form<'a> {
    fn problem(&mut self, place: &str, message: impl Into<String>) {
        self.problems.push(Problem { place: place.to_owned(), message: message.into() });
    }

    fn refuse_unknown_and_doubled(&mut self) {
        let names: Vec<Cow<'a, str>> = self.fields.0.iter().map(|(name, _)| name.clone()).collect();
        for (index, name) in names.iter().enumerate() {
            if !FIELDS.contains(&name.as_ref()) {
                self.problem(&printable(name), format!("is not a known field; there are {}", FIELDS.join(", ")));
            } else if names.iter().take(index).any(|earlier| earlier == name) {
                self.problem(name, "appears twice");
            }
        }
    }

    fn required<T: FromJson>(&mut self, name: &str, expected: &str) -> Option<T> {
        if self.fields.get(name).is_none_or(|value| value.get() == "null") {
            self.problem(name, format!("is required: {expected}"));
        }
        self.optional(name, expected)
    }

    /// The value of `name`; a null is as good as none.
    fn optional<T: FromJson>(&mut self, name: &str, expected: &str) -> Option<T> {
        let value = self.fields.get(name).map(Json::get).filter(|json| *json != "null")?;
        let parsed = json::read(value).ok();
        if parsed.is_none() {
            self.problem(name, format!("must be {expected}"));
        }
        parsed
    }

    fn checked(&mut self, name: &str, expected: &str, is_valid: impl Fn(&str) -> bool) -> Option<String> {
        let value: String = self.optional(name, expected)?;
        if !is_valid(&value) {
            self.problem(name, format!("must be {expected}"));
        }
        Some(value)
    }

    fn metadata(&mut self) -> Option<Text> {
        let value = self.fields.get("metadata").filter(|value| value.get() != "null")?;
        if !value.get().starts_with('{') || value.get().len() > MAX_METADATA_BYTES {
            self.problem("metadata", format!("must be an object of at most {MAX_METADATA_BYTES} bytes"));
        }
        Some(value.into())
    }

    fn request(&mut self) -> Option<MessagesRequest> {
        let Some(value) = self.fields.get("request") else {
            self.problem("request", "is required: the body of a Messages request");
            return None;
        };
        MessagesRequest::parse(value.get(), "request").map_err(|mut problems| self.problems.append(&mut problems)).ok()
    }
}

/// A name that a caller made up, fit for a message.
fn printable(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(64).collect()
}

fn is_webhook(address: &str) -> bool {
    let is_address =
        |scheme: &str| address.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
    // Without TLS only to this very machine, for trying things out: the whole host has to be one of these.
    let is_local = address.strip_prefix("http://").is_some_and(|rest| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let is_port = |port: &str| port.parse::<u16>().is_ok();
        ["localhost", "127.0.0.1", "[::1]"].iter().any(|host| {
            authority
                .strip_prefix(host)
                .is_some_and(|port| port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
        })
    });
    address.len() <= 2_048
        && address.bytes().all(|byte| byte.is_ascii_graphic())
        && (is_address("https://") || is_local)
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
const MAX_METADATA_BYTES: usize = 4_096;
