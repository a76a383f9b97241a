//! What an app is told by its webhook (A12), and how far the telling has come.
//!
//! **Which.** A job's step into `stalled`, `done` or `failed` is a notice, and a `done` by another model than the one asked for is
//! two: `job.done`, for whoever waits for the answer, and after it `job.downgraded`, for whoever wants to offer a better one.
//! Everything else an app can read in the status; a job that was taken back has nobody to tell.
//!
//! **How.** A notice is stored in the very step that it tells of, and sent by the outbox like every other effect (`schedule`):
//! handed out by [`Record::tick`] with its next try put off already, so that a try that is lost with the object comes again.
//! Each notice has a schedule of its own. In one row behind each other, a receiver that cannot digest `job.stalled` would
//! never hear of `job.done`; those that are due together are sent in their order all the same.
//!
//! **When it ends.** Any 2xx: delivered. 410: the target wants nothing of this job any more, and is disabled. Everything else,
//! a redirect, an error, silence, is tried again after the wait that `backoff` draws or the `Retry-After` that was asked for,
//! if that is longer and no longer than the longest wait. A wait that would end after `give_up`, or after the job's retention,
//! is not begun: the notice is given up (docs/adr/0024).

use std::time::Duration;

use super::record::Record;
use super::schedule::{Effect, Timing};
use super::state::State;
use crate::json;
use crate::policy::backoff::obey;
use crate::policy::settings::Backoff;
use crate::policy::time::Timestamp;

/// How webhooks are sent, from configuration.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long a receiver may take to answer.
    pub answer: Duration,
    /// How long a notice is tried for.
    pub give_up: Duration,
    /// The waits between tries.
    pub backoff: Backoff,
}

/// Something that the app is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The how manieth of its job.
    pub number: u32,
    /// What.
    pub news: News,
    /// When it happened.
    pub at: Timestamp,
    /// How far the telling has come.
    pub progress: Progress,
    /// How often it was sent.
    pub tries: u32,
    /// Why the last try failed, if it did.
    pub last_error: Option<String>,
    /// Since when it is tried, and how often that has failed: anew with every wish to have it again.
    since: Timestamp,
    failures: u32,
}

json::object!(Notice { number, news, at, progress, tries = 0, last_error, since, failures = 0 });

/// What there is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// May it wait for quieter hours? What is asked, as it was asked.
    Stalled {
        /// When no answer becomes a yes.
        until: Timestamp,
        /// When the job is taken up again if it may wait.
        resume_at: Timestamp,
    },
    /// The answer is there.
    Done,
    /// It is from another model than the one asked for.
    Downgraded,
    /// There will be no answer.
    Failed,
}

json::choice!(News {
    "stalled" => Stalled { until, resume_at },
    "done" => Done,
    "downgraded" => Downgraded,
    "failed" => Failed,
});

impl News {
    /// The event's type, a stable name.
    #[must_use]
    pub const fn event(self) -> &'static str {
        match self {
            Self::Stalled { .. } => "job.stalled",
            Self::Done => "job.done",
            Self::Downgraded => "job.downgraded",
            Self::Failed => "job.failed",
        }
    }
}

/// How far the telling has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// To be sent at this moment.
    Due {
        /// When.
        at: Timestamp,
    },
    /// The receiver has it.
    Delivered {
        /// Since when.
        at: Timestamp,
    },
    /// It is not tried any more.
    GivenUp {
        /// Since when.
        at: Timestamp,
    },
}

json::choice!(Progress {
    "due" => Due { at },
    "delivered" => Delivered { at },
    "given_up" => GivenUp { at },
});

/// That an app has not been told, and will not be by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unheard {
    /// Something was given up.
    GivenUp,
    /// The target wants nothing of this job.
    Disabled,
}

json::names!(Unheard {
    GivenUp => "given_up",
    Disabled => "disabled",
});

/// A job's notices, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notices {
    list: Vec<Notice>,
    count: u32,
    /// When the target said that it wants none.
    disabled_at: Option<Timestamp>,
}

json::object!(Notices { list, count = 0, disabled_at });

impl Notices {
    /// All that are known.
    pub fn iter(&self) -> impl Iterator<Item = &Notice> {
        self.list.iter()
    }

