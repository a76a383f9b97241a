//! The rings, checked in the sources: an arrow between two of them only ever points inwards.
//!
//! The compiler keeps the platform's crates out of everything but the edge, since no other target has them. It would not
//! mind a policy that reads the job, or a clock in the middle of a decision; this does. Nor does it mind a file of a thousand lines.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may panic")]

mod cargo;
mod source;

use std::fs;
use std::path::Path as FilePath;

use source::{Found, Path, module_of, paths};

/// Each unit and those that it may use, from the innermost on.
const UNITS: [(&str, &[&str]); 12] = [
    ("json", &[]),
    ("policy", &["json"]),
    ("job", &["json", "policy"]),
    ("claude", &["json", "policy"]),
    ("telemetry", &["json", "policy", "job"]),
    ("api", &["json", "policy", "job", "claude", "telemetry"]),
    ("config", &["json", "policy", "job", "api"]),
    ("submission", &["json", "policy", "job", "claude", "api", "config"]),
    ("call", &["policy", "config"]),
    ("delivery", &["json", "policy", "job", "claude", "config", "call"]),
    ("relay", &["json", "policy", "job", "claude", "api", "config", "call"]),
    (
        "edge",
        &["json", "policy", "job", "claude", "telemetry", "api", "config", "call", "submission", "delivery", "relay"],
    ),
];

/// What reads a clock, draws randomness or touches the world, and so belongs to the edge. Maps with a hasher of their own
/// are seeded at random: what iterates over one is not the same twice.
const WORLDLY: [&str; 17] = [
    "std::time::Instant",
    "std::time::SystemTime::now",
    "Instant",
    "SystemTime::now",
    "std::thread",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "std::collections::HashMap",
    "std::collections::HashSet",
    "std::collections::hash_map",
    "std::hash::RandomState",
    "fastrand::Rng::new",
    "Rng::new",
    "Date",
];

/// The crates that policy may use, apart from std: data, dates and the generator that its callers seed.
const POLICY_CRATES: [&str; 3] = ["serde", "httpdate", "fastrand"];

/// What can be read in one sitting, tests included.
const MAX_LINES: usize = 500;

/// The unit of a path of ours: the longest that it begins with.
fn unit_of(path: &[String]) -> Option<&'static str> {
    let inside = path.strip_prefix(&["crate".to_owned()])?;
    UNITS
        .iter()
        .map(|(unit, _)| *unit)
        .filter(|unit| {
            let parts: Vec<&str> = unit.split("::").collect();
            inside.len() >= parts.len() && inside.iter().zip(&parts).all(|(a, b)| a == b)
        })
        .max_by_key(|unit| unit.len())
}

fn starts_with(path: &[String], prefix: &str) -> bool {
    let std_or_core = |part: &str| if part == "core" { "std" } else { part }.to_owned();
    let path: Path =
        path.iter().enumerate().map(|(i, part)| if i == 0 { std_or_core(part) } else { part.clone() }).collect();
    let parts: Vec<&str> = prefix.split("::").collect();
    path.len() >= parts.len() && path.iter().zip(&parts).all(|(a, b)| a == b)
}

/// Everything that is wrong with a file.
fn complaints(file: &str, text: &str, crates: &cargo::Crates) -> Vec<String> {
    let Some(unit) = unit_of(&module_of(file)) else { return Vec::new() };
    let allowed = UNITS.iter().find(|(name, _)| *name == unit).map_or(&[][..], |(_, allowed)| allowed);
    let mut complaints = Vec::new();
    for Found { path, in_tests } in paths(file, text) {
        let root = path.first().map(String::as_str).unwrap_or_default();
        let what = if let Some(used) = unit_of(&path) {
            (used != unit && !allowed.contains(&used)).then(|| format!("{unit} may not use {used}"))
        } else if unit == "edge" {
            None
        } else if in_tests {
            // A test may measure real time, and use what the crate has; the platform's crates it would not find.
            None
        } else if crates.edge.iter().any(|name| name == root) {
            Some(format!("{root} belongs to the edge"))
        } else if WORLDLY.iter().any(|worldly| starts_with(&path, worldly)) || is_unseeded(&path) {
            Some("clocks, randomness and the world belong to the edge".to_owned())
        } else if unit == "policy" && crates.normal.iter().any(|name| name == root) && !POLICY_CRATES.contains(&root) {
            Some(format!("policy may not use the crate {root}"))
        } else {
            None
        };
        complaints.extend(what.map(|what| format!("{file}: {what}: {}", path.join("::"))));
    }
    complaints
}

fn too_long(file: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > MAX_LINES).then(|| format!("{file}: {lines} lines are two concepts"))
}

/// `fastrand::u32(..)` and its like draw from a generator of their own.
fn is_unseeded(path: &[String]) -> bool {
    starts_with(path, "fastrand") && path.get(1).is_some_and(|item| item.starts_with(|c: char| c.is_lowercase()))
}

