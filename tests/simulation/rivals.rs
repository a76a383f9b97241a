//! The other policies, as their sources describe them, on the same storm.
//!
//! Those in process hold the user's request open and retry inside it. Where a source says nothing, they are given the
//! benefit of the doubt: they obey what it is customary to obey, and their process never crashes, which in a real deployment
//! loses whatever it was waiting for.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use super::claude::{Answer, Model, Stand};
use super::queues::Delivery;
use super::scenario::Scenario;
use super::world::{End, HOUR, Job, JobIndex, MINUTE, Ms, Policy, Priority, SECOND, Sim, Task, Work, World};

/// Every rival's name, and the oracle's, in the order of the tables.
pub(crate) const NAMES: [&str; 12] = [
    "article-a",
    "article-a-counted",
    "article-b",
    "exponential",
    "sdk",
    "portkey",
    "litellm",
    "qstash",
    "oracle",
    "spillway-never",
    "spillway-auto",
    "spillway",
];

/// Those that are run if nobody names one. Ours by what its callers want, where there are callers; and there, of the others, those
/// that hold a line: an app that wants its answer now has neither a queue nor a service that comes back after hours.
pub(crate) fn of(scenario: &Scenario) -> Vec<&'static str> {
    let comes_back = ["article-a", "article-a-counted", "qstash"];
    let by_handoff = ["spillway-never", "spillway-auto"];
    let left_out: &[&str] = if scenario.calls.is_some() { &comes_back } else { &by_handoff };
    NAMES.into_iter().filter(|name| !left_out.contains(name)).collect()
}

/// A rival by its name.
pub(crate) fn find(name: &str) -> Option<Box<dyn Policy>> {
    Some(match name {
        "article-a" => Box::new(ArticleA::new("article-a", false)),
        "article-a-counted" => Box::new(ArticleA::new("article-a-counted", true)),
        "article-b" => Box::new(ArticleB::default()),
        "exponential" => Box::new(InProcess { name: "exponential", waits: EXPONENTIAL, rule: Rule::Table }),
        "sdk" => Box::new(InProcess { name: "sdk", waits: SDK, rule: Rule::Sdk }),
        "portkey" => Box::new(InProcess { name: "portkey", waits: PORTKEY, rule: Rule::Table }),
        "litellm" => Box::new(LiteLlm::default()),
        "qstash" => Box::new(InProcess { name: "qstash", waits: QSTASH, rule: Rule::Table }),
        "oracle" => Box::new(Oracle::default()),
        _ => return None,
    })
}

/// The official SDK: two retries, half a second and a second apart.
pub(crate) const SDK: &[Ms] = &[500, 1_000];
/// Five calls, 1, 2, 4 and 8 s apart, without jitter.
const EXPONENTIAL: &[Ms] = &[1_000, 2_000, 4_000, 8_000];
/// Portkey: up to five retries, 1, 2, 4, 8 and 16 s apart, without jitter.
const PORTKEY: &[Ms] = &[1_000, 2_000, 4_000, 8_000, 16_000];
/// QStash, by its documentation: 12 s, 2.5 min, 30 min, 6 h and 24 h.
const QSTASH: &[Ms] = &[12 * SECOND, 150 * SECOND, 30 * MINUTE, 6 * HOUR, 24 * HOUR];

/// A fixed table of waits.
struct InProcess {
    name: &'static str,
    waits: &'static [Ms],
    rule: Rule,
}

/// How the table is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// As it stands; Retry-After is not looked at.
    Table,
    /// The official SDK: less up to a quarter, Retry-After instead if it is there and below a minute; an overload inside the
    /// stream reaches the user, since the headers have been handed on.
    Sdk,
}

impl Policy for InProcess {
    fn name(&self) -> &'static str {
        self.name
    }

    fn submit(&self, task: Task, job: JobIndex) -> Work {
        let (waits, rule) = (self.waits, self.rule);
        Box::pin(async move {
            for wait in waits.iter().map(Some).chain([None]) {
                let answered = task.call(job, Model::Primary).await;
                match answered.answer {
                    Answer::Message => return task.world().finish(job, End::Done),
                    Answer::StreamOverload { .. } if rule == Rule::Sdk => break,
                    _ => {}
                }
                let Some(&wait) = wait else { break };
                let asked = match answered.answer {
                    Answer::RateLimited { retry_after_seconds } => Some(Ms::from(retry_after_seconds) * SECOND),
                    _ => None,
                };
                let wait = match (rule, asked) {
                    (Rule::Sdk, asked) => sdk_wait(wait, asked, &mut task.world()),
                    (Rule::Table, _) => wait,
                };
                task.sleep(wait).await;
            }
            task.world().finish(job, End::Failed);
        })
    }
}

/// How long the official SDK waits: less up to a quarter, or as long as it is asked to, up to a minute.
pub(crate) fn sdk_wait(wait: Ms, asked: Option<Ms>, world: &mut World) -> Ms {
    asked.filter(|ms| *ms <= MINUTE).unwrap_or_else(|| wait - world.rng.u64(0..=wait / 4))
}

