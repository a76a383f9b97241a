//! The model, rule by rule.

use std::cell::RefCell;
use std::rc::Rc;

use super::simulation::claude::{Answer, Answered, Bucket, Model};
use super::simulation::queues::{Delivery, QueueLaw, Queues};
use super::simulation::report::is_ours;
use super::simulation::rivals;
use super::simulation::run;
use super::simulation::scenario::Scenario;
use super::simulation::world::{End, JobIndex, MINUTE, Ms, Policy, Priority, SECOND, Sim, Task, Work};

/// A scenario of one kind of job with fixed latencies: 1 s to content and 10 s after it.
fn scenario(text: &str) -> Scenario {
    let jobs =
        if text.contains("[jobs]") { "" } else { "[jobs]\nper_minute = 60\neven = true\noutput_tokens = [100, 0]" };
    let text = format!(
        "name = \"test\"\ntitle = \"t\"\nwhy = \"w\"\n{text}\n{jobs}\n[[jobs.kind]]\nname = \"default\"\nshare = 1\nfallback = false\n"
    );
    Scenario::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Each job calls once, and what it got is noted.
#[derive(Default)]
struct Once(Rc<RefCell<Vec<(Ms, Ms, Answered)>>>);

impl Policy for Once {
    fn name(&self) -> &'static str {
        "once"
    }

    fn submit(&self, task: Task, job: JobIndex) -> Work {
        let noted = self.0.clone();
        Box::pin(async move {
            let began = task.now();
            let answered = task.call(job, Model::Primary).await;
            noted.borrow_mut().push((began, task.now(), answered));
            task.world().finish(job, if answered.answer.is_message() { End::Done } else { End::Failed });
        })
    }
}

fn once(text: &str) -> Vec<(Ms, Ms, Answered)> {
    let noted = Once::default();
    let sim = Sim::new(Rc::new(scenario(text)), 7);
    sim.run(&noted);
    noted.0.take()
}

#[test]
fn no_more_calls_are_served_than_the_capacity_and_the_rest_is_refused_quickly() {
    let calls = once("minutes = 2\n[primary]\ncapacity = 3\ntoken_ms = 100");
    let live_at = |at: Ms| {
        let is_live = |(began, ended, it): &&(Ms, Ms, Answered)| it.answer.is_message() && *began <= at && at < *ended;
        calls.iter().filter(is_live).count()
    };
    assert!(calls.iter().all(|(began, ..)| live_at(*began) <= 3));
    let (served, refused): (Vec<_>, Vec<_>) = calls.iter().partition(|(.., it)| it.answer.is_message());
    assert!(served.len() > 20 && refused.len() > 20, "{} and {}", served.len(), refused.len());
    for (began, ended, answered) in refused {
        assert_eq!(answered.answer, Answer::Overloaded);
        assert_eq!(live_at(began), 3, "refused with room left");
        assert!(ended - began <= 300);
    }
}

#[test]
fn everything_is_refused_in_an_outage_and_nothing_before_and_after() {
    let calls = once("minutes = 30\n[[phase]]\nfrom_minute = 10\nminutes = 10\noutage = true");
    for (began, _, answered) in calls {
        let is_out = (10 * MINUTE..20 * MINUTE).contains(&began);
        assert_eq!(answered.answer == Answer::Overloaded, is_out, "at {began}");
    }
}

#[test]
fn a_flapping_model_is_up_and_down_in_turn() {
    let calls = once("minutes = 30\n[[phase]]\nfrom_minute = 10\nminutes = 10\nup_seconds = 30\ndown_seconds = 60");
    for (began, _, answered) in calls {
        let is_out =
            (10 * MINUTE..20 * MINUTE).contains(&began) && (began - 10 * MINUTE) % (90 * SECOND) >= 30 * SECOND;
        assert_eq!(answered.answer == Answer::Overloaded, is_out, "at {began}");
    }
}

