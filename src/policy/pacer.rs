//! When the next call may start, by rate (B9).
//!
//! Two kinds of limits: the operator's (`pace.calls_per_minute`, `pace.burst`) and the upstream's own, as its
//! `anthropic-ratelimit-*` headers tell it. Each is a bucket that refills continuously (`policy/bucket`); a call starts when
//! every bucket has enough for it, and otherwise hears exactly when that will be. So headers slow down what the configuration
//! allows, and never speed it up; and an upstream with plenty left costs no wait at all, since nothing is spread out
//! beforehand. What a 429 asks for is not decided here but in [`super::hold`] and [`super::backoff`].
//!
//! **Requests** cost one each. **Tokens** cost what a call has used on average lately (each new call weighs an eighth): before
//! the first is known, one token, which is to say that a call starts unless the bucket is dry.
//!
//! **The rate** of an upstream's bucket is its limit per minute, or less if it says so: what is missing, over the time until it
//! is full again. That is believed once half is missing; before, a moment in whole seconds by another machine's clock is too
//! coarse (one request missing of 4,000, "full in a second", would be 60 a minute).
//!
//! **Calls on their way** are not in what an answer says is left, or not all of them. So each bucket is kept by ourselves, every
//! call taken out when it starts, and an answer only bounds it from both sides: what was taken since the headers came is
//! surely not counted in them, what was taken before the answer's own call began surely is, and what lies between may be
//! either. Forty calls that start together and hear 49, 48 … 10 left are forty calls, in whatever order they hear it; and
//! what others use of the same limit is seen at once. Output is counted while it is written: there a minute's calls may be
//! uncounted yet.
//!
//! **Forgotten** after two minutes without news: by then the bucket is full, or what we know is wrong. It also bounds every wait.

use std::time::Duration;

use super::bucket::{Bucket, UNIT};
use super::rate_limits::{LIMITED, Limited, RateLimit, RateLimits, Used};
use super::settings::PaceSettings;
use super::time::{Timestamp, millis, whole_seconds};
use crate::json::{self, Map};

/// What is known about the rate towards one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pacer {
    own: Option<Bucket>,
    requests: Option<Limit>,
    tokens: Option<Limit>,
    input_tokens: Option<Limit>,
    output_tokens: Option<Limit>,
    mean: Option<Used>,
    /// Calls of the last minute by the second that they started in.
    taken: Map<u64, u32>,
}

json::object!(default Pacer { own, requests, tokens, input_tokens, output_tokens, mean, taken });

/// A bucket of the upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    bucket: Bucket,
    came: Timestamp,
}

json::object!(Limit { bucket, came });

impl Pacer {
    /// May a call start now?
    ///
    /// # Errors
    /// How long until it may, if no other starts before: refused at every moment until then, granted exactly at it. At
    /// most two minutes.
    pub fn stand(&mut self, settings: &PaceSettings, now: Timestamp) -> Result<(), Duration> {
        self.advance(settings, now);
        let own = self.own.map_or(Duration::ZERO, |own| own.wait(1));
        let wait = LIMITED.into_iter().fold(own, |longest, what| {
            let wait = self.limit(what).map_or(Duration::ZERO, |limit| {
                limit.bucket.wait(self.need(what)).min(FORGET.saturating_sub(now.since(limit.came)))
            });
            longest.max(wait)
        });
        if wait.is_zero() { Ok(()) } else { Err(wait) }
    }

    /// A call starts. One that may not (a probe) counts like any other.
    pub fn take(&mut self, settings: &PaceSettings, now: Timestamp) {
        self.advance(settings, now);
        if let Some(own) = &mut self.own {
            own.take(1);
        }
        for what in LIMITED {
            let need = self.need(what);
            if let Some(limit) = self.limit_mut(what) {
                limit.bucket.take(need);
            }
        }
        let taken = self.taken.get(&second(now)).copied().unwrap_or_default();
        self.taken.insert(second(now), taken.saturating_add(1));
    }

