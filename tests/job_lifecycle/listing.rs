//! What a client's index is told of its jobs: enough, in whatever order it arrives, and never more than is true.

use std::time::Duration;

use proptest::prelude::*;
use spillway::job::{Claim, Effect, Ending, FailReason, Record, Row, Settlement, Standing, Then};

use super::world::{Op, T0, TIMING, World, deadlines, histories, job, row_of, run, stored};

/// What an index keeps of everything that it was told, by the rule of `edge/index_object`.
fn kept<'a>(told: impl IntoIterator<Item = &'a Row>) -> Option<&'a Row> {
    told.into_iter().fold(None, |kept, row| match kept {
        Some(known) if row.version < Row::clone(known).version => Some(known),
        _ => Some(row),
    })
}

fn told(record: &mut Record, seconds: u64) -> Option<Row> {
    record.tick(T0 + Duration::from_secs(seconds), &TIMING).iter().find_map(row_of).cloned()
}

fn end(record: &mut Record, ending: Ending) {
    let Claim::Claimed(claimed) = record.claim(1, T0, &TIMING) else { panic!("the first turn is due at once") };
    record.settle(claimed.token, Settlement { failed_calls: Vec::new(), then: Then::End(ending) }, T0);
}

fn done() -> Ending {
    Ending::Done { model_used: "m".into(), downgrade: None }
}

