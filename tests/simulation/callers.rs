//! Users who wait: from the scenario's file to what they are told.
//!
//! A job's user has a receipt and comes back. Those here hold a line open, as an app does that calls Claude in the middle of a
//! request: what they get is their answer, or an error. In the world they are jobs with a [`Caller`]: the policies that retry
//! in process treat them as any other, ours sends them through the synchronous path.
//!
//! **Exposed** is who saw an error, half an answer, or the error body that takes the place of an answer. Who was handed over and
//! told that the answer comes later is not, if it came; and is, if it did not.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::claude::Answer;
use super::report::{Row, align, quantile, round, share};
use super::scenario::{KindShare, input_tokens, medium, output_tokens};
use super::world::{End, Job, Ms};

/// Who calls and waits.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Calls {
    /// On average, at random.
    pub(crate) per_minute: f64,
    /// So many of a hundred.
    #[serde(default = "medium")]
    pub(crate) priorities: BTreeMap<String, f64>,
    #[serde(rename = "kind")]
    pub(crate) kinds: Vec<KindShare>,
    /// Median and spread (sigma of the logarithm).
    #[serde(default = "input_tokens")]
    pub(crate) input_tokens: [f64; 2],
    #[serde(default = "output_tokens")]
    pub(crate) output_tokens: [f64; 2],
    /// `spillway-max-wait`; none: the deployment's own `sync.max_wait_seconds`.
    pub(crate) patience_seconds: Option<u64>,
    /// `spillway-handoff`: "wait", "auto" or "never".
    #[serde(default = "wait")]
    pub(crate) handoff: String,
    /// Isolates that the calls are spread over, each with its own view of the gates.
    #[serde(default = "eight")]
    pub(crate) isolates: u16,
}

fn wait() -> String {
    "wait".into()
}

const fn eight() -> u16 {
    8
}

impl Calls {
    /// What is wrong with it, beside its kinds and priorities.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.per_minute.is_nan() || self.per_minute <= 0.0 {
            return Err("calls.per_minute: must be above 0".into());
        }
        if !["wait", "auto", "never"].contains(&self.handoff.as_str()) {
            return Err("calls.handoff: must be wait, auto or never".into());
        }
        if !(1..=1_000).contains(&self.isolates) {
            return Err("calls.isolates: must be from 1 to 1000".into());
        }
        if self.patience_seconds.is_some_and(|seconds| seconds > 600) {
            return Err("calls.patience_seconds: must be at most 600".into());
        }
        Ok(())
    }
}

/// What a user who waits has seen so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Caller {
    /// Which isolate has the call.
    pub(crate) isolate: u16,
    /// When the last call that came to content did.
    content_at: Option<Ms>,
    /// Whether content was passed on: nobody may call again.
    has_output: bool,
    /// Whether the last call broke off after its content.
    broke: bool,
    /// Upstream calls while the line was held, and those of them that were made when there was output already.
    line_calls: u8,
    calls_after_output: u8,
    /// Handed over: until when the line is held, at most.
    line_until: Option<Ms>,
}

impl Caller {
    pub(crate) const fn of(isolate: u16) -> Self {
        Self {
            isolate,
            content_at: None,
            has_output: false,
            broke: false,
            line_calls: 0,
            calls_after_output: 0,
            line_until: None,
        }
    }

    /// A call begins on the user's behalf.
    pub(crate) const fn begins(&mut self) {
        if self.line_until.is_none() {
            self.line_calls = self.line_calls.saturating_add(1);
        }
        if self.has_output {
            self.calls_after_output = self.calls_after_output.saturating_add(1);
        }
    }

    pub(crate) const fn comes_to_content(&mut self, now: Ms) {
        self.content_at = Some(now);
    }

    /// Content is passed on as it comes.
    pub(crate) const fn flows(&mut self) {
        self.has_output = true;
    }

    pub(crate) const fn ends(&mut self, answer: Answer) {
        self.broke = matches!(answer, Answer::StreamOverload { after_content: true });
    }

    /// The call has become a job, and the line is held until `line_until` at most.
    pub(crate) const fn is_handed_over(&mut self, line_until: Ms) {
        self.line_until = Some(line_until);
    }
}

/// A user with the end of the story.
struct User {
    job: Job,
    caller: Caller,
}

impl User {
    fn is_done(&self) -> bool {
        self.job.end == End::Done
    }

    /// Who has not got an answer: at once, or when the job ended.
    fn is_exposed(&self) -> bool {
        !self.is_done()
    }

    /// Whether it was half an answer, which nothing may call for again.
    fn is_broken(&self) -> bool {
        self.job.end == End::Failed && self.caller.broke && self.caller.line_until.is_none()
    }

    /// Whether the line ended with a word about the answer, which came later, if it came.
    fn was_told_later(&self) -> bool {
        self.caller.line_until.is_some_and(|until| !self.is_done() || self.job.ended_at > until)
    }

    /// When the first content of the answer was there to be read. What a job has answered comes as a whole.
    fn content_at(&self) -> Option<Ms> {
        let at = if self.caller.line_until.is_some() { Some(self.job.ended_at) } else { self.caller.content_at };
        at.filter(|_| self.is_done())
    }

    fn wait(&self) -> Option<Ms> {
        Some(self.content_at()?.saturating_sub(self.job.at))
    }
}

