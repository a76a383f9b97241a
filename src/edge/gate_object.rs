//! The Durable Object of one model's gate: the policy's `Gate`, kept in one row of SQLite.
//!
//! The gate in memory is the gate: an object is the only one of its name, and no step has an await in it. What is written
//! is for the next instance. The output gate holds every answer back until its write is safe.
//!
//! What its operator has to be told is written with it, and taken to the Meter object by the alarm: a move that an isolate kept in its
//! memory for a moment would be lost with it, and with it the alert. The alarm also ends an override that nobody asks about.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use worker::{DurableObject, Env, Request, Response, Result, SqlStorage, SqlStorageValue, State, durable_object};

use super::sql::{number, whole_number};
use super::stubs::{ASKER_HEADER, GateQuestion, MeterStub, NAME_HEADER};
use super::{clock, entropy, log, meter, results, settings, wire};
use crate::json;
use crate::policy::gate::Gate;
use crate::policy::settings::GateSettings;
use crate::policy::time::{Timestamp, millis};
use crate::policy::transition::{Past, Transition};
use crate::telemetry::refusals::Refusals;
use crate::telemetry::{Dispatch, Event, Noted};

/// One model's gate.
#[durable_object(alarm)]
pub struct GateObject {
    state: State,
    env: Env,
    gate: RefCell<Option<Gate>>,
    refusals: RefCell<Refusals>,
    /// Whether nobody has wanted anything of it yet but to look at it: then it is not kept, and not listed.
    is_unused: Cell<bool>,
    /// How often in a row the alarm has not got done what it is for.
    troubles: Cell<u32>,
}

impl DurableObject for GateObject {
    fn new(state: State, env: Env) -> Self {
        Self {
            state,
            env,
            gate: RefCell::default(),
            refusals: RefCell::default(),
            is_unused: Cell::default(),
            troubles: Cell::default(),
        }
    }

    async fn fetch(&self, request: Request) -> Result<Response> {
        // An error becomes an answer: a rejected promise would say less.
        match self.answer(request).await {
            Ok(response) => Ok(response),
            Err(error) => Response::error(error.to_string(), 500),
        }
    }

    async fn alarm(&self) -> Result<Response> {
        let next = self.work().await.unwrap_or_else(|error| {
            log::trouble(None, "gate", &error.to_string());
            Some(self.trouble_pause())
        });
        if let Some(next) = next {
            self.state.storage().set_alarm(next).await?;
        }
        if meter::has_news() {
            meter::flush(&self.env).await;
        }
        Response::empty()
    }
}

impl GateObject {
    async fn answer(&self, mut request: Request) -> Result<Response> {
        let name = request.headers().get(NAME_HEADER)?.unwrap_or_default();
        let asker = request.headers().get(ASKER_HEADER)?.unwrap_or_default();
        let question: GateQuestion = wire::decode(&request.bytes().await?)?;
        let (answer, has_moved) = self.decide(question, &name, &asker)?;
        // From here on only the alarm is touched.
        if has_moved {
            self.state.storage().set_alarm(SOON).await?;
        }
        if meter::has_news() {
            let env = self.env.clone();
            self.state.wait_until(async move { meter::flush_soon(&env).await });
        }
        Response::ok(answer)
    }

