//! Whatever has happened to a job, it goes on: the alarm alone leads to a new message or to an end.

use std::time::Duration;

use proptest::prelude::*;
use spillway::job::{Claim, Effect, Ending, Hold, Settlement, State, Then};
use spillway::policy::answer::HoldReason;
use spillway::policy::time::Timestamp;

use super::world::{Op, T0, TIMING, World, deadlines, histories, instant, job, run, tick, turn};

/// When a job has to be over: at its deadline, or when a lease that began before it ends. A user who says nothing to the offer
/// to defer moves the deadline once more.
fn end_of(world: &World) -> Timestamp {
    let deferred = match world.record.state {
        State::Stalled { resume_at, .. } => resume_at + Duration::from_secs(world.record.spec.deadline_seconds),
        _ => Timestamp::default(),
    };
    let lease = instant(&world.record, "/lease/until").unwrap_or_default();
    world.record.deadline_at.max(deferred).max(lease).max(world.now)
}

/// Lets the alarm ring once; what it asked for.
fn ring(world: &mut World, is_done: bool) -> Vec<Effect> {
    world.step(Op::ToAlarm);
    world.step(Op::Tick { is_done }).effects
}

fn answer(world: &mut World, turn: u64) {
    if let Claim::Claimed(claimed) = world.record.claim(turn, world.now, &TIMING) {
        let then = Then::End(Ending::Done { model_used: "m".into(), downgrade: None });
        world.record.settle(claimed.token, Settlement { failed_calls: Vec::new(), then }, world.now);
    }
}

/// More rings than any job needs, so that a test of an end has one itself: a queue and an index that refuse everything for a
/// week make two every ten minutes.
const MANY: u32 = 4_000;
const DAY: Duration = Duration::from_secs(86_400);

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// `is_done`: the queue takes every message, and loses it. Otherwise it does not even take one.
    #[test]
    fn a_job_whose_messages_are_all_lost_ends_by_its_deadline(
        deadline in deadlines(), history in histories(), is_done in any::<bool>(),
    ) {
        let (mut world, _) = run(deadline, history);
        prop_assume!(!world.record.state.is_terminal());
        let end = end_of(&world);
        for _ in 0..MANY {
            if world.record.state.is_terminal() {
                break;
            }
            ring(&mut world, is_done);
            prop_assert!(world.record.next_alarm(&TIMING) > world.now, "an alarm that rings for ever at one moment");
        }
        prop_assert!(world.record.state.is_terminal());
        prop_assert!(world.record.finished_at.unwrap() <= end);
    }

    /// The alarm leads to a message, or the job ends.
    #[test]
    fn the_next_thing_that_happens_is_a_message_or_an_end(deadline in deadlines(), history in histories()) {
        let (mut world, _) = run(deadline, history);
        prop_assume!(!world.record.state.is_terminal());
        let mut effects = Vec::new();
        // A lease may have to end first, and a wait be over.
        for _ in 0..3 {
            effects = ring(&mut world, true);
            effects.retain(|effect| !matches!(effect, Effect::List { .. }));
            if !effects.is_empty() {
                break;
            }
        }
        let is_message = matches!(effects.as_slice(), [Effect::Announce { .. }]);
        prop_assert!(is_message || world.record.state.is_terminal(), "{:?} {:?}", effects, world.record);
    }

    /// Two messages in three are lost, and whoever gets one answers. The deadline is put off to where it does not matter.
    #[test]
    fn a_job_is_answered_as_long_as_anybody_ever_gets_a_message(
        deadline in deadlines(), history in histories(), fates in prop::collection::vec(0..3_u8, 20),
    ) {
        let (mut world, _) = run(deadline, history);
        prop_assume!(!world.record.state.is_terminal());
        world.record.deadline_at = world.now + 60 * DAY;
        let mut is_lost = fates.into_iter().chain([0]).cycle().map(|fate| fate > 0);
        let mut queue: Vec<(Timestamp, u64)> = Vec::new();
        for _ in 0..MANY {
            if world.record.state.is_terminal() {
                break;
            }
            let alarm = world.record.next_alarm(&TIMING).max(world.now);
            match queue.iter().copied().min().filter(|(at, _)| *at <= alarm) {
                Some((at, turn)) => {
                    queue.retain(|message| *message != (at, turn));
                    world.now = at.max(world.now);
                    answer(&mut world, turn);
                }
                None => {
                    for effect in ring(&mut world, true) {
                        let Effect::Announce { envelope, delay_seconds, .. } = effect else { continue };
                        if is_lost.next() == Some(false) {
                            queue.push((world.now + Duration::from_secs(delay_seconds.into()), envelope.turn));
                        }
                    }
                }
            }
        }
        prop_assert_eq!(world.record.state.name(), "done");
    }

    /// Also a finished job's alarm ends: it is deleted when its retention is over, whether KV ever took it or not.
    #[test]
    fn a_finished_job_is_deleted_when_its_retention_is_over(
        deadline in deadlines(), history in histories(), is_done in any::<bool>(),
    ) {
        let (mut world, _) = run(deadline, history);
        for _ in 0..MANY {
            if !world.record.state.is_terminal() {
                ring(&mut world, is_done);
            }
        }
        let over_at = world.record.finished_at.unwrap() + TIMING.retention;
        // By the clock, and not by so many rings: a clock that ran back has days to make good.
        while !ring(&mut world, is_done).contains(&Effect::Erase) {
            prop_assert!(world.now <= over_at, "never deleted: {:?}", world.record);
            prop_assert!(world.record.next_alarm(&TIMING) > world.now, "an alarm that rings for ever at one moment");
        }
        prop_assert!(world.now >= over_at);
    }
}

