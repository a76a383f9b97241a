//! Laws of the policy ring, for any input (style, habit 8).

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)] // a test may fail

use std::time::Duration;

use backon::BackoffBuilder;
use proptest::prelude::*;
use spillway::policy::answer::{Asking, Decision, Ended, Held, HoldReason, PermitId, Report};
use spillway::policy::backoff::{Bucket, Jitter, obey};
use spillway::policy::cause::{Cause, Class};
use spillway::policy::deadline::{RESERVE, fit};
use spillway::policy::gate::Gate;
use spillway::policy::priority::Priority;
use spillway::policy::rate_limits::RateLimits;
use spillway::policy::settings::{Backoff, BackoffSettings, BreakerSettings, GateSettings, PaceSettings};
use spillway::policy::time::Timestamp;
use spillway::policy::transition::State;

const T0: Timestamp = Timestamp::from_millis(1_760_000_000_000);

fn jitter() -> impl Strategy<Value = Jitter> {
    prop_oneof![Just(Jitter::Full), Just(Jitter::Equal), Just(Jitter::Decorrelated), Just(Jitter::Additive)]
}

fn backoff() -> impl Strategy<Value = Backoff> {
    (any::<u32>(), any::<u32>(), jitter()).prop_map(|(a, b, jitter)| Backoff {
        base_ms: a.min(b).max(1),
        cap_ms: a.max(b).max(1),
        jitter,
    })
}

proptest! {
    #[test]
    fn a_delay_lies_between_0_and_the_cap(backoff in backoff(), failures: u32, previous: u64, seed: u64) {
        let wait = backoff.draw(failures, Duration::from_millis(previous), &mut fastrand::Rng::with_seed(seed));
        prop_assert!(wait <= backoff.longest());
        let cap = Duration::from_millis(backoff.cap_ms.into());
        prop_assert_eq!(backoff.longest() - cap, Duration::from_secs(if backoff.jitter == Jitter::Additive { 2 } else { 0 }));
        let raw = backoff.raw(failures);
        match backoff.jitter {
            Jitter::Full => prop_assert!(wait <= raw),
            Jitter::Equal => prop_assert!(wait + Duration::from_millis(1) >= raw / 2 && wait <= raw),
            Jitter::Decorrelated => prop_assert!(wait >= Duration::from_millis(backoff.base_ms.into())),
            Jitter::Additive => prop_assert!(wait >= raw),
        }
    }

    #[test]
    fn the_raw_wait_doubles_up_to_the_cap_as_backons_does(base_ms in 1_u32..100_000, factor in 1_u32..10_000) {
        let backoff = Backoff { base_ms, cap_ms: base_ms.saturating_mul(factor), jitter: Jitter::Full };
        let oracle = backon::ExponentialBuilder::new()
            .with_factor(2.0)
            .with_min_delay(Duration::from_millis(base_ms.into()))
            .with_max_delay(Duration::from_millis(backoff.cap_ms.into()))
            .with_max_times(20)
            .build();
        for (failures, delay) in (0..).zip(oracle) {
            // backon computes in f32.
            let (raw, tolerance) = (backoff.raw(failures), Duration::from_millis(1) + delay / 1_000_000);
            prop_assert!(raw.abs_diff(delay) <= tolerance, "{failures}: {raw:?}, {delay:?}");
        }
    }

    #[test]
    fn a_higher_cap_or_count_never_shortens_the_raw_wait(backoff in backoff(), failures: u32, more: u32) {
        let higher = Backoff { cap_ms: backoff.cap_ms.saturating_add(more), ..backoff };
        prop_assert!(higher.raw(failures) >= backoff.raw(failures));
        prop_assert!(backoff.raw(failures.saturating_add(more)) >= backoff.raw(failures));
    }

    #[test]
    fn a_bucket_counts_at_most_once_per_failure_and_never_past_saturation(
        backoff in backoff(),
        times in prop::collection::vec(0_u64..10_000_000, 1..60),
        seed: u64,
    ) {
        let (mut bucket, mut rng) = (Bucket::default(), fastrand::Rng::with_seed(seed));
        for ms in times {
            let before = bucket.failures();
            let wait = bucket.fail(&backoff, T0 + Duration::from_millis(ms), &mut rng);
            prop_assert!(wait <= backoff.longest());
            prop_assert!(bucket.failures() == before || bucket.failures() == before + 1);
            prop_assert!(bucket.failures() <= backoff.saturation());
        }
    }

    #[test]
    fn a_retry_after_is_never_undercut_and_little_exceeded(ms: u64, seed: u64) {
        let asked = Duration::from_millis(ms);
        let wait = obey(asked, &mut fastrand::Rng::with_seed(seed));
        prop_assert!(wait > asked && wait - asked <= Duration::from_secs(5));
    }

    #[test]
    fn a_fitted_wait_is_no_shorter_than_the_floor_and_leaves_the_reserve(wanted: u64, floor: u64, remaining: u64) {
        let [wanted, floor, remaining] = [wanted, floor, remaining].map(|ms| Duration::from_millis(ms >> (ms % 64)));
        if let Some(wait) = fit(wanted, floor, remaining) {
            prop_assert!(wait >= floor && wait + RESERVE <= remaining && wait <= wanted.max(floor));
        } else {
            prop_assert!(floor + RESERVE > remaining || remaining < RESERVE + Duration::from_secs(1));
        }
    }
}

