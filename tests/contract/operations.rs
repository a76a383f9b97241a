//! What the operator sends to pause queues, to drain, and to drive jobs on, and what comes back.

use serde_json::{Value, json};
use spillway::api::error::{ApiError, ErrorKind};
use spillway::api::listing::{Cursor, Page, Query};
use spillway::api::queues;
use spillway::api::redriving::{self, Many, Outcome};
use spillway::job::{JobId, Row, Standing, Which};
use spillway::policy::priority::Priority;
use spillway::policy::switches::{Name, Order, Switches};
use spillway::policy::time::Timestamp;
use spillway::submission;

/// 2023-11-14T22:13:20Z
const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const ORDER: &str = r#"{"until":"2023-11-14T23:13:20Z","note":"Why."}"#;
const UNTIL: &str = r#"until: must be a moment in the future, at most 7 days away, in RFC 3339: "2026-11-30T13:05:12Z", "2026-11-30T14:05:12+01:00""#;
const NO_QUEUE: &str = "priority: must be one of high, medium, low";

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + seconds * 1_000)
}

fn switched(name: Name, order: Order) -> Switches {
    let mut switches = Switches::default();
    let switch = switches.set(name, Some(order), NOW);
    switches.learn(name, Some(switch), NOW);
    switches
}

fn problems<T: std::fmt::Debug>(result: Result<T, ApiError>) -> Vec<String> {
    let error = result.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidRequest);
    error.problems.iter().map(|problem| format!("{}: {}", problem.place, problem.message)).collect()
}

#[test]
fn an_order_has_an_end_and_a_note_and_begins_now() {
    let order = Order { since: NOW, until: at(3_600), note: "Why.".into(), author: "operator".into() };
    assert_eq!(queues::order(Some(Name::Drain), ORDER.as_bytes(), NOW), Ok((Name::Drain, order.clone())));
    let pause = queues::order(Some(Name::Pause(Priority::Low)), ORDER.as_bytes(), NOW);
    assert_eq!(pause, Ok((Name::Pause(Priority::Low), order)));
    let by_ada = br#"{"until":"2023-11-14T23:13:20Z","note":"Why.","author":"ada"}"#;
    assert_eq!(queues::order(Some(Name::Drain), by_ada, NOW).unwrap().1.author, "ada");
}

#[test]
fn its_faults_are_those_of_every_order_and_the_queues_comes_first() {
    let body = br#"{"until":"2023-11-14T22:13:20Z","state":"open"}"#;
    let expected = [
        NO_QUEUE,
        "state: is not a known field; there are until, note, author",
        UNTIL,
        "note: is required: a text of 1 to 500 characters, why",
    ];
    assert_eq!(problems(queues::order(None, body, NOW)), expected);
    assert_eq!(problems(queues::order(None, ORDER.as_bytes(), NOW)), [NO_QUEUE]);
    assert_eq!(problems(queues::order(Some(Name::Drain), body, NOW)), expected[1..]);
    assert_eq!(problems(queues::name(None)), [NO_QUEUE]);
    assert!(queues::order(Some(Name::Drain), b"[]", NOW).is_err());
}

#[test]
fn the_document_has_every_queue_and_what_holds_it() {
    let (name, order) = queues::order(Some(Name::Pause(Priority::Low)), ORDER.as_bytes(), NOW).unwrap();
    let switches = switched(name, order);
    let jobs =
        [("high", 1), ("medium", 2), ("low", 4)].into_iter().map(|(name, jobs)| (name.to_owned(), jobs)).collect();
    let document: Value = serde_json::from_str(&queues::document(&switches, Some(&jobs), at(60))).unwrap();
    let paused = json!({
        "since": "2023-11-14T22:13:20.000Z",
        "until": "2023-11-14T23:13:20.000Z",
        "seconds_left": 3540,
        "note": "Why.",
        "author": "operator",
    });
    let expected = json!({
        "queues": {
            "high": {"unfinished": 1, "paused": null},
            "medium": {"unfinished": 2, "paused": null},
            "low": {"unfinished": 4, "paused": paused},
        },
        "drain": null,
        "unfinished": 7,
        "versions": {"high": 0, "medium": 0, "low": 1_700_000_000_000_u64, "drain": 0},
        "takes_effect_within_seconds": 60,
    });
    assert_eq!(document, expected);
    let later: Value = serde_json::from_str(&queues::document(&switches, None, at(3_600))).unwrap();
    assert_eq!(later["queues"]["low"], json!({"unfinished": null, "paused": null}), "its end, and a silent Meter");
}