/// LiteLLM's router with one deployment: two retries; a failure cools the deployment down for 5 s, for everyone.
#[derive(Default)]
struct LiteLlm {
    cooled_until: Rc<Cell<Ms>>,
}

impl Policy for LiteLlm {
    fn name(&self) -> &'static str {
        "litellm"
    }

    fn submit(&self, task: Task, job: JobIndex) -> Work {
        let cooled_until = self.cooled_until.clone();
        Box::pin(async move {
            for attempt in 0..3 {
                if attempt > 0 {
                    task.sleep(5 * SECOND).await;
                }
                // "No deployments available, try again in 5 seconds": others have failed, and the try is used up.
                if cooled_until.get() > task.now() {
                    continue;
                }
                match task.call(job, Model::Primary).await.answer {
                    Answer::Message => return task.world().finish(job, End::Done),
                    // The stream has begun, and the router is out of it.
                    Answer::StreamOverload { after_content: true } => break,
                    _ => cooled_until.set(task.now() + 5 * SECOND),
                }
            }
            task.world().finish(job, End::Failed);
        })
    }
}

/// Article B, as written: in process, 8 attempts; two buckets shared by all, full jitter for 529 (2 s, 120 s), equal for 429
/// (1 s, 30 s), each failure counted before the wait is drawn, Retry-After first, a success takes one off; after five 529s in
/// a row the primary counts as degraded for a minute; high jobs stay with the primary, medium ones try it first, low ones do
/// not (where the kind allows: quality is not what is compared here).
#[derive(Default)]
struct ArticleB {
    shared: Rc<RefCell<SharedB>>,
}

#[derive(Default)]
struct SharedB {
    overloads: u32,
    rate_limits: u32,
    in_a_row: u32,
    degraded_until: Ms,
}

impl SharedB {
    fn succeed(&mut self, model: Model) {
        self.overloads = self.overloads.saturating_sub(1);
        self.rate_limits = self.rate_limits.saturating_sub(1);
        if model == Model::Primary {
            (self.in_a_row, self.degraded_until) = (0, 0);
        }
    }

    /// How long to wait after a failure.
    fn fail(&mut self, answer: Answer, model: Model, world: &mut World) -> Ms {
        if let Answer::RateLimited { retry_after_seconds } = answer {
            self.rate_limits += 1;
            return Ms::from(retry_after_seconds) * SECOND;
        }
        self.overloads += 1;
        if model == Model::Primary {
            self.in_a_row += 1;
            if self.in_a_row >= 5 {
                (self.in_a_row, self.degraded_until) = (0, world.now + MINUTE);
            }
        }
        let raw = ((2 * SECOND) << self.overloads.min(16)).min(120 * SECOND);
        world.rng.u64(0..=raw)
    }
}

impl Policy for ArticleB {
    fn name(&self) -> &'static str {
        "article-b"
    }

    fn submit(&self, task: Task, job: JobIndex) -> Work {
        let shared = self.shared.clone();
        Box::pin(async move {
            let data = task.job(job);
            for attempt in 0..8 {
                let degraded = shared.borrow().degraded_until > task.now();
                let falls_back = data.may_fall_back
                    && match data.priority {
                        Priority::High => false,
                        Priority::Medium => degraded,
                        Priority::Low => true,
                    };
                let model = if falls_back { Model::Fallback } else { Model::Primary };
                let answer = task.call(job, model).await.answer;
                if answer.is_message() {
                    shared.borrow_mut().succeed(model);
                    return task.world().finish(job, End::Done);
                }
                let wait = shared.borrow_mut().fail(answer, model, &mut task.world());
                if attempt < 7 {
                    task.sleep(wait).await;
                }
            }
            task.world().finish(job, End::Failed);
        })
    }
}

/// Article A, as written: one queue; on a 529 once more after 1.5–2.5 s, then the smaller model if the kind allows it, then
/// the message goes back with a delay of min(2^attempts, 32) s + 0–2 s. A breaker (60 s window, 10 calls, 50 %) opens for 90 s
/// and then lets everyone through; while it is open, messages go back for 90 s.
///
/// As written the attempt is counted in the message's body, which a retry does not change: it stays 0, and a job is retried
/// until the queue gives up after 100 deliveries. `counted` is the mended form: it counts the platform's deliveries, and
/// after the fifth a failure is final.
struct ArticleA {
    name: &'static str,
    counted: bool,
    breaker: Rc<RefCell<BreakerA>>,
}

#[derive(Default)]
struct BreakerA {
    calls: VecDeque<(Ms, bool)>,
    open_until: Ms,
}

impl BreakerA {
    fn note(&mut self, now: Ms, failed: bool) {
        self.calls.push_back((now, failed));
        while self.calls.front().is_some_and(|(at, _)| at + MINUTE < now) {
            self.calls.pop_front();
        }
        let failures = self.calls.iter().filter(|(_, failed)| *failed).count();
        if self.calls.len() >= 10 && failures * 2 >= self.calls.len() {
            self.open_until = now + 90 * SECOND;
            self.calls.clear();
        }
    }
}

