//! The Durable Object of one client's index: a row for each of its jobs, told by the jobs themselves.
//!
//! A row is stored as it was told, beside what it is sought by. Its key is its place in a list, so that a page is read off in
//! order. It is also what tells a job from the one that had the same idempotency key before it, once that is over.
//!
//! Rows end by themselves: none is shown past its time, and the alarm deletes them, so many at a time.

use std::time::Duration;

use worker::{DurableObject, Env, Request, Response, Result, SqlStorage, SqlStorageValue, State, durable_object};

use super::sql::{number, whole_number};
use super::stubs::NAME_HEADER;
use super::{clock, log, results, settings, wire};
use crate::api::listing::Query;
use crate::job::Row;
use crate::json;
use crate::policy::time::Timestamp;

/// One client's index.
#[durable_object(alarm)]
pub struct IndexObject {
    state: State,
    env: Env,
}

impl DurableObject for IndexObject {
    fn new(state: State, env: Env) -> Self {
        Self { state, env }
    }

    async fn fetch(&self, request: Request) -> Result<Response> {
        // An error becomes an answer: a rejected promise would say less.
        match self.answer(request).await {
            Ok(response) => Ok(response),
            Err(error) => Response::error(error.to_string(), 500),
        }
    }

    async fn alarm(&self) -> Result<Response> {
        let next = match self.sweep() {
            Ok(next) => next.map(|at| at.after(clock::now()).max(PAUSE)),
            Err(error) => {
                log::trouble(None, "index", &error.to_string());
                Some(TROUBLE_PAUSE)
            }
        };
        if let Some(next) = next {
            self.state.storage().set_alarm(next).await?;
        }
        Response::empty()
    }
}

impl IndexObject {
    async fn answer(&self, mut request: Request) -> Result<Response> {
        let name = request.headers().get(NAME_HEADER)?.unwrap_or_default();
        let operation = request.path();
        let body = request.bytes().await?;
        match operation.as_str() {
            "/tell" => self.tell(&wire::decode(&body)?, name).await,
            "/list" => self.list(&wire::decode(&body)?),
            "/oldest" => Response::ok(json::write(&self.oldest()?)),
            _ => Response::error("no such operation", 404),
        }
    }

    /// Takes a row, unless it has a newer one of the same job.
    async fn tell(&self, row: &Row, name: String) -> Result<Response> {
        let retention = self.retention()?;
        if !self.exists()? {
            self.create()?;
            self.introduce(name);
        }
        let values = vec![
            number(row.created_at.as_millis()),
            row.id.to_string().into(),
            i64::from(row.version).into(),
            row.standing.name().into(),
            number(row.ends_at.as_millis()),
            json::write(row).into(),
        ];
        self.sql().exec(TELL, values)?;
        // From here on only the alarm is touched: told twice at once, the row is still one.
        let over_in = (row.ends_at + retention).after(clock::now()).max(PAUSE);
        let storage = self.state.storage();
        let is_later = |at: i64| u64::try_from(at).is_ok_and(|at| Timestamp::from_millis(at) > clock::now() + over_in);
        if storage.get_alarm().await?.is_none_or(is_later) {
            storage.set_alarm(over_in).await?;
        }
        Response::ok(json::write(&()))
    }

    /// The rows as they were told, in an array.
    fn list(&self, query: &Query) -> Result<Response> {
        if !self.exists()? {
            return Response::ok("[]");
        }
        let mut values = vec![self.oldest_shown()?];
        // The names are our own.
        let mut conditions = match query.standing {
            Some(standing) => format!("standing = '{}'", standing.name()),
            None => "standing <> 'gone'".to_owned(),
        };
        if let Some(after) = &query.after {
            conditions.push_str(" AND (created_at, id) < (?, ?)");
            values.extend([number(after.created_at.as_millis()), after.id.to_string().into()]);
        }
        values.push(i64::from(query.rows).into());
        // The plus keeps it from looking for ends first, and then sorting all that it finds.
        let select = format!(
            "SELECT json FROM job WHERE +ends_at > ? AND {conditions} ORDER BY created_at DESC, id DESC LIMIT ?"
        );
        let mut rows = Vec::new();
        for row in self.sql().exec(&select, values)?.raw() {
            if let Some(SqlStorageValue::String(row)) = row?.into_iter().next() {
                rows.push(row);
            }
        }
        Response::ok(format!("[{}]", rows.join(",")))
    }