    /// When the target said that it wants nothing of this job.
    #[must_use]
    pub const fn disabled_at(&self) -> Option<Timestamp> {
        self.disabled_at
    }

    /// Whether the app has missed the last news; what came before is told by it, too.
    #[must_use]
    pub fn unheard(&self) -> Option<Unheard> {
        if self.disabled_at.is_some() {
            return Some(Unheard::Disabled);
        }
        let last = self.list.last()?.at;
        let is_given_up = |notice: &Notice| notice.at == last && matches!(notice.progress, Progress::GivenUp { .. });
        self.list.iter().any(is_given_up).then_some(Unheard::GivenUp)
    }

    /// Whether anything is left to be sent.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.due_at().is_some()
    }

    pub(super) fn due_at(&self) -> Option<Timestamp> {
        self.list.iter().filter_map(Notice::due_at).min()
    }

    fn add(&mut self, news: News, now: Timestamp) {
        self.count = self.count.saturating_add(1);
        let (progress, last_error) = match self.disabled_at {
            Some(_) => (Progress::GivenUp { at: now }, Some(DISABLED.to_owned())),
            None => (Progress::Due { at: now }, None),
        };
        let number = self.count;
        self.list.push(Notice { number, news, at: now, progress, tries: 0, last_error, since: now, failures: 0 });
        if self.list.len() > MAX_NOTICES {
            self.list.remove(0);
        }
    }
}

impl Notice {
    const fn due_at(&self) -> Option<Timestamp> {
        match self.progress {
            Progress::Due { at } => Some(at),
            Progress::Delivered { .. } | Progress::GivenUp { .. } => None,
        }
    }
}

/// What became of a try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reception {
    /// The receiver has it.
    Taken,
    /// The receiver wants nothing of this job any more.
    Gone,
    /// It was not taken.
    Refused {
        /// Why, in a few words.
        error: String,
        /// The wait that was asked for.
        retry_after: Option<Duration>,
    },
}

impl Reception {
    /// What an answer with this status means.
    #[must_use]
    pub fn of(status: u16, retry_after: Option<Duration>) -> Self {
        match status {
            200..=299 => Self::Taken,
            410 => Self::Gone,
            300..=399 => {
                Self::Refused { error: format!("{status}: it redirects, and redirects are not followed"), retry_after }
            }
            _ => Self::Refused { error: status.to_string(), retry_after },
        }
    }

    /// There was no answer, for this reason.
    #[must_use]
    pub fn missing(why: impl Into<String>) -> Self {
        Self::Refused { error: why.into(), retry_after: None }
    }
}

/// What is done about a try's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Delivered.
    Delivered,
    /// Another try, after this wait.
    Again(Duration),
    /// No other.
    GivenUp,
    /// No other, nor any of another notice.
    Disabled,
    /// The try was not the newest, or the job was taken back: nothing.
    Void,
}

impl Told {
    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Again(_) => "again",
            Self::GivenUp => "given_up",
            Self::Disabled => "disabled",
            Self::Void => "void",
        }
    }
}

impl Record {
    /// A notice that is still to be sent.
    #[must_use]
    pub fn pending_notice(&self, number: u32) -> Option<&Notice> {
        self.notices.list.iter().find(|notice| notice.number == number && notice.due_at().is_some())
    }

    /// Whether another model answered than the one asked for.
    #[must_use]
    pub fn is_downgraded(&self) -> bool {
        matches!(&self.state, State::Done { model_used, .. } if *model_used != self.spec.model)
    }

    /// Notes what the state that was just entered is to its app.
    pub(super) fn note(&mut self, now: Timestamp) {
        if self.spec.webhook.is_none() {
            return;
        }
        let news = match self.state {
            State::Stalled { until, resume_at } => News::Stalled { until, resume_at },
            State::Done { .. } => News::Done,
            State::Failed { .. } => News::Failed,
            _ => return,
        };
        self.notices.add(news, now);
        if self.is_downgraded() {
            self.notices.add(News::Downgraded, now);
        }
    }

    /// The app has taken the job back: nobody is told anything any more.
    pub(super) fn forget_notices(&mut self) {
        self.notices = Notices::default();
    }

