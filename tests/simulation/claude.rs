//! The upstream: two models, each with a capacity, a latency law, rate limits and weather.
//!
//! What becomes of a call is decided when it begins, in this order:
//! 1. **Rate limits**: a token bucket of calls and one of tokens, per minute. One that is empty gives a 429 with a Retry-After
//!    of whole seconds; every answer carries what is left, as `anthropic-ratelimit-*` does.
//! 2. **Capacity**: in an outage, above the calls in flight that the model bears, or by the brown-out's die: a 529, quickly, with
//!    no Retry-After, as the real ones.
//! 3. **A stream**: first content after the model's latency, the rest at its pace; perhaps an overload inside the stream.
//!
//! A call that is refused takes up no capacity: a refusal costs the upstream nothing worth counting. A call that its caller
//! gives up ends at once. The latency is the job's, the luck the call's own (see `world`).

use serde::Deserialize;

use super::scenario::Scenario;
use super::weather::{Phase, Weather};
use super::world::{Event, Job, JobIndex, MINUTE, Ms, SECOND, TaskId, mix};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Model {
    Primary,
    Fallback,
}

pub(crate) const MODELS: [Model; 2] = [Model::Primary, Model::Fallback];

/// A model's parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ModelLaw {
    /// Calls in flight that it bears.
    pub(crate) capacity: u32,
    /// The median to first content.
    pub(crate) content_ms: f64,
    /// The median for each token after that.
    pub(crate) token_ms: f64,
    /// How long a refusal takes, at most; at least a third of it.
    pub(crate) refusal_ms: u64,
    /// The account's rate limits; none: nobody comes near them.
    pub(crate) calls_per_minute: Option<f64>,
    pub(crate) tokens_per_minute: Option<f64>,
    /// What a bucket holds, in seconds of its rate.
    pub(crate) burst_seconds: f64,
}

impl Default for ModelLaw {
    fn default() -> Self {
        Self {
            capacity: 40,
            content_ms: 1_200.0,
            token_ms: 20.0,
            refusal_ms: 300,
            calls_per_minute: None,
            tokens_per_minute: None,
            burst_seconds: 60.0,
        }
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A complete answer.
    Message,
    /// 529, before anything.
    Overloaded,
    /// 429, and when to come again.
    RateLimited { retry_after_seconds: u32 },
    /// `overloaded_error` inside a 200.
    StreamOverload { after_content: bool },
}

impl Answer {
    pub(crate) const fn is_message(self) -> bool {
        matches!(self, Self::Message)
    }
}

/// What a call would meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    /// An answer.
    Free,
    /// A 529.
    Full,
    /// A 429.
    Limited,
}

/// How a call ended, and what its headers said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) answer: Answer,
    pub(crate) limits: RateLimits,
}

/// `anthropic-ratelimit-*`, as it was when the call began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RateLimits {
    pub(crate) requests: Option<Level>,
    pub(crate) tokens: Option<Level>,
}

/// What one of them says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    /// When the bucket is full again.
    pub(crate) full_at: Ms,
}

/// What a call has come to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Milestone {
    Content { job: JobIndex, began_at: Ms, limits: RateLimits },
    Ended { job: JobIndex, model: Model, answered: Answered },
}

/// Names a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId {
    index: u32,
    generation: u32,
}

/// The upstream.
pub(crate) struct Claude {
    seed: u64,
    phases: Vec<Phase>,
    models: [Capacity; 2],
    calls: Vec<Slot>,
    free: Vec<u32>,
}

struct Capacity {
    law: ModelLaw,
    in_flight: u32,
    most_in_flight: u32,
    calls: Option<Bucket>,
    tokens: Option<Bucket>,
}

#[derive(Clone, Copy)]
struct Slot {
    generation: u32,
    live: Option<Live>,
}

#[derive(Clone, Copy)]
struct Live {
    task: TaskId,
    job: JobIndex,
    model: Model,
    began_at: Ms,
    /// Whether it takes up capacity.
    served: bool,
    /// Whether bad luck passes it by.
    certain: bool,
    had_content: bool,
    answered: Answered,
}

impl Claude {
    pub(crate) fn new(scenario: &Scenario, seed: u64) -> Self {
        let capacity = |law: &ModelLaw| {
            let bucket = |per_minute: Option<f64>| per_minute.map(|rate| Bucket::new(rate, law.burst_seconds));
            Capacity {
                in_flight: 0,
                most_in_flight: 0,
                calls: bucket(law.calls_per_minute),
                tokens: bucket(law.tokens_per_minute),
                law: law.clone(),
            }
        };
        Self {
            seed,
            phases: scenario.phases.clone(),
            models: [capacity(&scenario.primary), capacity(&scenario.fallback)],
            calls: Vec::new(),
            free: Vec::new(),
        }
    }

