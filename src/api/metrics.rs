//! `GET /v1/metrics`: the figures as JSON, for the page and for people; or as the text that Prometheus reads.

use std::time::Duration;

use super::address::Address;
use super::decimal::{Decimal, millionths, thousandths};
use super::error::ApiError;
use super::listing::printable;
use crate::api::status::rfc3339;
use crate::claude::request::Problem;
use crate::json::{self, Fields, Map, Text};
use crate::policy::switches::{Name, Switches};
use crate::policy::time::Timestamp;
use crate::policy::transition::State;
use crate::telemetry::figures::{DWELL_MS, EXPOSURE_PPM, FALLBACK_PPM, Figures, Share, Verdict};
use crate::telemetry::metric::{Counts, Metric};
use crate::telemetry::readings::{HOURS_KEPT, HourOfDay, MINUTES_KEPT, Readings, WINDOW_MINUTES, Wanted, hours_of_day};
use crate::telemetry::sums::Quantile;

/// What the answer is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text, version 0.0.4.
    Prometheus,
    /// JSON, with a timeline.
    Json,
}

/// Reads the question. `format` wins over the `Accept` header; without either it is Prometheus that asks.
///
/// # Errors
/// 400 with what a parameter has to be.
pub fn question(address: &Address<'_>, accept: Option<&str>) -> Result<(Format, Wanted), ApiError> {
    let (mut problems, mut seen) = (Vec::new(), Vec::new());
    for (name, _) in address.parameters() {
        let fault = match name {
            _ if seen.contains(&name) => Some("appears twice"),
            "format" | "minutes" | "hours" => None,
            _ => Some("is not a known parameter; there are format, minutes, hours"),
        };
        seen.push(name);
        problems.extend(fault.map(|fault| Problem::new(printable(name), fault)));
    }
    let format = match address.parameter("format") {
        Some("json") => Format::Json,
        Some("prometheus") => Format::Prometheus,
        None if accept.is_some_and(|accept| accept.contains("application/json")) => Format::Json,
        None => Format::Prometheus,
        Some(_) => {
            problems.push(Problem::new("format", "must be json or prometheus"));
            Format::Json
        }
    };
    let mut number = |name: &str, most: u32, otherwise: u32| {
        let Some(given) = address.parameter(name) else { return otherwise };
        let number = given.parse().ok().filter(|number| (1..=most).contains(number));
        if number.is_none() {
            problems.push(Problem::new(name, format!("must be a whole number from 1 to {most}")));
        }
        number.unwrap_or(otherwise)
    };
    let minutes = number("minutes", MINUTES_KEPT, WINDOW_MINUTES);
    let hours = number("hours", HOURS_KEPT, 0);
    if !problems.is_empty() {
        return Err(ApiError::invalid(problems));
    }
    Ok((format, Wanted { minutes: if format == Format::Json { minutes } else { 0 }, hours }))
}

/// The JSON.
#[must_use]
pub fn json(readings: &Readings) -> String {
    let figures = Figures::of(&readings.window);
    let calls = readings.window.by(Metric::Calls, &["model", "cause"]).into_iter();
    let exposed = readings.window.by(Metric::UsersExposed, &["path", "cause"]).into_iter();
    let lost = readings.window.all(Metric::TokensLost);
    let report = Report {
        at: rfc3339(readings.at),
        window_seconds: readings.window_seconds,
        figures: FourFigures {
            overload_rate: Figure::share(figures.overload_rate, None, Verdict::Unknown),
            exposure: Figure::share(figures.exposure, Some(EXPOSURE_PPM), figures.exposure_verdict()),
            fallback_rate: Figure::share(figures.fallback_rate, Some(FALLBACK_PPM), figures.fallback_verdict()),
            dwell_p95_seconds: Dwell::of(figures.dwell_p95, Some(DWELL_MS), figures.dwell_verdict()),
            held_dwell_p95_seconds: Dwell::of(figures.held_dwell_p95, None, Verdict::Unknown),
        },
        handed_over_done: figures.handed_over_done,
        first_try: Figure::share(figures.first_try, None, Verdict::Unknown),
        success: Figure::share(figures.success, None, Verdict::Unknown),
        calls_per_answer: Figure::share(figures.calls, None, Verdict::Unknown),
        tokens: readings.window.all(Metric::Tokens),
        tokens_lost: lost,
        unfinished: unfinished(&readings.totals),
        calls: calls.filter_map(|(labels, calls)| Cause::of(labels, calls)).collect(),
        exposed: exposed.filter_map(|(labels, users)| Exposed::of(labels, users)).collect(),
        timeline: Timeline::of(readings),
        hours_of_day: hours_of_day(&readings.hours).into_iter().map(Hour::from).collect(),
        hours: HourLine::of(readings),
        events: readings.events.iter().map(|it| Event { at: rfc3339(it.at), event: it.event.clone() }).collect(),
    };
    json::write(&report)
}

