//! Our policy's bands, on the scenarios at a quarter of their size: what a small storm cannot show (percentiles of a few
//! hundred jobs, a limit of ten calls in flight) is left to the whole ones, which `examples/storm` judges.

use super::simulation::report::{Check, OURS, checks};
use super::simulation::run;
use super::simulation::scenario::Scenario;

/// The bands that hold whatever the size.
const SIZELESS: [&str; 8] = [
    "exposure",
    "stalled_share",
    "lost",
    "duplicates",
    "extra_probes",
    "open_share",
    "shut_after_s",
    "drain_vs_oracle",
];

/// What the policy does not keep yet. An entry that it has come to keep has to go: the test says so.
const NOT_YET: [(&str, &str); 1] = [("outage-46m", "drain_vs_oracle")];

fn wrong(name: &str, seed: u64) -> Vec<String> {
    let scenario = Scenario::find(name).unwrap().shrunk(SHRUNK);
    let rows = run::all(std::slice::from_ref(&scenario), &[OURS, "oracle"], seed).unwrap();
    let judged = checks(&scenario, &rows[&0]).into_iter().filter(|check| SIZELESS.contains(&check.metric.as_str()));
    let is_wrong = |check: &Check| {
        let is_known = NOT_YET.contains(&(name, check.metric.as_str()));
        check.kept.is_some_and(|kept| kept == is_known)
    };
    let say = |check: Check| format!("{name}, seed {seed}: {} {} is {:?}", check.metric, check.wanted, check.value);
    judged.filter(is_wrong).map(say).collect()
}

#[test]
fn our_policy_stays_in_its_bands_in_small_storms() {
    let wrong: Vec<String> = SMALL.iter().flat_map(|name| wrong(name, 1)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const SMALL: [&str; 9] = [
    "brown-out",
    "outage-10m",
    "outage-46m",
    "primary-only",
    "half-capacity",
    "rate-limit",
    "lone-job",
    "flapping",
    "calm",
];

/// A band that nothing can break is none: the judge itself, with a rival in our place.
#[test]
fn a_band_that_is_left_is_found() {
    let scenario = Scenario::find("outage-10m").unwrap().shrunk(SHRUNK);
    let mut rows = run::all(std::slice::from_ref(&scenario), &["sdk"], 1).unwrap().remove(&0).unwrap();
    rows[0].policy = OURS.into();
    let exposure = checks(&scenario, &rows).into_iter().find(|check| check.metric == "exposure").unwrap();
    assert_eq!(exposure.kept, Some(false), "{:?}", exposure.value);
}

const SHRUNK: f64 = 4.0;
