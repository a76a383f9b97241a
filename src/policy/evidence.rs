//! What speaks for and against the upstream, and when it is enough to trip the breaker (A7).
//!
//! **When to trip.** "50 % of at least 10 in 60 s" alone never trips at low traffic and always trips by chance in a brown-out,
//! where it shuts off a model that still answers 60 % of its calls. Three rules see what each alone misses:
//! 1. `failure_rate`: at least `minimum_calls` in the window, and Wilson's lower bound of the failure rate reaches
//!    `failure_rate_percent`: ten failures of ten, or 77 of 120.
//! 2. `failures_over_time`: `consecutive_failures` in a row that span `consecutive_seconds`. Low traffic's rule. The run
//!    itself must have lasted that long: after an idle hour "no success for 20 s" is true of any first failure.
//! 3. `failures_in_a_row`: `consecutive_hard` in a row, however fast: a sudden outage under a window full of successes. It
//!    does not speak while the upstream is answering others ([`InFlight::is_answering`](super::inflight::InFlight)): when its
//!    capacity is halved under forty calls, or a slow start has gone too far, everything new is refused until enough of the
//!    old has ended. That is full, not gone; the in-flight limit is the answer, and in an outage the others end as well.
//!
//! **Failures are faster than successes.** A 529 takes milliseconds, a first token seconds, and judging calls in the order in
//! which they end misleads both ways. In a brown-out the failures of a burst all arrive before its first success, and each
//! leaves room for another call: of eight slots at 40 % some five fail before any could have succeeded. In an outage, calls
//! that began before it go on succeeding. So calls are judged in the order in which they *began*: a success breaks the run of
//! failures only if its call began within the run, and calls that began no later than the failing one and have not failed
//! ([`Others`]) are counted with rule 1's calls, and must be few (an eighth of the run's failures) in rules 2 and 3.
//!
//! **What counts**, only before first content: overload, 5xx, broken connection, no headers in time. Not 429, not 4xx, not what
//! comes after content; first content is a success.

use std::time::Duration;

use super::answer::PermitId;
use super::cause::Cause;
use super::settings::BreakerSettings;
use super::time::Timestamp;
use super::transition::Why;
use super::window::{Counts, Window, wilson_lower_bound};
use crate::json;

/// Whether a failure before first content is evidence against the upstream.
#[must_use]
pub const fn counts(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::Overloaded
            | Cause::ServerError
            | Cause::UpstreamTimeout
            | Cause::ConnectionFailed
            | Cause::HeadersTimeout
            | Cause::Truncated
    )
}

/// The calls that a closed breaker judges by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    window: Window,
    run: Run,
}

json::object!(default Evidence { window, run });

/// Failures with no success between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Run {
    failures: u32,
    /// When the first of them was reported.
    since: Timestamp,
    /// Which of them began first.
    first: Option<PermitId>,
}

json::object!(Run { failures, since, first });

/// What is known of the other calls when one fails.
#[derive(Clone, Copy, Debug)]
pub struct Others<F> {
    /// The one that began last.
    pub newest: PermitId,
    /// How many that began from the given one on, and no later than the failing one, have neither failed nor come to content.
    pub undecided: F,
    /// Whether it is overload, and enough others are being answered meanwhile: the upstream is there, and full.
    pub answered: bool,
}

impl Evidence {
    /// What the window holds.
    #[must_use]
    pub fn counts(&self, now: Timestamp) -> Counts {
        self.window.counts(now)
    }

    /// First content came. `None`: the call had no permit.
    pub fn succeed(&mut self, permit: Option<PermitId>, now: Timestamp, settings: &BreakerSettings) {
        self.window.succeed(length(settings), now);
        if permit.is_none() || permit >= self.run.first {
            self.run = Run::default();
        }
    }

    /// A call failed for a reason that counts; the rule that trips, if one does. Permits count up, so they tell who began
    /// first; a call without one is taken to have begun last.
    pub fn fail(
        &mut self,
        permit: Option<PermitId>,
        others: &Others<impl Fn(PermitId) -> u32>,
        now: Timestamp,
        settings: &BreakerSettings,
    ) -> Option<Why> {
        self.window.fail(length(settings), now);
        let began = permit.unwrap_or(others.newest);
        let first = self.run.first.map_or(began, |first| first.min(began));
        let since = if self.run.failures == 0 { now } else { self.run.since.min(now) };
        self.run = Run { failures: self.run.failures.saturating_add(1), since, first: Some(first) };
        let undecided = [PermitId(0), first].map(&others.undecided);
        self.trips(undecided, others.answered, now, settings)
    }

