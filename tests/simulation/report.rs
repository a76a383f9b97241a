//! Figures of what came of a storm: a row for each policy, and whether ours stayed in its bands.

use serde::Serialize;
use serde_json::Value;

use super::callers;
use super::claude::Model;
use super::facts::{Drain, Facts, Point};
use super::scenario::Scenario;
use super::weather::{Phase, Weather};
use super::world::{End, Job, Ms, PRIORITIES, Priority, SECOND};

/// Every figure that a band can be about, and what it is.
pub(crate) fn metrics() -> impl Iterator<Item = (&'static str, &'static str)> {
    METRICS.iter().chain(callers::METRICS).copied()
}

const METRICS: &[(&str, &str)] = &[
    ("jobs", "Jobs that were submitted."),
    ("done", "Jobs with an answer."),
    ("failed", "Jobs whose user was told that there is none."),
    ("lost", "Jobs that nobody will ever hear of again."),
    ("duplicates", "Jobs with two answers, or two successful calls that were paid for."),
    ("stalled", "Jobs whose user was asked whether they may wait."),
    ("stalled_share", "The same, of all jobs."),
    ("exposure", "Share of the jobs whose user saw an error because of overload or a limit."),
    ("load", "What the jobs need of the primary's capacity or rate limit, were they all its own and came evenly."),
    ("calls", "Upstream calls."),
    ("calls_per_done", "Calls for each job that was done."),
    ("calls_vs_floor", "Calls, as a multiple of the fewest that the ladder and the mix allow in a brown-out."),
    ("calls_law", "Calls, of jobs + calls in flight at trips + failures up to trips + probes."),
    ("overloads", "529s, and overloads inside a stream."),
    ("rate_limited", "429s."),
    ("held_share", "Share of the jobs that were ever told to wait without a failure of their own."),
    ("fallback_share", "Share of the answers that the smaller model gave."),
    ("drain_s", "Seconds from the end of the last trouble until the backlog is gone."),
    ("drain_vs_oracle", "The same, as a multiple of the oracle's."),
    (
        "drain_excess",
        "Seconds over the oracle's, of the (1.2 × open_seconds + slow start) / (1 − load) that are allowed.",
    ),
    ("drain_529_share", "Share of 529s in the calls that were begun while draining, if those were a hundred."),
    ("dwell_free_p50_s", "Seconds from submission to the first call that came to content; jobs that were never held."),
    ("dwell_free_p95_s", "The same."),
    ("dwell_free_p99_s", "The same."),
    ("dwell_held_p50_s", "The same; jobs that were held."),
    ("dwell_held_p95_s", "The same."),
    ("dwell_held_p99_s", "The same."),
    ("put_off_share", "Share of the jobs that waited for quieter hours: low ones by their rule, and deferred ones."),
    ("done_p50_s", "Seconds from submission to the answer; jobs that were not put off, as for all dwells."),
    ("done_p95_s", "The same."),
    ("done_all_p50_s", "The same, of all jobs."),
    ("done_all_p95_s", "The same."),
    ("done_p95_vs_article_b", "The 95th percentile, as a multiple of article B's."),
    ("dwell_high_p50_s", "Dwell of the high jobs."),
    ("dwell_medium_p50_s", "Dwell of the medium jobs."),
    ("dwell_low_p50_s", "Dwell of the low jobs."),
    ("priority_inversions", "Pairs of priorities whose median dwells are in the wrong order."),
    ("open_share", "Share of the time up to the last submission in which the primary's breaker was not closed."),
    ("trips", "Times that a breaker tripped."),
    ("probes", "Probes."),
    ("extra_probes", "Probes beyond the first of a cooldown."),
    ("trips_after", "Trips after the last trouble was over."),
    ("shut_after_s", "Seconds that a breaker stayed open that was so when the last trouble ended."),
    ("deliveries_per_job", "Queue messages for each job: what waiting costs."),
    ("dominated_by", "Rivals that finish as many jobs, as early, with fewer calls."),
];

