//! What has to happen for a job next, and when: the Job object's alarm, as data.
//!
//! The alarm is watchdog (a turn whose message does not come is sent again), outbox (messages, the published result, the
//! index' row and the app's notices, until they are taken) and undertaker (everything is deleted when the retention is over).
//! [`Record::tick`] is asked after every event and by the alarm; whatever it answers may be done twice without harm, and is
//! asked for again until [`Record::announced`], [`Record::published`], [`Record::withdrawn`], [`Record::listed`] or
//! [`Record::told`] says that it worked.
//!
//! The object sends its own messages, instead of the consumer that settled: a settlement and the sending of the next turn
//! are then one step that cannot be torn (docs/adr/0002).

use std::time::Duration;

use super::envelope::Envelope;
use super::listing::Row;
use super::notice::Patience;
use super::record::Record;
use super::state::State;
use crate::json;
use crate::policy::priority::Priority;
use crate::policy::time::{Timestamp, millis};

/// The durations that a job's schedule needs, from configuration.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long a consumer is believed to live without a word from it.
    pub lease: Duration,
    /// How long a turn's message may be overdue before it is sent again; doubles each time.
    pub watchdog: Duration,
    /// How long a finished job is kept.
    pub retention: Duration,
    /// How webhooks are sent.
    pub webhooks: Patience,
}

/// Something for the edge to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Put the turn's message into its queue, then call [`Record::announced`].
    Announce {
        /// Which queue.
        priority: Priority,
        /// The message.
        envelope: Envelope,
        /// Its delay.
        delay_seconds: u32,
    },
    /// Write the finished job to KV, to live for so many seconds, then call [`Record::published`].
    Publish {
        /// The entry's time to live.
        ttl_seconds: u64,
    },
    /// Delete the finished job from KV, then call [`Record::withdrawn`].
    Withdraw,
    /// Tell the client's index how the job stands, then call [`Record::listed`].
    List {
        /// Whose index.
        client: String,
        /// The job's row in it.
        row: Row,
    },
    /// Send these notices to the job's webhook, in this order, then call [`Record::told`] for each.
    Notify {
        /// Their numbers.
        numbers: Vec<u32>,
    },
    /// Delete everything that is stored for this job.
    Erase,
}

/// Whether the current turn's message is in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Announcement {
    /// To be sent at this moment, after so many tries that have not been heard of.
    Due { at: Timestamp, failures: u32 },
    /// The queue has it since then.
    Sent { at: Timestamp },
}

json::choice!(Announcement {
    "due" => Due { at, failures },
    "sent" => Sent { at },
});

impl Announcement {
    pub(super) const fn due(at: Timestamp) -> Self {
        Self::Due { at, failures: 0 }
    }
}

/// Whether KV has the finished job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Publication {
    /// There is nothing to publish, or it is gone.
    Nothing,
    /// To be written at this moment, after so many failures.
    Due { at: Timestamp, failures: u32 },
    /// Written.
    Published,
    /// To be deleted at this moment, after so many failures.
    Withdrawing { at: Timestamp, failures: u32 },
}

json::choice!(Publication {
    "nothing" => Nothing,
    "due" => Due { at, failures },
    "published" => Published,
    "withdrawing" => Withdrawing { at, failures },
});

impl Publication {
    pub(super) const fn due(at: Timestamp) -> Self {
        Self::Due { at, failures: 0 }
    }

    /// What is left to do once the content has been erased. Also withdrawn when the write is still due: it may have
    /// reached KV with its answer lost.
    pub(super) const fn withdraw(self, at: Timestamp) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::Due { .. } | Self::Published | Self::Withdrawing { .. } => Self::Withdrawing { at, failures: 0 },
        }
    }
}

impl Record {
    /// What is due at `now`. Each effect is put off by a growing delay before it is handed out, so that one that is lost
    /// comes again.
    pub fn tick(&mut self, now: Timestamp, timing: &Timing) -> Vec<Effect> {
        let mut effects = self.tick_job(now, timing);
        // The row of a job whose retention is over ends by itself.
        if effects != [Effect::Erase] {
            effects.extend(self.tick_listing(now));
            effects.extend(self.tick_notices(now, timing));
        }
        effects
    }

    fn tick_job(&mut self, now: Timestamp, timing: &Timing) -> Vec<Effect> {
        if let Some(finished_at) = self.finished_at {
            return self.tick_finished(finished_at, now, timing);
        }
        if self.lease.is_some_and(|lease| lease.until <= now) {
            // Its own message may have died with the holder.
            self.lose_holder(now);
            if self.state.is_terminal() {
                return self.tick_finished(now, now, timing);
            }
            self.announcement = Announcement::due(now);
        }
        if self.lease.is_some() {
            return Vec::new();
        }
        if let State::Stalled { until, resume_at } = self.state {
            if now < until {
                return Vec::new();
            }
            // No answer is a yes. The deadline does not count while the user is asked.
            self.defer(resume_at, now);
        }
        if self.deadline_at <= now {
            self.expire(now);
            return self.tick_finished(now, now, timing);
        }
        if let Announcement::Sent { at } = self.announcement
            && self.overdue_at(at, timing) <= now
        {
            self.nudges = self.nudges.saturating_add(1);
            self.announcement = Announcement::due(now);
        }
        match self.announcement {
            Announcement::Due { at, failures } if at <= now => {
                self.announcement = Announcement::Due { at: now + put_off(failures), failures: failures + 1 };
                let wait = self.wake_at.after(now).min(MAX_QUEUE_DELAY);
                vec![Effect::Announce {
                    priority: self.spec.priority,
                    envelope: Envelope::new(self.id.clone(), self.turn),
                    delay_seconds: u32::try_from(millis(wait).div_ceil(1000)).unwrap_or(u32::MAX),
                }]
            }
            Announcement::Due { .. } | Announcement::Sent { .. } => Vec::new(),
        }
    }