    /// The answer, and whether there is something that the operator has to be told.
    fn decide(&self, question: GateQuestion, name: &str, asker: &str) -> Result<(String, bool)> {
        let settings = self.settings()?;
        let (now, mut rng) = (clock::now(), entropy::rng());
        let mut kept = self.gate.borrow_mut();
        let gate = self.loaded(&mut kept, name)?;
        let is_looked_at = matches!(question, GateQuestion::Status | GateQuestion::View { .. } | GateQuestion::Release);
        if !is_looked_at && self.is_unused.replace(false) {
            self.introduce(name.to_owned());
        }
        let (before, order_before) = (gate.last_move(), gate.order_left(now));
        let early = matches!(question, GateQuestion::Release) && order_before.is_some_and(|left| !left.is_zero());
        let mut is_noted = false;
        let answer = match question {
            GateQuestion::Permit(asking) => json::write(&gate.permit(asking, now, &settings)),
            GateQuestion::Renew { permit } => json::write(&gate.renew(permit, now, &settings)),
            GateQuestion::Content { permit, limits } => {
                gate.content(permit, &limits, now, &settings);
                json::write(&())
            }
            GateQuestion::Report(ended) => {
                if let Some(cause) = self.refusals.borrow_mut().news(&ended.report, now) {
                    is_noted = true;
                    self.note(&Event::AccountRefused { job: job_of(asker), model: name, cause: cause.name() }, now)?;
                }
                json::write(&gate.report(&ended, now, &mut rng, &settings))
            }
            GateQuestion::View { priority } => json::write(&gate.view(priority, now, &settings)),
            GateQuestion::Status => {
                gate.expire(now, &settings);
                json::write(&gate.status(now, &settings))
            }
            GateQuestion::Force { order } => {
                is_noted = true;
                let event = Event::GateOverridden {
                    model: name,
                    state: order.state.name(),
                    lasts_ms: millis(order.lasts),
                    author: &order.author,
                    note: &order.note,
                };
                self.note(&event, now)?;
                gate.force(order, now, &settings);
                json::write(&gate.status(now, &settings))
            }
            GateQuestion::Release => {
                gate.release(now, &settings);
                json::write(&gate.status(now, &settings))
            }
        };
        // Any question may have moved it: a permit that is the probe's does, and so does the first one after an override.
        let has_moved = self.note_moves(gate, before, name, asker)?;
        let has_ended = self.note_end(gate, order_before, early, name, now)?;
        if !self.is_unused.get() {
            self.save(gate)?;
        }
        Ok((answer, has_moved || has_ended || is_noted))
    }

    /// Ends an order whose time is over, and takes what is noted to the Meter object. How long until there is more to do.
    async fn work(&self) -> Result<Option<Duration>> {
        let name = self.name()?;
        let left = self.expire(&name)?;
        let noted = self.noted()?;
        let Some(last) = noted.last().map(|it| it.number) else { return Ok(left) };
        let dispatch = Dispatch { from: format!("gate {name}"), noted };
        if let Err(error) = MeterStub::new(&self.env).hear(&dispatch).await {
            log::trouble(None, "meter", &error.to_string());
            let pause = self.trouble_pause();
            return Ok(Some(left.map_or(pause, |left| left.min(pause))));
        }
        self.troubles.set(0);
        self.sql().exec("DELETE FROM noted WHERE number <= ?", vec![number(last)])?;
        // Others have been noted meanwhile.
        Ok(if self.noted()?.is_empty() { left } else { Some(SOON) })
    }

    /// Until the next try, longer each time: a Meter object that is down for a day must not cost an alarm every five seconds. News that
    /// come later are tried at once all the same.
    fn trouble_pause(&self) -> Duration {
        let troubles = self.troubles.get();
        self.troubles.set(troubles.saturating_add(1));
        TROUBLE_PAUSE.saturating_mul(1 << troubles.min(6))
    }

    /// Ends what is over. How long the operator's order is in force yet.
    fn expire(&self, name: &str) -> Result<Option<Duration>> {
        let (settings, now) = (self.settings()?, clock::now());
        let mut kept = self.gate.borrow_mut();
        let gate = self.loaded(&mut kept, name)?;
        let (before, order_before) = (gate.last_move(), gate.order_left(now));
        gate.expire(now, &settings);
        let has_moved = self.note_moves(gate, before, name, "")?;
        if self.note_end(gate, order_before, false, name, now)? || has_moved {
            self.save(gate)?;
        }
        Ok(gate.order_left(now).map(|left| left.max(SOON)))
    }

    fn note_end(
        &self,
        gate: &Gate,
        order_before: Option<Duration>,
        early: bool,
        name: &str,
        now: Timestamp,
    ) -> Result<bool> {
        let has_ended = order_before.is_some() && gate.order_left(now).is_none();
        if has_ended {
            self.note(&Event::OverrideEnded { model: name, early }, now)?;
        }
        Ok(has_ended)
    }

    fn note_moves(&self, gate: &Gate, before: Option<Past>, name: &str, asker: &str) -> Result<bool> {
        let job = job_of(asker);
        let mut has_moved = false;
        for Past { at, transition: Transition { from, to, why } } in gate.moves_since(before) {
            self.note(&Event::GateTransition { job, model: name, from, to, why }, at)?;
            has_moved = true;
        }
        Ok(has_moved)
    }

    /// Logs an event that happened `at` that time, and keeps it until the Meter object has it.
    fn note(&self, event: &Event<'_>, at: Timestamp) -> Result<()> {
        log::event(event);
        let values = vec![number(at.as_millis()), event.line().into()];
        self.sql().exec("INSERT INTO noted (at, line) VALUES (?, ?)", values)?;
        self.sql().exec(FORGET_OLDEST, vec![number(MOST_NOTED)])?;
        Ok(())
    }