/// One event at the gate; permits are named by how long ago they were granted.
#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    /// The clock jumps back.
    Back(u64),
    Ask,
    Renew(usize),
    Content(usize),
    Report(Option<usize>, Report),
}

fn report() -> impl Strategy<Value = Report> {
    let cause = prop_oneof![
        6 => Just(Cause::Overloaded),
        2 => Just(Cause::RateLimited),
        1 => Just(Cause::SpendCap),
        2 => Just(Cause::ServerError),
        1 => Just(Cause::IdleTimeout),
        1 => Just(Cause::InvalidRequest),
    ];
    let wait = prop::option::weighted(0.2, (0_u64..400_000).prop_map(Duration::from_millis));
    prop_oneof![
        4 => Just(Report::Success),
        1 => Just(Report::Abandoned),
        8 => (cause, prop::bool::weighted(0.1), wait).prop_map(|(cause, after_content, retry_after)| {
            Report::Failure { cause, after_content, retry_after }
        }),
    ]
}

fn event(back: bool) -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => prop_oneof![0_u64..100, 0_u64..5_000, 0_u64..200_000].prop_map(Event::Pass),
        u32::from(back) => (0_u64..10_000_000).prop_map(Event::Back),
        6 => Just(Event::Ask),
        1 => (0_usize..10).prop_map(Event::Renew),
        2 => (0_usize..10).prop_map(Event::Content),
        5 => (prop::option::weighted(0.95, 0_usize..10), report()).prop_map(|(permit, report)| Event::Report(permit, report)),
    ]
}

fn settings() -> impl Strategy<Value = GateSettings> {
    (1_u32..5, 1_u32..100, 1_u32..40, 1_u32..600).prop_map(|(open_seconds, lease, hard, start_in_flight)| {
        GateSettings {
            lease_seconds: lease,
            spend_cap_retry_seconds: 30,
            breaker: BreakerSettings {
                open_seconds,
                consecutive_failures: hard.min(5),
                consecutive_hard: hard,
                consecutive_seconds: 2,
                probe_lease_seconds: lease * 2 / 3 + 1,
                ..BreakerSettings::default()
            },
            pace: PaceSettings { start_in_flight, ..PaceSettings::default() },
            ..GateSettings::default()
        }
    })
}

fn ended(permit: Option<PermitId>, report: Report) -> Ended {
    Ended {
        permit,
        asking: Asking::default(),
        report,
        limits: RateLimits::default(),
        backoff: BackoffSettings::default(),
    }
}

/// A gate, and what its askers know.
struct Bench {
    gate: Gate,
    rng: fastrand::Rng,
    settings: GateSettings,
    now: Timestamp,
    permits: Vec<PermitId>,
    /// Probes whose holder still lives by its own clock: permit and the end of its lease.
    probes: Vec<(PermitId, Timestamp)>,
    /// Permits whose content was told.
    content: Vec<PermitId>,
    said: Vec<String>,
}

