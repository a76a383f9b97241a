//! What an app is told by its webhook (A12), and when: each rule over what a receiver may answer, and over random histories.

use std::time::Duration;

use proptest::prelude::*;
use spillway::job::notice::{News, Progress, Unheard};
use spillway::job::{Claim, Effect, Ending, FailReason, JobId, Reception, Record, Retry, Settlement, Spec, Then, Told};
use spillway::policy::time::Timestamp;

use super::world::{Op, T0, TIMING, World, deadlines, histories, row_of, spec};

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

fn at(seconds: u64) -> Timestamp {
    T0 + Duration::from_secs(seconds)
}

fn hooked(deadline_seconds: u64) -> Record {
    let spec = Spec { webhook: Some("https://app.example/hook".into()), ..spec(deadline_seconds) };
    Record::new(JobId::random(7), "app".into(), spec, "fingerprint".into(), T0)
}

/// A job that goes on like this at its first turn, after so many seconds.
fn settled(then: Then, seconds: u64) -> Record {
    let mut record = hooked(DAY);
    settle(&mut record, 1, then, seconds);
    record
}

fn settle(record: &mut Record, turn: u64, then: Then, seconds: u64) {
    let Claim::Claimed(claimed) = record.claim(turn, at(seconds), &TIMING) else { panic!("turn {turn} is not due") };
    record.settle(claimed.token, Settlement { failed_calls: Vec::new(), then }, at(seconds));
}

fn done_by(model: &str) -> Then {
    Then::End(Ending::Done { model_used: model.into(), downgrade: None })
}

fn done() -> Then {
    done_by("claude-sonnet-5-5")
}

fn failed() -> Then {
    let (reason, message) = (FailReason::AttemptsExhausted, String::new());
    Then::End(Ending::Failed { reason, cause: None, error_type: None, message })
}

const STALL: Then = Then::Stall { answer_ms: 900_000, resume_ms: 4 * 3_600_000 };

fn news(record: &Record) -> Vec<&'static str> {
    record.notices.iter().map(|notice| notice.news.event()).collect()
}

/// The numbers that are to be sent at this moment.
fn due(record: &mut Record, now: Timestamp) -> Vec<u32> {
    let effects = record.tick(now, &TIMING);
    let numbers = effects.into_iter().find_map(|effect| match effect {
        Effect::Notify { numbers } => Some(numbers),
        _ => None,
    });
    numbers.unwrap_or_default()
}

fn publishes(record: &mut Record, now: Timestamp) -> bool {
    record.tick(now, &TIMING).iter().any(|effect| matches!(effect, Effect::Publish { .. }))
}

fn tell(record: &mut Record, number: u32, reception: Reception, now: Timestamp, seed: u64) -> Told {
    let tried = record.notices.iter().find(|notice| notice.number == number).map_or(0, |notice| notice.tries);
    record.told(number, tried, reception, now, &TIMING, &mut fastrand::Rng::with_seed(seed))
}

fn refused(retry_after_seconds: Option<u64>) -> Reception {
    Reception::of(503, retry_after_seconds.map(Duration::from_secs))
}

fn progress(record: &Record) -> Vec<&'static str> {
    let name = |progress| match progress {
        Progress::Due { .. } => "due",
        Progress::Delivered { .. } => "delivered",
        Progress::GivenUp { .. } => "given up",
    };
    record.notices.iter().map(|notice| name(notice.progress)).collect()
}

#[test]
fn an_end_or_a_question_is_told_and_nothing_else() {
    let hold = Then::Retry(Retry::new(spillway::policy::cause::Cause::Overloaded, 0));
    for (then, told) in [
        (done(), vec!["job.done"]),
        (done_by("claude-haiku-5-5"), vec!["job.done", "job.downgraded"]),
        (failed(), vec!["job.failed"]),
        (STALL, vec!["job.stalled"]),
        (hold, vec![]),
        (Then::Defer { resume_ms: 1 }, vec![]),
    ] {
        let mut record = settled(then.clone(), 1);
        assert_eq!(news(&record), told, "{then:?}");
        assert_eq!(due(&mut record, at(1)), (1..=u32::try_from(told.len()).unwrap()).collect::<Vec<_>>());
    }
    assert!(news(&hooked(60)).is_empty());
}

