//! The laws of a job's record, over random histories: messages late, doubled and lost, consumers that die or come back from
//! the dead, effects that are not done, a clock that jumps and runs backwards. One law a test; `world` plays the histories.
//!
//! A property only says that nothing bad happens. That the good thing does happen, an end for every job, is driven to
//! its end from whatever state a history has left behind (`never_lost`).

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may panic")]

mod deferral;
mod drafts;
mod listing;
mod never_lost;
mod redrive;
mod webhooks;
mod world;

use std::time::Duration;

use proptest::prelude::*;
use spillway::job::{Claim, Claimed, Effect, Ending, Hold, JobId, Record, Renewal, Settlement, Then};
use spillway::policy::answer::HoldReason;
use spillway::policy::time::Timestamp;
use world::{
    CONTENT, Op, PRIORITY, Step, T0, TIMING, World, deadlines, histories, instant, job, run, stored, tick, turn,
    visible,
};

/// The arrows of the state diagram, without those that stay where they are.
const ARROWS: [(&str, &[&str]); 7] = [
    ("received", &["generating", "retrying", "held", "stalled", "deferred", "done", "failed", "cancelled"]),
    ("generating", &["refining", "retrying", "held", "stalled", "deferred", "done", "failed", "cancelled"]),
    ("refining", &["retrying", "held", "stalled", "deferred", "done", "failed", "cancelled"]),
    ("retrying", &["generating", "held", "stalled", "deferred", "done", "failed", "cancelled"]),
    ("held", &["generating", "retrying", "stalled", "deferred", "done", "failed", "cancelled"]),
    ("stalled", &["deferred", "failed", "cancelled"]),
    ("deferred", &["generating", "retrying", "held", "stalled", "done", "failed", "cancelled"]),
];

fn is_allowed(from: &str, to: &str) -> bool {
    from == to || ARROWS.iter().any(|(state, next)| *state == from && next.contains(&to))
}

