//! Backoff presets (B6): how patient a job is, in one word.

use super::settings::{Backoff, BackoffSettings};
use crate::json;

/// A preset's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Somebody waits: short waits, five attempts.
    Realtime,
    /// Nobody waits this minute: the defaults' waits, eight attempts.
    Batch,
    /// Nobody waits today: long waits, ten attempts.
    Offline,
}

json::names!(Preset {
    Realtime => "realtime",
    Batch => "batch",
    Offline => "offline",
});

impl Preset {
    /// Attempts before a job is exhausted.
    #[must_use]
    pub const fn attempts(self) -> u32 {
        match self {
            Self::Realtime => 5,
            Self::Batch => 8,
            Self::Offline => 10,
        }
    }

    /// The preset's bases and caps for 429 and 529, over the deployment's own jitter and transient bucket, of which the
    /// source says nothing.
    #[must_use]
    pub fn backoff(self, own: &BackoffSettings) -> BackoffSettings {
        let (rate_limited, overloaded) = match self {
            Self::Realtime => ((500, 10_000), (1_000, 30_000)),
            Self::Batch => ((1_000, 30_000), (2_000, 120_000)),
            Self::Offline => ((2_000, 60_000), (5_000, 300_000)),
        };
        let with = |backoff: Backoff, (base_ms, cap_ms)| Backoff { base_ms, cap_ms, ..backoff };
        BackoffSettings {
            rate_limited: with(own.rate_limited, rate_limited),
            overloaded: with(own.overloaded, overloaded),
            transient: own.transient,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_presets_are_the_sources_table() {
        let row = |preset: Preset| {
            let backoff = preset.backoff(&BackoffSettings::default());
            let seconds = |ms: u32| f64::from(ms) / 1000.0;
            let (r, o) = (backoff.rate_limited, backoff.overloaded);
            (seconds(r.base_ms), seconds(r.cap_ms), seconds(o.base_ms), seconds(o.cap_ms), preset.attempts())
        };
        assert_eq!(row(Preset::Realtime), (0.5, 10.0, 1.0, 30.0, 5));
        assert_eq!(row(Preset::Batch), (1.0, 30.0, 2.0, 120.0, 8));
        assert_eq!(row(Preset::Offline), (2.0, 60.0, 5.0, 300.0, 10));
    }
}
