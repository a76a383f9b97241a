//! `docs/storm.md`: what each scenario shows, as a table and pictures, written by one command.

use std::fmt::Write as _;
use std::path::Path;

use super::plot;
use super::report::{COLUMNS, METRICS, Row, cells, checks};
use super::scenario::Scenario;

/// A scenario with its rows.
pub(crate) type Shown<'a> = (&'a Scenario, &'a [Row]);

/// Writes the page and its pictures.
pub(crate) fn write(directory: &Path, shown: &[Shown<'_>], seed: u64) -> Result<(), String> {
    let pictures = directory.join("storm");
    std::fs::create_dir_all(&pictures).map_err(|error| format!("{}: {error}", pictures.display()))?;
    let mut page = String::from(INTRODUCTION);
    let _ = writeln!(page, "\nWritten by `cargo run --release --example storm -- --docs docs --seed {seed}`.");
    for (scenario, rows) in shown {
        let drawn = plot::draw(&pictures, scenario, rows)?;
        section(&mut page, scenario, rows, &drawn);
    }
    page.push_str("\n## The figures\n\n| figure | what it is |\n| --- | --- |\n");
    for (name, what) in METRICS {
        let _ = writeln!(page, "| `{name}` | {what} |");
    }
    std::fs::write(directory.join("storm.md"), page).map_err(|error| error.to_string())
}

fn section(page: &mut String, scenario: &Scenario, rows: &[Row], drawn: &[String]) {
    let _ = writeln!(page, "\n## {}\n\n`{}`. {}\n", scenario.title, scenario.name, scenario.why.trim());
    let _ = writeln!(page, "| {} |", COLUMNS.join(" | "));
    let _ = writeln!(page, "| --- |{}", " ---: |".repeat(COLUMNS.len() - 1));
    for row in rows {
        let _ = writeln!(page, "| {} |", cells(row).join(" | "));
    }
    page.push('\n');
    for name in drawn {
        let _ = writeln!(page, "![{}](storm/{name})\n", scenario.title);
    }
    page.push_str("| our policy has to keep | and has | |\n| --- | ---: | --- |\n");
    for check in checks(scenario, rows) {
        let value = check.value.map_or_else(|| "–".into(), |value| value.to_string());
        let verdict = match check.kept {
            Some(true) => "ok",
            Some(false) => "**not met**",
            None => "does not apply",
        };
        let _ = writeln!(page, "| `{}` {} | {value} | {verdict} |", check.metric, check.wanted);
    }
}

const INTRODUCTION: &str = "# The storm

What the default policy does in bad weather, and what others do in the same: a simulation with a modelled Claude and modelled
queues that runs the very code of the Worker. Every policy meets the same jobs, the same latencies and the same luck.

Dwell is the time from submission to the first call that came to content; jobs that were held are counted apart. A drain ends
when no more jobs wait than in fair weather. `oracle` knows the capacity at every moment: the limit, not a rival.
";
