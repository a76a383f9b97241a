//! A job and everyone who touches it: consumers with their tokens, the queue, the alarm, the app, and a clock that nobody
//! should trust. A history is a list of [`Op`]s; [`run`] plays it and hands over every step with the record before and after.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value;
use spillway::api::status::Published;
use spillway::job::notice::Patience;
use spillway::job::settlement::FailedCall;
use spillway::job::{
    Effect, Ending, FailReason, Hold, JobId, Record, Retry, Row, Settlement, Spec, Then, Timing, Token, Which,
};
use spillway::policy::answer::HoldReason;
use spillway::policy::backoff::Jitter;
use spillway::policy::cause::Cause;
use spillway::policy::priority::Priority;
use spillway::policy::settings::Backoff;
use spillway::policy::time::Timestamp;
use spillway::policy::wording::Messages;

/// Something that happens to a job. Turns and holders are relative, so that a history still makes sense when it shrinks.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// A message wants its turn: the current one, or one so much older or newer.
    Claim(i64),
    /// The holder of the nth last token is about to call, is calling, sees content, or is finished.
    Begin(usize),
    Renew(usize),
    Refine(usize),
    Settle(usize, Settlement),
    /// Its call broke off after content.
    Interrupted(usize),
    /// Somebody is about to see text of the draft that is being written.
    See,
    /// The user answers the offer to defer, asked or not.
    Answer(bool),
    /// The app takes the job back.
    Cancel,
    /// The alarm rings; what it asks for is done, or lost.
    Tick {
        is_done: bool,
    },
    /// The queue confirms a message, KV a write, whether asked or not.
    Announced(i64),
    Published,
    /// The index confirms the nth last row that it was told.
    Listed(usize),
    /// A message died in the queue.
    Revive(i64),
    /// The operator drives the job on.
    Redrive,
    /// The clock goes on, to the next alarm, or back.
    Forward(u64),
    ToAlarm,
    Back(u64),
}

/// One step of a history.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) op: Op,
    pub(crate) before: Record,
    pub(crate) after: Record,
    /// What the record answered, as text.
    pub(crate) outcome: String,
    /// The token that the operation was done with.
    pub(crate) used: Option<Token>,
    /// The token that may write, before and after.
    pub(crate) live: (Option<Token>, Option<Token>),
    pub(crate) effects: Vec<Effect>,
    pub(crate) now: Timestamp,
}

/// A job under way.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) record: Record,
    pub(crate) timing: Timing,
    pub(crate) now: Timestamp,
    /// Every token that was ever handed out, oldest first.
    pub(crate) tokens: Vec<Token>,
    live: Option<Token>,
    begun: Option<Token>,
    /// Every row that was ever to be told, oldest first.
    pub(crate) rows: Vec<Row>,
}

pub(crate) const T0: Timestamp = Timestamp::from_millis(1_700_000_000_000);
pub(crate) const CONTENT: &str = "what-the-app-wrote";
pub(crate) const TIMING: Timing = Timing {
    lease: Duration::from_secs(120),
    watchdog: Duration::from_secs(600),
    retention: Duration::from_secs(86_400),
    webhooks: Patience {
        answer: Duration::from_secs(15),
        give_up: Duration::from_secs(86_400),
        backoff: Backoff { base_ms: 5_000, cap_ms: 7_200_000, jitter: Jitter::Equal },
    },
};

pub(crate) fn spec(deadline_seconds: u64) -> Spec {
    let json = format!(
        r#"{{"kind":"tagging","priority":"medium","model":"claude-sonnet-5-5","deadline_seconds":{deadline_seconds},
            "metadata":{{"note":"{CONTENT}"}}}}"#
    );
    serde_json::from_str(&json).unwrap()
}

pub(crate) fn job(deadline_seconds: u64) -> Record {
    Record::new(JobId::random(7), "app".into(), spec(deadline_seconds), "fingerprint".into(), T0)
}

/// A part of the record that only the schedule knows.
pub(crate) fn stored(record: &Record) -> Value {
    serde_json::to_value(record).unwrap()
}

pub(crate) fn turn(record: &Record) -> u64 {
    stored(record)["turn"].as_u64().unwrap()
}

pub(crate) fn instant(record: &Record, pointer: &str) -> Option<Timestamp> {
    stored(record).pointer(pointer).and_then(Value::as_u64).map(Timestamp::from_millis)
}

/// What a watcher sees, but for what changes by itself: the seconds left of a wait, and the words for a long one.
pub(crate) fn visible(record: &Record, now: Timestamp) -> Value {
    let published = Published::new(record, None, Duration::MAX, now).unwrap();
    let (status, _) = published.written(&Messages::default(), "en");
    let mut view: Value = serde_json::from_str(&status).unwrap();
    if let Some(waiting) = view.get_mut("waiting").and_then(Value::as_object_mut) {
        waiting.remove("next_check_seconds");
    }
    view
}

