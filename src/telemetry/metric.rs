//! Every metric: its name, its unit, its labels, and which event adds to it.
//!
//! There is no second place where something is counted. What happens is an [`Event`], which is a log line, and this file says what
//! the line adds up to; so the log and the figures cannot disagree, and docs/telemetry.md is written from the two.
//!
//! A series is named as Prometheus would name it, `spillway_calls_total{model="…",cause="…"}`, from where it is counted on: in the
//! store, in the JSON, in the text. Labels that apps choose (model, kind) are bounded where series are stored.

use super::Event;
use crate::json;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// Jobs that were stored.
    JobsSubmitted,
    /// Jobs that are over.
    JobsFinished,
    /// Jobs that were done with their first call.
    JobsFirstTry,
    /// How long jobs took that are over.
    JobSeconds,
    /// How long jobs waited for their first call (A10).
    DwellSeconds,
    /// Answers that came, to jobs and to calls that were waited for.
    Answers,
    /// Users: jobs that are over, and calls that were waited for and did not become jobs.
    Users,
    /// Those of them that have seen an error, or half an answer, because Claude was overloaded or failed (A10).
    UsersExposed,
    /// Jobs that had been calls, were handed over, and are done: no user of theirs has seen an error.
    HandedOverDone,
    /// Calls to the upstream that are over (B10).
    Calls,
    /// How long they took.
    CallSeconds,
    /// Tokens that were billed.
    Tokens,
    /// Those of them that were billed for an answer that nobody got.
    TokensLost,
    /// Times that a job was held.
    Holds,
    /// Times that a job's attempts were used up and it could go on later.
    Exhausted,
    /// Moves of breakers.
    GateTransitions,
    /// Orders of the operator.
    Overrides,
    /// Queues that the operator has paused, and drains.
    Switches,
    /// Jobs that the operator has driven on.
    JobsRedriven,
    /// Tries to tell apps.
    Webhooks,
    /// Messages that were no job's.
    MessagesDiscarded,
    /// Things of ours that did not answer or refused.
    Troubles,
    /// Jobs that are not over.
    JobsUnfinished,
    /// How old the oldest of them is.
    OldestJobAge,
    /// Which state a gate is in.
    GateState,
    /// Jobs that sleep because a gate held them.
    GateHeld,
    /// Calls of a model that are on their way.
    GateInFlight,
    /// How many may be.
    GateInFlightLimit,
    /// Whether a queue is paused, or nothing new taken.
    SwitchInForce,
}

/// How a metric adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A number that grows.
    Counter,
    /// A number that is so at this moment: nothing adds to it, it is asked for when somebody reads.
    Gauge,
    /// Durations in seconds: so many up to each of [`BOUNDS`], and their sum in milliseconds.
    Histogram,
}

/// What is known of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Its name, with its unit.
    pub name: &'static str,
    /// A sentence.
    pub help: &'static str,
    /// How it adds up.
    pub shape: Shape,
    /// Its labels.
    pub labels: &'static [&'static str],
}

/// The kind of calls that are passed to the upstream as they came: they have no gate and no priority, and bring no answer of a model.
pub const PASSED_THROUGH: &str = "passed_through";

/// Upper bounds of histograms, in milliseconds; above the last there is no bound.
pub const BOUNDS: [u64; 16] = [
    250, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 60_000, 120_000, 300_000, 900_000,
    3_600_000, 14_400_000,
];

impl Metric {
    /// All of them.
    pub const ALL: [Self; 29] = [
        Self::JobsSubmitted,
        Self::JobsFinished,
        Self::JobsFirstTry,
        Self::JobSeconds,
        Self::DwellSeconds,
        Self::Answers,
        Self::Users,
        Self::UsersExposed,
        Self::HandedOverDone,
        Self::Calls,
        Self::CallSeconds,
        Self::Tokens,
        Self::TokensLost,
        Self::Holds,
        Self::Exhausted,
        Self::GateTransitions,
        Self::Overrides,
        Self::Switches,
        Self::JobsRedriven,
        Self::Webhooks,
        Self::MessagesDiscarded,
        Self::Troubles,
        Self::JobsUnfinished,
        Self::OldestJobAge,
        Self::GateState,
        Self::GateHeld,
        Self::GateInFlight,
        Self::GateInFlightLimit,
        Self::SwitchInForce,
    ];

