//! What somebody has to be told of, and when: news of gates, the operator's orders, the spend cap, refused credentials, and
//! objectives that are broken or met again (A8).
//!
//! - **One message for each event, at least once**: it is stored until the receiver has taken it, tried again after 5 s, doubling up to
//!   10 min, for a day.
//! - **Never a flood.** Each subject (a gate, an objective …) is told of at once, and then for ten minutes no more: what happens
//!   meanwhile is one message at their end, the latest with the number of those before it. A flapping gate is a message every ten
//!   minutes.
//! - **The last word is the truth.** Of a subject only the latest is sent: what the receiver had not taken by then is counted in it, and
//!   does not come after it.
//! - **An objective** is judged by the last 60 minutes, and by no fewer than twenty users, answers or jobs: one of three is no rate.
//!
//! How a message looks is said by `api::alert`.

use std::collections::VecDeque;
use std::time::Duration;

use super::figures::{Figures, Verdict};
use crate::json::{self, Fields, Map};
use crate::policy::time::Timestamp;

/// What has been told, and what is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alerts {
    /// After a message about a subject there is no other for so long; as it is configured.
    pub quiet: Duration,
    subjects: Map<String, Subject>,
    /// Objectives that are broken.
    broken: Map<String, bool>,
    outbox: VecDeque<Alert>,
    number: u64,
}

json::object!(default Alerts { quiet, subjects, broken, outbox, number });

impl Default for Alerts {
    fn default() -> Self {
        Self { quiet: QUIET, subjects: Map::default(), broken: Map::default(), outbox: VecDeque::new(), number: 0 }
    }
}

/// One thread of news.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Subject {
    told_at: Timestamp,
    /// The latest that was not told of, when it was, and how many of them there are.
    kept: Option<String>,
    since: Timestamp,
    count: u32,
}

json::object!(default Subject { told_at, kept, since, count });

/// A message that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// The same for every try.
    pub id: u64,
    /// What it is about: `gate claude-sonnet-5-5`, `exposure` …
    pub subject: String,
    /// What has happened, in a sentence.
    pub text: String,
    /// Since when it has been so.
    pub since: Timestamp,
    /// Of how many news of its subject, since the last message, it is the last.
    pub news: u32,
    /// When it was first to be sent.
    at: Timestamp,
    /// When it is to be tried next.
    next_at: Timestamp,
    /// How often it was tried.
    tries: u32,
}

json::object!(Alert { id, subject, text, since, news, at, next_at, tries });

impl Alert {
    /// What has happened, and whether more has since the last message.
    #[must_use]
    pub fn said(&self) -> String {
        let Self { text, news, .. } = self;
        if *news > 1 { format!("{text} (the last of {news} since)") } else { text.clone() }
    }
}