impl ArticleA {
    fn new(name: &'static str, counted: bool) -> Self {
        Self { name, counted, breaker: Rc::default() }
    }
}

impl Policy for ArticleA {
    fn name(&self) -> &'static str {
        self.name
    }

    fn queue(&self, _: Priority) -> u8 {
        Priority::Medium as u8
    }

    fn submit(&self, task: Task, job: JobIndex) -> Work {
        Box::pin(async move { task.world().send(Priority::Medium as u8, job.into(), 0) })
    }

    fn deliver(&self, task: Task, delivery: Delivery) -> Work {
        let (counted, breaker) = (self.counted, self.breaker.clone());
        Box::pin(async move {
            let job = JobIndex::try_from(delivery.payload).unwrap();
            // KV says `done`: what a second delivery can know, unless it comes too early.
            if task.job(job).end != End::Unfinished {
                return task.world().settle(delivery, None);
            }
            if breaker.borrow().open_until > task.now() {
                task.world().jobs[job as usize].held = true;
                return task.world().settle(delivery, Some(90));
            }
            let mut answer = task.call(job, Model::Primary).await.answer;
            breaker.borrow_mut().note(task.now(), is_overload(answer));
            if is_overload(answer) {
                let pause = task.world().rng.u64(1_500..=2_500);
                task.sleep(pause).await;
                answer = task.call(job, Model::Primary).await.answer;
                breaker.borrow_mut().note(task.now(), is_overload(answer));
            }
            if is_overload(answer) && task.job(job).may_fall_back {
                answer = task.call(job, Model::Fallback).await.answer;
            }
            let attempts = if counted { delivery.number } else { 0 };
            let mut world = task.world();
            if answer.is_message() {
                world.finish(job, End::Done);
                world.settle(delivery, None);
            } else if attempts >= 5 {
                world.finish(job, End::Failed);
                world.settle(delivery, None);
            } else {
                let jitter = world.rng.u32(0..=2);
                world.settle(delivery, Some(2_u32.pow(attempts).min(32) + jitter));
            }
        })
    }
}

const fn is_overload(answer: Answer) -> bool {
    matches!(answer, Answer::Overloaded | Answer::StreamOverload { .. })
}

/// The limit: it knows the capacity at every moment and makes no call that fails. The most urgent and oldest job comes first.
/// The fallback is taken by those whom the ladder lets, and when it lets them: by low jobs at once, by medium ones when the
/// primary is full; a rate limit is no reason.
#[derive(Default)]
struct Oracle(Rc<OracleState>);

#[derive(Default)]
struct OracleState {
    waiting: RefCell<[VecDeque<JobIndex>; 3]>,
    ticking: Cell<bool>,
}

impl Policy for Oracle {
    fn name(&self) -> &'static str {
        "oracle"
    }

    fn submit(&self, task: Task, job: JobIndex) -> Work {
        let it = self.0.clone();
        Box::pin(async move {
            let priority = task.job(job).priority;
            it.waiting.borrow_mut()[priority as usize].push_back(job);
            it.dispatch(&task.sim);
            // A call's end makes room at once; weather and rate limits are looked at ten times a second.
            if it.ticking.replace(true) {
                return;
            }
            while it.waiting.borrow().iter().any(|queue| !queue.is_empty()) {
                task.sleep(100).await;
                it.dispatch(&task.sim);
            }
            it.ticking.set(false);
        })
    }
}

const fn falls_back(job: &Job) -> bool {
    job.may_fall_back && !matches!(job.priority, Priority::High)
}

impl OracleState {
    fn dispatch(self: &Rc<Self>, sim: &Sim) {
        let mut queues = self.waiting.borrow_mut();
        for queue in queues.iter_mut() {
            let mut passed = 0;
            while let Some(&job) = queue.get(passed) {
                let data = sim.look().jobs[job as usize];
                let Some(model) = model(sim, &data) else {
                    // Those who may not fall back do not hide the next who may.
                    passed += 1;
                    if passed >= LOOK_AHEAD {
                        break;
                    }
                    continue;
                };
                queue.remove(passed);
                let it = self.clone();
                // The call has to count before the next question is asked: it begins within this step.
                sim.spawn(|task| {
                    Box::pin(async move {
                        let answered = task.certain_call(job, model).await;
                        assert!(answered.answer.is_message(), "the oracle knows: {answered:?}");
                        task.world().finish(job, End::Done);
                        it.dispatch(&task.sim);
                    })
                });
            }
        }
    }
}

/// Where a job would be answered now.
fn model(sim: &Sim, data: &Job) -> Option<Model> {
    let mut world = sim.world();
    let now = world.now;
    let primary = world.claude.stand(Model::Primary, data, now);
    let leaves = falls_back(data) && (data.priority == Priority::Low || primary == Stand::Full);
    if leaves && world.claude.stand(Model::Fallback, data, now) == Stand::Free {
        return Some(Model::Fallback);
    }
    (primary == Stand::Free).then_some(Model::Primary)
}

const LOOK_AHEAD: usize = 64;