    /// What is known of it.
    #[must_use]
    pub const fn facts(self) -> Facts {
        use Shape::{Counter, Gauge, Histogram};
        let (name, shape, labels, help): (_, _, &'static [&'static str], _) = match self {
            Self::JobsSubmitted => {
                ("spillway_jobs_submitted_total", Counter, &["kind", "priority"], "Jobs that were stored.")
            }
            Self::JobsFinished => (
                "spillway_jobs_finished_total",
                Counter,
                &["kind", "priority", "status", "reason"],
                "Jobs that are over: done, failed with a reason, or cancelled.",
            ),
            Self::JobsFirstTry => (
                "spillway_jobs_first_try_total",
                Counter,
                &["kind", "priority"],
                "Jobs that were done with their first call.",
            ),
            Self::JobSeconds => {
                ("spillway_job_seconds", Histogram, &["kind", "status"], "Seconds from a job's submission to its end.")
            }
            Self::DwellSeconds => (
                "spillway_dwell_seconds",
                Histogram,
                &["priority", "held"],
                "Seconds from a job's submission to its first call; held: whether a gate or the hour kept it waiting.",
            ),
            Self::Answers => (
                "spillway_answers_total",
                Counter,
                &["path", "model", "kind", "downgraded"],
                "Answers that came, by the model that gave them; downgraded: it is not the one that was asked for.",
            ),
            Self::Users => (
                "spillway_users_total",
                Counter,
                &["path"],
                "Jobs that are over and were not cancelled, and calls that were waited for and did not become jobs.",
            ),
            Self::UsersExposed => (
                "spillway_users_exposed_total",
                Counter,
                &["path", "cause"],
                "Those of spillway_users_total whose user has seen an error or half an answer because Claude was overloaded or failed; cause is the call's, or the job's reason.",
            ),
            Self::HandedOverDone => (
                "spillway_handed_over_done_total",
                Counter,
                &["kind"],
                "Calls that became jobs which are done: spared, and not exposed.",
            ),
            Self::Calls => (
                "spillway_calls_total",
                Counter,
                &["model", "cause", "kind", "priority"],
                "Calls to the upstream that are over; cause is `answered`, why they failed, or `abandoned`. What is passed through as it came has the kind `passed_through`, no priority, and the model `unnamed` unless its body names one that the configuration knows.",
            ),
            Self::CallSeconds => {
                ("spillway_call_seconds", Histogram, &["model", "cause"], "Seconds from a call's begin to its end.")
            }
            Self::Tokens => (
                "spillway_tokens_total",
                Counter,
                &["model", "direction"],
                "Tokens that the upstream says it has billed, in answers that came whole.",
            ),
            Self::TokensLost => (
                "spillway_tokens_lost_total",
                Counter,
                &["model", "direction"],
                "Tokens of answers that broke off or that nobody waited for any longer, as far as the upstream had said by then: what calling again costs.",
            ),
            Self::Holds => {
                ("spillway_holds_total", Counter, &["model", "reason"], "Times that a gate held a job, by its reason.")
            }
            Self::Exhausted => (
                "spillway_exhausted_total",
                Counter,
                &["then"],
                "Times that a job's attempts were used up and it could go on later: stall asks the user, defer waits.",
            ),
            Self::GateTransitions => {
                ("spillway_gate_transitions_total", Counter, &["model", "from", "to"], "Moves of breakers.")
            }
            Self::Overrides => {
                ("spillway_overrides_total", Counter, &["model", "state"], "Gates that the operator has forced.")
            }
            Self::Switches => (
                "spillway_switches_total",
                Counter,
                &["switch"],
                "Orders of the operator: the queue that was paused, or drain.",
            ),
            Self::JobsRedriven => (
                "spillway_jobs_redriven_total",
                Counter,
                &["outcome"],
                "Jobs that the operator has driven on: sent_again, or started_again as another job.",
            ),
            Self::Webhooks => (
                "spillway_webhooks_total",
                Counter,
                &["client", "news", "then"],
                "Tries to tell an app something by its webhook, and what followed: delivered, again, given_up, disabled, or void.",
            ),
            Self::MessagesDiscarded => (
                "spillway_messages_discarded_total",
                Counter,
                &["queue"],
                "Messages that could be no job's and were taken out of their queue.",
            ),
            Self::Troubles => (
                "spillway_troubles_total",
                Counter,
                &["part"],
                "Times that a part of the deployment did not answer or refused.",
            ),
            Self::JobsUnfinished => (
                "spillway_jobs_unfinished",
                Gauge,
                &["priority"],
                "Jobs that are not over, by what was submitted and finished.",
            ),
            Self::OldestJobAge => (
                "spillway_oldest_job_age_seconds",
                Gauge,
                &[],
                "Seconds since the oldest job was submitted that is not over; 0 if there is none, left out if no index says.",
            ),
            Self::GateState => (
                "spillway_gate_state",
                Gauge,
                &["model", "state"],
                "1 for the state that the model's gate is in, 0 for the others.",
            ),
            Self::GateHeld => {
                ("spillway_gate_held_jobs", Gauge, &["model"], "Jobs that sleep because the gate held them.")
            }
            Self::GateInFlight => {
                ("spillway_gate_calls_in_flight", Gauge, &["model"], "Calls with a permit that are on their way.")
            }
            Self::GateInFlightLimit => (
                "spillway_gate_calls_in_flight_limit",
                Gauge,
                &["model"],
                "How many may be: it falls with each overload and rises with answers.",
            ),
            Self::SwitchInForce => (
                "spillway_switch_in_force",
                Gauge,
                &["switch"],
                "1 while the queue is paused by the operator, or nothing new taken (drain).",
            ),
        };
        Facts { name, help, shape, labels }
    }

    /// The name of the series with these labels, in the order of the metric's; an empty label is left out.
    #[must_use]
    pub fn series(self, values: &[&str]) -> String {
        let Facts { name, labels, .. } = self.facts();
        series(name, &labels.iter().copied().zip(values.iter().copied()).collect::<Vec<_>>())
    }
}

