//! The queue consumer: every message is decoded, worked on and settled by itself.
//!
//! Once for all of a batch the operator's switches are read, for 2 s at most; without an answer they are as they were known last.
//! The awaits of one delivery, in order, and why each may be repeated:
//! 1. `claim`: a second claim of the turn finds it leased, or is fenced by a later token.
//! 2. `permit`: a permit that is not used ends with its lease.
//! 3. `begin`: counts the call and hands out the request; a claim that is void gets none.
//! 4. the call itself: the one step that costs money, and the reason for all the others.
//! 5. `report`: a permit that was reported before is a straggler, which counts for nothing.
//! 6. `settle`: a settlement that was stored before is void, and the job has it.
//!
//! A crash between two of them leaves a lease that runs out, and the Job object sends the turn again.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use worker::{Delay, Env, MessageBatch, MessageExt, QueueRetryOptionsBuilder, RawMessage};

use super::claude_fetch::{self, Answered, Unanswered};
use super::keeper::Keeper;
use super::stubs::{GateStub, JobStub, ObjectError};
use super::{clock, entropy, log, settings, switches, together};
use crate::claude::failure::Failure;
use crate::claude::response::Usage;
use crate::claude::{rewrite, version};
use crate::config::Config;
use crate::delivery::{Call, Delivery, GateTrouble, Step};
use crate::job::{Begun, Claim, Claimed, Envelope, Interruption, JobId, Retry, Settled, Settlement, Then};
use crate::policy::answer::{Report, Verdict};
use crate::policy::rate_limits::{RateLimits, Used};
use crate::policy::switches::Switches;
use crate::policy::time::{Timestamp, millis};
use crate::policy::unguarded::Unguarded;
use crate::telemetry::Event;

thread_local! {
    /// Messages that this isolate has discarded.
    static DISCARDED: Cell<u32> = const { Cell::new(0) };
}

/// Works on a batch. Its jobs run side by side: five of them, within the six connections of an invocation.
pub(super) async fn consume(batch: &MessageBatch<String>, env: &Env) {
    let queue = batch.queue();
    let messages = batch.raw_iter();
    let config = match settings::load(env) {
        Ok(config) => config,
        Err(faults) => {
            let what = faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            log::trouble(None, "configuration", &what);
            messages.for_each(|message| {
                retry(&message, &queue, "the configuration is broken", CONFIGURATION_PAUSE_SECONDS)
            });
            return;
        }
    };
    let invocation = Invocation {
        env,
        config: &config,
        queue: &queue,
        began_at: clock::now(),
        switches: switches::known(env).await,
        unguarded: RefCell::new(Unguarded::default()),
    };
    let handled = messages.map(|message| -> LocalBoxFuture<'_, ()> { Box::pin(invocation.handle(message)) });
    together::all(handled.collect()).await;
}

/// What the jobs of one batch share.
struct Invocation<'a> {
    env: &'a Env,
    config: &'a Config,
    queue: &'a str,
    began_at: Timestamp,
    switches: Switches,
    unguarded: RefCell<Unguarded>,
}

impl Invocation<'_> {
    async fn handle(&self, message: RawMessage) {
        let body = message.body().as_string().unwrap_or_default();
        let envelope = match Envelope::decode(&body) {
            Ok(envelope) => envelope,
            Err(error) => {
                let count = DISCARDED.with(|count| count.replace(count.get().saturating_add(1)).saturating_add(1));
                log::event(&Event::MessageDiscarded { queue: self.queue, reason: &error.to_string(), count });
                message.ack();
                return;
            }
        };
        let handled = if self.queue.ends_with(DEAD_QUEUE_SUFFIX) {
            JobStub::new(self.env, &envelope.job).revive(envelope.turn).await
        } else {
            self.deliver(&envelope).await
        };
        match handled {
            Ok(()) => message.ack(),
            Err(error) => retry(&message, self.queue, &error.to_string(), OBJECT_PAUSE_SECONDS),
        }
    }

    /// One delivery. An error means that the Job object did not answer before anything was paid for.
    async fn deliver(&self, envelope: &Envelope) -> Result<(), ObjectError> {
        let id = envelope.job.to_string();
        let claimed = match JobStub::new(self.env, &envelope.job).claim(envelope.turn).await? {
            Claim::Claimed(claimed) => claimed,
            skipped => {
                log::event(&Event::DeliverySkipped { job: &id, turn: envelope.turn, reason: skipped.name() });
                return Ok(());
            }
        };
        if let Some(waited) = &claimed.waited {
            log::event(&Event::JobResumed {
                job: &id,
                turn: envelope.turn,
                computed_wait_ms: waited.computed_ms,
                real_wait_ms: waited.real_ms,
            });
        }
        log::event(&Event::JobClaimed { job: &id, turn: envelope.turn, attempts: claimed.attempts });
        Worker { invocation: self, job: &envelope.job, id: &id, claimed: &claimed }.work().await
    }
}

/// What came of a call, what is to be told of the upstream's limits, and the text that a failed one had brought.
struct Called {
    outcome: Result<String, Unanswered>,
    limits: RateLimits,
    text: String,
}

