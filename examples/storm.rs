//! The storm, from a command line: see `--help`.

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::prelude::*;
use simulation::report::{OURS, Row, checks, table};
use simulation::rivals::NAMES;
use simulation::scenario::Scenario;
use simulation::{callers, docs, plot, run};

/// A line of output. Whoever has stopped reading, as `head` does, has seen enough.
macro_rules! say {
    ($($what:tt)*) => {
        if writeln!(std::io::stdout(), $($what)*).is_err() {
            std::process::exit(0);
        }
    };
}

const HELP: &str = "\
Runs retry policies through storms: a seeded simulation of jobs, queues and an upstream that overloads.

  cargo run --release --example storm -- [options]

  --scenario NAME|FILE.toml   one storm; may be given again (all that take seconds, if it is not)
  --policy NAME               one policy; may be given again (all that the storm is about, if it is not)
  --seed N                    another storm of the same kind (1)
  --json FILE                 writes an array with one object for each scenario and policy; - is the standard output
  --svg DIR                   draws the queue, the calls, and bars for the policies
  --docs DIR                  writes storm.md and its pictures
  --list                      names the scenarios and policies
  --help                      this

Ends with status 1 if our policy leaves a band, and with 2 if the command or a file is wrong. A scenario of your own begins best as a copy of one of tests/simulation/scenarios.
";

#[derive(Default)]
struct Arguments {
    scenarios: Vec<Scenario>,
    policies: Vec<&'static str>,
    seed: u64,
    json: Option<PathBuf>,
    svg: Option<PathBuf>,
    docs: Option<PathBuf>,
}

fn main() -> ExitCode {
    match arguments().and_then(|arguments| arguments.map_or(Ok(true), storm)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// What was asked for; nothing more, if it was help.
fn arguments() -> Result<Option<Arguments>, String> {
    let mut arguments = Arguments { seed: 1, ..Arguments::default() };
    let mut parser = lexopt::Parser::from_env();
    let text = |error: lexopt::Error| format!("{error}; see --help");
    while let Some(argument) = parser.next().map_err(text)? {
        match argument {
            Long("scenario") => {
                let name = parser.value().and_then(|value| value.string()).map_err(text)?;
                arguments.scenarios.push(Scenario::find(&name)?);
            }
            Long("policy") => {
                let name = parser.value().and_then(|value| value.string()).map_err(text)?;
                let known = NAMES.into_iter().find(|known| *known == name);
                arguments.policies.push(known.ok_or_else(|| format!("no policy is called {name}; see --list"))?);
            }
            Long("seed") => arguments.seed = parser.value().and_then(|value| value.parse()).map_err(text)?,
            Long("json") => arguments.json = Some(parser.value().map_err(text)?.into()),
            Long("svg") => arguments.svg = Some(parser.value().map_err(text)?.into()),
            Long("docs") => arguments.docs = Some(parser.value().map_err(text)?.into()),
            Long("list") => {
                list();
                return Ok(None);
            }
            Short('h') | Long("help") => {
                say!("{}", HELP.trim_end());
                return Ok(None);
            }
            other => return Err(text(other.unexpected())),
        }
    }
    if arguments.scenarios.is_empty() {
        arguments.scenarios = Scenario::all().into_iter().filter(|scenario| !scenario.only_by_name).collect();
    }
    Ok(Some(arguments))
}

fn list() {
    say!("scenarios:");
    for scenario in Scenario::all() {
        let note = if scenario.only_by_name { " (only if asked for)" } else { "" };
        say!("  {:<16} {}{note}", scenario.name, scenario.title);
    }
    say!("policies:\n  {}", NAMES.join(", "));
}

/// Whether our policy kept its bands.
fn storm(arguments: Arguments) -> Result<bool, String> {
    let Arguments { scenarios, policies, seed, json, svg, docs } = arguments;
    // Better now than after the whole run.
    if let Some(path) = json.as_ref().filter(|path| path.as_os_str() != "-") {
        std::fs::write(path, "").map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let found = run::all(&scenarios, &policies, seed)?;
    let mut kept = true;
    let quiet = json.as_ref().is_some_and(|path| path.as_os_str() == "-");
    for (scenario, rows) in scenarios.iter().zip(found.values()) {
        let checks = checks(scenario, rows);
        kept &= checks.iter().all(|check| check.kept != Some(false));
        if quiet {
            continue;
        }
        let load = rows.first().map(|row| row.load).unwrap_or_default();
        say!("{} ({}), {} jobs, load {load:.2}", scenario.title, scenario.name, jobs(rows));
        say!("{}", table(rows));
        if let Some(users) = callers::table(rows) {
            say!("{users}");
        }
        for check in checks {
            let verdict = match check.kept {
                Some(true) => "ok",
                Some(false) => "NOT MET",
                None => "not judged",
            };
            let value = check.value.map_or_else(|| "–".into(), |value| value.to_string());
            say!("  {OURS} {:<24} {:<10} {value:>12}  {verdict}", check.metric, check.wanted);
        }
        say!("");
    }
    if let Some(path) = json {
        let rows: Vec<&Row> = found.values().flatten().collect();
        let text = serde_json::to_string_pretty(&rows).map_err(|error| error.to_string())?;
        if quiet {
            say!("{text}");
        } else {
            std::fs::write(&path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    if let Some(directory) = svg {
        std::fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        for (scenario, rows) in scenarios.iter().zip(found.values()) {
            plot::draw(&directory, scenario, rows)?;
        }
    }
    if let Some(directory) = docs {
        let shown: Vec<_> = scenarios.iter().zip(found.values().map(Vec::as_slice)).collect();
        docs::write(&directory, &shown, seed)?;
    }
    Ok(kept)
}

fn jobs(rows: &[Row]) -> u32 {
    rows.first().map(|row| row.jobs).unwrap_or_default()
}
