//! Which path is which route, and which methods it has.

use crate::claude::request::is_model;
use crate::job::JobId;
use crate::policy::priority::Priority;
use crate::policy::switches::Name;

/// A path that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/v1/messages`: the synchronous path.
    Messages,
    /// `/v1/messages/count_tokens` and `/v1/models`, which are the upstream's alone.
    Upstream,
    /// `/v1/jobs`
    Jobs,
    /// `/v1/jobs/{id}`; `None` if the id cannot be one.
    Job(Option<JobId>),
    /// `/v1/jobs/{id}/events`
    Events(Option<JobId>),
    /// `/v1/jobs/{id}/deferral`
    Deferral(Option<JobId>),
    /// `/v1/jobs/{id}/regenerate`
    Regenerate(Option<JobId>),
    /// `/v1/jobs/{id}/webhook`
    Webhook(Option<JobId>),
    /// `/v1/jobs/{id}/redrive`
    Redrive(Option<JobId>),
    /// `/v1/jobs/redrive`
    RedriveMany,
    /// `/v1/queues`
    Queues,
    /// `/v1/queues/{priority}/pause` and `/v1/drain`; `None` if there is no such queue.
    Switch(Option<Name>),
    /// `/v1/gates`
    Gates,
    /// `/v1/gates/{model}/override`; the model as it is meant, `None` if it cannot be one.
    Override(Option<String>),
    /// `/v1/metrics`
    Metrics,
    /// `/healthz`
    Health,
}

impl Route {
    /// The route of a path, if there is one. A slash at the end makes no difference.
    #[must_use]
    pub fn of(path: &str) -> Option<Self> {
        let path = path.strip_suffix('/').unwrap_or(path);
        match path {
            "/v1/messages" => Some(Self::Messages),
            "/v1/messages/count_tokens" | "/v1/models" => Some(Self::Upstream),
            "/v1/jobs" => Some(Self::Jobs),
            "/v1/jobs/redrive" => Some(Self::RedriveMany),
            "/v1/queues" => Some(Self::Queues),
            "/v1/drain" => Some(Self::Switch(Some(Name::Drain))),
            "/v1/gates" => Some(Self::Gates),
            "/v1/metrics" => Some(Self::Metrics),
            "/healthz" => Some(Self::Health),
            _ => {
                if path.strip_prefix("/v1/models/").is_some_and(|model| !model.contains('/')) {
                    return Some(Self::Upstream);
                }
                if let Some(model) = path.strip_prefix("/v1/gates/").and_then(|rest| rest.strip_suffix("/override")) {
                    return (!model.contains('/')).then(|| Self::Override(decoded(model).filter(|it| is_model(it))));
                }
                if let Some(queue) = path.strip_prefix("/v1/queues/").and_then(|rest| rest.strip_suffix("/pause")) {
                    let priority = Priority::ALL.into_iter().find(|priority| priority.name() == queue);
                    return (!queue.contains('/')).then(|| Self::Switch(priority.map(Name::Pause)));
                }
                let rest = path.strip_prefix("/v1/jobs/")?;
                let (id, what) = rest.split_once('/').unwrap_or((rest, ""));
                let id = id.parse().ok();
                match what {
                    "" => Some(Self::Job(id)),
                    "events" => Some(Self::Events(id)),
                    "deferral" => Some(Self::Deferral(id)),
                    "regenerate" => Some(Self::Regenerate(id)),
                    "webhook" => Some(Self::Webhook(id)),
                    "redrive" => Some(Self::Redrive(id)),
                    _ => None,
                }
            }
        }
    }

    /// What a browser may read with a read token: a job's status and its events.
    #[must_use]
    pub const fn is_for_browsers(&self) -> bool {
        matches!(self, Self::Job(_) | Self::Events(_))
    }

    /// The job that a read token has to be for; `None` where it opens nothing.
    #[must_use]
    pub fn readable_job(&self, method: &str) -> Option<&JobId> {
        match self {
            Self::Job(id) | Self::Events(id) if method == "GET" => id.as_ref(),
            _ => None,
        }
    }

    /// Whether it has `method`.
    #[must_use]
    pub fn allows(&self, method: &str) -> bool {
        self.allow().split(", ").any(|allowed| allowed == method)
    }

    /// Its methods, as the `Allow` header wants them.
    #[must_use]
    pub const fn allow(&self) -> &'static str {
        match self {
            Self::Upstream => "GET, POST",
            Self::Jobs => "GET, POST",
            Self::Messages
            | Self::Deferral(_)
            | Self::Regenerate(_)
            | Self::Webhook(_)
            | Self::Redrive(_)
            | Self::RedriveMany => "POST",
            Self::Job(_) => "GET, DELETE",
            Self::Events(_) | Self::Gates | Self::Queues | Self::Metrics => "GET",
            // Monitors ask by HEAD.
            Self::Health => "GET, HEAD",
            Self::Override(_) | Self::Switch(_) => "PUT, DELETE",
        }
    }
}

