//! Programs and libraries of other packages of the workspace.

use std::path::PathBuf;
use std::process::Command;

/// Builds what the arguments of cargo select, and returns the path of one of its files. Cargo passes neither libraries nor
/// programs of other packages to tests.
pub(crate) fn built(selected: &[&str], file: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    // The test's own path is <target>/<profile>/deps/<test>.
    let profile = test.ancestors().nth(2).unwrap();
    let name = match profile.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        other => other,
    };
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--profile", name, "--target-dir"]).arg(profile.parent().unwrap()).args(selected);
    let status = build.arg("--manifest-path").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).status().unwrap();
    assert!(status.success(), "cargo build {selected:?}: {status}");
    profile.join(file)
}
