//! Storms, as files.
//!
//! A scenario says who submits what and when, what the upstream is like, what goes wrong, and which bands our policy has to
//! stay in. `scenarios/*.toml` are built in; anybody's own file is read the same way.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::callers::{Caller, Calls};
use super::claude::{ModelLaw, service};
use super::queues::QueueLaw;
use super::weather::Phase;
use super::world::{HOUR, Job, MINUTE, Ms, Priority, SECOND, mix, normal};

/// A storm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) title: String,
    /// Why it is here, and what it shows.
    pub(crate) why: String,
    /// The hour of the day at which it begins, UTC; if it does not matter, the first of the quiet hours' own.
    #[serde(default = "seven")]
    pub(crate) start_hour: f64,
    /// Jobs are submitted for so long.
    pub(crate) minutes: f64,
    /// The world ends so long after the last submission; what is unfinished then is lost.
    #[serde(default = "three_days")]
    pub(crate) patience_hours: f64,
    /// How much of it the plots show; the whole, if nothing is said.
    pub(crate) plot_minutes: Option<f64>,
    /// Whether it is left out unless it is asked for by name.
    #[serde(default)]
    pub(crate) only_by_name: bool,
    /// Left out, nobody submits any.
    #[serde(default)]
    pub(crate) jobs: Jobs,
    /// Users who wait for their answer, beside the jobs.
    pub(crate) calls: Option<Calls>,
    #[serde(default)]
    pub(crate) primary: ModelLaw,
    #[serde(default = "fallback")]
    pub(crate) fallback: ModelLaw,
    #[serde(default)]
    pub(crate) queues: QueueLaw,
    #[serde(default, rename = "phase")]
    pub(crate) phases: Vec<Phase>,
    /// The deployment's `POLICY`, as in wrangler.toml; empty: the defaults.
    #[serde(default = "empty_object")]
    pub(crate) policy: String,
    /// What our policy has to keep.
    #[serde(default)]
    pub(crate) bands: BTreeMap<String, Band>,
}

/// Who submits what.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Jobs {
    /// On average, at random; or, with `even`, by the clock.
    #[serde(default)]
    pub(crate) per_minute: f64,
    #[serde(default)]
    pub(crate) even: bool,
    #[serde(default, rename = "burst")]
    pub(crate) bursts: Vec<Burst>,
    /// So many of a hundred.
    #[serde(default = "medium")]
    pub(crate) priorities: BTreeMap<String, f64>,
    #[serde(rename = "kind")]
    pub(crate) kinds: Vec<KindShare>,
    /// Median and spread (sigma of the logarithm).
    #[serde(default = "input_tokens")]
    pub(crate) input_tokens: [f64; 2],
    #[serde(default = "output_tokens")]
    pub(crate) output_tokens: [f64; 2],
    /// None: the deployment's own.
    pub(crate) deadline_seconds: Option<u64>,
    /// What users answer when they are asked whether their job may wait; none: they say nothing, which is a yes.
    pub(crate) accept_deferral: Option<bool>,
}

impl Default for Jobs {
    fn default() -> Self {
        Self {
            per_minute: 0.0,
            even: false,
            bursts: Vec::new(),
            priorities: medium(),
            kinds: Vec::new(),
            input_tokens: input_tokens(),
            output_tokens: output_tokens(),
            deadline_seconds: None,
            accept_deferral: None,
        }
    }
}

/// Many at once.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Burst {
    pub(crate) at_minute: f64,
    pub(crate) jobs: u32,
    pub(crate) within_seconds: f64,
}

/// A kind of job and how many are of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KindShare {
    pub(crate) name: String,
    pub(crate) share: f64,
    /// What the kind table says of it (A6): for the policies that have no table.
    pub(crate) fallback: bool,
}

/// What a figure has to be.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Band {
    pub(crate) min: Option<f64>,
    pub(crate) max: Option<f64>,
}

/// A month: what takes longer is no storm but a climate.
const MOST_MINUTES: f64 = 43_200.0;
/// What a machine of modest size has the memory for.
const MOST_JOBS: f64 = 5_000_000.0;

const fn three_days() -> f64 {
    72.0
}

const fn seven() -> f64 {
    7.0
}

fn fallback() -> ModelLaw {
    ModelLaw { content_ms: 700.0, token_ms: 10.0, ..ModelLaw::default() }
}

