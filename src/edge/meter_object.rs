//! The Durable Object that counts: every isolate tells it what has happened since it told it last.
//!
//! A series has a row for all time, and one for each minute that it was added to. Of the minutes of an hour that is over one row is made,
//! which outlives them: an hour costs a row for each of its series, however much it counted. What a series is named is said by
//! `telemetry::metric`, and what the sums mean by `telemetry::figures`: here they are added up and kept, no more.
//!
//! It is also who tells the operator's channel what `telemetry::alerts` says that is to be told: it hears of everything, and nobody
//! waits for it. Its alarm sends, judges the objectives every fifteen seconds while something happens, and deletes what is old.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use worker::{DurableObject, Env, Request, Response, Result, SqlStorage, SqlStorageValue, State, durable_object};

use super::post::post;
use super::sql::{number, whole_number};
use super::{clock, listing, log, settings, wire};
use crate::api::alert::{self, Circumstances};
use crate::api::metrics::unfinished;
use crate::json::{self, Map, Text};
use crate::policy::time::Timestamp;
use crate::telemetry::alerts::{Alert, Alerts};
use crate::telemetry::figures::Figures;
use crate::telemetry::metric::Counts;
use crate::telemetry::readings::{
    HOURS_KEPT, Happened, Hour, MAX_SERIES, MINUTES_KEPT, Point, Readings, WINDOW_MINUTES, Wanted,
};
use crate::telemetry::sums::other;
use crate::telemetry::{Dispatch, Had, News, Noted};

/// The deployment's meter.
#[durable_object(alarm)]
pub struct MeterObject {
    state: State,
    env: Env,
    /// When the objectives were judged last, by this instance.
    judged_at: Cell<Timestamp>,
    swept_at: Cell<Timestamp>,
    /// The hours before the one in which they were read, and that one: nothing is added to them any more, and they are most of the
    /// rows that a page on somebody's wall has read every five seconds.
    past_hours: RefCell<Option<(u64, Vec<Hour>)>>,
}

impl DurableObject for MeterObject {
    fn new(state: State, env: Env) -> Self {
        Self { state, env, judged_at: Cell::default(), swept_at: Cell::default(), past_hours: RefCell::default() }
    }

    async fn fetch(&self, request: Request) -> Result<Response> {
        // An error becomes an answer: a rejected promise would say less.
        match self.answer(request).await {
            Ok(response) => Ok(response),
            Err(error) => Response::error(error.to_string(), 500),
        }
    }