#[test]
fn a_brown_out_refuses_its_share() {
    let calls = once("minutes = 60\n[[phase]]\nfrom_minute = 0\nminutes = 60\nrefuse_percent = 40");
    let refused = calls.iter().filter(|(.., it)| it.answer == Answer::Overloaded).count();
    let share = refused as f64 / calls.len() as f64;
    assert!((0.35..0.45).contains(&share), "{share}");
}

#[test]
fn an_overload_inside_the_stream_comes_before_or_after_content() {
    let calls = once(
        "minutes = 60\n[[phase]]\nfrom_minute = 0\nminutes = 60\nstream_before_percent = 20\nstream_after_percent = 10",
    );
    let share = |after_content| {
        let wanted = Answer::StreamOverload { after_content };
        calls.iter().filter(|(.., it)| it.answer == wanted).count() as f64 / calls.len() as f64
    };
    assert!((0.17..0.23).contains(&share(false)), "{}", share(false));
    assert!((0.08..0.12).contains(&share(true)), "{}", share(true));
}

#[test]
fn a_phase_breaks_off_what_is_on_its_way() {
    let calls =
        once("minutes = 10\n[primary]\ntoken_ms = 1000\n[[phase]]\nfrom_minute = 5\nminutes = 1\nbreaks_percent = 100");
    let broken: Vec<_> = calls.iter().filter(|(.., it)| matches!(it.answer, Answer::StreamOverload { .. })).collect();
    assert!(broken.len() > 20, "{}", broken.len());
    assert!(broken.iter().all(|(_, ended, _)| *ended == 5 * MINUTE));
}

#[test]
fn a_call_over_the_rate_is_told_when_to_come_again_and_what_is_left() {
    let calls = once("minutes = 10\n[primary]\ncalls_per_minute = 30");
    let served = calls.iter().filter(|(.., it)| it.answer.is_message()).count();
    assert!((325..=332).contains(&served), "a bucket of 30 and 30 a minute: {served}");
    for (began, _, answered) in &calls {
        let limits = answered.limits.requests.unwrap();
        assert_eq!(limits.limit, 30);
        match answered.answer {
            Answer::RateLimited { retry_after_seconds } => {
                assert!(
                    (1..=2).contains(&retry_after_seconds),
                    "one call comes every two seconds: {retry_after_seconds}"
                );
                assert_eq!(limits.remaining, 0, "at {began}");
                assert!((58_000..=60_000).contains(&(limits.full_at - began)));
            }
            answer => assert_eq!(answer, Answer::Message),
        }
    }
}

#[test]
fn tokens_have_a_limit_of_their_own() {
    let calls = once(
        "minutes = 10\n[primary]\ntokens_per_minute = 3000\nburst_seconds = 60\n[jobs]\nper_minute = 60\neven = true\ninput_tokens = [200, 0]\noutput_tokens = [100, 0]",
    );
    let served = calls.iter().filter(|(.., it)| it.answer.is_message()).count();
    assert!((108..=112).contains(&served), "3,000 at once and a minute make ten calls each: {served}");
}

#[test]
fn a_bucket_gives_exactly_at_the_moment_it_announces() {
    let mut bucket = Bucket::new(50.0, 10.0);
    let mut now = 0;
    for _ in 0..200 {
        if let Some(wait) = bucket.wait(1.0, now) {
            assert!(wait < 2 || bucket.wait(1.0, now + wait - 2).is_some(), "announced too late");
            now += wait;
            assert_eq!(bucket.wait(1.0, now), None);
        }
        bucket.take(1.0);
    }
    assert!((200 - 9..=200).contains(&(now * 50 / MINUTE + 8)), "{now}");
}

fn queues(law: QueueLaw) -> Queues {
    Queues::new(QueueLaw { latency_ms: 0, ..law }, 3)
}

const CERTAIN: QueueLaw = QueueLaw {
    batch: 5,
    batch_timeout_ms: [0, 1_000, 1_000],
    max_consumers: 250,
    max_retries: 100,
    duplicate_percent: 0.0,
    latency_ms: 0,
};

