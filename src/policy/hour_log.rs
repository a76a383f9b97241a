//! What each hour has been like: calls and overloads of a week, causes of a day (A11, B10, B13).
//!
//! The configured peak is a guess about somebody's traffic; what the gate has seen is this model's. An hour of the day is a
//! **peak hour** if at least 5 % of at least 50 calls in it were overloaded over the last seven days: 50 in all, or a single
//! overload at night would make the night a peak.
//!
//! **The running hour counts**, so a week is this hour and those of the six days before. An hour that is bad today is not
//! better for having been good yesterday, and a gate that is new learns on its first day. The price is that the answer may
//! change within the hour; all that hangs on it is whether a second overload is waited for before the primary is left.
//!
//! A clock that steps back counts in the hour that it shows; one that jumps back by a day or more starts afresh, or its counts
//! would not grow old for as long. Below 16 KB at the very worst, a few hundred bytes in most lives.

use std::collections::VecDeque;

use super::cause::{Cause, Class};
use super::time::Timestamp;
use crate::json;

/// Counts by hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HourLog {
    /// The hour, since the epoch, that each list's last entry is of.
    newest: u64,
    calls: VecDeque<u32>,
    overloads: VecDeque<u32>,
    causes: Vec<CauseLog>,
}

json::object!(default HourLog { newest, calls, overloads, causes });

#[derive(Clone, Debug, PartialEq, Eq)]
struct CauseLog {
    cause: Cause,
    counts: VecDeque<u32>,
}

json::object!(CauseLog { cause, counts });

impl HourLog {
    /// A call starts.
    pub fn note_call(&mut self, now: Timestamp) {
        let age = self.age(now);
        count(&mut self.calls, age);
    }

    /// A call failed.
    pub fn note_failure(&mut self, cause: Cause, now: Timestamp) {
        let age = self.age(now);
        if cause.class() == Class::Overload {
            count(&mut self.overloads, age);
        }
        let at = self.causes.partition_point(|known| known.cause < cause);
        if self.causes.get(at).is_none_or(|known| known.cause != cause) {
            self.causes.insert(at, CauseLog { cause, counts: VecDeque::new() });
        }
        if let Some(known) = self.causes.get_mut(at) {
            count(&mut known.counts, age);
        }
    }

    /// Whether this hour of the day has been one of overload.
    #[must_use]
    pub fn is_peak(&self, now: Timestamp) -> bool {
        let (calls, overloads) = self.over_the_week(hour(now));
        is_peak(calls, overloads)
    }

    /// As the operator sees it.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> HourLogStatus {
        let running = hour(now);
        let row = |hour_utc: u64| {
            let since = (running + DAY - hour_utc) % DAY;
            let (calls, overloads) = running.checked_sub(since).map_or((0, 0), |latest| self.over_the_week(latest));
            HourStatus {
                hour_utc,
                calls,
                overloads,
                overload_percent: (overloads.saturating_mul(100) / calls.max(1)).min(100),
                peak: is_peak(calls, overloads),
            }
        };
        let of = |log: &CauseLog| {
            let count = (0..DAY).map(|age| self.entry(&log.counts, running.checked_sub(age))).sum();
            CauseCount { cause: log.cause, count }
        };
        HourLogStatus {
            by_hour: (0..DAY).map(row).collect(),
            last_24_hours: self.causes.iter().map(of).filter(|row| row.count > 0).collect(),
        }
    }

    /// Calls and overloads of `latest` and the same hour of the six days before.
    fn over_the_week(&self, latest: u64) -> (u64, u64) {
        let sum = |counts| (0..WEEK / DAY).map(|days| self.entry(counts, latest.checked_sub(days * DAY))).sum();
        (sum(&self.calls), sum(&self.overloads))
    }

    fn entry(&self, counts: &VecDeque<u32>, hour: Option<u64>) -> u64 {
        let age = hour.and_then(|hour| self.newest.checked_sub(hour)).and_then(|age| usize::try_from(age).ok());
        age.and_then(|age| counts.iter().rev().nth(age)).copied().unwrap_or_default().into()
    }

    /// Brings the lists to the hour of `now`; how many hours before their newest it is.
    fn age(&mut self, now: Timestamp) -> u64 {
        let hour = hour(now);
        let (later, age) = (hour.saturating_sub(self.newest), self.newest.saturating_sub(hour));
        if later >= WEEK || age >= DAY {
            *self = Self { newest: hour, ..Self::default() };
            return 0;
        }
        if later > 0 {
            self.newest = hour;
            shift(&mut self.calls, later, WEEK);
            shift(&mut self.overloads, later, WEEK);
            self.causes.iter_mut().for_each(|log| shift(&mut log.counts, later, DAY));
            self.causes.retain(|log| log.counts.iter().any(|count| *count > 0));
        }
        age
    }
}

/// The log as the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HourLogStatus {
    /// The last seven days by hour of the day: 24 rows.
    pub by_hour: Vec<HourStatus>,
    /// Failures of the running hour and the 23 before it, by cause.
    pub last_24_hours: Vec<CauseCount>,
}

