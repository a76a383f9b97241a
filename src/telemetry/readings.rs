//! What the Meter object has stored, as it is asked for.

use super::metric::Counts;
use crate::json::{self, Text};
use crate::policy::time::Timestamp;

/// What somebody wants to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The timeline goes so many minutes back; 0: only what has been added up.
    pub minutes: u32,
    /// The figures are of so many hours; 0: of the last [`WINDOW_MINUTES`].
    pub hours: u32,
}

json::object!(Wanted { minutes, hours });

/// All that the figures are read off.
#[derive(Clone, Debug, Default)]
pub struct Readings {
    /// When.
    pub at: Timestamp,
    /// Since the first event.
    pub totals: Counts,
    /// In the time that the figures are of.
    pub window: Counts,
    /// How long that is.
    pub window_seconds: u32,
    /// Seconds that one point of the timeline stands for.
    pub step_seconds: u32,
    /// The timeline's points that have anything, oldest first; counters only.
    pub points: Vec<Point>,
    /// Each hour's calls, as far as they are kept, oldest first.
    pub hours: Vec<Hour>,
    /// Moves of gates and orders of the operator, as log lines with their moment, oldest first.
    pub events: Vec<Happened>,
}

json::object!(Readings { at, totals, window, window_seconds, step_seconds, points, hours, events });

/// A point of the timeline.
#[derive(Clone, Debug, Default)]
pub struct Point {
    /// Where it begins.
    pub at: Timestamp,
    /// What was added in it.
    pub counts: Counts,
}

json::object!(Point { at, counts });

/// The calls of one hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hour {
    /// Hours since 1970.
    pub hour: u64,
    /// Calls that are over and were not abandoned.
    pub calls: u64,
    /// Those of them that failed.
    pub failed: u64,
}

json::object!(Hour { hour, calls, failed });

/// An event and its moment.
#[derive(Clone, Debug)]
pub struct Happened {
    /// When the Meter heard of it.
    pub at: Timestamp,
    /// The log line.
    pub event: Text,
}

json::object!(Happened { at, event });

/// How often calls fail in one hour of the day, over all days that are known (B13). Averages would hide the bad days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HourOfDay {
    /// UTC.
    pub hour: u64,
    /// Days with calls in that hour.
    pub days: usize,
    /// Calls in all of them.
    pub calls: u64,
    /// Parts per million that half of the days do not exceed.
    pub p50: u64,
    /// The same of 95 in a hundred.
    pub p95: u64,
    /// The same of 99.
    pub p99: u64,
}

/// The hours of the day that have had calls.
#[must_use]
pub fn hours_of_day(hours: &[Hour]) -> Vec<HourOfDay> {
    let of = |hour: u64| {
        let mine = || hours.iter().filter(move |it| it.hour % 24 == hour && it.calls > 0);
        // In order as they come: sixty numbers, and a sorting algorithm would be kilobytes of the Worker.
        let mut rates: Vec<u64> = Vec::new();
        for rate in mine().map(|it| it.failed.saturating_mul(1_000_000) / it.calls.max(1)) {
            rates.insert(rates.partition_point(|known| *known <= rate), rate);
        }
        let days = rates.len();
        let quantile = |percent: usize| {
            let at = (days * percent).div_ceil(100).max(1) - 1;
            rates.get(at).copied().unwrap_or_default()
        };
        let calls = mine().map(|it| it.calls).sum();
        HourOfDay { hour, days, calls, p50: quantile(50), p95: quantile(95), p99: quantile(99) }
    };
    (0..24).map(of).filter(|hour| hour.days > 0).collect()
}

/// The four figures are of this time (A10), unless somebody asks for another.
pub const WINDOW_MINUTES: u32 = 60;
/// Minutes are kept for two days.
pub const MINUTES_KEPT: u32 = 48 * 60;
/// Hours for sixty.
pub const HOURS_KEPT: u32 = 60 * 24;
/// Of more series than this the models and kinds are not told apart: apps choose them.
pub const MAX_SERIES: u32 = 5_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_of_the_day_is_as_bad_as_its_bad_days() {
        let day = |day: u64, failed| Hour { hour: day * 24 + 13, calls: 100, failed };
        let mut hours: Vec<_> = (0..19).map(|at| day(at, 1)).collect();
        hours.push(day(19, 80));
        hours.push(Hour { hour: 14, calls: 4, failed: 1 });
        hours.push(Hour { hour: 15, calls: 0, failed: 0 });
        let one = HourOfDay { hour: 14, days: 1, calls: 4, p50: 250_000, p95: 250_000, p99: 250_000 };
        let bad = HourOfDay { hour: 13, days: 20, calls: 2_000, p50: 10_000, p95: 10_000, p99: 800_000 };
        assert_eq!(hours_of_day(&hours), [bad, one]);
        assert_eq!(hours_of_day(&[]), []);
    }
}