/// A series' name, from its metric's and its labels.
#[must_use]
pub fn series(name: &str, labels: &[(&str, &str)]) -> String {
    let mut out = String::from(name);
    let mut separator = '{';
    for (label, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
        out.push(separator);
        out.push_str(label);
        out.push_str("=\"");
        for character in value.chars().filter(|character| !character.is_control()).take(MAX_LABEL_CHARS) {
            if matches!(character, '"' | '\\') {
                out.push('\\');
            }
            out.push(character);
        }
        out.push('"');
        separator = ',';
    }
    if separator == ',' {
        out.push('}');
    }
    out
}

/// How much is to be added to which series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub json::Map<String, u64>);

json::transparent!(Counts);

impl Counts {
    /// Adds what `event` adds.
    pub fn note(&mut self, event: &Event<'_>) {
        match *event {
            Event::JobSubmitted { kind, priority, replayed: false, .. } => {
                self.add(Metric::JobsSubmitted, &[kind, priority]);
            }
            Event::JobFinished {
                status,
                reason,
                calls,
                age_ms,
                handed_over,
                kind,
                priority,
                model_used,
                downgraded,
                exposed,
                kept: false,
                ..
            } => {
                self.add(Metric::JobsFinished, &[kind, priority, status, reason.unwrap_or_default()]);
                self.time(Metric::JobSeconds, &[kind, status], age_ms);
                if let Some(model) = model_used {
                    self.add(Metric::Answers, &["job", model, kind, truth(downgraded)]);
                }
                if status == "done" && calls <= 1 {
                    self.add(Metric::JobsFirstTry, &[kind, priority]);
                }
                if status == "done" && handed_over {
                    self.add(Metric::HandedOverDone, &[kind]);
                }
                if exposed {
                    self.add(Metric::UsersExposed, &["job", reason.unwrap_or(status)]);
                }
                if status != "cancelled" || exposed {
                    self.add(Metric::Users, &["job"]);
                }
            }
            Event::SyncCall { kind, model, model_used, ended, cause, exposed, .. } => {
                if !matches!(ended, "handed_over" | "abandoned") {
                    self.add(Metric::Users, &["call"]);
                }
                if exposed {
                    self.add(Metric::UsersExposed, &["call", cause.unwrap_or_default()]);
                }
                if let Some(used) = model_used.filter(|_| ended == "answered") {
                    self.add(Metric::Answers, &["call", used, kind, truth(used != model)]);
                }
            }
            Event::CallStarted { priority, dwell_ms: Some(dwell_ms), held, .. } => {
                self.time(Metric::DwellSeconds, &[priority, truth(held)], dwell_ms);
            }
            Event::CallSucceeded { model, kind, priority, duration_ms, input_tokens, output_tokens, .. } => {
                self.call(model, "answered", kind, priority, duration_ms);
                self.tokens(Metric::Tokens, model, input_tokens, output_tokens);
            }
            Event::CallFailed { model, cause, kind, priority, duration_ms, input_tokens, output_tokens, .. } => {
                self.call(model, cause, kind, priority, duration_ms);
                self.tokens(Metric::TokensLost, model, input_tokens, output_tokens);
            }
            Event::CallAbandoned { model, kind, priority, duration_ms, input_tokens, output_tokens, .. } => {
                self.call(model, "abandoned", kind, priority, duration_ms);
                self.tokens(Metric::TokensLost, model, input_tokens, output_tokens);
            }
            Event::JobHeld { model, reason, .. } => self.add(Metric::Holds, &[model, reason]),
            Event::JobExhausted { then, .. } => self.add(Metric::Exhausted, &[then]),
            Event::GateTransition { model, from, to, .. } => {
                self.add(Metric::GateTransitions, &[model, from.name(), to.name()]);
            }
            Event::GateOverridden { model, state, .. } => self.add(Metric::Overrides, &[model, state]),
            Event::QueuePaused { priority, .. } => self.add(Metric::Switches, &[priority]),
            Event::DrainStarted { .. } => self.add(Metric::Switches, &["drain"]),
            Event::JobRedriven { outcome, .. } => self.add(Metric::JobsRedriven, &[outcome]),
            Event::WebhookSent { client, news, then, .. } => self.add(Metric::Webhooks, &[client, news, then]),
            Event::MessageDiscarded { queue, .. } => self.add(Metric::MessagesDiscarded, &[queue]),
            // What the meter itself does not take would be told to it again and again.
            Event::Trouble { part, .. } if part != "meter" => self.add(Metric::Troubles, &[part]),
            _ => {}
        }
    }