    /// When the oldest of the jobs was submitted that are not over.
    fn oldest(&self) -> Result<Option<Timestamp>> {
        if !self.exists()? {
            return Ok(None);
        }
        let row = self.sql().exec(OLDEST, vec![number(clock::now().as_millis())])?.raw().next().transpose()?;
        let created_at = row.and_then(|columns| columns.into_iter().next());
        Ok(created_at.map(|at| Timestamp::from_millis(whole_number(&at))))
    }

    /// Deletes rows whose time is over; when that of the next one is.
    fn sweep(&self) -> Result<Option<Timestamp>> {
        let retention = self.retention()?;
        self.sql().exec(SWEEP, vec![self.oldest_shown()?, ROWS_A_SWEEP.into()])?;
        let next = self.sql().exec("SELECT MIN(ends_at) FROM job", None)?.raw().next().transpose()?;
        Ok(match next.and_then(|columns| columns.into_iter().next()) {
            Some(ends_at @ SqlStorageValue::Integer(_)) => {
                Some(Timestamp::from_millis(whole_number(&ends_at)) + retention)
            }
            _ => None,
        })
    }

    /// When the oldest have ended that are kept.
    fn oldest_shown(&self) -> Result<SqlStorageValue> {
        Ok(number((clock::now() - self.retention()?).as_millis()))
    }

    fn retention(&self) -> Result<Duration> {
        Ok(settings::load(&self.env).map_err(|_| "the configuration is broken")?.policy.timing().retention)
    }

    fn sql(&self) -> SqlStorage {
        self.state.storage().sql()
    }

    /// Whether it has been told anything yet. An index that is only asked writes nothing.
    fn exists(&self) -> Result<bool> {
        let table = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'job'";
        Ok(self.sql().exec(table, None)?.raw().next().transpose()?.is_some())
    }

    fn create(&self) -> Result<()> {
        for statement in TABLES {
            self.sql().exec(statement, None)?;
        }
        Ok(())
    }

    /// Notes a new index' name: the operator sees the jobs of a client whose key is gone as well.
    fn introduce(&self, name: String) {
        let env = self.env.clone();
        self.state.wait_until(async move {
            if let Err(error) = results::note_client(&env, &name).await {
                log::trouble(None, "kv", &error);
            }
        });
    }
}

const TABLES: [&str; 3] = [
    "CREATE TABLE IF NOT EXISTS job (created_at INTEGER NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, \
     standing TEXT NOT NULL, ends_at INTEGER NOT NULL, json TEXT NOT NULL, PRIMARY KEY (created_at, id)) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS by_standing ON job (standing, created_at, id)",
    "CREATE INDEX IF NOT EXISTS by_end ON job (ends_at)",
];
const TELL: &str = "INSERT INTO job (created_at, id, version, standing, ends_at, json) VALUES (?, ?, ?, ?, ?, ?) \
     ON CONFLICT (created_at, id) DO UPDATE SET version = excluded.version, standing = excluded.standing, \
     ends_at = excluded.ends_at, json = excluded.json WHERE excluded.version >= job.version";
/// One that should have ended by now is over, and its row is to come.
const OLDEST: &str = "SELECT created_at FROM job WHERE standing = 'open' AND +ends_at > ? ORDER BY created_at LIMIT 1";
const SWEEP: &str = "DELETE FROM job WHERE (created_at, id) IN \
     (SELECT created_at, id FROM job WHERE ends_at <= ? ORDER BY ends_at LIMIT ?)";
/// Some milliseconds' work, and at one sweep every ten seconds a hundred jobs a second.
const ROWS_A_SWEEP: i64 = 1_000;
const PAUSE: Duration = Duration::from_secs(10);
const TROUBLE_PAUSE: Duration = Duration::from_secs(60);
