//! Data flows in one direction, so a crate may use only the crates of this project that MAY_USE lists for it. Cargo itself
//! refuses only circles. Dependencies of tests may point in any direction.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::support;

/// Each crate, after all crates that it may use. The daemon (`trtllm-exporter`) may use all of them but `trtllm-doctor`.
const MAY_USE: &[(&str, &[&str])] = &[
    ("trtllm-records", &[]),
    ("trtllm-service", &[]),
    ("exporter-web-config", &[]),
    ("nvml-standin", &[]),
    ("trtllm-sim", &[]),
    ("trtllm-sim-c", &["trtllm-sim"]),
    ("trtllm-sim-serve", &["trtllm-sim"]),
    ("trtllm-bridge", &["trtllm-sim-c"]),
    ("trtllm-fold", &["trtllm-records"]),
    ("trtllm-gpu", &["trtllm-records"]),
    ("trtllm-recording", &["trtllm-records", "trtllm-service"]),
    ("trtllm-sources", &["trtllm-bridge", "trtllm-recording", "trtllm-records", "trtllm-service", "trtllm-sim"]),
    ("trtllm-analysis", &["trtllm-fold", "trtllm-records"]),
    ("trtllm-verdict", &["trtllm-analysis", "trtllm-fold", "trtllm-records"]),
    ("trtllm-what-if", &["trtllm-analysis", "trtllm-fold", "trtllm-records"]),
    (
        "trtllm-engines",
        &["trtllm-analysis", "trtllm-fold", "trtllm-records", "trtllm-service", "trtllm-verdict", "trtllm-what-if"],
    ),
    (
        "trtllm-page",
        &[
            "trtllm-analysis",
            "trtllm-fold",
            "trtllm-engines",
            "trtllm-records",
            "trtllm-service",
            "trtllm-verdict",
            "trtllm-what-if",
        ],
    ),
    (
        "trtllm-intake",
        &[
            "trtllm-analysis",
            "trtllm-fold",
            "trtllm-engines",
            "trtllm-records",
            "trtllm-recording",
            "trtllm-service",
            "trtllm-sources",
        ],
    ),
    (
        "trtllm-http",
        &[
            "exporter-web-config",
            "trtllm-analysis",
            "trtllm-fold",
            "trtllm-engines",
            "trtllm-records",
            "trtllm-page",
            "trtllm-service",
            "trtllm-verdict",
            "trtllm-what-if",
        ],
    ),
    ("trtllm-config", &["trtllm-engines", "trtllm-page", "trtllm-records", "trtllm-service", "trtllm-sources"]),
    (
        "trtllm-doctor",
        &[
            "trtllm-analysis",
            "trtllm-config",
            "trtllm-fold",
            "trtllm-http",
            "trtllm-intake",
            "trtllm-page",
            "trtllm-recording",
            "trtllm-records",
            "trtllm-service",
            "trtllm-sources",
            "trtllm-verdict",
            "trtllm-what-if",
        ],
    ),
];

/// Libraries that the daemon must not contain: those of a terminal, and two that its crates do without.
const NOT_IN_DAEMON: [&str; 4] = ["ratatui", "crossterm", "arc-swap", "serde_with"];
/// Most packages in the daemon, with its own crates.
const MAX_PACKAGES: usize = 200;
/// The crates that may use clap: the two programs, what their command lines share, and the stand-in for trtllm-serve.
const USE_CLAP: [&str; 4] = ["trtllm-exporter", "trtllm-doctor", "trtllm-config", "trtllm-sim-serve"];

#[test]
fn the_daemon_contains_no_terminal_library_and_few_packages() {
    let arguments = ["tree", "--offline", "--locked", "--edges=normal", "--package=trtllm-exporter", "--prefix=none"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(support::root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let packages: BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?))
        })
        .collect();
    assert!(packages.iter().any(|(name, _)| *name == "tokio"), "{tree}");
    for (name, _) in &packages {
        assert!(!NOT_IN_DAEMON.iter().any(|other| name.starts_with(other)), "the daemon contains {name}");
    }
    assert!(packages.len() <= MAX_PACKAGES, "the daemon has {} packages", packages.len());
}

#[test]
fn each_crate_uses_only_crates_that_it_may_use() {
    let arguments = ["metadata", "--format-version=1", "--no-deps", "--offline"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(support::root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let workspace: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut wrong = Vec::new();
    for package in workspace["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        if name == "trtllm-exporter" {
            continue;
        }
        let Some((_, allowed)) = MAY_USE.iter().find(|(of, _)| *of == name) else {
            wrong.push(format!(
                "{name} is missing; add it to MAY_USE in tests/it/layering.rs, after all crates that it uses"
            ));
            continue;
        };
        let own = package["dependencies"].as_array().unwrap().iter();
        if own.clone().any(|dependency| dependency["name"] == "clap") && !USE_CLAP.contains(&name) {
            wrong.push(format!("{name} must not use clap; parse the text of a flag with FromStr"));
        }
        let own = own.filter(|dependency| dependency["path"].is_string() && dependency["kind"] != "dev");
        for used in own.map(|dependency| dependency["name"].as_str().unwrap()).filter(|used| !allowed.contains(used)) {
            let manifest = package["manifest_path"].as_str().unwrap();
            wrong.push(format!(
                "{name} must not use {used}; remove the dependency from {manifest}, or allow it in MAY_USE in tests/it/layering.rs"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// With this order, no list of allowed crates can turn the direction of the data around.
#[test]
fn no_crate_may_use_a_crate_that_comes_after_it() {
    let mut before = BTreeSet::new();
    for (name, allowed) in MAY_USE {
        for used in *allowed {
            assert!(before.contains(used), "MAY_USE allows {name} to use {used}, which does not come before it");
        }
        before.insert(name);
    }
}
