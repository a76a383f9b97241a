//! How long to wait after a failure (B1–B4), from a count that the whole fleet shares.
//!
//! **The count.** Each bucket counts its own failures, and no bucket ever raises another's (B1). The failure is counted
//! *before* its wait is drawn (B2): the first failure waits `base · 2`, so five attempts of a 529 wait up to 4, 8, 16 and 32 s.
//! The count belongs to the gate, not to a job (B15). Were it raised by every failure, two hundred jobs that fail in the same
//! second would send each other to the cap; so it rises at most once per current wait (the wait drawn by the failure that
//! raised it last). A lone job always outwaits that and sees exactly B2's sequence. The count saturates where doubling
//! reaches the cap, or an hour of outage would need an hour of successes to be forgotten; each success takes one off (B4).
//!
//! **The wait.** `raw = min(cap, base · 2^failures)`, from the shared count and the failing job's own base and cap, then:
//!
//! | jitter | wait | source |
//! | --- | --- | --- |
//! | full | random in [0, raw] | B2 |
//! | equal | raw / 2 + random in [0, raw / 2] | B2 |
//! | decorrelated | min(cap, random in [base, 3 · current wait]) | B2's third choice |
//! | additive | raw + random in [0, 2 s] | A2 |
//!
//! **Retry-After wins over any computed wait (B3)**, longer or shorter: it becomes that, never less, plus a little, so that
//! those who were told the same moment do not come in one instant. One of zero asks for nothing, and the bucket decides.

use std::time::Duration;

use super::cause::Class;
use super::settings::{Backoff, BackoffSettings};
use super::time::{Timestamp, millis, whole_seconds};
use crate::json;

/// How a wait is drawn; the formulas are in the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// Anywhere up to the raw wait: spreads best.
    Full,
    /// At least half the raw wait.
    Equal,
    /// From the wait before instead of from the count.
    Decorrelated,
    /// The raw wait and up to 2 s more.
    Additive,
}

json::names!(Jitter {
    Full => "full",
    Equal => "equal",
    Decorrelated => "decorrelated",
    Additive => "additive",
});

impl Backoff {
    /// The wait before jitter, `min(cap, base · 2^failures)`.
    #[must_use]
    pub fn raw(&self, failures: u32) -> Duration {
        let doubled = u64::from(self.base_ms) << failures.min(31);
        Duration::from_millis(doubled.min(self.cap_ms.into()))
    }

    /// The count from which on the raw wait is the cap, `⌈log2(cap / base)⌉`, at least 1.
    #[must_use]
    pub fn saturation(&self) -> u32 {
        let cap = Duration::from_millis(self.cap_ms.into());
        (1..=31).find(|&failures| self.raw(failures) >= cap).unwrap_or(31)
    }

    /// The longest wait that can be drawn.
    #[must_use]
    pub fn longest(&self) -> Duration {
        let more = if self.jitter == Jitter::Additive { ADDITIVE_MS } else { 0 };
        Duration::from_millis(u64::from(self.cap_ms) + more)
    }

    /// Draws the wait after `failures` failures; `previous` is the wait drawn before it, zero if there was none.
    #[must_use]
    pub fn draw(&self, failures: u32, previous: Duration, rng: &mut fastrand::Rng) -> Duration {
        let raw = millis(self.raw(failures));
        let (base, cap) = (u64::from(self.base_ms), u64::from(self.cap_ms));
        Duration::from_millis(match self.jitter {
            Jitter::Full => rng.u64(0..=raw),
            Jitter::Equal => raw / 2 + rng.u64(0..=raw.div_ceil(2)),
            Jitter::Decorrelated => rng.u64(base..=millis(previous).saturating_mul(3).max(base)).min(cap),
            Jitter::Additive => raw + rng.u64(0..=ADDITIVE_MS),
        })
    }
}

/// The asked-for wait and a little more: a tenth, but at least up to half a second and at most up to five.
#[must_use]
pub fn obey(retry_after: Duration, rng: &mut fastrand::Rng) -> Duration {
    let spread = (millis(retry_after) / 10).clamp(HINT_SPREAD_MS.0, HINT_SPREAD_MS.1);
    retry_after.saturating_add(Duration::from_millis(rng.u64(1..=spread)))
}

/// One kind of failure, as the whole fleet sees it (B1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    failures: u32,
    last_failure: Option<Timestamp>,
    /// When the count rose last, and the wait that was drawn then.
    raised_at: Option<Timestamp>,
    current_wait_ms: u64,
    /// The cap of the job that failed last.
    cap_ms: u32,
}

