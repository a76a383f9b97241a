//! Calls made while the gate does not answer.
//!
//! The gate protects the upstream, but a broken gate must not stop the work: without its permit an invocation makes one
//! call per ten seconds, which is too few to do harm and enough to go on.

use std::time::Duration;

use super::time::Timestamp;

/// One invocation's allowance of calls without a permit.
#[derive(Debug, Default)]
pub struct Unguarded {
    last: Option<Timestamp>,
}

impl Unguarded {
    /// Takes the next call; otherwise says how long until there is one.
    ///
    /// # Errors
    /// The wait, if the last call is less than ten seconds ago.
    pub fn take(&mut self, now: Timestamp) -> Result<(), Duration> {
        match self.last {
            // A clock that ran backwards must not lock the allowance up: `since` is zero then, and the wait ten seconds.
            Some(last) if now.since(last) < INTERVAL => Err((last + INTERVAL).after(now).min(INTERVAL)),
            _ => {
                self.last = Some(now);
                Ok(())
            }
        }
    }
}

const INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_per_ten_seconds_and_the_refusal_says_when() {
        let mut unguarded = Unguarded::default();
        let at = |seconds: u64| Timestamp::from_millis(seconds * 1000);
        assert_eq!(unguarded.take(at(100)), Ok(()));
        assert_eq!(unguarded.take(at(103)), Err(Duration::from_secs(7)));
        assert_eq!(unguarded.take(at(110)), Ok(()));
        assert_eq!(unguarded.take(at(50)), Err(Duration::from_secs(10)));
    }
}