impl Alerts {
    /// Takes a log line of something that happened at `at`: a gate's move, an order of the operator, a refusal that is his to mend.
    pub fn on_event(&mut self, line: &str, at: Timestamp, now: Timestamp) {
        let Ok(fields) = Fields::parse(line) else { return };
        let text = |name: &str| fields.string(name).unwrap_or_default();
        let (model, priority) = (text("model"), text("priority"));
        let seconds = fields.get("lasts_ms").and_then(|it| it.get().parse::<u64>().ok()).unwrap_or(0) / 1_000;
        match text("event").as_ref() {
            "gate_transition" => {
                let (from, to, why) = (text("from"), text("to"), text("why"));
                let said = match (to.as_ref(), why.as_ref()) {
                    // A probe has failed: it has been so all the time.
                    ("open", _) if from == "half_open" => return,
                    // An order has done it, and that is told.
                    (_, why) if why.starts_with("override_") => return,
                    ("open", why) => format!(
                        "{model} does not answer: its gate is open ({}); jobs wait, nothing is lost",
                        why.replace('_', " ")
                    ),
                    ("closed", _) => format!("{model} answers again: its gate is closed, and what waits is worked off"),
                    // Every probe goes through here.
                    _ => return,
                };
                self.say(format!("gate {model}"), said, at, now);
            }
            "account_refused" => {
                let cause = text("cause");
                let said = if cause == "spend_cap" {
                    format!(
                        "{model}: the account's spend cap is reached; jobs wait until it is raised, or an override says so"
                    )
                } else {
                    format!("{model}: Claude refuses the credentials ({cause}); check ANTHROPIC_API_KEY")
                };
                self.say(format!("{cause} {model}"), said, at, now);
            }
            "gate_overridden" => {
                let said = format!(
                    "{model}: {} has forced the gate {} for {seconds} s: {}",
                    text("author"),
                    text("state"),
                    text("note")
                );
                self.say(format!("override {model}"), said, at, now);
            }
            "override_ended" => {
                let how = if text_is(&fields, "early", "true") { "was taken back" } else { "is over" };
                let said = format!("{model}: the override {how}, and its gate decides again");
                self.say(format!("override {model}"), said, at, now);
            }
            "queue_paused" => {
                let (who, why) = (text("author"), text("note"));
                let said = format!("{who} has paused the jobs of priority {priority} for {seconds} s: {why}");
                self.say(format!("queue {priority}"), said, at, now);
            }
            "queue_resumed" => self.say(
                format!("queue {priority}"),
                format!("The jobs of priority {priority} go on, before their pause was over"),
                at,
                now,
            ),
            "drain_started" => {
                let said = format!("{} has nothing new taken for {seconds} s: {}", text("author"), text("note"));
                self.say("drain".to_owned(), said, at, now);
            }
            "drain_ended" => {
                let said = "New jobs are taken again, before the drain was over".to_owned();
                self.say("drain".to_owned(), said, at, now);
            }
            _ => {}
        }
    }

    /// Takes the figures of the last hour.
    pub fn on_figures(&mut self, figures: &Figures, now: Timestamp) {
        let percent = |ppm: Option<u64>| {
            let hundredths = ppm.unwrap_or(0) / 100;
            format!("{}.{:02} %", hundredths / 100, hundredths % 100)
        };
        let dwell = figures.dwell_p95.map_or(0, |dwell| dwell.of);
        for (objective, verdict, of, said) in [
            (
                "exposure",
                figures.exposure_verdict(),
                figures.exposure.of,
                format!("{} of the users have seen an error (objective: below 0.5 %)", percent(figures.exposure.ppm())),
            ),
            (
                "fallback",
                figures.fallback_verdict(),
                figures.fallback_rate.of,
                format!(
                    "{} of the answers come from another model (objective: at most 35 %)",
                    percent(figures.fallback_rate.ppm())
                ),
            ),
            (
                "dwell",
                figures.dwell_verdict(),
                dwell,
                "more than one in twenty jobs that nothing held waits over 25 s for its first call".to_owned(),
            ),
        ] {
            let was_broken = self.broken.get(objective).copied().unwrap_or(false);
            let is_broken = match verdict {
                Verdict::Broken if of >= MIN_SAMPLE => true,
                Verdict::Met => false,
                // Too few to say anything new.
                _ => was_broken,
            };
            if is_broken != was_broken {
                self.broken.insert(objective.to_owned(), is_broken);
                let said = if is_broken {
                    format!("In the last 60 minutes {said}")
                } else {
                    format!("The objective of {objective} is met again")
                };
                self.say(objective.to_owned(), said, now, now);
            }
        }
    }

