//! How many calls may be on their way at once.
//!
//! **The limit** is learnt, since nobody tells what the platform bears today:
//! - it starts at `start_in_flight` (8), after a trip at 1;
//! - it rises by one per success while it is in use (at least half of it), which doubles it per window of as many successes as
//!   it is high (slow start); by two, while a third of the calls on their way began at least two latencies ago: they go on
//!   streaming and make no room for the next window, which would be one call at a time;
//! - an overload cuts it to 0.7, at most once per latency, because those that were sent together are refused together and say
//!   one thing; but never below the most calls that were being answered together in the last minute: so many the upstream has
//!   just been seen to bear. An upstream that is full is found to the call that way: the one that was too many is refused, and
//!   the limit is what was answered beside it. In a brown-out, which fewer calls would not end, nothing is cut; where the
//!   floor is still too many, the limit is eased: [`super::easing`] tells which it is;
//! - after a cut it feels its way ([`super::careful`]);
//! - an acceleration 429 says that the ramp itself is too steep: for ten minutes there is no doubling, and each step takes four
//!   times as long.
//!
//! Who gets a free slot of it: [`super::shares`].
//!
//! Stragglers, granted before a trip, do not use up the slow start's limit.

use std::time::Duration;

use super::answer::PermitId;
use super::careful::Careful;
use super::durations::Durations;
use super::easing::Easing;
use super::permits::{Permit, Permits};
use super::priority::Priority;
use super::served::Served;
use super::settings::{MAX_IN_FLIGHT, PaceSettings};
use super::shares::Shares;
use super::time::Timestamp;
use crate::json;

/// The permits and the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// Who has a permit.
    pub permits: Permits,
    /// Nothing learnt yet: the start.
    limit: Option<u32>,
    /// What the upstream bore, as far as is known.
    full: Option<u32>,
    /// Since a cut or an acceleration 429: no doubling.
    careful: Option<Careful>,
    easing: Easing,
    accelerated_until: Timestamp,
    last_cut: Timestamp,
    served: Served,
    durations: Durations,
}

json::object!(default InFlight { permits, limit, full, careful, easing, accelerated_until, last_cut, served, durations });

impl InFlight {
    /// How many calls may be in flight.
    #[must_use]
    pub fn limit(&self, settings: &PaceSettings) -> u32 {
        self.easing.ease(self.found(settings))
    }

    /// The limit before it is eased.
    fn found(&self, settings: &PaceSettings) -> u32 {
        self.limit.unwrap_or(settings.start_in_flight).clamp(1, settings.max())
    }

    /// What the upstream bore, as far as is known: what the limit comes to without a new cut.
    #[must_use]
    pub fn full(&self, settings: &PaceSettings) -> Option<u32> {
        let most = settings.max();
        self.full.map(|full| full.clamp(1, most)).or((most < MAX_IN_FLIGHT).then_some(most))
    }

    /// Whether there is no slot for one more of this priority. `waits`: whether others of a priority are asleep for one.
    #[must_use]
    pub fn is_full(
        &self,
        priority: Priority,
        waits: impl Fn(Priority) -> bool,
        now: Timestamp,
        settings: &PaceSettings,
    ) -> bool {
        let limit = self.limit(settings);
        let doubles = self.careful.is_none() && limit < settings.max();
        let shares = Shares { permits: &self.permits, limit, doubles };
        self.permits.stored() >= MAX_IN_FLIGHT || shares.is_full(priority, waits, now)
    }

    /// How long until one of the calls on their way makes room for another, about.
    #[must_use]
    pub fn slot(&self, settings: &PaceSettings) -> Duration {
        self.call() / self.limit(settings)
    }

    /// Whether more than a twentieth of the limit is not used.
    #[must_use]
    pub fn has_room(&self, settings: &PaceSettings) -> bool {
        self.permits.current() * 20 < self.limit(settings) * 19
    }

    /// Whether an overload has cut it, or would have, within the last minute.
    #[must_use]
    pub fn was_cut(&self, now: Timestamp) -> bool {
        self.last_cut != Timestamp::default() && now.since(self.last_cut) < TIGHT_FOR
    }