fn empty_object() -> String {
    "{}".into()
}

pub(crate) fn medium() -> BTreeMap<String, f64> {
    BTreeMap::from([("medium".into(), 100.0)])
}

pub(crate) const fn input_tokens() -> [f64; 2] {
    [800.0, 0.6]
}

pub(crate) const fn output_tokens() -> [f64; 2] {
    [300.0, 0.6]
}

impl Scenario {
    /// Every built-in scenario, in the order of the issue.
    pub(crate) fn all() -> Vec<Self> {
        BUILT_IN
            .iter()
            .map(|(name, text)| Self::parse(text).unwrap_or_else(|error| panic!("{name}: {error}")))
            .collect()
    }

    /// A built-in one by its name, or a file.
    pub(crate) fn find(name: &str) -> Result<Self, String> {
        if let Some(found) = Self::all().into_iter().find(|scenario| scenario.name == name) {
            return Ok(found);
        }
        if !Path::new(name).exists() {
            return Err(format!("no scenario is called {name}, and there is no such file; see --list"));
        }
        let text = std::fs::read_to_string(name).map_err(|error| format!("{name}: {error}"))?;
        Self::parse(&text).map_err(|error| format!("{name}: {error}"))
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut scenario: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let common: BTreeMap<String, Band> = toml::from_str(COMMON_BANDS).map_err(|error| error.to_string())?;
        for (name, band) in common {
            scenario.bands.entry(name).or_insert(band);
        }
        scenario.validate()?;
        Ok(scenario)
    }

    fn validate(&self) -> Result<(), String> {
        let check = |right: bool, what: &str| if right { Ok(()) } else { Err(what.to_owned()) };
        let submits = self.jobs.per_minute > 0.0 || !self.jobs.bursts.is_empty();
        check(submits || self.calls.is_some(), "jobs: per_minute or a burst is needed")?;
        if submits {
            self.jobs.mix().check("jobs")?;
        }
        if let Some(calls) = &self.calls {
            calls.check()?;
            mix_of(calls).check("calls")?;
        }
        check(
            self.minutes > 0.0 && self.minutes <= MOST_MINUTES,
            "minutes: must be above 0, and at most 43200 (30 days)",
        )?;
        check((0.0..24.0).contains(&self.start_hour), "start_hour: must be from 0 to below 24")?;
        check((0.0..=720.0).contains(&self.patience_hours), "patience_hours: must be from 0 to 720")?;
        let bursts: f64 = self.jobs.bursts.iter().map(|burst| f64::from(burst.jobs)).sum();
        let calls = self.calls.as_ref().map_or(0.0, |calls| calls.per_minute);
        let jobs = (self.jobs.per_minute + calls) * self.minutes + bursts;
        check(self.jobs.per_minute >= 0.0 && jobs <= MOST_JOBS, "jobs: must be from 0 to 5 million in all")?;
        for (index, phase) in self.phases.iter().enumerate() {
            phase.check(self.minutes).map_err(|what| format!("phase {}: {what}", index + 1))?;
        }
        for (name, Band { min, max }) in &self.bands {
            let is_one = (min.is_some() || max.is_some())
                && [min, max].into_iter().flatten().all(|bound| bound.is_finite())
                && min.zip(*max).is_none_or(|(min, max)| min <= max);
            check(is_one, &format!("bands.{name}: needs a min or a max, and the min not above the max"))?;
        }
        check(self.queues.batch > 0 && self.queues.batch <= 100, "queues.batch: must be from 1 to 100")?;
        check(self.queues.max_consumers > 0, "queues.max_consumers: must be above 0")?;
        match self.bands.keys().find(|name| !super::report::metrics().any(|(known, _)| known == *name)) {
            Some(unknown) => Err(format!("bands.{unknown}: there is no such figure")),
            None => Ok(()),
        }
    }

    /// The end of submissions.
    pub(crate) fn submissions_end(&self) -> Ms {
        (self.minutes * MINUTE as f64) as Ms
    }

    /// The end of the world.
    pub(crate) fn horizon(&self) -> Ms {
        self.submissions_end() + (self.patience_hours * HOUR as f64) as Ms
    }

    pub(crate) fn plotted(&self) -> Ms {
        self.plot_minutes.map_or(self.submissions_end(), |minutes| (minutes * MINUTE as f64) as Ms)
    }

