//! Jobs whose attempts are used up: asked, deferred, declined; and done again.

use std::time::Duration;

use spillway::job::{
    Claim, Claimed, DeferralAnswer, Effect, Ending, FailReason, JobId, Record, Settlement, State, Then,
};
use spillway::policy::ladder::Downgrade;
use spillway::policy::time::Timestamp;

use super::world::{T0, TIMING, instant, job, tick, turn};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

fn claim(record: &mut Record, now: Timestamp) -> Claimed {
    match record.claim(turn(record), now, &TIMING) {
        Claim::Claimed(claimed) => claimed,
        other => panic!("{other:?}"),
    }
}

fn settle(record: &mut Record, then: Then, now: Timestamp) {
    let Claimed { token, .. } = claim(record, now);
    record.begin(token, "m".into(), now, &TIMING);
    record.settle(token, Settlement { failed_calls: Vec::new(), then }, now);
}

/// Asked at `T0` whether it may wait for nine hours, with five attempts used up and a deadline of one hour.
fn stalled() -> Record {
    let mut record = job(3_600);
    record.attempts = 5;
    settle(&mut record, Then::Stall { answer_ms: 900_000, resume_ms: 9 * 3_600_000 }, T0);
    record
}

#[test]
fn a_stalled_job_is_worked_on_by_nobody_until_it_is_answered() {
    let mut record = stalled();
    let asked = turn(&record);
    for minutes in [0, 5, 14] {
        let now = T0 + MINUTE * minutes;
        assert_eq!(tick(&mut record, now), [], "no message is sent");
        assert_eq!(record.claim(asked, now, &TIMING).name(), "stale_turn", "a second message of its turn");
    }
    assert_eq!(record.next_alarm(&TIMING), T0 + MINUTE * 15);
    assert_eq!(record.next_check(T0), Some(MINUTE * 15));
}

#[test]
fn silence_for_fifteen_minutes_is_a_yes_and_so_is_a_yes() {
    for silent in [true, false] {
        let mut record = stalled();
        let now = T0 + MINUTE * if silent { 15 } else { 2 };
        let effects = if silent {
            tick(&mut record, now)
        } else {
            assert_eq!(record.answer_deferral(true, now), DeferralAnswer::Taken);
            tick(&mut record, now)
        };
        assert_eq!(record.state, State::Deferred);
        let [Effect::Announce { envelope, delay_seconds, .. }] = effects.as_slice() else { panic!("{effects:?}") };
        assert_eq!((envelope.turn, u64::from(*delay_seconds)), (2, (HOUR * 9 - now.since(T0)).as_secs()));
        assert_eq!(instant(&record, "/wake_at"), Some(T0 + HOUR * 9), "the moment that was offered");
    }
}

#[test]
fn a_deferred_job_comes_back_with_fresh_attempts_and_as_much_time_as_it_had_at_first() {
    let mut record = stalled();
    record.answer_deferral(true, T0);
    assert_eq!((record.attempts, record.deferrals, record.calls), (0, 1, 1));
    assert_eq!(record.deadline_at, T0 + HOUR * 10);
    let claimed = claim(&mut record, T0 + HOUR * 9);
    assert_eq!((claimed.attempts, claimed.counted_calls, claimed.deferrals), (0, 0, 1));
    assert_eq!(claimed.remaining_ms, 3_600_000);
}

#[test]
fn a_longer_deadline_than_the_deferrals_is_kept() {
    let mut record = job(604_800);
    settle(&mut record, Then::Defer { resume_ms: 3_600_000 }, T0);
    assert_eq!(record.deadline_at, T0 + HOUR + HOUR * 168);
    let mut record = job(604_800);
    record.deadline_at = T0 + HOUR * 1_000;
    settle(&mut record, Then::Defer { resume_ms: 3_600_000 }, T0);
    assert_eq!(record.deadline_at, T0 + HOUR * 1_000);
}

#[test]
fn a_no_ends_the_job_and_says_so() {
    let mut record = stalled();
    assert_eq!(record.answer_deferral(false, T0 + MINUTE), DeferralAnswer::Taken);
    assert!(matches!(&record.state, State::Failed { reason: FailReason::DeferralDeclined, .. }), "{record:?}");
    assert_eq!(record.state.reason(), Some("deferral_declined"));
    assert_eq!(record.finished_at, Some(T0 + MINUTE));
    assert!(matches!(tick(&mut record, T0 + MINUTE).as_slice(), [Effect::Publish { .. }]));
}

#[test]
fn the_deadline_does_not_count_while_the_user_is_asked() {
    let mut record = job(60);
    settle(&mut record, Then::Stall { answer_ms: 900_000, resume_ms: 9 * 3_600_000 }, T0);
    assert_eq!(tick(&mut record, T0 + MINUTE * 5), []);
    assert_eq!(record.state.name(), "stalled");
    tick(&mut record, T0 + MINUTE * 15);
    assert_eq!(record.state, State::Deferred);
}

#[test]
fn only_a_job_that_asks_can_be_answered_but_a_yes_may_come_twice() {
    let mut record = job(3_600);
    assert_eq!(record.answer_deferral(true, T0), DeferralAnswer::NotAsked);
    let mut record = stalled();
    record.answer_deferral(true, T0);
    let deferred = format!("{record:?}");
    assert_eq!(record.answer_deferral(true, T0), DeferralAnswer::Taken);
    assert_eq!(record.answer_deferral(false, T0), DeferralAnswer::NotAsked);
    assert_eq!(format!("{record:?}"), deferred, "and it changes nothing");
}

#[test]
fn a_stalled_job_can_be_taken_back() {
    let mut record = stalled();
    record.cancel(T0);
    assert_eq!(tick(&mut record, T0 + MINUTE * 15), []);
    assert_eq!(record.state, State::Cancelled);
}

#[test]
fn a_failed_or_downgraded_job_is_done_again_by_one_job_however_often_it_is_asked_for() {
    let ended = |then: Then| {
        let mut record = job(3_600);
        settle(&mut record, then, T0);
        record
    };
    let done = |downgrade| Then::End(Ending::Done { model_used: "m".into(), downgrade });
    let failed = Then::End(Ending::Failed {
        reason: FailReason::AttemptsExhausted,
        cause: None,
        error_type: None,
        message: String::new(),
    });
    for (mut record, is_worth_it) in [
        (ended(failed), true),
        (ended(done(Some(Downgrade::BreakerOpen))), true),
        (ended(done(None)), false),
        (job(3_600), false),
        (stalled(), false),
    ] {
        let first = record.regenerate(JobId::random(8), None);
        assert_eq!(first, is_worth_it.then(|| JobId::random(8)), "{:?}", record.state);
        assert_eq!(record.regenerate(JobId::random(9), None), first);
        assert_eq!(record.regenerate(JobId::random(9), Some(&JobId::random(7))), first, "another is not what it was");
        let second = record.clone().regenerate(JobId::random(9), first.as_ref());
        assert_eq!(second, is_worth_it.then(|| JobId::random(9)), "the first was taken back");
        record.cancel(T0);
        assert_eq!(record.regenerate(JobId::random(9), None), None, "its request is gone");
    }
}