/// Every source file, with its path from the root of the repository on.
fn sources() -> Vec<(String, String)> {
    fn walk(directory: &FilePath, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap();
                let name = name.to_string_lossy().replace('\\', "/");
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut found = Vec::new();
    walk(&FilePath::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    found
}

#[test]
fn every_arrow_between_rings_points_inwards() {
    let (sources, crates) = (sources(), cargo::Crates::of_the_manifest());
    assert!(sources.len() > 50, "only {} files were found", sources.len());
    let wrong: Vec<String> = sources.iter().flat_map(|(file, text)| complaints(file, text, &crates)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_can_be_read_in_one_sitting() {
    let long: Vec<String> = sources().iter().filter_map(|(file, text)| too_long(file, text)).collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn every_file_but_the_root_belongs_to_a_unit() {
    for (file, _) in sources() {
        assert!(unit_of(&module_of(&file)).is_some() || file == "src/lib.rs", "{file} is in no ring: add it to UNITS");
    }
}

#[test]
fn the_units_have_no_cycle() {
    for (index, (unit, allowed)) in UNITS.iter().enumerate() {
        for used in *allowed {
            let below = UNITS.iter().take(index).any(|(name, _)| name == used);
            assert!(below, "{unit} uses {used}, which is not further in");
        }
    }
}

#[test]
fn the_edge_exists_on_wasm32_alone() {
    let root = sources().into_iter().find(|(file, _)| file == "src/lib.rs").unwrap().1;
    assert!(root.contains("#[cfg(target_arch = \"wasm32\")]\nmod edge;"), "the edge is compiled for the host too");
}

/// The checker itself, on sources that were made up.
#[test]
fn a_wrong_arrow_is_found_however_it_is_written() {
    let crates = cargo::Crates::of_the_manifest();
    let find = |file, text| complaints(file, text, &crates);
    for (file, text, complaint) in [
        ("src/policy/gate.rs", "use crate::job::Record;", "policy may not use job"),
        ("src/policy/gate.rs", "use super::super::job::Record;", "policy may not use job"),
        ("src/policy/gate.rs", "use crate::{policy::time, config};", "policy may not use config"),
        ("src/policy/gate.rs", "fn f(record: &crate::job::Record) {}", "policy may not use job"),
        ("src/policy/gate.rs", "mod tests { use crate::claude::sse::Decoder; }", "policy may not use claude"),
        ("src/policy/gate.rs", "use hmac::Mac;", "policy may not use the crate hmac"),
        ("src/job/record.rs", "use crate::claude::failure::Failure;", "job may not use claude"),
        ("src/job/record.rs", "use crate::api::status::Published;", "job may not use api"),
        ("src/claude/sse.rs", "use crate::job::JobId;", "claude may not use job"),
        ("src/telemetry/event.rs", "use crate::api::error::ApiError;", "telemetry may not use api"),
        ("src/api/status.rs", "use crate::config::Config;", "api may not use config"),
        ("src/api/auth.rs", "use crate::submission::Submission;", "api may not use submission"),
        ("src/delivery.rs", "use crate::submission::Accepted;", "delivery may not use submission"),
        ("src/submission.rs", "use crate::edge::clock;", "submission may not use edge"),
        ("src/submission.rs", "use worker::Env;", "worker belongs to the edge"),
        ("src/job/id.rs", "getrandom::fill(&mut bytes);", "getrandom belongs to the edge"),
        ("src/job/id.rs", "let x = js_sys::Date::now();", "js_sys belongs to the edge"),
        ("src/policy/time.rs", "use std::time::Instant;", "belong to the edge"),
        ("src/policy/time.rs", "use core::time::{Duration, Instant as I};", "belong to the edge"),
        ("src/policy/time.rs", "let now = std::time::SystemTime::now();", "belong to the edge"),
        ("src/policy/time.rs", "use std::time::*; fn f() { SystemTime::now(); }", "belong to the edge"),
        ("src/api/status.rs", "let wait = fastrand::u64(0..9);", "belong to the edge"),
        ("src/delivery.rs", "let rng = fastrand::Rng::new();", "belong to the edge"),
        ("src/delivery.rs", "use std::collections::HashMap;", "belong to the edge"),
        ("src/config/mod.rs", "let key = std::env::var(name);", "belong to the edge"),
    ] {
        let found = find(file, text);
        assert!(found.len() == 1 && found.concat().contains(complaint), "{text}: {found:?}");
    }
}

#[test]
fn a_file_is_too_long_from_its_501st_line_on() {
    assert_eq!(too_long("src/edge/http.rs", &"\n".repeat(MAX_LINES)), None);
    let found = too_long("src/edge/http.rs", &"\n".repeat(MAX_LINES + 1));
    assert_eq!(found.as_deref(), Some("src/edge/http.rs: 501 lines are two concepts"));
}

#[test]
fn a_right_arrow_is_not() {
    let crates = cargo::Crates::of_the_manifest();
    for (file, text) in [
        ("src/policy/gate.rs", "use super::time::Timestamp; use crate::policy::cause::Cause; use std::time::Duration;"),
        ("src/policy/gate.rs", "// use crate::job::Record;\nfn f(rng: &mut fastrand::Rng) { rng.u64(..); }"),
        ("src/policy/retry_after.rs", "httpdate::parse_http_date(text); std::time::UNIX_EPOCH;"),
        ("src/policy/gate.rs", "let rng = fastrand::Rng::with_seed(7);"),
        ("src/policy/gate.rs", "mod tests { use serde_json::Value; use std::time::Instant; }"),
        ("src/config/mod.rs", "use crate::api::auth::Keys;"),
        ("src/submission/form.rs", "use crate::config::Config; use crate::claude::request::MessagesRequest;"),
        ("src/edge/clock.rs", "use worker::Date; use crate::delivery::Step;"),
        ("src/claude/request/shape.rs", "use super::super::raw;"),
    ] {
        assert_eq!(complaints(file, text, &crates), [""; 0], "{text}");
    }
}