/// One policy in one scenario. Times are in seconds, shares from 0 to 1; what does not apply is null.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) scenario: String,
    pub(crate) policy: String,
    pub(crate) seed: u64,
    pub(crate) jobs: u32,
    pub(crate) done: u32,
    pub(crate) failed: u32,
    pub(crate) lost: u32,
    pub(crate) duplicates: u32,
    pub(crate) stalled: u32,
    pub(crate) stalled_share: f64,
    pub(crate) exposure: f64,
    pub(crate) load: f64,
    pub(crate) calls: u32,
    pub(crate) calls_per_done: Option<f64>,
    pub(crate) calls_vs_floor: Option<f64>,
    pub(crate) calls_law: Option<f64>,
    pub(crate) fallback_calls: u32,
    pub(crate) overloads: u32,
    pub(crate) rate_limited: u32,
    pub(crate) wasted_calls: u32,
    pub(crate) put_off_share: f64,
    pub(crate) held_share: f64,
    pub(crate) fallback_share: f64,
    pub(crate) drain_s: Option<f64>,
    pub(crate) drain_vs_oracle: Option<f64>,
    pub(crate) drain_excess: Option<f64>,
    pub(crate) drain_529_share: Option<f64>,
    pub(crate) backlog: Option<i64>,
    pub(crate) most_waiting: i64,
    pub(crate) dwell_free_p50_s: Option<f64>,
    pub(crate) dwell_free_p95_s: Option<f64>,
    pub(crate) dwell_free_p99_s: Option<f64>,
    pub(crate) dwell_held_p50_s: Option<f64>,
    pub(crate) dwell_held_p95_s: Option<f64>,
    pub(crate) dwell_held_p99_s: Option<f64>,
    pub(crate) done_p50_s: Option<f64>,
    pub(crate) done_p95_s: Option<f64>,
    pub(crate) done_all_p50_s: Option<f64>,
    pub(crate) done_all_p95_s: Option<f64>,
    pub(crate) done_p95_vs_article_b: Option<f64>,
    pub(crate) dwell_high_p50_s: Option<f64>,
    pub(crate) dwell_medium_p50_s: Option<f64>,
    pub(crate) dwell_low_p50_s: Option<f64>,
    pub(crate) priority_inversions: u32,
    pub(crate) open_share: Option<f64>,
    pub(crate) trips: Option<u32>,
    pub(crate) probes: Option<u32>,
    pub(crate) extra_probes: Option<u32>,
    pub(crate) trips_after: Option<u32>,
    pub(crate) shut_after_s: Option<f64>,
    pub(crate) deliveries_per_job: Option<f64>,
    pub(crate) dominated_by: Option<u32>,
    pub(crate) most_consumers: usize,
    /// Of the users who wait, if there are any.
    #[serde(flatten)]
    pub(crate) callers: Option<callers::Figures>,
    /// For the plots.
    #[serde(skip)]
    pub(crate) series: Vec<Point>,
    #[serde(skip)]
    pub(crate) every: Ms,
}

/// Our policy's name.
pub(crate) const OURS: &str = "spillway";

/// Whether it is ours, whatever its callers want.
pub(crate) fn is_ours(policy: &str) -> bool {
    policy.starts_with(OURS)
}

/// What a world is judged by, once it has ended.
pub(crate) struct Ended<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) policy: &'a str,
    pub(crate) seed: u64,
    pub(crate) jobs: &'a [Job],
    pub(crate) facts: &'a Facts,
    pub(crate) most_consumers: usize,
    /// Of each user who waits.
    pub(crate) patience: Ms,
}