json::output!(HourLogStatus { by_hour, last_24_hours });

/// One hour of the day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HourStatus {
    /// 0–23.
    pub hour_utc: u64,
    /// Calls that started in it.
    pub calls: u64,
    /// Those that were overloaded in it.
    pub overloads: u64,
    /// Their share, rounded down; 0–100. A call can be overloaded in the hour after that in which it started.
    pub overload_percent: u64,
    /// Whether it is a peak hour.
    pub peak: bool,
}

json::output!(HourStatus { hour_utc, calls, overloads, overload_percent, peak });

/// How often calls failed for one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CauseCount {
    /// Why.
    pub cause: Cause,
    /// How often.
    pub count: u64,
}

json::output!(CauseCount { cause, count });

const fn is_peak(calls: u64, overloads: u64) -> bool {
    calls >= PEAK_CALLS && overloads.saturating_mul(100) >= calls.saturating_mul(PEAK_PERCENT)
}

const fn hour(at: Timestamp) -> u64 {
    at.as_millis() / HOUR_MS
}

fn count(counts: &mut VecDeque<u32>, age: u64) {
    let age = usize::try_from(age).unwrap_or_default();
    while counts.len() <= age {
        counts.push_front(0);
    }
    if let Some(count) = counts.iter_mut().rev().nth(age) {
        *count = count.saturating_add(1);
    }
}

/// Makes room for `hours` new hours; no list gets longer than `most`. One without an entry stays so.
fn shift(counts: &mut VecDeque<u32>, hours: u64, most: u64) {
    for _ in 0..if counts.is_empty() { 0 } else { hours } {
        counts.push_back(0);
    }
    let most = usize::try_from(most).unwrap_or_default();
    counts.drain(..counts.len().saturating_sub(most));
}

