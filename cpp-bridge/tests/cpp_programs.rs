//! Compiles and runs the C++ programs of tests/cpp, which test what Rust cannot call.

#![cfg(simulated_sdk)]
// Clippy allows unwrap and panic in #[test] functions, but not in the functions that they call.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "engines/archive.rs"]
mod archive;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles tests/cpp/`name`.cc with these sources and include folders, and runs it.
fn run(name: &str, sources: &[&str], headers: &[&str], archives: &[PathBuf]) {
    let release = env!("TRTLLM_SIM_RELEASE_NUMBER");
    let out = Path::new(env!("OUT_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{release}"));
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let compiled = Command::new(&compiler)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(std::env::var("CXXFLAGS").unwrap_or_default().split_whitespace())
        .arg(format!("-DTRTLLM_SIM_RELEASE={release}"))
        .args(["-std=c++17", "-O0", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(format!("tests/cpp/{name}.cc"))
        .args(sources)
        .args(archives)
        .args(headers.iter().map(|folder| format!("-I{folder}")))
        .args(["include", "crate"].map(|folder| format!("-isystem{}", out.join("cxxbridge").join(folder).display())))
        .output()
        .unwrap_or_else(|error| panic!("{compiler} cannot be started: {error}"));
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(&program).output().unwrap();
    assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn the_simulated_executor_serves_a_cpp_host() {
    run("executor_api", &[], &["sim/include"], &archive::simulated_sdk());
}

#[test]
fn the_oldest_headers_compile_and_their_missing_members_are_absent() {
    run("oldest_release", &[], &["include", "cpp", "publisher/include", "tests/cpp/oldest", "tests/cpp/either"], &[]);
}

#[test]
fn newer_headers_compile_and_their_members_are_read() {
    run("newest_release", &[], &["include", "cpp", "publisher/include", "tests/cpp/newest", "tests/cpp/either"], &[]);
}

#[test]
fn records_have_exactly_the_members_of_their_release() {
    run("release_records", &[], &["include", "cpp", "publisher/include", "sim/include"], &archive::simulated_sdk());
}
