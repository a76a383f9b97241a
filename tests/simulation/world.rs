//! The world: a clock, a heap of events, the users' jobs, and tasks.
//!
//! A policy is written as tasks, one per delivery or per request in process, which await what the Worker awaits: a call's
//! first content and its end, or a moment. That keeps them as readable as the code they stand for, and ours as close to
//! `edge/consumer` as can be. Exactly one task runs at a time, woken by exactly one event, so that a run is its seed's and
//! nobody else's. A task that is dropped (the platform's wall, a crash) abandons its call, as an aborted fetch does.
//!
//! Everything that is random about a job (when it comes, what it is, how long its answer takes) is drawn from the seed and
//! the job's number, and each call's luck from those and the call's number: every policy meets the same storm.

use std::cell::{Ref, RefCell, RefMut};
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::callers::Caller;
use super::claude::{Answered, CallId, Claude, Milestone, Model, RateLimits};
use super::facts::Facts;
use super::queues::{Delivery, InvocationId, Queues};
use super::scenario::Scenario;

/// Milliseconds since the storm began.
pub(crate) type Ms = u64;

/// A job's number, in the order of submission.
pub(crate) type JobIndex = u32;

pub(crate) const SECOND: Ms = 1_000;
pub(crate) const MINUTE: Ms = 60 * SECOND;
pub(crate) const HOUR: Ms = 60 * MINUTE;

/// How urgent a job is (B8). Also the number of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    High,
    Medium,
    Low,
}

pub(crate) const PRIORITIES: [Priority; 3] = [Priority::High, Priority::Medium, Priority::Low];

impl Priority {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

/// One job: what was submitted, and what has become of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) at: Ms,
    pub(crate) priority: Priority,
    /// Its row in the scenario's list of kinds.
    pub(crate) kind: u8,
    /// Whether the fallback may answer it: its kind's word (A6).
    pub(crate) may_fall_back: bool,
    pub(crate) input_tokens: u32,
    pub(crate) output_tokens: u32,
    /// How its latencies differ from the median: first content, and the pace of the rest. Percent.
    pub(crate) content_percent: u16,
    pub(crate) pace_percent: u16,
    /// Whoever holds a line open for it; nobody, if it was submitted as a job.
    pub(crate) caller: Option<Caller>,

    pub(crate) end: End,
    pub(crate) ended_at: Ms,
    /// When the first call began that came to content.
    pub(crate) served_at: Option<Ms>,
    pub(crate) calls: u16,
    /// Complete answers that were paid for.
    pub(crate) answers: u8,
    /// Calls that were given up after content: paid for, and nobody has the answer.
    pub(crate) wasted: u8,
    pub(crate) in_call: u8,
    pub(crate) held: bool,
    pub(crate) stalled: bool,
    /// Told to wait for quieter hours, by its priority's rule or after its attempts.
    pub(crate) put_off: bool,
    /// Waits for quieter hours now: nobody expects it, and it is no part of a backlog.
    pub(crate) parked: bool,
    pub(crate) fell_back: bool,
}

impl Job {
    /// A job of the first kind and of middling size, that was just submitted.
    pub(crate) const fn new(at: Ms, priority: Priority, may_fall_back: bool) -> Self {
        Self {
            at,
            priority,
            kind: 0,
            may_fall_back,
            input_tokens: 800,
            output_tokens: 300,
            content_percent: 100,
            pace_percent: 100,
            caller: None,
            end: End::Unfinished,
            ended_at: 0,
            served_at: None,
            calls: 0,
            answers: 0,
            wasted: 0,
            in_call: 0,
            held: false,
            stalled: false,
            put_off: false,
            parked: false,
            fell_back: false,
        }
    }
}

/// How a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Unfinished,
    Done,
    /// The user was told that there is no answer, and the overload (or a limit) was the reason: nothing else goes wrong here.
    Failed,
}

/// What a policy does; each is the beginning of a task.
pub(crate) trait Policy {
    fn name(&self) -> &'static str;