    /// First content: remembers how long it took, and raises the limit if that is in use.
    pub fn content(&mut self, id: PermitId, now: Timestamp, settings: &PaceSettings) {
        let Some(permit) = self.permits.content(id) else { return };
        self.durations.content(now.since(permit.granted));
        if permit.straggler {
            return;
        }
        let served = permit.together();
        self.served.note(served, now);
        self.judge(false, now, settings);
        let limit = self.found(settings).max(served.min(settings.max()));
        self.limit = self.limit.map(|_| limit);
        if self.permits.current().saturating_mul(2) < limit || self.easing.is_on() {
            return;
        }
        let times = if self.accelerated_until > now { 4 } else { 1 };
        let streaming = self.permits.streaming(self.latency() * 2, now);
        let doubling = if streaming * 3 < self.permits.current() { 1 } else { 2 };
        let step = self.careful.as_mut().map_or(Some(doubling), |careful| careful.succeed(limit, times));
        let Some(step) = step else { return };
        let limit = limit.saturating_add(step).min(settings.max());
        self.limit = Some(limit);
        self.full = self.full.map(|full| full.max(limit));
    }

    /// A call ended well: remembers how long it took.
    pub fn finished(&mut self, permit: Permit, now: Timestamp) {
        self.durations.end(now.since(permit.granted));
    }

    /// Whether the upstream, which has refused a call after `refusal`, is answering others: at least two fifths of the most
    /// that it answered lately.
    pub fn is_answering(&mut self, refusal: Duration, now: Timestamp) -> bool {
        let (answered, most) = (self.permits.lasting(refusal, now), self.served.most(now));
        answered > 0 && answered.saturating_mul(5) >= most.saturating_mul(2)
    }

    /// An overload, after `refusal`: cuts the limit, at most once per latency.
    pub fn cut(&mut self, refusal: Duration, now: Timestamp, settings: &PaceSettings) {
        let answered = self.permits.lasting(refusal.saturating_mul(OUTLIVED), now);
        self.served.note(answered, now);
        let most = self.served.most(now);
        if self.easing.scatter(answered, most) {
            return;
        }
        self.judge(true, now, settings);
        let limit = self.found(settings);
        self.last_cut = self.last_cut.min(now);
        if now.since(self.last_cut) < self.latency() {
            return;
        }
        let served = self.easing.undo(most);
        let cut = (limit * CUT_TENTHS / 10).max(served).clamp(1, limit);
        (self.limit, self.last_cut) = (Some(cut), now);
        // That it answers some and refuses more shows what it bears; that it refuses all shows nothing.
        if most > 0 {
            self.full = Some(cut);
        }
        if cut < limit || self.careful.is_none() {
            self.careful = Some(Careful::default());
        }
    }

    /// A call has come to content or was refused: is it too many calls at once? Only what happens at the limit tells.
    fn judge(&mut self, refused: bool, now: Timestamp, settings: &PaceSettings) {
        if !self.has_room(settings) {
            self.easing.note(refused, self.limit(settings), now);
        }
    }

    /// The upstream says that we ramp too fast.
    pub fn decelerate(&mut self, now: Timestamp) {
        self.accelerated_until = now + ACCELERATION_PAUSE;
        self.careful = Some(Careful::default());
    }

    /// The breaker tripped: all that is on its way belongs to the past, and the next start is slow.
    pub fn trip(&mut self) {
        self.permits.outdate();
        self.full = self.full.max(self.limit.filter(|limit| *limit > 1));
        self.easing.forget();
        (self.limit, self.careful, self.served) = (Some(1), None, Served::default());
    }

    /// From grant to first content, about; kept within bounds that make sense as a pace.
    #[must_use]
    pub fn latency(&self) -> Duration {
        self.durations.to_content()
    }

    /// From grant to the end, about.
    #[must_use]
    pub fn call(&self) -> Duration {
        self.durations.to_end()
    }
}

