//! The Durable Object that counts: every isolate tells it what has happened since it told it last.
//!
//! A series has a row for each minute and each hour that it was added to, and one for all time. What a series is named is said by
//! `telemetry::metric`, and what the sums mean by `telemetry::figures`: here they are added up and kept, no more.

use std::time::Duration;

use worker::{DurableObject, Env, Request, Response, Result, SqlStorage, SqlStorageValue, State, durable_object};

use super::{clock, log, wire};
use crate::json::{self, Map, Text};
use crate::policy::time::Timestamp;
use crate::telemetry::News;
use crate::telemetry::metric::Counts;
use crate::telemetry::readings::{
    HOURS_KEPT, Happened, Hour, MAX_SERIES, MINUTES_KEPT, Point, Readings, WINDOW_MINUTES, Wanted,
};

/// The deployment's meter.
#[durable_object(alarm)]
pub struct MeterObject {
    state: State,
}

impl DurableObject for MeterObject {
    fn new(state: State, _env: Env) -> Self {
        Self { state }
    }

    async fn fetch(&self, request: Request) -> Result<Response> {
        // An error becomes an answer: a rejected promise would say less.
        match self.answer(request).await {
            Ok(response) => Ok(response),
            Err(error) => Response::error(error.to_string(), 500),
        }
    }

    async fn alarm(&self) -> Result<Response> {
        if let Err(error) = self.sweep() {
            log::trouble(None, METER, &error.to_string());
        }
        self.state.storage().set_alarm(SWEEP_EVERY).await?;
        Response::empty()
    }
}

impl MeterObject {
    async fn answer(&self, mut request: Request) -> Result<Response> {
        let operation = request.path();
        let body = request.bytes().await?;
        for statement in TABLES {
            self.sql().exec(statement, None)?;
        }
        match operation.as_str() {
            "/take" => self.take(&wire::decode(&body)?).await,
            "/read" => Response::ok(json::write(&self.read(wire::decode(&body)?)?)),
            _ => Response::error("no such operation", 404),
        }
    }

    async fn take(&self, news: &News) -> Result<Response> {
        let now = clock::now();
        let (minute, hour) = (number(now.as_millis() / MINUTE), number(now.as_millis() / HOUR));
        for (series, value) in news.counts.0.iter() {
            let value = number(*value);
            if !self.is_known(series, &value)? {
                continue;
            }
            self.sql().exec(ADD_TO_MINUTE, vec![minute.clone(), series.as_str().into(), value.clone()])?;
            self.sql().exec(ADD_TO_HOUR, vec![hour.clone(), series.as_str().into(), value])?;
        }
        for event in &news.events {
            self.sql().exec(ADD_EVENT, vec![number(now.as_millis()), event.as_str().into()])?;
        }
        // From here on only the alarm is touched.
        let storage = self.state.storage();
        if storage.get_alarm().await?.is_none() {
            storage.set_alarm(SWEEP_EVERY).await?;
        }
        Response::ok(json::write(&()))
    }

    /// Adds to the sum of all time. False if it is one series too many: labels come from apps, too.
    fn is_known(&self, series: &str, value: &SqlStorageValue) -> Result<bool> {
        let added = self.sql().exec(ADD_TO_TOTAL, vec![value.clone(), series.into()])?;
        if added.rows_written() > 0 {
            return Ok(true);
        }
        if self.number("SELECT COUNT(*) FROM total", vec![])? >= u64::from(MAX_SERIES) {
            return Ok(false);
        }
        self.sql().exec("INSERT INTO total (series, value) VALUES (?, ?)", vec![series.into(), value.clone()])?;
        Ok(true)
    }

    fn read(&self, wanted: Wanted) -> Result<Readings> {
        let at = clock::now();
        let minute = at.as_millis() / MINUTE;
        let since = |minutes: u32| number((minute + 1).saturating_sub(u64::from(minutes)));
        let window = vec![since(WINDOW_MINUTES)];
        let mut readings = Readings {
            at,
            totals: self.counts("SELECT series, value FROM total ORDER BY series", vec![])?,
            window: self.counts(
                "SELECT series, SUM(value) FROM minute WHERE at >= ? GROUP BY series ORDER BY series",
                window,
            )?,
            ..Readings::default()
        };
        if wanted.minutes == 0 {
            return Ok(readings);
        }
        let step = wanted.minutes.div_ceil(MOST_POINTS);
        readings.step_seconds = step * 60;
        readings.points = self.points(step, since(wanted.minutes))?;
        let hours = number((at.as_millis() / HOUR).saturating_sub(HOURS_KEPT.into()));
        for row in self.sql().exec(HOURS, vec![hours])?.raw() {
            let [hour, calls, failed] = whole_numbers(row?);
            readings.hours.push(Hour { hour, calls, failed });
        }
        let events = number((at.as_millis()).saturating_sub(u64::from(wanted.minutes) * MINUTE));
        for row in self.sql().exec(EVENTS, vec![events])?.raw() {
            if let [SqlStorageValue::Integer(at), SqlStorageValue::String(event)] = &row?[..]
                && let Ok(event) = json::read::<Text>(event)
            {
                let at = Timestamp::from_millis(u64::try_from(*at).unwrap_or_default());
                readings.events.push(Happened { at, event });
            }
        }
        readings.events.reverse();
        Ok(readings)
    }