    /// Which queue a job of this priority waits in.
    fn queue(&self, priority: Priority) -> u8 {
        priority as u8
    }

    /// A user submits `job`.
    fn submit(&self, task: Task, job: JobIndex) -> Work;

    /// A queue's consumer has got a message.
    fn deliver(&self, task: Task, delivery: Delivery) -> Work {
        let _ = (task, delivery);
        panic!("this policy has no queues")
    }

    /// An alarm that was set for `job` goes off.
    fn alarm(&self, sim: &Sim, job: JobIndex) {
        let _ = (sim, job);
    }

    /// The storm is over: what the policy itself has noted.
    fn finish(&self, sim: &Sim) {
        let _ = sim;
    }
}

/// A task's code.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()>>>;

/// The world, shared by everything in it. Never borrowed across an await.
#[derive(Clone)]
pub(crate) struct Sim(Rc<RefCell<World>>);

pub(crate) struct World {
    pub(crate) now: Ms,
    pub(crate) scenario: Rc<Scenario>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) claude: Claude,
    pub(crate) queues: Queues,
    pub(crate) facts: Facts,
    /// The policy's own randomness.
    pub(crate) rng: fastrand::Rng,
    events: Events,
    arrived: usize,
    unfinished: usize,
    tasks: Vec<Slot>,
    free: Vec<u32>,
    spawned: VecDeque<(TaskId, Work)>,
}

/// Events by their time, and of the same time in the order in which they were scheduled. What is far off, most of it timers
/// that will find nothing to do, lies unsorted in buckets until its time comes near: the heap stays small.
#[derive(Default)]
struct Events {
    near: BinaryHeap<Reverse<Entry>>,
    /// By their bucket's number.
    far: Vec<Vec<Entry>>,
    /// The first bucket that is far.
    first_far: usize,
    sequence: u64,
}

impl Events {
    fn push(&mut self, at: Ms, event: Event) {
        self.sequence += 1;
        let entry = Entry { at, sequence: self.sequence, event };
        let bucket = usize::try_from(at / BUCKET).unwrap_or(usize::MAX);
        if bucket < self.first_far {
            self.near.push(Reverse(entry));
            return;
        }
        if self.far.len() <= bucket {
            self.far.resize_with(bucket + 1, Vec::new);
        }
        self.far[bucket].push(entry);
    }

    fn pop(&mut self) -> Option<(Ms, Event)> {
        while self.near.is_empty() && self.first_far < self.far.len() {
            let due = std::mem::take(&mut self.far[self.first_far]);
            self.near.extend(due.into_iter().map(Reverse));
            self.first_far += 1;
        }
        let Reverse(Entry { at, event, .. }) = self.near.pop()?;
        Some((at, event))
    }
}

const BUCKET: Ms = 2 * SECOND;

struct Entry {
    at: Ms,
    sequence: u64,
    event: Event,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The next user submits.
    Arrival,
    Wake {
        task: TaskId,
        ticket: u32,
    },
    Content(CallId),
    End(CallId),
    /// A message can be delivered.
    Visible {
        queue: u8,
        message: u32,
    },
    /// A batch has waited long enough for its fifth message.
    BatchDue {
        queue: u8,
    },
    /// An invocation has run for as long as the platform lets it.
    Wall(InvocationId),
    /// The weather changes.
    Weather(u16),
    Alarm(JobIndex),
    Sample,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskId {
    index: u32,
    generation: u32,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    work: Option<Work>,
    mailbox: Option<Signal>,
    /// Wakes of an earlier number are void.
    ticket: u32,
    call: Option<CallId>,
}

/// What a task is woken by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    /// The moment has come.
    Time,
    /// Its call has come to content.
    Content(RateLimits),
    /// Its call is over.
    Ended(Answered),
}