impl Row {
    pub(crate) fn new(ended: &Ended<'_>) -> Self {
        let Ended { scenario, policy, seed, jobs, facts, most_consumers, patience } = *ended;
        let count = |of: fn(&Job) -> bool| u32::try_from(jobs.iter().filter(|job| of(job)).count()).unwrap();
        let done = count(|job| job.end == End::Done);
        let calls: u32 = facts.calls.iter().sum();
        let dwell = |of: &dyn Fn(&Job) -> bool, percent| {
            let times = jobs.iter().filter(|job| of(job)).filter_map(|job| Some(job.served_at? - job.at)).collect();
            quantile(times, percent)
        };
        let free = |percent| dwell(&|job| !job.held && !job.put_off, percent);
        let held = |percent| dwell(&|job| job.held && !job.put_off, percent);
        let of = |priority: Priority| dwell(&|job| job.priority == priority && !job.put_off, 50);
        let answered = |of: fn(&Job) -> bool, percent| {
            let done = jobs.iter().filter(|job| job.end == End::Done && of(job));
            quantile(done.map(|job| job.ended_at - job.at).collect(), percent)
        };
        let ours = is_ours(policy);
        let gate = &facts.gate;
        let law = jobs.len() as u32 + gate.in_flight_at_trips + gate.calls_to_trips + gate.probes;
        Self {
            scenario: scenario.name.clone(),
            policy: policy.to_owned(),
            seed,
            jobs: u32::try_from(jobs.len()).unwrap(),
            done,
            failed: count(|job| job.end == End::Failed),
            lost: count(|job| job.end == End::Unfinished),
            duplicates: count(|job| job.answers > 1),
            stalled: count(|job| job.stalled),
            stalled_share: share(count(|job| job.stalled), jobs.len()),
            exposure: share(count(|job| job.end == End::Failed), jobs.len()),
            load: round(scenario.load(jobs)),
            calls,
            calls_per_done: (done > 0).then(|| round(f64::from(calls) / f64::from(done))),
            calls_vs_floor: floor(scenario, jobs).map(|floor| round(f64::from(calls) / floor)),
            calls_law: (ours && gate.trips > 0).then(|| round(f64::from(calls) / f64::from(law))),
            fallback_calls: facts.calls[Model::Fallback as usize],
            overloads: facts.overloads + facts.stream_overloads,
            rate_limited: facts.rate_limited,
            wasted_calls: jobs.iter().map(|job| u32::from(job.wasted)).sum(),
            put_off_share: share(count(|job| job.put_off), jobs.len()),
            held_share: share(count(|job| job.held), jobs.len()),
            fallback_share: share(count(|job| job.end == End::Done && job.fell_back), done as usize),
            drain_s: facts.drain.as_ref().and_then(drain),
            drain_vs_oracle: None,
            drain_excess: None,
            drain_529_share: facts
                .drain
                .as_ref()
                .filter(|d| d.calls >= 100)
                .map(|d| share(d.refused, d.calls as usize)),
            backlog: facts.drain.as_ref().and_then(|drain| drain.backlog),
            most_waiting: facts.most_waiting,
            dwell_free_p50_s: free(50),
            dwell_free_p95_s: free(95),
            dwell_free_p99_s: free(99),
            dwell_held_p50_s: held(50),
            dwell_held_p95_s: held(95),
            dwell_held_p99_s: held(99),
            done_p50_s: answered(|job| !job.put_off, 50),
            done_p95_s: answered(|job| !job.put_off, 95),
            done_all_p50_s: answered(|_| true, 50),
            done_all_p95_s: answered(|_| true, 95),
            done_p95_vs_article_b: None,
            dwell_high_p50_s: of(Priority::High),
            dwell_medium_p50_s: of(Priority::Medium),
            dwell_low_p50_s: of(Priority::Low),
            priority_inversions: inversions(&PRIORITIES.map(of)),
            open_share: ours.then(|| round(gate.open_ms as f64 / scenario.submissions_end() as f64)),
            trips: ours.then_some(gate.trips),
            probes: ours.then_some(gate.probes),
            extra_probes: ours.then_some(gate.extra_probes),
            trips_after: ours.then_some(gate.trips_after),
            shut_after_s: gate.shut_after.map(seconds),
            deliveries_per_job: ours.then(|| round(f64::from(gate.deliveries) / jobs.len().max(1) as f64)),
            dominated_by: None,
            most_consumers,
            callers: callers::Figures::new(jobs, patience, facts.gate.stale_calls),
            series: facts.series.clone(),
            every: facts.sample_every(),
        }
    }