    /// The moments at which a phase begins that breaks streams off.
    pub(crate) fn changes(&self) -> Vec<(u16, Ms)> {
        let breaks = |(index, phase): (usize, &Phase)| {
            (phase.breaks_percent > 0.0).then(|| (u16::try_from(index).unwrap(), phase.from()))
        };
        self.phases.iter().enumerate().filter_map(breaks).collect()
    }

    /// Begins call `number` of `job`: its name, and its events.
    #[allow(clippy::too_many_arguments, reason = "it is what a call is made of")]
    pub(crate) fn begin(
        &mut self,
        task: TaskId,
        index: JobIndex,
        job: &Job,
        number: u16,
        model: Model,
        certain: bool,
        now: Ms,
    ) -> (CallId, [Option<(Ms, Event)>; 2]) {
        let mut luck = fastrand::Rng::with_seed(mix(mix(self.seed, u64::from(index)), u64::from(number) + 1));
        let weather = Weather::at(now, &self.phases, model);
        let capacity = &mut self.models[model as usize];
        let refused = refusal(capacity, &weather, job, &mut luck, certain, now);
        let level = |bucket: &Option<Bucket>| bucket.as_ref().map(|bucket| bucket.level(now));
        let limits = RateLimits { requests: level(&capacity.calls), tokens: level(&capacity.tokens) };
        let (content_at, end_at, answer) = match refused {
            Some(answer) => {
                let slowest = capacity.law.refusal_ms;
                (None, now + luck.u64(slowest / 3..=slowest), answer)
            }
            None => stream(&capacity.law, &weather, job, &mut luck, certain, now),
        };
        let served = refused.is_none();
        if served {
            capacity.in_flight += 1;
            capacity.most_in_flight = capacity.most_in_flight.max(capacity.in_flight);
        }
        let answered = Answered { answer, limits };
        let call =
            self.insert(Live { task, job: index, model, began_at: now, served, certain, had_content: false, answered });
        (call, [content_at.map(|at| (at, Event::Content(call))), Some((end_at, Event::End(call)))])
    }

    /// What an event of a call means; nothing, if the call is over already.
    pub(crate) fn milestone(&mut self, id: CallId, end: bool) -> Option<(TaskId, Milestone)> {
        let live = self.live(id)?;
        if !end {
            live.had_content = true;
            let (job, began_at, limits) = (live.job, live.began_at, live.answered.limits);
            return Some((live.task, Milestone::Content { job, began_at, limits }));
        }
        let live = *live;
        self.release(id);
        Some((live.task, Milestone::Ended { job: live.job, model: live.model, answered: live.answered }))
    }

    /// The caller hangs up. Its job, and whether content had come: then it has been paid for.
    pub(crate) fn abandon(&mut self, id: CallId) -> Option<(JobIndex, bool)> {
        let live = *self.live(id)?;
        self.release(id);
        Some((live.job, live.had_content))
    }

    /// Breaks off what the beginning of a phase breaks off.
    pub(crate) fn break_streams(&mut self, phase: u16, now: Ms) -> Vec<(TaskId, Milestone)> {
        let phase = self.phases[usize::from(phase)].clone();
        let mut luck = fastrand::Rng::with_seed(mix(self.seed, now));
        let mut broken = Vec::new();
        for index in 0..self.calls.len() {
            let slot = self.calls[index];
            let Some(live) = slot.live else { continue };
            if !live.served || live.certain || !phase.is_about(live.model) || luck.f64() * 100.0 >= phase.breaks_percent
            {
                continue;
            }
            self.release(CallId { index: u32::try_from(index).unwrap(), generation: slot.generation });
            let answer = Answer::StreamOverload { after_content: live.had_content };
            let answered = Answered { answer, ..live.answered };
            broken.push((live.task, Milestone::Ended { job: live.job, model: live.model, answered }));
        }
        broken
    }

    /// What would become of a call that begins now, but for bad luck.
    pub(crate) fn stand(&mut self, model: Model, job: &Job, now: Ms) -> Stand {
        let weather = Weather::at(now, &self.phases, model);
        let capacity = &mut self.models[model as usize];
        let has = |bucket: &mut Option<Bucket>, amount| bucket.as_mut().is_none_or(|it| it.wait(amount, now).is_none());
        if !has(&mut capacity.calls, 1.0) || !has(&mut capacity.tokens, tokens(job)) {
            Stand::Limited
        } else if weather.outage || capacity.in_flight >= capacity.bears(&weather) {
            Stand::Full
        } else {
            Stand::Free
        }
    }

    pub(crate) fn in_flight(&self, model: Model) -> u32 {
        self.models[model as usize].in_flight
    }

    /// The laws that the model itself must keep, whatever a policy does to it.
    pub(crate) fn check(&self) {
        for model in &self.models {
            assert!(model.most_in_flight <= model.law.capacity, "more calls were served than the capacity allows");
        }
    }

