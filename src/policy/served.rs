//! How many calls an upstream has just been seen to bear: the most that were being answered at the same time in the last
//! minute, counted by half-minutes.

use super::time::Timestamp;
use crate::json;

/// The most calls that were being answered at the same time, of this half-minute and the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    half_minute: u64,
    now: u32,
    before: u32,
}

json::object!(Served { half_minute, now, before });

impl Served {
    /// So many are being answered now.
    pub fn note(&mut self, served: u32, now: Timestamp) {
        self.turn(now);
        self.now = self.now.max(served);
    }

    /// The most of the last minute.
    pub fn most(&mut self, now: Timestamp) -> u32 {
        self.turn(now);
        self.now.max(self.before)
    }

    fn turn(&mut self, now: Timestamp) {
        let half_minute = now.as_millis() / 30_000;
        if half_minute != self.half_minute {
            let before = if half_minute == self.half_minute.saturating_add(1) { self.now } else { 0 };
            *self = Self { half_minute, now: 0, before };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_remembers_this_half_minute_and_the_one_before() {
        let mut served = Served::default();
        for (ms, note, most) in
            [(0, 7, 7), (10_000, 3, 7), (30_000, 2, 7), (60_000, 1, 2), (200_000, 0, 0), (5_000, 4, 4)]
        {
            let now = Timestamp::from_millis(ms);
            served.note(note, now);
            assert_eq!(served.most(now), most, "at {ms} ms");
        }
        assert_eq!(served.most(Timestamp::from_millis(90_000)), 0, "also when nothing is noted");
    }
}
