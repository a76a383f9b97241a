//! The gate in a closed loop: jobs that come, call, wait and come again, against a modelled upstream, on a simulated clock.
//!
//! Bands, not points: each scenario runs with several seeds. Waits are whole seconds, as a queue's are.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)] // a test may fail

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use spillway::policy::answer::{Asking, Decision, Ended, HoldReason, PermitId, Report};
use spillway::policy::cause::Cause;
use spillway::policy::gate::Gate;
use spillway::policy::rate_limits::RateLimits;
use spillway::policy::settings::{BackoffSettings, BreakerSettings, GateSettings};
use spillway::policy::slots::Ticket;
use spillway::policy::time::{Timestamp, whole_seconds};
use spillway::policy::transition::State;

const T0: Timestamp = Timestamp::from_millis(1_760_000_000_000);

/// What the upstream is like.
struct Upstream {
    /// The share of calls that it refuses, by the time since the start.
    refuses: fn(Duration) -> f64,
    /// How long a refusal takes, first content, and the rest: milliseconds, ± a third.
    refusal_ms: u64,
    content_ms: u64,
    rest_ms: u64,
    /// No more calls at once than this.
    capacity: usize,
    /// The Retry-After that it sends along.
    retry_after: Option<Duration>,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            refuses: |_| 0.0,
            refusal_ms: 60,
            content_ms: 800,
            rest_ms: 2_000,
            capacity: usize::MAX,
            retry_after: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wake,
    Content(PermitId),
    Done(PermitId),
    Refused(PermitId),
}

#[derive(Default)]
struct Job {
    calls: u32,
    attempts: u32,
    deliveries: u32,
    done: Option<Duration>,
    ticket: Option<Ticket>,
}

struct World {
    gate: Gate,
    rng: fastrand::Rng,
    settings: GateSettings,
    upstream: Upstream,
    jobs: Vec<Job>,
    events: BinaryHeap<Reverse<(u64, u64, Event, usize)>>,
    serial: u64,
    in_service: usize,
    /// When each probe started.
    probes: Vec<Duration>,
    live_probes: u32,
    open_ms: u64,
    failures_before_trip: Option<u32>,
    failures: u32,
}

impl World {
    fn new(seed: u64, settings: GateSettings, upstream: Upstream) -> Self {
        Self {
            gate: Gate::default(),
            rng: fastrand::Rng::with_seed(seed),
            settings,
            upstream,
            jobs: Vec::new(),
            events: BinaryHeap::new(),
            serial: 0,
            in_service: 0,
            probes: Vec::new(),
            live_probes: 0,
            open_ms: 0,
            failures_before_trip: None,
            failures: 0,
        }
    }

    fn submit(&mut self, at_ms: u64) {
        self.jobs.push(Job::default());
        self.schedule(at_ms, Event::Wake, self.jobs.len() - 1);
    }

    fn schedule(&mut self, at_ms: u64, event: Event, job: usize) {
        self.serial += 1;
        self.events.push(Reverse((at_ms, self.serial, event, job)));
    }

    fn about(&mut self, ms: u64) -> u64 {
        ms * 2 / 3 + self.rng.u64(0..=ms * 2 / 3)
    }

    fn run(&mut self, until_ms: u64) {
        let mut last = 0;
        while let Some(Reverse((ms, _, event, job))) = self.events.pop() {
            if self.gate.status(T0, &self.settings).state != State::Closed {
                self.open_ms += ms.min(until_ms) - last;
            }
            if ms > until_ms {
                return;
            }
            last = ms;
            self.step(ms, event, job);
        }
    }

