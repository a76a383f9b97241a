//! Series that have been added up over some time, and what can be read off them.

use super::metric::{BOUNDS, Counts, Metric, PASSED_THROUGH, Shape, seconds, series};
use crate::json;

/// A quantile of durations: no more than an upper bound is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantile {
    /// Milliseconds; `None` above the last bound.
    pub at_most_ms: Option<u64>,
    /// Of so many.
    pub of: u64,
}

impl Counts {
    /// All of `metric` whose labels `fit`.
    pub fn sum(&self, metric: Metric, fit: impl Fn(&Labels<'_>) -> bool) -> u64 {
        self.each(metric.facts().name).filter(|(labels, _)| fit(labels)).map(|(_, value)| value).sum()
    }

    /// All of `metric`.
    #[must_use]
    pub fn all(&self, metric: Metric) -> u64 {
        self.sum(metric, |_| true)
    }

    /// How much of `metric` there is for each set of these labels.
    #[must_use]
    pub fn by(&self, metric: Metric, names: &[&str]) -> Vec<(Vec<String>, u64)> {
        let mut groups: json::Map<Vec<String>, u64> = json::Map::default();
        for (labels, value) in self.each(metric.facts().name) {
            let group: Vec<_> = names.iter().map(|name| labels.get(name).unwrap_or_default()).collect();
            let known = groups.get(&group).copied().unwrap_or(0);
            groups.insert(group, known.saturating_add(value));
        }
        groups.iter().map(|(group, value)| (group.clone(), *value)).collect()
    }

    /// Below which a share of `percent` of the durations lie whose labels `fit`; `None` if there are none.
    pub fn quantile(&self, metric: Metric, percent: u64, fit: impl Fn(&Labels<'_>) -> bool) -> Option<Quantile> {
        let name = format!("{}_bucket", metric.facts().name);
        let mut buckets = [0_u64; BOUNDS.len() + 1];
        for (labels, value) in self.each(&name).filter(|(labels, _)| fit(labels)) {
            let bound = labels.get("le").unwrap_or_default();
            let at = BOUNDS.iter().position(|known| seconds(*known) == bound).unwrap_or(BOUNDS.len());
            if let Some(bucket) = buckets.get_mut(at) {
                *bucket = bucket.saturating_add(value);
            }
        }
        let of: u64 = buckets.iter().sum();
        // The smallest number that is no less than the share.
        let wanted = of.saturating_mul(percent).div_ceil(100).max(1);
        let mut below = 0_u64;
        let at = buckets.iter().position(|bucket| {
            below = below.saturating_add(*bucket);
            below >= wanted
        })?;
        Some(Quantile { at_most_ms: BOUNDS.get(at).copied(), of })
    }

    /// The text that Prometheus reads (version 0.0.4): each metric that there is, with its help; buckets are cumulative there.
    #[must_use]
    pub fn exposition(&self) -> String {
        let mut out = String::new();
        for metric in Metric::ALL {
            let facts = metric.facts();
            let (name, help) = (facts.name, facts.help);
            match facts.shape {
                Shape::Counter | Shape::Gauge => {
                    let shape = if facts.shape == Shape::Gauge { "gauge" } else { "counter" };
                    out.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {shape}\n"));
                    for (labels, value) in self.each(name) {
                        out.push_str(&format!("{} {value}\n", labels.name(name, &[])));
                    }
                }
                Shape::Histogram => {
                    out.push_str(&format!("# HELP {name} {help}\n# TYPE {name} histogram\n"));
                    for (labels, sum) in self.each(&format!("{name}_sum_ms")) {
                        let bucket = format!("{name}_bucket");
                        let mut below = 0_u64;
                        for bound in BOUNDS.into_iter().map(seconds).chain(["+Inf".to_owned()]) {
                            let le = [("le", bound.as_str())];
                            let series = labels.name(&bucket, &le);
                            below = below.saturating_add(self.0.get(&series).copied().unwrap_or(0));
                            out.push_str(&format!("{series} {below}\n"));
                        }
                        out.push_str(&format!("{} {}\n", labels.name(&format!("{name}_sum"), &[]), seconds(sum)));
                        out.push_str(&format!("{} {below}\n", labels.name(&format!("{name}_count"), &[])));
                    }
                }
            }
        }
        out
    }

    /// The series of one name.
    fn each<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (Labels<'a>, u64)> {
        self.0.iter().filter_map(move |(series, value)| {
            let rest = series.strip_prefix(name)?;
            let labels = rest.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            (rest.is_empty() || labels.is_some()).then(|| (Labels(labels.unwrap_or_default()), *value))
        })
    }
}

/// The labels of a series, as they are in its name.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a>(&'a str);

impl<'a> Labels<'a> {
    /// The value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<String> {
        self.iter().find(|(label, _)| *label == name).map(|(_, value)| value)
    }

    fn iter(&self) -> impl Iterator<Item = (&'a str, String)> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (label, after) = rest.split_once("=\"")?;
            let (mut value, mut escaped, mut end) = (String::new(), false, after.len());
            for (at, character) in after.char_indices() {
                match character {
                    '\\' if !escaped => escaped = true,
                    '"' if !escaped => {
                        end = at;
                        break;
                    }
                    _ => {
                        value.push(character);
                        escaped = false;
                    }
                }
            }
            rest = after.get(end..).unwrap_or_default().trim_start_matches(['"', ',']);
            Some((label, value))
        })
    }

    /// Whether `name` has this value.
    #[must_use]
    pub fn is(&self, name: &str, value: &str) -> bool {
        self.get(name).as_deref() == Some(value)
    }

    /// A series of another name with the same labels, and these.
    fn name(&self, name: &str, more: &[(&str, &str)]) -> String {
        let more = series("", more);
        let more = more.trim_matches(['{', '}']);
        match (self.0, more) {
            ("", "") => name.to_owned(),
            (own, "") => format!("{name}{{{own}}}"),
            ("", more) => format!("{name}{{{more}}}"),
            (own, more) => format!("{name}{{{own},{more}}}"),
        }
    }
}

