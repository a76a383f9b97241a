//! The circuit breaker of one model, in Nygard's terms: Closed serves, Open refuses, HalfOpen lets one probe through (A7).
//!
//! | from | why | to |
//! | --- | --- | --- |
//! | Closed | `failure_rate`, `failures_over_time`, `failures_in_a_row` | Open |
//! | Open | `cooldown_over` (and somebody asked: that call is the probe) | HalfOpen |
//! | HalfOpen | `probe_succeeded` | Closed |
//! | HalfOpen | `probe_failed` | Open |
//!
//! Nothing else moves it.
//!
//! **When to trip.** "50 % of at least 10 in 60 s" alone never trips at low traffic and always trips by chance in a brown-out,
//! where it shuts off a model that still answers 60 % of its calls. Three rules see what each alone misses:
//! 1. `failure_rate`: at least `minimum_calls` in the window, and Wilson's lower bound of the failure rate reaches
//!    `failure_rate_percent`: ten failures of ten, or 77 of 120.
//! 2. `failures_over_time`: `consecutive_failures` in a row that span `consecutive_seconds`. Low traffic's rule. The run
//!    itself must have lasted that long: after an idle hour "no success for 20 s" is true of any first failure.
//! 3. `failures_in_a_row`: `consecutive_hard` in a row, however fast: a sudden outage under a window full of successes.
//!
//! **Failures are faster than successes.** A 529 takes milliseconds, a first token seconds, and judging calls in the order in
//! which they end misleads both ways. In a brown-out the failures of a burst all arrive before its first success, and each
//! leaves room for another call: of eight slots at 40 % some five fail before any could have succeeded. In an outage, calls
//! that began before it go on succeeding. So calls are judged in the order in which they *began*: a success breaks the run of
//! failures only if its call began within the run, and calls that began no later than the failing one and have not failed
//! (`undecided`) are counted with rule 1's calls, and must be few (an eighth of the run's failures) in rules 2 and 3.
//!
//! **What counts**, only before first content: overload, 5xx, broken connection, no headers in time. Not 429, not 4xx, not what
//! comes after content; first content is a success. Calls granted before a trip are stragglers and tell of the past: the gate
//! does not pass them on. A probe that ends in any other way frees its place at once; one whose lease ends, too.
//!
//! **Open** lasts `open_seconds` ± `open_jitter_percent`, drawn each time: a fixed cooldown can beat in time with a flapping
//! upstream. A clock that runs backwards restarts the cooldown at most.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;

use super::answer::PermitId;
use super::cause::Cause;
use super::settings::BreakerSettings;
use super::time::Timestamp;
use super::window::{Counts, Window, wilson_lower_bound};
use crate::json;

/// Nygard's three states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Serving.
    Closed,
    /// Refusing.
    Open,
    /// Refusing, but for one probe.
    HalfOpen,
}

json::names!(State {
    Closed => "closed",
    Open => "open",
    HalfOpen => "half_open",
});

/// Why the breaker moved. The name in snake case is log field and metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// Trip rule 1.
    FailureRate,
    /// Trip rule 2.
    FailuresOverTime,
    /// Trip rule 3.
    FailuresInARow,
    /// The cooldown ran out, and a probe was let through.
    CooldownOver,
    /// The probe came to content.
    ProbeSucceeded,
    /// The probe failed for a reason that counts.
    ProbeFailed,
}

json::names!(Why {
    FailureRate => "failure_rate",
    FailuresOverTime => "failures_over_time",
    FailuresInARow => "failures_in_a_row",
    CooldownOver => "cooldown_over",
    ProbeSucceeded => "probe_succeeded",
    ProbeFailed => "probe_failed",
});

/// One move of the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Transition {
    /// What it was.
    pub from: State,
    /// What it is now.
    pub to: State,
    /// Why.
    pub why: Why,
}

json::object!(Transition { from, to, why });

/// What the breaker says to a call that wants to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// Serve.
    Serve,
    /// This one may be the probe.
    MayProbe,
    /// There is a probe already.
    ProbeInFlight,
    /// Refuse; the cooldown is over after that.
    Refuse(Duration),
}

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

