//! Our policy, driven as the edge drives it: nothing else in the storm knows the crate.
//!
//! `submission`, `job::Record`, `delivery::Delivery` and `policy::gate::Gate` are the very code that the Worker runs. What is
//! here stands for `edge/http` (submit), `edge/job_object` (the record, its effects and its alarm), `edge/gate_object` (one gate
//! per model), `edge/consumer` (one delivery) and `edge/keeper` (renewals while a call is on its way); the synchronous path is in
//! `messages`. It holds no decision.

mod messages;

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::{Duration, UNIX_EPOCH};

use spillway::api::wish::Handoff;
use spillway::claude::failure::{Failure, Headers, classify};
use spillway::claude::ratelimits;
use spillway::config::Config;
use spillway::delivery::{Call, Delivery as Steps, Step};
use spillway::job::{Begun, Claim, Effect, Record, Renewal, Settled, State, Then, Timing, Token};
use spillway::policy::answer::{Asking, Decision, Ended, HoldReason, Report, Verdict};
use spillway::policy::cause::Cause;
use spillway::policy::gate::Gate;
use spillway::policy::priority::Priority;
use spillway::policy::rate_limits::{RateLimits, Used};
use spillway::policy::settings::GateSettings;
use spillway::policy::switches::Switches;
use spillway::policy::time::{Timestamp, millis};
use spillway::policy::transition;
use spillway::submission::{self, Incoming};

use super::claude::{self, Answer, Answered, Model};
use super::facts::GateFacts;
use super::queues::Delivery;
use super::report::OURS;
use super::scenario::Scenario;
use super::world::{self, End, Event, HOUR, Job, JobIndex, MINUTE, Ms, Policy, Signal, Sim, Task, Work, mix};

/// The deployment.
pub(crate) struct Spillway(Rc<Deployment>);

struct Deployment {
    name: &'static str,
    /// What its callers want.
    handoff: Handoff,
    config: Config,
    timing: Timing,
    gate_settings: GateSettings,
    scenario: Rc<Scenario>,
    /// Midnight, and the hour at which the storm begins.
    start: Timestamp,
    objects: RefCell<Objects>,
    /// For tasks of its own.
    this: Weak<Deployment>,
}

/// What the deployment's objects hold.
struct Objects {
    rng: fastrand::Rng,
    gates: [GateObject; 2],
    jobs: Vec<JobObject>,
    isolates: Vec<messages::Isolate>,
    facts: GateFacts,
}

#[derive(Default)]
struct GateObject {
    gate: Gate,
    last_move: Option<spillway::policy::transition::Past>,
    open_since: Option<Ms>,
    failures_in_a_row: u32,
    probes_of_cooldown: u32,
    /// Calls on their way that have no permit.
    unpermitted: u32,
}

/// One job's object; its record goes with its retention, here as soon as it is over and published.
#[derive(Default)]
struct JobObject {
    record: Option<Box<Record>>,
    alarm_at: Option<Ms>,
}

impl Spillway {
    /// A deployment with the scenario's `POLICY`, for callers who want what `name` says, or else the scenario.
    pub(crate) fn new(name: &str, scenario: &Rc<Scenario>, seed: u64, jobs: usize) -> Result<Self, String> {
        let (name, handoff) = messages::handoff(name, scenario);
        let config = Config::parse(|key| match key {
            "PRIMARY_MODEL" => Some(PRIMARY.into()),
            "FALLBACK_MODEL" => Some(FALLBACK.into()),
            "POLICY" => Some(scenario.policy.clone()),
            _ => None,
        })
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        let objects = Objects {
            rng: fastrand::Rng::with_seed(mix(seed, 0x5b)),
            gates: Default::default(),
            jobs: std::iter::repeat_with(JobObject::default).take(jobs).collect(),
            isolates: messages::isolates(scenario),
            facts: GateFacts::default(),
        };
        let start = MIDNIGHT + Duration::from_millis((scenario.start_hour * HOUR as f64) as u64);
        let deployment = Rc::new_cyclic(|this| Deployment {
            this: this.clone(),
            name,
            handoff,
            timing: config.policy.timing(),
            gate_settings: config.policy.gate(),
            config,
            scenario: scenario.clone(),
            start,
            objects: RefCell::new(objects),
        });
        // Whatever is wrong with a kind or a deadline is said before the storm begins.
        for (kind, row) in scenario.jobs.kinds.iter().enumerate() {
            let job = Job {
                kind: u8::try_from(kind).unwrap_or(u8::MAX),
                ..Job::new(0, world::Priority::Medium, row.fallback)
            };
            deployment.accept(&job, 0, start).map_err(|error| format!("jobs of kind {}: {error}", row.name))?;
        }
        deployment.try_calls(start)?;
        Ok(Self(deployment))
    }
}