/// Adds what is not counted but is so at this moment: jobs that are not over, the age of the oldest, what the operator
/// has ordered, and how each gate stands. A gate
/// that does not answer has no series, nor has an age that nobody knows: 0 would be an alarm that is silent when it should ring.
pub fn add_gauges(
    readings: &mut Readings,
    gates: &Map<String, Text>,
    switches: &Switches,
    longest_wait: Option<Duration>,
) {
    for name in Name::ALL {
        let is_in_force = switches.order(name, readings.at).is_some();
        readings.totals.set(Metric::SwitchInForce, &[name.label()], u64::from(is_in_force));
    }
    for (priority, jobs) in unfinished(&readings.totals).iter() {
        readings.totals.set(Metric::JobsUnfinished, &[priority], *jobs);
    }
    if let Some(longest_wait) = longest_wait {
        readings.totals.set(Metric::OldestJobAge, &[], longest_wait.as_secs());
    }
    for (model, status) in gates.iter() {
        let Ok(fields) = Fields::parse(status.get()) else { continue };
        let Some(state) = fields.string("state") else { continue };
        for known in [State::Closed, State::Open, State::HalfOpen] {
            let is_so = u64::from(state == known.name());
            readings.totals.set(Metric::GateState, &[model, known.name()], is_so);
        }
        for (metric, field) in [
            (Metric::GateHeld, "held"),
            (Metric::GateInFlight, "in_flight"),
            (Metric::GateInFlightLimit, "in_flight_limit"),
        ] {
            if let Some(value) = fields.get(field).and_then(|value| value.get().parse().ok()) {
                readings.totals.set(metric, &[model], value);
            }
        }
    }
}

/// The whole report.
struct Report {
    at: String,
    window_seconds: u32,
    figures: FourFigures,
    handed_over_done: u64,
    first_try: Figure,
    success: Figure,
    calls_per_answer: Figure,
    tokens: u64,
    tokens_lost: u64,
    unfinished: json::Map<String, u64>,
    calls: Vec<Cause>,
    exposed: Vec<Exposed>,
    timeline: Timeline,
    hours_of_day: Vec<Hour>,
    hours: HourLine,
    events: Vec<Event>,
}

json::output!(Report {
    at,
    window_seconds,
    figures,
    handed_over_done,
    first_try,
    success,
    calls_per_answer,
    tokens,
    tokens_lost,
    unfinished,
    calls,
    exposed,
    timeline,
    hours_of_day,
    hours,
    events
});

struct FourFigures {
    overload_rate: Figure,
    exposure: Figure,
    fallback_rate: Figure,
    dwell_p95_seconds: Dwell,
    held_dwell_p95_seconds: Dwell,
}

json::output!(FourFigures { overload_rate, exposure, fallback_rate, dwell_p95_seconds, held_dwell_p95_seconds });

struct Figure {
    value: Option<Decimal>,
    count: u64,
    of: u64,
    objective: Option<Decimal>,
    state: &'static str,
}

json::output!(Figure { value, count, of, objective, state });

impl Figure {
    fn share(share: Share, objective: Option<u64>, verdict: Verdict) -> Self {
        let Share { count, of } = share;
        let value = share.ppm().map(millionths);
        Self { value, count, of, objective: objective.map(millionths), state: verdict.name() }
    }
}

/// A quantile of durations: no more is known than the bound that it does not exceed, and above the last one not even that.
struct Dwell {
    at_most: Option<Decimal>,
    of: u64,
    objective: Option<Decimal>,
    state: &'static str,
}

json::output!(Dwell { at_most, of, objective, state });

impl Dwell {
    fn of(quantile: Option<Quantile>, objective: Option<u64>, verdict: Verdict) -> Self {
        Self {
            at_most: quantile.and_then(|it| it.at_most_ms).map(thousandths),
            of: quantile.map_or(0, |it| it.of),
            objective: objective.map(thousandths),
            state: verdict.name(),
        }
    }
}

struct Cause {
    model: String,
    cause: String,
    calls: u64,
}

json::output!(Cause { model, cause, calls });

impl Cause {
    fn of(labels: Vec<String>, calls: u64) -> Option<Self> {
        let [model, cause] = labels.try_into().ok()?;
        Some(Self { model, cause, calls })
    }
}

struct Exposed {
    path: String,
    cause: String,
    users: u64,
}

json::output!(Exposed { path, cause, users });

impl Exposed {
    fn of(labels: Vec<String>, users: u64) -> Option<Self> {
        let [path, cause] = labels.try_into().ok()?;
        Some(Self { path, cause, users })
    }
}

