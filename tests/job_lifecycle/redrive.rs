//! The operator drives a job on: what waits is sent again now, what has failed is to be done again, all else is left alone.

use std::time::Duration;

use spillway::job::{Claim, Effect, Ending, FailReason, Hold, Record, Redrive, Retry, Settlement, Then, Which};
use spillway::policy::answer::HoldReason;
use spillway::policy::cause::Cause;
use spillway::policy::time::Timestamp;

use super::world::{T0, TIMING, instant, job, tick, turn};

fn at(seconds: u64) -> Timestamp {
    T0 + Duration::from_secs(seconds)
}

/// A job whose first delivery ended so.
fn settled(then: Then) -> Record {
    let mut record = job(86_400);
    tick(&mut record, T0);
    record.announced(1, T0);
    let Claim::Claimed(claimed) = record.claim(1, T0, &TIMING) else { panic!() };
    record.settle(claimed.token, Settlement { failed_calls: Vec::new(), then }, T0);
    tick(&mut record, T0);
    record.announced(turn(&record), T0);
    record
}

fn held() -> Record {
    settled(Then::Hold(Hold::new(HoldReason::Paused, 3_600_000)))
}

fn failed(reason: FailReason) -> Record {
    settled(Then::End(Ending::Failed { reason, cause: None, error_type: None, message: "Why.".into() }))
}

fn waiting(reason: Option<&str>) -> Which {
    Which::Waiting { reason: reason.map(str::to_owned) }
}

fn having_failed(reason: Option<&str>) -> Which {
    Which::Failed { reason: reason.map(str::to_owned) }
}

#[test]
fn a_job_that_waits_has_its_turn_sent_at_once_and_can_be_claimed_then() {
    for then in [
        Then::Hold(Hold::new(HoldReason::BreakerOpen, 3_600_000)),
        Then::Retry(Retry::new(Cause::RateLimited, 3_600_000)),
        Then::Defer { resume_ms: 3_600_000 },
    ] {
        let mut record = settled(then.clone());
        let (due, revision) = (turn(&record), record.revision);
        assert_eq!(record.redrive(&Which::Any, at(10)), Redrive::SentAgain, "{then:?}");
        let [Effect::Announce { envelope, delay_seconds: 0, .. }] = &tick(&mut record, at(10))[..] else { panic!() };
        assert_eq!(envelope.turn, due);
        assert!(record.revision > revision, "whoever watches sees that it waits no longer");
        assert!(matches!(record.claim(due, at(10), &TIMING), Claim::Claimed(_)), "{then:?}");
        // The message that was on its way already.
        assert_eq!(record.claim(due, at(3_600), &TIMING).name(), "claimed", "its lease is over by then");
    }
}

#[test]
fn a_job_whose_message_is_on_its_way_with_the_old_delay_has_another_sent() {
    let mut record = job(86_400);
    tick(&mut record, T0);
    record.announced(1, T0);
    let Claim::Claimed(claimed) = record.claim(1, T0, &TIMING) else { panic!() };
    let then = Then::Hold(Hold::new(HoldReason::Paused, 3_600_000));
    record.settle(claimed.token, Settlement { failed_calls: Vec::new(), then }, T0);
    assert!(matches!(tick(&mut record, T0)[..], [Effect::Announce { delay_seconds: 3_600, .. }]));
    assert_eq!(record.redrive(&Which::Any, at(1)), Redrive::SentAgain);
    // The queue has taken the first one meanwhile.
    record.announced(2, at(1));
    assert!(matches!(tick(&mut record, at(1))[..], [Effect::Announce { delay_seconds: 0, .. }]));
    record.announced(2, at(1));
    assert!(tick(&mut record, at(60)).is_empty(), "and that is all");
}

#[test]
fn driven_on_twice_it_is_worked_on_once() {
    let mut record = held();
    for _ in 0..2 {
        assert_eq!(record.redrive(&Which::Any, at(10)), Redrive::SentAgain);
    }
    assert_eq!(record.claim(2, at(10), &TIMING).name(), "claimed");
    assert_eq!(record.claim(2, at(11), &TIMING).name(), "leased");
    assert_eq!(record.redrive(&Which::Any, at(12)), Redrive::NotNeeded, "somebody is at it");
}

#[test]
fn a_message_that_was_lost_is_sent_again() {
    let mut record = job(86_400);
    tick(&mut record, T0);
    record.announced(1, T0);
    assert!(tick(&mut record, at(60)).is_empty(), "the queue has it");
    assert_eq!(record.redrive(&Which::Any, at(60)), Redrive::SentAgain);
    assert_eq!(tick(&mut record, at(60)).len(), 1);
    assert_eq!(instant(&record, "/wake_at"), Some(T0), "it never becomes due later");
}

