//! The four figures that say in half a minute whether it is the provider or the deployment (A10), and those behind them.
//!
//! | figure | of | objective |
//! | --- | --- | --- |
//! | `overload_rate` | calls: how many were answered with an overload (529) | none: that is the provider's |
//! | `exposure` | users: how many have seen an error or half an answer because Claude was overloaded or failed | below 0.5 % |
//! | `fallback_rate` | answers: how many came from another model than the one asked for | at most 35 % |
//! | `dwell_p95` | jobs: how long they waited for their first call, those apart that a gate or the hour held | below 25 s |
//!
//! Shares are in parts per million, so that there is no rounding to argue about; `None` where there is nothing to be a share of.

use super::metric::{Counts, Metric, PASSED_THROUGH};
use super::sums::{Labels, Quantile};

/// A share, and whether it is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// So many.
    pub count: u64,
    /// Of so many.
    pub of: u64,
}

impl Share {
    /// In parts per million.
    #[must_use]
    pub fn ppm(self) -> Option<u64> {
        let ppm = u128::from(self.count) * 1_000_000;
        let ppm = ppm.checked_div(u128::from(self.of))?;
        u64::try_from(ppm).ok()
    }
}

/// What an objective makes of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to judge.
    Unknown,
    /// As it should be.
    Met,
    /// Not as it should be.
    Broken,
}

impl Verdict {
    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Met => "ok",
            Self::Broken => "broken",
        }
    }
}

/// The figures of some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Of calls.
    pub overload_rate: Share,
    /// Of users.
    pub exposure: Share,
    /// Calls that became jobs which are done: spared, and not exposed.
    pub handed_over_done: u64,
    /// Of answers.
    pub fallback_rate: Share,
    /// Of jobs that nothing held.
    pub dwell_p95: Option<Quantile>,
    /// Of those that something did.
    pub held_dwell_p95: Option<Quantile>,
    /// Jobs that were done with their first call, of those that are done or failed.
    pub first_try: Share,
    /// Jobs that are done, of the same.
    pub success: Share,
    /// Calls for each answer.
    pub calls: Share,
}

impl Figures {
    /// From what was counted in that time.
    #[must_use]
    pub fn of(sums: &Counts) -> Self {
        let calls = sums.sum(Metric::Calls, |labels| !labels.is("cause", "abandoned"));
        let passed = |labels: &Labels<'_>| labels.is("kind", PASSED_THROUGH) && !labels.is("cause", "abandoned");
        // What is passed through is a call, and asks for no answer of a model.
        let for_answers = calls.saturating_sub(sums.sum(Metric::Calls, passed));
        let overloaded = sums.sum(Metric::Calls, |labels| labels.is("cause", "overloaded"));
        let answers = sums.all(Metric::Answers);
        let downgraded = sums.sum(Metric::Answers, |labels| labels.is("downgraded", "true"));
        let ended = |status| sums.sum(Metric::JobsFinished, |labels: &Labels<'_>| labels.is("status", status));
        let (done, failed) = (ended("done"), ended("failed"));
        let held = |value| move |labels: &Labels<'_>| labels.is("held", value);
        Self {
            overload_rate: Share { count: overloaded, of: calls },
            exposure: Share { count: sums.all(Metric::UsersExposed), of: sums.all(Metric::Users) },
            handed_over_done: sums.all(Metric::HandedOverDone),
            fallback_rate: Share { count: downgraded, of: answers },
            dwell_p95: sums.quantile(Metric::DwellSeconds, 95, held("false")),
            held_dwell_p95: sums.quantile(Metric::DwellSeconds, 95, held("true")),
            first_try: Share { count: sums.all(Metric::JobsFirstTry), of: done + failed },
            success: Share { count: done, of: done + failed },
            calls: Share { count: for_answers, of: answers },
        }
    }

    /// Fewer than 0.5 % of the users.
    #[must_use]
    pub fn exposure_verdict(&self) -> Verdict {
        judge(self.exposure.ppm(), |ppm| ppm < EXPOSURE_PPM)
    }

    /// At most 35 % of the answers.
    #[must_use]
    pub fn fallback_verdict(&self) -> Verdict {
        judge(self.fallback_rate.ppm(), |ppm| ppm <= FALLBACK_PPM)
    }

    /// 95 % of the jobs that nothing held within 25 s.
    #[must_use]
    pub fn dwell_verdict(&self) -> Verdict {
        judge(self.dwell_p95, |dwell| dwell.at_most_ms.is_some_and(|millis| millis <= DWELL_MS))
    }
}

fn judge<T>(figure: Option<T>, is_met: impl FnOnce(T) -> bool) -> Verdict {
    figure.map_or(Verdict::Unknown, |figure| if is_met(figure) { Verdict::Met } else { Verdict::Broken })
}

/// 0.5 %, in parts per million.
pub const EXPOSURE_PPM: u64 = 5_000;
/// 35 %.
pub const FALLBACK_PPM: u64 = 350_000;
/// 25 s.
pub const DWELL_MS: u64 = 25_000;
