//! The real programs for tests: the daemon, the simulated trtllm-serve, Prometheus, and a reader of their pages.
//! Tests wait for conditions, never for a fixed time. The deadline is so long that only a hang reaches it.

pub(crate) mod built;
pub(crate) mod daemon;
pub(crate) mod fold_page;
pub(crate) mod golden;
pub(crate) mod http;
pub(crate) mod ingest;
pub(crate) mod kubernetes;
pub(crate) mod lookalike;
pub(crate) mod orchestrator;
pub(crate) mod page;
pub(crate) mod pki;
pub(crate) mod process;
pub(crate) mod prometheus;
pub(crate) mod served;
pub(crate) mod server;
pub(crate) mod sessions;
pub(crate) mod standin;

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// The deadline of every wait. No busy build machine pauses that long.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// Repeats `attempt` until it returns `Ok`. After [`TIMEOUT`], panics with its last error.
pub(crate) fn until<T>(mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    // Starts with a short pause, because most waits are short.
    let mut pause = Duration::from_millis(1);
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(error) => assert!(Instant::now() < deadline, "after {TIMEOUT:?} still: {error}"),
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// `Err` with the message if the condition is false.
pub(crate) fn ensure(condition: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(message()) }
}

/// True if tests run at full size, which takes long (`TRTLLM_TEST_LONG=1`). Otherwise they are just large enough to
/// find the bugs that they have found before.
pub(crate) fn long() -> bool {
    std::env::var_os("TRTLLM_TEST_LONG").is_some()
}

/// A tool that `tests/run` names in the environment or has installed under `target/tools`.
pub(crate) fn tool(variable: &str, installed: &str) -> PathBuf {
    let path = std::env::var_os(variable).map_or_else(|| root().join("target/tools").join(installed), PathBuf::from);
    assert!(path.is_file(), "{} ({variable}) does not exist; run tests/run to install it", path.display());
    path
}

/// The path of a program from a Debian package.
pub(crate) fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{name} is not installed; run tests/run to install it"))
}

/// The path of a Python interpreter with prometheus_client.
pub(crate) fn python() -> PathBuf {
    tool("TRTLLM_TEST_PYTHON", "venv/bin/python")
}

/// `tests/go/expfmt`, which reads pages with Prometheus's Go library. Built once.
pub(crate) fn expfmt() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build_go("expfmt"))
}

/// Builds the Go program in `tests/go/NAME`. If several processes call this, Go's lock and cache ensure that it is
/// built only once.
pub(crate) fn build_go(name: &str) -> PathBuf {
    let go = std::env::var_os("TRTLLM_TEST_GO").map_or_else(|| program("go"), PathBuf::from);
    let binary = root().join("target/tools").join(name);
    let mut build = Command::new(go);
    build.args(["build", "-mod=readonly", "-o"]).arg(&binary).arg(".").current_dir(root().join("tests/go").join(name));
    let output = build.env_remove("GOFLAGS").output().expect("go");
    assert!(output.status.success(), "tests/go/{name}: {}", String::from_utf8_lossy(&output.stderr));
    binary
}

/// Pseudo-random numbers (xorshift64) that are the same on every machine.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// An index of a list of this length, or 0.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.below(length.max(1) as u64) as usize
    }
}

/// Adds a line to the file of this kind of server that TensorRT-LLM writes instead of `/perf_metrics`.
pub(crate) fn write_line(directory: &Path, kind: &str, line: impl Display) {
    let path = directory.join(format!("perf_metrics-{kind}-gpu7-41-20261101T000000Z.jsonl"));
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// The payload of a JSON file in `tests/fixtures`.
pub(crate) fn payload(fixture: &str) -> Value {
    let text = std::fs::read_to_string(root().join("tests/fixtures").join(fixture)).expect("a fixture");
    let file: Value = serde_json::from_str(&text).expect("JSON");
    assert!(file["_source"].as_str().is_some_and(|source| !source.is_empty()), "{fixture} does not name its source");
    assert!(file["_kind"].is_string(), "{fixture} does not say whether it is real");
    file["payload"].clone()
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
