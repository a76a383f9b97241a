//! The whole of the waiting has to fit the job's deadline (B14).
//!
//! A wait that ends at the deadline is a wait for nothing: there must be time left for one more call. So the last moment to
//! wake is `RESERVE` before the deadline, and a longer wait is cut to it, because a call made early has a chance that a call
//! made too late has not. What the upstream asked for is never cut (B3): if it does not fit, the job fails now instead of
//! after a wait that everybody knows to be in vain. The same when less than a queue's shortest wait is left.

use std::time::Duration;

/// The wait to make of `wanted`, of which `floor` may not be cut, with `remaining` until the deadline. `None`: no wait makes
/// sense any more, the job has missed its deadline.
///
/// Never shorter than `floor`, never longer than `remaining` less [`RESERVE`].
#[must_use]
pub fn fit(wanted: Duration, floor: Duration, remaining: Duration) -> Option<Duration> {
    let latest = remaining.saturating_sub(RESERVE);
    (floor <= latest && latest >= SHORTEST).then(|| wanted.max(floor).min(latest))
}

/// What is left for the last call: enough to reach the upstream and to be refused or to begin; it also covers that a queue's
/// waits are rounded up to whole seconds.
pub const RESERVE: Duration = Duration::from_secs(5);
/// A queue's shortest wait.
const SHORTEST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_fit_between_the_floor_and_the_deadline_less_the_reserve() {
        for (wanted, floor, remaining, expected) in [
            // Plenty of time.
            (10_000, 0, 60_000, Some(10_000)),
            (0, 0, 60_000, Some(0)),
            // The floor lifts a shorter wish.
            (1_000, 10_000, 60_000, Some(10_000)),
            // Too long a wish is cut, so that one call is left.
            (55_000, 0, 60_000, Some(55_000)),
            (55_001, 0, 60_000, Some(55_000)),
            (900_000, 55_000, 60_000, Some(55_000)),
            // A floor is never cut: fail now.
            (900_000, 55_001, 60_000, None),
            (0, 86_401_000, 86_400_000, None),
            // Hardly any time, and none.
            (1_000, 0, 6_000, Some(1_000)),
            (1_000, 0, 5_999, None),
            (0, 0, 5_000, None),
            (0, 0, 3_000, None),
            (0, 0, 0, None),
            // Extremes.
            (u64::MAX, 0, u64::MAX, Some(u64::MAX - 5_000)),
            (u64::MAX, u64::MAX, u64::MAX, None),
        ] {
            let [wanted, floor, remaining] = [wanted, floor, remaining].map(Duration::from_millis);
            assert_eq!(
                fit(wanted, floor, remaining),
                expected.map(Duration::from_millis),
                "{wanted:?} {floor:?} {remaining:?}"
            );
        }
    }
}