/// Points of equal length, oldest first. Every list has one number for each.
struct Timeline {
    from: String,
    step_seconds: u32,
    calls: Vec<Line>,
    submitted: Vec<u64>,
    finished: Vec<u64>,
    unfinished: Vec<u64>,
}

json::output!(Timeline { from, step_seconds, calls, submitted, finished, unfinished });

struct Line {
    model: String,
    cause: String,
    values: Vec<u64>,
}

json::output!(Line { model, cause, values });

impl Timeline {
    fn of(readings: &Readings) -> Self {
        let step = u64::from(readings.step_seconds).max(1) * 1_000;
        let first = readings.points.first().map_or(readings.at, |point| point.at).as_millis() / step;
        let last = readings.at.as_millis() / step;
        let count = usize::try_from(last.saturating_sub(first)).unwrap_or(0).min(MAX_POINTS - 1) + 1;
        let place = |at: Timestamp| usize::try_from((at.as_millis() / step).saturating_sub(first)).unwrap_or(count);
        let line = |value: &dyn Fn(&Counts) -> u64| {
            let mut values = vec![0; count];
            for point in &readings.points {
                if let Some(slot) = values.get_mut(place(point.at)) {
                    *slot = value(&point.counts);
                }
            }
            values
        };
        let mut all = Counts::default();
        readings.points.iter().for_each(|point| all.merge(point.counts.clone()));
        let calls = all.by(Metric::Calls, &["model", "cause"]).into_iter().filter_map(|(labels, _)| {
            let [model, cause] = labels.try_into().ok()?;
            let values = line(&|counts| {
                counts.sum(Metric::Calls, |labels| labels.is("model", &model) && labels.is("cause", &cause))
            });
            Some(Line { model, cause, values })
        });
        let calls = calls.collect();
        let submitted = line(&|counts| counts.all(Metric::JobsSubmitted));
        let finished = line(&|counts| counts.all(Metric::JobsFinished));
        // From what is unfinished now, backwards.
        let mut left: u64 = unfinished(&readings.totals).iter().map(|(_, jobs)| *jobs).sum();
        let mut unfinished: Vec<u64> = submitted
            .iter()
            .zip(&finished)
            .rev()
            .map(|(submitted, finished)| {
                let after = left;
                left = left.saturating_add(*finished).saturating_sub(*submitted);
                after
            })
            .collect();
        unfinished.reverse();
        let from = rfc3339(Timestamp::from_millis(first * step));
        Self { from, step_seconds: readings.step_seconds, calls, submitted, finished, unfinished }
    }
}

struct Hour {
    hour: u64,
    days: usize,
    calls: u64,
    failed_p50: Decimal,
    failed_p95: Decimal,
    failed_p99: Decimal,
}

json::output!(Hour { hour, days, calls, failed_p50, failed_p95, failed_p99 });

impl From<HourOfDay> for Hour {
    fn from(it: HourOfDay) -> Self {
        let HourOfDay { hour, days, calls, p50, p95, p99 } = it;
        let (failed_p50, failed_p95, failed_p99) = (millionths(p50), millionths(p95), millionths(p99));
        Self { hour, days, calls, failed_p50, failed_p95, failed_p99 }
    }
}

/// The single hours behind that, oldest first: one number for each from `from` until now. As rows of three members they would be ten
/// times as long, and the page asks every few seconds.
struct HourLine {
    from: String,
    calls: Vec<u64>,
    failed: Vec<u64>,
}

json::output!(HourLine { from, calls, failed });

impl HourLine {
    fn of(readings: &Readings) -> Self {
        let last = readings.at.as_millis() / HOUR_MS;
        let oldest = last.saturating_sub(u64::from(HOURS_KEPT));
        let hours = readings.hours.iter().filter(|it| (oldest..=last).contains(&it.hour));
        let first = hours.clone().map(|it| it.hour).min().unwrap_or(last);
        let count = usize::try_from(last.saturating_sub(first)).unwrap_or_default() + 1;
        let (mut calls, mut failed) = (vec![0; count], vec![0; count]);
        for hour in hours {
            let at = usize::try_from(hour.hour.saturating_sub(first)).unwrap_or(count);
            if let (Some(calls), Some(failed)) = (calls.get_mut(at), failed.get_mut(at)) {
                (*calls, *failed) = (hour.calls, hour.failed);
            }
        }
        Self { from: rfc3339(Timestamp::from_millis(first * HOUR_MS)), calls, failed }
    }
}

struct Event {
    at: String,
    event: Text,
}

json::output!(Event { at, event });

