//! Runs policies through scenarios, each in a world of its own, on as many threads as there are.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::report::{Ended, Row, compare, is_ours};
use super::rivals;
use super::scenario::Scenario;
use super::spillway::Spillway;
use super::world::{Policy, Sim};

/// One policy in one scenario.
pub(crate) fn one(scenario: &Scenario, policy: &str, seed: u64) -> Result<Row, String> {
    let scenario = Rc::new(scenario.clone());
    let sim = Sim::new(scenario.clone(), seed);
    let jobs = sim.look().jobs.len();
    let patience = Spillway::patience(&scenario)?;
    let policy: Box<dyn Policy> = if is_ours(policy) {
        Box::new(Spillway::new(policy, &scenario, seed, jobs)?)
    } else {
        rivals::find(policy).ok_or_else(|| format!("no policy is called {policy}; see --list"))?
    };
    sim.run(&*policy);
    let world = sim.look();
    Ok(Row::new(&Ended {
        scenario: &scenario,
        policy: policy.name(),
        seed,
        jobs: &world.jobs,
        facts: &world.facts,
        most_consumers: world.queues.most_consumers(),
        patience,
    }))
}

/// These policies in every scenario, in their order; none named: those that are worth a look there.
pub(crate) fn all(
    scenarios: &[Scenario],
    policies: &[&'static str],
    seed: u64,
) -> Result<BTreeMap<usize, Vec<Row>>, String> {
    let of = |scenario| if policies.is_empty() { rivals::of(scenario) } else { policies.to_vec() };
    let work: Vec<(usize, usize, &str)> = scenarios
        .iter()
        .enumerate()
        .flat_map(|(index, scenario)| {
            of(scenario).into_iter().enumerate().map(move |(place, policy)| (index, place, policy))
        })
        .collect();
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(work.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&(scenario, place, policy)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let row = one(&scenarios[scenario], policy, seed);
                    rows.lock().unwrap().push((scenario, place, row));
                }
            });
        }
    });
    let mut found: BTreeMap<usize, Vec<Row>> = BTreeMap::new();
    let mut rows = rows.into_inner().unwrap();
    rows.sort_by_key(|(scenario, place, _)| (*scenario, *place));
    for (scenario, _, row) in rows {
        found.entry(scenario).or_default().push(row?);
    }
    for (scenario, rows) in &mut found {
        let scenario = &scenarios[*scenario];
        compare(scenario, Spillway::open_seconds(scenario)?, rows);
    }
    Ok(found)
}