/// What came of those who waited.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) users: u32,
    pub(crate) user_exposure: f64,
    pub(crate) broken_share: f64,
    pub(crate) avoidable_exposure: f64,
    pub(crate) in_patience_share: f64,
    pub(crate) handed_over_share: f64,
    pub(crate) told_later_share: f64,
    pub(crate) content_p50_s: Option<f64>,
    pub(crate) content_p95_s: Option<f64>,
    pub(crate) later_p50_s: Option<f64>,
    pub(crate) later_p95_s: Option<f64>,
    pub(crate) calls_per_answer: Option<f64>,
    pub(crate) most_line_calls: u32,
    pub(crate) calls_after_output: u32,
    pub(crate) stale_calls: u32,
}

/// What they are.
pub(crate) const METRICS: &[(&str, &str)] = &[
    ("users", "Users who wait: calls of the synchronous path."),
    ("user_exposure", "Share of them who got an error, half an answer, or word of an answer that never came."),
    ("broken_share", "Share of them whose answer broke off after its first content: nothing may call for it again."),
    ("avoidable_exposure", "`user_exposure` without those: what a policy can do something about."),
    (
        "in_patience_share",
        "Share of them whose answer began (or, of a job, was there) within their patience, and came whole.",
    ),
    ("handed_over_share", "Share of them whose call became a job."),
    ("told_later_share", "Share of them whose line ended with the word that the answer comes later."),
    (
        "content_p50_s",
        "Seconds from the call to the first content; users who were answered on the line that they held.",
    ),
    ("content_p95_s", "The same."),
    ("later_p50_s", "Seconds from the call to the answer; users who were told that it comes later."),
    ("later_p95_s", "The same."),
    ("calls_per_answer", "Upstream calls for each user who was answered."),
    ("most_line_calls", "The most upstream calls for one user while the line was held."),
    ("calls_after_output", "Calls that were made for a user who had seen output already."),
    ("stale_calls", "Calls that were made on a view of the gate that was no longer true."),
];

impl Figures {
    /// Of these jobs; nothing, if nobody of them waits. `patience` is each user's.
    pub(crate) fn new(jobs: &[Job], patience: Ms, stale_calls: u32) -> Option<Self> {
        let users: Vec<User> = jobs.iter().filter_map(|job| Some(User { job: *job, caller: job.caller? })).collect();
        let count = |of: &dyn Fn(&User) -> bool| users.iter().filter(|user| of(user)).count() as u32;
        let part = |of: &dyn Fn(&User) -> bool| share(count(of), users.len());
        let waits = |later: bool, percent| {
            let of = users.iter().filter(|user| user.was_told_later() == later);
            quantile(of.filter_map(User::wait).collect(), percent)
        };
        let calls: u32 = users.iter().map(|user| u32::from(user.job.calls)).sum();
        let done = count(&User::is_done);
        (!users.is_empty()).then(|| Self {
            users: users.len() as u32,
            user_exposure: part(&User::is_exposed),
            broken_share: part(&User::is_broken),
            avoidable_exposure: part(&|user| user.is_exposed() && !user.is_broken()),
            in_patience_share: part(&|user| user.wait().is_some_and(|wait| wait <= patience)),
            handed_over_share: part(&|user| user.caller.line_until.is_some()),
            told_later_share: part(&User::was_told_later),
            content_p50_s: waits(false, 50),
            content_p95_s: waits(false, 95),
            later_p50_s: waits(true, 50),
            later_p95_s: waits(true, 95),
            calls_per_answer: (done > 0).then(|| round(f64::from(calls) / f64::from(done))),
            most_line_calls: users.iter().map(|user| u32::from(user.caller.line_calls)).max().unwrap_or_default(),
            calls_after_output: users.iter().map(|user| u32::from(user.caller.calls_after_output)).sum(),
            stale_calls,
        })
    }
}

pub(crate) const COLUMNS: [&str; 11] = [
    "policy",
    "users",
    "exposed",
    "of them broken off",
    "in patience",
    "handed over",
    "told later",
    "content p50/p95 s",
    "later p50/p95 s",
    "calls/answer",
    "most calls",
];

/// The row's line of the table about users; none, if nobody waits.
pub(crate) fn cells(row: &Row) -> Option<[String; 11]> {
    let it = row.callers.as_ref()?;
    let percent = |share: f64, digits: usize| format!("{:.digits$} %", share * 100.0);
    let pair = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => format!("{a:.1} / {b:.1}"),
        _ => "–".to_owned(),
    };
    Some([
        row.policy.clone(),
        it.users.to_string(),
        percent(it.user_exposure, 2),
        percent(it.broken_share, 2),
        percent(it.in_patience_share, 1),
        percent(it.handed_over_share, 1),
        percent(it.told_later_share, 1),
        pair(it.content_p50_s, it.content_p95_s),
        pair(it.later_p50_s, it.later_p95_s),
        it.calls_per_answer.map_or_else(|| "–".to_owned(), |calls| format!("{calls:.3}")),
        it.most_line_calls.to_string(),
    ])
}

/// A table for a terminal; nothing, if nobody waits.
pub(crate) fn table(rows: &[Row]) -> Option<String> {
    let lines: Vec<_> = rows.iter().filter_map(cells).collect();
    (!lines.is_empty()).then(|| align(std::iter::once(COLUMNS.map(str::to_owned)).chain(lines)))
}