#[test]
fn a_deadline_that_passes_is_told_as_well() {
    let mut record = hooked(60);
    assert_eq!(due(&mut record, at(60)), [1]);
    assert_eq!(news(&record), ["job.failed"]);
}

#[test]
fn without_a_webhook_nothing_is_kept() {
    let mut record = super::job(60);
    settle(&mut record, 1, done(), 1);
    assert_eq!(record.notices.iter().count(), 0);
    assert!(!record.tell_again(at(2)));
}

#[test]
fn a_job_that_was_stalled_tells_both_and_what_was_asked_then() {
    let mut record = settled(STALL, 10);
    assert_eq!(due(&mut record, at(10)), [1]);
    record.answer_deferral(false, at(20));
    assert_eq!(news(&record), ["job.stalled", "job.failed"]);
    let first = record.notices.iter().next().unwrap();
    assert_eq!(first.news, News::Stalled { until: at(910), resume_at: at(10 + 4 * HOUR) });
    assert_eq!(due(&mut record, at(20)), [2], "the first is on its way");
}

#[test]
fn any_2xx_delivers_and_nothing_else_does() {
    for status in [200, 201, 202, 204, 299] {
        assert_eq!(Reception::of(status, None), Reception::Taken, "{status}");
    }
    assert_eq!(Reception::of(410, None), Reception::Gone);
    for (status, says) in [
        (301, "redirect"),
        (308, "redirect"),
        (304, "redirect"),
        (400, "400"),
        (404, "404"),
        (500, "500"),
        (199, "199"),
    ] {
        let Reception::Refused { error, .. } = Reception::of(status, None) else { panic!("{status}") };
        assert!(error.starts_with(&status.to_string()) && error.contains(says), "{error}");
    }
}

#[test]
fn a_try_that_is_lost_comes_again_later_and_counts() {
    let mut record = settled(done(), 0);
    assert_eq!(due(&mut record, at(0)), [1]);
    assert_eq!(due(&mut record, at(24)), [0; 0], "the receiver has 15 s, and there is a wait");
    let alarm = record.next_alarm(&TIMING);
    assert_eq!(alarm, at(25));
    assert_eq!(due(&mut record, alarm), [1]);
    assert_eq!(record.notices.iter().next().unwrap().tries, 2);
    // What the first one came to arrives now.
    let late = |reception| record.clone().told(1, 1, reception, alarm, &TIMING, &mut fastrand::Rng::with_seed(0));
    assert_eq!(late(refused(None)), Told::Void);
    assert_eq!(late(Reception::Gone), Told::Void);
    assert_eq!(late(Reception::Taken), Told::Delivered);
}

#[test]
fn waits_double_from_five_seconds_to_two_hours_with_equal_jitter() {
    for seed in 0..50 {
        let (mut record, mut now) = (settled(done(), 0), at(0));
        for raw in [5, 10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 5_120, 7_200, 7_200] {
            assert_eq!(due(&mut record, now), [1]);
            let Told::Again(wait) = tell(&mut record, 1, refused(None), now, seed) else { panic!("given up") };
            let raw = Duration::from_secs(raw);
            assert!(wait >= raw / 2 && wait <= raw, "{wait:?} of {raw:?}");
            assert_eq!(due(&mut record, now + wait - Duration::from_millis(1)), [0; 0]);
            now = now + wait;
        }
    }
}

#[test]
fn a_retry_after_is_obeyed_if_it_is_longer_and_never_for_longer_than_the_longest_wait() {
    for (asked, least, most) in [(0, 2, 5), (1, 2, 5), (60, 60, 66), (7_200, 7_200, 7_206), (1_000_000, 7_200, 7_206)] {
        for seed in 0..50 {
            let mut record = settled(done(), 0);
            due(&mut record, at(0));
            let Told::Again(wait) = tell(&mut record, 1, refused(Some(asked)), at(0), seed) else { panic!("given up") };
            assert!(wait >= Duration::from_secs(least) && wait <= Duration::from_secs(most), "{asked}: {wait:?}");
        }
    }
}

