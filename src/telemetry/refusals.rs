//! Which of Claude's refusals the operator is to be told of: those that only he can mend, and of many calls that meet the same one each
//! minute the first.

use std::time::Duration;

use crate::json::Map;
use crate::policy::answer::Report;
use crate::policy::cause::Cause;
use crate::policy::time::Timestamp;

/// The refusals of one model's calls that have been told of, as far as one gate remembers.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Map<&'static str, Timestamp>);

impl Refusals {
    /// The cause, if it is to be told.
    pub fn news(&mut self, report: &Report, now: Timestamp) -> Option<Cause> {
        let Report::Failure { cause, .. } = *report else { return None };
        let told_at = self.0.get(cause.name()).copied();
        let is_known = told_at.is_some_and(|at| (at..at + QUIET).contains(&now));
        if is_known || !cause.is_the_operators() {
            return None;
        }
        self.0.insert(cause.name(), now);
        Some(cause)
    }
}

const QUIET: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_the_operators_causes_is_told_once_a_minute_and_no_other_ever() {
        let at = |seconds: u64| Timestamp::from_millis(1_700_000_000_000 + seconds * 1_000);
        let mut refusals = Refusals::default();
        for (seconds, cause, is_told) in [
            (0, Cause::SpendCap, true),
            (1, Cause::AuthenticationFailed, true),
            (2, Cause::SpendCap, false),
            (3, Cause::AuthenticationFailed, false),
            (4, Cause::Overloaded, false),
            (5, Cause::BillingFailed, true),
            (6, Cause::PermissionDenied, true),
            (59, Cause::SpendCap, false),
            (60, Cause::SpendCap, true),
            (61, Cause::AuthenticationFailed, true),
            (61, Cause::InvalidRequest, false),
        ] {
            let report = Report::Failure { cause, after_content: false, retry_after: None };
            assert_eq!(refusals.news(&report, at(seconds)), is_told.then_some(cause), "{cause:?} after {seconds} s");
        }
        assert_eq!(refusals.news(&Report::Success, at(200)), None);
        // A clock that was set back does not make it silent for as long.
        let report = Report::Failure { cause: Cause::SpendCap, after_content: false, retry_after: None };
        assert_eq!(refusals.news(&report, at(0) - Duration::from_secs(86_400)), Some(Cause::SpendCap));
    }
}