fn is_write(op: &Op) -> bool {
    matches!(op, Op::Begin(_) | Op::Renew(_) | Op::Refine(_) | Op::Interrupted(_) | Op::Settle(..))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_terminal_state_never_changes(deadline in deadlines(), history in histories()) {
        for Step { before, after, op, .. } in run(deadline, history).1 {
            if before.state.is_terminal() {
                let is_erased = before.erased || after.erased;
                prop_assert!(is_erased || before.state == after.state, "{:?}", op);
                prop_assert_eq!(before.state.name(), after.state.name(), "{:?}", op);
                prop_assert_eq!(before.finished_at, after.finished_at, "{:?}", op);
                prop_assert_eq!((before.attempts, before.calls), (after.attempts, after.calls), "{:?}", op);
                prop_assert_eq!(&before.history, &after.history, "{:?}", op);
            }
        }
    }

    #[test]
    fn a_status_never_moves_backwards_but_into_waiting(deadline in deadlines(), history in histories()) {
        for Step { before, after, op, .. } in run(deadline, history).1 {
            let (from, to) = (before.state.name(), after.state.name());
            prop_assert!(is_allowed(from, to), "{:?}: {} to {}", op, from, to);
        }
    }

    #[test]
    fn at_most_one_token_is_live(deadline in deadlines(), history in histories()) {
        let mut world = World::new(deadline);
        for op in history {
            let step = world.step(op);
            let renews = |token| {
                let mut record = world.record.clone();
                record.renew(token, world.now, &TIMING) == Renewal::Renewed
            };
            let live: Vec<_> = world.tokens.iter().copied().filter(|token| renews(*token)).collect();
            prop_assert_eq!(&live, &Vec::from_iter(step.live.1), "{:?}", step.op);
            // The live one is the newest: an older one never comes back.
            prop_assert!(live.is_empty() || live.last() == world.tokens.last());
        }
    }

    #[test]
    fn what_an_older_token_writes_is_void_and_changes_nothing(deadline in deadlines(), history in histories()) {
        for step in run(deadline, history).1 {
            if is_write(&step.op) && step.used.is_some() && step.used != step.live.0 {
                let is_void = ["Void", "Fenced", "Cancelled", "begun before"].contains(&step.outcome.as_str());
                prop_assert!(is_void, "{:?}", step);
                prop_assert_eq!(stored(&step.before), stored(&step.after), "{:?}", step.op);
            }
        }
    }

    #[test]
    fn only_the_live_token_moves_a_job_forward(deadline in deadlines(), history in histories()) {
        for Step { op, used, live, outcome, .. } in run(deadline, history).1 {
            if is_write(&op) && used.is_some() && used == live.0 {
                let took = ["Go", "Renewed", "Stored", "GoOn", "begun before"].contains(&outcome.as_str());
                prop_assert!(took, "{:?}: {}", op, outcome);
            }
        }
    }

    #[test]
    fn a_message_for_another_turn_is_stale_and_changes_nothing(deadline in deadlines(), history in histories()) {
        for Step { before, after, op, outcome, .. } in run(deadline, history).1 {
            if let Op::Claim(by) = op && turn(&before).saturating_add_signed(by) != turn(&before) {
                let expected = if before.state.is_terminal() { "finished" } else { "stale_turn" };
                prop_assert_eq!(outcome, expected);
                prop_assert_eq!(stored(&before), stored(&after));
            }
        }
    }

    #[test]
    fn a_confirmation_for_another_turn_confirms_nothing(deadline in deadlines(), history in histories()) {
        for Step { before, after, op, .. } in run(deadline, history).1 {
            if let Op::Announced(by) = op && turn(&before).saturating_add_signed(by) != turn(&before) {
                prop_assert_eq!(stored(&before), stored(&after));
            }
        }
    }

    #[test]
    fn a_turn_is_not_claimed_while_it_is_leased_or_before_its_time(deadline in deadlines(), history in histories()) {
        for Step { before, op, outcome, now, .. } in run(deadline, history).1 {
            if matches!(op, Op::Claim(_)) && outcome == "claimed" {
                prop_assert!(instant(&before, "/lease/until").is_none_or(|until| until <= now));
                prop_assert!(instant(&before, "/wake_at").unwrap() <= now + Duration::from_secs(2));
            }
        }
    }

    #[test]
    fn the_revision_never_falls_and_rises_with_every_visible_change(deadline in deadlines(), history in histories()) {
        for Step { before, after, op, now, .. } in run(deadline, history).1 {
            prop_assert!(after.revision >= before.revision, "{:?}", op);
            // Of an erased job nothing is visible, whatever its revision.
            if !after.is_gone() && visible(&before, now) != visible(&after, now) {
                prop_assert!(after.revision > before.revision, "{:?}", op);
                prop_assert_eq!(after.updated_at, now, "{:?}", op);
            }
        }
    }

    #[test]
    fn attempts_calls_and_the_turn_never_fall_but_a_deferral_gives_fresh_attempts(
        deadline in deadlines(), history in histories(),
    ) {
        for Step { before, after, op, .. } in run(deadline, history).1 {
            prop_assert!(after.attempts >= before.attempts || after.deferrals > before.deferrals, "{:?}", op);
            prop_assert!(after.calls >= before.calls && after.calls <= before.calls + 1, "{:?}", op);
            prop_assert!(after.uncounted_calls >= before.uncounted_calls, "{:?}", op);
            prop_assert!(turn(&after) >= turn(&before) && turn(&after) <= turn(&before) + 1, "{:?}", op);
        }
    }

    #[test]
    fn a_record_that_was_stored_behaves_like_the_one_in_memory(deadline in deadlines(), history in histories()) {
        let mut world = World::new(deadline);
        for op in history {
            let mut reloaded = world.clone();
            reloaded.record = serde_json::from_str(&serde_json::to_string(&world.record).unwrap()).unwrap();
            let (here, there) = (world.step(op.clone()), reloaded.step(op));
            prop_assert_eq!(here.outcome, there.outcome);
            prop_assert_eq!(here.effects, there.effects);
            prop_assert_eq!(stored(&here.after), stored(&there.after));
            prop_assert_eq!(here.after.next_alarm(&TIMING), there.after.next_alarm(&TIMING));
        }
    }

    #[test]
    fn no_message_is_delayed_longer_than_a_queue_can_and_each_is_for_the_current_turn(
        deadline in deadlines(), history in histories(),
    ) {
        for Step { after, effects, .. } in run(deadline, history).1 {
            for effect in effects {
                if let Effect::Announce { priority, envelope, delay_seconds } = effect {
                    prop_assert!(delay_seconds <= 86_400);
                    prop_assert_eq!(envelope.turn, turn(&after));
                    prop_assert_eq!(priority, PRIORITY);
                }
            }
        }
    }

    #[test]
    fn an_erased_job_keeps_nothing_of_its_content(deadline in deadlines(), history in histories()) {
        for Step { after, op, .. } in run(deadline, history).1 {
            if after.erased {
                prop_assert!(!serde_json::to_string(&after).unwrap().contains(CONTENT), "{:?}", op);
            }
        }
    }
}