#[test]
fn it_is_tried_for_a_day_and_given_up_while_the_job_can_still_say_so() {
    let mut tries_seen = Vec::new();
    for seed in 0..50 {
        let (mut record, mut now) = (settled(done(), 0), at(0));
        let mut told = Told::Void;
        for seed in seed * 100.. {
            if due(&mut record, now).is_empty() {
                break;
            }
            told = tell(&mut record, 1, refused(None), now, seed);
            let Told::Again(wait) = told else { break };
            now = now + wait;
        }
        assert_eq!(told, Told::GivenUp);
        assert_eq!(progress(&record), ["given up"]);
        assert!(now >= at(DAY - 2 * HOUR) && now < at(DAY), "{now:?}");
        let notice = record.notices.iter().next().unwrap();
        assert_eq!(notice.last_error.as_deref(), Some("503"));
        tries_seen.push(notice.tries);
        assert!(publishes(&mut record, now), "its last word goes into KV");
    }
    assert!(tries_seen.iter().all(|tries| (20..=35).contains(tries)), "{tries_seen:?}");
}

#[test]
fn a_job_that_is_kept_for_a_shorter_time_is_told_of_for_that_time() {
    let timing = spillway::job::Timing { retention: Duration::from_secs(60), ..TIMING };
    let mut record = settled(done(), 0);
    record.tick(at(0), &timing);
    let mut rng = fastrand::Rng::with_seed(0);
    assert_eq!(record.told(1, 1, refused(Some(60)), at(0), &timing, &mut rng), Told::GivenUp);
    assert_eq!(record.tick(at(60), &timing), [Effect::Erase]);
}

#[test]
fn a_410_disables_the_target_for_what_is_due_and_what_comes() {
    let mut record = settled(STALL, 10);
    due(&mut record, at(10));
    assert_eq!(tell(&mut record, 1, Reception::Gone, at(11), 0), Told::Disabled);
    record.answer_deferral(false, at(20));
    assert_eq!(progress(&record), ["given up", "given up"]);
    assert_eq!(record.notices.disabled_at(), Some(at(11)));
    assert_eq!(due(&mut record, at(HOUR)), [0; 0]);
    // Until somebody asks for it.
    assert!(record.tell_again(at(HOUR)));
    assert_eq!((record.notices.disabled_at(), due(&mut record, at(HOUR))), (None, vec![2]));
}

#[test]
fn the_index_hears_of_what_the_app_has_not_heard_and_of_it_once_it_has() {
    let mut record = settled(done(), 10);
    let listed = |record: &mut Record, seconds| {
        let row = record.tick(at(seconds), &TIMING).iter().find_map(row_of).cloned();
        row.map(|row| {
            record.listed(row.version);
            row.unheard
        })
    };
    assert_eq!(listed(&mut record, 10), Some(None));
    assert_eq!(tell(&mut record, 1, Reception::Gone, at(11), 0), Told::Disabled);
    assert_eq!(listed(&mut record, 11), Some(Some(Unheard::Disabled)));
    assert!(record.tell_again(at(12)));
    assert_eq!(listed(&mut record, 12), Some(None));
    assert_eq!(tell(&mut record, 1, Reception::Taken, at(13), 0), Told::Delivered);
    assert_eq!(listed(&mut record, 13), None, "nothing has changed for it");
    assert!(record.tell_again(at(14)));
    record.tick(at(14), &TIMING);
    let late = at(10 + DAY);
    assert_eq!(tell(&mut record, 1, refused(None), late, 0), Told::GivenUp);
    assert_eq!(record.row().unheard, Some(Unheard::GivenUp));
}

#[test]
fn told_again_it_is_the_last_news_with_a_fresh_day() {
    let mut record = settled(STALL, 10);
    assert!(!hooked(60).tell_again(at(1)));
    due(&mut record, at(10));
    tell(&mut record, 1, Reception::Taken, at(10), 0);
    record.answer_deferral(true, at(20));
    settle(&mut record, 2, done_by("claude-haiku-5-5"), 10 + 4 * HOUR);
    for number in due(&mut record, at(10 + 4 * HOUR)) {
        tell(&mut record, number, Reception::Taken, at(10 + 4 * HOUR), 0);
    }
    assert_eq!(progress(&record), ["delivered", "delivered", "delivered"]);
    let later = at(20 * HOUR);
    assert!(record.tell_again(later));
    assert_eq!(due(&mut record, later), [2, 3], "and not the question that has been answered");
    let Told::Again(wait) = tell(&mut record, 2, refused(None), later, 0) else { panic!("given up") };
    assert!(wait <= Duration::from_secs(5), "{wait:?}");
}

