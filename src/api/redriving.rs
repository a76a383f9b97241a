//! `POST /v1/jobs/{id}/redrive` and `POST /v1/jobs/redrive`: the operator drives one job on, or page by page many.
//!
//! A page looks at up to [`MAX_ROWS`] rows of the list of all jobs, the newest first, and at `limit` jobs at most: each is two or
//! three requests of one invocation, which has fifty on the free plan. Whoever wants all sends the same with `next_cursor` until
//! that is null. What is driven on stays where it is in the list, so that no page leaves one out.

use super::error::{ApiError, ErrorKind};
use super::form::Form;
use super::listing::{Asked, Cursor, Page};
use super::moment;
use crate::job::{JobId, Row, Standing, Which};
use crate::json::{self, FromJson};
use crate::policy::answer::HoldReason;
use crate::policy::cause::Cause;
use crate::policy::time::Timestamp;

/// Which jobs the operator wants driven on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Many {
    /// What each of them is asked.
    pub which: Which,
    since: Timestamp,
    limit: usize,
    /// The page of the list.
    pub asked: Asked,
}

/// What has become of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its message was sent again, to be delivered now.
    SentAgain,
    /// That job does it again.
    StartedAgain(JobId),
    /// It is done, or at work, or asks its user; or that job does it again already.
    NotNeeded(Option<JobId>),
    /// It did not answer: send the same again.
    Unanswered,
}

impl Outcome {
    /// The stable name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::SentAgain => "sent_again",
            Self::StartedAgain(_) => "started_again",
            Self::NotNeeded(_) => "not_needed",
            Self::Unanswered => "unanswered",
        }
    }

    /// What became of a job that could not be driven on, for this error.
    #[must_use]
    pub const fn of(error: &ApiError) -> Self {
        match error.kind {
            // It is there no more, or what is kept of it cannot be sent any more.
            ErrorKind::NotFound | ErrorKind::InvalidRequest => Self::NotNeeded(None),
            _ => Self::Unanswered,
        }
    }

    /// Whether something was done.
    #[must_use]
    pub const fn is_news(&self) -> bool {
        matches!(self, Self::SentAgain | Self::StartedAgain(_))
    }

    /// The job that does it again.
    #[must_use]
    pub const fn new_job(&self) -> Option<&JobId> {
        match self {
            Self::StartedAgain(id) | Self::NotNeeded(Some(id)) => Some(id),
            _ => None,
        }
    }
}

impl Many {
    /// Reads `{"status": "failed" | "open", "reason"?, "since"?, "cursor"?, "limit"?}`.
    ///
    /// # Errors
    /// 400 with every fault.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let mut form = Form::parse(body, &["status", "reason", "since", "cursor", "limit"])?;
        let status = form.required::<String>("status", STATUS);
        let standing = match status.as_deref() {
            Some("failed") => Some(Standing::Failed),
            Some("open") => Some(Standing::Open),
            Some(_) => {
                form.problem("status", format!("must be {STATUS}"));
                None
            }
            None => None,
        };
        let reasons = match standing {
            Some(Standing::Failed) => OF_FAILED,
            Some(_) => OF_OPEN,
            None => REASON,
        };
        let reason = form.checked("reason", reasons, |reason| {
            let is_of_open = is_named::<HoldReason>(reason);
            let is_of_failed = END_REASONS.contains(&reason);
            is_named::<Cause>(reason)
                || match standing {
                    Some(Standing::Failed) => is_of_failed,
                    Some(_) => is_of_open,
                    None => is_of_open || is_of_failed,
                }
        });
        let since = form.optional::<String>("since", SINCE);
        let moment = since.as_deref().and_then(moment::parse);
        if since.is_some() && moment.is_none() {
            form.problem("since", format!("must be {SINCE}"));
        }
        let cursor = form.optional::<String>("cursor", CURSOR);
        let after = cursor.as_deref().and_then(Cursor::parse);
        if cursor.is_some() && after.is_none() {
            form.problem("cursor", format!("must be {CURSOR}"));
        }
        let limit = form.optional::<u32>("limit", LIMIT).unwrap_or(MAX_JOBS);
        if !(1..=MAX_JOBS).contains(&limit) {
            form.problem("limit", format!("must be {LIMIT}"));
        }
        match standing {
            Some(standing) if form.problems.is_empty() => Ok(Self {
                which: match standing {
                    Standing::Failed => Which::Failed { reason },
                    _ => Which::Waiting { reason },
                },
                since: moment.unwrap_or_default(),
                limit: usize::try_from(limit).unwrap_or(1),
                asked: Asked::of_standing(standing, MAX_ROWS, after),
            }),
            _ => Err(ApiError::invalid(form.problems)),
        }
    }

    /// Whether new jobs may come of it.
    #[must_use]
    pub const fn starts_jobs(&self) -> bool {
        matches!(self.which, Which::Failed { .. })
    }

    /// The jobs that are to be asked, and where the next page begins.
    #[must_use]
    pub fn pick(&self, page: &Page) -> (Vec<JobId>, Option<String>) {
        // Of a failed job it counts when that was.
        let is_recent = |row: &Row| match row.standing {
            Standing::Open => row.created_at >= self.since,
            _ => row.ends_at >= self.since,
        };
        page.pick(self.limit, is_recent)
    }
}

/// One job's answer.
#[must_use]
pub fn one(job: &JobId, outcome: &Outcome) -> String {
    json::write(&View::of(job, outcome))
}

/// A page's answer.
#[must_use]
pub fn many(outcomes: &[(JobId, Outcome)], next_cursor: Option<String>) -> String {
    json::write(&Views {
        redriven: outcomes.iter().map(|(job, outcome)| View::of(job, outcome)).collect(),
        next_cursor,
    })
}

struct Views {
    redriven: Vec<View>,
    next_cursor: Option<String>,
}

json::output!(Views { redriven, next_cursor });

struct View {
    job: String,
    outcome: &'static str,
    new_job: Option<String>,
}

json::output!(View { job, outcome, new_job as "as" });

impl View {
    fn of(job: &JobId, outcome: &Outcome) -> Self {
        let new_job = outcome.new_job().map(ToString::to_string);
        Self { job: job.to_string(), outcome: outcome.name(), new_job }
    }
}

/// Whether `name` is one of `T`'s.
fn is_named<T: FromJson>(name: &str) -> bool {
    json::read::<T>(&json::write(name)).is_ok()
}

const END_REASONS: [&str; 4] = ["attempts_exhausted", "deadline_exceeded", "deferral_declined", "interrupted"];
const STATUS: &str = "\"failed\" or \"open\"";
const REASON: &str =
    "a reason that a job with this status can have, as its status says it: \"attempts_exhausted\", \"spend_cap\"";
const OF_FAILED: &str =
    "a reason that a failed job can have, as its status says it: \"attempts_exhausted\", \"spend_cap\"";
const OF_OPEN: &str = "a reason that a job can wait for, as its status says it: \"paused\", \"breaker_open\"";
const SINCE: &str = "a moment in RFC 3339: \"2026-11-30T13:05:12Z\", \"2026-11-30T14:05:12+01:00\"";
const CURSOR: &str = "a `next_cursor` as it came";
const LIMIT: &str = "a whole number from 1 to 10";
/// Also what is taken without a limit.
const MAX_JOBS: u32 = 10;
const MAX_ROWS: usize = 100;
