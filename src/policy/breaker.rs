//! The circuit breaker of one model, in Nygard's terms: Closed serves, Open refuses, HalfOpen lets one probe through (A7).
//!
//! | from | why | to |
//! | --- | --- | --- |
//! | Closed | `failure_rate`, `failures_over_time`, `failures_in_a_row` | Open |
//! | Open | `cooldown_over` (and somebody asked: that call is the probe) | HalfOpen |
//! | HalfOpen | `probe_succeeded` | Closed |
//! | HalfOpen | `probe_failed` | Open |
//! | any | `override_opened`, `override_closed` | Open, Closed |
//! | any | `override_ended`, `override_released` | Closed |
//!
//! Nothing else moves it. An override is the gate's to keep and to end ([`forced`](super::forced)); the breaker is only put
//! where it says, and remembers that among its moves, even from Open to Open: somebody was at it.
//!
//! **When to trip**, and what counts, is the [`evidence`](super::evidence)'s to say. Calls granted before a trip are
//! stragglers and tell of the past: the gate does not pass them on. A probe that ends in any other way frees its place at
//! once; one whose lease ends, too.
//!
//! **Open** lasts `open_seconds`, or up to `open_jitter_percent` less, drawn each time: a fixed cooldown can beat in time with a
//! flapping upstream, and nobody waits longer than was said. A clock that runs backwards restarts the cooldown at most.

use std::collections::VecDeque;
use std::time::Duration;

use super::answer::PermitId;
use super::evidence::{Evidence, Others};
use super::forced::Side;
use super::settings::BreakerSettings;
use super::time::Timestamp;
use super::transition::{Past, State, Transition, Why};
use super::window::Counts;
use crate::json;

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

/// The breaker's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breaker {
    phase: Phase,
    since: Timestamp,
    evidence: Evidence,
    history: VecDeque<Past>,
}

json::object!(default Breaker { phase, since, evidence, history });

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
        self.evidence.counts(now)
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
                self.evidence.succeed(permit, now, settings);
                None
            }
            Phase::HalfOpen { probe } if probe.is_some() && probe == permit => {
                Some(self.enter(Phase::Closed, Why::ProbeSucceeded, now))
            }
            Phase::HalfOpen { .. } | Phase::Open { .. } => None,
        }
    }

    /// A call failed for a reason that counts; see [`Evidence::fail`].
    pub fn fail(
        &mut self,
        permit: Option<PermitId>,
        others: &Others<impl Fn(PermitId) -> u32>,
        now: Timestamp,
        rng: &mut fastrand::Rng,
        settings: &BreakerSettings,
    ) -> Option<Transition> {
        match self.phase {
            Phase::Closed => {
                let why = self.evidence.fail(permit, others, now, settings)?;
                Some(self.open(why, now, rng, settings))
            }
            Phase::HalfOpen { probe } if probe.is_some() && probe == permit => {
                Some(self.open(Why::ProbeFailed, now, rng, settings))
            }
            Phase::HalfOpen { .. } | Phase::Open { .. } => None,
        }
    }

    /// The operator's hand, not the evidence, moves it. Open has no cooldown then: the gate keeps it shut, and should it forget
    /// why, a probe decides.
    pub fn force(&mut self, side: Side, why: Why, now: Timestamp) -> Transition {
        let phase = match side {
            Side::Open => Phase::Open { for_ms: 0 },
            Side::Closed => Phase::Closed,
        };
        self.enter(phase, why, now)
    }

    fn open(&mut self, why: Why, now: Timestamp, rng: &mut fastrand::Rng, settings: &BreakerSettings) -> Transition {
        let (open_ms, percent) = (u64::from(settings.open_seconds) * 1000, u64::from(settings.open_jitter_percent));
        let for_ms = open_ms - rng.u64(0..=open_ms * percent.min(100) / 100);
        self.enter(Phase::Open { for_ms }, why, now)
    }

    fn enter(&mut self, phase: Phase, why: Why, now: Timestamp) -> Transition {
        let from = self.state();
        self.phase = phase;
        self.since = now;
        self.evidence = Evidence::default();
        let transition = Transition { from, to: self.state(), why };
        if self.history.len() >= HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(Past { at: now, transition });
        transition
    }
}

