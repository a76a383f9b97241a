//! The synchronous path, driven as the edge drives it, and the official SDK that is in front of it.
//!
//! `relay::Relay` decides, and `submission::accept_call` makes the record of a call that is handed over. What is here stands for
//! `edge/messages` (the steps), `edge/upstream` (one call, held back up to its first content, and what is told of it to the gate
//! behind the caller's back) and `edge/views` (how each isolate sees the gates).
//!
//! Every caller uses an official SDK with its two retries: whether calls multiply is seen only so.

use std::rc::Rc;
use std::time::Duration;

use spillway::api::wish::{Handoff, Wish};
use spillway::claude::failure::Failure;
use spillway::delivery::Call;
use spillway::policy::answer::{Ended, Report};
use spillway::policy::cause::Cause;
use spillway::policy::gate::View;
use spillway::policy::priority::Priority;
use spillway::policy::rate_limits::RateLimits;
use spillway::policy::time::{Timestamp, millis};
use spillway::policy::transition::State;
use spillway::relay::{Relay, Step};
use spillway::submission::{self, AcceptedCall, Incoming};

use super::super::claude::Answer;
use super::super::report::OURS;
use super::super::rivals::{SDK, sdk_wait};
use super::super::scenario::Scenario;
use super::super::world::{self, End, JobIndex, Ms, SECOND, Signal, Sim, Task};
use super::{Deployment, OBJECT_MS, Outcome, PRIMARY, index_of, model_of, outcome, used};

/// An isolate's view of the gates.
#[derive(Default)]
pub(super) struct Isolate {
    seen: Vec<Seen>,
}

struct Seen {
    model: String,
    priority: Priority,
    at: Ms,
    view: View,
}

pub(super) fn isolates(scenario: &Scenario) -> Vec<Isolate> {
    let count = scenario.calls.as_ref().map_or(0, |calls| calls.isolates.into());
    std::iter::repeat_with(Isolate::default).take(count).collect()
}

/// Which of our policies this is, and what its callers want.
pub(super) fn handoff(policy: &str, scenario: &Scenario) -> (&'static str, Handoff) {
    match policy {
        "spillway-auto" => ("spillway-auto", Handoff::Auto),
        "spillway-never" => ("spillway-never", Handoff::Never),
        _ => (
            OURS,
            match scenario.calls.as_ref().map(|calls| calls.handoff.as_str()) {
                Some("auto") => Handoff::Auto,
                Some("never") => Handoff::Never,
                _ => Handoff::Wait,
            },
        ),
    }
}

/// What the caller's SDK has got.
enum Got {
    /// An answer, whole or broken off; or the word that the call is a job now. Nothing to try again.
    Its,
    /// An error, before anything.
    Error {
        /// `x-should-retry`, or else what the SDK makes of the status.
        retry: bool,
        /// `retry-after`
        after: Option<Ms>,
    },
}

/// What the official SDK does.
impl Deployment {
    pub(super) async fn serve(self: Rc<Self>, task: Task, job: JobIndex) {
        for wait in SDK.iter().map(Some).chain([None]) {
            let got = self.create(&task, job).await;
            match (got, wait) {
                (Got::Its, _) => return,
                (Got::Error { retry: true, after }, Some(&wait)) => {
                    let wait = sdk_wait(wait, after, &mut task.world());
                    task.sleep(wait).await;
                }
                (Got::Error { .. }, _) => break,
            }
        }
        task.world().finish(job, End::Failed);
    }
}

/// What `edge/messages` does.
impl Deployment {
    async fn create(&self, task: &Task, job: JobIndex) -> Got {
        let sim = &task.sim;
        let arrived = self.at(sim);
        let data = task.job(job);
        let isolate = data.caller.expect("a job that somebody waits for").isolate;
        let wish = Wish { priority: priority(data.priority), ..self.wish(&self.scenario.kind(&data).name) };
        let call = self.accept_call(&wish, job, arrived).expect("a call like those that were tried");
        let until = arrived + self.patience(&wish);
        let record = call.accepted.record;
        let mut last = None;
        let (mut relay, mut step) = Relay::start(&record.spec, wish.handoff, &self.config, until, arrived);
        loop {
            step = match step {
                Step::Look { model } => {
                    let view = self.view(task, isolate, &model, record.spec.priority).await;
                    relay.on_view(Some(view), self.at(sim))
                }
                Step::Ask { model, asking } => {
                    task.sleep(OBJECT_MS).await;
                    let decision = self.permit(sim, &model, asking);
                    relay.on_decision(Some(decision), self.at(sim))
                }
                Step::Call(call) => match self.open(task, job, isolate, &call).await {
                    Opened::Flowed => return Got::Its,
                    Opened::Failed { failure, answer } => {
                        last = answer;
                        relay.on_failure(&failure, self.at(sim), &mut self.objects.borrow_mut().rng)
                    }
                },
                Step::Pause(pause) => {
                    task.sleep(millis(pause)).await;
                    relay.on_pause(self.at(sim))
                }
                Step::HandOver => {
                    let line_until = if wish.handoff == Handoff::Auto { self.at(sim) } else { until };
                    task.sleep(OBJECT_MS).await;
                    task.world().caller(job).is_handed_over(self.ms(line_until));
                    self.objects.borrow_mut().jobs[job as usize].record = Some(Box::new(record));
                    self.after_change(sim, job);
                    return Got::Its;
                }
                Step::PassOn => return passed_on(last, relay.is_final()),
                Step::Refuse(_) => return Got::Error { retry: false, after: None },
            };
        }
    }