    fn trips(
        &self,
        [undecided, in_run]: [u32; 2],
        answered: bool,
        now: Timestamp,
        settings: &BreakerSettings,
    ) -> Option<Why> {
        let (counts, run) = (self.window.counts(now), self.run);
        let surely =
            wilson_lower_bound(counts.failures, counts.calls().saturating_add(undecided), settings.confidence_z);
        let lasted = now.since(run.since) >= Duration::from_secs(settings.consecutive_seconds.into());
        let in_a_row = |failures| run.failures >= failures && in_run <= run.failures / UNDECIDED_SHARE;
        if counts.calls() >= settings.minimum_calls && surely >= f64::from(settings.failure_rate_percent) / 100.0 {
            Some(Why::FailureRate)
        } else if in_a_row(settings.consecutive_failures) && lasted {
            Some(Why::FailuresOverTime)
        } else if !answered && in_a_row(settings.consecutive_hard) {
            Some(Why::FailuresInARow)
        } else {
            None
        }
    }
}

fn length(settings: &BreakerSettings) -> Duration {
    Duration::from_secs(settings.window_seconds.into())
}

/// Rules 2 and 3 bear one undecided call for every eight failures.
const UNDECIDED_SHARE: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + ms)
    }

    /// Evidence, and a call per line: permits count up by themselves.
    #[derive(Default)]
    struct Bench {
        evidence: Evidence,
        settings: BreakerSettings,
        permits: u64,
    }

    impl Bench {
        fn permit(&mut self) -> Option<PermitId> {
            self.permits += 1;
            Some(PermitId(self.permits))
        }

        fn succeed(&mut self, ms: u64) {
            let permit = self.permit();
            self.evidence.succeed(permit, at(ms), &self.settings);
        }

        fn fail(&mut self, ms: u64, undecided: u32) -> Option<Why> {
            let permit = self.permit();
            self.fail_as(permit, ms, undecided)
        }

        fn fail_as(&mut self, permit: Option<PermitId>, ms: u64, undecided: u32) -> Option<Why> {
            self.fail_beside(permit, ms, undecided, false)
        }
    }

    impl Bench {
        fn fail_beside(&mut self, permit: Option<PermitId>, ms: u64, undecided: u32, answered: bool) -> Option<Why> {
            let others = Others { newest: PermitId(self.permits), undecided: |_| undecided, answered };
            self.evidence.fail(permit, &others, at(ms), &self.settings)
        }
    }

    #[test]
    fn rule_1_trips_at_ten_of_ten_and_not_at_60_of_100() {
        let mut bench = Bench::default();
        assert_eq!((0..9).map(|ms| bench.fail(ms, 0)).collect::<Vec<_>>(), [None; 9]);
        assert_eq!(bench.fail(9, 0), Some(Why::FailureRate));

        let mut bench = Bench::default();
        for call in 0..100 {
            if call % 5 < 3 {
                assert_eq!(bench.fail(call * 100, 0), None, "call {call}");
            } else {
                bench.succeed(call * 100);
            }
        }
    }

    #[test]
    fn rule_1_counts_undecided_calls_as_calls() {
        let mut bench = Bench::default();
        assert!((0..13).all(|ms| bench.fail(ms, 2).is_none()), "13 of 15 is not surely half");
        assert_eq!(bench.fail(13, 1), Some(Why::FailureRate), "14 of 15 is");
    }

    #[test]
    fn rule_2_trips_at_five_in_a_row_that_span_twenty_seconds() {
        for (times, expected) in [
            ([0, 5_000, 10_000, 15_000, 20_000], Some(Why::FailuresOverTime)),
            ([0, 5_000, 10_000, 15_000, 19_999], None),
            ([0, 600_000, 1_200_000, 1_800_000, 2_400_000], Some(Why::FailuresOverTime)),
        ] {
            let mut bench = Bench::default();
            let trips: Vec<_> = times.into_iter().map(|ms| bench.fail(ms, 0)).collect();
            assert_eq!(trips, [None, None, None, None, expected], "{times:?}");
        }
        let mut bench = Bench::default();
        for ms in [0, 5_000, 10_000, 15_000] {
            bench.fail(ms, 0);
        }
        bench.succeed(16_000);
        assert_eq!(bench.fail(20_000, 0), None, "a success breaks the run");
        let (mut bench, mut permit) = (Bench::default(), [10, 3, 11, 12, 13].map(|id| Some(PermitId(id))).into_iter());
        for ms in [0, 5_000, 10_000, 15_000] {
            bench.fail_as(permit.next().flatten(), ms, 0);
        }
        bench.evidence.succeed(Some(PermitId(5)), at(16_000), &bench.settings);
        let last = bench.fail_as(permit.next().flatten(), 20_000, 0);
        assert_eq!(last, None, "so does one that began after the first of it did, whenever that failed");
        let mut bench = Bench::default();
        for (id, ms) in [(10, 0), (3, 5_000), (11, 10_000), (12, 15_000)] {
            bench.fail_as(Some(PermitId(id)), ms, 0);
        }
        bench.evidence.succeed(Some(PermitId(5)), at(16_000), &bench.settings);
        assert_eq!(
            bench.fail_as(Some(PermitId(13)), 20_000, 0),
            None,
            "so does one that began after the first of it did, whenever that failed"
        );
        let mut bench = Bench::default();
        let trips: Vec<_> = [900_000, 0, 5_000, 10_000, 20_000].into_iter().map(|ms| bench.fail(ms, 0)).collect();
        assert_eq!(trips, [None, None, None, None, Some(Why::FailuresOverTime)], "a clock that ran back begins anew");
        let mut bench = Bench::default();
        assert!(
            [0, 9_000, 18_000, 27_000, 36_000].into_iter().all(|ms| bench.fail(ms, 1).is_none()),
            "one is undecided"
        );
    }

    #[test]
    fn rule_3_does_not_speak_while_others_are_answered_and_the_others_do() {
        let full_window = || {
            let mut bench = Bench::default();
            (0..40).for_each(|call| bench.succeed(call));
            bench
        };
        let fails = |bench: &mut Bench, ms, answered| {
            let permit = bench.permit();
            bench.fail_beside(permit, ms, 0, answered)
        };
        let mut bench = full_window();
        assert!((0..19).all(|ms| fails(&mut bench, 100 + ms, true).is_none()));
        assert_eq!(fails(&mut bench, 200, false), Some(Why::FailuresInARow), "they have ended");

        let mut bench = full_window();
        assert_eq!([0, 1, 2, 3].map(|call| fails(&mut bench, 100 + call, true)), [None; 4]);
        assert_eq!(fails(&mut bench, 20_100, true), Some(Why::FailuresOverTime));

        let mut bench = Bench::default();
        assert_eq!((0..10).map(|ms| fails(&mut bench, ms, true)).last(), Some(Some(Why::FailureRate)));
    }

    #[test]
    fn rule_3_trips_at_fifteen_in_a_row_under_a_window_full_of_successes() {
        let mut bench = Bench::default();
        for ms in 0..200 {
            bench.succeed(ms);
        }
        assert_eq!((200..214).map(|ms| bench.fail(ms, 1)).collect::<Vec<_>>(), [None; 14]);
        assert_eq!(bench.fail(214, 1), Some(Why::FailuresInARow));

        let mut bench = Bench::default();
        for ms in 0..200 {
            bench.succeed(ms);
        }
        assert!((200..215).all(|ms| bench.fail(ms, 2).is_none()), "two of seventeen are undecided");
        assert_eq!(bench.fail(215, 2), Some(Why::FailuresInARow), "two of eighteen are an eighth");
    }

    #[test]
    fn a_success_breaks_the_run_only_if_its_call_began_within_it() {
        for (began, breaks) in [(3, false), (5, true), (12, true)] {
            let mut bench = Bench::default();
            for _ in 0..200 {
                bench.succeed(0);
            }
            for permit in 204..218 {
                assert_eq!(bench.fail_as(Some(PermitId(permit)), 1, 0), None);
            }
            bench.evidence.succeed(Some(PermitId(199 + began)), at(2), &bench.settings);
            let trips = bench.fail_as(Some(PermitId(218)), 3, 0).is_some();
            assert_eq!(trips, !breaks, "began as {began}");
        }
    }

    #[test]
    fn only_what_the_upstream_did_before_content_counts_and_no_429_and_no_4xx() {
        let counted = [
            Cause::Overloaded,
            Cause::ServerError,
            Cause::UpstreamTimeout,
            Cause::ConnectionFailed,
            Cause::HeadersTimeout,
            Cause::Truncated,
        ];
        let not = [
            Cause::RateLimited,
            Cause::Acceleration,
            Cause::SpendCap,
            Cause::Conflict,
            Cause::IdleTimeout,
            Cause::TotalTimeout,
            Cause::MalformedAnswer,
            Cause::InvalidRequest,
            Cause::AuthenticationFailed,
            Cause::NotFound,
            Cause::Rejected,
        ];
        assert!(counted.into_iter().all(counts));
        assert!(!not.into_iter().any(counts));
    }
}