impl Sim {
    /// A world in which nothing has happened yet.
    pub(crate) fn new(scenario: Rc<Scenario>, seed: u64) -> Self {
        let jobs = scenario.jobs(seed);
        let claude = Claude::new(&scenario, seed);
        let mut world = World {
            now: 0,
            unfinished: jobs.len(),
            facts: Facts::new(&scenario, &jobs),
            queues: Queues::new(scenario.queues, mix(seed, 0x9e)),
            claude,
            jobs,
            rng: fastrand::Rng::with_seed(mix(seed, 0x51)),
            events: Events::default(),
            arrived: 0,
            tasks: Vec::new(),
            free: Vec::new(),
            spawned: VecDeque::new(),
            scenario,
        };
        for (index, at) in world.claude.changes() {
            world.schedule(at, Event::Weather(index));
        }
        if let Some(first) = world.jobs.first().map(|job| job.at) {
            world.schedule(first, Event::Arrival);
        }
        world.schedule(0, Event::Sample);
        Self(Rc::new(RefCell::new(world)))
    }

    pub(crate) fn world(&self) -> RefMut<'_, World> {
        self.0.borrow_mut()
    }

    pub(crate) fn look(&self) -> Ref<'_, World> {
        self.0.borrow()
    }

    /// Runs `policy` through the storm, until every job has ended and the last echoes have died away, or the world ends.
    pub(crate) fn run(&self, policy: &dyn Policy) {
        let horizon = self.look().scenario.horizon();
        self.warm_up(policy);
        let mut quiet_since = None;
        loop {
            let Some((now, event)) = self.world().next_event() else { break };
            if now > horizon {
                break;
            }
            if self.look().unfinished == 0 {
                let since = *quiet_since.get_or_insert(now);
                if now > since + ECHOES {
                    break;
                }
            }
            self.handle(event, policy);
            self.start_what_is_due(policy);
        }
        self.look().claude.check();
        policy.finish(self);
    }

    fn warm_up(&self, policy: &dyn Policy) {
        let mut world = self.world();
        let scenario = world.scenario.clone();
        let mut rates = [0.0; 3];
        for priority in PRIORITIES {
            rates[usize::from(policy.queue(priority))] += scenario.rate(priority) / 60.0;
        }
        let call_seconds = scenario.call_seconds(&world.jobs);
        for (queue, rate) in rates.into_iter().enumerate() {
            world.queues.warm_up(u8::try_from(queue).unwrap(), rate, call_seconds);
        }
    }

    fn handle(&self, event: Event, policy: &dyn Policy) {
        match event {
            Event::Arrival => {
                let job = self.world().arrive();
                self.spawn(|task| policy.submit(task, job));
            }
            Event::Wake { task, ticket } => {
                if self.world().post_wake(task, ticket) {
                    self.poll(task);
                }
            }
            Event::Content(call) => {
                let woken = self.world().content(call);
                woken.into_iter().for_each(|task| self.poll(task));
            }
            Event::End(call) => {
                let woken = self.world().end(call);
                woken.into_iter().for_each(|task| self.poll(task));
            }
            Event::Visible { queue, message } => {
                let mut world = self.world();
                let now = world.now;
                if let Some(due) = world.queues.visible(queue, message, now) {
                    world.schedule(due, Event::BatchDue { queue });
                }
            }
            Event::BatchDue { queue } => {
                let mut world = self.world();
                let now = world.now;
                world.queues.dispatch(queue, now);
            }
            Event::Wall(invocation) => {
                let killed = self.world().queues.wall(invocation);
                for (task, delivery) in killed {
                    self.kill(task);
                    self.world().settle(delivery, Some(0));
                }
            }
            Event::Weather(index) => {
                let broken = self.world().break_streams(index);
                broken.into_iter().for_each(|task| self.poll(task));
            }
            Event::Alarm(job) => policy.alarm(self, job),
            Event::Sample => {
                let mut world = self.world();
                world.sample();
                let next = world.now + world.facts.sample_every();
                if world.unfinished > 0 {
                    world.schedule(next, Event::Sample);
                }
            }
        }
    }

    /// What the event has set off beside the task it woke: batches, and tasks of tasks.
    fn start_what_is_due(&self, policy: &dyn Policy) {
        loop {
            let batch = self.world().start_batch();
            if let Some((invocation, deliveries)) = batch {
                for delivery in deliveries {
                    let task = self.world().new_task();
                    self.world().queues.assign(invocation, delivery, task);
                    let work = policy.deliver(Task { sim: self.clone(), id: task }, delivery);
                    self.start(task, work);
                }
                continue;
            }
            let spawned = self.world().spawned.pop_front();
            match spawned {
                Some((task, work)) => self.start(task, work),
                None => return,
            }
        }
    }

    /// Starts a task now.
    pub(crate) fn spawn(&self, work: impl FnOnce(Task) -> Work) {
        let id = self.world().new_task();
        let work = work(Task { sim: self.clone(), id });
        self.start(id, work);
    }

    /// Starts a task as soon as the one that runs waits.
    pub(crate) fn spawn_later(&self, work: impl FnOnce(Task) -> Work) {
        let id = self.world().new_task();
        let work = work(Task { sim: self.clone(), id });
        self.world().spawned.push_back((id, work));
    }

    fn start(&self, id: TaskId, work: Work) {
        self.world().tasks[id.index as usize].work = Some(work);
        self.poll(id);
    }

    fn poll(&self, id: TaskId) {
        let Some(mut work) = self.world().slot(id).and_then(|slot| slot.work.take()) else { return };
        let outcome = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let mut world = self.world();
        match outcome {
            Poll::Pending => world.tasks[id.index as usize].work = Some(work),
            Poll::Ready(()) => world.free_task(id),
        }
    }

    /// Ends a task where it stands.
    fn kill(&self, id: TaskId) {
        let work = {
            let mut world = self.world();
            let Some(slot) = world.slot(id) else { return };
            let (work, call) = (slot.work.take(), slot.call);
            if let Some(call) = call {
                world.abandon(call);
            }
            world.free_task(id);
            work
        };
        drop(work);
    }
}

