//! Gives the crate its build information: the compiler, and the revision and date of its commit.

use std::path::Path;
use std::process::Command;

/// Environment variables for a build from a folder without git. deploy/release/build.sh sets them.
const REVISION: &str = "TRTLLM_EXPORTER_REVISION";
const COMMIT_DATE: &str = "TRTLLM_EXPORTER_COMMIT_DATE";
/// `git archive` writes the commit into this file, so that a source tarball contains it.
const ARCHIVE: &str = "../../deploy/release/commit";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    // "rustc 1.95.0 (59807616e 2026-04-14)": a bug report needs the number only.
    let compiler = output(&rustc, &["--version"]).and_then(|text| Some(text.split_whitespace().nth(1)?.to_owned()));
    let (revision, date) = commit().unwrap_or_else(|| ("unknown".to_owned(), "unknown".to_owned()));
    println!("cargo::rustc-env=TRTLLM_EXPORTER_RUSTC={}", compiler.as_deref().unwrap_or("unknown"));
    println!("cargo::rustc-env={REVISION}={revision}");
    println!("cargo::rustc-env={COMMIT_DATE}={date}");
}

/// The revision and the date of the source, if they are known.
fn commit() -> Option<(String, String)> {
    for name in [REVISION, COMMIT_DATE] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rerun-if-changed={ARCHIVE}");
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(revision) = set(REVISION) {
        return Some((revision, set(COMMIT_DATE).unwrap_or_else(|| "unknown".to_owned())));
    }
    if let Some((revision, date)) = std::fs::read_to_string(ARCHIVE).ok()?.trim().split_once(' ')
        && !revision.starts_with('$')
    {
        return Some((revision.to_owned(), date.to_owned()));
    }
    // Debug builds do not ask git: each commit would compile the crate again.
    if set("PROFILE").as_deref() != Some("release") {
        return None;
    }
    // With another prefix, git has found the repository of a project around this one.
    let git = |arguments: &[&str]| output("git", arguments);
    git(&["rev-parse", "--show-prefix"]).filter(|prefix| prefix == "crates/page/")?;
    // Cargo runs this script again after the next commit. For a file that does not exist, it would always run the
    // script.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    let (revision, date) = git(&["log", "-1", "--format=%H %cs"])?
        .split_once(' ')
        .map(|(revision, date)| (revision.to_owned(), date.to_owned()))?;
    Some((revision, date))
}

/// The standard output of a program that succeeds.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