/// Sends so many messages, visible at `now`.
fn send(queues: &mut Queues, count: u64, now: Ms) -> Vec<Option<Ms>> {
    let sent: Vec<_> = (0..count).flat_map(|payload| queues.send(1, payload, now)).collect();
    sent.into_iter().map(|(_, message)| queues.visible(1, message, now)).collect()
}

fn batch(queues: &mut Queues) -> Option<Vec<Delivery>> {
    queues.next_started().map(|(_, deliveries)| deliveries)
}

#[test]
fn a_batch_starts_with_the_fifth_message_or_when_the_first_has_waited_long_enough() {
    let mut it = queues(CERTAIN);
    assert_eq!(send(&mut it, 4, 100), [Some(1_100); 4]);
    assert!(batch(&mut it).is_none());
    it.dispatch(1, 1_099);
    assert!(batch(&mut it).is_none());
    it.dispatch(1, 1_100);
    assert_eq!(batch(&mut it).unwrap().len(), 4);

    let mut it = queues(CERTAIN);
    send(&mut it, 5, 100);
    assert_eq!(batch(&mut it).unwrap().len(), 5);
}

#[test]
fn the_delay_of_a_retry_starts_when_the_whole_batch_has_returned() {
    let mut it = queues(CERTAIN);
    send(&mut it, 5, 0);
    let batch = batch(&mut it).unwrap();
    assert_eq!(it.settle(batch[0], Some(1), 100), []);
    for delivery in &batch[1..4] {
        assert_eq!(it.settle(*delivery, None, 200), []);
    }
    let again = it.settle(batch[4], None, 9_000);
    assert_eq!(again.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [10_000]);
}

#[test]
fn the_first_settlement_of_a_message_wins() {
    let mut it = queues(QueueLaw { batch: 1, ..CERTAIN });
    send(&mut it, 1, 0);
    let batch = batch(&mut it).unwrap();
    assert_eq!(it.settle(batch[0], None, 10), []);
    assert_eq!(it.settle(batch[0], Some(0), 20), []);
}

#[test]
fn consumers_are_added_only_when_a_batch_returns() {
    let mut it = queues(QueueLaw { batch: 1, ..CERTAIN });
    send(&mut it, 20, 0);
    let first = batch(&mut it).unwrap();
    assert!(batch(&mut it).is_none(), "one consumer, one batch");
    it.settle(first[0], None, 1_000);
    assert!(batch(&mut it).is_some() && batch(&mut it).is_some() && batch(&mut it).is_none());

    let mut it = queues(QueueLaw { batch: 1, max_consumers: 3, ..CERTAIN });
    send(&mut it, 200, 0);
    let mut running = std::collections::VecDeque::from(batch(&mut it).unwrap());
    while let Some(delivery) = running.pop_front() {
        it.settle(delivery, None, 1_000);
        while let Some(more) = batch(&mut it) {
            running.extend(more);
        }
        assert!(running.len() <= 3);
    }
}

#[test]
fn a_message_that_is_retried_too_often_dies() {
    let mut it = queues(QueueLaw { batch: 1, max_retries: 2, ..CERTAIN });
    send(&mut it, 1, 0);
    for number in 1..=3 {
        let batch = batch(&mut it).unwrap();
        assert_eq!(batch[0].number, number);
        for (at, message) in it.settle(batch[0], Some(1), 0) {
            it.visible(1, message, at);
            it.dispatch(1, at + 1_000);
        }
    }
    assert_eq!((batch(&mut it).is_none(), it.dead), (true, 1));
}

#[test]
fn now_and_then_a_message_comes_twice() {
    let mut it = queues(QueueLaw { duplicate_percent: 1.0, ..CERTAIN });
    let copies: usize = (0..10_000).map(|payload| it.send(1, payload, 0).len()).sum();
    assert!((10_060..10_140).contains(&copies), "{copies}");
}

/// Each delivery takes 20 minutes, and notes when it began.
#[derive(Default)]
struct TooSlow(Rc<RefCell<Vec<(Ms, u32)>>>);