    fn tick_finished(&mut self, finished_at: Timestamp, now: Timestamp, timing: &Timing) -> Vec<Effect> {
        let over_at = finished_at + timing.retention;
        if over_at <= now {
            return vec![Effect::Erase];
        }
        match self.publication {
            // KV is written once: it waits until the status has nothing more to say of the webhook.
            Publication::Due { at, failures } if at <= now && !self.notices.is_pending() => {
                self.publication = Publication::Due { at: now + put_off(failures), failures: failures + 1 };
                let ttl_seconds = millis(over_at.after(now)).div_ceil(1000).max(MIN_KV_TTL_SECONDS);
                vec![Effect::Publish { ttl_seconds }]
            }
            Publication::Withdrawing { at, failures } if at <= now => {
                self.publication = Publication::Withdrawing { at: now + put_off(failures), failures: failures + 1 };
                vec![Effect::Withdraw]
            }
            _ => Vec::new(),
        }
    }

    /// The queue has taken the message for `turn`. One that has become due while another was on its way is still to be sent: the other
    /// may have the delay of a wait that is over.
    pub fn announced(&mut self, turn: u64, now: Timestamp) {
        if turn == self.turn && matches!(self.announcement, Announcement::Due { failures: 1.., .. }) {
            self.announcement = Announcement::Sent { at: now };
        }
    }

    /// KV has taken the finished job. If it was erased while the write was on its way, KV has to forget it again, even if
    /// it was told to before: which of the two came first nobody knows.
    pub fn published(&mut self, now: Timestamp) {
        if self.erased {
            self.publication = Publication::Withdrawing { at: now, failures: 0 };
        } else if matches!(self.publication, Publication::Due { .. }) && !self.notices.is_pending() {
            self.publication = Publication::Published;
        }
    }

    /// What KV has is not how the job stands any more.
    pub(super) fn republish(&mut self, now: Timestamp) {
        if self.publication == Publication::Published {
            self.publication = Publication::due(now);
        }
    }

    /// KV has forgotten the erased job.
    pub fn withdrawn(&mut self) {
        if self.is_withdrawing() {
            self.publication = Publication::Nothing;
        }
    }

    /// Whether KV may still have what was erased.
    #[must_use]
    pub const fn is_withdrawing(&self) -> bool {
        matches!(self.publication, Publication::Withdrawing { .. })
    }

    /// When [`tick`](Self::tick) wants to be asked again.
    #[must_use]
    pub fn next_alarm(&self, timing: &Timing) -> Timestamp {
        let job = self.job_alarm(timing);
        [self.listing.due_at(), self.notices.due_at()].into_iter().flatten().fold(job, Timestamp::min)
    }

    fn job_alarm(&self, timing: &Timing) -> Timestamp {
        if let Some(finished_at) = self.finished_at {
            let over_at = finished_at + timing.retention;
            return match self.publication {
                Publication::Due { .. } if self.notices.is_pending() => over_at,
                Publication::Due { at, .. } | Publication::Withdrawing { at, .. } => over_at.min(at),
                Publication::Published | Publication::Nothing => over_at,
            };
        }
        if let Some(lease) = self.lease {
            return lease.until;
        }
        if let State::Stalled { until, .. } = self.state {
            return until;
        }
        let message = match self.announcement {
            Announcement::Due { at, .. } => at,
            Announcement::Sent { at } => self.overdue_at(at, timing),
        };
        message.min(self.deadline_at)
    }

    /// When the message that the queue took at `sent_at` counts as lost.
    fn overdue_at(&self, sent_at: Timestamp, timing: &Timing) -> Timestamp {
        // A wait that one delay cannot express arrives when the longest delay is over.
        let expected_at = self.wake_at.max(sent_at).min(sent_at + MAX_QUEUE_DELAY);
        let patience = timing.watchdog.saturating_mul(1 << self.nudges.min(MAX_DOUBLINGS));
        expected_at + patience
    }
}

/// How long to leave an effect to itself before it is done again: 10 s, doubling to 10 min. A queue that is overloaded
/// answers after 57 s, so the first repetitions may overlap; both are harmless.
pub(super) fn put_off(failures: u32) -> Duration {
    Duration::from_secs(10).saturating_mul(1 << failures.min(6)).min(Duration::from_secs(600))
}

/// A queue delays a message by 24 h at most; longer waits are chained.
const MAX_QUEUE_DELAY: Duration = Duration::from_secs(86_400);

/// KV refuses shorter lives.
const MIN_KV_TTL_SECONDS: u64 = 60;

/// 600 s doubled six times is over ten hours.
const MAX_DOUBLINGS: u32 = 6;