    /// The message that is to be sent now, if there is one.
    pub fn due(&mut self, now: Timestamp) -> Option<Alert> {
        let quiet = self.quiet;
        let ended: Vec<String> = self
            .subjects
            .iter()
            .filter(|(_, it)| it.told_at + quiet <= now && it.kept.is_some())
            .map(|(subject, _)| subject.clone())
            .collect();
        for subject in ended {
            if let Some(thread) = self.subjects.get_mut(&subject)
                && let Some(text) = thread.kept.take()
            {
                let news = std::mem::take(&mut thread.count);
                thread.told_at = now;
                let since = thread.since;
                self.send(subject, text, since, news, now);
            }
        }
        // Subjects that are quiet need not be remembered.
        self.subjects.retain(|_, it| it.kept.is_some() || it.told_at + quiet > now);
        self.outbox.retain(|alert| alert.at + GIVE_UP > now);
        self.outbox.iter().find(|alert| alert.next_at <= now).cloned()
    }

    /// The receiver has taken it.
    pub fn sent(&mut self, id: u64) {
        self.outbox.retain(|alert| alert.id != id);
    }

    /// It has not.
    pub fn failed(&mut self, id: u64, now: Timestamp) {
        if let Some(alert) = self.outbox.iter_mut().find(|alert| alert.id == id) {
            let pause = FIRST_PAUSE.saturating_mul(1 << alert.tries.min(10)).min(LONGEST_PAUSE);
            alert.tries = alert.tries.saturating_add(1);
            alert.next_at = now + pause;
        }
    }

    /// When something may be due, if there is anything.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        let threads = self.subjects.iter().filter(|(_, it)| it.kept.is_some()).map(|(_, it)| it.told_at + self.quiet);
        threads.chain(self.outbox.iter().map(|alert| alert.next_at)).min()
    }

    fn say(&mut self, subject: String, text: String, since: Timestamp, now: Timestamp) {
        let known = self.subjects.get(&subject).cloned().unwrap_or_default();
        let is_quiet = known.told_at + self.quiet > now && known.told_at <= now;
        if is_quiet || known.kept.is_some() {
            let count = known.count.saturating_add(1);
            self.subjects.insert(subject, Subject { kept: Some(text), since, count, ..known });
            return;
        }
        self.subjects.insert(subject.clone(), Subject { told_at: now, ..Subject::default() });
        self.send(subject, text, since, 1, now);
    }

    /// What was not taken yet of the same subject is not sent any more: it would come after what is newer.
    fn send(&mut self, subject: String, text: String, since: Timestamp, mut news: u32, now: Timestamp) {
        self.outbox.retain(|older| {
            let is_another = older.subject != subject;
            news = news.saturating_add(if is_another { 0 } else { older.news });
            is_another
        });
        self.number = self.number.saturating_add(1);
        self.outbox.push_back(Alert { id: self.number, subject, text, since, news, at: now, next_at: now, tries: 0 });
        while self.outbox.len() > MOST {
            self.outbox.pop_front();
        }
    }
}

fn text_is(fields: &Fields<'_>, name: &str, value: &str) -> bool {
    fields.get(name).is_some_and(|found| found.get() == value)
}