#[test]
fn a_job_that_has_failed_is_to_be_done_again_and_stays_failed() {
    for reason in [FailReason::AttemptsExhausted, FailReason::Refused(Cause::InvalidRequest)] {
        let mut record = failed(reason);
        let before = record.state.clone();
        assert_eq!(record.redrive(&Which::Any, at(10)), Redrive::DoAgain);
        assert_eq!(record.state, before);
    }
}

#[test]
fn what_is_over_asks_its_user_or_is_at_work_is_left_alone() {
    let done = settled(Then::End(Ending::Done { model_used: "m".into(), downgrade: None }));
    let stalled = settled(Then::Stall { answer_ms: 900_000, resume_ms: 3_600_000 });
    let mut cancelled = held();
    cancelled.cancel(at(1));
    let mut at_work = job(86_400);
    at_work.claim(1, T0, &TIMING);
    for mut record in [done, stalled, cancelled, at_work] {
        let before = record.state.name();
        for which in [Which::Any, waiting(None), having_failed(None)] {
            assert_eq!(record.redrive(&which, at(10)), Redrive::NotNeeded, "{before}");
        }
        assert_eq!(record.state.name(), before);
    }
}

#[test]
fn doing_again_what_nobody_waits_for_or_would_be_refused_again_has_to_be_asked_for_by_its_reason() {
    for (reason, is_worth_it) in [
        (FailReason::AttemptsExhausted, true),
        (FailReason::DeadlineExceeded, true),
        (FailReason::Refused(Cause::AuthenticationFailed), true),
        (FailReason::Refused(Cause::SpendCap), true),
        (FailReason::Refused(Cause::InvalidRequest), false),
        (FailReason::DeferralDeclined, false),
        (FailReason::Interrupted, false),
    ] {
        let expected = if is_worth_it { Redrive::DoAgain } else { Redrive::NotNeeded };
        assert_eq!(failed(reason).redrive(&having_failed(None), at(10)), expected, "{reason:?}");
        assert_eq!(failed(reason).redrive(&having_failed(Some(reason.name())), at(10)), Redrive::DoAgain);
        assert_eq!(failed(reason).redrive(&Which::Any, at(10)), Redrive::DoAgain);
    }
}

#[test]
fn who_wants_many_gets_those_of_the_reason_that_was_named() {
    for (mut record, which, redrive) in [
        (held(), waiting(None), Redrive::SentAgain),
        (held(), waiting(Some("paused")), Redrive::SentAgain),
        (held(), waiting(Some("breaker_open")), Redrive::NotNeeded),
        (held(), having_failed(None), Redrive::NotNeeded),
        (settled(Then::Retry(Retry::new(Cause::Truncated, 9_000))), waiting(Some("truncated")), Redrive::SentAgain),
        (job(600), waiting(Some("paused")), Redrive::NotNeeded),
        (failed(FailReason::AttemptsExhausted), waiting(None), Redrive::NotNeeded),
        (failed(FailReason::AttemptsExhausted), having_failed(None), Redrive::DoAgain),
        (failed(FailReason::AttemptsExhausted), having_failed(Some("attempts_exhausted")), Redrive::DoAgain),
        (failed(FailReason::AttemptsExhausted), having_failed(Some("deadline_exceeded")), Redrive::NotNeeded),
    ] {
        let state = record.state.clone();
        assert_eq!(record.redrive(&which, at(10)), redrive, "{state:?} {which:?}");
    }
}

#[test]
fn a_request_that_was_refused_would_be_refused_again_unless_it_was_for_the_key_or_the_account() {
    for (cause, redrive) in [
        (Cause::InvalidRequest, Redrive::NotNeeded),
        (Cause::NotFound, Redrive::NotNeeded),
        (Cause::RequestTooLarge, Redrive::NotNeeded),
        (Cause::Rejected, Redrive::NotNeeded),
        (Cause::AuthenticationFailed, Redrive::DoAgain),
        (Cause::PermissionDenied, Redrive::DoAgain),
        (Cause::BillingFailed, Redrive::DoAgain),
        (Cause::SpendCap, Redrive::DoAgain),
    ] {
        let mut record = failed(FailReason::Refused(cause));
        assert_eq!(record.redrive(&having_failed(None), at(10)), redrive, "{cause:?}");
        assert_eq!(record.redrive(&having_failed(Some(cause.name())), at(10)), Redrive::DoAgain, "{cause:?}");
    }
}
