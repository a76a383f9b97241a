//! Laws of the pacer, for any history (style, habit 8), and the closed loop with an upstream that counts.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)] // a test may fail

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, FakeRelativeClock};
use governor::{Quota, RateLimiter};
use proptest::prelude::*;
use spillway::policy::pacer::Pacer;
use spillway::policy::rate_limits::{RateLimit, RateLimits, Used};
use spillway::policy::settings::PaceSettings;
use spillway::policy::time::Timestamp;

const T0: Timestamp = Timestamp::from_millis(1_760_000_000_000);

const fn pace(calls_per_minute: Option<u32>, burst: Option<u32>) -> PaceSettings {
    PaceSettings { calls_per_minute, burst, max_in_flight: None, start_in_flight: 8 }
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Calls per minute whose spacing is a whole number of nanoseconds: governor rounds others down.
fn whole_rate() -> impl Strategy<Value = u32> {
    let divisors: Vec<u32> =
        (1..=1_000_000).filter(|calls| 60_000_000_000_u64.is_multiple_of(u64::from(*calls))).collect();
    prop::sample::select(divisors)
}

proptest! {
    #[test]
    fn the_configured_rate_is_governors_to_the_millisecond(
        calls in whole_rate(),
        burst in 1_u32..40,
        steps in prop::collection::vec(prop_oneof![Just(0_u64), 0_u64..20, 0_u64..2_000, 0_u64..200_000], 1..300),
    ) {
        let clock = FakeRelativeClock::default();
        let quota = Quota::per_minute(NonZeroU32::new(calls).unwrap()).allow_burst(NonZeroU32::new(burst).unwrap());
        let oracle = RateLimiter::direct_with_clock(quota, clock.clone());
        let (mut pacer, settings, mut now) = (Pacer::default(), pace(Some(calls), Some(burst)), T0);
        for step in steps {
            clock.advance(ms(step));
            now = now + ms(step);
            match (pacer.stand(&settings, now), oracle.check()) {
                (Ok(()), Ok(())) => pacer.take(&settings, now),
                (Err(wait), Err(refusal)) => {
                    let nanos = refusal.wait_time_from(clock.now()).as_nanos();
                    prop_assert_eq!(wait.as_millis(), nanos.div_ceil(1_000_000));
                }
                (ours, theirs) => prop_assert!(false, "{:?} and governor {:?}", ours, theirs.is_ok()),
            }
        }
    }

    #[test]
    fn no_window_ever_sees_more_than_the_burst_and_what_has_come_back(
        calls in 1_u32..100_000,
        burst in prop::option::of(1_u32..50),
        steps in prop::collection::vec(prop_oneof![Just(0_u64), 0_u64..20, 0_u64..5_000], 1..300),
    ) {
        let (mut pacer, settings, mut now) = (Pacer::default(), pace(Some(calls), burst), T0);
        let mut granted: Vec<Timestamp> = Vec::new();
        for step in steps {
            now = now + ms(step);
            if pacer.stand(&settings, now).is_ok() {
                pacer.take(&settings, now);
                granted.push(now);
            }
        }
        let most = u64::from(burst.unwrap_or((calls / 10).max(1)));
        for (first, from) in granted.iter().enumerate() {
            for (count, until) in (1_u64..).zip(&granted[first..]) {
                let elapsed = u64::try_from(until.since(*from).as_millis()).unwrap();
                prop_assert!((count - 1) * 60_000 <= (most - 1) * 60_000 + elapsed * u64::from(calls), "{count} calls");
            }
        }
    }
}

/// What happens to a pacer.
#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    /// The clock jumps back.
    Back(u64),
    /// A call starts if it may.
    Call,
    /// A call starts although it may not.
    Force,
    Note(RateLimits),
}

fn limit() -> impl Strategy<Value = Option<RateLimit>> {
    let limit = prop_oneof![1_u64..100, 1_u64..1_000_000, any::<u64>()];
    let said = (limit, 0_u64..120, 0_u64..120_000).prop_map(|(limit, percent, reset)| RateLimit {
        limit,
        remaining: u64::try_from(u128::from(limit) * u128::from(percent.saturating_sub(20)) / 100).unwrap(),
        reset_after: ms(reset),
    });
    prop::option::weighted(0.6, said)
}