#[test]
fn a_message_that_does_not_come_is_sent_again_ever_more_patiently() {
    let mut record = job(86_400);
    let mut sent = Vec::new();
    let mut now = T0;
    for _ in 0..20 {
        if record.state.is_terminal() {
            break;
        }
        for effect in tick(&mut record, now) {
            if matches!(effect, Effect::Announce { .. }) {
                sent.push(now.since(T0).as_secs());
                record.announced(turn(&record), now);
            }
        }
        now = record.next_alarm(&TIMING);
    }
    assert_eq!(sent, [0, 600, 1_800, 4_200, 9_000, 18_600, 37_800, 76_200]);
    assert_eq!(record.finished_at, Some(T0 + Duration::from_secs(86_400)));
    assert_eq!(record.state.reason(), Some("deadline_exceeded"));
}

#[test]
fn each_turn_is_missed_with_fresh_patience() {
    let mut record = job(604_800);
    for _ in 0..3 {
        let now = record.next_alarm(&TIMING);
        tick(&mut record, now);
        record.announced(1, now);
    }
    let late = record.next_alarm(&TIMING);
    assert_eq!(late, T0 + Duration::from_secs(4_200), "doubled twice");
    let Claim::Claimed(claimed) = record.claim(1, late, &TIMING) else { panic!("its time has come") };
    let then = Then::Hold(Hold::new(HoldReason::BreakerOpen, 1_000));
    record.settle(claimed.token, Settlement { failed_calls: Vec::new(), then }, late);
    tick(&mut record, late);
    record.announced(2, late);
    assert_eq!(record.next_alarm(&TIMING), late + Duration::from_secs(1 + 600));
}

#[test]
fn a_turn_whose_holder_dies_is_sent_again_when_its_lease_ends() {
    let mut record = job(86_400);
    tick(&mut record, T0);
    record.announced(1, T0);
    let Claim::Claimed(dead) = record.claim(1, T0, &TIMING) else { panic!("the first turn is due at once") };
    record.begin(dead.token, "m".into(), T0, &TIMING);
    let end = T0 + TIMING.lease;
    assert_eq!(record.next_alarm(&TIMING), end);
    assert!(matches!(tick(&mut record, end).as_slice(), [Effect::Announce { delay_seconds: 0, .. }]));
    let Claim::Claimed(next) = record.claim(1, end, &TIMING) else { panic!("nobody holds it any more") };
    assert_eq!(next.counted_calls, 1, "the call that was begun is counted, whatever became of it");
}

#[test]
fn a_message_that_died_in_the_queue_is_sent_again_after_a_minute() {
    let mut record = job(86_400);
    tick(&mut record, T0);
    record.announced(1, T0);
    record.revive(1, T0);
    assert!(matches!(tick(&mut record, T0).as_slice(), [Effect::Announce { delay_seconds: 60, .. }]));
}