    /// When the last trouble is over, if there is any.
    pub(crate) fn trouble_ends(&self) -> Option<Ms> {
        self.phases.iter().filter(|phase| phase.is_trouble()).map(Phase::to).max()
    }

    /// The same storm, smaller: a share of the jobs, the capacity and the limits. For tests.
    pub(crate) fn shrunk(mut self, by: f64) -> Self {
        self.jobs.per_minute /= by;
        self.calls.iter_mut().for_each(|calls| calls.per_minute /= by);
        for burst in &mut self.jobs.bursts {
            burst.jobs = (f64::from(burst.jobs) / by).ceil() as u32;
        }
        for law in [&mut self.primary, &mut self.fallback] {
            law.capacity = ((f64::from(law.capacity) / by).round() as u32).max(1);
            law.calls_per_minute = law.calls_per_minute.map(|rate| rate / by);
            law.tokens_per_minute = law.tokens_per_minute.map(|rate| rate / by);
        }
        self
    }

    /// Everyone's jobs and calls, in the order in which they come.
    pub(crate) fn jobs(&self, seed: u64) -> Vec<Job> {
        let mut rng = fastrand::Rng::with_seed(mix(seed, 0x0a11));
        let mut times = self.arrivals(self.jobs.per_minute, self.jobs.even, &mut rng);
        for burst in &self.jobs.bursts {
            let from = burst.at_minute * MINUTE as f64;
            let within = burst.within_seconds * SECOND as f64;
            times.extend((0..burst.jobs).map(|_| (from + within * rng.f64()) as Ms));
        }
        times.sort_unstable();
        let own = |salt: u64, index: usize| fastrand::Rng::with_seed(mix(mix(seed, salt), index as u64));
        let mix_of_jobs = self.jobs.mix();
        let job = |(index, &at): (usize, &Ms)| mix_of_jobs.draw(at, &mut own(0x10b, index));
        let mut jobs: Vec<Job> = times.iter().enumerate().map(job).collect();
        if let Some(calls) = &self.calls {
            let times = self.arrivals(calls.per_minute, false, &mut fastrand::Rng::with_seed(mix(seed, 0xca11)));
            let call = |(index, at): (usize, Ms)| {
                let mut rng = own(0xca11, index);
                let caller = Caller::of(rng.u16(0..calls.isolates));
                Job { caller: Some(caller), ..mix_of(calls).draw(at, &mut rng) }
            };
            jobs.extend(times.into_iter().enumerate().map(call));
            jobs.sort_by_key(|job| job.at);
        }
        jobs
    }

    fn arrivals(&self, per_minute: f64, even: bool, rng: &mut fastrand::Rng) -> Vec<Ms> {
        let mut times = Vec::new();
        if per_minute > 0.0 {
            let gap = MINUTE as f64 / per_minute;
            let end = self.submissions_end() as f64;
            let mut at = if even { gap / 2.0 } else { 0.0 };
            loop {
                at += if even { 0.0 } else { -gap * (1.0 - rng.f64()).ln() };
                if at >= end {
                    break;
                }
                times.push(at as Ms);
                at += if even { gap } else { 0.0 };
            }
        }
        times
    }

    /// The kind of a job, or of a call.
    pub(crate) fn kind(&self, job: &Job) -> &KindShare {
        let kinds = match (&self.calls, job.caller) {
            (Some(calls), Some(_)) => &calls.kinds,
            _ => &self.jobs.kinds,
        };
        &kinds[usize::from(job.kind)]
    }

    /// The share of the primary's capacity that the jobs need, or of its calls a minute, were they all its own and came evenly.
    pub(crate) fn load(&self, jobs: &[Job]) -> f64 {
        let calls_per_ms = jobs.len() as f64 / self.submissions_end() as f64;
        let of_slots = calls_per_ms * self.call_seconds(jobs) * SECOND as f64 / f64::from(self.primary.capacity);
        let of_rate = self.primary.calls_per_minute.map_or(0.0, |limit| calls_per_ms * MINUTE as f64 / limit);
        of_slots.max(of_rate)
    }

    /// What a call to the primary takes on average.
    pub(crate) fn call_seconds(&self, jobs: &[Job]) -> f64 {
        let of = |job: &Job| {
            let (content, rest) = service(&self.primary, job);
            content + rest
        };
        jobs.iter().map(of).sum::<f64>() / SECOND as f64 / jobs.len().max(1) as f64
    }

