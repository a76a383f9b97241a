//! What happened to a job: call by call (B10), kept with the job and shown in its status; and what it waited for without a failure
//! of its own, for the operator. A job that is held for hours is woken and held again hundreds of times, mostly for the same reason:
//! that is one stay, with how often it was looked at.

use crate::json;
use crate::policy::answer::HoldReason;
use crate::policy::cause::Cause;
use crate::policy::time::Timestamp;

/// One failed call and the wait after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When the call had failed.
    pub at: Timestamp,
    /// The model that was called.
    pub model: String,
    /// Why it failed.
    pub cause: Cause,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// The upstream's request id, for its support.
    pub request_id: Option<String>,
    /// Whether the call used up an attempt.
    pub costs_attempt: bool,
    /// The wait that was drawn, in milliseconds: what the bucket or Retry-After asked for.
    pub computed_wait_ms: Option<u64>,
    /// The wait that really passed before the job was taken up again, in milliseconds; unknown until then.
    pub real_wait_ms: Option<u64>,
}

json::object!(Entry { at, model, cause, status, request_id, costs_attempt, computed_wait_ms, real_wait_ms });

/// Appends `entry`, letting the oldest go: a job's record stays small however long it waits.
pub fn push(history: &mut Vec<Entry>, entry: Entry) {
    if history.len() >= MAX_ENTRIES {
        history.remove(0);
    }
    history.push(entry);
}

/// A stretch of time in which the job waited for one thing, without a failure of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stay {
    /// For what: a hold's reason, `stalled` (its user's answer), or `deferred` (quieter hours).
    pub reason: String,
    /// Since when.
    pub from: Timestamp,
    /// Until when; `None` while it lasts.
    pub until: Option<Timestamp>,
    /// How many waits in a row it is made of.
    pub waits: u32,
}

json::object!(Stay { reason, from, until, waits = 1 });

impl Stay {
    /// The reason, if it was held.
    #[must_use]
    pub fn hold(&self) -> Option<HoldReason> {
        json::read(&json::write(&self.reason)).ok()
    }
}

/// The job enters a state in which it waits for `reason`, or for nothing. Of very many stays the oldest go.
pub fn stay(stays: &mut Vec<Stay>, reason: Option<&str>, now: Timestamp) {
    if let Some(last) = stays.last_mut().filter(|last| last.until.is_none()) {
        if reason == Some(&*last.reason) {
            last.waits = last.waits.saturating_add(1);
            return;
        }
        last.until = Some(now);
    }
    if let Some(reason) = reason {
        if stays.len() >= MAX_STAYS {
            stays.remove(0);
        }
        stays.push(Stay { reason: reason.to_owned(), from: now, until: None, waits: 1 });
    }
}

/// More than `max_calls` of any sensible policy; about 250 bytes an entry.
const MAX_ENTRIES: usize = 64;

/// An outage is a handful of them; about 100 bytes each.
const MAX_STAYS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn stays(steps: &[(u64, Option<&str>)]) -> Vec<(String, u64, Option<u64>, u32)> {
        let mut stays = Vec::new();
        for (at, reason) in steps {
            stay(&mut stays, *reason, Timestamp::from_millis(*at));
        }
        let told = |it: Stay| (it.reason, it.from.as_millis(), it.until.map(Timestamp::as_millis), it.waits);
        stays.into_iter().map(told).collect()
    }

    #[test]
    fn waits_for_the_same_in_a_row_are_one_stay_which_ends_when_something_else_begins() {
        let (open, probe) = (Some("breaker_open"), Some("probe_in_flight"));
        for (steps, expected) in [
            (&[(1, None)][..], &[][..]),
            (&[(1, open)], &[("breaker_open", 1, None, 1)]),
            (&[(1, open), (5, open), (9, open)], &[("breaker_open", 1, None, 3)]),
            (&[(1, open), (5, None), (9, None)], &[("breaker_open", 1, Some(5), 1)]),
            (&[(1, open), (5, probe)], &[("breaker_open", 1, Some(5), 1), ("probe_in_flight", 5, None, 1)]),
            (&[(1, open), (5, None), (9, open)], &[("breaker_open", 1, Some(5), 1), ("breaker_open", 9, None, 1)]),
        ] {
            let expected: Vec<_> = expected.iter().map(|it| (it.0.to_owned(), it.1, it.2, it.3)).collect();
            assert_eq!(stays(steps), expected, "{steps:?}");
        }
    }

    #[test]
    fn of_very_many_stays_the_latest_are_kept() {
        let steps: Vec<_> = (0..100).map(|at| (at, Some(if at % 2 == 0 { "a" } else { "b" }))).collect();
        let kept = stays(&steps);
        assert_eq!((kept.len(), kept[0].1), (MAX_STAYS, 68));
        assert_eq!(kept.last(), Some(&("b".to_owned(), 99, None, 1)));
    }
}
