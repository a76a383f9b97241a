//! What calls take, from grant to first content and to the end, as moving averages: the pace of everything that is counted in
//! calls. Kept within bounds that make sense as a pace, and a guess before the first call.

use std::time::Duration;

use super::time::millis;
use crate::json;

/// What calls take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// In milliseconds; 0 while unknown.
    content_ms: u32,
    end_ms: u32,
}

json::object!(default Durations { content_ms, end_ms });

impl Durations {
    /// A call has come to content after that.
    pub fn content(&mut self, after: Duration) {
        self.content_ms = average(self.content_ms, after);
    }

    /// A call has ended well after that.
    pub fn end(&mut self, after: Duration) {
        self.end_ms = average(self.end_ms, after);
    }

    /// From grant to first content, about.
    #[must_use]
    pub fn to_content(&self) -> Duration {
        pace(self.content_ms)
    }

    /// From grant to the end, about.
    #[must_use]
    pub fn to_end(&self) -> Duration {
        pace(self.end_ms.max(self.content_ms))
    }
}

fn average(before: u32, sample: Duration) -> u32 {
    let sample = u32::try_from(millis(sample)).unwrap_or(u32::MAX).max(1);
    if before == 0 {
        return sample;
    }
    u32::try_from((u64::from(before) * 7 + u64::from(sample)) / 8).unwrap_or(u32::MAX)
}

fn pace(ms: u32) -> Duration {
    let ms = if ms == 0 { UNKNOWN_MS } else { ms };
    Duration::from_millis(ms.clamp(PACE_MS.0, PACE_MS.1).into())
}

/// What a call takes while none has been seen.
const UNKNOWN_MS: u32 = 2_000;
/// No pace is quicker (a queue wakes in whole seconds) or slower (nobody should sleep through a recovery).
const PACE_MS: (u32, u32) = (250, 10_000);

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_first_call_is_believed_and_each_later_one_weighs_an_eighth() {
        let mut durations = Durations::default();
        assert_eq!((durations.to_content(), durations.to_end()), (ms(2_000), ms(2_000)));
        durations.content(ms(800));
        assert_eq!((durations.to_content(), durations.to_end()), (ms(800), ms(800)), "no call ends before its content");
        durations.content(ms(1_600));
        durations.end(ms(4_000));
        assert_eq!((durations.to_content(), durations.to_end()), (ms(900), ms(4_000)));
    }

    #[test]
    fn absurd_calls_leave_a_pace_within_bounds() {
        for (after, pace) in [(ms(0), ms(250)), (ms(1), ms(250)), (ms(60_000), ms(10_000)), (Duration::MAX, ms(10_000))]
        {
            let mut durations = Durations::default();
            durations.content(after);
            assert_eq!(durations.to_content(), pace, "{after:?}");
        }
    }
}
