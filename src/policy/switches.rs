//! What the operator switches off for a while: the deliveries of one priority's queue (a pause), or the taking of new work (a drain).
//!
//! **An order always ends by itself**, at the moment it names. One that is forgotten would be an outage of our own making.
//!
//! **A delivery of a paused priority holds its job** before anything is asked of a gate: it costs no attempt and no call, and takes
//! no place in any order; one that it had, it keeps. Nothing can wake a job that sleeps in its queue, so how long it sleeps is how
//! long a resumption goes unnoticed, and how often it looks is what a pause costs in deliveries. A fixed interval would be wrong at
//! one end or the other. It sleeps a quarter of what the pause has lasted, from 15 s to 12 min, and up to a quarter of that more:
//! who resumes after a minute sees jobs go on within 20 s, and a week's pause costs a job about five deliveries an hour. What is
//! asleep when a pause ends comes back over that last quarter, and not at once.
//!
//! **Each switch is stored by itself**, under a name of its own: of two orders at once neither can write over the other's. The store
//! is KV, which may say for a minute what was true before. So a switch has a *version*, and for [`SETTLES`] after it was set, who
//! knows of it believes no older one; after that the store is right, also about two orders for the same switch of which the one
//! that was written last had the lower version. A store that says nothing leaves everything as it was known last, at first without
//! any order: no job fails for that.
//!
//! Moments travel between machines here, where everywhere else only durations do: an end is what people have agreed on, it is the
//! same for all who read it, and clocks that are seconds apart make no difference to an order of minutes.

use std::time::Duration;

use super::priority::Priority;
use super::time::Timestamp;
use crate::json;

/// What somebody has ordered, until when, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// When it was given.
    pub since: Timestamp,
    /// When it ends by itself.
    pub until: Timestamp,
    /// Why.
    pub note: String,
    /// Who.
    pub author: String,
}

json::object!(Order { since, until, note, author });

impl Order {
    /// How long it is in force yet; zero once it is over. A clock that is set back makes it no longer than it was.
    #[must_use]
    pub fn left(&self, now: Timestamp) -> Duration {
        self.until.after(now.max(self.since))
    }

    /// How long a job sleeps that is held because of it.
    #[must_use]
    pub fn recheck(&self, now: Timestamp, rng: &mut fastrand::Rng) -> Duration {
        let nap = (now.since(self.since) / 4).clamp(SHORTEST_NAP, LONGEST_NAP);
        let spread = u64::try_from(nap.as_millis() / 4).unwrap_or_default();
        nap.min(self.left(now)) + Duration::from_millis(rng.u64(0..=spread))
    }
}

/// Something that can be switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// Whether the jobs of a priority are begun.
    Pause(Priority),
    /// Whether new work is refused.
    Drain,
}

impl Name {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Pause(Priority::High), Self::Pause(Priority::Medium), Self::Pause(Priority::Low), Self::Drain];

    /// Where it is stored.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Pause(Priority::High) => "switch:pause:high",
            Self::Pause(Priority::Medium) => "switch:pause:medium",
            Self::Pause(Priority::Low) => "switch:pause:low",
            Self::Drain => "switch:drain",
        }
    }
}

/// One switch, as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    /// When it was set; of two settings the later one's is higher, whatever the clock did.
    version: Timestamp,
    order: Option<Order>,
}

json::object!(Switch { version, order });

/// All switches, as far as one instance knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    switches: [Switch; Name::ALL.len()],
    asked_at: Timestamp,
    /// Whether the store has been asked and has answered, or has not.
    is_known: bool,
}

impl Switches {
    /// The order that keeps jobs of this priority from being begun.
    #[must_use]
    pub fn pause(&self, priority: Priority, now: Timestamp) -> Option<&Order> {
        self.order(Name::Pause(priority), now)
    }

    /// The order that keeps new work from being taken.
    #[must_use]
    pub fn drain(&self, now: Timestamp) -> Option<&Order> {
        self.order(Name::Drain, now)
    }

    /// The order that is in force.
    #[must_use]
    pub fn order(&self, name: Name, now: Timestamp) -> Option<&Order> {
        self.switch(name)?.order.as_ref().filter(|order| !order.left(now).is_zero())
    }

    /// Whether the store was asked so recently that it need not be asked again. Who has never been told anything waits for the
    /// store; everybody else goes on with what is known while one asks.
    #[must_use]
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.is_known && self.asked_at <= now && now.since(self.asked_at) < ASK_EVERY
    }

    /// The store is being asked.
    pub const fn asking(&mut self, now: Timestamp) {
        self.asked_at = now;
    }

    /// The store has answered, or has not and is left alone for a while.
    pub const fn asked(&mut self) {
        self.is_known = true;
    }

    /// The store says that `name` is set so; `None` if it never was.
    pub fn learn(&mut self, name: Name, stored: Option<Switch>, now: Timestamp) {
        let stored = stored.unwrap_or_default();
        if let Some(known) = self.switch_mut(name) {
            let is_settled = now.since(known.version) >= SETTLES;
            if is_settled || stored.version >= known.version {
                *known = stored;
            }
        }
    }

    /// What is to be stored, and then learnt, to set `name` so.
    #[must_use]
    pub fn set(&self, name: Name, order: Option<Order>, now: Timestamp) -> Switch {
        let known = self.switch(name).map_or_else(Timestamp::default, |known| known.version);
        Switch { version: now.max(known + Duration::from_millis(1)), order }
    }

    fn switch(&self, name: Name) -> Option<&Switch> {
        Name::ALL.into_iter().zip(&self.switches).find(|(other, _)| *other == name).map(|(_, switch)| switch)
    }

    fn switch_mut(&mut self, name: Name) -> Option<&mut Switch> {
        Name::ALL.into_iter().zip(&mut self.switches).find(|(other, _)| *other == name).map(|(_, switch)| switch)
    }
}

/// No order is new for longer: KV may say for so long what was true before.
pub const SETTLES: Duration = Duration::from_secs(120);
/// An order takes effect everywhere within so long: what an instance and the place it runs at remember of the store.
pub const TAKES_EFFECT_WITHIN: Duration = Duration::from_secs(60);
/// How long an instance goes on with what it has read.
const ASK_EVERY: Duration = Duration::from_secs(5);
const SHORTEST_NAP: Duration = Duration::from_secs(15);
const LONGEST_NAP: Duration = Duration::from_secs(720);
