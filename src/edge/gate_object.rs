//! The Durable Object of one model's gate: the policy's `Gate`, kept in one row of SQLite.
//!
//! The gate in memory is the gate: an object is the only one of its name, and no step has an await in it. What is written
//! is for the next instance. The output gate holds every answer back until its write is safe.

use std::cell::RefCell;

use worker::{DurableObject, Env, Request, Response, Result, SqlStorageValue, State, durable_object};

use super::stubs::{ASKER_HEADER, GateQuestion, NAME_HEADER};
use super::{clock, entropy, log, meter, results, settings, wire};
use crate::json;
use crate::policy::gate::Gate;
use crate::policy::time::millis;
use crate::policy::transition::{Past, Transition};
use crate::telemetry::Event;

/// One model's gate.
#[durable_object(fetch)]
pub struct GateObject {
    state: State,
    env: Env,
    gate: RefCell<Option<Gate>>,
}

impl DurableObject for GateObject {
    fn new(state: State, env: Env) -> Self {
        Self { state, env, gate: RefCell::default() }
    }

    async fn fetch(&self, request: Request) -> Result<Response> {
        // An error becomes an answer: a rejected promise would say less.
        match self.answer(request).await {
            Ok(response) => Ok(response),
            Err(error) => Response::error(error.to_string(), 500),
        }
    }
}

impl GateObject {
    async fn answer(&self, mut request: Request) -> Result<Response> {
        let name = request.headers().get(NAME_HEADER)?.unwrap_or_default();
        let asker = request.headers().get(ASKER_HEADER)?.unwrap_or_default();
        let question: GateQuestion = wire::decode(&request.bytes().await?)?;
        let settings = settings::load(&self.env).map_err(|_| "the configuration is broken")?.policy.gate();
        let (now, mut rng) = (clock::now(), entropy::rng());

        // No await from here on.
        let mut kept = self.gate.borrow_mut();
        let gate = match &mut *kept {
            Some(gate) => gate,
            empty => empty.insert(self.load(&name)?),
        };
        let before = gate.last_move();
        let answer = match question {
            GateQuestion::Permit(asking) => json::write(&gate.permit(asking, now, &settings)),
            GateQuestion::Renew { permit } => json::write(&gate.renew(permit, now, &settings)),
            GateQuestion::Content { permit, limits } => {
                gate.content(permit, &limits, now, &settings);
                json::write(&())
            }
            GateQuestion::Report(ended) => json::write(&gate.report(&ended, now, &mut rng, &settings)),
            GateQuestion::View { priority } => json::write(&gate.view(priority, now, &settings)),
            GateQuestion::Status => {
                gate.expire(now, &settings);
                json::write(&gate.status(now, &settings))
            }
            GateQuestion::Force { order } => {
                log::event(&Event::GateOverridden {
                    model: &name,
                    state: order.state.name(),
                    lasts_ms: millis(order.lasts),
                    author: &order.author,
                    note: &order.note,
                });
                gate.force(order, now, &settings);
                json::write(&gate.status(now, &settings))
            }
            GateQuestion::Release => {
                gate.release(now, &settings);
                json::write(&gate.status(now, &settings))
            }
        };
        // Any question may have moved it: a permit that is the probe's does, and so does the first one after an override.
        let job = Some(asker.as_str()).filter(|asker| !asker.is_empty());
        for Past { transition: Transition { from, to, why }, .. } in gate.moves_since(before) {
            log::event(&Event::GateTransition { job, model: &name, from, to, why });
        }
        self.save(gate)?;
        if meter::has_news() {
            let env = self.env.clone();
            self.state.wait_until(async move { meter::flush_soon(&env).await });
        }
        Response::ok(answer)
    }

    fn load(&self, name: &str) -> Result<Gate> {
        let sql = self.state.storage().sql();
        sql.exec("CREATE TABLE IF NOT EXISTS gate (id INTEGER PRIMARY KEY CHECK (id = 0), json TEXT NOT NULL)", None)?;
        let row = sql.exec("SELECT json FROM gate", None)?.raw().next().transpose()?;
        match row.and_then(|columns| columns.into_iter().next()) {
            // A gate that this version cannot read is begun anew: it learns again within a minute.
            Some(SqlStorageValue::String(json)) => Ok(json::read(&json).unwrap_or_else(|error| {
                log::trouble(None, "gate", &format!("the stored state is unreadable: {error}"));
                Gate::default()
            })),
            _ => {
                self.introduce(name.to_owned());
                Ok(Gate::default())
            }
        }
    }

    fn save(&self, gate: &Gate) -> Result<()> {
        let json = json::write(gate);
        let sql = self.state.storage().sql();
        sql.exec("INSERT OR REPLACE INTO gate (id, json) VALUES (0, ?)", vec![json.into()])?;
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
}