    fn step(&mut self, ms: u64, event: Event, job: usize) {
        let now = T0 + Duration::from_millis(ms);
        match event {
            Event::Wake => {
                self.jobs[job].deliveries += 1;
                let asking = Asking { ticket: self.jobs[job].ticket, ..Asking::default() };
                match self.gate.permit(asking, now, &self.settings) {
                    Decision::NotBefore(held) => {
                        assert!(held.reason != HoldReason::SpendCap);
                        self.jobs[job].ticket = held.ticket;
                        self.schedule(ms + whole_seconds(held.after) * 1000, Event::Wake, job);
                    }
                    Decision::Granted(permit) => self.call(ms, permit, job),
                    Decision::Probe(permit) => {
                        assert_eq!(self.live_probes, 0, "a second probe");
                        self.live_probes = 1;
                        self.probes.push(Duration::from_millis(ms));
                        self.call(ms, permit, job);
                    }
                }
            }
            Event::Content(permit) => {
                if self.gate.content(permit, &RateLimits::default(), now, &self.settings).is_some() {
                    self.live_probes = 0;
                }
                let rest = self.about(self.upstream.rest_ms);
                self.schedule(ms + rest, Event::Done(permit), job);
            }
            Event::Done(permit) => {
                self.in_service -= 1;
                self.report(permit, Report::Success, ms);
                assert!(self.jobs[job].done.is_none(), "answered twice");
                self.jobs[job].done = Some(Duration::from_millis(ms));
            }
            Event::Refused(permit) => {
                let report = Report::Failure {
                    cause: Cause::Overloaded,
                    after_content: false,
                    retry_after: self.upstream.retry_after,
                };
                self.failures += 1;
                let verdict = self.report(permit, report, ms);
                if verdict.transition.is_some() {
                    self.live_probes = 0;
                    self.failures_before_trip = self.failures_before_trip.or(Some(self.failures));
                }
                self.jobs[job].attempts += u32::from(verdict.costs_attempt);
                let wait = verdict.held.map(|held| held.after).or(verdict.wait.map(|wait| wait.wanted));
                let wait = whole_seconds(wait.expect("an overload is retried"));
                self.schedule(ms + wait * 1000, Event::Wake, job);
            }
        }
    }

    fn call(&mut self, ms: u64, permit: PermitId, job: usize) {
        self.jobs[job].calls += 1;
        let refused = self.rng.f64() < (self.upstream.refuses)(Duration::from_millis(ms));
        if refused || self.in_service >= self.upstream.capacity {
            let after = self.about(self.upstream.refusal_ms);
            self.schedule(ms + after, Event::Refused(permit), job);
        } else {
            self.in_service += 1;
            let after = self.about(self.upstream.content_ms);
            self.schedule(ms + after, Event::Content(permit), job);
        }
    }

    fn report(&mut self, permit: PermitId, report: Report, ms: u64) -> spillway::policy::answer::Verdict {
        let now = T0 + Duration::from_millis(ms);
        let (permit, backoff) = (Some(permit), BackoffSettings::default());
        let ended = Ended { permit, asking: Asking::default(), report, limits: RateLimits::default(), backoff };
        self.gate.report(&ended, now, &mut self.rng, &self.settings)
    }

    fn calls(&self) -> u32 {
        self.jobs.iter().map(|job| job.calls).sum()
    }

    fn deliveries(&self) -> u32 {
        self.jobs.iter().map(|job| job.deliveries).sum()
    }

    fn last_done(&self) -> Option<Duration> {
        self.jobs.iter().map(|job| job.done).max().flatten().filter(|_| self.jobs.iter().all(|job| job.done.is_some()))
    }
}

fn cooldown(open_seconds: u32) -> GateSettings {
    GateSettings { breaker: BreakerSettings { open_seconds, ..BreakerSettings::default() }, ..GateSettings::default() }
}