json::object!(Bucket { failures, last_failure, raised_at, current_wait_ms, cap_ms });

impl Bucket {
    /// How many failures weigh on the next wait.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Counts a failure, then draws its wait.
    pub fn fail(&mut self, backoff: &Backoff, now: Timestamp, rng: &mut fastrand::Rng) -> Duration {
        let current = Duration::from_millis(self.current_wait_ms);
        // A clock that ran backwards must not freeze the count until it has caught up.
        self.raised_at = self.raised_at.map(|at| at.min(now));
        let rises = self.raised_at.is_none_or(|at| now.since(at) >= current);
        if rises {
            self.failures = self.failures.max(self.failures.saturating_add(1).min(backoff.saturation()));
        }
        let wait = backoff.draw(self.failures, current, rng);
        if rises {
            self.raised_at = Some(now);
            self.current_wait_ms = millis(wait);
        }
        self.last_failure = Some(now);
        self.cap_ms = backoff.cap_ms;
        wait
    }

    /// Takes one off (B4).
    pub const fn succeed(&mut self) {
        self.failures = self.failures.saturating_sub(1);
        if self.failures == 0 {
            self.reset();
        }
    }

    /// Forgets the count, but not when the last failure was.
    pub const fn reset(&mut self) {
        self.failures = 0;
        self.raised_at = None;
        self.current_wait_ms = 0;
    }

    fn status(&self, now: Timestamp) -> BucketStatus {
        BucketStatus {
            failures: self.failures,
            last_failure_seconds_ago: self.last_failure.map(|at| now.since(at).as_secs()),
            current_wait_ms: self.current_wait_ms,
            cap_ms: self.cap_ms,
        }
    }
}

/// A bucket as the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketStatus {
    /// How many failures weigh on the next wait.
    pub failures: u32,
    /// How long ago the last one was.
    pub last_failure_seconds_ago: Option<u64>,
    /// The wait drawn when the count rose last; 0 while there is none.
    pub current_wait_ms: u64,
    /// The cap of the job that failed last; 0 before the first failure.
    pub cap_ms: u32,
}

json::output!(BucketStatus { failures, last_failure_seconds_ago, current_wait_ms, cap_ms });

/// Which bucket a wait comes from; its snake-case name is log field and metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketName {
    /// 429.
    RateLimited,
    /// 529.
    Overloaded,
    /// Everything else that passes.
    Transient,
}

json::names!(BucketName {
    RateLimited => "rate_limited",
    Overloaded => "overloaded",
    Transient => "transient",
});

/// How long a failed job waits, and why (B10: all of it is logged).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Whose count it was drawn from.
    pub bucket: BucketName,
    /// The count it was drawn from, this failure included.
    pub failures: u32,
    /// What the bucket drew.
    pub computed: Duration,
    /// What the upstream asked for; zero if it did not. No wait may be shorter.
    pub floor: Duration,
    /// What to wait: the upstream's wish and a little more, or without one what the bucket drew.
    pub wanted: Duration,
}

json::object!(Wait { bucket, failures, computed, floor, wanted });

impl Wait {
    /// The wait in whole seconds, at least 1: what a queue can do.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        whole_seconds(self.wanted)
    }
}

/// The gate's buckets (B1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    rate_limited: Bucket,
    overloaded: Bucket,
    transient: Bucket,
}

json::object!(Buckets { rate_limited, overloaded, transient });

impl Buckets {
    /// Counts a failure in its own bucket and draws its wait; `None` for a class that is never retried (B5).
    pub fn fail(
        &mut self,
        class: Class,
        settings: &BackoffSettings,
        retry_after: Option<Duration>,
        now: Timestamp,
        rng: &mut fastrand::Rng,
    ) -> Option<Wait> {
        let (name, bucket, backoff) = match class {
            Class::Overload => (BucketName::Overloaded, &mut self.overloaded, &settings.overloaded),
            Class::RateLimit => (BucketName::RateLimited, &mut self.rate_limited, &settings.rate_limited),
            Class::Transient => (BucketName::Transient, &mut self.transient, &settings.transient),
            Class::SpendCap | Class::Final => return None,
        };
        let computed = bucket.fail(backoff, now, rng);
        let floor = retry_after.unwrap_or_default();
        let wanted = if floor.is_zero() { computed } else { obey(floor, rng) };
        Some(Wait { bucket: name, failures: bucket.failures(), computed, floor, wanted })
    }