impl World {
    pub(crate) fn schedule(&mut self, at: Ms, event: Event) {
        self.events.push(at.max(self.now), event);
    }

    fn next_event(&mut self) -> Option<(Ms, Event)> {
        let (at, event) = self.events.pop()?;
        self.now = at;
        Some((at, event))
    }

    fn arrive(&mut self) -> JobIndex {
        let job = self.arrived;
        self.arrived += 1;
        if let Some(next) = self.jobs.get(self.arrived).map(|job| job.at) {
            self.schedule(next, Event::Arrival);
        }
        self.facts.waiting(1, self.now);
        JobIndex::try_from(job).unwrap()
    }

    /// How a job ended. Its user has been told: a second end changes nothing, but may have been paid for.
    pub(crate) fn finish(&mut self, job: JobIndex, end: End) {
        let now = self.now;
        let job = &mut self.jobs[job as usize];
        if job.end != End::Unfinished {
            return;
        }
        job.end = end;
        job.ended_at = now;
        if job.in_call == 0 && !job.parked {
            self.facts.waiting(-1, now);
        }
        self.unfinished -= 1;
    }

    /// The job is put off to quieter hours.
    pub(crate) fn put_off(&mut self, job: JobIndex) {
        let now = self.now;
        let job = &mut self.jobs[job as usize];
        job.put_off = true;
        if job.end == End::Unfinished && job.in_call == 0 && !std::mem::replace(&mut job.parked, true) {
            self.facts.waiting(-1, now);
        }
    }

    /// Notes something about the user who waits for `job`.
    pub(crate) fn caller(&mut self, job: JobIndex) -> &mut Caller {
        self.jobs[job as usize].caller.as_mut().expect("a job that somebody waits for")
    }