    /// The timeline's points, each of so many minutes.
    fn points(&self, step: u32, since: SqlStorageValue) -> Result<Vec<Point>> {
        let mut points: Vec<Point> = Vec::new();
        let length = u64::from(step) * MINUTE;
        for row in self.sql().exec(POINTS, vec![number(step.into()), since])?.raw() {
            let mut row = row?.into_iter();
            let (Some(SqlStorageValue::Integer(at)), Some(SqlStorageValue::String(series)), Some(value)) =
                (row.next(), row.next(), row.next())
            else {
                continue;
            };
            let at = Timestamp::from_millis(u64::try_from(at).unwrap_or_default() * length);
            if points.last().is_none_or(|point| point.at != at) {
                points.push(Point { at, counts: Counts::default() });
            }
            if let Some(point) = points.last_mut() {
                point.counts.0.insert(series, whole_number(&value));
            }
        }
        Ok(points)
    }

    fn counts(&self, query: &str, values: Vec<SqlStorageValue>) -> Result<Counts> {
        let mut counts = Map::default();
        for row in self.sql().exec(query, values)?.raw() {
            let mut row = row?.into_iter();
            if let (Some(SqlStorageValue::String(series)), Some(value)) = (row.next(), row.next()) {
                counts.insert(series, whole_number(&value));
            }
        }
        Ok(Counts(counts))
    }

    fn number(&self, query: &str, values: Vec<SqlStorageValue>) -> Result<u64> {
        let row = self.sql().exec(query, values)?.raw().next().transpose()?;
        Ok(row.and_then(|row| row.first().map(whole_number)).unwrap_or_default())
    }

    /// Deletes what is too old to be asked for.
    fn sweep(&self) -> Result<()> {
        let now = clock::now().as_millis();
        let minutes = number((now / MINUTE).saturating_sub(MINUTES_KEPT.into()));
        self.sql().exec("DELETE FROM minute WHERE at < ?", vec![minutes])?;
        self.sql()
            .exec("DELETE FROM hour WHERE at < ?", vec![number((now / HOUR).saturating_sub(HOURS_KEPT.into()))])?;
        let events = number(now.saturating_sub(u64::from(MINUTES_KEPT) * MINUTE));
        self.sql().exec("DELETE FROM event WHERE at < ?", vec![events])?;
        Ok(())
    }

    fn sql(&self) -> SqlStorage {
        self.state.storage().sql()
    }
}

fn number(value: u64) -> SqlStorageValue {
    i64::try_from(value).unwrap_or(i64::MAX).min(MAX_SAFE_INTEGER).into()
}

/// A sum may come back as a double.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sums of what was no larger when it came in"
)]
fn whole_number(value: &SqlStorageValue) -> u64 {
    match value {
        SqlStorageValue::Integer(value) => u64::try_from(*value).unwrap_or_default(),
        SqlStorageValue::Float(value) => *value as u64,
        _ => 0,
    }
}

fn whole_numbers<const N: usize>(row: Vec<SqlStorageValue>) -> [u64; N] {
    let mut row = row.iter().map(whole_number);
    std::array::from_fn(|_| row.next().unwrap_or_default())
}

const TABLES: [&str; 4] = [
    "CREATE TABLE IF NOT EXISTS total (series TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS minute (at INTEGER NOT NULL, series TEXT NOT NULL, value INTEGER NOT NULL, \
     PRIMARY KEY (at, series)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS hour (at INTEGER NOT NULL, series TEXT NOT NULL, value INTEGER NOT NULL, \
     PRIMARY KEY (at, series)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS event (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, json TEXT NOT NULL)",
];
const ADD_TO_TOTAL: &str = "UPDATE total SET value = value + ? WHERE series = ?";
const ADD_TO_MINUTE: &str = "INSERT INTO minute (at, series, value) VALUES (?, ?, ?) \
     ON CONFLICT (at, series) DO UPDATE SET value = value + excluded.value";
const ADD_TO_HOUR: &str = "INSERT INTO hour (at, series, value) VALUES (?, ?, ?) \
     ON CONFLICT (at, series) DO UPDATE SET value = value + excluded.value";
const ADD_EVENT: &str = "INSERT INTO event (at, json) VALUES (?, ?)";
/// Histograms have no timeline: they are most of the series.
const POINTS: &str = "SELECT at / ?1 AS point, series, SUM(value) FROM minute WHERE at >= ?2 \
     AND series NOT LIKE '%\\_bucket%' ESCAPE '\\' AND series NOT LIKE '%\\_sum\\_ms%' ESCAPE '\\' \
     GROUP BY point, series ORDER BY point, series";
const HOURS: &str = "SELECT at, SUM(value), SUM(CASE WHEN series LIKE '%cause=\"answered\"%' THEN 0 ELSE value END) \
     FROM hour WHERE at > ? AND series LIKE 'spillway\\_calls\\_total{%' ESCAPE '\\' \
     AND series NOT LIKE '%cause=\"abandoned\"%' GROUP BY at ORDER BY at";
const EVENTS: &str = "SELECT at, json FROM event WHERE at >= ? ORDER BY id DESC LIMIT 500";
const MINUTE: u64 = 60_000;
const HOUR: u64 = 3_600_000;
/// About as many as a chart is wide.
const MOST_POINTS: u32 = 240;
const SWEEP_EVERY: Duration = Duration::from_secs(900);
const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;
const METER: &str = "meter";