#[test]
fn a_wait_of_sixty_hours_is_chained_out_of_days() {
    let mut record = job(604_800);
    let (hour, mut now) = (Duration::from_secs(3_600), T0);
    let Claim::Claimed(claimed) = record.claim(1, now, &TIMING) else { panic!("the first turn is due at once") };
    let then = Then::Hold(Hold::new(HoldReason::RetryAfter, 60 * 3_600_000));
    record.settle(claimed.token, Settlement { failed_calls: Vec::new(), then }, now);

    for (delay_hours, claim) in [(24, "early"), (24, "early"), (12, "claimed")] {
        let effects = tick(&mut record, now);
        let [Effect::Announce { envelope, delay_seconds, .. }] = effects.as_slice() else { panic!("{effects:?}") };
        assert_eq!((envelope.turn, *delay_seconds), (2, delay_hours * 3_600));
        record.announced(2, now);
        assert_eq!(tick(&mut record, now), [], "it is on its way");
        now = now + hour * delay_hours;
        assert_eq!(record.claim(2, now, &TIMING).name(), claim);
    }
    assert_eq!(now, T0 + hour * 60);
}

#[test]
fn a_finished_job_is_published_until_kv_takes_it_and_deleted_when_its_retention_is_over() {
    let mut record = job(86_400);
    let Claim::Claimed(claimed) = record.claim(1, T0, &TIMING) else { panic!("the first turn is due at once") };
    let done = Settlement {
        failed_calls: Vec::new(),
        then: Then::End(Ending::Done { model_used: "m".into(), downgrade: None }),
    };
    record.settle(claimed.token, done, T0);
    let at = |seconds: u64| T0 + Duration::from_secs(seconds);

    let mut tried = Vec::new();
    while record.next_alarm(&TIMING) < at(700) {
        let now = record.next_alarm(&TIMING);
        assert!(matches!(tick(&mut record, now).as_slice(), [Effect::Publish { .. }]));
        tried.push(now.since(T0).as_secs());
    }
    assert_eq!(tried, [0, 10, 30, 70, 150, 310, 630], "ten seconds, doubling");
    record.published(at(700));
    assert_eq!(tick(&mut record, at(1_000)), []);
    assert_eq!(record.next_alarm(&TIMING), at(86_400));
    assert_eq!(tick(&mut record, at(86_400)), [Effect::Erase]);
    assert_eq!(tick(&mut record, at(86_500)), [Effect::Erase], "until it is gone");
}

#[test]
fn what_is_published_lives_in_kv_no_longer_than_the_job_but_as_long_as_kv_demands() {
    for (late_seconds, ttl_seconds) in [(0, 86_400), (80_000, 6_400), (86_399, 60)] {
        let mut record = job(86_400);
        let Claim::Claimed(claimed) = record.claim(1, T0, &TIMING) else { panic!("the first turn is due at once") };
        let done = Settlement {
            failed_calls: Vec::new(),
            then: Then::End(Ending::Done { model_used: "m".into(), downgrade: None }),
        };
        record.settle(claimed.token, done, T0);
        let effects = tick(&mut record, T0 + Duration::from_secs(late_seconds));
        assert_eq!(effects, [Effect::Publish { ttl_seconds }]);
    }
}

#[test]
fn a_finished_job_that_is_erased_is_taken_out_of_kv_again() {
    let mut record = job(86_400);
    let Claim::Claimed(claimed) = record.claim(1, T0, &TIMING) else { panic!("the first turn is due at once") };
    let done = Settlement {
        failed_calls: Vec::new(),
        then: Then::End(Ending::Done { model_used: "m".into(), downgrade: None }),
    };
    record.settle(claimed.token, done, T0);
    tick(&mut record, T0);
    record.published(T0);
    record.cancel(T0);
    assert!(record.is_gone() && record.is_withdrawing());
    assert_eq!(tick(&mut record, T0), [Effect::Withdraw]);
    record.withdrawn();
    assert!(!record.is_withdrawing());
    assert_eq!(tick(&mut record, T0), []);
}

