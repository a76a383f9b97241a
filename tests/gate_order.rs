//! Whom the gate holds when it serves at all: the in-flight limit and its easing, the order, and who leaves.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)] // a test may fail

use std::time::Duration;

use spillway::policy::answer::{Asking, Decision, Ended, Held, HoldReason, PermitId, Report, Verdict};
use spillway::policy::cause::Cause;
use spillway::policy::forced::{Order, Side};
use spillway::policy::gate::Gate;
use spillway::policy::inflight::InFlight;
use spillway::policy::priority::Priority;
use spillway::policy::rate_limits::RateLimits;
use spillway::policy::settings::{BackoffSettings, GateSettings, PaceSettings};
use spillway::policy::slots::Ticket;
use spillway::policy::time::Timestamp;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const JOB: Asking = Asking {
    priority: Priority::Medium,
    may_leave: false,
    ticket: None,
    again: false,
    in_passing: false,
    dwell_ms: None,
};
const LEAVES: Asking = Asking { may_leave: true, ..JOB };

/// A gate with so many slots; all of it happens at one moment.
#[derive(Clone)]
struct Bench {
    gate: Gate,
    settings: GateSettings,
}

impl Bench {
    fn new(slots: u32) -> Self {
        let pace = PaceSettings { start_in_flight: slots, ..PaceSettings::default() };
        Self { gate: Gate::default(), settings: GateSettings { pace, ..GateSettings::default() } }
    }

    fn granted(&mut self, asking: Asking) -> PermitId {
        self.gate.permit(asking, NOW, &self.settings).permit().expect("granted")
    }

    fn held(&mut self, asking: Asking) -> Held {
        match self.gate.permit(asking, NOW, &self.settings) {
            Decision::NotBefore(held) => held,
            decision => panic!("not held: {decision:?}"),
        }
    }

    fn ends(&mut self, permit: PermitId, report: Report) -> Verdict {
        let (limits, backoff) = (RateLimits::default(), BackoffSettings::default());
        let ended = Ended { permit: Some(permit), asking: JOB, report, limits, backoff };
        self.gate.report(&ended, NOW, &mut fastrand::Rng::with_seed(1), &self.settings)
    }

    fn abandons(&mut self, permit: PermitId) {
        self.ends(permit, Report::Abandoned);
    }
}

#[test]
fn who_is_further_behind_than_four_times_the_limit_does_not_overtake_unless_there_is_room_or_he_had_his_turn() {
    let mut bench = Bench::new(40);
    let permits: Vec<_> = (0..40).map(|_| bench.granted(JOB)).collect();
    let held: Vec<_> = (0..200).map(|_| bench.held(JOB)).collect();
    let ticket = |place: usize| Asking { ticket: held[place].ticket, ..JOB };
    bench.abandons(permits[0]);
    bench.abandons(permits[1]);
    assert_eq!(bench.held(ticket(161)).ticket, held[161].ticket, "and he keeps his place");
    assert_eq!(bench.held(JOB).reason, HoldReason::InFlightLimit, "one without a ticket is behind all");
    bench.granted(ticket(160));
    bench.granted(Asking { again: true, ..ticket(199) });
    bench.held(Asking { again: true, ..ticket(199) });
    permits[2..5].iter().for_each(|&permit| bench.abandons(permit));
    bench.granted(ticket(198));
}

#[test]
fn who_asks_in_passing_gets_no_place_that_others_would_wait_behind() {
    let mut bench = Bench::new(1);
    let permit = bench.granted(JOB);
    let passing = Asking { in_passing: true, ..JOB };
    let nobody = bench.held(JOB);
    for again in [false, true] {
        for _ in 0..50 {
            let held = bench.held(Asking { again, ..passing });
            assert_eq!((held.reason, held.ticket), (HoldReason::InFlightLimit, None));
            assert!(held.after >= nobody.after, "it is told how long it would be");
        }
    }
    let (limits, backoff) = (RateLimits::default(), BackoffSettings::default());
    let retry_after = Some(Duration::from_secs(5));
    let report = Report::Failure { cause: Cause::Overloaded, after_content: false, retry_after };
    let ended = Ended { permit: Some(permit), asking: passing, report, limits, backoff };
    bench.gate.report(&ended, NOW, &mut fastrand::Rng::with_seed(1), &bench.settings);
    assert_eq!(bench.held(JOB).ticket, Some(Ticket(1)), "the next one after the job that was first");
}