/// For how long an acceleration 429 keeps the ramp flat.
const ACCELERATION_PAUSE: Duration = Duration::from_secs(600);
/// A call that has lasted this many times as long as a refusal is no refusal.
const OUTLIVED: u32 = 3;
/// So long after a cut there may be too little room again.
const TIGHT_FOR: Duration = Duration::from_secs(60);
/// × 0.7.
const CUT_TENTHS: u32 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(120);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + ms)
    }

    fn fill(in_flight: &mut InFlight, settings: &PaceSettings, now: Timestamp) -> Vec<PermitId> {
        let mut granted = Vec::new();
        while !in_flight.is_full(Priority::Medium, |_| false, now, settings) {
            granted.push(in_flight.permits.grant(Priority::Medium, LEASE, now));
        }
        granted
    }

    /// One window: everything that fits is granted, comes to content and ends.
    fn window(in_flight: &mut InFlight, settings: &PaceSettings, now: Timestamp) -> usize {
        let granted = fill(in_flight, settings, now);
        for &id in &granted {
            in_flight.content(id, now + Duration::from_millis(500), settings);
        }
        for &id in &granted {
            let permit = in_flight.permits.release(id, at(0)).unwrap();
            in_flight.finished(permit, now + Duration::from_secs(1));
        }
        granted.len()
    }

    #[test]
    fn the_limit_starts_at_8_and_doubles_per_success_window_up_to_the_maximum() {
        let (mut in_flight, settings) = (InFlight::default(), PaceSettings::default());
        let sizes: Vec<_> = (0..8).map(|round| window(&mut in_flight, &settings, at(round * 1000))).collect();
        assert_eq!(sizes, [8, 16, 32, 64, 128, 256, 512, 512]);
        assert_eq!((in_flight.latency(), in_flight.call()), (Duration::from_millis(500), Duration::from_secs(1)));
        assert_eq!(in_flight.full(&settings), None, "it has never met its match");
        let (mut in_flight, settings) = (InFlight::default(), PaceSettings { max_in_flight: Some(5), ..settings });
        assert_eq!([(); 2].map(|()| window(&mut in_flight, &settings, at(0))), [5, 5]);
        assert_eq!(in_flight.full(&settings), Some(5));
    }

    #[test]
    fn after_a_trip_it_starts_at_1_and_stragglers_do_not_count() {
        let (mut in_flight, settings) = (InFlight::default(), PaceSettings::default());
        let before = fill(&mut in_flight, &settings, at(0));
        in_flight.trip();
        in_flight.trip();
        let sizes: Vec<_> = (0..4).map(|_| window(&mut in_flight, &settings, at(0))).collect();
        assert_eq!(sizes, [1, 2, 4, 8]);
        assert_eq!(in_flight.full(&settings), None, "one call says nothing about what it bears");
        in_flight.trip();
        assert_eq!(in_flight.full(&settings), Some(16), "what it bore is known");
        assert!(before.iter().all(|&id| in_flight.permits.get(id).unwrap().straggler));
        assert_eq!(in_flight.permits.live(at(0)), 8);
    }

    #[test]
    fn a_stragglers_content_says_nothing_about_how_many_more_may_come() {
        let (mut in_flight, settings) = (InFlight::default(), PaceSettings::default());
        let before = fill(&mut in_flight, &settings, at(0));
        in_flight.trip();
        fill(&mut in_flight, &settings, at(0));
        for &id in &before {
            in_flight.content(id, at(10), &settings);
        }
        assert_eq!(in_flight.limit(&settings), 1);
    }

    #[test]
    fn a_limit_that_is_not_used_does_not_rise() {
        let (mut in_flight, settings) = (InFlight::default(), PaceSettings::default());
        for _ in 0..100 {
            let id = in_flight.permits.grant(Priority::High, LEASE, at(0));
            in_flight.content(id, at(10), &settings);
            in_flight.permits.release(id, at(0));
        }
        assert_eq!(in_flight.limit(&settings), 8);
    }

    #[test]
    fn a_refusal_that_cuts_nothing_does_not_make_it_feel_its_way_anew() {
        let (mut in_flight, settings) =
            (InFlight::default(), PaceSettings { start_in_flight: 10, ..PaceSettings::default() });
        in_flight.cut(Duration::from_secs(60), at(100_000), &settings);
        assert_eq!(window(&mut in_flight, &settings, at(110_000)), 7);
        in_flight.cut(Duration::from_secs(60), at(120_000), &settings);
        assert_eq!([(); 3].map(|()| window(&mut in_flight, &settings, at(120_000))), [7, 8, 9]);
    }

    #[test]
    fn an_overload_cuts_once_per_latency_and_then_the_limit_feels_its_way() {
        let (mut in_flight, settings) = (InFlight::default(), PaceSettings::default());
        window(&mut in_flight, &settings, at(0));
        window(&mut in_flight, &settings, at(0));
        assert_eq!((in_flight.limit(&settings), in_flight.latency()), (32, Duration::from_millis(500)));
        for (ms, limit) in [(100_000, 22), (100_001, 22), (100_499, 22), (100_500, 15), (110_000, 10)] {
            in_flight.cut(Duration::from_secs(60), at(ms), &settings);
            assert_eq!(in_flight.limit(&settings), limit, "{ms} ms");
        }
        let sizes: Vec<_> = (130..138).map(|round| window(&mut in_flight, &settings, at(round * 1000))).collect();
        assert_eq!(sizes, [10, 10, 11, 12, 14, 17, 21, 26]);
        assert_eq!(in_flight.full(&settings), None, "nothing was answered when it was cut");
    }

    #[test]
    fn an_acceleration_429_ends_the_doubling_and_makes_each_step_take_four_times_as_long() {
        let (mut in_flight, settings) = (InFlight::default(), PaceSettings::default());
        in_flight.decelerate(at(0));
        let sizes: Vec<_> = (0..14).map(|round| window(&mut in_flight, &settings, at(round * 1000))).collect();
        assert_eq!(sizes, [8, 8, 8, 8, 8, 8, 8, 8, 9, 9, 9, 9, 10, 10]);
        assert_eq!(window(&mut in_flight, &settings, at(599_500)), 10, "content comes at ten minutes");
        assert_eq!(window(&mut in_flight, &settings, at(600_000)), 12);
    }

    #[test]
    fn slots_are_kept_for_sleepers_once_the_limit_has_been_found_or_is_the_configured_one() {
        let kept = |limit: u32, max_in_flight, is_found: bool| {
            let settings = PaceSettings { start_in_flight: limit, max_in_flight, ..PaceSettings::default() };
            let mut in_flight = InFlight { careful: is_found.then(Careful::default), ..InFlight::default() };
            while !in_flight.is_full(Priority::Medium, |_| true, at(0), &settings) {
                in_flight.permits.grant(Priority::Medium, LEASE, at(0));
            }
            in_flight.permits.current() < limit - 1
        };
        let cases = [(10, None, false), (10, Some(11), false), (10, Some(10), false), (10, None, true)];
        assert_eq!(cases.map(|(limit, max, is_found)| kept(limit, max, is_found)), [false, false, true, true]);
    }

    #[test]
    fn from_a_third_of_old_streams_on_each_success_raises_the_limit_by_two() {
        for (old, step) in [(2, 1), (3, 2), (4, 2)] {
            let (mut in_flight, settings) =
                (InFlight::default(), PaceSettings { start_in_flight: 9, ..PaceSettings::default() });
            for n in 0..9 {
                let id = in_flight.permits.grant(Priority::Medium, LEASE, at(if n < old { 0 } else { 60_000 }));
                if n < old {
                    in_flight.permits.content(id);
                }
            }
            let newest = in_flight.permits.newest();
            in_flight.content(newest, at(61_000), &settings);
            assert_eq!(in_flight.limit(&settings), 9 + step, "{old} of nine");
        }
    }

    #[test]
    fn calls_that_go_on_streaming_do_not_keep_the_limit_from_doubling_with_each_latency() {
        let (mut in_flight, settings) = (InFlight::default(), PaceSettings::default());
        in_flight.trip();
        let mut sizes = Vec::new();
        for round in 0..6 {
            let now = at(round * 2_000);
            let granted = fill(&mut in_flight, &settings, now);
            for &id in &granted {
                in_flight.content(id, now + Duration::from_secs(2), &settings);
            }
            sizes.push(granted.len());
        }
        assert_eq!(sizes, [1, 1, 2, 4, 8, 16]);
    }

    #[test]
    fn a_full_upstream_is_found_to_the_call() {
        let (mut in_flight, settings) =
            (InFlight::default(), PaceSettings { start_in_flight: 10, ..Default::default() });
        in_flight.decelerate(at(0));
        let ids = fill(&mut in_flight, &settings, at(100_000));
        // It bears nine: the fifth was too many. The first has ended before the others come to content.
        in_flight.permits.unserved(ids[4]);
        for &id in [4, 0].map(|index| &ids[index]) {
            in_flight.permits.release(id, at(0));
        }
        for &id in &ids {
            in_flight.content(id, at(100_500), &settings);
        }
        in_flight.cut(Duration::from_millis(300), at(101_000), &settings);
        assert_eq!((in_flight.limit(&settings), in_flight.full(&settings)), (9, Some(9)));
        in_flight.permits.expire(Duration::ZERO, at(102_000));
        for _ in 0..10 {
            window(&mut in_flight, &settings, at(102_000));
        }
        assert_eq!(in_flight.full(&settings), Some(in_flight.limit(&settings)), "it bears more than it seemed");
        assert!(in_flight.limit(&settings) > 9);
        assert_eq!(in_flight.full(&PaceSettings { max_in_flight: Some(5), ..settings }), Some(5));
    }

    #[test]
    fn a_clock_that_ran_back_does_not_put_off_the_next_cut() {
        let (mut in_flight, settings) = (InFlight::default(), PaceSettings::default());
        let cuts = [1_000_000, 0, 3_000].map(|ms| {
            in_flight.cut(Duration::from_secs(60), at(ms), &settings);
            in_flight.limit(&settings)
        });
        assert_eq!(cuts, [5, 5, 3]);
    }

    #[test]
    fn it_is_answering_while_two_fifths_of_the_most_are_or_have_outlived_the_refusal() {
        let (mut in_flight, settings) = (InFlight::default(), PaceSettings::default());
        let now = at(100_000);
        assert!(!in_flight.is_answering(Duration::ZERO, now), "nothing is nobody's two fifths");
        let ids: Vec<_> = (0..10).map(|_| in_flight.permits.grant(Priority::Low, LEASE, now)).collect();
        for &id in &ids {
            in_flight.content(id, now, &settings);
        }
        for &id in &ids[..6] {
            in_flight.permits.release(id, at(0));
        }
        assert!(in_flight.is_answering(Duration::from_secs(60), at(100_100)), "four of ten");
        in_flight.permits.release(ids[6], at(0));
        assert!(!in_flight.is_answering(Duration::from_secs(60), at(100_100)), "three of ten");
        in_flight.permits.grant(Priority::Low, LEASE, now);
        assert!(in_flight.is_answering(Duration::from_millis(99), at(100_100)), "one has lasted longer");
        assert!(!in_flight.is_answering(Duration::from_millis(100), at(100_100)));
    }

    #[test]
    fn a_cut_never_goes_below_what_was_answered_at_the_same_time_in_the_last_minute() {
        let (mut in_flight, settings) = (InFlight::default(), PaceSettings::default());
        let answered = fill(&mut in_flight, &settings, at(0));
        for &id in answered.iter().take(7) {
            in_flight.content(id, at(100), &settings);
        }
        for &id in &answered {
            in_flight.permits.release(id, at(0));
        }
        let mut cut = |ms| {
            in_flight.cut(Duration::from_secs(60), at(ms), &settings);
            in_flight.limit(&settings)
        };
        assert_eq!([10_000, 20_000, 29_000].map(&mut cut), [10, 7, 7]);
        assert_eq!([90_000, 100_000].map(&mut cut), [4, 2], "a minute later that is forgotten");
    }

    #[test]
    fn what_is_being_answered_at_the_same_time_lifts_a_limit_that_was_cut_below_it() {
        let (mut in_flight, settings) = (InFlight::default(), PaceSettings::default());
        let answered = fill(&mut in_flight, &settings, at(0));
        for ms in [2_000, 4_000, 6_000, 8_000] {
            in_flight.cut(Duration::from_secs(60), at(ms), &settings);
        }
        assert_eq!(in_flight.limit(&settings), 1);
        for &id in &answered {
            in_flight.content(id, at(15_000), &settings);
        }
        assert!(in_flight.limit(&settings) >= 8);
    }

    #[test]
    fn calls_that_have_outlived_the_refused_one_hold_the_limit_up() {
        let (mut in_flight, settings) = (InFlight::default(), PaceSettings::default());
        for ms in [0, 0, 0, 0, 0, 0, 880, 940] {
            in_flight.permits.grant(Priority::Low, LEASE, at(100_000 + ms));
        }
        // The refused call took 60 ms: six have lasted more than 180 ms, two have not.
        in_flight.cut(Duration::from_millis(60), at(101_000), &settings);
        assert_eq!(in_flight.limit(&settings), 6);
    }
}