    fn insert(&mut self, live: Live) -> CallId {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.calls[index as usize];
            slot.live = Some(live);
            return CallId { index, generation: slot.generation };
        }
        self.calls.push(Slot { generation: 0, live: Some(live) });
        CallId { index: u32::try_from(self.calls.len() - 1).unwrap(), generation: 0 }
    }

    fn live(&mut self, id: CallId) -> Option<&mut Live> {
        self.calls.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation)?.live.as_mut()
    }

    fn release(&mut self, id: CallId) {
        let slot = &mut self.calls[id.index as usize];
        if let Some(live) = slot.live.take()
            && live.served
        {
            self.models[live.model as usize].in_flight -= 1;
        }
        slot.generation += 1;
        self.free.push(id.index);
    }
}

impl Capacity {
    fn bears(&self, weather: &Weather) -> u32 {
        (f64::from(self.law.capacity) * weather.capacity_percent / 100.0).round() as u32
    }
}

fn refusal(
    capacity: &mut Capacity,
    weather: &Weather,
    job: &Job,
    luck: &mut fastrand::Rng,
    certain: bool,
    now: Ms,
) -> Option<Answer> {
    let die = luck.f64() * 100.0;
    let wait = [(&mut capacity.calls, 1.0), (&mut capacity.tokens, tokens(job))]
        .into_iter()
        .filter_map(|(bucket, amount)| bucket.as_mut()?.wait(amount, now))
        .max();
    if let Some(wait) = wait {
        return Some(Answer::RateLimited { retry_after_seconds: u32::try_from(wait.div_ceil(SECOND).max(1)).unwrap() });
    }
    if let Some(bucket) = &mut capacity.calls {
        bucket.take(1.0);
    }
    if let Some(bucket) = &mut capacity.tokens {
        bucket.take(tokens(job));
    }
    let unlucky = !certain && die < weather.refuse_percent;
    (weather.outage || unlucky || capacity.in_flight >= capacity.bears(weather)).then_some(Answer::Overloaded)
}

fn stream(
    law: &ModelLaw,
    weather: &Weather,
    job: &Job,
    luck: &mut fastrand::Rng,
    certain: bool,
    now: Ms,
) -> (Option<Ms>, Ms, Answer) {
    let (content_ms, rest_ms) = service(law, job);
    let slowed = |ms: f64| ((ms * weather.latency_percent / 100.0) as Ms).max(1);
    let content_at = now + slowed(content_ms);
    let end_at = content_at + slowed(rest_ms);
    let (die, where_) = (luck.f64() * 100.0, luck.f64());
    if !certain && die < weather.stream_before_percent {
        let at = now + ((content_at - now) as f64 * where_) as Ms;
        return (None, at, Answer::StreamOverload { after_content: false });
    }
    if !certain && die < weather.stream_before_percent + weather.stream_after_percent {
        let at = content_at + ((end_at - content_at) as f64 * where_) as Ms;
        return (Some(content_at), at, Answer::StreamOverload { after_content: true });
    }
    (Some(content_at), end_at, Answer::Message)
}

/// What a job's answer takes in fair weather: to first content, and the rest.
pub(crate) fn service(law: &ModelLaw, job: &Job) -> (f64, f64) {
    let content = law.content_ms * f64::from(job.content_percent) / 100.0;
    let rest = law.token_ms * f64::from(job.output_tokens) * f64::from(job.pace_percent) / 100.0;
    (content, rest)
}

fn tokens(job: &Job) -> f64 {
    f64::from(job.input_tokens) + f64::from(job.output_tokens)
}

/// A token bucket, filled continuously.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    per_ms: f64,
    size: f64,
    level: f64,
    filled_at: Ms,
}

impl Bucket {
    pub(crate) fn new(per_minute: f64, burst_seconds: f64) -> Self {
        let size = (per_minute * burst_seconds / 60.0).max(1.0);
        Self { per_ms: per_minute / MINUTE as f64, size, level: size, filled_at: 0 }
    }

    /// How long until `amount` is there; none if it is. More than the bucket holds is there when it is full.
    pub(crate) fn wait(&mut self, amount: f64, now: Ms) -> Option<Ms> {
        self.level = (self.level + (now - self.filled_at) as f64 * self.per_ms).min(self.size);
        self.filled_at = now;
        let missing = amount.min(self.size) - self.level;
        // A thousandth of a call is the arithmetic's, not the caller's.
        (missing > 0.001).then(|| (missing / self.per_ms).ceil() as Ms)
    }

    pub(crate) fn take(&mut self, amount: f64) {
        self.level -= amount;
    }

    /// What the headers say: a smaller bucket than a minute's is told as if it were a minute's.
    fn level(&self, now: Ms) -> Level {
        let missing = (self.size - self.level).max(0.0);
        let limit = self.per_ms * MINUTE as f64;
        Level {
            limit: limit.round() as u32,
            remaining: (self.level.max(0.0) / self.size * limit) as u32,
            full_at: now + (missing / self.per_ms).ceil() as Ms,
        }
    }
}