    /// An answer's headers have come, or a call is over, or both.
    pub fn note(&mut self, limits: &RateLimits, now: Timestamp) {
        self.forget(now);
        if let Some(used) = limits.used {
            let mean = self.mean.unwrap_or(used);
            self.mean = Some(Used {
                input_tokens: nearer(mean.input_tokens, used.input_tokens),
                output_tokens: nearer(mean.output_tokens, used.output_tokens),
            });
        }
        for what in LIMITED {
            if let Some(said) = limits.get(what).filter(RateLimit::is_possible) {
                self.learn(what, said, limits, now);
            }
        }
    }

    /// The steady spacing between calls that the tightest limit allows, to the microsecond; `None`: there is no limit.
    #[must_use]
    pub fn interval(&self, settings: &PaceSettings, now: Timestamp) -> Option<Duration> {
        let own = settings.calls_per_minute.map(|calls| spacing(1, calls.into()));
        let known = LIMITED.into_iter().filter_map(|what| {
            let limit = self.limit(what).filter(|limit| now.since(limit.came) < FORGET)?;
            Some(spacing(limit.bucket.cost(self.need(what)), limit.bucket.per_minute))
        });
        known.chain(own).max()
    }

    /// As the operator sees it.
    #[must_use]
    pub fn status(&self, settings: &PaceSettings, now: Timestamp) -> PaceStatus {
        let mut pacer = self.clone();
        let next = pacer.stand(settings, now).err();
        let interval = pacer.interval(settings, now);
        PaceStatus {
            calls_per_minute: interval.map(|interval| MINUTE_US / micros(interval).max(1)),
            interval_ms: interval.map(|interval| micros(interval).div_ceil(1_000)),
            next_call_seconds: next.map(whole_seconds),
            mean_use: pacer.mean,
            limits: LIMITED
                .into_iter()
                .filter_map(|what| {
                    let bucket = pacer.limit(what)?.bucket;
                    Some(LimitStatus { of: what, limit: bucket.capacity, remaining: bucket.left() })
                })
                .collect(),
        }
    }

    /// Brings every bucket to `now`, and the operator's to its settings.
    fn advance(&mut self, settings: &PaceSettings, now: Timestamp) {
        self.forget(now);
        self.own = settings.calls_per_minute.map(|calls| {
            let (capacity, per_minute) = (settings.burst.unwrap_or(calls / 10).max(1).into(), calls.into());
            let mut own = self.own.unwrap_or(Bucket::full(capacity, per_minute, now));
            own.settle(now);
            own.reshape(capacity, per_minute);
            own
        });
    }

    /// Drops what is too old, and brings what is left to `now`.
    fn forget(&mut self, now: Timestamp) {
        for what in LIMITED {
            let slot = self.limit_mut(what);
            *slot = slot.filter(|limit| now.since(limit.came) < FORGET);
            if let Some(limit) = slot {
                limit.bucket.settle(now);
                limit.came = limit.came.min(now);
            }
        }
        let seconds = second(now).saturating_sub(TAKEN_SECONDS - 1)..=second(now);
        self.taken.retain(|taken, _| seconds.contains(taken));
    }

    fn learn(&mut self, what: Limited, said: RateLimit, limits: &RateLimits, now: Timestamp) {
        let came = now - limits.came_ago;
        let is_old = self.limit(what).is_some_and(|known| known.came > came);
        if is_old || limits.came_ago >= FORGET {
            return;
        }
        let (capacity, per_minute) = (said.limit, said.per_minute());
        let need = self.need(what);
        let mut bucket = match self.limit(what) {
            Some(known) => known.bucket,
            None => self.reckoned(capacity, per_minute, need, now),
        };
        bucket.reshape(capacity, per_minute);
        let cost = bucket.cost(need);
        let refilled = per_minute.saturating_mul(millis(limits.came_ago));
        let missing = said.missing().saturating_mul(UNIT);
        let units = |calls: u64| calls.saturating_mul(cost).saturating_mul(UNIT);
        let surely = units(self.taken_from(second(came).saturating_add(1)));
        let maybe = match what {
            Limited::Tokens | Limited::OutputTokens => Some(self.taken_from(0)),
            Limited::Requests | Limited::InputTokens if limits.begun_ago >= TAKEN => None,
            Limited::Requests | Limited::InputTokens => {
                // Its own call is counted.
                Some(self.taken_from(second(now - limits.begun_ago)).saturating_sub(1))
            }
        };
        let most = maybe.map_or(u64::MAX, |calls| missing.saturating_sub(refilled).saturating_add(units(calls)));
        let least = missing.saturating_add(surely).saturating_sub(refilled);
        bucket.missing = bucket.missing.min(most).max(least);
        bucket.settle(now);
        *self.limit_mut(what) = Some(Limit { bucket, came });
    }