/// Unless it is configured.
const QUIET: Duration = Duration::from_secs(600);
const MIN_SAMPLE: u64 = 20;
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
const GIVE_UP: Duration = Duration::from_secs(86_400);
/// More than a day of bad news.
const MOST: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::figures::Share;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + seconds * 1_000)
    }

    fn moves(alerts: &mut Alerts, to: &str, seconds: u64) {
        let line =
            format!(r#"{{"event":"gate_transition","model":"m","from":"x","to":"{to}","why":"failures_in_a_row"}}"#);
        alerts.on_event(&line, at(seconds), at(seconds));
    }

    /// Sends what is due.
    fn told(alerts: &mut Alerts, seconds: u64) -> Vec<String> {
        let mut told = vec![];
        while let Some(alert) = alerts.due(at(seconds)) {
            alerts.sent(alert.id);
            told.push(alert.said());
        }
        told
    }

    #[test]
    fn a_gate_that_opens_is_told_of_at_once_and_one_that_probes_is_not() {
        let mut alerts = Alerts::default();
        moves(&mut alerts, "open", 0);
        let said = "m does not answer: its gate is open (failures in a row); jobs wait, nothing is lost";
        assert_eq!(told(&mut alerts, 0), [said]);
        moves(&mut alerts, "half_open", 90);
        let failed = r#"{"event":"gate_transition","model":"m","from":"half_open","to":"open","why":"probe_failed"}"#;
        alerts.on_event(failed, at(91), at(91));
        assert_eq!((told(&mut alerts, 600), alerts.next()), (vec![], None));
    }

    #[test]
    fn a_flapping_gate_is_one_message_every_ten_minutes() {
        let mut alerts = Alerts::default();
        let mut messages = vec![];
        for seconds in (0..3_600).step_by(30) {
            moves(&mut alerts, if seconds % 60 == 0 { "open" } else { "closed" }, seconds);
            messages.extend(told(&mut alerts, seconds).into_iter().map(|text| (seconds, text)));
        }
        let moments: Vec<_> = messages.iter().map(|(seconds, _)| *seconds).collect();
        assert_eq!(moments, [0, 600, 1_200, 1_800, 2_400, 3_000]);
        assert!(messages[1].1.ends_with("(the last of 20 since)"), "{messages:?}");
        assert_eq!(alerts.next(), Some(at(3_600)));
        assert!(told(&mut alerts, 3_600)[0].starts_with("m answers again"), "the last word is how it stands");
    }

    #[test]
    fn what_is_not_taken_is_sent_again_later_and_later_for_a_day_and_in_the_meantime_others_are() {
        let mut alerts = Alerts::default();
        moves(&mut alerts, "open", 0);
        let mut seconds = 0;
        for pause in [5, 10, 20, 40, 80, 160, 320, 600, 600] {
            let alert = alerts.due(at(seconds)).unwrap();
            assert_eq!(alert.id, 1);
            alerts.failed(alert.id, at(seconds));
            assert_eq!((alerts.due(at(seconds + pause - 1)), alerts.next()), (None, Some(at(seconds + pause))));
            seconds += pause;
        }
        alerts.on_event(
            r#"{"event":"gate_overridden","model":"m","state":"open","lasts_ms":60000,"author":"ada","note":"why"}"#,
            at(seconds - 1),
            at(seconds - 1),
        );
        assert_eq!(alerts.due(at(seconds - 1)).unwrap().text, "m: ada has forced the gate open for 60 s: why");
        assert_eq!(alerts.due(at(86_400)).map(|alert| alert.id), Some(2));
        assert_eq!(alerts.due(at(2 * 86_400)), None);
    }

    #[test]
    fn what_was_not_taken_is_not_told_after_what_is_newer_of_the_same() {
        let mut alerts = Alerts { quiet: Duration::from_secs(1), ..Alerts::default() };
        let forced =
            r#"{"event":"gate_overridden","model":"m","state":"open","lasts_ms":60000,"author":"a","note":"n"}"#;
        alerts.on_event(forced, at(0), at(0));
        let first = alerts.due(at(0)).unwrap();
        alerts.failed(first.id, at(0));
        moves(&mut alerts, "open", 1);
        let opened = alerts.due(at(1)).unwrap();
        alerts.failed(opened.id, at(1));
        alerts.on_event(r#"{"event":"override_ended","model":"m","early":true}"#, at(2), at(2));
        let ended = "m: the override was taken back, and its gate decides again (the last of 2 since)";
        let opened = "m does not answer: its gate is open (failures in a row); jobs wait, nothing is lost";
        assert_eq!(told(&mut alerts, 10), [opened, ended]);
        // That the first is taken after all, late, is nothing to the others.
        alerts.sent(first.id);
        assert_eq!(alerts.next(), None);
    }

    #[test]
    fn an_override_is_told_of_once_and_its_end_by_its_time_or_early() {
        for (early, how) in [("true", "was taken back"), ("false", "is over")] {
            let mut alerts = Alerts::default();
            for why in ["override_opened", "override_ended"] {
                let line = format!(r#"{{"event":"gate_transition","model":"m","from":"x","to":"open","why":"{why}"}}"#);
                alerts.on_event(&line, at(0), at(0));
            }
            alerts.on_event(&format!(r#"{{"event":"override_ended","model":"m","early":{early}}}"#), at(0), at(0));
            assert_eq!(told(&mut alerts, 0), [format!("m: the override {how}, and its gate decides again")]);
        }
    }

    #[test]
    fn an_objective_is_told_of_when_it_is_broken_and_when_it_is_met_again_and_few_users_are_no_rate() {
        let figures = |exposed, of| {
            let none = Share { count: 0, of: 0 };
            Figures {
                overload_rate: none,
                exposure: Share { count: exposed, of },
                handed_over_done: 0,
                fallback_rate: none,
                dwell_p95: None,
                held_dwell_p95: None,
                first_try: none,
                success: none,
                calls: none,
            }
        };
        let mut alerts = Alerts::default();
        alerts.on_figures(&figures(1, 3), at(0));
        assert_eq!(told(&mut alerts, 0), [""; 0], "one of three is no rate");
        alerts.on_figures(&figures(1, 100), at(60));
        let said = "In the last 60 minutes 1.00 % of the users have seen an error (objective: below 0.5 %)";
        assert_eq!(told(&mut alerts, 60), [said]);
        alerts.on_figures(&figures(2, 100), at(120));
        alerts.on_figures(&figures(0, 0), at(180));
        assert_eq!(told(&mut alerts, 700), [""; 0], "it is broken still");
        alerts.on_figures(&figures(1, 1_000), at(760));
        assert_eq!(told(&mut alerts, 760), ["The objective of exposure is met again"]);
    }

    #[test]
    fn a_spend_cap_and_refused_credentials_are_told_of() {
        let mut alerts = Alerts::default();
        for cause in ["spend_cap", "authentication_failed", "spend_cap"] {
            alerts.on_event(&format!(r#"{{"event":"account_refused","model":"m","cause":"{cause}"}}"#), at(0), at(0));
        }
        let told = told(&mut alerts, 0);
        assert!(told[0].contains("spend cap") && told[1].contains("refuses the credentials (authentication_failed)"));
        assert_eq!(told.len(), 2);
    }

    #[test]
    fn what_the_operator_orders_is_told_and_a_queue_is_a_thread_of_its_own() {
        let mut alerts = Alerts::default();
        for line in [
            r#"{"event":"queue_paused","priority":"low","lasts_ms":60000,"author":"ada","note":"why"}"#,
            r#"{"event":"drain_started","lasts_ms":60000,"author":"ada","note":"why"}"#,
            r#"{"event":"queue_resumed","priority":"low","early_ms":5}"#,
            r#"{"event":"drain_ended","early_ms":5}"#,
        ] {
            alerts.on_event(line, at(0), at(0));
        }
        let first =
            ["ada has paused the jobs of priority low for 60 s: why", "ada has nothing new taken for 60 s: why"];
        assert_eq!(told(&mut alerts, 0), first);
        let last = [
            "New jobs are taken again, before the drain was over",
            "The jobs of priority low go on, before their pause was over",
        ];
        assert_eq!(told(&mut alerts, 600), last);
    }

    #[test]
    fn a_message_says_since_when_it_has_been_so_however_late_it_comes() {
        let mut alerts = Alerts::default();
        let opened = r#"{"event":"gate_transition","model":"m","from":"closed","to":"open","why":"failure_rate"}"#;
        let closed =
            r#"{"event":"gate_transition","model":"m","from":"half_open","to":"closed","why":"probe_succeeded"}"#;
        alerts.on_event(opened, at(0), at(2));
        alerts.on_event(closed, at(90), at(91));
        let mut since = |seconds| {
            alerts.due(at(seconds)).map(|alert| {
                alerts.sent(alert.id);
                alert.since
            })
        };
        assert_eq!((since(2), since(601), since(602)), (Some(at(0)), None, Some(at(90))));
    }
}
