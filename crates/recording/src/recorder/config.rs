//! Where the recorder writes.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Where to record, and how much to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecorderConfig {
    pub directory: PathBuf,
    /// Maximum bytes of all segments together.
    pub max_size: u64,
    /// Older segments are deleted.
    pub max_age: Option<Duration>,
    /// Time without news after which engines are stale. It is recorded, so that a reader judges them in the same way.
    pub stale_after: Duration,
}

impl RecorderConfig {
    /// Checks the directory without creating or locking it: another process may record into it now.
    ///
    /// # Errors
    /// If it cannot be used.
    pub fn check(&self) -> Result<(), RecorderError> {
        match std::fs::read_dir(&self.directory) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                Err(RecorderError::Directory { directory: self.directory.clone(), cause })
            }
            _ => Ok(()),
        }
    }
}

/// Why the recorder cannot start.
#[derive(Debug, thiserror::Error)]
pub enum RecorderError {
    #[error("--record.dir {directory}: another exporter records into it; give each exporter its own directory")]
    Locked { directory: PathBuf },
    #[error("--record.dir {directory}: {cause}; choose a directory that the exporter can write to")]
    Directory { directory: PathBuf, cause: io::Error },
}