#[test]
fn when_a_job_will_be_served_is_said_only_while_the_gate_serves() {
    let mut bench = Bench::new(1);
    let permit = bench.granted(JOB);
    assert!(bench.held(JOB).eta.is_some());
    let (limits, backoff) = (RateLimits::default(), BackoffSettings::default());
    let fails = |cause| Report::Failure { cause, after_content: false, retry_after: None };
    let ended = Ended { permit: Some(permit), asking: JOB, report: fails(Cause::SpendCap), limits, backoff };
    bench.gate.report(&ended, NOW, &mut fastrand::Rng::with_seed(1), &bench.settings);
    let held = bench.held(JOB);
    assert_eq!((held.reason, held.eta), (HoldReason::SpendCap, None), "nobody knows when it is raised");
    let mut bench = Bench::new(1);
    let order = Order { state: Side::Open, lasts: Duration::from_secs(60), note: String::new(), author: String::new() };
    bench.gate.force(order, NOW, &bench.settings);
    let held = bench.held(JOB);
    assert_eq!((held.reason, held.eta), (HoldReason::Overridden, None));
}

#[test]
fn a_long_wait_for_a_slot_is_a_reason_to_leave_a_short_one_and_what_the_rate_makes_long_are_none() {
    let mut full = Bench::new(1);
    full.granted(JOB);
    assert_eq!(full.clone().held(LEAVES).after, Duration::from_secs(2), "a call's time");
    for (long_wait_seconds, leaves) in [(1, true), (2, false), (25, false)] {
        let mut bench = full.clone();
        bench.settings.long_wait_seconds = long_wait_seconds;
        let held = bench.held(LEAVES);
        assert_eq!((held.reason, held.leave), (HoldReason::InFlightLimit, leaves), "{long_wait_seconds} s");
        assert_eq!(held.ticket.is_none(), leaves, "who leaves has no place in the order");
    }

    let mut paced = Bench::new(1);
    (paced.settings.pace.calls_per_minute, paced.settings.pace.burst) = (Some(6), Some(10));
    paced.granted(JOB);
    for _ in 0..5 {
        assert_eq!(paced.held(JOB).reason, HoldReason::InFlightLimit);
    }
    let held = paced.held(LEAVES);
    assert_eq!((held.reason, held.leave), (HoldReason::InFlightLimit, false));
    assert!(held.after > Duration::from_secs(20), "although it is told to come when the rate allows: {held:?}");
    paced.settings.pace.burst = Some(1);
    let held = paced.held(LEAVES);
    assert_eq!((held.reason, held.leave), (HoldReason::Pacing, false));
}

#[test]
fn who_leaves_who_waits_and_whose_call_has_failed_are_told_that_jobs_wait_for_long_these_minutes() {
    for (dwell_ms, slow) in [(25_000, false), (25_001, true)] {
        let mut bench = Bench::new(20);
        let asking = Asking { dwell_ms: Some(dwell_ms), ..JOB };
        let permits: Vec<_> = (0..20).map(|_| bench.granted(asking)).collect();
        bench.settings.long_wait_seconds = 0;
        assert_eq!(
            [LEAVES, JOB].map(|asking| bench.held(asking)).map(|held| (held.leave, held.slow)),
            [(true, slow), (false, slow)]
        );
        let failure = Report::Failure { cause: Cause::ServerError, after_content: false, retry_after: None };
        assert_eq!(bench.ends(permits[0], failure).slow, slow);
    }
}

#[test]
fn a_ticket_is_used_up_by_a_grant_and_one_that_was_never_given_is_none() {
    let mut bench = Bench::new(1);
    let permit = bench.granted(JOB);
    assert_eq!([JOB; 3].map(|job| bench.held(job).ticket), [0, 1, 2].map(|ticket| Some(Ticket(ticket))));
    bench.abandons(permit);
    bench.granted(Asking { ticket: Some(Ticket(0)), ..JOB });
    for (shown, given) in [(77, 3), (4, 4), (2, 2)] {
        assert_eq!(bench.held(Asking { ticket: Some(Ticket(shown)), ..JOB }).ticket, Some(Ticket(given)));
    }
    assert_eq!(bench.held(JOB).ticket, Some(Ticket(5)), "no two have the same");
}

