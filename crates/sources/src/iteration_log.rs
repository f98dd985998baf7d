//! The iteration log of a server (`print_iter_log: true`): one line for each pass of the engine's loop, between other
//! lines of the server's log. A file is followed like `tail -F` does; `-` is the standard input.

mod line;
mod records;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use trtllm_service::small_file;

use super::perf_metrics_dir::LinesDir;
use super::perf_metrics_dir::files::{FollowedLines, LineFiles};
use super::{Batch, OpenError, Presence, SourceError};

use records::IterationLog;
pub use records::{LoggedMessages, NO_LINES, is_log};

/// Longest line of the standard input, in bytes. A line with the length of each of 2048 requests is shorter.
const MAX_LINE: usize = 64 << 10;
/// A pass whose successor is not written within this time is delivered without it.
const PATIENCE: Duration = Duration::from_secs(2);

/// A log that is being followed.
#[derive(Debug)]
pub struct FollowedLog {
    path: PathBuf,
    input: Input,
    /// When the last line came.
    last: Instant,
}

#[derive(Debug)]
enum Input {
    /// With the path of the file behind symbolic links, such as those of Kubernetes.
    File(PathBuf, Box<LineFiles<LogLines>>),
    /// With the beginning of a line, up to [`MAX_LINE`].
    Stdin(Vec<u8>, Box<IterationLog>),
}

/// The lines of the file with this name.
#[derive(Debug, Default)]
struct LogLines {
    name: OsString,
    log: IterationLog,
}

impl FollowedLines for LogLines {
    fn are_in(&self, name: &OsStr) -> bool {
        name == self.name
    }

    fn parse(&mut self, line: &[u8], batch: &mut Batch) {
        self.log.absorb(line, batch);
    }
}

const MISSING: &str = "the file does not exist, or not yet";
/// Parts of 16 KiB of the standard input that one poll reads.
const MOST_PARTS: u32 = 64;

/// Checks that the file can be read, if it exists: the server may create it later. Fails if it exists and cannot be
/// read.
pub fn check(path: &Path) -> Result<(), OpenError> {
    match small_file::open_regular(path, OFlags::empty()) {
        Err(cause) if !is_stdin(path) && cause.kind() != io::ErrorKind::NotFound => {
            Err(OpenError::Log { path: path.to_owned(), cause })
        }
        _ => Ok(()),
    }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

fn follow(target: &Path, from_start: bool, log: IterationLog) -> Box<LineFiles<LogLines>> {
    let path = target.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let lines = LogLines { name: target.file_name().unwrap_or_default().to_owned(), log };
    Box::new(LineFiles::new(LinesDir { path: path.to_owned(), from_start }, lines))
}

impl FollowedLog {
    /// Opens the log. `from_start`: whether the lines that the file already has count, too. Fails as [`check`], or if
    /// the standard input is closed.
    pub async fn open(path: PathBuf, from_start: bool) -> Result<Self, OpenError> {
        let opening = path.clone();
        let opened = tokio::task::spawn_blocking(move || Self::open_now(opening, from_start)).await;
        opened.unwrap_or_else(|error| Err(OpenError::Log { path, cause: error.into() }))
    }

    fn open_now(path: PathBuf, from_start: bool) -> Result<Self, OpenError> {
        check(&path)?;
        let input = if is_stdin(&path) {
            // A read must not wait for the writer of the pipe.
            let unblocked =
                fcntl_getfl(io::stdin()).and_then(|flags| fcntl_setfl(io::stdin(), flags | OFlags::NONBLOCK));
            unblocked.map_err(|cause| OpenError::Log { path: path.clone(), cause: cause.into() })?;
            Input::Stdin(Vec::new(), Box::default())
        } else {
            let target = path.canonicalize().unwrap_or_else(|_| path.clone());
            let files = follow(&target, from_start, IterationLog::default());
            Input::File(target, files)
        };
        Ok(Self { path, input, last: Instant::now() })
    }

    pub(super) fn target(&self) -> String {
        format!("log:{}", self.path.display())
    }

    /// Reads the lines that are there, and does not wait for others.
    pub(super) fn poll(&mut self, batch: &mut Batch) -> Result<Presence, SourceError> {
        let read = match &mut self.input {
            Input::File(target, files) => {
                if let Ok(now) = self.path.canonicalize()
                    && now != *target
                {
                    *files = follow(&now, true, std::mem::take(&mut files.lines.log));
                    *target = now;
                }
                files
                    .read()
                    .and_then(|read| if files.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(read) })
            }
            Input::Stdin(rest, log) => read_stdin(rest, log),
        };
        let read = read.map_err(|cause| SourceError::Io {
            target: self.target(),
            cause: if cause.kind() == io::ErrorKind::NotFound { MISSING.to_owned() } else { cause.to_string() },
        })?;
        let log = match &mut self.input {
            Input::File(_, files) => &mut files.lines.log,
            Input::Stdin(_, log) => log,
        };
        (batch.more, batch.ended) = (read.more, read.ended);
        let is_silent = read.messages.is_empty();
        batch.append(read);
        if !is_silent {
            self.last = Instant::now();
        } else if batch.ended || self.last.elapsed() >= PATIENCE {
            log.flush(batch);
        }
        batch.notice = log.notice();
        Ok(Presence::Present)
    }
}

/// Reads the lines that are there.
fn read_stdin(rest: &mut Vec<u8>, log: &mut IterationLog) -> io::Result<Batch> {
    let (mut batch, mut buffer, mut parts) = (Batch::default(), [0; 16 << 10], 0);
    while batch.has_room() && parts < MOST_PARTS {
        parts += 1;
        let read = match rustix::io::read(io::stdin(), &mut buffer) {
            Err(rustix::io::Errno::AGAIN) => break,
            Err(rustix::io::Errno::INTR) => continue,
            read => read?,
        };
        batch.ended = read == 0;
        if batch.ended {
            return Ok(batch);
        }
        for part in buffer[..read].split_inclusive(|byte| *byte == b'\n') {
            rest.extend_from_slice(&part[..part.len().min(MAX_LINE - rest.len())]);
            if part.ends_with(b"\n") {
                log.absorb(rest, &mut batch);
                rest.clear();
            }
        }
    }
    batch.more = !batch.has_room() || parts == MOST_PARTS;
    Ok(batch)
}

#[cfg(test)]
mod tests;