fn limits() -> impl Strategy<Value = RateLimits> {
    let used = prop_oneof![(0_u64..5_000, 0_u64..5_000), (any::<u64>(), any::<u64>())];
    let used = prop::option::of(used.prop_map(|(input_tokens, output_tokens)| Used { input_tokens, output_tokens }));
    let ago = prop_oneof![0_u64..3_000, 0_u64..150_000, any::<u64>()];
    ([limit(), limit(), limit(), limit()], used, ago.clone(), ago).prop_map(|(said, used, came, before)| {
        let [requests, tokens, input_tokens, output_tokens] = said;
        let (came_ago, begun_ago) = (ms(came), ms(came.saturating_add(before)));
        RateLimits { requests, tokens, input_tokens, output_tokens, used, begun_ago, came_ago }
    })
}

fn event(back: u32) -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => prop_oneof![0_u64..50, 0_u64..5_000, 0_u64..200_000].prop_map(Event::Pass),
        back => prop_oneof![0_u64..50, 0_u64..200_000, any::<u64>()].prop_map(Event::Back),
        8 => Just(Event::Call),
        1 => Just(Event::Force),
        3 => limits().prop_map(Event::Note),
    ]
}

fn settings() -> impl Strategy<Value = PaceSettings> {
    (prop::option::of(1_u32..=1_000_000), prop::option::of(1_u32..=100_000))
        .prop_map(|(calls, burst)| pace(calls, burst))
}

/// Lets it happen; whether a call started.
fn step(
    pacer: &mut Pacer,
    event: &Event,
    settings: &PaceSettings,
    now: &mut Timestamp,
) -> Option<Result<(), Duration>> {
    match event {
        Event::Pass(by) => *now = *now + ms(*by),
        Event::Back(by) => *now = *now - ms(*by),
        Event::Force => pacer.take(settings, *now),
        Event::Note(limits) => pacer.note(limits, *now),
        Event::Call => {
            let stand = pacer.stand(settings, *now);
            if stand.is_ok() {
                pacer.take(settings, *now);
            }
            return Some(stand);
        }
    }
    None
}

proptest! {
    #[test]
    fn a_call_is_refused_at_every_moment_before_the_announced_one_and_granted_exactly_at_it(
        settings in settings(),
        events in prop::collection::vec(event(1), 1..80),
        early in 0_u64..1_000,
    ) {
        let (mut pacer, mut now) = (Pacer::default(), T0);
        for event in &events {
            step(&mut pacer, event, &settings, &mut now);
            if let Err(wait) = pacer.stand(&settings, now) {
                prop_assert!(wait > Duration::ZERO);
                let announced = now + wait;
                for early in [ms(1), wait.mul_f64(early as f64 / 1_000.0).max(ms(1))] {
                    let left = pacer.clone().stand(&settings, announced - early);
                    prop_assert_eq!(left.map_err(|left| left.as_millis()), Err(early.as_millis()), "{:?} early", early);
                }
                prop_assert_eq!(pacer.clone().stand(&settings, announced), Ok(()));
                prop_assert!(pacer.status(&settings, now).next_call_seconds.is_some());
            }
        }
    }

    #[test]
    fn headers_only_ever_slow_down_what_the_configuration_allows(
        settings in settings(),
        events in prop::collection::vec(event(1), 1..120),
    ) {
        let (mut told, mut deaf, mut now) = (Pacer::default(), Pacer::default(), T0);
        for event in &events {
            let ours = step(&mut told, event, &settings, &mut now);
            match event {
                Event::Force => deaf.take(&settings, now),
                Event::Call => {
                    let alone = deaf.stand(&settings, now).err().unwrap_or_default();
                    prop_assert!(ours.and_then(Result::err).unwrap_or_default() >= alone);
                    if ours == Some(Ok(())) {
                        deaf.take(&settings, now);
                    }
                }
                Event::Pass(_) | Event::Back(_) | Event::Note(_) => {}
            }
            prop_assert!(told.interval(&settings, now) >= deaf.interval(&settings, now));
        }
    }

    #[test]
    fn whatever_clock_and_headers_do_nobody_waits_for_more_than_two_minutes(
        settings in settings(),
        events in prop::collection::vec(event(3), 1..120),
    ) {
        let (mut pacer, mut now) = (Pacer::default(), T0);
        for event in &events {
            step(&mut pacer, event, &settings, &mut now);
            let wait = pacer.stand(&settings, now).err().unwrap_or_default();
            prop_assert!(wait <= ms(120_000), "{wait:?}");
        }
    }

    #[test]
    fn a_pacer_that_is_stored_and_loaded_between_events_behaves_the_same(
        settings in settings(),
        events in prop::collection::vec(event(1), 1..80),
    ) {
        let (mut kept, mut stored, mut now) = (Pacer::default(), Pacer::default(), T0);
        for event in &events {
            let mut same = now;
            let said = step(&mut kept, event, &settings, &mut now);
            prop_assert_eq!(said, step(&mut stored, event, &settings, &mut same));
            stored = serde_json::from_str(&serde_json::to_string(&stored).unwrap()).unwrap();
            prop_assert_eq!(&kept, &stored);
        }
    }

    #[test]
    fn what_an_answer_says_survives_the_way_to_the_gate(limits in limits()) {
        let text = serde_json::to_string(&limits).unwrap();
        prop_assert_eq!(serde_json::from_str::<RateLimits>(&text).unwrap(), limits);
    }
}

