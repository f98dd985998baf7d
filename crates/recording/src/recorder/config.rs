//! Where the recorder writes.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::Access;

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
    /// Checks the directory without creating or locking it: another process may record into it now. Fails if it cannot
    /// be read and written, or cannot be created.
    pub fn check(&self) -> Result<(), RecorderError> {
        let failed = |cause: io::Error| RecorderError::Directory { directory: self.directory.clone(), cause };
        let exists = match std::fs::read_dir(&self.directory) {
            Ok(_) => Some(&*self.directory),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                let parents = self.directory.ancestors().skip(1);
                // The parent of a relative path such as `recordings` is the empty path.
                let parents = parents.map(|path| if path.as_os_str().is_empty() { Path::new(".") } else { path });
                parents.into_iter().find(|path| path.exists())
            }
            Err(cause) => return Err(failed(cause)),
        };
        let Some(exists) = exists else { return Ok(()) };
        rustix::fs::access(exists, Access::WRITE_OK | Access::EXEC_OK).map_err(|cause| failed(cause.into()))
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