    async fn alarm(&self) -> Result<Response> {
        let next = match self.work().await {
            Ok(next) => next,
            Err(error) => {
                log::trouble(None, METER, &error.to_string());
                SWEEP_EVERY
            }
        };
        self.ring_within(next).await?;
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
            "/take" => self.take(wire::decode(&body)?).await,
            "/hear" => self.hear(&wire::decode(&body)?).await,
            "/read" => Response::ok(json::write(&self.read(wire::decode(&body)?)?)),
            _ => Response::error("no such operation", 404),
        }
    }

    /// Adds up what is new to it: what is told twice, since nobody has said that it was taken, counts once.
    async fn take(&self, news: News) -> Result<Response> {
        let now = clock::now();
        let minute = number(now.as_millis() / MINUTE);
        let mut had = self.had(&news.from)?;
        let mut counts = Counts::default();
        for batch in news.batches {
            if had.is_new(batch.number) {
                counts.merge(batch.counts);
            }
        }
        let row = vec![news.from.into(), number(now.as_millis()), number(had.last.into()), number(had.before.into())];
        self.sql().exec("INSERT OR REPLACE INTO teller (name, at, last, before) VALUES (?, ?, ?, ?)", row)?;
        for (series, value) in counts.0.iter() {
            let value = number(*value);
            let series = self.add(series, &value)?;
            self.sql().exec(ADD_TO_MINUTE, vec![minute.clone(), series.into(), value])?;
        }
        if let Some(origin) = &news.origin {
            self.keep(ORIGIN, origin)?;
        }
        self.sweep(now)?;
        // Whatever has happened may have broken an objective.
        self.alert(now, |_| {}).await
    }

    /// Which batches of this isolate there have been.
    fn had(&self, from: &str) -> Result<Had> {
        let row = self.sql().exec("SELECT last, before FROM teller WHERE name = ?", vec![from.into()])?.raw().next();
        let [last, before] = row.transpose()?.map(whole_numbers).unwrap_or_default();
        Ok(Had { last: u32::try_from(last).unwrap_or_default(), before: u32::try_from(before).unwrap_or_default() })
    }

    /// Takes what somebody has kept for it, unless it has it already.
    async fn hear(&self, dispatch: &Dispatch) -> Result<Response> {
        let now = clock::now();
        let name = format!("heard from {}", dispatch.from);
        let last = self.kept(&name)?.and_then(|last| last.parse().ok()).unwrap_or_default();
        for Noted { number: last, at, line } in dispatch.since(last) {
            self.sql().exec(ADD_EVENT, vec![number(at.as_millis()), line.as_str().into()])?;
            self.keep(&name, &last.to_string())?;
        }
        self.alert(now, |alerts| dispatch.since(last).for_each(|it| alerts.on_event(&it.line, it.at, now))).await
    }

    /// Has `note` decide what is to be told, and sees to it that it will be.
    async fn alert(&self, now: Timestamp, note: impl FnOnce(&mut Alerts)) -> Result<Response> {
        let mut next = SWEEP_EVERY;
        if self.receiver().is_some() {
            let mut alerts = self.alerts()?;
            note(&mut alerts);
            next = (self.judged_at.get() + JUDGE_EVERY).after(now).max(SOON);
            next = alerts.next().map_or(next, |at| at.after(now).clamp(SOON, next));
            self.keep(ALERTS, &json::write(&alerts))?;
        }
        // From here on only the alarm is touched.
        self.ring_within(next).await?;
        Response::ok(json::write(&()))
    }

    /// Has the alarm ring in so long, unless it rings before. That it was set while it rang, by who told something meanwhile, counts.
    async fn ring_within(&self, next: Duration) -> Result<()> {
        let latest = clock::now() + next;
        let is_later = |at: i64| u64::try_from(at).is_ok_and(|at| Timestamp::from_millis(at) > latest);
        let storage = self.state.storage();
        if storage.get_alarm().await?.is_none_or(is_later) {
            storage.set_alarm(next).await?;
        }
        Ok(())
    }

    /// What the alarm is for. How long until it is to ring again.
    async fn work(&self) -> Result<Duration> {
        for statement in TABLES {
            self.sql().exec(statement, None)?;
        }
        let now = clock::now();
        self.sweep(now)?;
        let Some(receiver) = self.receiver() else { return Ok(SWEEP_EVERY) };
        let window = self.window(now)?;
        let mut alerts = self.alerts()?;
        if now.since(self.judged_at.get()) >= JUDGE_EVERY {
            alerts.on_figures(&Figures::of(&window), now);
            self.judged_at.set(now);
        }
        // Stored before it is sent, and whether it was taken after: what is lost between the two is sent again.
        let due = alerts.due(now);
        self.keep(ALERTS, &json::write(&alerts))?;
        if let Some(alert) = due {
            let is_taken = self.send(&receiver, &alert, &window).await?;
            // Others have been noted meanwhile.
            let mut alerts = self.alerts()?;
            if is_taken {
                alerts.sent(alert.id)
            } else {
                alerts.failed(alert.id, clock::now())
            }
            self.keep(ALERTS, &json::write(&alerts))?;
        }
        let now = clock::now();
        let next = self.alerts()?.next().map_or(SWEEP_EVERY, |at| at.after(now));
        Ok(next.clamp(SOON, SWEEP_EVERY))
    }

    /// Whether the receiver has taken it.
    async fn send(&self, receiver: &str, alert: &Alert, window: &Counts) -> Result<bool> {
        let totals = self.counts("SELECT series, value FROM total ORDER BY series", vec![])?;
        let origin = self.kept(ORIGIN)?;
        let oldest = listing::oldest(&self.env).await.ok().flatten();
        let circumstances = Circumstances {
            window,
            unfinished: &unfinished(&totals),
            longest_wait: oldest.map(|at| clock::now().since(at)),
            origin: origin.as_deref(),
        };
        let body = alert::body(alert, &circumstances);
        let headers = [("content-type", "application/json".into())];
        let said = match post(receiver, &headers, body.into(), RECEIVER_PATIENCE).await {
            Ok(response) if (200..300).contains(&response.status_code()) => return Ok(true),
            Ok(response) => format!("the receiver answered {}", response.status_code()),
            Err(said) => format!("the receiver: {said}"),
        };
        log::trouble(None, "alerts", &said);
        Ok(false)
    }

    /// Where alerts go, if anywhere.
    fn receiver(&self) -> Option<String> {
        settings::load(&self.env).ok()?.alerts_url.clone()
    }

    fn alerts(&self) -> Result<Alerts> {
        let kept = self.kept(ALERTS)?;
        // What this version cannot read is begun anew.
        let mut alerts: Alerts = kept.and_then(|json| json::read(&json).ok()).unwrap_or_default();
        if let Ok(config) = settings::load(&self.env) {
            alerts.quiet = Duration::from_secs(config.policy.alerts.quiet_seconds);
        }
        Ok(alerts)
    }

    fn kept(&self, name: &str) -> Result<Option<String>> {
        let row =
            self.sql().exec("SELECT text FROM kept WHERE name = ?", vec![name.into()])?.raw().next().transpose()?;
        Ok(match row.and_then(|row| row.into_iter().next()) {
            Some(SqlStorageValue::String(text)) => Some(text),
            _ => None,
        })
    }

    fn keep(&self, name: &str, text: &str) -> Result<()> {
        self.sql().exec("INSERT OR REPLACE INTO kept (name, text) VALUES (?, ?)", vec![name.into(), text.into()])?;
        Ok(())
    }

    /// The last 60 minutes.
    fn window(&self, now: Timestamp) -> Result<Counts> {
        let since = number((now.as_millis() / MINUTE + 1).saturating_sub(WINDOW_MINUTES.into()));
        self.counts(WINDOW, vec![since, number(now.as_millis() / MINUTE)])
    }

    /// The last so many hours, the present one among them.
    fn window_of_hours(&self, hours: u32, now: Timestamp) -> Result<Counts> {
        let next = now.as_millis() / HOUR + 1;
        let (first, rolled) = (next.saturating_sub(hours.into()), self.rolled()?.min(next));
        let minutes = first.max(rolled).saturating_mul(60);
        self.counts(WINDOW_OF_HOURS, vec![number(first), number(rolled), number(minutes), number(next * 60)])
    }

    /// The first hour that is in its minutes only.
    fn rolled(&self) -> Result<u64> {
        Ok(self.kept(ROLLED)?.and_then(|hour| hour.parse().ok()).unwrap_or_default())
    }

    /// Makes hours of the minutes of those that have been over for a while: nothing comes late, unless a clock is put back a little.
    fn roll_up(&self, now: Timestamp) -> Result<()> {
        let (from, until) = (self.rolled()?, now.as_millis().saturating_sub(ROLL_AFTER) / HOUR);
        if until > from {
            self.sql().exec(ROLL_UP, vec![number(from * 60), number(until * 60)])?;
            self.keep(ROLLED, &until.to_string())?;
        }
        Ok(())
    }

    /// Adds to the sum of all time. Under which name: if that is one series too many, it is another.
    fn add(&self, series: &str, value: &SqlStorageValue) -> Result<String> {
        let mut series = series.to_owned();
        if self.sql().exec(ADD_TO_TOTAL, vec![value.clone(), series.as_str().into()])?.rows_written() > 0 {
            return Ok(series);
        }
        if self.number("SELECT COUNT(*) FROM total", vec![])? >= u64::from(MAX_SERIES) {
            series = other(&series);
        }
        self.sql().exec(ADD_SERIES, vec![series.as_str().into(), value.clone()])?;
        Ok(series)
    }

    fn read(&self, wanted: Wanted) -> Result<Readings> {
        let at = clock::now();
        let minute = at.as_millis() / MINUTE;
        let since = |minutes: u32| number((minute + 1).saturating_sub(u64::from(minutes)));
        let mut readings = Readings {
            at,
            totals: self.counts("SELECT series, value FROM total ORDER BY series", vec![])?,
            window: if wanted.hours > 0 { self.window_of_hours(wanted.hours, at)? } else { self.window(at)? },
            window_seconds: if wanted.hours > 0 { wanted.hours * 3_600 } else { WINDOW_MINUTES * 60 },
            ..Readings::default()
        };
        if wanted.minutes == 0 {
            return Ok(readings);
        }
        let step = wanted.minutes.div_ceil(MOST_POINTS);
        readings.step_seconds = step * 60;
        readings.points = self.points(step, since(wanted.minutes), number(minute))?;
        readings.hours = self.hours(at.as_millis() / HOUR)?;
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

    /// All hours that are kept, at the hour `now`.
    fn hours(&self, now: u64) -> Result<Vec<Hour>> {
        let mut past = self.past_hours.borrow_mut();
        let known = match past.take() {
            Some((read_in, hours)) if read_in == now => hours,
            _ => self.hours_from(now.saturating_sub(HOURS_KEPT.into()) + 1, now)?,
        };
        let mut hours = known.clone();
        *past = Some((now, known));
        hours.extend(self.hours_from(now, now + 1)?);
        Ok(hours)
    }

    fn hours_from(&self, first: u64, before: u64) -> Result<Vec<Hour>> {
        let mut hours = Vec::new();
        let rolled = self.rolled()?.min(before);
        let minutes = (first.max(rolled).saturating_mul(60), before.saturating_mul(60));
        let values = vec![number(first), number(rolled), number(minutes.0), number(minutes.1)];
        for row in self.sql().exec(HOURS, values)?.raw() {
            let [hour, calls, failed] = whole_numbers(row?);
            hours.push(Hour { hour, calls, failed });
        }
        Ok(hours)
    }

    /// The timeline's points, each of so many minutes.
    fn points(&self, step: u32, since: SqlStorageValue, until: SqlStorageValue) -> Result<Vec<Point>> {
        let mut points: Vec<Point> = Vec::new();
        let length = u64::from(step) * MINUTE;
        for row in self.sql().exec(POINTS, vec![number(step.into()), since, until])?.raw() {
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

    /// Makes hours of minutes, and deletes what is too old to be asked for, every quarter of an hour.
    fn sweep(&self, now: Timestamp) -> Result<()> {
        if now.since(self.swept_at.get()) < SWEEP_EVERY {
            return Ok(());
        }
        self.swept_at.set(now);
        self.roll_up(now)?;
        let now = now.as_millis();
        let minutes = number((now / MINUTE).saturating_sub(MINUTES_KEPT.into()));
        self.sql().exec("DELETE FROM minute WHERE at < ?", vec![minutes])?;
        self.sql()
            .exec("DELETE FROM hour WHERE at < ?", vec![number((now / HOUR).saturating_sub(HOURS_KEPT.into()))])?;
        let events = number(now.saturating_sub(u64::from(MINUTES_KEPT) * MINUTE));
        self.sql().exec("DELETE FROM event WHERE at < ?", vec![events])?;
        let tellers = vec![number(now.saturating_sub(TELLERS_KEPT)), number(MOST_TELLERS)];
        self.sql().exec(DELETE_TELLERS, tellers)?;
        Ok(())
    }

    fn sql(&self) -> SqlStorage {
        self.state.storage().sql()
    }
}

fn whole_numbers<const N: usize>(row: Vec<SqlStorageValue>) -> [u64; N] {
    let mut row = row.iter().map(whole_number);
    std::array::from_fn(|_| row.next().unwrap_or_default())
}

const TABLES: [&str; 6] = [
    "CREATE TABLE IF NOT EXISTS teller (name TEXT PRIMARY KEY, at INTEGER NOT NULL, last INTEGER NOT NULL, \
     before INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS total (series TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS minute (at INTEGER NOT NULL, series TEXT NOT NULL, value INTEGER NOT NULL, \
     PRIMARY KEY (at, series)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS hour (at INTEGER NOT NULL, series TEXT NOT NULL, value INTEGER NOT NULL, \
     PRIMARY KEY (at, series)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS event (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, json TEXT NOT NULL)",
];
const ADD_TO_TOTAL: &str = "UPDATE total SET value = value + ? WHERE series = ?";
const ADD_SERIES: &str = "INSERT INTO total (series, value) VALUES (?, ?) \
     ON CONFLICT (series) DO UPDATE SET value = value + excluded.value";
const ADD_TO_MINUTE: &str = "INSERT INTO minute (at, series, value) VALUES (?, ?, ?) \
     ON CONFLICT (at, series) DO UPDATE SET value = value + excluded.value";
const ROLL_UP: &str = "INSERT OR REPLACE INTO hour (at, series, value) \
     SELECT at / 60, series, SUM(value) FROM minute WHERE at >= ? AND at < ? GROUP BY at / 60, series";
/// Nothing of a clock that was ahead.
const WINDOW: &str = "SELECT series, SUM(value) FROM minute WHERE at >= ? AND at <= ? GROUP BY series ORDER BY series";
const WINDOW_OF_HOURS: &str = "SELECT series, SUM(value) FROM (\
     SELECT series, value FROM hour WHERE at >= ?1 AND at < ?2 \
     UNION ALL SELECT series, value FROM minute WHERE at >= ?3 AND at < ?4) GROUP BY series ORDER BY series";
const ADD_EVENT: &str = "INSERT INTO event (at, json) VALUES (?, ?)";
/// Histograms have no timeline: they are most of the series. Numbers come out of JavaScript as fractions, which would divide as such.
const POINTS: &str = "SELECT at / CAST(?1 AS INTEGER) AS point, series, SUM(value) FROM minute WHERE at >= ?2 AND at <= ?3 \
     AND series NOT LIKE '%\\_bucket%' ESCAPE '\\' AND series NOT LIKE '%\\_sum\\_ms%' ESCAPE '\\' \
     GROUP BY point, series ORDER BY point, series";
/// Of each hour no more rows are read than it has series of calls.
const HOURS: &str = "WITH RECURSIVE hours(at) AS (SELECT ?1 WHERE ?1 < ?2 UNION ALL SELECT at + 1 FROM hours WHERE at + 1 < ?2) \
     SELECT at, SUM(value), SUM(CASE WHEN series LIKE '%cause=\"answered\"%' THEN 0 ELSE value END) FROM (\
     SELECT hour.at AS at, series, value FROM hours CROSS JOIN hour ON hour.at = hours.at \
     AND series >= 'spillway_calls_total{' AND series < 'spillway_calls_total|' \
     UNION ALL SELECT at / 60, series, value FROM minute WHERE at >= ?3 AND at < ?4 \
     AND series >= 'spillway_calls_total{' AND series < 'spillway_calls_total|') \
     WHERE series NOT LIKE '%cause=\"abandoned\"%' GROUP BY at ORDER BY at";
const EVENTS: &str = "SELECT at, json FROM event WHERE at >= ? ORDER BY id DESC LIMIT 500";
/// Of those that have told something within a day, the latest.
const DELETE_TELLERS: &str = "DELETE FROM teller WHERE at < ?1 \
     OR name NOT IN (SELECT name FROM teller ORDER BY at DESC LIMIT ?2)";
/// Twice as long as an isolate tells a batch again.
const TELLERS_KEPT: u64 = 24 * HOUR;
const MOST_TELLERS: u64 = 10_000;
const MINUTE: u64 = 60_000;
const HOUR: u64 = 3_600_000;
/// About as many as a chart is wide.
const MOST_POINTS: u32 = 240;
/// What is kept by name: what is to be told, the deployment's address, and how far minutes have become hours.
const ALERTS: &str = "alerts";
const ORIGIN: &str = "origin";
const ROLLED: &str = "rolled up to hour";
/// Milliseconds.
const ROLL_AFTER: u64 = 5 * MINUTE;
const JUDGE_EVERY: Duration = Duration::from_secs(15);
/// What happens at the same time is told of together.
const SOON: Duration = Duration::from_millis(200);
const RECEIVER_PATIENCE: Duration = Duration::from_secs(10);
const SWEEP_EVERY: Duration = Duration::from_secs(900);
const METER: &str = "meter";