    pub(super) fn wish(&self, kind: &str) -> Wish {
        let max_wait = self.scenario.calls.as_ref().and_then(|calls| calls.patience_seconds);
        Wish {
            handoff: self.handoff,
            max_wait: max_wait.map(Duration::from_secs),
            kind: Some(kind.to_owned()),
            ..Wish::default()
        }
    }

    pub(super) fn patience(&self, wish: &Wish) -> Duration {
        wish.max_wait.unwrap_or(Duration::from_secs(self.config.policy.sync.max_wait_seconds))
    }

    fn accept_call(&self, wish: &Wish, job: JobIndex, now: Timestamp) -> Result<AcceptedCall, String> {
        let body = format!(
            r#"{{"model":"{PRIMARY}","max_tokens":4096,"stream":true,"messages":[{{"role":"user","content":"storm"}}]}}"#
        );
        let incoming =
            Incoming { client: "storm", body: body.as_bytes(), betas: None, version: None, idempotency_key: None };
        let accepted = submission::accept_call(incoming, wish, &self.config, u128::from(job) + 1, now);
        accepted.map_err(|error| error.message)?.ok_or_else(|| "the body could be no job".into())
    }

    /// Whatever is wrong with the calls' kinds is said before the storm begins.
    pub(super) fn try_calls(&self, now: Timestamp) -> Result<(), String> {
        for kind in self.scenario.calls.iter().flat_map(|calls| &calls.kinds) {
            self.accept_call(&self.wish(&kind.name), 0, now)
                .map_err(|error| format!("calls of kind {}: {error}", kind.name))?;
        }
        Ok(())
    }
}

/// The upstream's own error, with a word from us if it was tried again here already.
fn passed_on(answer: Option<Answer>, is_final: bool) -> Got {
    match answer {
        Some(Answer::RateLimited { retry_after_seconds }) => {
            Got::Error { retry: !is_final, after: Some(Ms::from(retry_after_seconds) * SECOND) }
        }
        // The status is 200: no SDK looks further.
        Some(Answer::StreamOverload { .. }) => Got::Error { retry: false, after: None },
        _ => Got::Error { retry: !is_final, after: None },
    }
}

/// What `edge/views` does.
impl Deployment {
    async fn view(&self, task: &Task, isolate: u16, model: &str, priority: Priority) -> View {
        let now = task.now();
        let known = {
            let objects = self.objects.borrow();
            let fresh = objects.isolates[usize::from(isolate)].seen.iter().filter(|seen| now - seen.at < GOOD_FOR);
            fresh.filter(|seen| seen.model == model && seen.priority == priority).map(|seen| seen.view).next()
        };
        if let Some(view) = known {
            return view;
        }
        task.sleep(OBJECT_MS).await;
        let view = self.ask(&task.sim, model, |gate, now, _, settings| gate.view(priority, now, settings));
        let at = task.now();
        let isolate = &mut self.objects.borrow_mut().isolates[usize::from(isolate)];
        isolate.forget(model);
        isolate.seen.retain(|seen| at - seen.at < GOOD_FOR);
        isolate.seen.push(Seen { model: model.to_owned(), priority, at, view });
        view
    }
}

impl Isolate {
    fn forget(&mut self, model: &str) {
        self.seen.retain(|seen| seen.model != model);
    }
}

/// What became of a call.
enum Opened {
    /// The caller has had it, whole or up to where it broke off.
    Flowed,
    /// It failed, and nothing of it has been seen; `answer`: what the upstream said, if it did.
    Failed { failure: Failure, answer: Option<Answer> },
}