    /// What a bucket would be had it been known all along and we alone had drawn from it.
    fn reckoned(&self, capacity: u64, per_minute: u64, need: u64, now: Timestamp) -> Bucket {
        let mut bucket = Bucket::full(capacity, per_minute, Timestamp::default());
        for (second, calls) in self.taken.iter() {
            bucket.settle(Timestamp::from_millis(second.saturating_mul(1_000)));
            let units = bucket.cost(need).saturating_mul(UNIT).saturating_mul((*calls).into());
            bucket.missing = bucket.missing.saturating_add(units).min(bucket.most());
        }
        bucket.settle(now);
        bucket
    }

    fn taken_from(&self, second: u64) -> u64 {
        self.taken.iter().filter(|(taken, _)| **taken >= second).map(|(_, calls)| u64::from(*calls)).sum()
    }

    /// What one call takes.
    fn need(&self, what: Limited) -> u64 {
        let Used { input_tokens, output_tokens } = self.mean.unwrap_or_default();
        let need = match what {
            Limited::Requests => 1,
            Limited::Tokens => input_tokens.saturating_add(output_tokens),
            Limited::InputTokens => input_tokens,
            Limited::OutputTokens => output_tokens,
        };
        need.max(1)
    }

    const fn limit(&self, what: Limited) -> Option<Limit> {
        match what {
            Limited::Requests => self.requests,
            Limited::Tokens => self.tokens,
            Limited::InputTokens => self.input_tokens,
            Limited::OutputTokens => self.output_tokens,
        }
    }

    const fn limit_mut(&mut self, what: Limited) -> &mut Option<Limit> {
        match what {
            Limited::Requests => &mut self.requests,
            Limited::Tokens => &mut self.tokens,
            Limited::InputTokens => &mut self.input_tokens,
            Limited::OutputTokens => &mut self.output_tokens,
        }
    }
}

/// The pacer as the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaceStatus {
    /// Calls that a minute allows in the long run, rounded down; `null`: no limit is known.
    pub calls_per_minute: Option<u64>,
    /// The same as a spacing.
    pub interval_ms: Option<u64>,
    /// How long until the next call may start; `null`: it may now.
    pub next_call_seconds: Option<u64>,
    /// What a call has used on average lately; `null`: not known yet.
    pub mean_use: Option<Used>,
    /// The upstream's limits, as far as they are known, and what is left of them.
    pub limits: Vec<LimitStatus>,
}

json::output!(PaceStatus { calls_per_minute, interval_ms, next_call_seconds, mean_use, limits });

/// One of the upstream's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitStatus {
    /// What is limited.
    pub of: Limited,
    /// What a minute allows.
    pub limit: u64,
    /// What should be left, with the calls on their way taken out.
    pub remaining: u64,
}

json::output!(LimitStatus { of, limit, remaining });

fn nearer(mean: u64, used: u64) -> u64 {
    let used = used.min(MAX_USED);
    mean.saturating_mul(7).saturating_add(used).saturating_add(4) / 8
}

fn spacing(cost: u64, per_minute: u64) -> Duration {
    Duration::from_micros(cost.saturating_mul(MINUTE_US).div_ceil(per_minute.max(1)))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

const fn second(at: Timestamp) -> u64 {
    at.as_millis() / 1_000
}

const MINUTE_US: u64 = 60_000_000;
/// How long an upstream's limit is remembered.
const FORGET: Duration = Duration::from_secs(120);
/// How long a call is remembered: what it took has been refilled by then.
const TAKEN: Duration = Duration::from_secs(TAKEN_SECONDS);
const TAKEN_SECONDS: u64 = 60;
const MAX_USED: u64 = 100_000_000;
