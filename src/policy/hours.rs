//! Windows of the day: when the upstream is busy, and when what can wait is done (A11, B9).
//!
//! A window is whole hours, UTC: `13-16` from 13:00 until just before 16:00, `22-04` over midnight, `06-12,20-22` both, `0-24`
//! always, nothing at all never. Whole hours, because what is known about the upstream's load is known by the hour, and in
//! UTC, because its load is everybody's and not that of the operator's time zone.
//!
//! **Who waits for a window is spread over it**, at random over its first half. Its first minute would be a herd: all that an
//! outage deferred would come at once, and make the overload that they fled from. The second half is for those who are not
//! through at their first call.
//!
//! **What is left of a window counts as one** while at least half an hour is left: a few calls with waits between them. Less
//! is not worth a wait, and for a deadline, it is what has to be left of it when the wait ends.

use std::time::Duration;

use super::time::{Timestamp, millis};
use crate::json::{self, Faults, FromJson, Json, ToJson};

/// Hours of the day, UTC. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows(u32);

impl Windows {
    /// From the beginning of one hour until that of another, perhaps of the next day; both 0–23.
    #[must_use]
    pub const fn between(from: u32, to: u32) -> Self {
        let (mut hours, mut hour) = (0, from % 24);
        while hour != to % 24 {
            hours |= 1 << hour;
            hour = (hour + 1) % 24;
        }
        Self(hours)
    }

    /// Reads windows such as `13-16`, `22-04`, `06-12,20-22` or `0-24`; an empty text is none.
    ///
    /// # Errors
    /// What is allowed.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        text.split(',').try_fold(Self::default(), |Self(hours), window| {
            let (from, to) = window.split_once('-').and_then(|(from, to)| hour(from).zip(hour(to))).ok_or(EXPECTED)?;
            match (from, to) {
                (0, 24) => Ok(Self(ALL)),
                _ if from % 24 == to % 24 => Err(EXPECTED),
                _ => Ok(Self(hours | Self::between(from, to).0)),
            }
        })
    }

    /// Whether it is one of these hours.
    #[must_use]
    pub const fn contains(self, at: Timestamp) -> bool {
        self.has(hour_of_day(at))
    }

    /// Time until the next window begins: zero inside one, `None` if there is none. Less than a day.
    #[must_use]
    pub fn next_start(self, from: Timestamp) -> Option<Duration> {
        self.next(from, true)
    }

    /// How much of a window is left: nothing outside, a day if it never ends. At the start of one, its length.
    #[must_use]
    pub fn left(self, at: Timestamp) -> Duration {
        self.next(at, false).unwrap_or(DAY)
    }

    /// How long a deferred job sleeps: into the first window of which at least half an hour lies `at_least` or more ahead,
    /// spread over the first half of what lies there. Without windows, or if they never end, nothing tells one hour from another:
    /// `at_least`, and up to an hour more. From `at_least` to `at_least` and a day.
    #[must_use]
    pub fn defer(self, at_least: Duration, now: Timestamp, rng: &mut fastrand::Rng) -> Duration {
        let earliest = now + at_least;
        let (start, left) = match self.next_start(earliest) {
            None => (Duration::ZERO, 2 * HOUR),
            Some(Duration::ZERO) if self.0 == ALL => (Duration::ZERO, 2 * HOUR),
            Some(start) => self.useful(start, earliest),
        };
        at_least.saturating_add(start).saturating_add(up_to(left / 2, rng))
    }

    /// How long a job that nobody waits for sleeps until it is off-peak, spread over the first half of the window, and half an
    /// hour before its deadline at the latest. `None`: it need not, being off-peak now, or cannot.
    #[must_use]
    pub fn wait_for_off_peak(
        self,
        now: Timestamp,
        remaining_to_deadline: Duration,
        rng: &mut fastrand::Rng,
    ) -> Option<Duration> {
        let start = self.next_start(now).filter(|start| !start.is_zero())?;
        let slack = remaining_to_deadline.checked_sub(start.saturating_add(USEFUL))?;
        Some(start + up_to(slack.min(self.left(now + start) / 2), rng))
    }

    /// The next window from `start` after `from` on, if too little is left of the one there: when, and how much of it lies ahead.
    fn useful(self, start: Duration, from: Timestamp) -> (Duration, Duration) {
        let left = self.left(from + start);
        if left >= USEFUL {
            return (start, left);
        }
        let next = start.saturating_add(left);
        let next = next.saturating_add(self.next_start(from + next).unwrap_or_default());
        (next, self.left(from + next))
    }

    const fn has(self, hour: u32) -> bool {
        self.0 & (1 << hour) != 0
    }

    /// Time until the next hour that is one of these, or is none of them; zero if this one is.
    fn next(self, from: Timestamp, inside: bool) -> Option<Duration> {
        let first = hour_of_day(from);
        let hours = (0..24).find(|hours| self.has((first + hours) % 24) == inside)?;
        let begun = Duration::from_millis(from.as_millis() % HOUR_MS);
        Some((hours * HOUR).saturating_sub(begun))
    }
}