/// The breaker's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Breaker {
    phase: Phase,
    since: Timestamp,
    window: Window,
    run: Run,
    history: VecDeque<Past>,
}

json::object!(default Breaker { phase, since, window, run, history });

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    #[default]
    Closed,
    Open {
        for_ms: u64,
    },
    HalfOpen {
        probe: Option<PermitId>,
    },
}

json::choice!(Phase {
    "closed" => Closed,
    "open" => Open { for_ms },
    "half_open" => HalfOpen { probe },
});

/// Failures with no success between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Run {
    failures: u32,
    /// When the first of them was reported.
    since: Timestamp,
    /// Which of them began first.
    first: Option<PermitId>,
}

json::object!(Run { failures, since, first });

/// One move, and when it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Past {
    /// When.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub transition: Transition,
}

impl json::FromJson for Past {
    fn read(json: json::Json<'_>, faults: &mut json::Faults) -> Option<Self> {
        let (at, transition) = (json.fields(faults)?.read("at", faults), Transition::read(json, faults));
        Some(Self { at: at?, transition: transition? })
    }
}

impl Breaker {
    /// Which of the three states it is in.
    #[must_use]
    pub const fn state(&self) -> State {
        match self.phase {
            Phase::Closed => State::Closed,
            Phase::Open { .. } => State::Open,
            Phase::HalfOpen { .. } => State::HalfOpen,
        }
    }

    /// When it came into that state; the epoch if it never moved.
    #[must_use]
    pub const fn since(&self) -> Timestamp {
        self.since
    }

    /// The probe on its way.
    #[must_use]
    pub const fn probe(&self) -> Option<PermitId> {
        match self.phase {
            Phase::HalfOpen { probe } => probe,
            Phase::Closed | Phase::Open { .. } => None,
        }
    }