    /// A figure by its name.
    pub(crate) fn figure(&self, name: &str) -> Option<f64> {
        match serde_json::to_value(self).unwrap().get(name) {
            Some(Value::Number(number)) => number.as_f64(),
            _ => None,
        }
    }

    fn is_beaten_by(&self, other: &Self) -> bool {
        let as_early = |ours: Option<f64>, theirs: Option<f64>| matches!((ours, theirs), (Some(a), Some(b)) if b <= a);
        other.done >= self.done
            && as_early(self.done_all_p50_s, other.done_all_p50_s)
            && as_early(self.done_all_p95_s, other.done_all_p95_s)
            && f64::from(other.calls) < f64::from(self.calls) * (1.0 - LUCK)
    }
}

/// What can only be said by looking at several policies in the same scenario.
pub(crate) fn compare(scenario: &Scenario, open_seconds: f64, rows: &mut [Row]) {
    let of = |name: &str| rows.iter().find(|row| row.policy == name).cloned();
    let (oracle, article_b) = (of("oracle"), of("article-b"));
    let rivals: Vec<Row> = rows.iter().filter(|row| row.policy != "oracle" && !is_ours(&row.policy)).cloned().collect();
    for row in rows {
        if let (Some(own), Some(best)) = (row.drain_s, oracle.as_ref().and_then(|oracle| oracle.drain_s)) {
            row.drain_vs_oracle = (best > 0.0).then(|| round(own / best));
            // The limit doubles once per call's length to content.
            let slow_start = f64::from(scenario.primary.capacity).log2().ceil() * scenario.primary.content_ms / 1000.0;
            let allowed = (1.2 * open_seconds + slow_start) / (1.0 - row.load).max(0.01);
            row.drain_excess = Some(round((own - best) / allowed));
        }
        if let (Some(own), Some(theirs)) = (row.done_p95_s, article_b.as_ref().and_then(|b| b.done_p95_s)) {
            row.done_p95_vs_article_b = Some(round(own / theirs));
        }
        if row.policy == OURS && !rivals.is_empty() {
            let beaten = rivals.iter().filter(|rival| row.is_beaten_by(rival)).count();
            row.dominated_by = Some(u32::try_from(beaten).unwrap());
        }
    }
}

/// A band, and whether it is kept.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub(crate) metric: String,
    pub(crate) wanted: String,
    pub(crate) value: Option<f64>,
    /// None: there is nothing to judge.
    pub(crate) kept: Option<bool>,
}

/// Our policy's bands.
pub(crate) fn checks(scenario: &Scenario, rows: &[Row]) -> Vec<Check> {
    let Some(ours) = rows.iter().find(|row| row.policy == OURS) else { return Vec::new() };
    let check = |(name, band): (&String, &super::scenario::Band)| {
        let value = ours.figure(name);
        let parts = [band.min.map(|min| format!("≥ {min}")), band.max.map(|max| format!("≤ {max}"))];
        let kept =
            value.map(|value| band.min.is_none_or(|min| value >= min) && band.max.is_none_or(|max| value <= max));
        Check { metric: name.clone(), wanted: parts.into_iter().flatten().collect::<Vec<_>>().join(", "), value, kept }
    };
    scenario.bands.iter().map(check).collect()
}