#[test]
fn the_state_stays_small_however_long_it_lives() {
    let (mut rng, settings) = (fastrand::Rng::with_seed(5), pace(Some(1_000_000), Some(100_000)));
    let (mut pacer, mut now, mut largest) = (Pacer::default(), T0, 0);
    let huge = RateLimit { limit: 10_000_000_000, remaining: 0, reset_after: ms(60_000) };
    let said = RateLimits {
        requests: Some(huge),
        tokens: Some(huge),
        input_tokens: Some(huge),
        output_tokens: Some(huge),
        used: Some(Used { input_tokens: u64::MAX, output_tokens: u64::MAX }),
        ..RateLimits::default()
    };
    for event in 0..50_000 {
        pacer.take(&settings, now);
        now = now + ms(rng.u64(0..1_500));
        if rng.u8(0..50) == 0 {
            now = now - ms(rng.u64(0..100_000));
        }
        if event % 50 == 0 {
            pacer.note(&said, now);
            largest = largest.max(serde_json::to_string(&pacer).unwrap().len());
        }
    }
    println!("largest state of a pacer: {largest} bytes");
    assert!(largest < 3_000, "{largest} bytes");
}

/// An upstream with buckets of its own, as the API describes them: requests and input are counted when a call arrives, output
/// when it is over. Half of what it says is old by the time it is heard, and its moments are whole seconds.
struct Upstream {
    limits: [u64; 3],
    /// Requests, input and output tokens left, in 60,000ths; output may go below nothing.
    left: [i64; 3],
    at: u64,
    refused: u32,
}

const CALL_INPUT: u64 = 900;
const CALL_OUTPUT: u64 = 300;

impl Upstream {
    fn new(limits: [u64; 3]) -> Self {
        Self { limits, left: limits.map(|limit| i64::try_from(limit).unwrap() * 60_000), at: 0, refused: 0 }
    }

    fn refill(&mut self, now: u64) {
        for (left, limit) in self.left.iter_mut().zip(self.limits) {
            let limit = i64::try_from(limit).unwrap();
            *left = (*left + limit * i64::try_from(now - self.at).unwrap()).min(limit * 60_000);
        }
        self.at = now;
    }

    /// A call arrives; what its headers say.
    fn arrive(&mut self, now: u64) -> RateLimits {
        self.refill(now);
        let needs = [1, CALL_INPUT, 0].map(|need| i64::try_from(need).unwrap() * 60_000);
        if self.left.iter().zip(needs).all(|(left, need)| *left >= need.max(1)) {
            self.left.iter_mut().zip(needs).for_each(|(left, need)| *left -= need);
        } else {
            self.refused += 1;
        }
        let [requests, input_tokens, output_tokens] = [0, 1, 2].map(|of| {
            let (limit, left) = (self.limits[of], u64::try_from(self.left[of].max(0)).unwrap());
            let full_in = (limit * 60_000 - left).div_ceil(limit);
            let reset_after = ms((now + full_in).div_ceil(1_000) * 1_000 - now);
            Some(RateLimit { limit, remaining: left / 60_000, reset_after })
        });
        RateLimits { requests, input_tokens, output_tokens, ..RateLimits::default() }
    }
}

