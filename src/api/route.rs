//! Which path is which route, and which methods it has.

use crate::job::JobId;

/// A path that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/v1/jobs`
    Jobs,
    /// `/v1/jobs/{id}`; `None` if the id cannot be one.
    Job(Option<JobId>),
    /// `/v1/jobs/{id}/deferral`
    Deferral(Option<JobId>),
    /// `/v1/jobs/{id}/regenerate`
    Regenerate(Option<JobId>),
    /// `/v1/gates`
    Gates,
    /// `/healthz`
    Health,
}

impl Route {
    /// The route of a path, if there is one. A slash at the end makes no difference.
    #[must_use]
    pub fn of(path: &str) -> Option<Self> {
        let path = path.strip_suffix('/').unwrap_or(path);
        match path {
            "/v1/jobs" => Some(Self::Jobs),
            "/v1/gates" => Some(Self::Gates),
            "/healthz" => Some(Self::Health),
            _ => {
                let rest = path.strip_prefix("/v1/jobs/")?;
                let (id, what) = rest.split_once('/').unwrap_or((rest, ""));
                let id = id.parse().ok();
                match what {
                    "" => Some(Self::Job(id)),
                    "deferral" => Some(Self::Deferral(id)),
                    "regenerate" => Some(Self::Regenerate(id)),
                    _ => None,
                }
            }
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
            Self::Jobs | Self::Deferral(_) | Self::Regenerate(_) => "POST",
            Self::Job(_) => "GET, DELETE",
            Self::Gates | Self::Health => "GET",
        }
    }
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
            (format!("/v1/jobs/{id}/deferral"), Some(Route::Deferral(Some(id.clone())))),
            (format!("/v1/jobs/{id}/regenerate/"), Some(Route::Regenerate(Some(id.clone())))),
            ("/v1/jobs/nonsense/deferral".to_owned(), Some(Route::Deferral(None))),
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
}