    /// What is due to the webhook at `now`.
    pub(super) fn tick_notices(&mut self, now: Timestamp, timing: &Timing) -> Option<Effect> {
        let patience = &timing.webhooks;
        let (mut numbers, mut sending) = (Vec::new(), SLACK);
        for notice in &mut self.notices.list {
            if notice.due_at().is_some_and(|at| at <= now) {
                // They are sent one after the other, and a try that gets lost is one that failed.
                sending = sending.saturating_add(patience.answer);
                notice.tries = notice.tries.saturating_add(1);
                notice.progress = Progress::Due { at: now + sending + patience.backoff.raw(notice.failures) };
                numbers.push(notice.number);
            }
        }
        (!numbers.is_empty()).then_some(Effect::Notify { numbers })
    }

    /// What became of the notice's try of this number.
    pub fn told(
        &mut self,
        number: u32,
        tried: u32,
        reception: Reception,
        now: Timestamp,
        timing: &Timing,
        rng: &mut fastrand::Rng,
    ) -> Told {
        let before = self.notices.unheard();
        let told = self.receive(number, tried, reception, now, timing, rng);
        self.list_unheard(before, now);
        told
    }

    /// The operator's list says what has not been heard.
    fn list_unheard(&mut self, before: Option<Unheard>, now: Timestamp) {
        if self.notices.unheard() != before {
            self.listing = self.listing.news(now);
        }
    }

    fn receive(
        &mut self,
        number: u32,
        tried: u32,
        reception: Reception,
        now: Timestamp,
        timing: &Timing,
        rng: &mut fastrand::Rng,
    ) -> Told {
        let kept_until = self.finished_at.map(|finished_at| finished_at + timing.retention);
        let patience = &timing.webhooks;
        let Some(notice) = self.notices.list.iter_mut().find(|notice| notice.number == number) else {
            return Told::Void;
        };
        let is_newest = notice.tries == tried && notice.due_at().is_some();
        match reception {
            Reception::Taken => {
                notice.progress = Progress::Delivered { at: now };
                notice.last_error = None;
                self.republish(now);
                Told::Delivered
            }
            _ if !is_newest => Told::Void,
            Reception::Gone => {
                self.notices.disabled_at = Some(now);
                for notice in self.notices.list.iter_mut().filter(|notice| notice.due_at().is_some()) {
                    notice.progress = Progress::GivenUp { at: now };
                    notice.last_error = Some(DISABLED.to_owned());
                }
                Told::Disabled
            }
            Reception::Refused { error, retry_after } => {
                let drawn = patience.backoff.draw(notice.failures, Duration::ZERO, rng);
                let asked = retry_after.filter(|asked| !asked.is_zero());
                let asked = asked.map(|asked| obey(asked.min(patience.backoff.longest()), rng));
                let wait = asked.map_or(drawn, |asked| asked.max(drawn));
                let gives_up_at = notice.since + patience.give_up;
                let ends_at = kept_until.map_or(gives_up_at, |until| until.min(gives_up_at));
                notice.failures = notice.failures.saturating_add(1);
                notice.last_error = Some(error.chars().take(MAX_ERROR_CHARS).collect());
                if now + wait >= ends_at {
                    notice.progress = Progress::GivenUp { at: now };
                    return Told::GivenUp;
                }
                notice.progress = Progress::Due { at: now + wait };
                Told::Again(wait)
            }
        }
    }

    /// The app, or the operator, wants the last news once more, and what is under way at once. Whoever asks has mended the
    /// target: it is enabled again. `false` if there is nothing to tell.
    pub fn tell_again(&mut self, now: Timestamp) -> bool {
        let Some(last) = self.notices.list.last().map(|notice| notice.at) else { return false };
        let before = self.notices.unheard();
        self.notices.disabled_at = None;
        for notice in self.notices.list.iter_mut().filter(|notice| notice.at == last || notice.due_at().is_some()) {
            notice.progress = Progress::Due { at: now };
            (notice.since, notice.failures) = (now, 0);
        }
        self.republish(now);
        self.list_unheard(before, now);
        true
    }
}

/// A job is stalled once for each deferral and once more, and ends once; `max_deferrals` is 10 at most.
const MAX_NOTICES: usize = 16;
/// For what the try takes beside the receiver's time.
const SLACK: Duration = Duration::from_secs(5);
const MAX_ERROR_CHARS: usize = 200;
const DISABLED: &str = "410: the target wants nothing of this job any more";