    /// A success takes one off each count (B4).
    pub const fn succeed(&mut self) {
        self.rate_limited.succeed();
        self.overloaded.succeed();
        self.transient.succeed();
    }

    /// The breaker closed: the outage is over, and so are the counts of what it judges. The 429s are not its business (B1).
    pub const fn reset_outage(&mut self) {
        self.overloaded.reset();
        self.transient.reset();
    }

    /// As the operator sees them.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> BucketsStatus {
        BucketsStatus {
            rate_limited: self.rate_limited.status(now),
            overloaded: self.overloaded.status(now),
            transient: self.transient.status(now),
        }
    }
}

/// The buckets as the operator sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketsStatus {
    /// 429.
    pub rate_limited: BucketStatus,
    /// 529.
    pub overloaded: BucketStatus,
    /// Everything else that passes.
    pub transient: BucketStatus,
}

json::output!(BucketsStatus { rate_limited, overloaded, transient });

/// A2's "+ 0–2 s".
const ADDITIVE_MS: u64 = 2_000;
/// The least and the most that a Retry-After is spread over.
const HINT_SPREAD_MS: (u64, u64) = (500, 5_000);

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn at(ms: u64) -> Timestamp {
        T0 + Duration::from_millis(ms)
    }

    fn rng() -> fastrand::Rng {
        fastrand::Rng::with_seed(7)
    }

    #[test]
    fn five_attempts_of_a_lone_job_draw_from_4_8_16_and_32_seconds() {
        let backoff = BackoffSettings::default().overloaded;
        for seed in 0..200 {
            let (mut bucket, mut rng, mut now) = (Bucket::default(), fastrand::Rng::with_seed(seed), T0);
            for (count, raw) in [(1, 4), (2, 8), (3, 16), (4, 32)] {
                let wait = bucket.fail(&backoff, now, &mut rng);
                assert_eq!((bucket.failures(), backoff.raw(count).as_secs()), (count, raw));
                assert!(wait <= Duration::from_secs(raw), "{wait:?}");
                now = now + wait;
            }
        }
    }

    #[test]
    fn two_hundred_failures_within_one_wait_count_once() {
        let backoff = Backoff { base_ms: 2_000, cap_ms: 120_000, jitter: Jitter::Equal };
        let (mut bucket, mut rng) = (Bucket::default(), rng());
        for ms in 0..200 {
            assert!(bucket.fail(&backoff, at(ms), &mut rng) <= Duration::from_secs(4));
        }
        assert_eq!(bucket.failures(), 1);
        bucket.fail(&backoff, at(4_000), &mut rng);
        assert_eq!(bucket.failures(), 2);
        for ms in 4_000..400_000 {
            bucket.fail(&backoff, at(ms), &mut rng);
        }
        assert_eq!(bucket.failures(), backoff.saturation(), "they do not put off the next rise");
    }

    #[test]
    fn a_count_that_is_down_to_none_begins_anew_and_only_its_last_failure_is_remembered() {
        let (mut buckets, mut rng, settings) = (Buckets::default(), rng(), BackoffSettings::default());
        buckets.fail(Class::RateLimit, &settings, None, at(0), &mut rng);
        assert!(buckets.status(at(5_000)).rate_limited.current_wait_ms > 0);
        buckets.succeed();
        let expected =
            BucketStatus { failures: 0, last_failure_seconds_ago: Some(5), current_wait_ms: 0, cap_ms: 30_000 };
        assert_eq!(buckets.status(at(5_000)).rate_limited, expected);
        buckets.fail(Class::RateLimit, &settings, None, at(1), &mut rng);
        assert_eq!(buckets.rate_limited.failures(), 1, "within the wait that was");
    }

    #[test]
    fn the_count_saturates_where_doubling_reaches_the_cap() {
        for (base_ms, cap_ms, saturation) in
            [(2_000, 120_000, 6), (1_000, 30_000, 5), (500, 10_000, 5), (1, 1, 1), (1, u32::MAX, 31), (0, 5, 31)]
        {
            let backoff = Backoff { base_ms, cap_ms, jitter: Jitter::Full };
            assert_eq!(backoff.saturation(), saturation, "{base_ms} {cap_ms}");
            let (mut bucket, mut rng) = (Bucket::default(), rng());
            let mut now = T0;
            for _ in 0..100 {
                now = now + bucket.fail(&backoff, now, &mut rng);
            }
            assert_eq!(bucket.failures(), saturation);
        }
    }

    #[test]
    fn a_job_with_a_lower_cap_never_lowers_the_shared_count() {
        let (mut bucket, mut rng) = (Bucket::default(), rng());
        let patient = Backoff { base_ms: 1_000, cap_ms: 64_000, jitter: Jitter::Additive };
        let hasty = Backoff { base_ms: 1_000, cap_ms: 2_000, jitter: Jitter::Additive };
        let mut now = T0;
        for _ in 0..5 {
            now = now + bucket.fail(&patient, now, &mut rng);
        }
        let wait = bucket.fail(&hasty, now, &mut rng);
        assert_eq!(bucket.failures(), 5);
        assert!(wait <= hasty.longest());
    }

    #[test]
    fn a_success_takes_one_off_each_count_and_does_not_clear_it() {
        let (mut buckets, mut rng, settings) = (Buckets::default(), rng(), BackoffSettings::default());
        for minute in 0..3 {
            for class in [Class::Overload, Class::RateLimit, Class::Transient] {
                buckets.fail(class, &settings, None, at(minute * 600_000), &mut rng);
            }
        }
        let counts = |buckets: &Buckets| {
            [&buckets.overloaded, &buckets.rate_limited, &buckets.transient].map(|bucket| bucket.failures())
        };
        buckets.succeed();
        assert_eq!(counts(&buckets), [2, 2, 2]);
        buckets.reset_outage();
        assert_eq!(counts(&buckets), [0, 2, 0]);
    }

    #[test]
    fn no_bucket_raises_another() {
        for (class, counts) in [
            (Class::Overload, (1, 0, 0)),
            (Class::RateLimit, (0, 1, 0)),
            (Class::Transient, (0, 0, 1)),
            (Class::Final, (0, 0, 0)),
        ] {
            let mut buckets = Buckets::default();
            let wait = buckets.fail(class, &BackoffSettings::default(), None, T0, &mut rng());
            assert_eq!(wait.is_some(), class != Class::Final);
            let Buckets { overloaded, rate_limited, transient } = &buckets;
            assert_eq!((overloaded.failures(), rate_limited.failures(), transient.failures()), counts, "{class:?}");
        }
    }

    #[test]
    fn retry_after_wins_over_a_shorter_and_a_longer_computed_wait_and_is_never_undercut() {
        let settings = BackoffSettings::default();
        for (asked_ms, most_ms) in [(1, 501), (1_000, 1_500), (20_000, 22_000), (86_401_000, 86_406_000)] {
            for seed in 0..100 {
                let (asked, most) = (Duration::from_millis(asked_ms), Duration::from_millis(most_ms));
                let mut rng = fastrand::Rng::with_seed(seed);
                let wait = Buckets::default().fail(Class::RateLimit, &settings, Some(asked), T0, &mut rng).unwrap();
                assert_eq!(wait.floor, asked);
                assert!(wait.wanted > asked && wait.wanted <= most, "{wait:?}");
            }
        }
        for (asked, most_more_ms) in [(1, 500), (5, 500), (20, 2_000), (50, 5_000), (86_401, 5_000)] {
            let asked = Duration::from_secs(asked);
            let more = (0..2_000).map(|seed| obey(asked, &mut fastrand::Rng::with_seed(seed)).saturating_sub(asked));
            let most = more.max().unwrap();
            assert!(most.as_millis() > most_more_ms * 9 / 10, "{asked:?} is spread over {most:?}");
        }
        let wait = Buckets::default().fail(Class::Overload, &settings, Some(Duration::ZERO), T0, &mut rng()).unwrap();
        assert_eq!((wait.wanted, wait.floor), (wait.computed, Duration::ZERO));
    }

    #[test]
    fn a_clock_that_runs_backwards_does_not_freeze_the_count() {
        let backoff = Backoff { base_ms: 1_000, cap_ms: 60_000, jitter: Jitter::Equal };
        let (mut bucket, mut rng) = (Bucket::default(), rng());
        bucket.fail(&backoff, at(86_400_000), &mut rng);
        bucket.fail(&backoff, at(0), &mut rng);
        bucket.fail(&backoff, at(10_000), &mut rng);
        assert_eq!(bucket.failures(), 2);
    }
}