#[test]
fn kv_is_written_when_nothing_is_left_to_be_sent_and_again_after_a_redelivery() {
    let mut record = settled(done(), 0);
    due(&mut record, at(0));
    assert!(!publishes(&mut record, at(1)));
    tell(&mut record, 1, Reception::Taken, at(2), 0);
    assert!(publishes(&mut record, at(2)));
    // Asked for while the write is on its way.
    record.tell_again(at(3));
    record.published(at(3));
    assert_eq!(due(&mut record, at(3)), [1]);
    assert!(!publishes(&mut record, at(20)));
    tell(&mut record, 1, Reception::Taken, at(21), 0);
    assert!(publishes(&mut record, at(40)));
    record.published(at(40));
    assert!(!publishes(&mut record, at(HOUR)));
    record.tell_again(at(HOUR));
    due(&mut record, at(HOUR));
    tell(&mut record, 1, Reception::Taken, at(HOUR), 0);
    assert!(publishes(&mut record, at(HOUR)));
}

#[test]
fn a_job_that_is_taken_back_tells_nothing_and_a_late_answer_changes_nothing() {
    for (then, end) in [(STALL, "cancelled"), (done(), "done"), (failed(), "failed")] {
        let mut record = settled(then, 10);
        due(&mut record, at(10));
        record.cancel(at(11));
        assert_eq!((record.state.name(), news(&record)), (end, vec![]));
        let mut rng = fastrand::Rng::with_seed(0);
        assert_eq!(record.told(1, 1, Reception::Taken, at(12), &TIMING, &mut rng), Told::Void);
        assert_eq!(record.told(1, 1, refused(None), at(12), &TIMING, &mut rng), Told::Void);
        assert_eq!(due(&mut record, at(HOUR)), [0; 0]);
        assert!(!record.tell_again(at(HOUR)));
    }
}

#[test]
fn what_is_kept_of_a_receivers_words_is_short() {
    let mut record = settled(done(), 0);
    due(&mut record, at(0));
    tell(&mut record, 1, Reception::missing("é".repeat(5_000)), at(0), 0);
    assert_eq!(record.notices.iter().next().unwrap().last_error.as_ref().unwrap().chars().count(), 200);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens, and whatever is lost: the last notice is that of the state, and it is on its way until it is settled.
    #[test]
    fn every_end_is_told_unless_the_job_was_taken_back(deadline in deadlines(), history in histories()) {
        let mut world = World::new(deadline);
        world.record = hooked(deadline);
        let mut numbers = Vec::new();
        for op in history {
            let step = world.step(op);
            let record = &world.record;
            numbers.extend(step.effects.iter().filter_map(|effect| match effect {
                Effect::Notify { numbers } => Some(numbers.clone()),
                _ => None,
            }).flatten());
            let expected = match record.state.name() {
                _ if record.erased => None,
                "done" if record.is_downgraded() => Some("job.downgraded"),
                "done" => Some("job.done"),
                "failed" => Some("job.failed"),
                "stalled" => Some("job.stalled"),
                _ => record.notices.iter().last().map(|notice| notice.news.event()),
            };
            prop_assert_eq!(record.notices.iter().last().map(|notice| notice.news.event()), expected);
            prop_assert!(record.notices.iter().count() <= 16);
        }
        let Some(last) = world.record.notices.iter().last().cloned() else { return Ok(()) };
        // A clock that was set back catches up. Nothing has said that it was delivered: with the next alarms it is sent, or once more.
        world.step(Op::Forward(u64::try_from(last.at.after(world.now).as_millis()).unwrap()));
        for _ in 0..8 {
            world.step(Op::ToAlarm);
            let step = world.step(Op::Tick { is_done: true });
            if step.effects == [Effect::Erase] {
                return Ok(());
            }
            numbers.extend(step.effects.into_iter().filter_map(|effect| match effect {
                Effect::Notify { numbers } => Some(numbers),
                _ => None,
            }).flatten());
        }
        prop_assert!(numbers.contains(&last.number), "{:?}", world.record);
    }
}