    /// Sets a gauge.
    pub fn set(&mut self, metric: Metric, labels: &[&str], value: u64) {
        self.0.insert(metric.series(labels), value);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: Self) {
        other.0.iter().for_each(|(series, value)| self.plus(series.clone(), *value));
    }

    fn call(&mut self, model: &str, cause: &str, kind: &str, priority: &str, duration_ms: u64) {
        self.add(Metric::Calls, &[model, cause, kind, priority]);
        self.time(Metric::CallSeconds, &[model, cause], duration_ms);
    }

    fn tokens(&mut self, metric: Metric, model: &str, input: u64, output: u64) {
        for (direction, tokens) in [("input", input), ("output", output)] {
            if tokens > 0 {
                self.plus(metric.series(&[model, direction]), tokens);
            }
        }
    }

    fn add(&mut self, metric: Metric, labels: &[&str]) {
        self.plus(metric.series(labels), 1);
    }

    /// One more in the bucket that it belongs in, and its milliseconds in the sum.
    fn time(&mut self, metric: Metric, values: &[&str], millis: u64) {
        let Facts { name, labels, .. } = metric.facts();
        let bound = BOUNDS.into_iter().find(|bound| millis <= *bound).map_or_else(|| "+Inf".to_owned(), seconds);
        let mut labels: Vec<_> = labels.iter().copied().zip(values.iter().copied()).collect();
        self.plus(series(&format!("{name}_sum_ms"), &labels), millis);
        labels.push(("le", &bound));
        self.plus(series(&format!("{name}_bucket"), &labels), 1);
    }

    fn plus(&mut self, series: String, value: u64) {
        match self.0.get_mut(&series) {
            Some(known) => *known = known.saturating_add(value),
            None => self.0.insert(series, value),
        }
    }
}

/// Milliseconds as seconds, without zeros at the end.
#[must_use]
pub fn seconds(millis: u64) -> String {
    let (whole, rest) = (millis / 1_000, millis % 1_000);
    if rest == 0 { whole.to_string() } else { format!("{whole}.{rest:03}").trim_end_matches('0').to_owned() }
}

const fn truth(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

const MAX_LABEL_CHARS: usize = 100;