/// A part of a path without its percent-encoding; `None` if that is broken.
fn decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(if byte == b'%' { u8::try_from(digit()? * 16 + digit()?).ok()? } else { byte });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_their_routes_and_others_nowhere() {
        let id = JobId::random(1);
        for (path, route) in [
            ("/v1/jobs".to_owned(), Some(Route::Jobs)),
            ("/v1/jobs/".to_owned(), Some(Route::Jobs)),
            (format!("/v1/jobs/{id}"), Some(Route::Job(Some(id.clone())))),
            ("/v1/jobs/nonsense".to_owned(), Some(Route::Job(None))),
            (format!("/v1/jobs/{id}/events"), Some(Route::Events(Some(id.clone())))),
            ("/v1/jobs/nonsense/events".to_owned(), Some(Route::Events(None))),
            (format!("/v1/jobs/{id}/deferral"), Some(Route::Deferral(Some(id.clone())))),
            (format!("/v1/jobs/{id}/regenerate/"), Some(Route::Regenerate(Some(id.clone())))),
            (format!("/v1/jobs/{id}/webhook"), Some(Route::Webhook(Some(id.clone())))),
            ("/v1/jobs/nonsense/deferral".to_owned(), Some(Route::Deferral(None))),
            (format!("/v1/jobs/{id}/redrive"), Some(Route::Redrive(Some(id.clone())))),
            ("/v1/jobs/nonsense/redrive".to_owned(), Some(Route::Redrive(None))),
            ("/v1/jobs/redrive".to_owned(), Some(Route::RedriveMany)),
            ("/v1/queues/".to_owned(), Some(Route::Queues)),
            ("/v1/queues/high/pause".to_owned(), Some(Route::Switch(Some(Name::Pause(Priority::High))))),
            ("/v1/queues/low/pause/".to_owned(), Some(Route::Switch(Some(Name::Pause(Priority::Low))))),
            ("/v1/queues/dead/pause".to_owned(), Some(Route::Switch(None))),
            ("/v1/queues/High/pause".to_owned(), Some(Route::Switch(None))),
            ("/v1/queues//pause".to_owned(), Some(Route::Switch(None))),
            ("/v1/queues/a/b/pause".to_owned(), None),
            ("/v1/queues/high".to_owned(), None),
            ("/v1/queues/pause".to_owned(), None),
            ("/v1/drain".to_owned(), Some(Route::Switch(Some(Name::Drain)))),
            (format!("/v1/jobs/{id}/x"), None),
            (format!("/v1/jobs/{id}/deferral/x"), None),
            ("/v1/gates".to_owned(), Some(Route::Gates)),
            ("/healthz".to_owned(), Some(Route::Health)),
            ("/".to_owned(), None),
            ("/v1/job".to_owned(), None),
        ] {
            assert_eq!(Route::of(&path), route, "{path}");
        }
    }

    #[test]
    fn an_overrides_model_is_percent_decoded_and_can_be_any_that_a_job_can_name() {
        let longest = "m".repeat(200);
        for (path, model) in [
            ("/v1/gates/claude-sonnet-5-5/override", Some("claude-sonnet-5-5")),
            ("/v1/gates/claude-sonnet-5-5/override/", Some("claude-sonnet-5-5")),
            ("/v1/gates/never%2dheard%2Fof%3A1@x/override", Some("never-heard/of:1@x")),
            ("/v1/gates/override/override", Some("override")),
            (&format!("/v1/gates/{longest}/override"), Some(&longest)),
            (&format!("/v1/gates/{longest}m/override"), None),
            ("/v1/gates//override", None),
            ("/v1/gates/a%20b/override", None),
            ("/v1/gates/a%0Ab/override", None),
            ("/v1/gates/m%C3%BCller/override", None),
            ("/v1/gates/a%ff/override", None),
            ("/v1/gates/a%/override", None),
            ("/v1/gates/a%2/override", None),
            ("/v1/gates/a%zz/override", None),
            ("/v1/gates/a%+2/override", None),
        ] {
            assert_eq!(Route::of(path), Some(Route::Override(model.map(str::to_owned))), "{path}");
        }
        for path in ["/v1/gates/override", "/v1/gates/a", "/v1/gates/a/b/override", "/v1/gates/a/override/x"] {
            assert_eq!(Route::of(path), None, "{path}");
        }
        let route = Route::Override(None);
        assert!(route.allows("PUT") && route.allows("DELETE") && !route.allows("GET") && !route.allows("POST"));
    }
}