/// In hours.
const DAY: u64 = 24;
/// In hours.
const WEEK: u64 = 7 * DAY;
const HOUR_MS: u64 = 3_600_000;
const PEAK_CALLS: u64 = 50;
const PEAK_PERCENT: u64 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// The beginning of an hour, `hours` after a midnight.
    fn at(hours: u64) -> Timestamp {
        Timestamp::from_millis((20_000 * DAY + hours) * HOUR_MS)
    }

    fn log(entries: &[(u64, u32, u32)]) -> HourLog {
        let mut log = HourLog::default();
        for (hours, calls, overloads) in entries {
            (0..*calls).for_each(|_| log.note_call(at(*hours)));
            (0..*overloads).for_each(|_| log.note_failure(Cause::Overloaded, at(*hours)));
        }
        log
    }

    /// Every cause there is, by the fault that lists them.
    fn causes() -> Vec<Cause> {
        let fault = serde_json::from_str::<Cause>("\"none\"").unwrap_err().to_string();
        let names = fault.split_once("one of ").unwrap().1.split(" at line").next().unwrap();
        names.split(", ").map(|name| serde_json::from_str(&format!("\"{name}\"")).unwrap()).collect()
    }

    #[test]
    fn an_hour_is_a_peak_from_5_percent_of_50_calls_on() {
        for (entries, hours, peak) in [
            (&[(13, 50, 3)][..], 13, true),
            (&[(13, 60, 3)], 13, true),
            (&[(13, 61, 3)], 13, false),
            (&[(13, 49, 49)], 13, false),
            (&[(13, 0, 99)], 13, false),
            // Only this hour of the day, and all days of the week together.
            (&[(13, 50, 50)], 14, false),
            (&[(13, 25, 2), (37, 25, 1)], 37, true),
            (&[(13, 25, 2), (37, 25, 1)], 38, false),
            (&[(13, 50, 3)], 13 + 6 * 24, true),
            (&[(13, 50, 3)], 13 + 7 * 24, false),
            (&[(13, 50, 3), (13 + 7 * 24, 50, 2)], 13 + 7 * 24, false),
        ] {
            assert_eq!(log(entries).is_peak(at(hours)), peak, "{entries:?} at {hours}");
        }
    }

    #[test]
    fn the_operator_sees_each_hour_of_the_day_and_a_day_of_causes() {
        let mut log = log(&[(13, 90, 10)]);
        log.note_failure(Cause::RateLimited, at(14));
        log.note_failure(Cause::RateLimited, at(15));
        log.note_failure(Cause::ServerError, at(37));
        (0..10).for_each(|_| log.note_call(at(37)));
        (0..9).for_each(|_| log.note_failure(Cause::Overloaded, at(37)));
        log.note_call(at(38));
        let status = log.status(at(38));
        assert_eq!(status.by_hour.iter().map(|row| row.hour_utc).collect::<Vec<_>>(), (0..24).collect::<Vec<_>>());
        let thirteen = HourStatus { hour_utc: 13, calls: 100, overloads: 19, overload_percent: 19, peak: true };
        assert_eq!(status.by_hour[13], thirteen);
        assert_eq!((status.by_hour[14].calls, status.by_hour[15].calls), (1, 0));
        let causes: Vec<_> = status.last_24_hours.iter().map(|row| (row.cause.name(), row.count)).collect();
        assert_eq!(causes, [("overloaded", 9), ("rate_limited", 1), ("server_error", 1)]);
        assert_eq!(log.status(at(38 + 24)).last_24_hours, []);
        let mut later = log.clone();
        later.note_call(at(38 + 24));
        assert_eq!(later.causes, [], "nothing is kept of causes that are over");
        assert_eq!(log.status(at(38 + 7 * 24)).by_hour[13].calls, 0);
        assert!(
            json::write(&status)
                .contains(r#"{"hour_utc":13,"calls":100,"overloads":19,"overload_percent":19,"peak":true}"#)
        );
    }

    #[test]
    fn a_rate_above_all_is_shown_as_all() {
        assert_eq!(log(&[(0, 1, 2)]).status(at(0)).by_hour[0].overload_percent, 100);
    }

    #[test]
    fn a_clock_that_jumps_back_a_day_starts_afresh_and_a_step_counts_where_it_is() {
        let mut stepped = log(&[(48, 60, 0), (47, 50, 50)]);
        assert!(stepped.is_peak(at(47)) && !stepped.is_peak(at(48)));
        stepped.note_call(at(25));
        assert_eq!(stepped.status(at(48)).by_hour[0].calls, 60);
        stepped.note_call(at(24));
        assert_eq!(stepped, log(&[(24, 1, 0)]));
    }

    #[test]
    fn the_log_stays_below_16_kb_with_every_count_at_its_largest() {
        let full = |length| VecDeque::from(vec![u32::MAX; length]);
        let rows = causes();
        assert_eq!(rows.len(), 20, "as many as there are");
        let mut log = HourLog {
            newest: hour(at(0)),
            calls: full(168),
            overloads: full(168),
            causes: rows.into_iter().map(|cause| CauseLog { cause, counts: full(24) }).collect(),
        };
        for cause in causes() {
            log.note_failure(cause, at(0));
        }
        log.note_call(at(0));
        let size = json::write(&log).len();
        println!("largest log of hours: {size} bytes");
        assert!((8_000..16_384).contains(&size), "{size} bytes");
        assert_eq!(log.status(at(0)).by_hour[0].overload_percent, 100);
    }

    proptest! {
        #[test]
        fn it_counts_what_a_list_of_everything_counts(
            steps in prop::collection::vec((prop_oneof![0_i64..4, -23_i64..30, 0_i64..200], 0_usize..24), 1..200),
        ) {
            let (mut log, mut now) = (HourLog::default(), 10_000_i64);
            let (mut calls, mut failures) = (BTreeMap::new(), BTreeMap::new());
            let (causes, mut newest) = (causes(), now);
            for (step, what) in steps {
                now += step;
                // As far back as it counts.
                now = now.max(newest - 23);
                newest = newest.max(now);
                let hours = u64::try_from(now).unwrap();
                match causes.get(what) {
                    None => {
                        log.note_call(at(hours));
                        *calls.entry(now).or_insert(0) += 1;
                    }
                    Some(cause) => {
                        log.note_failure(*cause, at(hours));
                        *failures.entry((now, *cause)).or_insert(0) += 1;
                    }
                }
                let read: HourLog = serde_json::from_str(&json::write(&log)).unwrap();
                prop_assert_eq!(&read, &log);
                prop_assert!(log.calls.len() <= 168 && log.overloads.len() <= 168);
                prop_assert!(log.causes.len() <= 20 && log.causes.iter().all(|log| log.counts.len() <= 24));
            }
            let now = newest;
            let status = log.status(at(u64::try_from(now).unwrap()));
            for row in &status.by_hour {
                let in_it = |hours: i64| hours > now - 168 && (20_000 * 24 + hours).rem_euclid(24) == i64::try_from(row.hour_utc).unwrap();
                let sum: u64 = calls.iter().filter(|(hours, _)| in_it(**hours)).map(|(_, count)| count).sum();
                prop_assert_eq!(row.calls, sum);
                let sum: u64 = failures.iter().filter(|((hours, cause), _)| in_it(*hours) && *cause == Cause::Overloaded).map(|(_, count)| count).sum();
                prop_assert_eq!(row.overloads, sum);
            }
            for cause in causes {
                let sum: u64 = failures.iter().filter(|((hours, of), _)| *hours > now - 24 && *of == cause).map(|(_, count)| count).sum();
                let row = status.last_24_hours.iter().find(|row| row.cause == cause);
                prop_assert_eq!(row.map_or(0, |row| row.count), sum);
            }
        }

        #[test]
        fn no_moment_is_too_far_away(moments in prop::collection::vec(any::<u64>(), 1..20)) {
            let mut log = HourLog::default();
            for ms in moments {
                let now = Timestamp::from_millis(ms);
                log.note_call(now);
                log.note_failure(Cause::Overloaded, now);
                let status = log.status(now);
                prop_assert_eq!(status.by_hour.iter().map(|row| row.calls).max() >= Some(1), true);
                prop_assert!(!log.is_peak(now));
            }
        }
    }
}