    /// Jobs of a priority that come in a minute, bursts aside.
    pub(crate) fn rate(&self, priority: Priority) -> f64 {
        let shares = &self.jobs.priorities;
        let own = shares.get(priority.name()).copied().unwrap_or_default();
        self.jobs.per_minute * own / shares.values().sum::<f64>()
    }
}

/// What jobs, or calls, are like.
struct Mix<'a> {
    priorities: &'a BTreeMap<String, f64>,
    kinds: &'a [KindShare],
    input_tokens: [f64; 2],
    output_tokens: [f64; 2],
}

impl Jobs {
    fn mix(&self) -> Mix<'_> {
        let Self { priorities, kinds, input_tokens, output_tokens, .. } = self;
        Mix { priorities, kinds, input_tokens: *input_tokens, output_tokens: *output_tokens }
    }
}

fn mix_of(calls: &Calls) -> Mix<'_> {
    let Calls { priorities, kinds, input_tokens, output_tokens, .. } = calls;
    Mix { priorities, kinds, input_tokens: *input_tokens, output_tokens: *output_tokens }
}

impl Mix<'_> {
    fn check(&self, table: &str) -> Result<(), String> {
        let check = |right: bool, what: &str| if right { Ok(()) } else { Err(format!("{table}.{what}")) };
        check(!self.kinds.is_empty(), "kind: at least one is needed")?;
        check(self.kinds.len() <= 100, "kind: a hundred are enough")?;
        check(self.kinds.iter().all(|kind| kind.share >= 0.0), "kind: shares are not negative")?;
        check(self.kinds.iter().any(|kind| kind.share > 0.0), "kind: one share has to be above 0")?;
        let named = |name: &String| self.kinds.iter().filter(|kind| kind.name == *name).count() == 1;
        check(self.kinds.iter().all(|kind| named(&kind.name)), "kind: each name may come once")?;
        check(self.priorities.values().any(|share| *share > 0.0), "priorities: one has to be above 0")?;
        let known = |name: &String| ["high", "medium", "low"].contains(&name.as_str());
        check(self.priorities.keys().all(known), "priorities: there are high, medium and low")
    }

    fn draw(&self, at: Ms, rng: &mut fastrand::Rng) -> Job {
        let lognormal = |[median, sigma]: [f64; 2], rng: &mut fastrand::Rng| {
            (median * (sigma * normal(rng)).exp()).clamp(1.0, 64_000.0)
        };
        let share = |name: &str| self.priorities.get(name).copied().unwrap_or_default();
        let shares = [share("high"), share("medium"), share("low")];
        let priority = [Priority::High, Priority::Medium, Priority::Low][pick(&shares, rng)];
        let shares: Vec<f64> = self.kinds.iter().map(|kind| kind.share).collect();
        let kind = pick(&shares, rng);
        Job {
            kind: u8::try_from(kind).unwrap(),
            input_tokens: lognormal(self.input_tokens, rng) as u32,
            output_tokens: lognormal(self.output_tokens, rng) as u32,
            content_percent: (lognormal([100.0, 0.4], rng) as u16).clamp(20, 2_000),
            pace_percent: (lognormal([100.0, 0.2], rng) as u16).clamp(20, 1_000),
            ..Job::new(at, priority, self.kinds[kind].fallback)
        }
    }
}

fn pick(shares: &[f64], rng: &mut fastrand::Rng) -> usize {
    let mut at = rng.f64() * shares.iter().sum::<f64>();
    for (index, share) in shares.iter().enumerate() {
        if at < *share {
            return index;
        }
        at -= share;
    }
    shares.iter().rposition(|share| *share > 0.0).unwrap_or_default()
}

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("scenarios/", $name, ".toml")))),*]
    };
}

const COMMON_BANDS: &str = include_str!("scenarios/common-bands.toml");

const BUILT_IN: [(&str, &str); 17] = built_in![
    "brown-out",
    "outage-10m",
    "outage-46m",
    "outage-4h",
    "peak-hours",
    "primary-only",
    "burst",
    "half-capacity",
    "rate-limit",
    "lone-job",
    "flapping",
    "priorities",
    "calm",
    "calls-outage-46m",
    "calls-brown-out",
    "calls-mixed",
    "million",
];
