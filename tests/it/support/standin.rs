//! The stand-in for NVML. Each test gets its own copy of the library with its own control file, so one process can load
//! several independent copies.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use super::built::built;

/// A library and its control file, in their own directory.
pub(crate) struct Standin {
    dir: tempfile::TempDir,
}

impl Standin {
    /// `state` is the first content of the control file; the crate's `state` module describes the format.
    pub(crate) fn new(state: &str) -> Self {
        let standin = Self::not_installed(state);
        standin.install();
        standin
    }

    /// Writes the control file, but not the library.
    pub(crate) fn not_installed(state: &str) -> Self {
        let standin = Self { dir: tempfile::tempdir().unwrap() };
        standin.set(state);
        standin
    }

    /// Copies the library. A link would not do, because the loader loads the same inode only once.
    pub(crate) fn install(&self) {
        static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
        let draft = self.dir.path().join("draft.so");
        fs::copy(LIBRARY.get_or_init(|| built(&["--package", "nvml-standin"], "libnvml_standin.so")), &draft).unwrap();
        fs::rename(draft, self.library()).unwrap();
    }

    /// The path for `--gpu.library`.
    pub(crate) fn library(&self) -> PathBuf {
        self.dir.path().join("libnvidia-ml.so.1")
    }

    /// Replaces the control file atomically.
    pub(crate) fn set(&self, state: &str) {
        let log = self.dir.path().join("log");
        let draft = self.dir.path().join("draft");
        fs::write(&draft, format!("log={}\n{state}", log.display())).unwrap();
        fs::rename(draft, self.dir.path().join("libnvidia-ml.so.1.state")).unwrap();
    }

    /// The lines `init`, `shutdown` and `hang <index> <call>` of the log, in order.
    pub(crate) fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}
