//! A job, its gate and its deliveries, put together as the edge does it, with a scripted upstream.

use std::time::Duration;

use spillway::claude::failure::Failure;
use spillway::config::Policy;
use spillway::delivery::{Call, Delivery, Step};
use spillway::job::{Begun, Claim, Claimed, JobId, Record, Settlement, Then};
use spillway::policy::answer::{Decision, PermitId, Report, Verdict};
use spillway::policy::backoff::Buckets;
use spillway::policy::cause::Cause;
use spillway::policy::gate::Gate;
use spillway::policy::presets::Preset;
use spillway::policy::priority::Priority;
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
    pub(crate) policy: Policy,
    pub(crate) gate: Gate,
    pub(crate) rng: fastrand::Rng,
    pub(crate) now: Timestamp,
}

/// What one delivery came to.
#[derive(Debug)]
pub(crate) struct Delivered {
    pub(crate) settlement: Settlement,
    /// The call that was made, and its verdict.
    pub(crate) call: Option<(Call, Verdict)>,
}

impl Delivered {
    pub(crate) fn costs_attempt(&self) -> bool {
        self.settlement.failed_call.as_ref().is_some_and(|call| call.costs_attempt)
    }

    pub(crate) fn costs_call(&self) -> bool {
        self.settlement.failed_call.as_ref().is_some_and(|call| call.costs_call)
    }

    pub(crate) fn wait_ms(&self) -> Option<u64> {
        match self.settlement.then {
            Then::Retry { wait_ms, .. } | Then::Hold { wait_ms, .. } => Some(wait_ms),
            Then::End(_) => None,
        }
    }
}

pub(crate) fn bench(policy: &str) -> Bench {
    Bench { policy: Policy::parse(policy).unwrap(), gate: Gate::default(), rng: fastrand::Rng::with_seed(11), now: T0 }
}

pub(crate) fn job(deadline_seconds: u64, preset: Option<Preset>) -> Record {
    let preset = preset.map(|preset| format!(r#""preset":{},"#, serde_json::to_string(&preset).unwrap()));
    let spec = format!(
        r#"{{"kind":"tagging","priority":"medium",{}"model":"m","deadline_seconds":{deadline_seconds}}}"#,
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
        let decision = self.gate.permit(Priority::Medium, self.now, &mut self.rng, &self.policy.gate());
        decision.permit().unwrap_or_else(|| panic!("{decision:?}"))
    }

    pub(crate) fn report(&mut self, permit: PermitId, report: Report) -> Verdict {
        let backoff = self.policy.backoff.clone();
        self.gate.report(Some(permit), report, &backoff, self.now, &mut self.rng, &self.policy.gate())
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
        let timing = self.policy.timing();
        let turn = serde_json::to_value(&*record).unwrap()["turn"].as_u64().unwrap();
        let claimed = match record.claim(turn, self.now, &timing) {
            Claim::Claimed(claimed) => claimed,
            other => panic!("{other:?}"),
        };
        let policy = self.policy.clone();
        let (mut delivery, mut step) = Delivery::start(&claimed, &policy, self.now, self.now);
        let mut call = None;
        loop {
            step = match step {
                Step::AskGate { priority, .. } => {
                    let decision = self.gate.permit(priority, self.now, &mut self.rng, &policy.gate());
                    delivery.on_decision(decision, self.now)
                }
                Step::Call(made) => {
                    let begun = record.begin(claimed.token, made.model.clone(), self.now, &timing);
                    assert_eq!(begun, Begun::Go);
                    meanwhile(self);
                    let (report, result) = match &outcome {
                        Outcome::Answer => (Report::Success, Ok(())),
                        Outcome::Fails { failure, after_content } => {
                            let (cause, retry_after) = (failure.cause, failure.retry_after);
                            let after_content = *after_content;
                            (Report::Failure { cause, after_content, retry_after }, Err(failure))
                        }
                    };
                    let backoff = delivery.backoff();
                    let verdict =
                        self.gate.report(made.permit, report, &backoff, self.now, &mut self.rng, &policy.gate());
                    let next = delivery.on_outcome(result, &verdict, self.now);
                    call = Some((made, verdict));
                    next
                }
                Step::Settle(settlement) => {
                    record.settle(claimed.token, settlement.clone(), self.now);
                    return Delivered { settlement, call };
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
    Gate::default().permit(Priority::Medium, T0, &mut fastrand::Rng::with_seed(1), &Policy::default().gate())
}

/// A verdict as the buckets of a fresh gate give it.
pub(crate) fn wait_of(failure: &Failure, seed: u64) -> Verdict {
    let mut rng = fastrand::Rng::with_seed(seed);
    let backoff = Policy::default().backoff;
    let wait = Buckets::default().fail(failure.cause.class(), &backoff, failure.retry_after, T0, &mut rng);
    Verdict { wait, costs_attempt: true, ..Verdict::default() }
}