    /// The last moves, oldest first.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = &Past> {
        self.history.iter()
    }

    /// What the window holds.
    #[must_use]
    pub fn counts(&self, now: Timestamp) -> Counts {
        self.window.counts(now)
    }

    /// How long until the next probe may start; `None` unless Open.
    #[must_use]
    pub fn cooldown(&self, now: Timestamp) -> Option<Duration> {
        match self.phase {
            Phase::Open { for_ms } => {
                let cooldown = Duration::from_millis(for_ms);
                Some((self.since + cooldown).after(now).min(cooldown))
            }
            Phase::Closed | Phase::HalfOpen { .. } => None,
        }
    }

    /// What to say to a call that wants to start.
    pub fn stand(&mut self, now: Timestamp) -> Stand {
        if matches!(self.phase, Phase::Open { .. }) {
            self.since = self.since.min(now);
        }
        match (self.phase, self.cooldown(now)) {
            (Phase::Closed, _) => Stand::Serve,
            (Phase::Open { .. }, Some(after)) if !after.is_zero() => Stand::Refuse(after),
            (Phase::Open { .. }, _) | (Phase::HalfOpen { probe: None }, _) => Stand::MayProbe,
            (Phase::HalfOpen { probe: Some(_) }, _) => Stand::ProbeInFlight,
        }
    }

    /// The call that heard `MayProbe` starts with this permit.
    pub fn begin_probe(&mut self, permit: PermitId, now: Timestamp) -> Option<Transition> {
        match self.stand(now) {
            Stand::MayProbe => {
                let transition = matches!(self.phase, Phase::Open { .. })
                    .then(|| self.enter(Phase::HalfOpen { probe: None }, Why::CooldownOver, now));
                self.phase = Phase::HalfOpen { probe: Some(permit) };
                transition
            }
            Stand::Serve | Stand::ProbeInFlight | Stand::Refuse(_) => None,
        }
    }

    /// This permit decides nothing any more; if it was the probe's, another may be.
    pub fn free(&mut self, permit: PermitId) {
        if self.probe() == Some(permit) {
            self.phase = Phase::HalfOpen { probe: None };
        }
    }

    /// First content came. `None`: the call had no permit.
    pub fn succeed(
        &mut self,
        permit: Option<PermitId>,
        now: Timestamp,
        settings: &BreakerSettings,
    ) -> Option<Transition> {
        match self.phase {
            Phase::Closed => {
                self.window.succeed(length(settings), now);
                if permit.is_none() || permit >= self.run.first {
                    self.run = Run::default();
                }
                None
            }
            Phase::HalfOpen { probe } if probe.is_some() && probe == permit => {
                Some(self.enter(Phase::Closed, Why::ProbeSucceeded, now))
            }
            Phase::HalfOpen { .. } | Phase::Open { .. } => None,
        }
    }

    /// A call failed for a reason that counts. `undecided` says how many calls that began from the given one on, and no later
    /// than the failing one, have neither failed nor come to content. Permits count up, so they tell who began first; a call
    /// without one is taken to have begun last, as `newest`.
    pub fn fail(
        &mut self,
        permit: Option<PermitId>,
        newest: PermitId,
        undecided: impl Fn(PermitId) -> u32,
        now: Timestamp,
        rng: &mut fastrand::Rng,
        settings: &BreakerSettings,
    ) -> Option<Transition> {
        match self.phase {
            Phase::Closed => {
                self.window.fail(length(settings), now);
                let began = permit.unwrap_or(newest);
                let first = self.run.first.map_or(began, |first| first.min(began));
                let since = if self.run.failures == 0 { now } else { self.run.since.min(now) };
                self.run = Run { failures: self.run.failures.saturating_add(1), since, first: Some(first) };
                let why = self.trips(undecided(PermitId(0)), undecided(first), now, settings)?;
                Some(self.open(why, now, rng, settings))
            }
            Phase::HalfOpen { probe } if probe.is_some() && probe == permit => {
                Some(self.open(Why::ProbeFailed, now, rng, settings))
            }
            Phase::HalfOpen { .. } | Phase::Open { .. } => None,
        }
    }

    fn trips(&self, undecided: u32, in_run: u32, now: Timestamp, settings: &BreakerSettings) -> Option<Why> {
        let (counts, run) = (self.window.counts(now), self.run);
        let surely =
            wilson_lower_bound(counts.failures, counts.calls().saturating_add(undecided), settings.confidence_z);
        let lasted = now.since(run.since) >= Duration::from_secs(settings.consecutive_seconds.into());
        let in_a_row = |failures| run.failures >= failures && in_run <= run.failures / UNDECIDED_SHARE;
        if counts.calls() >= settings.minimum_calls && surely >= f64::from(settings.failure_rate_percent) / 100.0 {
            Some(Why::FailureRate)
        } else if in_a_row(settings.consecutive_failures) && lasted {
            Some(Why::FailuresOverTime)
        } else if in_a_row(settings.consecutive_hard) {
            Some(Why::FailuresInARow)
        } else {
            None
        }
    }

    fn open(&mut self, why: Why, now: Timestamp, rng: &mut fastrand::Rng, settings: &BreakerSettings) -> Transition {
        let (open_ms, percent) = (u64::from(settings.open_seconds) * 1000, u64::from(settings.open_jitter_percent));
        let spread = open_ms * percent.min(100) / 100;
        let for_ms = open_ms - spread + rng.u64(0..=2 * spread);
        self.enter(Phase::Open { for_ms }, why, now)
    }

    fn enter(&mut self, phase: Phase, why: Why, now: Timestamp) -> Transition {
        let from = self.state();
        self.phase = phase;
        self.since = now;
        self.window.clear();
        self.run = Run::default();
        let transition = Transition { from, to: self.state(), why };
        if self.history.len() >= HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(Past { at: now, transition });
        transition
    }
}

fn length(settings: &BreakerSettings) -> Duration {
    Duration::from_secs(settings.window_seconds.into())
}