/// We want to call all the time, for ten minutes; (our calls that were served, those that were refused) after the first two.
fn run(limits: [u64; 3], others_every_ms: Option<u64>, settings: &PaceSettings) -> (u32, u32) {
    let (mut upstream, mut pacer, mut rng) = (Upstream::new(limits), Pacer::default(), fastrand::Rng::with_seed(1));
    // When, what, and when it had begun: a call arrives (0); headers come, of one that is served (1) or refused (2); it is over (3).
    let mut due: Vec<(u64, u8, u64, RateLimits)> = Vec::new();
    let (mut served, mut refused) = (0, 0);
    for now in 0..600_000 {
        if now == 120_000 {
            (served, refused) = (0, 0);
        }
        if others_every_ms.is_some_and(|every| now % every == 0) {
            upstream.arrive(now);
        }
        let (mut ripe, later): (Vec<_>, Vec<_>) = due.into_iter().partition(|(at, ..)| *at <= now);
        due = later;
        ripe.sort_by_key(|(at, what, begun, _)| (*at, *what, *begun));
        for (_, what, begun, said) in ripe {
            match what {
                0 => {
                    let refused_before = upstream.refused;
                    let said = upstream.arrive(now);
                    let what = if upstream.refused == refused_before { 1 } else { 2 };
                    if what == 1 {
                        served += 1;
                    } else {
                        refused += 1;
                    }
                    due.push((now + rng.u64(50..1_000), what, begun, said));
                }
                1 | 2 => {
                    pacer.note(&RateLimits { begun_ago: ms(now - begun), ..said }, T0 + ms(now));
                    if what == 1 {
                        due.push((now + rng.u64(500..4_000), 3, begun, said));
                    }
                }
                _ => {
                    upstream.refill(now);
                    upstream.left[2] -= i64::try_from(CALL_OUTPUT).unwrap() * 60_000;
                    let used = Some(Used { input_tokens: CALL_INPUT, output_tokens: CALL_OUTPUT });
                    pacer.note(&RateLimits { used, ..RateLimits::default() }, T0 + ms(now));
                }
            }
        }
        // Forty in flight is what another limit allows while nothing is known yet.
        while due.len() < 40 && pacer.stand(settings, T0 + ms(now)).is_ok() {
            pacer.take(settings, T0 + ms(now));
            due.push((now + rng.u64(20..200), 0, now, RateLimits::default()));
        }
    }
    (served, refused)
}

#[test]
fn against_an_upstream_that_counts_nearly_everything_it_allows_is_used_and_nearly_nothing_refused() {
    const ANY: u64 = 1_000_000;
    for (limits, others, per_minute, refused_percent) in [
        ([50, ANY, ANY], None, 50, 1),
        ([600, ANY, ANY], None, 600, 1),
        ([ANY, 90_000, ANY], None, 100, 1),
        ([ANY, ANY, 30_000], None, 100, 1),
        // Half of it is used by somebody else, of whom we hear only afterwards: here Retry-After has to help.
        ([100, ANY, ANY], Some(1_200), 50, 30),
    ] {
        let (served, refused) = run(limits, others, &pace(None, None));
        let possible = per_minute * 8;
        println!("{limits:?}, others every {others:?} ms: {served} of {possible} served, {refused} refused");
        assert!(served * 100 >= possible * 95, "{limits:?}: only {served} calls");
        assert!(served * 100 <= possible * 102, "{limits:?}: {served} calls");
        assert!(refused * 100 <= (served + refused) * refused_percent, "{limits:?}: {refused} refused");
    }
    let (served, _) = run([600, ANY, ANY], None, &pace(Some(30), None));
    assert_eq!(served, 30 * 8, "the configuration is tighter");
}

#[test]
fn an_upstream_with_plenty_left_costs_no_wait_at_all() {
    let mut upstream = Upstream::new([4_000, 4_000_000, 800_000]);
    let (mut pacer, settings, mut rng) = (Pacer::default(), pace(None, None), fastrand::Rng::with_seed(2));
    let mut now = 0;
    for call in 0..5_000 {
        now += rng.u64(0..60);
        assert_eq!(pacer.stand(&settings, T0 + ms(now)), Ok(()), "call {call}");
        pacer.take(&settings, T0 + ms(now));
        let said = upstream.arrive(now);
        upstream.left[2] -= i64::try_from(CALL_OUTPUT).unwrap() * 60_000;
        let used = Some(Used { input_tokens: CALL_INPUT, output_tokens: CALL_OUTPUT });
        pacer.note(&RateLimits { used, ..said }, T0 + ms(now));
    }
    assert_eq!(upstream.refused, 0);
}