impl Spillway {
    /// How long the scenario's breaker stays open.
    pub(crate) fn open_seconds(scenario: &Scenario) -> Result<f64, String> {
        let it = Self::new(OURS, &Rc::new(scenario.clone()), 0, 0)?;
        Ok(it.0.gate_settings.breaker.open_seconds.into())
    }

    /// How long the scenario's callers wait.
    pub(crate) fn patience(scenario: &Scenario) -> Result<Ms, String> {
        let it = Self::new(OURS, &Rc::new(scenario.clone()), 0, 0)?;
        Ok(millis(it.0.patience(&it.0.wish(""))))
    }
}

impl Policy for Spillway {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn submit(&self, task: Task, job: JobIndex) -> Work {
        let it = self.0.clone();
        if task.job(job).caller.is_some() {
            return Box::pin(it.serve(task, job));
        }
        Box::pin(async move { it.submit(&task.sim, job) })
    }

    fn deliver(&self, task: Task, delivery: Delivery) -> Work {
        Box::pin(self.0.clone().deliver(task, delivery))
    }

    fn alarm(&self, sim: &Sim, job: JobIndex) {
        self.0.alarm(sim, job);
    }

    fn finish(&self, sim: &Sim) {
        let mut objects = self.0.objects.borrow_mut();
        let (now, end) = (sim.look().now, self.0.scenario.submissions_end());
        if let Some(since) = objects.gates[0].open_since {
            objects.facts.open_ms += now.min(end).saturating_sub(since);
        }
        sim.world().facts.gate = objects.facts.clone();
    }
}

/// What `edge/http` does.
impl Deployment {
    fn submit(&self, sim: &Sim, job: JobIndex) {
        let data = sim.look().jobs[job as usize];
        let record = self.accept(&data, job, self.at(sim)).expect("a submission like those that were tried");
        self.objects.borrow_mut().jobs[job as usize].record = Some(Box::new(record));
        self.after_change(sim, job);
    }

