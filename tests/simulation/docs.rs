//! `docs/storm.md`: what each scenario shows, as a table and pictures, written by one command.

use std::fmt::Write as _;
use std::path::Path;

use super::callers;
use super::plot;
use super::report::{COLUMNS, OURS, Row, cells, checks, metrics};
use super::scenario::Scenario;

/// A scenario with its rows.
pub(crate) type Shown<'a> = (&'a Scenario, &'a [Row]);

/// Writes the page and its pictures.
pub(crate) fn write(directory: &Path, shown: &[Shown<'_>], seed: u64) -> Result<(), String> {
    let pictures = directory.join("storm");
    std::fs::create_dir_all(&pictures).map_err(|error| format!("{}: {error}", pictures.display()))?;
    let mut page = String::from(INTRODUCTION);
    let (waited_for, submitted): (Vec<Shown<'_>>, Vec<Shown<'_>>) =
        shown.iter().partition(|(scenario, _)| scenario.calls.is_some());
    at_a_glance(&mut page, &submitted, JOBS_AT_A_GLANCE);
    near_the_limit(&mut page, &submitted);
    if !waited_for.is_empty() {
        page.push_str(CALLERS_EXPLAINED);
        at_a_glance(&mut page, &waited_for, CALLERS_AT_A_GLANCE);
    }
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
    for (name, what) in metrics() {
        let _ = writeln!(page, "| `{name}` | {what} |");
    }
    let _ =
        writeln!(page, "\nThis page is written by `cargo run --release --example storm -- --docs docs --seed {seed}`.");
    std::fs::write(directory.join("storm.md"), page).map_err(|error| error.to_string())
}

/// A caption, and what a cell says.
type Glance = (&'static str, fn(&Row) -> String);

/// Who got no answer, and what an answer cost.
const JOBS_AT_A_GLANCE: &[Glance] = &[
    ("## At a glance\n\nJobs without an answer, in percent: failed, or lost. The oracle loses none.", |row| {
        percent(f64::from(row.failed + row.lost) / f64::from(row.jobs.max(1)))
    }),
    ("Upstream calls for each job that was answered. 1.00 is the least.", |row| number(row.calls_per_done, 2)),
];

/// The same of users who wait, and who had the answer while they did.
const CALLERS_AT_A_GLANCE: &[Glance] = &[
    ("Users who were exposed, in percent.", |row| number(row.callers.as_ref().map(|it| it.user_exposure * 100.0), 2)),
    (
        "Users who were answered within their patience, in percent. Who has failed the others has room for those who come; the oracle serves first who has waited longest.",
        |row| number(row.callers.as_ref().map(|it| it.in_patience_share * 100.0), 1),
    ),
    ("Upstream calls for each of them that was answered.", |row| {
        number(row.callers.as_ref().and_then(|it| it.calls_per_answer), 2)
    }),
];

/// Every policy in every storm.
fn at_a_glance(page: &mut String, shown: &[Shown<'_>], tables: &[Glance]) {
    for (caption, cell) in tables {
        let Some((_, first)) = shown.first() else { return };
        let is_shown = |row: &&Row| row.policy != ORACLE || row.callers.is_some();
        let policies: Vec<&str> = first.iter().filter(is_shown).map(|row| row.policy.as_str()).collect();
        let _ = writeln!(page, "\n{caption}\n\n| storm | {} |", policies.join(" | "));
        let _ = writeln!(page, "| --- |{}", " ---: |".repeat(policies.len()));
        for (scenario, rows) in shown {
            let cells: Vec<String> = rows.iter().filter(is_shown).map(|row| emphasised(row, cell(row))).collect();
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
    if scenario.calls.is_some() {
        let _ = writeln!(page, "Its users who wait:\n\n| {} |", callers::COLUMNS.join(" | "));
        let _ = writeln!(page, "| --- |{}", " ---: |".repeat(callers::COLUMNS.len() - 1));
        for (row, cells) in rows.iter().filter_map(|row| Some((row, callers::cells(row)?))) {
            let _ = writeln!(page, "| {} |", cells.map(|cell| emphasised(row, cell)).join(" | "));
        }
        page.push('\n');
    }
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
| `spillway-never`, `spillway-auto` | The same, where users wait for their answer, without the queue behind the line, and with a receipt in place of a held line: [users who wait](#users-who-wait). |

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

Users who wait for their answer are a table of their own, beside the jobs or in their place:

```toml
[calls]
per_minute = 40
priorities = { high = 100 } # spillway-priority
patience_seconds = 20 # spillway-max-wait; left out: the deployment's own
handoff = \"wait\" # spillway-handoff, of the policy `spillway`
isolates = 8 # each with its own view of the gates

[[calls.kind]] # spillway-kind
name = \"default\"
share = 100
fallback = false
```

```sh
cargo run --release --example storm -- --scenario my-monday.toml --policy spillway --policy sdk --policy oracle --json storm.json
```

`policy = '{ \"breaker\": { \"open_seconds\": 60 } }'` in the file is your `POLICY`, to be tried out before it is deployed.

**In CI** the same line is a test without a key: it ends with status 1 if `spillway` leaves a band, your own or one of those that
hold in every storm (`common-bands.toml`), and with 2 if the file is wrong. `storm.json` has an object for each policy, times in
seconds, shares from 0 to 1.
";

const CALLERS_EXPLAINED: &str = "
## Users who wait

Storms whose name begins with `calls` have users who wait for their answer: their app calls Claude in the middle of a request, with
an official SDK. The other policies here are those that such an app could have; ours is the synchronous path, `POST
/v1/messages`, by what the caller wants where there is no answer now (`spillway-handoff`):

| policy | what becomes of a call that cannot be answered now |
| --- | --- |
| `spillway` | `wait`, the default: it becomes a job, and the line is held for 10 s (`sync.max_wait_seconds`). If the answer is there by then it is as if nothing had been; if not, the SDK raises its overloaded error, once, with the job's name and the word that the draft is saved. |
| `spillway-auto` | `auto`: it becomes a job, and the caller has a receipt at once. |
| `spillway-never` | `never`: the caller has the error. What is left is the second try, the smaller model, and the gate that spares the calls. |

- **Exposed** is who was shown an error, half an answer, or the word that the answer comes later where it never came. Who was told so
  and had it is not exposed: a job that was handed over and did not end done counts, one that did does not. How many were told
  so stands beside it (*told later*), and how many had their answer within their patience: nobody is answered while the model is
  gone.
- **Broken off** is the floor of exposure: an answer that breaks off after its first content has been seen, and no policy can try it
  again without showing the user two answers. `sdk` and ours pass content on as it comes, and have such users; the others are
  given the benefit of the doubt, that nobody sees an answer before it is whole.
- **The SDK retries**, in front of ours as without it: twice. *Most calls* is the most upstream calls for one user while the line was
  held, and shows that the SDK's retries and ours do not multiply.
- **Without the queue** nobody is spared an error: `spillway-never` shows as many as `sdk`, or more, since its gate spares calls, and
  a user gains by that only if somebody else makes them later.
- Each of eight isolates looks at the gates through its own view, a second old at most.
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

Where users wait, jobs are their calls, too, and there is a table of them alone:

| column | what it says |
| --- | --- |
| exposed, of them broken off | Share of the users who were exposed; share of them all whose answer broke off after its first content. |
| in patience | Share of those whose answer began on their line, or was there as a job's, within their patience, and came whole. |
| handed over, told later | Share of those whose call became a job; whose line ended with the word that the answer comes later. |
| content, later | Seconds from the call to the first content, of users answered on the line; to the answer, of those told that it comes later. |
| calls/answer, most calls | Upstream calls for each user who was answered; the most for one user while the line was held. |

In the pictures the time of the trouble is shaded.";
