//! Our policy's bands, on the scenarios at a quarter of their size: what a small storm cannot show (percentiles of a few
//! hundred jobs, a limit of ten calls in flight) is left to the whole ones, which `examples/storm` judges, and one of which
//! is run here.

use super::simulation::report::{Check, OURS, checks};
use super::simulation::run;
use super::simulation::scenario::Scenario;

/// The bands that hold whatever the size.
const SIZELESS: [&str; 10] = [
    "exposure",
    "stalled_share",
    "lost",
    "duplicates",
    "extra_probes",
    "open_share",
    "shut_after_s",
    "avoidable_exposure",
    "calls_after_output",
    "most_line_calls",
];

fn broken(scenario: Scenario, seed: u64, bands: Option<&[&str]>) -> Vec<String> {
    let rows = run::all(std::slice::from_ref(&scenario), &[OURS, "oracle"], seed).unwrap();
    let judged = |check: &Check| bands.is_none_or(|bands| bands.contains(&check.metric.as_str()));
    let broken = checks(&scenario, &rows[&0]).into_iter().filter(|check| judged(check) && check.kept == Some(false));
    let say = |check: Check| {
        format!("{}, seed {seed}: {} {} is {:?}", scenario.name, check.metric, check.wanted, check.value)
    };
    broken.map(say).collect()
}

#[test]
fn our_policy_stays_in_its_bands_in_small_storms() {
    let small = |name: &&str| broken(Scenario::find(name).unwrap().shrunk(SHRUNK), 1, Some(&SIZELESS));
    let broken: Vec<String> = SMALL.iter().flat_map(small).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn our_policy_stays_in_all_bands_of_the_median_outage() {
    let broken: Vec<String> =
        [1, 2].into_iter().flat_map(|seed| broken(Scenario::find("outage-46m").unwrap(), seed, None)).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

const SMALL: [&str; 12] = [
    "brown-out",
    "outage-10m",
    "outage-46m",
    "primary-only",
    "half-capacity",
    "rate-limit",
    "lone-job",
    "flapping",
    "calm",
    "calls-outage-46m",
    "calls-brown-out",
    "calls-mixed",
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
