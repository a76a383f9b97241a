//! docs/telemetry.md is written from the code, so that no event and no metric is missing in it: `WRITE_DOCS=1 cargo test --test
//! telemetry` writes it anew.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // a test may fail

use std::fmt::Write as _;
use std::path::Path;

use spillway::telemetry::metric::{BOUNDS, Facts, Metric, Shape, seconds};

/// An event as it is in the source: its name in the log, what it says, and its fields with what they say.
struct Event {
    name: String,
    help: String,
    fields: Vec<(String, String)>,
}

fn events(source: &str) -> Vec<Event> {
    let declared = source.split("pub enum Event").nth(1).expect("the events").split("\n}\n").next().unwrap();
    let mut events: Vec<(String, Event)> = Vec::new();
    let mut help = Vec::new();
    for line in declared.lines().map(str::trim) {
        if let Some(sentence) = line.strip_prefix("/// ") {
            help.push(sentence.to_owned());
        } else if let Some(variant) =
            line.strip_suffix(" {").filter(|variant| !variant.is_empty() && *variant != "<'a>")
        {
            let event = Event { name: String::new(), help: std::mem::take(&mut help).join(" "), fields: vec![] };
            events.push((variant.to_owned(), event));
        } else if let Some((field, _)) = line.split_once(": ") {
            let (_, event) = events.last_mut().expect("a field is an event's");
            event.fields.push((field.to_owned(), std::mem::take(&mut help).join(" ")));
        }
    }
    let names = source.split("\nevents! {").nth(1).expect("their names");
    for (variant, event) in &mut events {
        let arrow = names.find(&format!("=> {variant} {{")).unwrap_or_else(|| panic!("{variant} has no name"));
        event.name = names.get(..arrow).unwrap().rsplit('"').nth(1).unwrap().to_owned();
    }
    events.into_iter().map(|(_, event)| event).collect()
}

fn document() -> String {
    let source = std::fs::read_to_string(root("src/telemetry/event.rs")).unwrap();
    let mut out = String::from(HEAD);
    for Event { name, help, fields } in events(&source) {
        let _ = writeln!(out, "### `{name}`\n\n{help}\n\n| field | |\n| --- | --- |");
        for (field, help) in fields {
            let _ = writeln!(out, "| `{field}` | {help} |");
        }
        out.push('\n');
    }
    out.push_str(METRICS);
    let bounds = BOUNDS.map(seconds).join(", ");
    let _ = writeln!(out, "Histograms have these upper bounds, in seconds: {bounds}.\n");
    out.push_str("| metric | labels | |\n| --- | --- | --- |\n");
    for metric in Metric::ALL {
        let Facts { name, help, shape, labels } = metric.facts();
        let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(" ");
        let kind = match shape {
            Shape::Counter => "",
            Shape::Gauge => " A gauge.",
            Shape::Histogram => " A histogram.",
        };
        let _ = writeln!(out, "| `{name}` | {labels} | {help}{kind} |");
    }
    out
}

fn root(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn the_document_lists_every_event_and_every_metric_as_the_code_has_them() {
    let (document, path) = (document(), root("docs/telemetry.md"));
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(&path, &document).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == document,
        "docs/telemetry.md is not what the code says: WRITE_DOCS=1 cargo test --test telemetry"
    );
}

#[test]
fn names_have_their_unit_or_say_that_they_count_and_no_two_are_the_same() {
    let names = Metric::ALL.map(|metric| metric.facts().name);
    for (metric, name) in Metric::ALL.into_iter().zip(names) {
        assert!(name.starts_with("spillway_"), "{name}");
        match metric.facts().shape {
            Shape::Histogram => assert!(name.ends_with("_seconds"), "{name}"),
            shape => assert_eq!(name.ends_with("_total"), shape == Shape::Counter, "{name}"),
        }
        assert_eq!(names.iter().filter(|other| **other == name).count(), 1, "{name}");
    }
}

#[test]
fn the_dashboard_asks_for_metrics_and_labels_that_there_are() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(root("docs/grafana.json")).unwrap()).unwrap();
    let mut seen = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let asked = target["expr"].as_str().unwrap();
            for (at, _) in asked.match_indices("spillway_") {
                let rest = asked.get(at..).unwrap();
                let end = rest.find(|it: char| !it.is_ascii_lowercase() && it != '_').unwrap_or(rest.len());
                let (name, after) = rest.split_at(end);
                let metric = Metric::ALL.into_iter().find(|metric| {
                    let Facts { name: own, shape, .. } = metric.facts();
                    name == own || (shape == Shape::Histogram && name == format!("{own}_bucket"))
                });
                let labels = metric.unwrap_or_else(|| panic!("{name} in {asked}")).facts().labels;
                let chosen = after.strip_prefix('{').and_then(|it| it.split('}').next()).unwrap_or_default();
                let named = chosen.split(',').filter(|it| !it.is_empty());
                for label in named.map(|it| it.split(['=', '!']).next().unwrap()) {
                    assert!(labels.contains(&label), "{label} of {name} in {asked}");
                }
                seen.push(name.to_owned());
            }
        }
    }
    assert!(seen.len() > 12, "{seen:?}");
}

const HEAD: &str = "\
# Events and metrics

This file is written from the code: `WRITE_DOCS=1 cargo test --test telemetry`.

## Events

One JSON object a line in Workers Logs, with its name in `event`. No prompt, answer or key is ever in one. Durations are in
milliseconds, and say so.

";

const METRICS: &str = "\
## Metrics

What the events add up to, from `GET /v1/metrics`: as the text that Prometheus reads (`?format=prometheus`, the default), counted
since the deployment's first event; as JSON (`?format=json`) with the figures of the last 60 minutes, or of as many `hours` as are asked
for, and a timeline. The same series
go to the dataset of Workers Analytics Engine that is bound as `METRICS`, where the account has that enabled: `index1` is the metric, `blob1` the series
with its labels, `double1` how much was added. Of what is told at once 80 series are written, and the others with the next: an invocation may not
write more.

Gauges are not counted: they are asked for when somebody reads, of the gates and of the clients' indexes, and only for Prometheus; as
JSON the same is in `GET /v1/gates` and in `unfinished`.

A Meter object adds them up: all metrics but gauges by minute for 48 hours, by hour for 60 days, and since the first event. Isolates tell it what they have counted after each batch and each
request, so that a figure may be a second old; what it does not take is told again, and counted once. What an isolate has not told yet
when it is evicted is not counted, neither there nor in the dataset. Beyond 5,000
series new models and kinds are counted as `other`: apps choose them.

";