/// Jobs that are stored and not over, by priority: what is in the queues, at work, or held.
#[must_use]
pub fn unfinished(totals: &Counts) -> json::Map<String, u64> {
    let of = |metric, priority: &str| totals.sum(metric, |labels| labels.is("priority", priority));
    ["high", "medium", "low"]
        .into_iter()
        .map(|priority| {
            let jobs = of(Metric::JobsSubmitted, priority).saturating_sub(of(Metric::JobsFinished, priority));
            (priority.to_owned(), jobs)
        })
        .collect()
}

const MAX_POINTS: usize = 3_000;
const HOUR_MS: u64 = 3_600_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::priority::Priority;
    use crate::policy::switches::Order;
    use crate::telemetry::readings;

    /// The hours that are told at hour 1,000,000 of these, as hours before that with their calls and failures.
    fn told(hours: &[(i64, u64, u64)]) -> serde_json::Value {
        const NOW: u64 = 1_000_000;
        let hour =
            |it: &(i64, u64, u64)| readings::Hour { hour: NOW.saturating_add_signed(it.0), calls: it.1, failed: it.2 };
        let at = Timestamp::from_millis(NOW * HOUR_MS + 59 * 60_000);
        let readings = Readings { at, hours: hours.iter().map(hour).collect(), ..Readings::default() };
        serde_json::from_str::<serde_json::Value>(&json(&readings)).unwrap()["hours"].take()
    }

    #[test]
    fn single_hours_are_from_the_first_one_with_calls_until_now_without_gaps() {
        let told = told(&[(-3, 10, 1), (-1, 4, 4)]);
        let expected =
            serde_json::json!({"from": "2084-01-29T13:00:00.000Z", "calls": [10, 0, 4, 0], "failed": [1, 0, 4, 0]});
        assert_eq!(told, expected);
    }

    #[test]
    fn without_calls_there_is_the_present_hour_alone() {
        let expected = serde_json::json!({"from": "2084-01-29T16:00:00.000Z", "calls": [0], "failed": [0]});
        assert_eq!(told(&[]), expected);
    }

    #[test]
    fn hours_older_than_are_kept_or_of_a_clock_that_was_ahead_are_left_out() {
        let kept = i64::from(HOURS_KEPT);
        let told = told(&[(-kept - 1, 7, 7), (-kept, 2, 1), (5, 3, 3)]);
        let calls = told["calls"].as_array().unwrap();
        assert_eq!(calls.len(), HOURS_KEPT as usize + 1);
        assert_eq!((&calls[0], calls.iter().filter_map(|it| it.as_u64()).sum()), (&2.into(), 2_u64));
    }

    #[test]
    fn how_the_gates_stand_is_a_gauge_and_one_that_is_silent_has_none() {
        let status = |text: &str| json::read::<Text>(text).unwrap();
        let gates = [
            ("a".to_owned(), status(r#"{"state":"half_open","held":7,"in_flight":2,"in_flight_limit":3}"#)),
            ("b".to_owned(), status(r#"{"error":"the object did not answer in time"}"#)),
        ];
        let mut readings = Readings::default();
        readings.totals.set(Metric::JobsSubmitted, &["tagging", "low"], 5);
        readings.totals.set(Metric::JobsFinished, &["tagging", "low", "done"], 2);
        let mut switches = Switches::default();
        let order = Order {
            since: readings.at,
            until: readings.at + Duration::from_secs(1),
            note: "n".into(),
            author: "a".into(),
        };
        let low = Name::Pause(Priority::Low);
        let set = switches.set(low, Some(order), readings.at);
        switches.learn(low, Some(set), readings.at);
        add_gauges(&mut readings, &gates.into_iter().collect(), &switches, Some(Duration::from_millis(61_900)));
        let text = readings.totals.exposition();
        for line in [
            "# TYPE spillway_gate_state gauge",
            r#"spillway_gate_state{model="a",state="closed"} 0"#,
            r#"spillway_gate_state{model="a",state="half_open"} 1"#,
            r#"spillway_gate_held_jobs{model="a"} 7"#,
            r#"spillway_gate_calls_in_flight{model="a"} 2"#,
            r#"spillway_gate_calls_in_flight_limit{model="a"} 3"#,
            r#"spillway_jobs_unfinished{priority="low"} 3"#,
            r#"spillway_jobs_unfinished{priority="high"} 0"#,
            "spillway_oldest_job_age_seconds 61",
            r#"spillway_switch_in_force{switch="low"} 1"#,
            r#"spillway_switch_in_force{switch="drain"} 0"#,
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains(r#"model="b""#), "{text}");
        let mut unheard = Readings::default();
        add_gauges(&mut unheard, &Map::default(), &Switches::default(), None);
        let text = unheard.totals.exposition();
        assert!(!text.contains("\nspillway_oldest_job_age_seconds"), "nobody has said: {text}");
    }
}