/// A consumer at work on one claimed job.
struct Worker<'a> {
    invocation: &'a Invocation<'a>,
    job: &'a JobId,
    id: &'a str,
    claimed: &'a Claimed,
}

impl Worker<'_> {
    async fn work(&self) -> Result<(), ObjectError> {
        let mut rng = entropy::rng();
        let Invocation { config, began_at, switches, .. } = self.invocation;
        let (mut delivery, mut step) =
            Delivery::start(self.claimed, config, switches, *began_at, clock::now(), &mut rng);
        let mut answer = String::new();
        loop {
            step = match step {
                Step::AskGate { model, asking } => match self.gate(&model).permit(asking).await {
                    Ok(decision) => delivery.on_decision(decision, clock::now(), &mut rng),
                    Err(error) => {
                        log::trouble(Some(self.id), "gate", &error.to_string());
                        let mut unguarded = self.invocation.unguarded.borrow_mut();
                        delivery.on_gate_trouble(error.into(), &mut unguarded, clock::now(), &mut rng)
                    }
                },
                Step::Call(call) => {
                    let Some(request) = self.begin(&call, &delivery).await? else { return Ok(()) };
                    let Called { outcome, limits, text } = self.call(&call, &request).await;
                    match outcome {
                        Ok(message) => {
                            answer = message;
                            self.report(&call, &delivery, Report::Success, limits, &mut rng).await;
                            delivery.on_answer(clock::now())
                        }
                        Err(Unanswered::Failed { failure, after_content }) => {
                            let report = Report::Failure {
                                cause: failure.cause,
                                after_content,
                                retry_after: failure.retry_after,
                            };
                            let interruption = self.interrupted(&failure, after_content).await;
                            let verdict = self.report(&call, &delivery, report, limits, &mut rng).await;
                            match interruption {
                                Interruption::GoOn => {
                                    let next = delivery.on_failure(&failure, &verdict, clock::now(), &mut rng);
                                    self.log_backoff(&call, &failure, &verdict, &next);
                                    next
                                }
                                Interruption::End => {
                                    answer = text;
                                    delivery.on_interruption(&failure, &verdict, clock::now())
                                }
                                Interruption::Void => return Ok(()),
                            }
                        }
                        Err(Unanswered::Stopped(_)) => {
                            self.report(&call, &delivery, Report::Abandoned, limits, &mut rng).await;
                            return Ok(());
                        }
                    }
                }
                Step::Pause(pause) => {
                    Delay::from(pause).await;
                    delivery.on_pause(clock::now(), &mut rng)
                }
                Step::Settle(settlement) => {
                    self.settle(settlement, &answer).await;
                    return Ok(());
                }
            };
        }
    }

    /// The request, if the call may be made; without one the permit is given back.
    async fn begin(&self, call: &Call, delivery: &Delivery<'_>) -> Result<Option<Vec<u8>>, ObjectError> {
        let begun = self.object().begin(self.claimed.token, &call.model).await;
        if let Ok((Begun::Go, request)) = begun {
            return Ok(Some(request));
        }
        self.report(call, delivery, Report::Abandoned, RateLimits::default(), &mut entropy::rng()).await;
        begun.map(|_| None)
    }

    /// Calls, and brings what came of it, with what is to be told of the upstream's limits.
    async fn call(&self, call: &Call, request: &[u8]) -> Called {
        let config = self.invocation.config;
        let began_at = clock::now();
        let Claimed { kind, priority, held, .. } = self.claimed;
        let priority = priority.name();
        log::event(&Event::CallStarted {
            job: self.id,
            model: &call.model,
            permit: call.permit_name(),
            kind,
            priority,
            dwell_ms: call.asking.dwell_ms,
            held: *held,
        });
        let every = config.policy.gate().renew_every();
        let gate = self.gate(&call.model);
        let mut keeper = Keeper::new(self.id, self.object(), self.claimed.token, gate, call.permit, every);
        let request = rewrite::for_model(request, &self.claimed.model, &call.model, &config.models);
        let version = self.claimed.version.as_deref().unwrap_or(version::DEFAULT);
        let headers = [("anthropic-version", Some(version)), ("anthropic-beta", self.claimed.betas.as_deref())];
        let outcome = claude_fetch::call(config, call, &request, &headers, &mut keeper).await;
        let duration_ms = millis(clock::now().since(began_at));
        match outcome {
            Ok(Answered { message, request_id }) => {
                log::event(&Event::CallSucceeded {
                    job: Some(self.id),
                    model: &call.model,
                    kind,
                    priority,
                    request_id: request_id.as_deref(),
                    duration_ms,
                    input_tokens: message.usage.input_tokens,
                    output_tokens: message.usage.output_tokens,
                });
                let Usage { input_tokens, output_tokens } = message.usage;
                let limits = keeper.limits(Some(Used { input_tokens, output_tokens }));
                Called { outcome: Ok(message.json), limits, text: String::new() }
            }
            Err(unanswered) => {
                let (job, model) = (Some(self.id), call.model.as_str());
                let Usage { input_tokens, output_tokens } = keeper.billed();
                log::event(&match &unanswered {
                    Unanswered::Failed { failure, .. } => Event::CallFailed {
                        job,
                        model,
                        cause: failure.cause.name(),
                        kind,
                        priority,
                        status: failure.status,
                        request_id: failure.request_id.as_deref(),
                        duration_ms,
                        input_tokens,
                        output_tokens,
                    },
                    Unanswered::Stopped(stop) => {
                        let reason = stop.name();
                        Event::CallAbandoned {
                            job,
                            reason,
                            model,
                            kind,
                            priority,
                            duration_ms,
                            input_tokens,
                            output_tokens,
                        }
                    }
                });
                Called { outcome: Err(unanswered), limits: keeper.limits(None), text: keeper.into_text() }
            }
        }
    }

    /// A call that broke off after content: whether somebody has seen some of it decides what comes next. An object that does
    /// not answer finds that out for itself later.
    async fn interrupted(&self, failure: &Failure, after_content: bool) -> Interruption {
        if !after_content {
            return Interruption::GoOn;
        }
        self.object().interrupted(self.claimed.token, failure.cause).await.unwrap_or_else(|error| {
            log::trouble(Some(self.id), "job_object", &error.to_string());
            Interruption::GoOn
        })
    }

    async fn report(
        &self,
        call: &Call,
        delivery: &Delivery<'_>,
        report: Report,
        limits: RateLimits,
        rng: &mut fastrand::Rng,
    ) -> Verdict {
        match self.gate(&call.model).report(delivery.ended(call, report, limits)).await {
            Ok(verdict) => verdict,
            Err(error) => {
                log::trouble(Some(self.id), "gate", &error.to_string());
                delivery.verdict_without_gate(report, clock::now(), rng)
            }
        }
    }

    /// Every wait after a failure (B10): in the queue, and the short one within the delivery.
    fn log_backoff(&self, call: &Call, failure: &Failure, verdict: &Verdict, next: &Step) {
        let (wait_ms, costs_attempt) = match next {
            Step::Settle(Settlement { then: Then::Retry(Retry { wait_ms, .. }), failed_calls }) => {
                (*wait_ms, failed_calls.last().is_some_and(|call| call.costs_attempt))
            }
            // The pass goes on.
            Step::Pause(pause) => (millis(*pause), false),
            _ => return,
        };
        log::event(&Event::Backoff {
            job: self.id,
            model: &call.model,
            cause: failure.cause.name(),
            failures: verdict.wait.map_or(0, |wait| wait.failures),
            computed_wait_ms: verdict.wait.map_or(0, |wait| millis(wait.wanted)),
            wait_ms,
            costs_attempt,
        });
    }

    /// The answer is paid for: the Job object is asked again and again to take it.
    async fn settle(&self, settlement: Settlement, answer: &str) {
        match &settlement.then {
            Then::Hold(hold) => {
                let (model, reason, wait_ms) = (&self.claimed.model, hold.reason.name(), hold.wait_ms);
                log::event(&Event::JobHeld { job: self.id, model, reason, wait_ms });
            }
            Then::Stall { resume_ms, .. } | Then::Defer { resume_ms } => {
                log::event(&Event::JobExhausted { job: self.id, then: settlement.then.name(), resume_ms: *resume_ms });
            }
            Then::Retry(_) | Then::End(_) => {}
        }
        for pause in SETTLE_PAUSES {
            match self.object().settle(self.claimed.token, settlement.clone(), answer).await {
                Ok(Settled::Void) => {
                    log::event(&Event::SettlementDiscarded { job: self.id });
                    return;
                }
                Ok(Settled::Stored) => return,
                Err(error) => log::trouble(Some(self.id), "job_object", &error.to_string()),
            }
            Delay::from(pause).await;
        }
    }

    fn object(&self) -> JobStub<'_> {
        JobStub::new(self.invocation.env, self.job)
    }

    fn gate<'m>(&'m self, model: &'m str) -> GateStub<'m> {
        GateStub::new(self.invocation.env, model, self.id)
    }
}

impl From<ObjectError> for GateTrouble {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Overloaded => Self::Overloaded,
            ObjectError::Silent | ObjectError::Failed(_) => Self::Silent,
        }
    }
}

/// Has a message delivered again. The lease, the turn and the watchdog keep that harmless, however often.
fn retry(message: &RawMessage, queue: &str, reason: &str, delay_seconds: u32) {
    let envelope = message.body().as_string().and_then(|body| Envelope::decode(&body).ok());
    let job = envelope.map(|envelope| envelope.job.to_string());
    log::event(&Event::MessageRetried { job: job.as_deref(), queue, reason, delay_seconds });
    message.retry_with_options(&QueueRetryOptionsBuilder::new().with_delay_seconds(delay_seconds).build());
}

const DEAD_QUEUE_SUFFIX: &str = "-dead";
const CONFIGURATION_PAUSE_SECONDS: u32 = 60;
const OBJECT_PAUSE_SECONDS: u32 = 10;
/// A little over half a minute in all, and well within what a delivery has left after its call.
const SETTLE_PAUSES: [Duration; 6] = [
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(15),
];