    fn noted(&self) -> Result<Vec<Noted>> {
        let mut noted = Vec::new();
        for row in self.sql().exec("SELECT number, at, line FROM noted ORDER BY number LIMIT 100", None)?.raw() {
            if let [number, at, SqlStorageValue::String(line)] = &row?[..] {
                let (number, at) = (whole_number(number), Timestamp::from_millis(whole_number(at)));
                noted.push(Noted { number, at, line: line.clone() });
            }
        }
        Ok(noted)
    }

    fn settings(&self) -> Result<GateSettings> {
        Ok(settings::load(&self.env).map_err(|_| "the configuration is broken")?.policy.gate())
    }

    fn loaded<'g>(&self, kept: &'g mut Option<Gate>, name: &str) -> Result<&'g mut Gate> {
        if kept.is_none() {
            *kept = Some(self.load(name)?);
        }
        Ok(kept.as_mut().ok_or("the gate is not there")?)
    }

    fn make_tables(&self) -> Result<()> {
        for statement in TABLES {
            self.sql().exec(statement, None)?;
        }
        Ok(())
    }

    fn load(&self, name: &str) -> Result<Gate> {
        self.make_tables()?;
        let sql = self.sql();
        if !name.is_empty() {
            sql.exec("INSERT OR REPLACE INTO name (id, text) VALUES (0, ?)", vec![name.into()])?;
        }
        let row = sql.exec("SELECT json FROM gate", None)?.raw().next().transpose()?;
        match row.and_then(|columns| columns.into_iter().next()) {
            // A gate that this version cannot read is begun anew: it learns again within a minute.
            Some(SqlStorageValue::String(json)) => Ok(json::read(&json).unwrap_or_else(|error| {
                log::trouble(None, "gate", &format!("the stored state is unreadable: {error}"));
                Gate::default()
            })),
            _ => {
                // A gate that has lost all that it had is new, but the Meter object has had its news: its numbers are greater than
                // any before, as no gate has an event each millisecond.
                let first = number(clock::now().as_millis());
                sql.exec("INSERT INTO noted (number, at, line) VALUES (?, 0, '')", vec![first.clone()])?;
                sql.exec("DELETE FROM noted WHERE number = ?", vec![first])?;
                self.is_unused.set(true);
                Ok(Gate::default())
            }
        }
    }

    fn save(&self, gate: &Gate) -> Result<()> {
        let json = json::write(gate);
        self.sql().exec("INSERT OR REPLACE INTO gate (id, json) VALUES (0, ?)", vec![json.into()])?;
        Ok(())
    }

    /// Notes a new gate's name, for the operator's list.
    fn introduce(&self, name: String) {
        let env = self.env.clone();
        self.state.wait_until(async move {
            if let Err(error) = results::note_gate(&env, &name).await {
                log::trouble(None, "kv", &error);
            }
        });
    }

    /// Its own name, which an alarm does not bring.
    fn name(&self) -> Result<String> {
        self.make_tables()?;
        let row = self.sql().exec("SELECT text FROM name", None)?.raw().next().transpose()?;
        Ok(match row.and_then(|columns| columns.into_iter().next()) {
            Some(SqlStorageValue::String(name)) => name,
            _ => String::new(),
        })
    }

    fn sql(&self) -> SqlStorage {
        self.state.storage().sql()
    }
}

/// Who asked, if it was a job.
fn job_of(asker: &str) -> Option<&str> {
    Some(asker).filter(|asker| !asker.is_empty())
}

const TABLES: [&str; 3] = [
    "CREATE TABLE IF NOT EXISTS gate (id INTEGER PRIMARY KEY CHECK (id = 0), json TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS name (id INTEGER PRIMARY KEY CHECK (id = 0), text TEXT NOT NULL)",
    // Numbers are never used again: the Meter object tells by them what it has had.
    "CREATE TABLE IF NOT EXISTS noted (number INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, line TEXT NOT NULL)",
];
/// Beyond a bound the oldest go: a Meter object that never hears must not fill the gate.
const FORGET_OLDEST: &str = "DELETE FROM noted WHERE number <= (SELECT MAX(number) FROM noted) - ?";
/// Days of news, also of a gate that flaps.
const MOST_NOTED: u64 = 1_000;
/// What happens at the same time goes together.
const SOON: Duration = Duration::from_millis(100);
/// After the first trouble; doubled up to 64 times as long.
const TROUBLE_PAUSE: Duration = Duration::from_secs(5);