/// What `edge/upstream` does.
impl Deployment {
    async fn open(&self, task: &Task, job: JobIndex, isolate: u16, call: &Call) -> Opened {
        let sim = &task.sim;
        self.begins(sim, call);
        task.begin_call(job, model_of(call));
        let began_at = task.now();
        let over_at = began_at + millis(call.limits.total);
        let mut limits = None;
        let (failure, answer) = loop {
            match task.next(Some(over_at)).await {
                Signal::Content(told) => {
                    let told = self.limits(told, began_at, self.at(sim));
                    limits = Some(told);
                    self.tell_content(sim, isolate, call, told);
                    task.world().caller(job).flows();
                }
                Signal::Ended(answered) => {
                    let told = limits.unwrap_or_else(|| self.limits(answered.limits, began_at, self.at(sim)));
                    match outcome(answered, limits.is_some(), self.at(sim)) {
                        Outcome::Answered => {
                            let limits = RateLimits { used: Some(used(&task.job(job))), ..told };
                            self.tell(sim, isolate, call, Report::Success, limits);
                            task.world().finish(job, End::Done);
                            return Opened::Flowed;
                        }
                        Outcome::Failed { failure, .. } => {
                            self.fail(sim, isolate, call, &failure, limits.is_some(), told);
                            break (failure, Some(answered.answer));
                        }
                        Outcome::Stopped => panic!("nobody stops a call of the synchronous path"),
                    }
                }
                Signal::Time => {
                    task.abandon_call();
                    let failure = Failure::transport(Cause::IdleTimeout);
                    self.fail(sim, isolate, call, &failure, limits.is_some(), limits.unwrap_or_default());
                    break (failure, None);
                }
            }
        };
        if limits.is_some() {
            // The error goes through as it came, inside the stream.
            task.world().finish(job, End::Failed);
            return Opened::Flowed;
        }
        Opened::Failed { failure, answer }
    }

    fn fail(&self, sim: &Sim, isolate: u16, call: &Call, failure: &Failure, after_content: bool, limits: RateLimits) {
        let Failure { cause, retry_after, .. } = *failure;
        self.tell(sim, isolate, call, Report::Failure { cause, after_content, retry_after }, limits);
    }

    /// Notes what the gate would have said, had it been asked.
    fn begins(&self, sim: &Sim, call: &Call) {
        if call.permit.is_some() {
            return;
        }
        let now = self.at(sim);
        let objects = &mut *self.objects.borrow_mut();
        let object = &mut objects.gates[index_of(&call.model)];
        object.unpermitted += 1;
        let is_shut = object.gate.status(now, &self.gate_settings).state != State::Closed;
        objects.facts.stale_calls += u32::from(is_shut);
    }

    /// Tells the gate, if it counts this call, behind the caller's back.
    fn tell_content(&self, sim: &Sim, isolate: u16, call: &Call, limits: RateLimits) {
        let Some(permit) = call.permit else { return };
        self.objects.borrow_mut().isolates[usize::from(isolate)].forget(&call.model);
        let (model, Some(it)) = (call.model.clone(), self.this.upgrade()) else { return };
        sim.spawn_later(|task| {
            Box::pin(async move {
                task.sleep(OBJECT_MS).await;
                it.ask(&task.sim, &model, |gate, now, _, settings| gate.content(permit, &limits, now, settings));
            })
        });
    }

    /// Tells the gate, behind the caller's back.
    fn tell(&self, sim: &Sim, isolate: u16, call: &Call, report: Report, limits: RateLimits) {
        let Call { model, permit, asking, .. } = call.clone();
        {
            let objects = &mut *self.objects.borrow_mut();
            objects.isolates[usize::from(isolate)].forget(&model);
            objects.gates[index_of(&model)].unpermitted -= u32::from(permit.is_none());
        }
        let ended = Ended { permit, asking, report, limits, backoff: self.config.policy.backoff.clone() };
        let Some(it) = self.this.upgrade() else { return };
        sim.spawn_later(|task| {
            Box::pin(async move {
                task.sleep(OBJECT_MS).await;
                it.report(&task.sim, &model, &ended);
            })
        });
    }
}

fn priority(priority: world::Priority) -> Priority {
    match priority {
        world::Priority::High => Priority::High,
        world::Priority::Medium => Priority::Medium,
        world::Priority::Low => Priority::Low,
    }
}

/// A view is good for so long.
const GOOD_FOR: Ms = SECOND;