impl Policy for TooSlow {
    fn name(&self) -> &'static str {
        "too slow"
    }

    fn submit(&self, task: Task, job: JobIndex) -> Work {
        Box::pin(async move { task.world().send(Priority::High as u8, job.into(), 30) })
    }

    fn deliver(&self, task: Task, delivery: Delivery) -> Work {
        let noted = self.0.clone();
        Box::pin(async move {
            noted.borrow_mut().push((task.now(), delivery.number));
            let job = JobIndex::try_from(delivery.payload).unwrap();
            if delivery.number == 3 {
                task.world().finish(job, End::Done);
                return task.world().settle(delivery, None);
            }
            task.begin_call(job, Model::Primary);
            loop {
                task.next(None).await;
            }
        })
    }
}

#[test]
fn a_delayed_message_comes_after_its_delay_and_an_invocation_is_ended_after_15_minutes() {
    let policy = TooSlow::default();
    let text = "minutes = 1\n[queues]\nduplicate_percent = 0\n[jobs]\nper_minute = 1\neven = true";
    let sim = Sim::new(Rc::new(scenario(text)), 1);
    sim.run(&policy);
    let first = 30 * SECOND + 30 * SECOND + 50;
    let expected = [(first, 1), (first + 15 * MINUTE, 2), (first + 30 * MINUTE, 3)];
    assert_eq!(*policy.0.borrow(), expected);
    // The calls of the dead tasks are over: the world would end with calls that nobody waits for.
    assert_eq!(sim.look().claude.in_flight(Model::Primary), 0);
}

#[test]
fn a_call_that_is_given_up_frees_its_place_and_is_paid_for_if_it_had_content() {
    struct GivesUp;
    impl Policy for GivesUp {
        fn name(&self) -> &'static str {
            "gives up"
        }

        fn submit(&self, task: Task, job: JobIndex) -> Work {
            Box::pin(async move {
                task.begin_call(job, Model::Primary);
                task.next(None).await;
                task.abandon_call();
                task.world().finish(job, End::Failed);
            })
        }
    }
    let sim = Sim::new(Rc::new(scenario("minutes = 1")), 1);
    sim.run(&GivesUp);
    let world = sim.look();
    assert_eq!(world.claude.in_flight(Model::Primary), 0);
    assert!(world.jobs.iter().all(|job| (job.calls, job.wasted, job.answers, job.in_call) == (1, 1, 0, 0)));
}

#[test]
fn the_same_seed_is_the_same_storm_for_everyone_and_another_is_another() {
    let scenario = Scenario::find("brown-out").unwrap().shrunk(4.0);
    let jobs = |seed| format!("{:?}", scenario.jobs(seed));
    assert_eq!(jobs(1), jobs(1));
    assert_ne!(jobs(1), jobs(2));
    let run = |policy, seed| serde_json::to_string(&run::one(&scenario, policy, seed).unwrap()).unwrap();
    for policy in ["spillway", "article-a", "article-b", "oracle"] {
        assert_eq!(run(policy, 1), run(policy, 1), "{policy}");
        assert_ne!(run(policy, 1), run(policy, 2), "{policy}");
    }
}

#[test]
fn the_oracle_makes_no_call_that_fails_and_no_call_twice() {
    for name in ["brown-out", "outage-10m", "half-capacity", "rate-limit", "flapping", "primary-only"] {
        let scenario = Scenario::find(name).unwrap().shrunk(8.0);
        let row = run::one(&scenario, "oracle", 1).unwrap();
        assert_eq!((row.overloads, row.rate_limited), (0, 0), "{name}");
        assert_eq!((row.done, row.calls), (row.jobs, row.jobs), "{name}");
    }
}

#[test]
fn every_policy_is_known_by_the_name_it_is_listed_under() {
    for name in rivals::NAMES {
        assert!(rivals::find(name).map_or(is_ours(name), |policy| policy.name() == name), "{name}");
    }
    assert!(rivals::find("nobody").is_none());
}