/// How many moves are remembered.
const HISTORY: usize = 20;

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

        fn fail(&mut self, ms: u64, undecided: u32) -> Option<Why> {
            let permit = self.permit();
            self.fail_as(permit, ms, undecided)
        }

        fn fail_as(&mut self, permit: Option<PermitId>, ms: u64, undecided: u32) -> Option<Why> {
            let others = Others { newest: PermitId(self.permits), undecided: |_| undecided, answered: false };
            self.breaker.fail(permit, &others, at(ms), &mut self.rng, &self.settings).map(|transition| transition.why)
        }

        /// The move that an event at 300 s is.
        fn moved(&mut self, event: impl Fn(&mut Self) -> Option<Why>) -> Option<Transition> {
            event(self)?;
            self.breaker.history().last().filter(|past| past.at == at(300_000)).map(|past| past.transition)
        }
    }

    #[test]
    fn it_moves_as_the_table_says_and_in_no_other_way() {
        type Act = fn(&mut Bench) -> Option<Transition>;
        let acts: [(&str, Act); 9] = [
            ("asked early", |bench| bench.breaker.begin_probe(PermitId(200), at(10))),
            ("asked late", |bench| bench.breaker.begin_probe(PermitId(200), at(300_000))),
            ("probe comes to content", |bench| {
                bench.breaker.succeed(Some(PermitId(100)), at(300_000), &bench.settings)
            }),
            ("other comes to content", |bench| bench.breaker.succeed(Some(PermitId(99)), at(300_000), &bench.settings)),
            ("probe fails", |bench| bench.moved(|bench| bench.fail_as(Some(PermitId(100)), 300_000, 0))),
            ("without permit comes to content", |bench| bench.breaker.succeed(None, at(300_000), &bench.settings)),
            ("other fails", |bench| bench.moved(|bench| bench.fail_as(Some(PermitId(99)), 300_000, 0))),
            ("without permit fails", |bench| bench.moved(|bench| bench.fail_as(None, 300_000, 0))),
            ("without permit fails after the probe", |bench| {
                bench.breaker.free(PermitId(100));
                bench.moved(|bench| bench.fail_as(None, 300_000, 0))
            }),
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
    fn the_cooldown_is_45_seconds_or_up_to_a_fifth_shorter_and_drawn_anew_each_time() {
        let mut seen = Vec::new();
        let mut bench = Bench::half_open();
        for _ in 0..50 {
            bench.fail_as(Some(PermitId(100)), 300_000, 0);
            let cooldown = bench.breaker.cooldown(at(300_000)).unwrap();
            assert!((36_000..=45_000).contains(&cooldown.as_millis()), "{cooldown:?}");
            seen.push(cooldown);
            bench.breaker.begin_probe(PermitId(100), at(500_000));
        }
        seen.sort();
        seen.dedup();
        assert!(seen.len() > 40);
        assert!(seen[0].as_secs() < 38 && seen[seen.len() - 1].as_secs() > 42, "all of that is drawn from");
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
    fn forced_open_and_left_alone_a_probe_decides() {
        let mut bench = Bench::new();
        let transition = bench.breaker.force(Side::Open, Why::OverrideOpened, at(0));
        assert_eq!((transition.from, transition.to), (State::Closed, State::Open));
        assert_eq!(bench.breaker.stand(at(0)), Stand::MayProbe);
    }

    #[test]
    fn a_clock_that_ran_back_restarts_the_cooldown_at_most() {
        let mut bench = Bench::open();
        let cooldown = bench.breaker.cooldown(at(0)).unwrap();
        let early = Timestamp::from_millis(5_000);
        assert_eq!(bench.breaker.cooldown(early), Some(cooldown), "even where it is only looked at");
        assert_eq!(bench.breaker.stand(early), Stand::Refuse(cooldown));
        assert_eq!(bench.breaker.stand(early + cooldown), Stand::MayProbe);
        let mut bench = Bench::half_open();
        bench.breaker.stand(early);
        assert_eq!(bench.breaker.since(), at(200_000), "where nothing waits for it, it changes nothing");
    }

    #[test]
    fn a_jitter_of_more_than_all_of_it_is_all_of_it() {
        let mut bench = Bench::half_open();
        (bench.settings.open_seconds, bench.settings.open_jitter_percent) = (10, 1_000);
        for _ in 0..100 {
            bench.fail_as(Some(PermitId(100)), 300_000, 0);
            assert!(bench.breaker.cooldown(at(300_000)).is_none_or(|cooldown| cooldown.as_secs() <= 10));
            bench.breaker.begin_probe(PermitId(100), at(500_000));
        }
    }
}
