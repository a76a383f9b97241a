//! Text that was seen before it was an answer: what becomes of it when the upstream breaks off.

use std::time::Duration;

use spillway::job::{
    Begun, Claim, Discarded, Ending, FailReason, Hold, Interruption, Record, Settled, Settlement, State, Then, Token,
    WhenInterrupted,
};
use spillway::policy::answer::HoldReason;
use spillway::policy::cause::Cause;
use spillway::policy::time::Timestamp;

use super::world::{T0, TIMING, job, turn};

/// A job whose first call has brought content.
fn refining(when_interrupted: WhenInterrupted) -> (Record, Token) {
    let mut record = job(3_600);
    record.spec.when_interrupted = when_interrupted;
    let Claim::Claimed(claimed) = record.claim(turn(&record), T0, &TIMING) else { panic!("not claimed") };
    record.begin(claimed.token, "m".into(), T0, &TIMING);
    record.refine(claimed.token, T0, &TIMING);
    (record, claimed.token)
}

fn settlement(then: Then) -> Settlement {
    Settlement { failed_calls: Vec::new(), then }
}

fn overloaded(record: &mut Record, token: Token) -> Interruption {
    record.interrupted(token, Cause::Overloaded, T0, &TIMING)
}

const HELD: Hold = Hold::new(HoldReason::BreakerOpen, 1_000);
const AFTER_THE_LEASE: Timestamp = Timestamp::from_millis(1_700_000_121_000);

#[test]
fn what_nobody_has_seen_is_begun_again_silently_whatever_the_job_wants() {
    for when_interrupted in [WhenInterrupted::Restart, WhenInterrupted::Fail] {
        let (mut record, token) = refining(when_interrupted);
        assert_eq!(overloaded(&mut record, token), Interruption::GoOn);
        assert_eq!((record.state.name(), &record.discarded), ("retrying", &None));
        assert_eq!(record.begin(token, "m".into(), T0, &TIMING), Begun::Go);
        assert_eq!(record.draft(), Some(2), "another draft");
    }
}

#[test]
fn what_somebody_has_seen_is_discarded_before_their_eyes_or_ends_the_job() {
    let (mut record, token) = refining(WhenInterrupted::Restart);
    assert!(record.see(1), "the first who sees it");
    assert!(!record.see(1));
    assert_eq!(overloaded(&mut record, token), Interruption::GoOn);
    assert_eq!(record.discarded, Some(Discarded { draft: 1, cause: Some(Cause::Overloaded) }));

    let (mut record, token) = refining(WhenInterrupted::Fail);
    record.see(1);
    assert_eq!(overloaded(&mut record, token), Interruption::End);
    let ending = Ending::Failed {
        reason: FailReason::Interrupted,
        cause: Some(Cause::Overloaded),
        error_type: None,
        message: "It broke off.".into(),
    };
    assert_eq!(record.settle(token, settlement(Then::End(ending)), T0), Settled::Stored);
    assert!(record.is_interrupted());
    assert_eq!(record.discarded, None, "it is kept");
}

#[test]
fn a_draft_is_seen_only_while_it_is_being_written() {
    let (mut record, token) = refining(WhenInterrupted::Fail);
    assert!(!record.see(2) && !record.see(0), "another one");
    assert_eq!(overloaded(&mut record, token), Interruption::GoOn);
    assert!(!record.see(1), "it is over");
    assert_eq!(record.begin(token, "m".into(), T0, &TIMING), Begun::Go);
    assert!(!record.see(1));
    assert_eq!(overloaded(&mut record, token), Interruption::GoOn, "nobody has seen the second");
}

#[test]
fn a_consumer_whose_claim_is_void_is_told_so() {
    let (mut record, token) = refining(WhenInterrupted::Fail);
    record.see(1);
    record.cancel(T0);
    assert_eq!(overloaded(&mut record, token), Interruption::Void);
    assert_eq!(record.state, State::Cancelled);
}

type Way = fn(&mut Record, Token);

/// The ways in which a job goes on though nobody has said that its call broke off: the message was lost, or its sender.
const SILENT_WAYS: [(&str, Way); 4] = [
    ("the next call", |record, token| {
        record.begin(token, "m".into(), T0, &TIMING);
    }),
    ("a settlement", |record, token| {
        record.settle(token, settlement(Then::Hold(HELD)), T0);
    }),
    ("a lease that ends", |record, _| {
        record.tick(AFTER_THE_LEASE, &TIMING);
    }),
    ("another consumer", |record, _| {
        record.claim(turn(record), AFTER_THE_LEASE, &TIMING);
    }),
];

#[test]
fn a_seen_draft_is_not_forgotten_though_nobody_says_that_it_broke_off() {
    for (way, goes_on) in SILENT_WAYS {
        let (mut record, token) = refining(WhenInterrupted::Restart);
        record.see(1);
        goes_on(&mut record, token);
        assert_eq!(record.discarded.map(|discarded| discarded.draft), Some(1), "{way}");

        let (mut record, token) = refining(WhenInterrupted::Fail);
        record.see(1);
        goes_on(&mut record, token);
        assert!(record.is_interrupted(), "{way}: {:?}", record.state);
        let later = AFTER_THE_LEASE + Duration::from_secs(1);
        assert_eq!(record.claim(turn(&record), later, &TIMING).name(), "finished", "{way}");

        let (mut record, token) = refining(WhenInterrupted::Fail);
        goes_on(&mut record, token);
        assert!(!record.state.is_terminal() && record.discarded.is_none(), "unseen, {way}");
    }
}

#[test]
fn a_job_that_fails_for_another_reason_discards_what_was_seen_and_one_that_is_done_does_not() {
    let failed = Ending::Failed {
        reason: FailReason::DeadlineExceeded,
        cause: Some(Cause::Overloaded),
        error_type: None,
        message: "Too late.".into(),
    };
    let done = Ending::Done { model_used: "m".into(), downgrade: None };
    for (ending, discarded) in [(failed, Some(1)), (done, None)] {
        let (mut record, token) = refining(WhenInterrupted::Restart);
        record.see(1);
        record.settle(token, settlement(Then::End(ending)), T0);
        assert_eq!(record.discarded.map(|discarded| discarded.draft), discarded);
    }
}