#[test]
fn each_rival_makes_as_many_calls_for_a_hopeless_job_as_its_source_says() {
    let scenario = scenario(
        "minutes = 1\n[jobs]\nper_minute = 1\neven = true\n[[phase]]\nfrom_minute = 0\nminutes = 100000\noutage = true",
    );
    for (policy, calls) in
        [("article-b", 8), ("exponential", 5), ("sdk", 3), ("portkey", 6), ("litellm", 3), ("qstash", 6), ("oracle", 0)]
    {
        let row = run::one(&scenario, policy, 1).unwrap();
        assert_eq!(row.calls, calls, "{policy}");
    }
    // Two calls a delivery; the counted one's fifth is its last.
    assert_eq!(run::one(&scenario, "article-a-counted", 1).unwrap().calls, 10);
}

#[test]
fn a_scenario_that_makes_no_sense_is_refused_with_the_reason() {
    let minimal = "name = \"n\"\ntitle = \"t\"\nwhy = \"w\"\nminutes = 1\n";
    let kind = "[[jobs.kind]]\nname = \"default\"\nshare = 1\nfallback = false\n";
    let call = kind.replace("jobs", "calls");
    let phase = "[[phase]]\nfrom_minute = 0\nminutes = 1\n";
    for (text, reason) in [
        (format!("{minimal}[jobs]\n{kind}"), "per_minute or a burst"),
        (format!("{minimal}[jobs]\nper_minute = 1\nkind = []"), "jobs.kind"),
        (format!("{minimal}wind = 3\n[jobs]\nper_minute = 1\n{kind}"), "wind"),
        (format!("{minimal}[jobs]\nper_minute = 1\npriorities = {{ urgent = 1 }}\n{kind}"), "high, medium and low"),
        (format!("{minimal}[jobs]\nper_minute = 1\n{kind}[bands]\nbeauty = {{ min = 1 }}"), "beauty"),
        (format!("{minimal}[jobs]\nper_minute = 1\n{kind}[queues]\nbatch = 0"), "queues.batch"),
        (format!("{minimal}start_hour = 25\n[jobs]\nper_minute = 1\n{kind}"), "start_hour"),
        (format!("{minimal}[jobs]\nper_minute = 1e9\n{kind}"), "5 million"),
        (format!("{minimal}[jobs]\nper_minute = 1\n{kind}{kind}"), "each name may come once"),
        (format!("{minimal}[jobs]\nper_minute = 1\n{kind}[bands]\nlost = {{}}"), "bands.lost"),
        (format!("{minimal}[jobs]\nper_minute = 1\n{kind}[bands]\nlost = {{ min = 2, max = 1 }}"), "bands.lost"),
        (format!("{minimal}[jobs]\nper_minute = 1\n{kind}{phase}refuse_percent = 140"), "phase 1: refuse_percent"),
        (format!("{minimal}[jobs]\nper_minute = 1\n{kind}{phase}latency_percent = 0"), "phase 1: latency_percent"),
        (format!("{minimal}[jobs]\nper_minute = 1\n{kind}{phase}up_seconds = -1"), "phase 1: up_seconds"),
        (format!("{minimal}[jobs]\nper_minute = 1\n{kind}[[phase]]\nfrom_minute = 2\nminutes = 1"), "within the storm"),
        (format!("{minimal}[calls]\nper_minute = 0\n{call}"), "calls.per_minute"),
        (format!("{minimal}[calls]\nper_minute = 1\nkind = []"), "calls.kind"),
        (format!("{minimal}[calls]\nper_minute = 1\nhandoff = \"later\"\n{call}"), "calls.handoff"),
        (format!("{minimal}[calls]\nper_minute = 1\nisolates = 0\n{call}"), "calls.isolates"),
        (format!("{minimal}[calls]\nper_minute = 1\npatience_seconds = 601\n{call}"), "calls.patience_seconds"),
    ] {
        let error = Scenario::parse(&text).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_policy_that_the_worker_would_refuse_is_refused_here_too() {
    let scenario = Scenario { policy: r#"{"max_attempt":3}"#.into(), ..scenario("minutes = 1") };
    let error = run::one(&scenario, "spillway", 1).unwrap_err();
    assert!(error.contains("max_attempt"), "{error}");
}