/// As it is written in the configuration.
impl std::fmt::Display for Windows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == ALL {
            return f.write_str("00-24");
        }
        let starts = (0..24).filter(|hour| self.has(*hour) && !self.has((hour + 23) % 24));
        for (index, from) in starts.enumerate() {
            let length = (1..24).find(|length| !self.has((from + length) % 24)).unwrap_or_default();
            let to = if from + length == 24 { 24 } else { (from + length) % 24 };
            write!(f, "{}{from:02}-{to:02}", if index > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

impl FromJson for Windows {
    /// One that cannot be read is told to `faults`, and read as none: what stands beside it is judged all the same.
    fn read(json: Json<'_>, faults: &mut Faults) -> Option<Self> {
        let windows = json.string().ok_or(EXPECTED).and_then(|text| Self::parse(&text));
        Some(windows.unwrap_or_else(|expected| {
            faults.add(expected);
            Self::default()
        }))
    }
}
json::object!(@serde Windows);

impl ToJson for Windows {
    fn write(&self, out: &mut String) {
        self.to_string().as_str().write(out);
    }
}
json::output!(@serde Windows);

/// The hour of the day, UTC: 0–23.
#[must_use]
pub const fn hour_of_day(at: Timestamp) -> u32 {
    (at.as_millis() / HOUR_MS % 24) as u32
}

fn hour(text: &str) -> Option<u32> {
    let text = text.trim();
    let is_short = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|hour| is_short && *hour <= 24)
}

fn up_to(longest: Duration, rng: &mut fastrand::Rng) -> Duration {
    Duration::from_millis(rng.u64(0..=millis(longest)))
}

/// What has to be left of a window, or of a job's time, for it to be of use.
pub const USEFUL: Duration = Duration::from_secs(1_800);
const EXPECTED: &str =
    "must be hours from 0 to 24, as \"13-16\", \"22-04\" or \"06-12,20-22\"; \"0-24\" is always, \"\" is never";
const ALL: u32 = (1 << 24) - 1;
const HOUR: Duration = Duration::from_millis(HOUR_MS);
const HOUR_MS: u64 = 3_600_000;
const DAY: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn windows(text: &str) -> Windows {
        Windows::parse(text).unwrap()
    }

    /// A moment of some day.
    fn at(hour: u64, minute: u64) -> Timestamp {
        Timestamp::from_millis((20_000 * 24 + hour) * HOUR_MS + minute * 60_000)
    }

    fn minutes(minutes: u64) -> Duration {
        Duration::from_secs(minutes * 60)
    }

    fn any_windows() -> impl Strategy<Value = Windows> {
        prop_oneof![
            (0..=ALL).prop_map(Windows),
            Just(Windows(ALL)),
            (0_u32..24, 0_u32..24).prop_map(|(a, b)| Windows::between(a, b))
        ]
    }

    fn moment() -> impl Strategy<Value = Timestamp> {
        prop_oneof![
            (0_u64..1_000_000).prop_map(|hour| Timestamp::from_millis(hour * HOUR_MS)),
            (0_u64..2_000_000_000_000).prop_map(Timestamp::from_millis),
        ]
    }

    #[test]
    fn a_window_is_read_as_the_hours_it_has() {
        for (text, hours) in [
            ("", vec![]),
            ("  ", vec![]),
            ("13-16", vec![13, 14, 15]),
            ("22-04", vec![0, 1, 2, 3, 22, 23]),
            ("22-0", vec![22, 23]),
            ("22-24", vec![22, 23]),
            ("24-2", vec![0, 1]),
            ("06-8, 20 - 22", vec![6, 7, 20, 21]),
            ("6-9,8-10,10-11", vec![6, 7, 8, 9, 10]),
            ("0-24", (0..24).collect()),
            ("0-12,12-24", (0..24).collect()),
        ] {
            let windows = windows(text);
            let has: Vec<u64> = (0..24).filter(|hour| windows.contains(at(*hour, 59))).collect();
            assert_eq!(has, hours, "{text:?}");
        }
    }

    #[test]
    fn what_is_no_window_is_refused() {
        for text in [
            "13",
            "13-",
            "-16",
            "13-25",
            "5-5",
            "0-0",
            "24-24",
            "24-0",
            "6-12,",
            ",",
            "6-12;20-22",
            "6-12-14",
            "+6-12",
            "6:00-7:00",
            "006-12",
            "a-b",
        ] {
            assert_eq!(Windows::parse(text), Err(EXPECTED), "{text:?}");
        }
    }

    #[test]
    fn they_are_written_as_they_are_read_in_the_shortest_way() {
        for (text, written) in [
            ("", ""),
            ("13-16", "13-16"),
            ("22-4", "22-04"),
            ("20-24", "20-24"),
            ("9-12,6-9,20-22", "06-12,20-22"),
            ("0-6,22-24", "22-06"),
            ("0-24", "00-24"),
            ("1-0", "01-24"),
        ] {
            assert_eq!(windows(text).to_string(), written);
        }
    }

    #[test]
    fn the_next_window_begins_when_it_does() {
        for (text, from, minutes_left, left) in [
            ("06-12", at(5, 59), Some(1), 0),
            ("06-12", at(6, 0), Some(0), 360),
            ("06-12", at(11, 59), Some(0), 1),
            ("06-12", at(12, 0), Some(18 * 60), 0),
            ("22-04", at(23, 30), Some(0), 270),
            ("22-04", at(4, 0), Some(18 * 60), 0),
            ("06-12,20-22", at(13, 15), Some(6 * 60 + 45), 0),
            ("0-24", at(13, 15), Some(0), 24 * 60),
            ("", at(13, 15), None, 0),
        ] {
            assert_eq!(windows(text).next_start(from), minutes_left.map(minutes), "{text}");
            assert_eq!(windows(text).left(from), minutes(left), "{text}");
        }
    }

    #[test]
    fn a_deferred_job_sleeps_into_the_first_half_of_the_first_useful_window() {
        for (text, now, least, most) in [
            // Four hours from 10:00 is 14:00: the next morning, 6:00 to 9:00.
            ("06-12", at(10, 0), 20 * 60, 23 * 60),
            // From 3:00 it is inside, with five hours left.
            ("06-12", at(3, 0), 240, 240 + 150),
            // Half an hour left is a window, 29 minutes are none.
            ("06-12", at(7, 30), 240, 255),
            ("06-12", at(7, 31), 24 * 60 - 91, 24 * 60 - 91 + 180),
            ("06-12,20-22", at(7, 31), 12 * 60 + 29, 12 * 60 + 89),
            ("06-07,10-14", at(4, 0), 6 * 60, 8 * 60),
            ("22-04", at(15, 0), 7 * 60, 10 * 60),
            ("0-24", at(15, 0), 240, 300),
            ("", at(15, 0), 240, 300),
        ] {
            let mut rng = fastrand::Rng::with_seed(7);
            let waits: Vec<_> = (0..500).map(|_| windows(text).defer(minutes(240), now, &mut rng)).collect();
            let (shortest, longest) = (*waits.iter().min().unwrap(), *waits.iter().max().unwrap());
            assert!(shortest >= minutes(least) && longest <= minutes(most), "{text}: {shortest:?} to {longest:?}");
            let spread = minutes(most - least);
            assert!(longest - shortest > spread * 9 / 10, "{text}: spread over {:?} of {spread:?}", longest - shortest);
        }
    }

    #[test]
    fn a_low_job_waits_for_a_window_that_begins_well_before_its_deadline() {
        let wait = |text, hour, minute, remaining| {
            let mut rng = fastrand::Rng::with_seed(7);
            windows(text).wait_for_off_peak(at(hour, minute), minutes(remaining), &mut rng)
        };
        assert_eq!(wait("06-12", 6, 0, 1_000), None, "it is off-peak now");
        assert_eq!(wait("", 6, 0, 1_000), None);
        assert_eq!(wait("0-24", 6, 0, 1_000), None);
        assert_eq!(wait("06-12", 5, 0, 89), None, "29 minutes would be left");
        assert_eq!(wait("06-12", 5, 0, 90), Some(minutes(60)), "no time to spread it over");
        assert_eq!(wait("06-12", 5, 0, 20), None);
        let spread = wait("06-12", 5, 0, 1_000).unwrap();
        assert!(spread > minutes(60) && spread <= minutes(240), "{spread:?}");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(windows in any_windows()) {
            prop_assert_eq!(Windows::parse(&windows.to_string()), Ok(windows));
            let text = serde_json::to_string(&windows).unwrap();
            prop_assert_eq!(serde_json::from_str::<Windows>(&text).unwrap(), windows);
        }

        #[test]
        fn the_next_start_is_the_first_moment_inside(windows in any_windows(), from in moment(), part in 0_u64..1_000) {
            match windows.next_start(from) {
                None => prop_assert_eq!(windows, Windows::default()),
                Some(Duration::ZERO) => prop_assert!(windows.contains(from)),
                Some(wait) => {
                    prop_assert!(wait < DAY && windows.contains(from + wait));
                    prop_assert!(!windows.contains(from + wait - Duration::from_millis(1)));
                    prop_assert!(!windows.contains(from + wait * u32::try_from(part).unwrap() / 1_000));
                }
            }
            let left = windows.left(from);
            prop_assert_eq!(left.is_zero(), !windows.contains(from));
            if !left.is_zero() {
                prop_assert!(windows.contains(from + left - Duration::from_millis(1)));
                prop_assert!(left == DAY || !windows.contains(from + left));
            }
        }

        #[test]
        fn a_deferral_is_long_enough_ends_in_a_window_and_is_never_a_day_longer(
            windows in any_windows(),
            now in moment(),
            at_least in 0_u64..172_800_000,
            seed: u64,
        ) {
            let at_least = Duration::from_millis(at_least);
            let wait = windows.defer(at_least, now, &mut fastrand::Rng::with_seed(seed));
            prop_assert!(wait >= at_least && wait <= at_least + DAY, "{wait:?}");
            if windows == Windows::default() {
                prop_assert!(wait <= at_least + HOUR);
            } else {
                prop_assert!(windows.contains(now + wait));
                prop_assert!(windows.left(now + wait) >= USEFUL / 2, "the first half of what is useful");
            }
        }

        #[test]
        fn a_wait_for_off_peak_ends_in_a_window_with_half_an_hour_to_spare(
            windows in any_windows(),
            now in moment(),
            remaining in 0_u64..172_800_000,
            seed: u64,
        ) {
            let remaining = Duration::from_millis(remaining);
            match windows.wait_for_off_peak(now, remaining, &mut fastrand::Rng::with_seed(seed)) {
                Some(wait) => {
                    prop_assert!(!windows.contains(now) && windows.contains(now + wait));
                    prop_assert!(wait + USEFUL <= remaining);
                }
                None => {
                    let start = windows.next_start(now);
                    prop_assert!(start.is_none_or(|start| start.is_zero() || start + USEFUL > remaining));
                }
            }
        }

        #[test]
        fn no_moment_and_no_wait_is_too_large(windows in any_windows(), now: u64, at_least: u64, seed: u64) {
            let (now, at_least) = (Timestamp::from_millis(now), Duration::from_millis(at_least));
            let mut rng = fastrand::Rng::with_seed(seed);
            prop_assert!(windows.defer(at_least, now, &mut rng) >= at_least);
            prop_assert!(windows.defer(Duration::MAX, now, &mut rng) == Duration::MAX);
            let wait = windows.wait_for_off_peak(now, at_least, &mut rng);
            prop_assert!(wait.is_none_or(|wait| wait <= at_least));
        }
    }
}
