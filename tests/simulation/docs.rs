//! `docs/storm.md`: what each scenario shows, as a table and pictures, written by one command.

use std::fmt::Write as _;
use std::path::Path;

use super::plot;
use super::report::{COLUMNS, METRICS, OURS, Row, cells, checks};
use super::scenario::Scenario;

/// A scenario with its rows.
pub(crate) type Shown<'a> = (&'a Scenario, &'a [Row]);

/// Writes the page and its pictures.
pub(crate) fn write(directory: &Path, shown: &[Shown<'_>], seed: u64) -> Result<(), String> {
    let pictures = directory.join("storm");
    std::fs::create_dir_all(&pictures).map_err(|error| format!("{}: {error}", pictures.display()))?;
    let mut page = String::from(INTRODUCTION);
    at_a_glance(&mut page, shown);
    near_the_limit(&mut page, shown);
    not_kept(&mut page, shown);
    let _ = writeln!(page, "\n## Each storm\n\n{COLUMNS_EXPLAINED}");
    for (scenario, rows) in shown {
        let drawn = plot::draw(&pictures, scenario, rows)?;
        section(&mut page, scenario, rows, &drawn);
    }
    page.push_str(
        "\n## The figures\n\nWhat a band can be about, and a member of each object that `--json` writes.\n\n",
    );
    page.push_str("| figure | what it is |\n| --- | --- |\n");
    for (name, what) in METRICS {
        let _ = writeln!(page, "| `{name}` | {what} |");
    }
    let _ =
        writeln!(page, "\nThis page is written by `cargo run --release --example storm -- --docs docs --seed {seed}`.");
    std::fs::write(directory.join("storm.md"), page).map_err(|error| error.to_string())
}

/// Every policy in every storm: who got no answer, and what an answer cost.
fn at_a_glance(page: &mut String, shown: &[Shown<'_>]) {
    type Cell = fn(&Row) -> String;
    let tables: [(&str, Cell); 2] = [
        ("Jobs without an answer, in percent: failed, or lost. The oracle loses none.", |row| {
            percent(f64::from(row.failed + row.lost) / f64::from(row.jobs.max(1)))
        }),
        ("Upstream calls for each job that was answered. 1.00 is the least.", |row| number(row.calls_per_done, 2)),
    ];
    page.push_str("\n## At a glance\n");
    for (caption, cell) in tables {
        let Some((_, first)) = shown.first() else { return };
        let policies: Vec<&str> = first.iter().map(|row| row.policy.as_str()).filter(|name| *name != ORACLE).collect();
        let _ = writeln!(page, "\n{caption}\n\n| storm | {} |", policies.join(" | "));
        let _ = writeln!(page, "| --- |{}", " ---: |".repeat(policies.len()));
        for (scenario, rows) in shown {
            let cells: Vec<String> =
                rows.iter().filter(|row| row.policy != ORACLE).map(|row| emphasised(row, cell(row))).collect();
            let _ = writeln!(page, "| {} | {} |", link(scenario), cells.join(" | "));
        }
    }
}

/// Our policy beside what is possible.
fn near_the_limit(page: &mut String, shown: &[Shown<'_>]) {
    let both = |rows: &[Row]| Some((of(rows, OURS)?.clone(), of(rows, ORACLE)?.clone()));
    if !shown.iter().any(|(_, rows)| both(rows).is_some()) {
        return;
    }
    page.push_str(LIMIT_EXPLAINED);
    page.push_str("| storm | calls/done | drain, s | oracle's | time to the answer, p95, s | oracle's |\n");
    page.push_str("| --- | ---: | ---: | ---: | ---: | ---: |\n");
    for (scenario, rows) in shown {
        let Some((ours, oracle)) = both(rows) else { continue };
        let cells = [
            number(ours.calls_per_done, 3),
            number(ours.drain_s, 0),
            number(oracle.drain_s, 0),
            number(ours.done_p95_s, 0),
            number(oracle.done_p95_s, 0),
        ];
        let _ = writeln!(page, "| {} | {} |", link(scenario), cells.join(" | "));
    }
}

/// The bands that our policy is out of.
fn not_kept(page: &mut String, shown: &[Shown<'_>]) {
    page.push_str("\n## What our policy does not keep yet\n\n");
    let left: Vec<String> = shown
        .iter()
        .flat_map(|(scenario, rows)| {
            checks(scenario, rows).into_iter().filter(|check| check.kept == Some(false)).map(|check| {
                let oracle = of(rows, ORACLE).and_then(|row| row.figure(&check.metric));
                let [value, oracle] = [check.value, oracle].map(|value| number(value, 3));
                format!("| {} | `{}` | {} | {value} | {oracle} |\n", link(scenario), check.metric, check.wanted)
            })
        })
        .collect();
    if left.is_empty() {
        page.push_str("Every band of every storm on this page is kept.\n");
        return;
    }
    page.push_str("Each storm has bands, and these are left. [The figures](#the-figures) says what each is.\n\n");
    page.push_str("| storm | figure | wanted | ours | oracle's |\n| --- | --- | ---: | ---: | ---: |\n");
    left.iter().for_each(|line| page.push_str(line));
}

fn section(page: &mut String, scenario: &Scenario, rows: &[Row], drawn: &[String]) {
    let _ =
        writeln!(page, "\n### {}\n\n`{}`. {}\n", scenario.title, scenario.name, scenario.why.trim().replace('\n', " "));
    let _ = writeln!(page, "| {} |", COLUMNS.join(" | "));
    let _ = writeln!(page, "| --- |{}", " ---: |".repeat(COLUMNS.len() - 1));
    for row in rows {
        let _ = writeln!(page, "| {} |", cells(row).map(|cell| emphasised(row, cell)).join(" | "));
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

fn of<'a>(rows: &'a [Row], policy: &str) -> Option<&'a Row> {
    rows.iter().find(|row| row.policy == policy)
}

/// Our own row stands out.
fn emphasised(row: &Row, cell: String) -> String {
    if row.policy == OURS { format!("**{cell}**") } else { cell }
}

/// To the storm's section: its heading as GitHub makes an anchor of it.
fn link(scenario: &Scenario) -> String {
    let kept = scenario.title.chars().filter(|c| c.is_alphanumeric() || [' ', '-'].contains(c));
    let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect();
    format!("[`{}`](#{anchor})", scenario.name)
}

fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

/// The policy that knows what nobody can.
const ORACLE: &str = "oracle";

const INTRODUCTION: &str = "# The storm

What becomes of your jobs when Claude is overloaded, by Spillway's default policy and by eight others: those of two
articles, of the official SDK, of three products, and plain exponential backoff. Everything here is simulated. No call leaves the
machine, no key is needed, and a run takes seconds.

- **The upstream is a model of Claude**, and of a smaller model beside it: so many calls at once, latencies that vary, 529s and
  429s as the API sends them, overloads inside a stream, outages and brown-outs. `tests/simulation/claude.rs` has its rules.
- **The queues are a model of Cloudflare Queues**: whole seconds, batches, duplicates, limits of time.
- **Spillway is no model.** The code that decides is the code of the Worker; only what would do I/O is replaced.
- **The others are as their sources describe them** (`tests/simulation/rivals.rs`), with the benefit of the doubt: where they hold
  the user's request open, it never breaks and their process never crashes.
- **Everybody meets the same**: the same jobs, latencies and luck, from one seed. The same seed gives the same page.

What it cannot say: how often Claude is overloaded, and whether your traffic is like that of a storm here. For that there
are your own numbers.

| policy | what it is |
| --- | --- |
| `article-a` | A queue, one try more after 1.5–2.5 s, then the smaller model if the kind allows it, then back into the queue; a breaker that lets everyone through after 90 s. As written, the attempt is never counted. |
| `article-a-counted` | The same with the attempts counted: five, then the job fails. |
| `article-b` | In the app's process: eight attempts, one bucket for 429 and one for 529, the smaller model after five 529s in a row. |
| `exponential` | In process: five calls, 1, 2, 4 and 8 s apart. |
| `sdk` | The official SDK's defaults: two retries, about 0.5 and 1 s apart. |
| `portkey` | A gateway: five retries, 1 to 16 s apart. |
| `litellm` | A router with one deployment: two retries; a failure cools it down for 5 s, for everyone. |
| `qstash` | A message service: five retries, after 12 s, 2.5 min, 30 min, 6 h and 24 h. |
| `oracle` | No rival but the limit: it knows the capacity at every moment, and makes no call that fails. |
| `spillway` | This Worker, with its defaults. |

## Run it

```sh
cargo run --release --example storm                                     # every storm, every policy; a minute or less
cargo run --release --example storm -- --list                           # what there is
cargo run --release --example storm -- --scenario outage-46m --policy spillway --policy sdk --seed 7
cargo run --release --example storm -- --scenario outage-46m --svg /tmp/storm     # with pictures
```

## Your own numbers

A storm is a file. Copy one of `tests/simulation/scenarios`, put in your traffic, your kinds and what you fear, and run it:

```toml
name = \"my-monday\"
title = \"Monday morning, and the model is gone for half an hour\"
why = \"Nobody may see an error.\"
minutes = 120

[jobs]
per_minute = 80
priorities = { high = 30, medium = 60, low = 10 } # percent

[[jobs.kind]]
name = \"default\"
share = 100
fallback = false # whether the smaller model may answer

[primary]
capacity = 25 # calls at once

[[phase]] # of both models; `model = \"primary\"` for one
from_minute = 30
minutes = 30
outage = true # or refuse_percent = 40, or capacity_percent = 50

[bands] # what has to hold; any of the figures below
exposure = { max = 0 }
done_p95_s = { max = 3600 }
```

```sh
cargo run --release --example storm -- --scenario my-monday.toml --policy spillway --policy sdk --policy oracle --json storm.json
```

`policy = '{ \"breaker\": { \"open_seconds\": 60 } }'` in the file is your `POLICY`, to be tried out before it is deployed.

**In CI** the same line is a test without a key: it ends with status 1 if `spillway` leaves a band, your own or one of those that
hold in every storm (`common-bands.toml`), and with 2 if the file is wrong. `storm.json` has an object for each policy, times in
seconds, shares from 0 to 1.
";

const LIMIT_EXPLAINED: &str = "
## How near the limit is

Our policy beside the oracle. A drain is the time from the end of the trouble until no more jobs wait than in fair weather; –
where there is no end of trouble to count from. Who only finds out by a probe that an outage is over begins up to a cooldown
later. The oracle serves the most urgent first, and puts nobody off to quieter hours; times to the answer are of jobs that were
not put off. So ours can be earlier at a percentile, and where low jobs are put off at a drain's end; hardly on the whole.

";

const COLUMNS_EXPLAINED: &str = "\
| column | what it says |
| --- | --- |
| done, failed, lost | Jobs with an answer; whose user was told that there is none; of whom nobody will hear again, or not within three days. |
| dup | Jobs with two answers, or two successful calls that were paid for. |
| stalled, put off | Jobs whose user was asked whether they may wait; share of those that waited for quieter hours. |
| exposure | Share of the jobs whose user saw an error because of overload or a limit. |
| calls/done | Upstream calls for each job that was answered. |
| fallback | Share of the answers that the smaller model gave. |
| drain s | Seconds from the end of the trouble until the backlog is gone. A policy that has failed its jobs has no backlog: read it beside *failed*. |
| 529 % | Share of 529s in the calls that were begun meanwhile. |
| dwell, held | Seconds from submission to the first call that came to content; jobs that were held are counted apart. |
| done p50, p95 | Seconds from submission to the answer, of jobs that have one and were not put off. |

In the pictures the time of the trouble is shaded.";
