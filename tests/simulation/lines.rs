//! Users who wait, rule by rule: what is counted, and what the synchronous path does about it.

use super::simulation::callers::Figures;
use super::simulation::report::Row;
use super::simulation::run;
use super::simulation::scenario::Scenario;

/// Sixty users a minute with fixed latencies: 1.2 s to content and 2 s after it.
fn storm(head: &str, calls: &str, phases: &str) -> Scenario {
    let text = format!(
        "name = \"test\"\ntitle = \"t\"\nwhy = \"w\"\nminutes = 10\n{head}\n[queues]\nduplicate_percent = 0\n\
         [calls]\nper_minute = 60\noutput_tokens = [100, 0]\n{calls}\n\
         [[calls.kind]]\nname = \"default\"\nshare = 1\nfallback = false\n{phases}"
    );
    Scenario::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn run(scenario: &Scenario, policy: &str) -> (Row, Figures) {
    let row = run::one(scenario, policy, 1).unwrap();
    let users = row.callers.clone().unwrap();
    (row, users)
}

const OUTAGE: &str = "[[phase]]\nfrom_minute = 2\nminutes = 3\noutage = true";

#[test]
fn in_fair_weather_everybody_is_answered_on_the_line_with_one_call() {
    for policy in ["spillway", "spillway-auto", "spillway-never", "sdk"] {
        let (row, users) = run(&storm("", "", ""), policy);
        assert_eq!((row.calls, row.done, users.most_line_calls), (row.jobs, row.jobs, 1), "{policy}");
        assert_eq!(
            (users.user_exposure, users.handed_over_share, users.in_patience_share),
            (0.0, 0.0, 1.0),
            "{policy}"
        );
    }
}

#[test]
fn whose_call_was_handed_over_and_answered_is_not_exposed() {
    let (row, users) = run(&storm("", "", OUTAGE), "spillway");
    assert!(users.handed_over_share > 0.2 && users.told_later_share > 0.2, "{users:?}");
    assert_eq!((users.user_exposure, row.done), (0.0, row.jobs));
    assert!(users.later_p50_s > Some(10.0), "{users:?}");
}

#[test]
fn whose_call_was_handed_over_and_not_answered_is_exposed() {
    let too_short = r#"policy = '{ "deadline_seconds": 60 }'"#;
    let (row, users) = run(&storm(too_short, "", OUTAGE), "spillway");
    assert!(row.failed > 50, "{}", row.failed);
    assert_eq!(users.user_exposure, row.exposure);
    assert_eq!(users.avoidable_exposure, users.user_exposure, "nothing broke off");
}

#[test]
fn a_line_is_held_for_as_long_as_its_caller_is_patient() {
    let later = |calls: &str, policy| {
        let (_, users) = run(&storm("", calls, OUTAGE), policy);
        (users.handed_over_share > 0.2, users.told_later_share, users.in_patience_share)
    };
    let (handed_over, told_later, in_patience) = later("patience_seconds = 600", "spillway");
    assert!(handed_over);
    assert_eq!((told_later, in_patience), (0.0, 1.0), "ten minutes outlast the outage");
    assert!(later("", "spillway").1 > 0.2);
    let (handed_over, told_later, _) = later("patience_seconds = 600", "spillway-auto");
    assert!(handed_over && told_later > 0.2, "a receipt holds no line");
}

#[test]
fn without_the_queue_the_error_goes_through_and_the_sdk_does_not_multiply_the_calls() {
    let hopeless = "[[phase]]\nfrom_minute = 0\nminutes = 100000\noutage = true";
    let (row, users) = run(&storm("", "", hopeless), "spillway-never");
    assert_eq!((users.user_exposure, users.handed_over_share, row.deliveries_per_job), (1.0, 0.0, Some(0.0)));
    assert!(users.most_line_calls <= 3, "{users:?}");
    let (direct, _) = run(&storm("", "", hopeless), "sdk");
    assert_eq!(direct.calls, 3 * direct.jobs);
    assert!(row.calls < row.jobs / 5, "the gate spares them: {} of {}", row.calls, row.jobs);
}

#[test]
fn what_has_been_seen_is_never_called_for_again() {
    let breaks = "[[phase]]\nfrom_minute = 0\nminutes = 100000\nstream_after_percent = 100";
    for policy in ["spillway", "spillway-auto", "spillway-never", "sdk"] {
        let (row, users) = run(&storm("", "", breaks), policy);
        assert_eq!((row.calls, users.most_line_calls, users.calls_after_output), (row.jobs, 1, 0), "{policy}");
        assert_eq!((users.broken_share, users.avoidable_exposure, row.done), (1.0, 0.0, 0), "{policy}");
    }
}

#[test]
fn an_overload_inside_the_stream_before_content_is_tried_again_and_handed_over() {
    let breaks = "[[phase]]\nfrom_minute = 2\nminutes = 3\nstream_before_percent = 60";
    let (row, users) = run(&storm("", "", breaks), "spillway");
    assert_eq!((users.user_exposure, users.most_line_calls, row.done), (0.0, 2, row.jobs));
    assert!(users.handed_over_share > 0.05, "{users:?}");
    assert!(run(&storm("", "", breaks), "sdk").1.user_exposure > 0.1, "an SDK looks at the status, which was 200");
}

#[test]
fn a_view_of_the_gate_is_wrong_for_a_second_at_most() {
    let (row, users) = run(&storm("", "isolates = 1", OUTAGE), "spillway");
    let trips = row.trips.unwrap();
    assert!(trips > 0 && users.stale_calls <= trips * 5, "sixty a minute, {trips} trips: {}", users.stale_calls);
}

#[test]
fn calls_beside_the_jobs_leave_the_jobs_as_they_were() {
    let jobs = "[jobs]\nper_minute = 30\n[[jobs.kind]]\nname = \"tagging\"\nshare = 1\nfallback = true";
    let both = storm("", "", jobs);
    let alone = Scenario { calls: None, ..both.clone() };
    let times = |scenario: &Scenario| -> Vec<_> {
        let all = scenario.jobs(3).into_iter().filter(|job| job.caller.is_none());
        all.map(|job| (job.at, job.output_tokens, job.may_fall_back)).collect()
    };
    assert_eq!(times(&both), times(&alone));
    let (row, users) = run(&both, "spillway");
    assert!(users.users > 500 && row.jobs - users.users > 250, "{} and {}", users.users, row.jobs);
}