    fn accept(&self, data: &Job, job: JobIndex, now: Timestamp) -> Result<Record, String> {
        let jobs = &self.scenario.jobs;
        let deadline = jobs.deadline_seconds.map_or_else(String::new, |s| format!(r#""deadline_seconds":{s},"#));
        let body = format!(
            r#"{{"kind":"{}","priority":"{}",{deadline}"request":{{"max_tokens":4096,"messages":[{{"role":"user","content":"storm"}}]}}}}"#,
            jobs.kinds[usize::from(data.kind)].name,
            data.priority.name(),
        );
        let incoming =
            Incoming { client: "storm", body: body.as_bytes(), betas: None, version: None, idempotency_key: None };
        let accepted = submission::accept(incoming, &self.config, u128::from(job) + 1, now);
        accepted.map(|accepted| accepted.record).map_err(|error| error.message)
    }
}

/// What `edge/job_object` does.
impl Deployment {
    /// Applies a step to the record; nothing, if its retention is over.
    fn change<T>(&self, sim: &Sim, job: JobIndex, step: impl FnOnce(&mut Record, Timestamp) -> T) -> Option<T> {
        let now = self.at(sim);
        let outcome = {
            let mut objects = self.objects.borrow_mut();
            let record = objects.jobs[job as usize].record.as_mut()?;
            Some(step(record, now))
        };
        self.after_change(sim, job);
        outcome
    }

    /// The effects that are due, and the alarm.
    fn after_change(&self, sim: &Sim, job: JobIndex) {
        let now = self.at(sim);
        let mut objects = self.objects.borrow_mut();
        let object = &mut objects.jobs[job as usize];
        let Some(record) = &mut object.record else { return };
        for effect in record.tick(now, &self.timing) {
            match effect {
                Effect::Announce { priority, envelope, delay_seconds } => {
                    let payload = u64::from(job) | envelope.turn << 32;
                    sim.world().send(queue_of(priority), payload, delay_seconds);
                    record.announced(envelope.turn, now);
                }
                Effect::Publish { .. } => record.published(now),
                Effect::Withdraw => record.withdrawn(),
                Effect::List { row, .. } => record.listed(row.version),
                Effect::Notify { .. } | Effect::Erase => {}
            }
        }
        if record.state.is_terminal() {
            let end = if matches!(record.state, State::Done { .. }) { End::Done } else { End::Failed };
            object.record = None;
            sim.world().finish(job, end);
            return;
        }
        let next = self.ms(record.next_alarm(&self.timing)).max(sim.look().now + MIN_ALARM);
        // One event at a time: an earlier one looks again when it comes.
        if object.alarm_at.is_none_or(|at| at > next) {
            object.alarm_at = Some(next);
            sim.world().schedule(next, Event::Alarm(job));
        }
    }

    fn alarm(&self, sim: &Sim, job: JobIndex) {
        let now = sim.look().now;
        {
            let object = &mut self.objects.borrow_mut().jobs[job as usize];
            object.alarm_at = object.alarm_at.filter(|at| *at > now);
        }
        self.after_change(sim, job);
    }
}

/// What `edge/gate_object` does.
impl Deployment {
    fn permit(&self, sim: &Sim, model: &str, asking: Asking) -> Decision {
        let decision = self.ask(sim, model, |gate, now, _, settings| gate.permit(asking, now, settings));
        if matches!(decision, Decision::Probe(_)) {
            let objects = &mut *self.objects.borrow_mut();
            objects.facts.probes += 1;
            let object = &mut objects.gates[index_of(model)];
            object.probes_of_cooldown += 1;
            objects.facts.extra_probes += u32::from(object.probes_of_cooldown > 1);
        }
        decision
    }

    fn report(&self, sim: &Sim, model: &str, ended: &Ended) -> Verdict {
        {
            let failures = &mut self.objects.borrow_mut().gates[index_of(model)].failures_in_a_row;
            let failed = matches!(ended.report, Report::Failure { after_content: false, .. });
            *failures = if failed { *failures + 1 } else { 0 };
        }
        self.ask(sim, model, |gate, now, rng, settings| gate.report(ended, now, rng, settings))
    }

    /// Asks a gate, and notes how it moved.
    fn ask<T>(
        &self,
        sim: &Sim,
        model: &str,
        question: impl FnOnce(&mut Gate, Timestamp, &mut fastrand::Rng, &GateSettings) -> T,
    ) -> T {
        let now = self.at(sim);
        let Objects { rng, gates, facts, .. } = &mut *self.objects.borrow_mut();
        let index = index_of(model);
        let object = &mut gates[index];
        let answer = question(&mut object.gate, now, rng, &self.gate_settings);
        let before = object.last_move;
        if object.gate.last_move() != before {
            object.last_move = object.gate.last_move();
            let in_flight = object.gate.status(now, &self.gate_settings).in_flight + object.unpermitted;
            let moves: Vec<_> = object.gate.moves_since(before).collect();
            for past in moves {
                note_move(facts, object, index, past.transition, in_flight, sim.look().now, &self.scenario);
            }
        }
        answer
    }
}

fn note_move(
    facts: &mut GateFacts,
    object: &mut GateObject,
    index: usize,
    transition: transition::Transition,
    in_flight: u32,
    now: Ms,
    scenario: &Scenario,
) {
    let over = scenario.trouble_ends().filter(|end| now >= *end);
    match (transition.from, transition.to) {
        (transition::State::Closed, transition::State::Open) => {
            facts.trips += 1;
            facts.trips_after += u32::from(over.is_some());
            facts.in_flight_at_trips += in_flight;
            facts.calls_to_trips += object.failures_in_a_row;
            object.probes_of_cooldown = 0;
            object.open_since = Some(now);
        }
        (_, transition::State::Open) => object.probes_of_cooldown = 0,
        (_, transition::State::Closed) => {
            object.failures_in_a_row = 0;
            let since = object.open_since.take().unwrap_or(now);
            if let Some(end) = over.filter(|end| since < *end) {
                facts.shut_after = facts.shut_after.max(Some(now - end));
            }
            if index == 0 {
                facts.open_ms += now.min(scenario.submissions_end()).saturating_sub(since);
            }
        }
        _ => {}
    }
}

/// What `edge/consumer` and `edge/keeper` do.
impl Deployment {
    async fn deliver(self: Rc<Self>, task: Task, delivery: Delivery) {
        self.objects.borrow_mut().facts.deliveries += 1;
        let job = JobIndex::try_from(delivery.payload & 0xffff_ffff).unwrap();
        let turn = delivery.payload >> 32;
        self.work(&task, delivery, job, turn).await;
        task.world().settle(delivery, None);
    }

    async fn work(&self, task: &Task, delivery: Delivery, job: JobIndex, turn: u64) {
        let sim = &task.sim;
        let claim = self.change(sim, job, |record, now| record.claim(turn, now, &self.timing));
        let Some(Claim::Claimed(claimed)) = claim else { return };
        task.sleep(OBJECT_MS).await;
        let began_at = self.timestamp(delivery.began_at);
        let (mut steps, mut step) = {
            let rng = &mut self.objects.borrow_mut().rng;
            Steps::start(&claimed, &self.config, &Switches::default(), began_at, self.at(sim), rng)
        };
        loop {
            step = match step {
                Step::AskGate { model, asking } => {
                    let decision = self.permit(sim, &model, asking);
                    steps.on_decision(decision, self.at(sim), &mut self.objects.borrow_mut().rng)
                }
                Step::Call(call) => {
                    let begun = self.change(sim, job, |record, now| {
                        record.begin(claimed.token, call.model.clone(), now, &self.timing)
                    });
                    if begun != Some(Begun::Go) {
                        let nothing = RateLimits::default();
                        self.report(sim, &call.model, &steps.ended(&call, Report::Abandoned, nothing));
                        return;
                    }
                    let (outcome, limits) = self.call(task, job, &claimed.token, &call).await;
                    match outcome {
                        Outcome::Answered => {
                            self.report(sim, &call.model, &steps.ended(&call, Report::Success, limits));
                            steps.on_answer(self.at(sim))
                        }
                        Outcome::Failed { failure, after_content } => {
                            let retry_after = failure.retry_after;
                            let report = Report::Failure { cause: failure.cause, after_content, retry_after };
                            let verdict = self.report(sim, &call.model, &steps.ended(&call, report, limits));
                            let rng = &mut self.objects.borrow_mut().rng;
                            steps.on_failure(&failure, &verdict, self.at(sim), rng)
                        }
                        Outcome::Stopped => {
                            self.report(sim, &call.model, &steps.ended(&call, Report::Abandoned, limits));
                            return;
                        }
                    }
                }
                Step::Pause(pause) => {
                    task.sleep(millis(pause)).await;
                    steps.on_pause(self.at(sim), &mut self.objects.borrow_mut().rng)
                }
                Step::Settle(settlement) => {
                    let then = settlement.then.clone();
                    let settled = self.change(sim, job, |record, now| record.settle(claimed.token, settlement, now));
                    if settled == Some(Settled::Stored) {
                        self.note_settlement(task, job, &then);
                    }
                    return;
                }
            };
        }
    }

    fn note_settlement(&self, task: &Task, job: JobIndex, then: &Then) {
        let mut world = task.world();
        match then {
            Then::Hold(hold) if hold.reason == HoldReason::OffPeak => world.put_off(job),
            Then::Hold(_) => world.jobs[job as usize].held = true,
            Then::Stall { .. } => {
                world.jobs[job as usize].stalled = true;
                world.put_off(job);
                drop(world);
                self.offer(&task.sim, job);
            }
            Then::Defer { .. } => world.put_off(job),
            Then::Retry(_) | Then::End(_) => {}
        }
    }

    /// The user is asked whether the job may wait. Nobody says anything, unless the scenario's users do, a minute later.
    fn offer(&self, sim: &Sim, job: JobIndex) {
        let Some(accept) = self.scenario.jobs.accept_deferral else { return };
        let Some(it) = self.this.upgrade() else { return };
        sim.spawn_later(|task| {
            Box::pin(async move {
                task.sleep(MINUTE).await;
                it.change(&task.sim, job, |record, now| record.answer_deferral(accept, now));
            })
        });
    }

    /// Calls, and brings what came of it, with what is to be told of the upstream's limits.
    async fn call(&self, task: &Task, job: JobIndex, token: &Token, call: &Call) -> (Outcome, RateLimits) {
        let sim = &task.sim;
        task.begin_call(job, model_of(call));
        let every = millis(self.gate_settings.renew_every());
        let began_at = task.now();
        let over_at = began_at + millis(call.limits.total);
        let mut renewed_at = began_at;
        let mut content = false;
        loop {
            let renewal_at = renewed_at + every;
            match task.next(Some(renewal_at.min(over_at))).await {
                Signal::Ended(answered) => {
                    // What came with the headers was told with the first content.
                    let told = if content {
                        RateLimits::default()
                    } else {
                        self.limits(answered.limits, began_at, self.at(sim))
                    };
                    let used = answered.answer.is_message().then(|| used(&task.job(job)));
                    return (outcome(answered, content, self.at(sim)), RateLimits { used, ..told });
                }
                Signal::Content(limits) => {
                    content = true;
                    if let Some(permit) = call.permit {
                        let limits = self.limits(limits, began_at, self.at(sim));
                        self.ask(sim, &call.model, |gate, now, _, settings| {
                            gate.content(permit, &limits, now, settings)
                        });
                    }
                    let renewed = self.change(sim, job, |record, now| record.refine(*token, now, &self.timing));
                    if renewed != Some(Renewal::Renewed) {
                        task.abandon_call();
                        return (Outcome::Stopped, RateLimits::default());
                    }
                    renewed_at = task.now();
                }
                Signal::Time if task.now() >= over_at => {
                    task.abandon_call();
                    let failure = Failure::transport(Cause::TotalTimeout);
                    return (Outcome::Failed { failure, after_content: content }, RateLimits::default());
                }
                Signal::Time => {
                    if let Some(permit) = call.permit {
                        self.ask(sim, &call.model, |gate, now, _, settings| gate.renew(permit, now, settings));
                    }
                    let renewed = self.change(sim, job, |record, now| record.renew(*token, now, &self.timing));
                    if renewed != Some(Renewal::Renewed) {
                        task.abandon_call();
                        return (Outcome::Stopped, RateLimits::default());
                    }
                    renewed_at = task.now();
                }
            }
        }
    }

    /// What the headers say, as the crate reads it.
    fn limits(&self, told: claude::RateLimits, began_at: Ms, now: Timestamp) -> RateLimits {
        let level = |kind: &str| match kind {
            "requests" => told.requests,
            "tokens" => told.tokens,
            _ => None,
        };
        let header = |name: &str| {
            let (kind, what) = name.strip_prefix("anthropic-ratelimit-")?.rsplit_once('-')?;
            let level = level(kind)?;
            let full_at =
                UNIX_EPOCH + Duration::from_millis(self.timestamp(level.full_at).as_millis().next_multiple_of(1_000));
            Some(match what {
                "limit" => level.limit.to_string(),
                "remaining" => level.remaining.to_string(),
                _ => humantime::format_rfc3339_seconds(full_at).to_string(),
            })
        };
        ratelimits::parse(header, self.timestamp(began_at), now)
    }

    fn at(&self, sim: &Sim) -> Timestamp {
        self.timestamp(sim.look().now)
    }

    fn timestamp(&self, ms: Ms) -> Timestamp {
        self.start + Duration::from_millis(ms)
    }

    fn ms(&self, at: Timestamp) -> Ms {
        millis(at.since(self.start))
    }
}

enum Outcome {
    Answered,
    Failed { failure: Failure, after_content: bool },
    Stopped,
}

/// What `edge/claude_fetch` makes of an answer: the crate reads status, headers and body.
fn outcome(answered: Answered, had_content: bool, now: Timestamp) -> Outcome {
    let failure = match answered.answer {
        Answer::Message => return Outcome::Answered,
        Answer::Overloaded => {
            let headers = Headers { should_retry: Some("true".into()), ..Headers::default() };
            classify(529, &headers, OVERLOADED.as_bytes(), now)
        }
        Answer::RateLimited { retry_after_seconds } => {
            let headers = Headers { retry_after: Some(retry_after_seconds.to_string()), ..Headers::default() };
            classify(429, &headers, RATE_LIMITED.as_bytes(), now)
        }
        Answer::StreamOverload { .. } => Failure::in_stream(OVERLOADED),
    };
    Outcome::Failed { failure, after_content: had_content }
}

fn queue_of(priority: Priority) -> u8 {
    let priority = match priority {
        Priority::High => world::Priority::High,
        Priority::Medium => world::Priority::Medium,
        Priority::Low => world::Priority::Low,
    };
    priority as u8
}

fn model_of(call: &Call) -> Model {
    if call.model == PRIMARY { Model::Primary } else { Model::Fallback }
}

fn used(job: &Job) -> Used {
    Used { input_tokens: job.input_tokens.into(), output_tokens: job.output_tokens.into() }
}

fn index_of(model: &str) -> usize {
    usize::from(model != PRIMARY)
}

const PRIMARY: &str = "claude-sonnet-5-5";
const FALLBACK: &str = "claude-haiku-5-5";
const OVERLOADED: &str = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
const RATE_LIMITED: &str = r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit."}}"#;
/// A Monday, 2 November 2026, 00:00 UTC.
const MIDNIGHT: Timestamp = Timestamp::from_millis(1_793_577_600_000);
/// What the claim takes before the gate can be asked.
const OBJECT_MS: Ms = 20;
const MIN_ALARM: Ms = 1_000;
