//! What Cargo.toml and cargo itself say about whose crates are whose.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

/// Crates by the name that they have in sources.
#[derive(Debug)]
pub(crate) struct Crates {
    /// Of every target.
    pub(crate) normal: Vec<String>,
    /// Of wasm32 alone, which is the edge.
    pub(crate) edge: Vec<String>,
}

impl Crates {
    pub(crate) fn of_the_manifest() -> Self {
        let manifest = include_str!("../../Cargo.toml");
        let edge = section(manifest, r#"[target.'cfg(target_arch = "wasm32")'.dependencies]"#);
        Self { normal: section(manifest, "[dependencies]"), edge }
    }
}

/// The names in one section of a manifest.
fn section(manifest: &str, header: &str) -> Vec<String> {
    manifest
        .lines()
        .skip_while(|line| line.trim() != header)
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once('=').map(|(name, _)| name.trim().replace('-', "_")))
        .filter(|name| !name.starts_with('#'))
        .collect()
}

fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| env!("CARGO").to_owned());
    let output = Command::new(cargo).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The names of all packages that the host needs, with those for tests or without.
fn host_packages(with_tests: bool) -> BTreeSet<String> {
    let version = cargo(&["-vV"]);
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--format-version", "1", "--locked", "--filter-platform", host]))
            .unwrap();
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let mut packages = BTreeSet::new();
    let mut next = vec![metadata["resolve"]["root"].as_str().unwrap()];
    let mut seen = BTreeSet::new();
    while let Some(id) = next.pop() {
        if !seen.insert(id) {
            continue;
        }
        let package = metadata["packages"].as_array().unwrap().iter().find(|package| package["id"] == id).unwrap();
        packages.insert(package["name"].as_str().unwrap().to_owned());
        for dependency in nodes.iter().find(|node| node["id"] == id).unwrap()["deps"].as_array().unwrap() {
            let kinds = dependency["dep_kinds"].as_array().unwrap();
            if with_tests || kinds.iter().any(|kind| kind["kind"] != "dev") {
                next.push(dependency["pkg"].as_str().unwrap());
            }
        }
    }
    packages
}

#[test]
fn no_crate_of_the_platform_is_in_the_hosts_dependency_tree() {
    let edge = Crates::of_the_manifest().edge;
    assert!(edge.iter().any(|name| name == "worker") && edge.len() >= 8, "{edge:?}");
    let packages = host_packages(false);
    assert!(packages.contains("serde") && !packages.contains("proptest"), "{packages:?}");
    for name in packages {
        assert!(!edge.contains(&name.replace('-', "_")), "{name} is needed on the host");
    }
}

#[test]
fn neither_are_those_of_a_worker_among_the_crates_for_tests() {
    let packages = host_packages(true);
    assert!(packages.contains("proptest"), "{packages:?}");
    for name in packages {
        let is_platform =
            ["worker", "wasm-bindgen", "js-sys", "web-sys"].iter().any(|platform| name.starts_with(platform));
        assert!(!is_platform && name != "console_error_panic_hook", "{name} is needed on the host");
    }
}

#[test]
fn a_section_is_read_to_the_next_header() {
    let manifest = "[a]\nx = 1\n# y = 2\nz-z = { version = \"1\" }\n\n[b]\nw = 1\n";
    assert_eq!(section(manifest, "[a]"), ["x", "z_z"]);
    assert_eq!(section(manifest, "[c]"), [""; 0]);
}