    /// Puts a message into a queue.
    pub(crate) fn send(&mut self, queue: u8, payload: u64, delay_seconds: u32) {
        let sent = self.queues.send(queue, payload, self.now + Ms::from(delay_seconds) * SECOND);
        for (at, message) in sent {
            self.schedule(at, Event::Visible { queue, message });
        }
    }

    /// Settles a delivery: acknowledged, or to be delivered again so many seconds after its batch has returned.
    pub(crate) fn settle(&mut self, delivery: Delivery, retry_seconds: Option<u32>) {
        let again = self.queues.settle(delivery, retry_seconds, self.now);
        for (at, message) in again {
            self.schedule(at, Event::Visible { queue: delivery.queue, message });
        }
    }

    fn start_batch(&mut self) -> Option<(InvocationId, Vec<Delivery>)> {
        let started = self.queues.next_started()?;
        let wall = self.now + super::queues::WALL;
        self.schedule(wall, Event::Wall(started.0));
        Some(started)
    }

    fn content(&mut self, call: CallId) -> Option<TaskId> {
        let (task, milestone) = self.claude.milestone(call, false)?;
        self.tell(task, milestone)
    }

    fn end(&mut self, call: CallId) -> Option<TaskId> {
        let (task, milestone) = self.claude.milestone(call, true)?;
        self.tell(task, milestone)
    }

    /// Notes what became of a call, and puts it into its task's mailbox.
    fn tell(&mut self, task: TaskId, milestone: Milestone) -> Option<TaskId> {
        let now = self.now;
        let signal = match milestone {
            Milestone::Content { job, began_at, limits } => {
                let job = &mut self.jobs[job as usize];
                job.served_at.get_or_insert(began_at);
                job.caller.iter_mut().for_each(|caller| caller.comes_to_content(now));
                Signal::Content(limits)
            }
            Milestone::Ended { job, model, answered, .. } => {
                self.facts.ended(model, answered.answer, now);
                self.leave_call(job);
                let job = &mut self.jobs[job as usize];
                job.caller.iter_mut().for_each(|caller| caller.ends(answered.answer));
                if answered.answer.is_message() {
                    job.answers = job.answers.saturating_add(1);
                    job.fell_back = model == Model::Fallback;
                }
                Signal::Ended(answered)
            }
        };
        let slot = self.slot(task)?;
        if matches!(signal, Signal::Ended(_)) {
            slot.call = None;
        }
        slot.ticket += 1;
        slot.mailbox = Some(signal);
        Some(task)
    }

    fn leave_call(&mut self, job: JobIndex) {
        let now = self.now;
        let job = &mut self.jobs[job as usize];
        job.in_call -= 1;
        if job.in_call == 0 && job.end == End::Unfinished {
            self.facts.waiting(1, now);
        }
    }

    fn break_streams(&mut self, index: u16) -> Vec<TaskId> {
        let broken = self.claude.break_streams(index, self.now);
        broken.into_iter().filter_map(|(task, milestone)| self.tell(task, milestone)).collect()
    }

    fn begin_call(&mut self, task: TaskId, job: JobIndex, model: Model, certain: bool) {
        let now = self.now;
        let data = &mut self.jobs[job as usize];
        let number = data.calls;
        data.calls = data.calls.saturating_add(1);
        data.in_call += 1;
        data.caller.iter_mut().for_each(Caller::begins);
        let was_parked = std::mem::replace(&mut data.parked, false);
        if data.in_call == 1 && data.end == End::Unfinished && !was_parked {
            self.facts.waiting(-1, now);
        }
        let data = *data;
        let (call, events) = self.claude.begin(task, job, &data, number, model, certain, now);
        self.facts.began(model, now);
        for (at, event) in events.into_iter().flatten() {
            self.schedule(at, event);
        }
        self.slot(task).expect("a running task").call = Some(call);
    }

    /// Nobody waits for the call any more.
    fn abandon(&mut self, call: CallId) {
        if let Some((job, had_content)) = self.claude.abandon(call) {
            self.leave_call(job);
            let job = &mut self.jobs[job as usize];
            job.wasted = job.wasted.saturating_add(u8::from(had_content));
        }
    }