/// How many moves are remembered.
const HISTORY: usize = 20;
/// Rules 2 and 3 bear one undecided call for every eight failures.
const UNDECIDED_SHARE: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + ms)
    }

    /// A breaker, and a call per line: permits count up by themselves.
    struct Bench {
        breaker: Breaker,
        settings: BreakerSettings,
        rng: fastrand::Rng,
        permits: u64,
    }

    impl Bench {
        fn new() -> Self {
            let (breaker, settings) = (Breaker::default(), BreakerSettings::default());
            Self { breaker, settings, rng: fastrand::Rng::with_seed(1), permits: 0 }
        }

        fn open() -> Self {
            let mut bench = Self::new();
            for _ in 0..15 {
                bench.fail(0, 0);
            }
            assert_eq!(bench.breaker.state(), State::Open);
            bench
        }

        /// With a probe on its way from 200 s on.
        fn half_open() -> Self {
            let mut bench = Self::open();
            bench.breaker.begin_probe(PermitId(100), at(200_000));
            assert_eq!(bench.breaker.probe(), Some(PermitId(100)));
            bench
        }

        fn permit(&mut self) -> Option<PermitId> {
            self.permits += 1;
            Some(PermitId(self.permits))
        }

        fn succeed(&mut self, ms: u64) -> Option<Why> {
            let permit = self.permit();
            self.breaker.succeed(permit, at(ms), &self.settings).map(|transition| transition.why)
        }

        fn fail(&mut self, ms: u64, undecided: u32) -> Option<Why> {
            let permit = self.permit();
            self.fail_as(permit, ms, undecided)
        }

        fn fail_as(&mut self, permit: Option<PermitId>, ms: u64, undecided: u32) -> Option<Why> {
            self.breaker
                .fail(permit, PermitId(self.permits), |_| undecided, at(ms), &mut self.rng, &self.settings)
                .map(|transition| transition.why)
        }
    }

    #[test]
    fn it_moves_as_the_table_says_and_in_no_other_way() {
        type Act = fn(&mut Bench) -> Option<Transition>;
        let acts: [(&str, Act); 6] = [
            ("asked early", |bench| bench.breaker.begin_probe(PermitId(200), at(10))),
            ("asked late", |bench| bench.breaker.begin_probe(PermitId(200), at(300_000))),
            ("probe comes to content", |bench| {
                bench.breaker.succeed(Some(PermitId(100)), at(300_000), &bench.settings)
            }),
            ("other comes to content", |bench| bench.breaker.succeed(Some(PermitId(99)), at(300_000), &bench.settings)),
            ("probe fails", |bench| {
                bench.fail_as(Some(PermitId(100)), 300_000, 0);
                bench
                    .breaker
                    .history()
                    .last()
                    .map(|past| past.transition)
                    .filter(|_| bench.breaker.since() == at(300_000))
            }),
            ("without permit comes to content", |bench| bench.breaker.succeed(None, at(300_000), &bench.settings)),
        ];
        let starts: [(fn() -> Bench, State); 3] =
            [(Bench::new, State::Closed), (Bench::open, State::Open), (Bench::half_open, State::HalfOpen)];
        let moves: Vec<_> = starts
            .iter()
            .flat_map(|(start, from)| acts.iter().map(move |(name, act)| (*from, *name, act(&mut start()))))
            .filter_map(|(from, name, transition)| transition.map(|Transition { to, why, .. }| (from, name, why, to)))
            .collect();
        assert_eq!(
            moves,
            [
                (State::Open, "asked late", Why::CooldownOver, State::HalfOpen),
                (State::HalfOpen, "probe comes to content", Why::ProbeSucceeded, State::Closed),
                (State::HalfOpen, "probe fails", Why::ProbeFailed, State::Open),
            ]
        );
    }

    #[test]
    fn rule_1_trips_at_ten_of_ten_and_not_at_60_of_100() {
        let mut bench = Bench::new();
        assert_eq!((0..9).map(|ms| bench.fail(ms, 0)).collect::<Vec<_>>(), [None; 9]);
        assert_eq!(bench.fail(9, 0), Some(Why::FailureRate));

        let mut bench = Bench::new();
        for call in 0..100 {
            let trip = if call % 5 < 3 { bench.fail(call * 100, 0) } else { bench.succeed(call * 100) };
            assert_eq!(trip, None, "call {call}");
        }
    }

    #[test]
    fn rule_1_counts_undecided_calls_as_calls() {
        let mut bench = Bench::new();
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
            let mut bench = Bench::new();
            let trips: Vec<_> = times.into_iter().map(|ms| bench.fail(ms, 0)).collect();
            assert_eq!(trips, [None, None, None, None, expected], "{times:?}");
        }
        let mut bench = Bench::new();
        for ms in [0, 5_000, 10_000, 15_000] {
            bench.fail(ms, 0);
        }
        bench.succeed(16_000);
        assert_eq!(bench.fail(20_000, 0), None, "a success breaks the run");
        let mut bench = Bench::new();
        assert!(
            [0, 9_000, 18_000, 27_000, 36_000].into_iter().all(|ms| bench.fail(ms, 1).is_none()),
            "one is undecided"
        );
    }

    #[test]
    fn rule_3_trips_at_fifteen_in_a_row_under_a_window_full_of_successes() {
        let mut bench = Bench::new();
        for ms in 0..200 {
            bench.succeed(ms);
        }
        assert_eq!((200..214).map(|ms| bench.fail(ms, 1)).collect::<Vec<_>>(), [None; 14]);
        assert_eq!(bench.fail(214, 1), Some(Why::FailuresInARow));

        let mut bench = Bench::new();
        for ms in 0..200 {
            bench.succeed(ms);
        }
        assert!((200..215).all(|ms| bench.fail(ms, 2).is_none()), "two of seventeen are undecided");
        assert_eq!(bench.fail(215, 2), Some(Why::FailuresInARow), "two of eighteen are an eighth");
    }

    #[test]
    fn a_success_breaks_the_run_only_if_its_call_began_within_it() {
        for (began, breaks) in [(3, false), (5, true), (12, true)] {
            let mut bench = Bench::new();
            for _ in 0..200 {
                bench.succeed(0);
            }
            for permit in 204..218 {
                assert_eq!(bench.fail_as(Some(PermitId(permit)), 1, 0), None);
            }
            bench.breaker.succeed(Some(PermitId(199 + began)), at(2), &bench.settings);
            let trips = bench.fail_as(Some(PermitId(218)), 3, 0).is_some();
            assert_eq!(trips, !breaks, "began as {began}");
        }
    }

    #[test]
    fn the_cooldown_is_90_seconds_give_or_take_a_fifth_and_drawn_anew_each_time() {
        let mut seen = Vec::new();
        let mut bench = Bench::half_open();
        for _ in 0..50 {
            bench.fail_as(Some(PermitId(100)), 300_000, 0);
            let cooldown = bench.breaker.cooldown(at(300_000)).unwrap();
            assert!((72..=108).contains(&cooldown.as_secs()), "{cooldown:?}");
            seen.push(cooldown);
            bench.breaker.begin_probe(PermitId(100), at(500_000));
        }
        seen.sort();
        seen.dedup();
        assert!(seen.len() > 40);
        assert_eq!(bench.breaker.history().count(), HISTORY);
    }

    #[test]
    fn one_probe_at_a_time_and_a_freed_place_is_taken_by_the_next() {
        let mut bench = Bench::half_open();
        assert_eq!(bench.breaker.stand(at(200_000)), Stand::ProbeInFlight);
        bench.breaker.begin_probe(PermitId(101), at(200_000));
        assert_eq!(bench.breaker.probe(), Some(PermitId(100)));
        bench.breaker.free(PermitId(101));
        assert_eq!(bench.breaker.stand(at(200_000)), Stand::ProbeInFlight);
        bench.breaker.free(PermitId(100));
        assert_eq!(bench.breaker.stand(at(200_000)), Stand::MayProbe);
        assert_eq!(bench.breaker.begin_probe(PermitId(101), at(200_000)), None);
        assert_eq!((bench.breaker.state(), bench.breaker.probe()), (State::HalfOpen, Some(PermitId(101))));
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

    #[test]
    fn a_clock_that_ran_back_restarts_the_cooldown_at_most() {
        let mut bench = Bench::open();
        let cooldown = bench.breaker.cooldown(at(0)).unwrap();
        let early = Timestamp::from_millis(5_000);
        assert_eq!(bench.breaker.stand(early), Stand::Refuse(cooldown));
        assert_eq!(bench.breaker.stand(early + cooldown), Stand::MayProbe);
    }
}