impl Bench {
    fn new(settings: GateSettings, seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        Self {
            gate: Gate::default(),
            rng,
            settings,
            now: T0,
            permits: Vec::new(),
            probes: Vec::new(),
            content: Vec::new(),
            said: Vec::new(),
        }
    }

    fn permit(&self, ago: usize) -> PermitId {
        self.permits.iter().rev().nth(ago).copied().unwrap_or(PermitId(u64::MAX))
    }

    fn ask(&mut self) -> Decision {
        let decision = self.gate.permit(Asking::default(), self.now, &self.settings);
        self.permits.extend(decision.permit());
        if let Decision::Probe(permit) = decision {
            self.probes.push((permit, self.now + self.settings.probe_lease()));
        }
        decision
    }

    fn step(&mut self, event: &Event) -> Result<(), TestCaseError> {
        let state = self.gate.status(self.now, &self.settings).state;
        match *event {
            Event::Pass(ms) => self.now = self.now + Duration::from_millis(ms),
            Event::Back(ms) => self.now = self.now - Duration::from_millis(ms),
            Event::Ask => {
                let decision = self.ask();
                if let Decision::NotBefore(held) = decision {
                    prop_assert!(held.after > Duration::ZERO, "held for no time at all");
                }
                self.said.push(format!("{decision:?}"));
            }
            Event::Renew(ago) => {
                let permit = self.permit(ago);
                let lives = self.gate.renew(permit, self.now, &self.settings);
                for (_, lease) in self.probes.iter_mut().filter(|(probe, _)| *probe == permit && lives) {
                    *lease = self.now + self.settings.probe_lease();
                }
                self.said.push(format!("{lives}"));
            }
            Event::Content(ago) => {
                let permit = self.permit(ago);
                self.said
                    .push(format!("{:?}", self.gate.content(permit, &RateLimits::default(), self.now, &self.settings)));
                self.probes.retain(|(probe, _)| *probe != permit);
                self.content.push(permit);
            }
            Event::Report(ago, report) => {
                let permit = ago.map(|ago| self.permit(ago));
                let verdict = self.gate.report(&ended(permit, report), self.now, &mut self.rng, &self.settings);
                self.probes.retain(|(probe, _)| Some(*probe) != permit);
                if let Report::Failure { cause, after_content, .. } = report {
                    prop_assert!(!(verdict.held.is_some() && verdict.costs_attempt), "who is held pays nothing");
                    let before_content = !after_content && permit.is_none_or(|permit| !self.content.contains(&permit));
                    let outage = cause.class() == Class::Overload && before_content && state != State::Closed;
                    prop_assert!(
                        !(outage && verdict.costs_attempt),
                        "an overload of a gate that is not closed is free"
                    );
                    let retried = !matches!(cause.class(), Class::Final | Class::SpendCap);
                    prop_assert_eq!(verdict.wait.is_some(), retried);
                } else {
                    prop_assert!(!verdict.costs_attempt && verdict.wait.is_none());
                }
                self.said.push(format!("{verdict:?}"));
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn there_are_never_two_live_probes(
        settings in settings(),
        seed: u64,
        events in prop::collection::vec(event(false), 1..300),
    ) {
        let mut bench = Bench::new(settings, seed);
        for event in &events {
            bench.step(event)?;
            let now = bench.now;
            let live = bench.probes.iter().filter(|(_, lease)| *lease > now).count();
            prop_assert!(live <= 1, "{live} probes");
        }
    }

    #[test]
    fn a_clock_that_jumps_back_never_panics_and_never_shuts_the_gate_for_long(
        settings in settings(),
        seed: u64,
        events in prop::collection::vec(event(true), 1..300),
    ) {
        let mut bench = Bench::new(settings, seed);
        for event in &events {
            bench.step(event)?;
        }
        // Every lease, cooldown and hold is over after ten minutes of the new clock, asked now and then.
        for _ in 0..3 {
            bench.ask();
            bench.now = bench.now + Duration::from_secs(200);
        }
        prop_assert!(bench.ask().permit().is_some());
    }

    #[test]
    fn a_gate_that_is_stored_and_loaded_between_events_behaves_the_same(
        settings in settings(),
        seed: u64,
        events in prop::collection::vec(event(true), 1..120),
    ) {
        let (mut kept, mut stored) = (Bench::new(settings.clone(), seed), Bench::new(settings, seed));
        for event in &events {
            kept.step(event)?;
            stored.step(event)?;
            let text = serde_json::to_string(&stored.gate).unwrap();
            stored.gate = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&kept.gate, &stored.gate);
        }
        prop_assert_eq!(kept.said, stored.said);
    }

    #[test]
    fn a_lone_job_is_refused_at_every_moment_before_the_announced_one_and_served_exactly_at_it(
        seed: u64,
        asks_after_ms in 0_u64..36_000,
        early_ms in 1_u64..10_000,
        asked_to_wait in prop::option::of(1_u64..600_000),
    ) {
        let mut bench = Bench::new(GateSettings::default(), seed);
        let retry_after = asked_to_wait.map(Duration::from_millis);
        let calls = if asked_to_wait.is_some() { 1 } else { 15 };
        for _ in 0..calls {
            let permit = bench.ask().permit();
            let report = Report::Failure { cause: Cause::Overloaded, after_content: false, retry_after };
            bench.gate.report(&ended(permit, report), bench.now, &mut bench.rng, &bench.settings);
        }
        // Those that made the calls are asleep by now; this law is about a job that comes later, alone.
        let mut stored = serde_json::to_value(&bench.gate).unwrap();
        stored["slots"] = serde_json::json!({});
        let mut lone = Bench { gate: serde_json::from_value(stored).unwrap(), ..bench };
        lone.now = T0 + Duration::from_millis(asks_after_ms);
        if let Decision::NotBefore(Held { after, reason, .. }) = lone.ask() {
            prop_assert!(matches!(reason, HoldReason::BreakerOpen | HoldReason::Overloaded));
            let announced = lone.now + after;
            let early = announced - Duration::from_millis(early_ms.min(u64::try_from(after.as_millis()).unwrap()));
            lone.now = early;
            prop_assert!(matches!(lone.ask(), Decision::NotBefore(_)), "served before");
            lone.now = announced;
            prop_assert!(lone.ask().permit().is_some(), "refused at the announced moment");
        } else {
            prop_assert!(asked_to_wait.is_some_and(|ms| ms <= asks_after_ms), "nothing held it");
        }
    }
}

#[test]
fn the_state_stays_below_64_kb_over_100_000_random_events() {
    let mut rng = fastrand::Rng::with_seed(11);
    let settings = GateSettings {
        pace: PaceSettings { start_in_flight: 512, ..PaceSettings::default() },
        ..GateSettings::default()
    };
    let mut gate = Gate::default();
    let (mut now, mut largest, mut most) = (T0, 0, 0);
    for event in 0..100_000_u32 {
        now = now + Duration::from_millis(rng.u64(0..40));
        let permit = PermitId(rng.u64(1..=u64::from(event / 4 + 1)));
        // Long calm stretches fill the gate, stormy ones fill its history.
        let storm = event / 2_500 % 3 > 0;
        match rng.u32(0..10) {
            0..=6 => {
                let asking = Asking { priority: Priority::ALL[rng.usize(0..3)], ..Asking::default() };
                if let (Some(permit), false) = (gate.permit(asking, now, &settings).permit(), storm) {
                    gate.content(permit, &RateLimits::default(), now, &settings);
                }
            }
            7 => {
                gate.content(permit, &RateLimits::default(), now, &settings);
            }
            8 => {
                gate.renew(permit, now, &settings);
            }
            _ => {
                let wait = rng.bool().then(|| Duration::from_secs(rng.u64(0..9)));
                let cause = [Cause::Overloaded, Cause::RateLimited, Cause::ServerError][rng.usize(0..3)];
                let failure = Report::Failure { cause, after_content: false, retry_after: wait };
                let (permit, report) = if storm { (None, failure) } else { (Some(permit), Report::Success) };
                gate.report(&ended(permit, report), now, &mut rng, &settings);
            }
        }
        if event % 250 == 0 {
            largest = largest.max(serde_json::to_string(&gate).unwrap().len());
            most = most.max(gate.status(now, &settings).in_flight);
        }
    }
    assert!(most > 400, "the test must fill the gate: {most} in flight");
    assert!(largest < 64 * 1024, "{largest} bytes");
}