impl World {
    pub(crate) fn new(deadline_seconds: u64) -> Self {
        Self {
            record: job(deadline_seconds),
            timing: TIMING,
            now: T0,
            tokens: Vec::new(),
            live: None,
            begun: None,
            rows: Vec::new(),
        }
    }

    /// Plays one operation.
    pub(crate) fn step(&mut self, op: Op) -> Step {
        let before = self.record.clone();
        let (was_live, used) = (self.live, self.token_of(&op));
        let (outcome, effects) = self.play(&op, used);
        let live = (was_live, self.live);
        Step { op, before, after: self.record.clone(), outcome, used, live, effects, now: self.now }
    }

    fn token_of(&self, op: &Op) -> Option<Token> {
        let (Op::Begin(n) | Op::Renew(n) | Op::Refine(n) | Op::Interrupted(n) | Op::Settle(n, _)) = op else {
            return None;
        };
        let index = self.tokens.len().checked_sub(1 + n % self.tokens.len().max(1))?;
        self.tokens.get(index).copied()
    }

    fn play(&mut self, op: &Op, token: Option<Token>) -> (String, Vec<Effect>) {
        let (now, timing) = (self.now, self.timing);
        let relative = |record: &Record, by: i64| turn(record).saturating_add_signed(by);
        let mut effects = Vec::new();
        let outcome = match (op, token) {
            (Op::Claim(by), _) => {
                let claim = self.record.claim(relative(&self.record, *by), now, &timing);
                if let spillway::job::Claim::Claimed(claimed) = &claim {
                    self.tokens.push(claimed.token);
                    self.live = Some(claimed.token);
                }
                claim.name().to_owned()
            }
            // A consumer begins one call per delivery.
            (Op::Begin(_), Some(token)) if self.begun == Some(token) => "begun before".into(),
            (Op::Begin(_), Some(token)) => {
                self.begun = Some(token).filter(|token| self.live == Some(*token)).or(self.begun);
                text(&self.record.begin(token, "m".into(), now, &timing))
            }
            (Op::Renew(_), Some(token)) => text(&self.record.renew(token, now, &timing)),
            (Op::Refine(_), Some(token)) => text(&self.record.refine(token, now, &timing)),
            (Op::Settle(_, settlement), Some(token)) => text(&self.record.settle(token, settlement.clone(), now)),
            (Op::Interrupted(_), Some(token)) => text(&self.record.interrupted(token, Cause::Overloaded, now, &timing)),
            (Op::See, _) => text(&self.record.draft().map(|draft| self.record.see(draft))),
            (Op::Answer(accept), _) => text(&self.record.answer_deferral(*accept, now)),
            (Op::Cancel, _) => text(&self.record.cancel(now)),
            (Op::Tick { is_done }, _) => {
                effects = self.record.tick(now, &timing);
                self.rows.extend(effects.iter().filter_map(row_of).cloned());
                if *is_done {
                    effects.iter().for_each(|effect| self.done(effect));
                }
                text(&effects)
            }
            (Op::Announced(by), _) => text(&self.record.announced(relative(&self.record, *by), now)),
            (Op::Published, _) => text(&self.record.published(now)),
            (Op::Listed(n), _) => {
                let row = self.rows.iter().rev().nth(*n).cloned();
                text(&row.map(|row| self.record.listed(row.version)))
            }
            (Op::Revive(by), _) => text(&self.record.revive(relative(&self.record, *by), now)),
            (Op::Redrive, _) => text(&self.record.redrive(&Which::Any, now)),
            (Op::Forward(ms), _) => self.set_clock(now + Duration::from_millis(*ms)),
            (Op::Back(ms), _) => self.set_clock(now - Duration::from_millis(*ms)),
            (Op::ToAlarm, _) => self.set_clock(self.record.next_alarm(&timing).max(now)),
            (Op::Begin(_) | Op::Renew(_) | Op::Refine(_) | Op::Interrupted(_) | Op::Settle(..), None) => {
                "nobody has claimed yet".into()
            }
        };
        if instant(&self.record, "/lease/until").is_none() {
            self.live = None;
        }
        (outcome, effects)
    }

    /// The edge has done what the record asked for.
    pub(crate) fn done(&mut self, effect: &Effect) {
        match effect {
            Effect::Announce { envelope, .. } => self.record.announced(envelope.turn, self.now),
            Effect::Publish { .. } => self.record.published(self.now),
            Effect::Withdraw => self.record.withdrawn(),
            Effect::List { row, .. } => self.record.listed(row.version),
            // What a receiver does is `webhooks`' concern.
            Effect::Notify { .. } | Effect::Erase => {}
        }
    }