#[test]
fn a_write_to_kv_that_arrives_after_the_job_was_erased_is_taken_back_even_after_the_deletion() {
    for is_deleted_before in [false, true] {
        let mut record = job(86_400);
        let Claim::Claimed(claimed) = record.claim(1, T0, &TIMING) else { panic!("the first turn is due at once") };
        let done = Settlement {
            failed_calls: Vec::new(),
            then: Then::End(Ending::Done { model_used: "m".into(), downgrade: None }),
        };
        record.settle(claimed.token, done, T0);
        assert!(matches!(tick(&mut record, T0).as_slice(), [Effect::Publish { .. }]));
        record.cancel(T0);
        if is_deleted_before {
            assert_eq!(tick(&mut record, T0), [Effect::Withdraw]);
            record.withdrawn();
        }
        record.published(T0);
        assert!(record.is_withdrawing());
        assert_eq!(tick(&mut record, T0), [Effect::Withdraw]);
    }
}

#[test]
fn absurd_clocks_do_not_panic() {
    for (created, now) in [(0, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
        let (created, now) = (Timestamp::from_millis(created), Timestamp::from_millis(now));
        let record = || Record::new(JobId::random(1), "app".into(), world::spec(604_800), "f".into(), created);
        let mut claimed = record();
        if let Claim::Claimed(Claimed { token, .. }) = claimed.claim(1, now, &TIMING) {
            claimed.begin(token, "m".into(), now, &TIMING);
            let then = Then::Hold(Hold::new(HoldReason::RetryAfter, u64::MAX));
            claimed.settle(token, Settlement { failed_calls: Vec::new(), then }, now);
        }
        for mut record in [record(), claimed] {
            record.revive(1, now);
            record.tick(now, &TIMING);
            let _ = record.next_alarm(&TIMING);
            visible(&record, now);
            record.cancel(now);
            record.tick(now, &TIMING);
            visible(&record, now);
        }
    }
}

/// A new job that was held for this until ten seconds after, and is claimed then.
fn held_for(reason: HoldReason) -> (Record, spillway::job::Claimed) {
    let mut record = job(86_400);
    let Claim::Claimed(first) = record.claim(1, T0, &TIMING) else { panic!() };
    let then = Then::Hold(Hold::new(reason, 10_000));
    record.settle(first.token, Settlement { failed_calls: Vec::new(), then }, T0);
    let turn = turn(&record);
    let Claim::Claimed(second) = record.claim(turn, T0 + Duration::from_secs(10), &TIMING) else { panic!() };
    assert!(!first.held && second.dwell_ms == Some(10_000));
    (record, second)
}

#[test]
fn a_job_that_a_gate_an_order_or_the_hour_has_held_waits_apart_and_one_that_we_have_kept_does_not() {
    for (reason, is_apart) in [
        (HoldReason::BreakerOpen, true),
        (HoldReason::SpendCap, true),
        (HoldReason::Overridden, true),
        (HoldReason::Paused, true),
        (HoldReason::Pacing, true),
        (HoldReason::OffPeak, true),
        (HoldReason::GateUnavailable, false),
        (HoldReason::DeliveryBudget, false),
        (HoldReason::DeliveryLost, false),
    ] {
        assert_eq!(held_for(reason).1.held, is_apart, "{reason:?}");
    }
}

#[test]
fn whose_deadline_passes_is_exposed_to_load_only_if_load_is_what_it_waited_for() {
    for (reason, is_exposed) in [
        (HoldReason::BreakerOpen, true),
        (HoldReason::ProbeInFlight, true),
        (HoldReason::Overloaded, true),
        (HoldReason::Degraded, true),
        (HoldReason::InFlightLimit, true),
        (HoldReason::Paused, false),
        (HoldReason::Overridden, false),
        (HoldReason::Pacing, false),
        (HoldReason::SpendCap, false),
        (HoldReason::DeliveryBudget, false),
    ] {
        let (mut record, claimed) = held_for(reason);
        let then = Then::Hold(Hold::new(reason, 86_400_000));
        let settlement = Settlement { failed_calls: Vec::new(), then };
        record.settle(claimed.token, settlement, T0 + Duration::from_secs(10));
        tick(&mut record, T0 + Duration::from_secs(86_400));
        assert_eq!((record.state.name(), record.is_exposed()), ("failed", is_exposed), "{reason:?}");
    }
}