/// The fewest calls that the mix allows in brown-outs of the primary, by the ladder: a job that may not leave the primary
/// calls until it is answered; a medium one that may calls it twice; a low one goes to the fallback at once.
fn floor(scenario: &Scenario, jobs: &[Job]) -> Option<f64> {
    let brown_out = |phase: &Phase| phase.refuse_percent > 0.0 && phase.is_about(Model::Primary);
    if !scenario.phases.iter().any(brown_out) {
        return None;
    }
    let calls = |job: &Job| {
        let refused = |model| Weather::at(job.at, &scenario.phases, model).refuse_percent.min(99.0) / 100.0;
        let (p, f) = (refused(Model::Primary), refused(Model::Fallback));
        let alone = 1.0 / (1.0 - p);
        match job.priority {
            Priority::Medium if job.may_fall_back => (1.0 + p + p * p / (1.0 - f)).min(alone),
            Priority::Low if job.may_fall_back => 1.0 / (1.0 - f),
            _ => alone,
        }
    };
    Some(jobs.iter().map(calls).sum())
}

fn drain(drain: &Drain) -> Option<f64> {
    Some(seconds(drain.until?.saturating_sub(drain.from)))
}

/// Pairs in the wrong order, a tenth and a second aside.
fn inversions(dwells: &[Option<f64>]) -> u32 {
    let known: Vec<f64> = dwells.iter().flatten().copied().collect();
    u32::try_from(known.windows(2).filter(|pair| pair[0] > pair[1] * 1.1 + 1.0).count()).unwrap()
}

/// The nearest rank, in seconds.
pub(crate) fn quantile(mut times: Vec<Ms>, percent: usize) -> Option<f64> {
    times.sort_unstable();
    let rank = (times.len() * percent).div_ceil(100).max(1);
    times.get(rank - 1).map(|ms| seconds(*ms))
}

fn seconds(ms: Ms) -> f64 {
    ms as f64 / SECOND as f64
}

pub(crate) fn share(part: u32, whole: usize) -> f64 {
    round(f64::from(part) / whole.max(1) as f64)
}

pub(crate) fn round(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

/// Fewer calls by less than this are a few refusals' luck.
const LUCK: f64 = 0.001;

/// A table for a terminal or a page: the same figures, the same columns.
pub(crate) const COLUMNS: [&str; 16] = [
    "policy",
    "done",
    "failed",
    "lost",
    "dup",
    "stalled",
    "put off",
    "exposure",
    "calls/done",
    "fallback",
    "drain s",
    "529 %",
    "dwell p50/p95 s",
    "held p50/p95 s",
    "done p50 s",
    "done p95 s",
];

pub(crate) fn cells(row: &Row) -> [String; 16] {
    let number = |value: Option<f64>, digits: usize| value.map_or_else(|| "–".to_owned(), |v| format!("{v:.digits$}"));
    let pair = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (None, None) => "–".to_owned(),
        _ => format!("{} / {}", number(a, 1), number(b, 1)),
    };
    [
        row.policy.clone(),
        row.done.to_string(),
        row.failed.to_string(),
        row.lost.to_string(),
        row.duplicates.to_string(),
        row.stalled.to_string(),
        format!("{:.1} %", row.put_off_share * 100.0),
        format!("{:.2} %", row.exposure * 100.0),
        number(row.calls_per_done, 3),
        format!("{:.1} %", row.fallback_share * 100.0),
        number(row.drain_s, 0),
        number(row.drain_529_share.map(|share| share * 100.0), 1),
        pair(row.dwell_free_p50_s, row.dwell_free_p95_s),
        pair(row.dwell_held_p50_s, row.dwell_held_p95_s),
        number(row.done_p50_s, 1),
        number(row.done_p95_s, 1),
    ]
}

pub(crate) fn table(rows: &[Row]) -> String {
    align(std::iter::once(COLUMNS.map(str::to_owned)).chain(rows.iter().map(cells)))
}

/// Lines of cells as a table, the first column to the left.
pub(crate) fn align<const N: usize>(lines: impl Iterator<Item = [String; N]>) -> String {
    let lines: Vec<[String; N]> = lines.collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut table = String::new();
    for line in &lines {
        for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width - cell.chars().count());
            table.push_str(&if column == 0 { format!("{cell}{pad}") } else { format!("  {pad}{cell}") });
        }
        table.push('\n');
    }
    table
}