/// Lets the alarm ring until the index knows all.
fn settle_with_the_index(world: &mut World) {
    for _ in 0..40 {
        world.step(Op::ToAlarm);
        world.step(Op::Tick { is_done: true });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Told twice, late and shuffled, with the last told only once: it ends up with what is so.
    #[test]
    fn in_whatever_order_the_rows_arrive_the_index_ends_up_with_the_newest(
        deadline in deadlines(), history in histories(), order in prop::collection::vec(any::<prop::sample::Index>(), 60),
    ) {
        let (mut world, _) = run(deadline, history);
        settle_with_the_index(&mut world);
        // Of a job whose retention was over before anything was told there is none.
        prop_assume!(!world.rows.is_empty());
        let last = world.rows.last().unwrap().clone();
        let shuffled: Vec<&Row> = order.iter().map(|index| index.get(&world.rows)).chain([&last]).collect();
        for arrivals in [shuffled.clone(), shuffled.into_iter().rev().collect()] {
            let kept = kept(arrivals).unwrap();
            prop_assert_eq!((kept.version, kept.standing, kept.ends_at), (last.version, last.standing, last.ends_at));
        }
        if !world.record.state.is_terminal() {
            prop_assert_eq!(last.standing, Standing::Open);
        }
    }

    #[test]
    fn a_row_says_what_the_job_is_and_a_version_always_says_the_same(deadline in deadlines(), history in histories()) {
        let (world, steps) = run(deadline, history);
        for step in &steps {
            for row in step.effects.iter().filter_map(row_of) {
                prop_assert_eq!((&row.id, row.created_at), (&step.after.id, step.after.created_at));
                let standing = match step.after.state.name() {
                    _ if step.after.is_gone() => "gone",
                    name @ ("done" | "failed" | "cancelled") => name,
                    _ => "open",
                };
                prop_assert_eq!(row.standing.name(), standing);
                prop_assert_eq!(row.standing != Standing::Open, step.after.finished_at == Some(row.ends_at));
            }
        }
        for (n, row) in world.rows.iter().enumerate() {
            for later in &world.rows[n..] {
                prop_assert!(later.version >= row.version);
                if later.version == row.version {
                    prop_assert_eq!((later.standing, later.ends_at), (row.standing, row.ends_at));
                }
            }
        }
    }

    /// Or it would vanish from the list of a client that waits for it.
    #[test]
    fn an_open_jobs_row_outlives_the_job(deadline in deadlines(), history in histories()) {
        let (mut world, _) = run(deadline, history);
        let until = world.record.row().ends_at;
        prop_assume!(!world.record.state.is_terminal() && world.now < until);
        // With no news of it: a deferral is news.
        let version = world.record.row().version;
        while !world.record.state.is_terminal() && world.record.row().version == version {
            world.step(Op::ToAlarm);
            world.step(Op::Tick { is_done: true });
        }
        prop_assert!(world.now <= until, "over at {:?}, and the row until {until:?}", world.now);
    }
}

#[test]
fn a_job_is_told_when_it_is_created_when_it_ends_and_when_it_is_erased() {
    let mut record = job(86_400);
    let row = told(&mut record, 0).unwrap();
    assert_eq!(
        (row.version, row.standing, row.status.as_str(), row.kind.as_str()),
        (1, Standing::Open, "received", "tagging")
    );
    record.listed(1);
    assert_eq!(told(&mut record, 3_000), None);
    end(&mut record, done());
    let row = told(&mut record, 3_000).unwrap();
    assert_eq!((row.version, row.standing, row.status.as_str(), row.ends_at), (2, Standing::Done, "done", T0));
    record.listed(2);
    record.cancel(T0);
    let row = told(&mut record, 3_000).unwrap();
    assert_eq!(
        (row.version, row.standing, row.kind.as_str()),
        (3, Standing::Gone, ""),
        "nothing of what it was is kept"
    );
}

#[test]
fn what_happens_in_between_is_no_news_but_a_deferral_moves_the_end() {
    let mut record = job(3_600);
    let first = told(&mut record, 0).unwrap();
    record.listed(1);
    let Claim::Claimed(claimed) = record.claim(1, T0, &TIMING) else { panic!("the first turn is due at once") };
    record.begin(claimed.token, "m".into(), T0, &TIMING);
    record.refine(claimed.token, T0, &TIMING);
    assert_eq!(told(&mut record, 1), None);
    let then = Then::Defer { resume_ms: 36_000_000 };
    record.settle(claimed.token, Settlement { failed_calls: Vec::new(), then }, T0);
    let deferred = told(&mut record, 1).unwrap();
    assert_eq!((deferred.version, deferred.standing, deferred.status.as_str()), (2, Standing::Open, "deferred"));
    assert_eq!(deferred.ends_at, first.ends_at + Duration::from_secs(36_000));
}

#[test]
fn an_index_that_does_not_answer_is_told_again_ever_more_patiently_and_keeps_nothing_else_waiting() {
    let mut record = job(86_400);
    let mut tried = Vec::new();
    for second in 0..=1_300 {
        let effects = record.tick(T0 + Duration::from_secs(second), &TIMING);
        if effects.iter().any(|effect| row_of(effect).is_some()) {
            tried.push(second);
        }
        if let Some(Effect::Announce { envelope, .. }) = effects.first() {
            record.announced(envelope.turn, T0);
        }
    }
    assert_eq!(tried, [0, 10, 30, 70, 150, 310, 630, 1_230], "ten seconds, doubling to ten minutes");
}

#[test]
fn a_confirmation_of_an_older_row_confirms_nothing() {
    let mut record = job(86_400);
    told(&mut record, 0);
    let failed =
        Ending::Failed { reason: FailReason::AttemptsExhausted, cause: None, error_type: None, message: "m".into() };
    end(&mut record, failed);
    record.listed(1);
    let row = told(&mut record, 0).unwrap();
    assert_eq!((row.version, row.standing), (2, Standing::Failed));
    record.listed(2);
    assert_eq!(told(&mut record, 80_000), None);
}

#[test]
fn a_cancelled_job_still_says_so_and_its_row_too() {
    let mut record = job(86_400);
    record.cancel(T0);
    let row = told(&mut record, 0).unwrap();
    assert_eq!((row.standing, row.kind.as_str()), (Standing::Cancelled, "tagging"));
}

#[test]
fn a_job_whose_retention_is_over_is_not_told_any_more() {
    let mut record = job(86_400);
    end(&mut record, done());
    assert_eq!(record.tick(T0 + TIMING.retention, &TIMING), [Effect::Erase]);
}

#[test]
fn a_job_that_an_older_version_stored_is_told_at_the_next_occasion() {
    let mut json = stored(&job(86_400));
    json.as_object_mut().unwrap().remove("listing");
    let mut record: Record = serde_json::from_value(json).unwrap();
    let row = told(&mut record, 100).unwrap();
    assert_eq!((row.version, row.standing), (0, Standing::Open));
    record.listed(0);
    end(&mut record, done());
    assert_eq!(told(&mut record, 100).map(|row| row.version), Some(1));
}