    fn post_wake(&mut self, task: TaskId, ticket: u32) -> bool {
        match self.slot(task) {
            Some(slot) if slot.ticket == ticket => {
                slot.mailbox = Some(Signal::Time);
                true
            }
            _ => false,
        }
    }

    fn sample(&mut self) {
        let (now, depth) = (self.now, self.claude.in_flight(Model::Primary));
        self.facts.sample(now, depth);
    }

    fn slot(&mut self, id: TaskId) -> Option<&mut Slot> {
        self.tasks.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation)
    }

    fn new_task(&mut self) -> TaskId {
        if let Some(index) = self.free.pop() {
            return TaskId { index, generation: self.tasks[index as usize].generation };
        }
        self.tasks.push(Slot::default());
        TaskId { index: u32::try_from(self.tasks.len() - 1).unwrap(), generation: 0 }
    }

    fn free_task(&mut self, id: TaskId) {
        let slot = &mut self.tasks[id.index as usize];
        *slot = Slot { generation: slot.generation + 1, ..Slot::default() };
        self.free.push(id.index);
    }
}

/// A task's own hands.
#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) sim: Sim,
    id: TaskId,
}

impl Task {
    pub(crate) fn now(&self) -> Ms {
        self.sim.look().now
    }

    pub(crate) fn world(&self) -> RefMut<'_, World> {
        self.sim.world()
    }

    pub(crate) fn job(&self, job: JobIndex) -> Job {
        self.sim.look().jobs[job as usize]
    }

    /// Waits for `ms`.
    pub(crate) async fn sleep(&self, ms: Ms) {
        let until = self.now() + ms;
        // Nothing but the wake can come: a task that sleeps has no call.
        self.next(Some(until)).await;
    }

    /// Begins a call.
    pub(crate) fn begin_call(&self, job: JobIndex, model: Model) {
        self.world().begin_call(self.id, job, model, false);
    }

    /// A call from first to last.
    pub(crate) async fn call(&self, job: JobIndex, model: Model) -> Answered {
        self.begin_call(job, model);
        self.end_of_call().await
    }

    /// A call that bad luck does not touch: for the oracle, who would not have made it otherwise.
    pub(crate) async fn certain_call(&self, job: JobIndex, model: Model) -> Answered {
        self.world().begin_call(self.id, job, model, true);
        self.end_of_call().await
    }

    async fn end_of_call(&self) -> Answered {
        loop {
            if let Signal::Ended(answered) = self.next(None).await {
                return answered;
            }
        }
    }

    /// Gives up the call that is on its way.
    pub(crate) fn abandon_call(&self) {
        let mut world = self.world();
        if let Some(call) = world.slot(self.id).and_then(|slot| slot.call.take()) {
            world.abandon(call);
        }
    }

    /// The next thing that happens to this task, at the latest `until`.
    pub(crate) fn next(&self, until: Option<Ms>) -> Next {
        let mut world = self.world();
        let id = self.id;
        let slot = world.slot(id).expect("a running task");
        slot.ticket += 1;
        slot.mailbox = None;
        let ticket = slot.ticket;
        if let Some(until) = until {
            world.schedule(until, Event::Wake { task: id, ticket });
        }
        drop(world);
        Next { task: self.clone() }
    }
}

/// Waits for a signal.
pub(crate) struct Next {
    task: Task,
}

impl Future for Next {
    type Output = Signal;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Signal> {
        let signal = self.task.world().slot(self.task.id).and_then(|slot| slot.mailbox.take());
        signal.map_or(Poll::Pending, Poll::Ready)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// Two numbers made one that looks random (SplitMix64's finaliser).
pub(crate) const fn mix(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A normal deviate (Box and Muller).
pub(crate) fn normal(rng: &mut fastrand::Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

/// How long after the last job's end the world goes on: a late duplicate would show itself.
const ECHOES: Ms = 10 * MINUTE;