fn second(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The share of the time that the breaker refused, over several worlds.
fn open_share(worlds: &[(u64, World)]) -> f64 {
    let sum = |of: fn(&(u64, World)) -> u64| worlds.iter().map(of).sum::<u64>() as f64;
    sum(|(_, world)| world.open_ms) / sum(|(lived_ms, _)| *lived_ms)
}

/// Two hundred jobs at once, until all are done.
fn burst(seed: u64, settings: GateSettings, upstream: Upstream) -> World {
    let mut world = World::new(seed, settings, upstream);
    (0..200).for_each(|_| world.submit(0));
    world.run(4 * 3_600_000);
    world
}

/// Jobs that come evenly.
fn traffic(seed: u64, per_minute: u64, minutes: u64, upstream: Upstream) -> World {
    let mut world = World::new(seed, cooldown(90), upstream);
    (0..minutes * per_minute).for_each(|job| world.submit(job * 60_000 / per_minute));
    world.run(minutes * 60_000);
    world
}

/// Ten to twelve calls find it out, one probe per cooldown looks whether it is over, and the jobs that met it are not charged.
#[test]
fn two_hundred_jobs_through_a_thirty_second_outage_take_at_most_1_3_calls_each() {
    for open_seconds in [1, 3, 10] {
        for seed in 0..5 {
            let upstream = Upstream {
                refuses: |time| f64::from(time < Duration::from_secs(30)),
                content_ms: 200,
                rest_ms: 300,
                ..Upstream::default()
            };
            let world = burst(seed, cooldown(open_seconds), upstream);
            let done = world.last_done().expect("all are done");
            assert!(done < second(75), "open {open_seconds} s, seed {seed}: {done:?}");
            assert!(world.calls() <= 260, "open {open_seconds} s, seed {seed}: {} calls", world.calls());
            assert!(world.jobs.iter().all(|job| job.attempts <= 2));
            assert!((5..=15).contains(&world.failures_before_trip.expect("it trips")));
        }
    }
}

/// The median outage (arXiv 2501.12469): every wait but the first few costs nothing, and the probes keep their distance.
#[test]
fn two_hundred_jobs_survive_an_outage_of_46_minutes_on_two_attempts_at_most() {
    for seed in 0..2 {
        let upstream = Upstream {
            refuses: |time| f64::from(time < Duration::from_secs(46 * 60)),
            content_ms: 2_000,
            rest_ms: 15_000,
            ..Upstream::default()
        };
        let world = burst(seed, cooldown(90), upstream);
        let done = world.last_done().expect("all are done");
        assert!(done < second((46 + 6) * 60), "seed {seed}: {done:?}");
        assert!(world.jobs.iter().all(|job| job.attempts <= 2));
        assert!((26..=39).contains(&world.probes.len()), "seed {seed}: {} probes", world.probes.len());
        assert!(world.probes.windows(2).all(|pair| pair[1] - pair[0] >= second(72)));
        assert!(world.calls() <= 260, "seed {seed}: {} calls", world.calls());
        assert!(world.deliveries() <= 200 * 2 * 46, "seed {seed}: {} deliveries", world.deliveries());
    }
}

/// The plain rules keep a model that answers 60 % of its calls shut for most of the time.
#[test]
fn in_a_brown_out_of_40_percent_the_gate_is_open_less_than_5_percent_of_half_an_hour() {
    for (per_minute, content_ms, rest_ms) in [(20, 800, 2_000), (60, 800, 2_000), (60, 8_000, 15_000)] {
        let worlds: Vec<_> = (0..5)
            .map(|seed| {
                let upstream = Upstream { refuses: |_| 0.4, content_ms, rest_ms, ..Upstream::default() };
                (30 * 60_000, traffic(seed, per_minute, 30, upstream))
            })
            .collect();
        let share = open_share(&worlds);
        assert!(share < 0.05, "{per_minute} a minute, content after {content_ms} ms: {share}");
    }
}

/// Failures end sooner than successes: of eight calls that start together those that fail all end first.
#[test]
fn a_burst_into_a_brown_out_does_not_look_like_an_outage() {
    for (content_ms, rest_ms) in [(200, 300), (3_000, 10_000), (15_000, 15_000)] {
        for seed in 0..10 {
            let upstream = Upstream { refuses: |_| 0.4, content_ms, rest_ms, ..Upstream::default() };
            let mut world = World::new(seed, cooldown(90), upstream);
            (0..200).for_each(|_| world.submit(0));
            world.run(20_000);
            assert_eq!(world.open_ms, 0, "content after {content_ms} ms, seed {seed}");
        }
    }
}

/// Also under a window full of successes, and while calls that began before it go on succeeding.
#[test]
fn an_outage_is_found_within_5_to_15_failures_at_any_traffic() {
    for per_minute in [6, 60, 240, 1000] {
        for seed in 0..3 {
            let upstream =
                Upstream { refuses: |time| f64::from(time > Duration::from_secs(45)), ..Upstream::default() };
            let world = traffic(seed, per_minute, 2, upstream);
            let failures = world.failures_before_trip.expect("it trips");
            assert!((5..=15).contains(&failures), "{per_minute} a minute, seed {seed}: {failures}");
        }
    }
}

/// The limit finds what the upstream bears, and stays there.
#[test]
fn an_upstream_that_bears_sixteen_calls_gets_about_sixteen() {
    for seed in 0..3 {
        let world = burst(seed, cooldown(90), Upstream { capacity: 16, ..Upstream::default() });
        let done = world.last_done().expect("all are done");
        // 200 jobs of 2.8 s in 16 slots take 35 s.
        assert!(done < second(90), "seed {seed}: {done:?}");
        assert!(world.calls() <= 240, "seed {seed}: {} calls", world.calls());
        assert_eq!(world.open_ms, 0);
    }
}

/// Those who were told the same moment do not all come at it, and the hold is not taken for an outage.
#[test]
fn a_retry_after_with_every_refusal_of_a_brown_out_slows_down_and_still_serves() {
    let worlds: Vec<_> = (0..10)
        .map(|seed| {
            let upstream = Upstream { refuses: |_| 0.4, retry_after: Some(second(5)), ..Upstream::default() };
            let world = burst(seed, cooldown(90), upstream);
            let done = world.last_done().expect("all are done");
            (u64::try_from(done.as_millis()).unwrap(), world)
        })
        .collect();
    assert!(open_share(&worlds) < 0.1, "{}", open_share(&worlds));
}
