//! A job, its gate and its deliveries, put together as the edge does it, with a scripted upstream.

use std::time::Duration;

use spillway::claude::failure::Failure;
use spillway::config::{Config, Policy};
use spillway::delivery::{Call, Delivery, Step};
use spillway::job::{Begun, Claim, Claimed, Hold, JobId, Record, Retry, Settlement, Then};
use spillway::policy::answer::{Asking, Decision, Ended, PermitId, Report, Verdict};
use spillway::policy::backoff::Buckets;
use spillway::policy::cause::Cause;
use spillway::policy::gate::Gate;
use spillway::policy::presets::Preset;
use spillway::policy::rate_limits::RateLimits;
use spillway::policy::switches::Switches;
use spillway::policy::time::Timestamp;

pub(crate) const T0: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// What the upstream makes of a call.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Answer,
    Fails { failure: Failure, after_content: bool },
}

/// A failure before content.
pub(crate) fn fails(cause: Cause) -> Outcome {
    Outcome::Fails { failure: failure(cause, None), after_content: false }
}

/// A failure with a Retry-After.
pub(crate) fn asks(cause: Cause, seconds: u64) -> Outcome {
    Outcome::Fails { failure: failure(cause, Some(Duration::from_secs(seconds))), after_content: false }
}

pub(crate) fn breaks_off(cause: Cause) -> Outcome {
    Outcome::Fails { failure: failure(cause, None), after_content: true }
}

pub(crate) fn failure(cause: Cause, retry_after: Option<Duration>) -> Failure {
    Failure {
        kind: Some(format!("{}_error", cause.name())),
        message: format!("The upstream says: {}.", cause.name()),
        retry_after,
        ..Failure::transport(cause)
    }
}

/// One gate and everything that jobs at it need.
pub(crate) struct Bench {
    pub(crate) config: Config,
    pub(crate) gate: Gate,
    pub(crate) rng: fastrand::Rng,
    pub(crate) now: Timestamp,
}

/// What one delivery came to.
#[derive(Debug)]
pub(crate) struct Delivered {
    pub(crate) settlement: Settlement,
    /// The last call that was made, and its verdict.
    pub(crate) call: Option<(Call, Verdict)>,
    /// How many were made.
    pub(crate) calls: usize,
}

impl Delivered {
    pub(crate) fn costs_attempt(&self) -> bool {
        self.settlement.failed_calls.iter().any(|call| call.costs_attempt)
    }

    pub(crate) fn costs_call(&self) -> bool {
        self.settlement.failed_calls.iter().any(|call| call.costs_call)
    }

    pub(crate) fn wait_ms(&self) -> Option<u64> {
        match self.settlement.then {
            Then::Retry(Retry { wait_ms, .. }) | Then::Hold(Hold { wait_ms, .. }) => Some(wait_ms),
            Then::Stall { resume_ms, .. } | Then::Defer { resume_ms } => Some(resume_ms),
            Then::End(_) => None,
        }
    }
}

pub(crate) fn bench(policy: &str) -> Bench {
    Bench { config: config(policy), gate: Gate::default(), rng: fastrand::Rng::with_seed(11), now: T0 }
}

pub(crate) fn config(policy: &str) -> Config {
    Config::parse(|key| (key == "POLICY").then(|| policy.to_owned())).unwrap()
}

