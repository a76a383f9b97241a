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

    /// What figures call it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Pause(priority) => priority.name(),
            Self::Drain => "drain",
        }
    }

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

impl Switch {
    /// Of two settings the later one's is greater.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.version.as_millis()
    }
}

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

    /// The number of what `name` was set to last; 0 if it never was.
    #[must_use]
    pub fn version(&self, name: Name) -> u64 {
        self.switch(name).map_or(0, Switch::number)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + seconds * 1000)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// From 0 on, for so long.
    fn order(lasts: u64) -> Order {
        Order { since: at(0), until: at(lasts), note: "Why.".into(), author: "ada".into() }
    }

    const LOW: Name = Name::Pause(Priority::Low);

    /// Somebody who has taken an order for the low jobs at 0.
    fn paused(lasts: u64) -> Switches {
        let mut switches = Switches::default();
        let switch = switches.set(LOW, Some(order(lasts)), at(0));
        switches.learn(LOW, Some(switch), at(0));
        switches
    }

    #[test]
    fn an_order_is_in_force_until_its_end_and_for_nothing_else() {
        let switches = paused(600);
        for (now, left) in [(0, 600), (599, 1), (600, 0), (601, 0)] {
            let order = switches.pause(Priority::Low, at(now));
            assert_eq!(order.map(|order| order.left(at(now))), (left > 0).then(|| seconds(left)), "at {now}");
        }
        for other in [Priority::High, Priority::Medium] {
            assert_eq!(switches.pause(other, at(1)), None);
        }
        assert_eq!(switches.drain(at(1)), None);
        assert_eq!(Switches::default().pause(Priority::Low, at(1)), None);
    }

    #[test]
    fn a_clock_that_is_set_back_makes_an_order_no_longer() {
        assert_eq!(order(600).left(Timestamp::default()), seconds(600));
        let nap = order(600).recheck(Timestamp::default(), &mut fastrand::Rng::with_seed(1));
        assert!((15..=18).contains(&nap.as_secs()), "{nap:?}");
    }

    #[test]
    fn a_held_job_sleeps_a_quarter_of_what_the_pause_has_lasted_and_up_to_a_quarter_of_that_more() {
        let mut rng = fastrand::Rng::with_seed(7);
        for (lasts, now, shortest, longest) in [
            (604_800, 0, 15, 18),
            (604_800, 60, 15, 18),
            (604_800, 240, 60, 75),
            (604_800, 2_880, 720, 900),
            (604_800, 600_000, 720, 900),
            // Not past its end, but for the spread in which they come back.
            (600, 599, 1, 38),
            (6, 0, 6, 9),
            (7_200, 7_199, 1, 181),
        ] {
            let naps: Vec<_> = (0..200).map(|_| order(lasts).recheck(at(now), &mut rng)).collect();
            let range = seconds(shortest)..seconds(longest + 1);
            assert!(naps.iter().all(|nap| range.contains(nap)), "{lasts} {now}: {naps:?}");
            assert!(naps.iter().any(|nap| *nap != naps[0]), "{lasts} {now}: they come back at once");
        }
    }

    #[test]
    fn a_job_that_is_paused_for_a_week_costs_five_deliveries_an_hour() {
        let (order, mut rng, mut now, mut naps) = (order(604_800), fastrand::Rng::with_seed(1), at(0), 0);
        while !order.left(now).is_zero() {
            now = now + order.recheck(now, &mut rng);
            naps += 1;
        }
        assert!((168 * 4..168 * 5).contains(&naps), "{naps}");
    }

    #[test]
    fn who_has_taken_an_order_believes_no_older_one_until_the_store_has_settled() {
        let never_set = None;
        for (now, is_paused) in [(1, true), (119, true), (120, false)] {
            let mut switches = paused(600);
            switches.learn(LOW, never_set.clone(), at(now));
            assert_eq!(switches.pause(Priority::Low, at(now)).is_some(), is_paused, "at {now}");
        }
        let mut switches = paused(600);
        let old = switches.set(LOW, Some(order(600)), at(0));
        let resumed = switches.set(LOW, None, at(30));
        switches.learn(LOW, Some(resumed), at(30));
        switches.learn(LOW, Some(old), at(31));
        assert_eq!(switches.pause(Priority::Low, at(31)), None, "what was taken back does not come back");
    }

    #[test]
    fn what_others_have_ordered_since_is_believed_at_once() {
        let mut switches = paused(600);
        let others = Switches::default().set(LOW, Some(order(300)), at(5));
        switches.learn(LOW, Some(others), at(6));
        assert_eq!(switches.pause(Priority::Low, at(6)).map(|order| order.until), Some(at(300)));
    }

    #[test]
    fn of_two_orders_for_one_switch_everybody_ends_with_the_one_that_is_stored() {
        let stored = Switches::default().set(LOW, Some(order(300)), at(0));
        let mut switches = Switches::default();
        let own = switches.set(LOW, Some(order(600)), at(1));
        switches.learn(LOW, Some(own), at(1));
        // The other one was written later, with the lower version.
        for (now, until) in [(2, 600), (120, 600), (121, 300)] {
            switches.learn(LOW, Some(stored.clone()), at(now));
            assert_eq!(switches.pause(Priority::Low, at(now)).map(|order| order.until), Some(at(until)), "at {now}");
        }
    }

    #[test]
    fn of_two_orders_of_the_same_moment_the_one_that_is_stored_is_believed_at_once() {
        let mut switches = paused(600);
        let stored = Switches::default().set(LOW, Some(order(300)), at(0));
        switches.learn(LOW, Some(stored), at(1));
        assert_eq!(switches.pause(Priority::Low, at(1)).map(|order| order.until), Some(at(300)));
    }

    #[test]
    fn a_later_setting_has_the_higher_version_whatever_the_clock_does() {
        let mut switches = paused(600);
        let resumed = switches.set(LOW, None, Timestamp::default());
        switches.learn(LOW, Some(resumed), at(1));
        assert_eq!(switches.pause(Priority::Low, at(1)), None);
        let earlier = Switches::default().set(LOW, Some(order(600)), at(0));
        switches.learn(LOW, Some(earlier), at(2));
        assert_eq!(switches.pause(Priority::Low, at(2)), None, "the earlier one does not come back");
    }

    #[test]
    fn the_store_is_asked_every_five_seconds_and_by_everybody_until_it_has_answered_once() {
        let mut switches = Switches::default();
        switches.asking(at(0));
        assert!(!switches.is_fresh(at(0)), "nobody knows anything yet");
        switches.asked();
        for (now, is_fresh) in [(0, true), (4, true), (5, false), (6, false)] {
            assert_eq!(switches.is_fresh(at(now)), is_fresh, "at {now}");
        }
        assert!(!switches.is_fresh(Timestamp::default()), "a clock that was set back keeps nobody from asking");
        switches.asking(at(5));
        assert!(switches.is_fresh(at(5)), "while one asks, others go on with what is known");
    }

    #[test]
    fn a_switch_survives_its_storage_and_each_has_a_name_of_its_own() {
        let switch = Switches::default().set(LOW, Some(order(600)), at(0));
        for switch in [switch, Switches::default().set(LOW, None, at(0))] {
            assert_eq!(json::read::<Switch>(&json::write(&switch)), Ok(switch));
        }
        for name in Name::ALL {
            assert_eq!(Name::ALL.iter().filter(|other| other.key() == name.key()).count(), 1);
        }
    }
}