    fn set_clock(&mut self, now: Timestamp) -> String {
        self.now = now;
        String::new()
    }
}

/// The row that an effect tells, if it is that.
pub(crate) const fn row_of(effect: &Effect) -> Option<&Row> {
    match effect {
        Effect::List { row, .. } => Some(row),
        _ => None,
    }
}

/// What is due but for the index, which knows it at once.
pub(crate) fn tick(record: &mut Record, now: Timestamp) -> Vec<Effect> {
    let mut effects = record.tick(now, &TIMING);
    effects.retain(|effect| match row_of(effect) {
        Some(row) => {
            record.listed(row.version);
            false
        }
        None => true,
    });
    effects
}

fn text(outcome: &impl std::fmt::Debug) -> String {
    format!("{outcome:?}")
}

/// Plays a history on a fresh job.
pub(crate) fn run(deadline_seconds: u64, history: Vec<Op>) -> (World, Vec<Step>) {
    let mut world = World::new(deadline_seconds);
    let steps = history.into_iter().map(|op| world.step(op)).collect();
    (world, steps)
}

fn settlements() -> impl Strategy<Value = Settlement> {
    let causes = prop::sample::select(vec![Cause::Overloaded, Cause::RateLimited, Cause::ServerError, Cause::SpendCap]);
    // Up to five days: longer than a queue can delay a message.
    let waits = prop_oneof![4 => 1..60_000_u64, 1 => 1..432_000_000_u64];
    let failed_call =
        (causes.clone(), any::<bool>(), any::<bool>(), waits.clone()).prop_map(|(cause, attempt, call, wait)| {
            FailedCall {
                model: "m".into(),
                cause,
                status: Some(529),
                request_id: None,
                costs_attempt: attempt,
                costs_call: call,
                computed_wait_ms: Some(wait),
                real_wait_ms: None,
                ago_ms: 0,
            }
        });
    let failed = |cause: Cause| Ending::Failed {
        reason: FailReason::Refused(cause),
        cause: Some(cause),
        error_type: Some("invalid_request_error".into()),
        message: format!("the upstream quotes {CONTENT}"),
    };
    let then = prop_oneof![
        4 => (causes.clone(), waits.clone()).prop_map(|(cause, wait_ms)| Then::Retry(Retry::new(cause, wait_ms))),
        3 => waits.clone().prop_map(|wait_ms| Then::Hold(Hold::new(HoldReason::BreakerOpen, wait_ms))),
        1 => waits.clone().prop_map(|wait_ms| Then::Stall { answer_ms: 900_000, resume_ms: 900_000 + wait_ms }),
        1 => waits.prop_map(|resume_ms| Then::Defer { resume_ms }),
        1 => Just(Then::End(Ending::Done { model_used: "m".into(), downgrade: None })),
        1 => causes.prop_map(move |cause| Then::End(failed(cause))),
    ];
    (prop::collection::vec(failed_call, 0..3), then).prop_map(|(failed_calls, then)| Settlement { failed_calls, then })
}

fn ops() -> impl Strategy<Value = Op> {
    // Mostly the latest holder, and now and then one whose time is over.
    let holder = prop_oneof![5 => Just(0_usize), 1 => 1..4_usize];
    let by = prop_oneof![5 => Just(0_i64), 1 => -3..3_i64];
    prop_oneof![
        6 => by.clone().prop_map(Op::Claim),
        4 => holder.clone().prop_map(Op::Begin),
        2 => holder.clone().prop_map(Op::Renew),
        3 => holder.clone().prop_map(Op::Refine),
        1 => holder.clone().prop_map(Op::Interrupted),
        2 => Just(Op::See),
        4 => (holder, settlements()).prop_map(|(holder, settlement)| Op::Settle(holder, settlement)),
        1 => any::<bool>().prop_map(Op::Answer),
        1 => Just(Op::Cancel),
        4 => any::<bool>().prop_map(|is_done| Op::Tick { is_done }),
        2 => by.clone().prop_map(Op::Announced),
        1 => Just(Op::Published),
        1 => (0..4_usize).prop_map(Op::Listed),
        1 => by.prop_map(Op::Revive),
        1 => Just(Op::Redrive),
        3 => (0..150_000_u64).prop_map(Op::Forward),
        3 => Just(Op::ToAlarm),
        1 => (0..100_000_000_u64).prop_map(Op::Forward),
        1 => (0..100_000_000_u64).prop_map(Op::Back),
    ]
}

/// Histories of up to sixty operations.
pub(crate) fn histories() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(ops(), 1..60)
}

/// Every deadline that a job may have.
pub(crate) fn deadlines() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 30..86_400_u64, 1 => 86_400..=604_800_u64]
}

/// The priorities do not matter to the record; one stands for all.
pub(crate) const PRIORITY: Priority = Priority::Medium;
