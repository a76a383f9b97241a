//! Whether a model counts as degraded (B7): softer than the breaker, and quicker.
//!
//! After `consecutive_overloads` (5) overloads in a row, with no success between, those who may leave for another model should,
//! until the next success. So that the model can come back while nobody else calls it, one call every `retry_seconds` tries it
//! all the same. Jobs that may not leave call as ever; they are tries too.

use std::time::Duration;

use super::settings::DegradedSettings;
use super::time::Timestamp;
use crate::json;

/// A model's overloads in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Degraded {
    overloads: u32,
    tried_at: Timestamp,
}

json::object!(default Degraded { overloads, tried_at });

impl Degraded {
    /// An overload before content.
    pub const fn overload(&mut self) {
        self.overloads = self.overloads.saturating_add(1);
    }

    /// First content: the model answers.
    pub const fn succeed(&mut self) {
        self.overloads = 0;
    }

    /// A call is on its way.
    pub const fn tried(&mut self, now: Timestamp) {
        self.tried_at = now;
    }

    /// Whether the model is degraded.
    #[must_use]
    pub const fn is_degraded(&self, settings: &DegradedSettings) -> bool {
        self.overloads >= settings.consecutive_overloads
    }

    /// How long until somebody who may leave should try the model again; `None` if it may now. A clock that ran back restarts
    /// the wait at most.
    pub fn leave(&mut self, settings: &DegradedSettings, now: Timestamp) -> Option<Duration> {
        self.tried_at = self.tried_at.min(now);
        let next = (self.tried_at + Duration::from_secs(settings.retry_seconds.into())).after(now);
        (self.is_degraded(settings) && !next.is_zero()).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + seconds * 1000)
    }

    #[test]
    fn five_overloads_in_a_row_degrade_it_one_success_mends_it_and_one_call_tries_every_90_s() {
        let (mut degraded, settings) = (Degraded::default(), DegradedSettings::default());
        degraded.tried(at(0));
        for _ in 0..4 {
            degraded.overload();
        }
        assert_eq!(degraded.leave(&settings, at(0)), None);
        degraded.overload();
        assert_eq!(degraded.leave(&settings, at(0)), Some(Duration::from_secs(90)));
        assert_eq!(degraded.leave(&settings, at(89)), Some(Duration::from_secs(1)));
        assert_eq!(degraded.leave(&settings, at(90)), None);
        degraded.tried(at(90));
        assert_eq!(degraded.leave(&settings, at(90)), Some(Duration::from_secs(90)));
        degraded.succeed();
        assert_eq!(degraded.leave(&settings, at(91)), None);
    }

    #[test]
    fn a_clock_that_ran_back_restarts_the_wait_at_most() {
        let (mut degraded, settings) = (Degraded::default(), DegradedSettings::default());
        (0..5).for_each(|_| degraded.overload());
        degraded.tried(at(86_400));
        assert_eq!(degraded.leave(&settings, at(0)), Some(Duration::from_secs(90)));
        assert_eq!(degraded.leave(&settings, at(90)), None);
    }
}
