//! What the operator's channel is sent (A8): a text, in the JSON that Slack and what is compatible with it read.
//!
//! Whoever reads it wants to know within half a minute whether it is the provider: what happened and since when, the causes of the last
//! hour, how many jobs wait and for how long, and where to look.

use std::time::Duration;

use super::status::rfc3339;
use crate::json::{self, Map};
use crate::telemetry::alerts::Alert;
use crate::telemetry::metric::{Counts, Metric};

/// How things stand when a message is sent.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// What was counted in the last hour.
    pub window: &'a Counts,
    /// How many jobs are not over, by priority.
    pub unfinished: &'a Map<String, u64>,
    /// For how long the oldest of them has been there; `None` if there is none, or nobody knows.
    pub longest_wait: Option<Duration>,
    /// The deployment's own address, as somebody has called it.
    pub origin: Option<&'a str>,
}

/// The message.
#[must_use]
pub fn body(alert: &Alert, circumstances: &Circumstances<'_>) -> String {
    let Circumstances { window, unfinished, longest_wait, origin } = *circumstances;
    let causes: Vec<String> = window
        .by(Metric::Calls, &["model", "cause"])
        .into_iter()
        .filter_map(|(labels, calls)| Some(format!("{calls} {} ({})", labels.get(1)?, labels.first()?)))
        .collect();
    let waiting = unfinished.iter().filter(|(_, jobs)| **jobs > 0);
    let waiting: Vec<String> = waiting.map(|(priority, jobs)| format!("{jobs} {priority}")).collect();
    let mut text = format!("Spillway: {}.\nSince {}.", alert.said(), rfc3339(alert.since));
    text.push_str(&format!("\nCalls of the last 60 min: {}.", or_none(&causes)));
    text.push_str(&format!("\nJobs that are not over: {}", or_none(&waiting)));
    if let Some(wait) = longest_wait {
        text.push_str(&format!("; the oldest has been there for {}", in_words(wait)));
    }
    text.push_str(&format!(".\nIs it the provider? {STATUS_PAGE}"));
    if let Some(origin) = origin {
        text.push_str(&format!("\nFigures and gates: {origin}/#watch"));
    }
    text.push_str(&format!("\nThe Worker at Cloudflare: {}", dashboard(origin)));
    json::write(&Body { text: escaped(&text) })
}

/// Slack takes `<!channel>` for a call to everybody and `<https://…>` for a link, and wants these three written so. Models are named by
/// apps and notes are written by people: neither should be able to wake a whole channel.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn or_none(list: &[String]) -> String {
    if list.is_empty() { "none".to_owned() } else { list.join(", ") }
}

/// The two largest units.
fn in_words(wait: Duration) -> String {
    let seconds = wait.as_secs();
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// Where Cloudflare shows its own figures. On workers.dev the address begins with the Worker's name; under a domain of one's own
/// nothing says it, and the list of them is shown.
fn dashboard(origin: Option<&str>) -> String {
    let host = origin.and_then(|it| it.strip_prefix("https://")).and_then(|it| it.strip_suffix(".workers.dev"));
    match host.and_then(|it| it.split_once('.')) {
        Some((name, _)) => format!("{DASHBOARD}/workers/services/view/{name}/production"),
        None => format!("{DASHBOARD}/workers-and-pages"),
    }
}

struct Body {
    text: String,
}

json::output!(Body { text });

const STATUS_PAGE: &str = "https://status.anthropic.com";
const DASHBOARD: &str = "https://dash.cloudflare.com/?to=/:account";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::time::Timestamp;
    use crate::telemetry::alerts::Alerts;

    fn text(longest_wait: Option<Duration>, origin: Option<&str>) -> String {
        let mut alerts = Alerts::default();
        let at = Timestamp::from_millis(784_111_777_000);
        let line = r#"{"event":"gate_transition","model":"m","from":"closed","to":"open","why":"failures_in_a_row"}"#;
        alerts.on_event(line, at, at);
        let mut window = Counts::default();
        window.0.insert(Metric::Calls.series(&["m", "overloaded", "default", "high"]), 12);
        let unfinished = [("high".to_owned(), 3), ("low".to_owned(), 0)].into_iter().collect();
        let circumstances = Circumstances { window: &window, unfinished: &unfinished, longest_wait, origin };
        body(&alerts.due(at).unwrap(), &circumstances)
    }

    #[test]
    fn a_message_says_what_to_look_at() {
        let text = text(Some(Duration::from_secs(750)), Some("https://spillway.example"));
        for part in [
            "m does not answer",
            "Since 1994-11-06T08:49:37.000Z.",
            "12 overloaded (m)",
            "3 high; the oldest has been there for 12 min 30 s.",
            "https://status.anthropic.com",
            "https://spillway.example/#watch",
            "https://dash.cloudflare.com/?to=/:account/workers-and-pages",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn what_nobody_knows_is_left_out() {
        let text = text(None, None);
        assert!(text.contains("not over: 3 high.") && !text.contains("#watch"), "{text}");
    }

    #[test]
    fn what_a_model_is_called_or_a_note_says_is_no_mark_up() {
        let mut alerts = Alerts::default();
        let at = Timestamp::from_millis(784_111_777_000);
        let line = r#"{"event":"queue_paused","priority":"low","lasts_ms":1000,"author":"R&D","note":"<!channel> a"}"#;
        alerts.on_event(line, at, at);
        let mut window = Counts::default();
        window.0.insert(Metric::Calls.series(&["<!here>", "overloaded", "default", "high"]), 1);
        let unfinished = Map::default();
        let circumstances =
            Circumstances { window: &window, unfinished: &unfinished, longest_wait: None, origin: None };
        let text = body(&alerts.due(at).unwrap(), &circumstances);
        for part in ["R&amp;D has paused", "&lt;!channel&gt; a", "1 overloaded (&lt;!here&gt;)"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains(['<', '>']), "{text}");
    }

    #[test]
    fn a_wait_is_told_in_its_two_largest_units() {
        for (seconds, words) in [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7_325, "2 h 2 min")] {
            assert_eq!(in_words(Duration::from_secs(seconds)), words);
        }
    }

    #[test]
    fn on_workers_dev_the_worker_itself_is_linked() {
        let link = |origin| dashboard(Some(origin)).replace(DASHBOARD, "");
        assert_eq!(link("https://my-spillway.team.workers.dev"), "/workers/services/view/my-spillway/production");
        for origin in ["https://spillway.example", "http://127.0.0.1:8787", "https://workers.dev"] {
            assert_eq!(link(origin), "/workers-and-pages", "{origin}");
        }
    }
}