#[test]
fn a_drain_refuses_what_is_new_with_the_note_and_what_to_do() {
    let (name, order) = queues::order(Some(Name::Drain), ORDER.as_bytes(), NOW).unwrap();
    let switches = switched(name, order);
    for (seconds, retry_after) in [(0, 60), (3_540, 60), (3_570, 30)] {
        let error = submission::check_drain(&switches, at(seconds)).unwrap_err();
        assert_eq!((error.kind, error.retry_after_seconds), (ErrorKind::Unavailable, Some(retry_after)), "{seconds}");
        assert!(error.message.contains("until 2023-11-14T23:13:20.000Z: Why.; keep the request"), "{}", error.message);
    }
    assert_eq!(submission::check_drain(&switches, at(3_600)), Ok(()));
    assert_eq!(submission::check_drain(&Switches::default(), NOW), Ok(()));
}

#[test]
fn what_was_switched_is_told_and_what_was_not_is_not() {
    let order = queues::order(Some(Name::Drain), ORDER.as_bytes(), NOW).unwrap().1;
    let pause = Name::Pause(Priority::High);
    for (name, order, before, line) in [
        (
            pause,
            Some(&order),
            None,
            r#"{"event":"queue_paused","priority":"high","lasts_ms":3600000,"author":"operator","note":"Why."}"#,
        ),
        (pause, None, Some(&order), r#"{"event":"queue_resumed","priority":"high","early_ms":3600000}"#),
        (
            Name::Drain,
            Some(&order),
            Some(&order),
            r#"{"event":"drain_started","lasts_ms":3600000,"author":"operator","note":"Why."}"#,
        ),
        (Name::Drain, None, Some(&order), r#"{"event":"drain_ended","early_ms":3600000}"#),
    ] {
        assert_eq!(queues::switched(name, order, before, NOW).unwrap().line(), line);
    }
    assert!(queues::switched(pause, None, None, NOW).is_none());
    assert!(queues::switched(pause, None, Some(&order), at(3_600)).is_none(), "it had ended by itself");
}

#[test]
fn many_are_the_failed_or_the_open_of_a_reason_that_they_can_have() {
    let which = |body: &str| Many::parse(body.as_bytes()).unwrap().which;
    let failed = |reason: Option<&str>| Which::Failed { reason: reason.map(str::to_owned) };
    let waiting = |reason: Option<&str>| Which::Waiting { reason: reason.map(str::to_owned) };
    assert_eq!(which(r#"{"status":"failed"}"#), failed(None));
    assert_eq!(which(r#"{"status":"open","cursor":null,"limit":1}"#), waiting(None));
    for reason in ["attempts_exhausted", "interrupted", "invalid_request", "spend_cap"] {
        assert_eq!(which(&format!(r#"{{"status":"failed","reason":"{reason}"}}"#)), failed(Some(reason)));
    }
    for reason in ["paused", "off_peak", "overloaded", "truncated"] {
        assert_eq!(which(&format!(r#"{{"status":"open","reason":"{reason}"}}"#)), waiting(Some(reason)));
    }
    let places = |body: &str| {
        let faults = problems(Many::parse(body.as_bytes()));
        faults.iter().map(|fault| fault.split(':').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for (body, expected) in [
        ("{}", vec!["status"]),
        (r#"{"status":"held"}"#, vec!["status"]),
        (r#"{"status":"failed","reason":"paused"}"#, vec!["reason"]),
        (r#"{"status":"open","reason":"attempts_exhausted"}"#, vec!["reason"]),
        (r#"{"status":"open","reason":"pau\"sed"}"#, vec!["reason"]),
        (
            r#"{"status":7,"reason":7,"since":7,"cursor":7,"limit":"7","x":7}"#,
            vec!["x", "status", "reason", "since", "cursor", "limit"],
        ),
        (r#"{"status":"open","limit":0}"#, vec!["limit"]),
        (r#"{"status":"open","limit":11}"#, vec!["limit"]),
        (r#"{"status":"open","since":"2023-11-14T22:13:20"}"#, vec!["since"]),
        (r#"{"status":"open","cursor":"1.7"}"#, vec!["cursor"]),
    ] {
        assert_eq!(places(body), expected, "{body}");
    }
}

fn row(id: u128, created: u64, ended: u64, standing: Standing) -> Row {
    let (id, kind, status) = (JobId::random(id), "tagging".to_owned(), standing.name().to_owned());
    Row { id, version: 1, standing, status, kind, created_at: at(created), ends_at: at(ended), unheard: None }
}

/// Every page's jobs, from the rows of two clients' indexes, as they are asked.
fn pages(body: &str, rows: &[Row]) -> Vec<Vec<u128>> {
    let index = |query: &Query, client: usize| {
        let mut found: Vec<Row> = rows
            .iter()
            .enumerate()
            .filter(|(n, row)| n % 2 == client && Some(row.standing) == query.standing)
            .map(|(_, row)| row.clone())
            .filter(|row| query.after.as_ref().is_none_or(|after| Cursor::of(row) < *after))
            .collect();
        found.sort_by_key(|row| std::cmp::Reverse(Cursor::of(row)));
        found.truncate(query.rows as usize);
        found
    };
    let (mut pages, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let next = cursor.map_or_else(String::new, |cursor| format!(r#","cursor":"{cursor}""#));
        let many = Many::parse(format!("{{{body}{next}}}").as_bytes()).unwrap();
        let query = many.asked.query();
        let found = (0..2).map(|client| (format!("client-{client}"), index(&query, client))).collect();
        let (jobs, next) = many.pick(&Page::of(found, &many.asked));
        let number = |id: &JobId| (0..1_000).find(|n| JobId::random(*n) == *id).unwrap();
        pages.push(jobs.iter().map(number).collect());
        match next {
            Some(next) => cursor = Some(next),
            None => return pages,
        }
    }
}

#[test]
fn pages_have_every_job_once_the_newest_first_and_so_many_at_most() {
    let rows: Vec<Row> = (0..7).map(|n| row(n, 10 * n as u64, 100, Standing::Failed)).collect();
    for (limit, expected) in [
        (3, vec![vec![6, 5, 4], vec![3, 2, 1], vec![0]]),
        (7, vec![vec![6, 5, 4, 3, 2, 1, 0]]),
        (10, vec![vec![6, 5, 4, 3, 2, 1, 0]]),
    ] {
        assert_eq!(pages(&format!(r#""status":"failed","limit":{limit}"#), &rows), expected, "{limit}");
    }
    assert_eq!(pages(r#""status":"open""#, &rows), [[0; 0]]);
}

#[test]
fn those_that_are_too_old_are_passed_over_a_hundred_a_page() {
    let rows: Vec<Row> = (0..250).map(|n| row(n, n as u64, 100 + n as u64, Standing::Failed)).collect();
    // It counts when they failed: the newest, and one that was submitted long before.
    let mut old = rows.clone();
    old[3].ends_at = at(400);
    let since = r#""status":"failed","since":"2023-11-14T22:19:08Z""#;
    assert_eq!(pages(since, &old), [vec![249, 248], vec![], vec![3]]);
    let open: Vec<Row> = (0..5).map(|n| row(n, 100 * n as u64, 9_999, Standing::Open)).collect();
    assert_eq!(
        pages(r#""status":"open","since":"2023-11-14T22:18:20Z""#, &open),
        [[4, 3]],
        "of the open when they came"
    );
}

#[test]
fn the_answer_names_each_job_what_became_of_it_and_the_job_that_does_it_again() {
    let (job, new) = (JobId::random(1), JobId::random(2));
    let view = |outcome: Outcome| serde_json::from_str::<Value>(&redriving::one(&job, &outcome)).unwrap();
    for (outcome, name, new_job) in [
        (Outcome::SentAgain, "sent_again", Value::Null),
        (Outcome::StartedAgain(new.clone()), "started_again", json!(new.to_string())),
        (Outcome::NotNeeded(None), "not_needed", Value::Null),
        (Outcome::NotNeeded(Some(new.clone())), "not_needed", json!(new.to_string())),
        (Outcome::Unanswered, "unanswered", Value::Null),
        (Outcome::of(&ApiError::unavailable("x", 1)), "unanswered", Value::Null),
        (Outcome::of(&ApiError::no_such_job()), "not_needed", Value::Null),
        (Outcome::of(&ApiError::invalid(vec![])), "not_needed", Value::Null),
    ] {
        let expected = json!({"job": job.to_string(), "outcome": name, "as": new_job});
        assert_eq!(view(outcome.clone()), expected);
        let page = redriving::many(&[(job.clone(), outcome)], None);
        let page: Value = serde_json::from_str(&page).unwrap();
        assert_eq!(page, json!({"redriven": [expected], "next_cursor": null}));
    }
}