/// The series that counts what cannot be kept under this name, which is one too many: the models and kinds that apps have chosen are
/// `other` there.
#[must_use]
pub fn other(name: &str) -> String {
    let (metric, labels) = name.split_once('{').unwrap_or((name, ""));
    let labels: Vec<_> = Labels(labels.strip_suffix('}').unwrap_or_default())
        .iter()
        .map(|(label, value)| match label {
            "model" | "kind" if value != PASSED_THROUGH => (label, "other".to_owned()),
            _ => (label, value),
        })
        .collect();
    series(metric, &labels.iter().map(|(label, value)| (*label, value.as_str())).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Event;

    #[test]
    fn one_too_many_keeps_all_of_its_labels_but_what_apps_have_chosen() {
        for (name, expected) in [
            (
                r#"a_total{model="m\"{}",cause="overloaded",kind="k,=",priority="low"}"#,
                r#"a_total{model="other",cause="overloaded",kind="other",priority="low"}"#,
            ),
            (
                r#"a_bucket{model="m",kind="passed_through",le="0.25"}"#,
                r#"a_bucket{model="other",kind="passed_through",le="0.25"}"#,
            ),
            (r#"a_total{status="done"}"#, r#"a_total{status="done"}"#),
            ("a_total", "a_total"),
        ] {
            assert_eq!(other(name), expected);
            assert_eq!(other(expected), expected);
        }
    }

    fn counts(events: &[Event<'_>]) -> Counts {
        let mut counts = Counts::default();
        events.iter().for_each(|event| counts.note(event));
        counts
    }

    fn dwells(dwell_ms: u64, held: bool) -> Event<'static> {
        Event::CallStarted {
            job: "job_1",
            model: "m",
            permit: "granted",
            kind: "tagging",
            priority: "high",
            dwell_ms: Some(dwell_ms),
            held,
        }
    }

    fn fails(model: &str, cause: &'static str) -> Counts {
        counts(&[Event::CallFailed {
            job: None,
            model,
            cause,
            kind: "default",
            priority: "low",
            status: None,
            request_id: None,
            duration_ms: 0,
            input_tokens: 3,
            output_tokens: 0,
        }])
    }

    #[test]
    fn labels_are_read_as_they_were_written_whatever_is_in_them() {
        let odd = "a\"b\\c,d=\"e}\u{7}";
        let calls = fails(odd, "overloaded");
        let (labels, count) = calls.each("spillway_calls_total").next().unwrap();
        assert_eq!(labels.get("model").as_deref(), Some("a\"b\\c,d=\"e}"), "but for what no label may hold");
        assert_eq!((labels.get("cause").as_deref(), labels.get("none"), count), (Some("overloaded"), None, 1));
        assert!(labels.is("priority", "low"));
    }

    #[test]
    fn a_quantile_is_the_bound_below_which_the_share_lies() {
        let mut all = counts(&std::array::from_fn::<_, 19, _>(|_| dwells(100, false)));
        assert_eq!(all.quantile(Metric::DwellSeconds, 95, |_| true), Some(Quantile { at_most_ms: Some(250), of: 19 }));
        all.merge(counts(&[dwells(24_000, false)]));
        assert_eq!(all.quantile(Metric::DwellSeconds, 95, |_| true).unwrap().at_most_ms, Some(250), "19 of 20");
        all.merge(counts(&[dwells(25_001, false)]));
        assert_eq!(all.quantile(Metric::DwellSeconds, 95, |_| true).unwrap().at_most_ms, Some(25_000));
        all.merge(counts(&[dwells(u64::MAX, false), dwells(u64::MAX, false)]));
        assert_eq!(all.quantile(Metric::DwellSeconds, 95, |_| true).unwrap().at_most_ms, None, "above all bounds");
        assert_eq!(all.quantile(Metric::DwellSeconds, 95, |labels| labels.is("held", "true")), None);
    }

    #[test]
    fn what_prometheus_reads_has_every_metric_with_its_help_and_cumulative_buckets() {
        let mut all = counts(&[dwells(900, true), dwells(31_500, true)]);
        all.merge(fails("m", "overloaded"));
        let text = all.exposition();
        for metric in Metric::ALL {
            assert!(text.contains(&format!("# HELP {} {}\n# TYPE ", metric.facts().name, metric.facts().help)));
        }
        for line in [
            r#"spillway_calls_total{model="m",cause="overloaded",kind="default",priority="low"} 1"#,
            r#"spillway_tokens_lost_total{model="m",direction="input"} 3"#,
            r#"spillway_dwell_seconds_bucket{priority="high",held="true",le="0.5"} 0"#,
            r#"spillway_dwell_seconds_bucket{priority="high",held="true",le="1"} 1"#,
            r#"spillway_dwell_seconds_bucket{priority="high",held="true",le="60"} 2"#,
            r#"spillway_dwell_seconds_bucket{priority="high",held="true",le="+Inf"} 2"#,
            r#"spillway_dwell_seconds_sum{priority="high",held="true"} 32.4"#,
            r#"spillway_dwell_seconds_count{priority="high",held="true"} 2"#,
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn groups_are_added_up_over_the_labels_that_are_not_asked_for() {
        let mut all = fails("a", "overloaded");
        (0..3).for_each(|_| all.merge(fails("b", "rate_limited")));
        assert_eq!(
            all.by(Metric::Calls, &["model", "cause"]),
            [(vec!["a".into(), "overloaded".into()], 1), (vec!["b".into(), "rate_limited".into()], 3)]
        );
    }
}
