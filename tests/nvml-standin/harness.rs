//! The stand-in from a Rust test: `#[path = "nvml-standin/harness.rs"] mod standin;`. Builds the library once per
//! test binary (cargo hands no cdylib's path to tests) and gives each test a copy of its own beside its own control
//! file: one process can then hold several that do not see each other.
#![allow(dead_code)] // each test binary that includes this uses what it needs

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

/// One NVML in a directory of its own.
pub(crate) struct Standin {
    dir: tempfile::TempDir,
}

impl Standin {
    /// With a control file's first content; see the crate's `state` module for the format.
    pub(crate) fn new(state: &str) -> Self {
        let standin = Self::not_installed(state);
        standin.install();
        standin
    }

    /// The control file, but no library yet.
    pub(crate) fn not_installed(state: &str) -> Self {
        let standin = Self { dir: tempfile::tempdir().unwrap() };
        standin.set(state);
        standin
    }

    /// Puts the library in place. A copy, not a link: the loader takes one inode for one library.
    pub(crate) fn install(&self) {
        let draft = self.dir.path().join("draft.so");
        fs::copy(built(), &draft).unwrap();
        fs::rename(draft, self.library()).unwrap();
    }

    /// For `--gpu.library`.
    pub(crate) fn library(&self) -> PathBuf {
        self.dir.path().join("libnvidia-ml.so.1")
    }

    /// Replaces the control file in one step, so that no reader sees half of it.
    pub(crate) fn set(&self, state: &str) {
        let log = self.dir.path().join("log");
        let draft = self.dir.path().join("draft");
        fs::write(&draft, format!("log={}\n{state}", log.display())).unwrap();
        fs::rename(draft, self.dir.path().join("libnvidia-ml.so.1.state")).unwrap();
    }

    /// `init`, `shutdown` and `hang <index> <call>`, as they came.
    pub(crate) fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// The library, built into the target directory that this test runs from.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let test = env::current_exe().unwrap();
        // <target>/<profile>/deps/<test>
        let profile = test.ancestors().nth(2).unwrap();
        let name = match profile.file_name().unwrap().to_str().unwrap() {
            "debug" => "dev",
            other => other,
        };
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "nvml-standin", "--profile", name, "--target-dir"])
            .arg(profile.parent().unwrap())
            .arg("--manifest-path")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
            .status()
            .unwrap();
        assert!(status.success(), "cargo build -p nvml-standin: {status}");
        profile.join("libnvml_standin.so")
    })
}