/// So many calls on their way, where so many may be.
fn in_flight(
    calls: usize,
    start_in_flight: u32,
    max_in_flight: Option<u32>,
) -> (InFlight, PaceSettings, Vec<PermitId>) {
    let settings = PaceSettings { start_in_flight, max_in_flight, ..PaceSettings::default() };
    let mut in_flight = InFlight::default();
    let ids = (0..calls).map(|_| in_flight.permits.grant(Priority::Low, Duration::from_secs(120), NOW)).collect();
    (in_flight, settings, ids)
}

#[test]
fn a_limit_of_which_half_is_used_rises_and_one_of_which_nineteen_twentieths_are_is_used_up() {
    for (start, calls, limit, room) in
        [(8, 3, 8, true), (8, 4, 9, true), (8, 8, 9, true), (40, 37, 41, true), (40, 39, 41, false)]
    {
        let (mut in_flight, settings, ids) = in_flight(calls, start, None);
        in_flight.content(ids[0], NOW, &settings);
        assert_eq!((in_flight.limit(&settings), in_flight.has_room(&settings)), (limit, room), "{calls} of {start}");
    }
    assert!(!in_flight(38, 40, None).0.has_room(&in_flight(38, 40, None).1));
}

#[test]
fn a_limit_is_eased_where_many_are_refused_with_all_of_it_in_use() {
    for (ended, limit) in [(2, 45), (3, 50)] {
        let (mut in_flight, settings, ids) = in_flight(50, 50, Some(50));
        for &id in &ids {
            in_flight.content(id, NOW, &settings);
        }
        for &id in &ids[..ended] {
            in_flight.permits.release(id, NOW);
        }
        (0..50).for_each(|_| in_flight.cut(Duration::from_secs(60), NOW, &settings));
        assert_eq!(in_flight.limit(&settings), limit, "{ended} of 50 have ended");
        in_flight.trip();
        let first = in_flight.permits.grant(Priority::Low, Duration::from_secs(120), NOW);
        in_flight.content(first, NOW, &settings);
        assert_eq!(in_flight.limit(&settings), 2, "after a trip nothing of it holds the slow start back");
    }
}

#[test]
fn in_a_brown_out_nothing_is_cut() {
    for (answered, limit) in [(60, 60), (30, 70)] {
        let (mut in_flight, settings, ids) = in_flight(100, 100, Some(100));
        for &id in &ids[..60] {
            in_flight.content(id, NOW, &settings);
        }
        for &id in &ids[answered..] {
            in_flight.permits.release(id, NOW);
        }
        for after in [0; 20].into_iter().chain([10]) {
            in_flight.cut(Duration::from_secs(60), NOW + Duration::from_secs(after), &settings);
        }
        assert_eq!(in_flight.limit(&settings), limit, "{answered} of the 60 are still being answered");
    }
}

#[test]
fn five_hundred_and_twelve_are_the_most_that_are_remembered_stragglers_or_not() {
    let (mut in_flight, settings, _) = in_flight(512, 8, None);
    in_flight.trip();
    assert!(Priority::ALL.into_iter().all(|priority| in_flight.is_full(priority, |_| false, NOW, &settings)));
    in_flight.permits.expire(Duration::ZERO, NOW);
    assert!(!in_flight.is_full(Priority::Low, |_| false, NOW, &settings));
}

#[test]
fn who_was_called_for_before_is_the_first_again_while_the_gate_is_closed() {
    let mut bench = Bench::new(1);
    bench.granted(JOB);
    let held: Vec<_> = (0..50).map(|_| bench.held(JOB)).collect();
    let again = bench.held(Asking { again: true, ..JOB });
    assert_eq!(again.after, held[0].after);
    assert!(held[49].after > held[0].after);
}

#[test]
fn who_was_called_for_before_and_waited_in_the_order_leaves_it_with_his_next_call() {
    let mut bench = Bench::new(1);
    let order = Order { state: Side::Open, lasts: Duration::from_secs(60), note: String::new(), author: String::new() };
    bench.gate.force(order, NOW, &bench.settings);
    let [first, second] = [Asking { again: true, ..JOB }, JOB].map(|asking| bench.held(asking));
    bench.gate.release(NOW, &bench.settings);
    bench.granted(Asking { again: true, ticket: first.ticket, ..JOB });
    let at_the_head = bench.clone().held(Asking { again: true, ..JOB });
    assert_eq!(bench.held(Asking { ticket: second.ticket, ..JOB }).after, at_the_head.after);
}