pub(crate) fn job(deadline_seconds: u64, preset: Option<Preset>) -> Record {
    let preset = preset.map(|preset| format!(r#""preset":{},"#, serde_json::to_string(&preset).unwrap()));
    let spec = format!(
        r#"{{"kind":"code_generation","priority":"medium",{}"model":"m","deadline_seconds":{deadline_seconds},"when_exhausted":"fail"}}"#,
        preset.unwrap_or_default()
    );
    Record::new(JobId::random(1), "app".into(), serde_json::from_str(&spec).unwrap(), "f".into(), T0)
}

/// A job as its consumer gets it.
pub(crate) fn claimed(deadline_seconds: u64) -> Claimed {
    let mut record = job(deadline_seconds, None);
    match record.claim(1, T0, &Policy::default().timing()) {
        Claim::Claimed(claimed) => claimed,
        other => panic!("{other:?}"),
    }
}

impl Bench {
    /// A permit for somebody else.
    pub(crate) fn permit(&mut self) -> PermitId {
        let decision = self.gate.permit(Asking::default(), self.now, &self.config.policy.gate());
        decision.permit().unwrap_or_else(|| panic!("{decision:?}"))
    }

    pub(crate) fn report(&mut self, permit: PermitId, report: Report) -> Verdict {
        let backoff = self.config.policy.backoff.clone();
        let ended =
            Ended { permit: Some(permit), asking: Asking::default(), report, limits: RateLimits::default(), backoff };
        self.gate.report(&ended, self.now, &mut self.rng, &self.config.policy.gate())
    }

    /// Somebody else's overload opens the gate, if one failure is enough for its policy.
    pub(crate) fn trip(&mut self) {
        let permit = self.permit();
        let overload = Report::Failure { cause: Cause::Overloaded, after_content: false, retry_after: None };
        let verdict = self.report(permit, overload);
        assert!(verdict.transition.is_some(), "{verdict:?}");
    }

    /// Delivers the job's current turn now, whenever that was due, and settles it.
    pub(crate) fn deliver(&mut self, record: &mut Record, outcome: Outcome) -> Delivered {
        self.deliver_with(record, outcome, |_| {})
    }

    /// The same, with something happening while the call is on its way.
    pub(crate) fn deliver_with(
        &mut self,
        record: &mut Record,
        outcome: Outcome,
        meanwhile: impl Fn(&mut Self),
    ) -> Delivered {
        let config = self.config.clone();
        let (timing, settings) = (config.policy.timing(), config.policy.gate());
        let turn = serde_json::to_value(&*record).unwrap()["turn"].as_u64().unwrap();
        let claimed = match record.claim(turn, self.now, &timing) {
            Claim::Claimed(claimed) => claimed,
            other => panic!("{other:?}"),
        };
        let (mut delivery, mut step) =
            Delivery::start(&claimed, &config, &Switches::default(), self.now, self.now, &mut self.rng);
        let (mut call, mut calls) = (None, 0);
        loop {
            step = match step {
                Step::AskGate { asking, .. } => {
                    let decision = self.gate.permit(asking, self.now, &settings);
                    delivery.on_decision(decision, self.now, &mut self.rng)
                }
                Step::Pause(pause) => {
                    self.now = self.now + pause;
                    delivery.on_pause(self.now, &mut self.rng)
                }
                Step::Call(made) => {
                    let begun = record.begin(claimed.token, made.model.clone(), self.now, &timing);
                    assert_eq!(begun, Begun::Go);
                    calls += 1;
                    meanwhile(self);
                    let next;
                    let verdict;
                    match &outcome {
                        Outcome::Answer => {
                            let ended = delivery.ended(&made, Report::Success, RateLimits::default());
                            verdict = self.gate.report(&ended, self.now, &mut self.rng, &settings);
                            next = delivery.on_answer(self.now);
                        }
                        Outcome::Fails { failure, after_content } => {
                            let (cause, retry_after) = (failure.cause, failure.retry_after);
                            let report = Report::Failure { cause, after_content: *after_content, retry_after };
                            let ended = delivery.ended(&made, report, RateLimits::default());
                            verdict = self.gate.report(&ended, self.now, &mut self.rng, &settings);
                            next = delivery.on_failure(failure, &verdict, self.now, &mut self.rng);
                        }
                    }
                    call = Some((made, verdict));
                    next
                }
                Step::Settle(settlement) => {
                    record.settle(claimed.token, settlement.clone(), self.now);
                    return Delivered { settlement, call, calls };
                }
            };
        }
    }

    /// Delivers the job again and again, each time when its wait is over, until it ends or was delivered `most` times.
    pub(crate) fn run(
        &mut self,
        record: &mut Record,
        most: usize,
        mut upstream: impl FnMut() -> Outcome,
    ) -> Vec<Delivered> {
        let mut deliveries = Vec::new();
        while !record.state.is_terminal() && deliveries.len() < most {
            let delivered = self.deliver(record, upstream());
            self.now = self.now + Duration::from_millis(delivered.wait_ms().unwrap_or_default());
            deliveries.push(delivered);
        }
        deliveries
    }
}

/// The gate's answer to whoever asks first.
pub(crate) fn first_decision() -> Decision {
    Gate::default().permit(Asking::default(), T0, &Policy::default().gate())
}

/// A verdict as the buckets of a fresh gate give it.
pub(crate) fn wait_of(failure: &Failure, seed: u64) -> Verdict {
    let mut rng = fastrand::Rng::with_seed(seed);
    let backoff = Policy::default().backoff;
    let wait = Buckets::default().fail(failure.cause.class(), &backoff, failure.retry_after, T0, &mut rng);
    Verdict { wait, costs_attempt: true, ..Verdict::default() }
}
