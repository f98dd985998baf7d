//! Programs and libraries of other packages of the workspace.

use std::path::PathBuf;
use std::process::Command;

/// The path of a program of the workspace, which is built if it must be. Cargo passes neither libraries nor programs of
/// other packages to tests. The features are those of the whole workspace, as in `cargo test --workspace`: with those of
/// one package, cargo would build most dependencies once more.
pub(crate) fn program(name: &str) -> PathBuf {
    built(&["--workspace", "--bin", name], name)
}

/// Builds what the arguments select, and returns the path of the file.
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
