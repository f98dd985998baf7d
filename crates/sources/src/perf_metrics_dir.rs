//! The JSON lines that TensorRT-LLM writes for finished requests if `perf_metrics_output_dir` is set. They replace
//! `/perf_metrics`. A separate task reads the files: a disk that hangs must not delay the records.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use trtllm_records::{Message, PerfMetricsEntry, RejectReason};

use super::batch::{Batch, Presence};
use super::error::{OpenError, SourceError};
pub use super::followed_lines::LinesDir;
use super::followed_lines::{FollowedLines, LineFiles};
use super::keys::KeyWatch;
use super::trtllm_json::read_message;

/// Time from the start of one pass over the files to the next.
const INTERVAL: Duration = Duration::from_secs(1);
/// A pass that takes longer counts as hanging.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Which lines of the directory belong to the source. A line of an orchestrator has both parts of a request: that of the
/// context server and that of the generation server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineOwner {
    /// The lines of one server. The lines of an orchestrator are left out.
    Server,
    /// The lines of all programs that write into the directory. Lines with one part of a request are left out: the
    /// orchestrator writes both.
    Deployment,
}

/// The reader of a directory.
#[derive(Debug)]
pub struct PerfMetricsDir {
    dir: LinesDir,
    owner: LineOwner,
    /// `None` while a task reads them.
    files: Option<LineFiles<RequestLines>>,
    /// The task that reads the files, if there is one.
    pass: JoinSet<(LineFiles<RequestLines>, Batch, std::io::Result<()>)>,
    begun: Instant,
    due: Instant,
    failure: Option<std::io::Error>,
    left_out: bool,
    pub(super) has_lines: bool,
}

impl PerfMetricsDir {
    pub(super) fn new(dir: LinesDir, owner: LineOwner) -> Self {
        let now = Instant::now();
        Self {
            files: Some(LineFiles::new(dir.clone(), RequestLines::new(owner))),
            dir,
            owner,
            pass: JoinSet::new(),
            begun: now,
            due: now,
            failure: None,
            left_out: false,
            has_lines: false,
        }
    }

    /// Opens the directory as a source of its own. Fails as [`LinesDir::check`].
    pub async fn open(dir: LinesDir) -> Result<Self, OpenError> {
        dir.check_beside().await?;
        Ok(Self::new(dir, LineOwner::Deployment))
    }

    pub(super) fn target(&self) -> String {
        format!("perf-metrics:{}", self.dir.path.display())
    }

    /// Polls the directory as a source of its own. As such, the directory must exist.
    pub(super) fn poll_alone(&mut self, batch: &mut Batch) -> Result<Presence, SourceError> {
        self.poll(batch);
        if self.left_out && !self.has_lines {
            batch.notice = Some(ONLY_PARTS);
        }
        match &self.failure {
            None if self.hangs() => {
                let cause = format!("a read has not ended within {TIMEOUT:?}");
                Err(SourceError::Io { target: self.target(), cause })
            }
            None => Ok(Presence::Present),
            Some(cause) => Err(SourceError::Directory {
                path: self.dir.path.clone(),
                cause: std::io::Error::new(cause.kind(), cause.to_string()),
            }),
        }
    }

    /// Takes the lines of the last pass, and starts the next one if it is due. Does not wait.
    pub(super) fn poll(&mut self, batch: &mut Batch) {
        let mut more = false;
        match self.pass.try_join_next() {
            Some(Ok((files, read, result))) => {
                self.left_out |= files.lines.has_left_out;
                (self.files, self.failure, more) = (Some(files), result.err(), read.more);
                self.has_lines |= !read.messages.is_empty();
                batch.append(read);
            }
            Some(Err(panicked)) => {
                self.failure = Some(std::io::Error::other(panicked));
                // The same lines could cause another panic, so they are left out.
                let dir = LinesDir { from_start: false, ..self.dir.clone() };
                self.files = Some(LineFiles::new(dir, RequestLines::new(self.owner)));
            }
            None => {}
        }
        let now = Instant::now();
        if self.pass.is_empty()
            && (more || now >= self.due)
            && let Some(mut files) = self.files.take()
        {
            (self.begun, self.due) = (now, now + INTERVAL);
            self.pass.spawn_blocking(move || {
                let mut batch = Batch::default();
                let result = files.read(&mut batch);
                (files, batch, result)
            });
        }
    }

    fn hangs(&self) -> bool {
        !self.pass.is_empty() && self.begun.elapsed() >= TIMEOUT
    }

    /// What is wrong, and what the user should do.
    pub(super) fn problem(&self) -> Option<&'static str> {
        match &self.failure {
            None => self.hangs().then_some(HANGS),
            Some(error) => Some(match error.kind() {
                std::io::ErrorKind::NotFound => MISSING,
                std::io::ErrorKind::PermissionDenied => FORBIDDEN,
                _ => UNREADABLE,
            }),
        }
    }
}

/// The lines of finished requests.
#[derive(Debug)]
pub(super) struct RequestLines {
    owner: LineOwner,
    keys: KeyWatch,
    /// True if lines were left out because another program writes lines for the same requests.
    pub(super) has_left_out: bool,
}

impl RequestLines {
    pub(super) fn new(owner: LineOwner) -> Self {
        Self { owner, keys: KeyWatch::default(), has_left_out: false }
    }
}

impl FollowedLines for RequestLines {
    fn are_in(&self, name: &OsStr) -> bool {
        let name = name.to_string_lossy();
        (name.starts_with("perf_metrics-") || name.starts_with("perf-metrics-")) && name.ends_with(".jsonl")
    }

    fn absorb(&mut self, line: &[u8], batch: &mut Batch) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        self.keys.look_at(line, &mut batch.keys);
        let Ok(text) = std::str::from_utf8(line) else { return batch.reject(RejectReason::NotJson) };
        let entry: PerfMetricsEntry = match read_message(text) {
            Ok(entry) => entry,
            Err(RejectReason::NotARecord) => return batch.reject(RejectReason::NotARecord),
            Err(_) => return batch.reject(RejectReason::NotJson),
        };
        let is_whole = entry.ctx_perf_metrics.is_some()
            || entry.gen_perf_metrics.is_some()
            || entry.disagg_server_arrival_time.is_some();
        // Another program writes a line for the same request.
        let is_part = entry.ctx_request_id.is_some() || entry.disagg_request_id.is_some();
        match self.owner {
            _ if !is_whole && entry.perf_metrics.is_none() => batch.reject(RejectReason::NotARecord),
            LineOwner::Server if is_whole => self.has_left_out = true,
            LineOwner::Deployment if !is_whole && is_part => self.has_left_out = true,
            LineOwner::Server | LineOwner::Deployment => batch.push(Message::FinishedRequest(Box::new(entry))),
        }
    }
}

const ONLY_PARTS: &str = "all lines are parts of disaggregated requests: name the directory of the orchestrator, or read each \
     server with trtllm-serve:http://HOST:PORT?perf_metrics_dir=DIR";
const MISSING: &str =
    "perf_metrics_dir does not exist: set perf_metrics_output_dir of the server to it, and share it with the exporter";
const FORBIDDEN: &str = "perf_metrics_dir cannot be read: give the user of the exporter the right to read and enter it";
const UNREADABLE: &str = "perf_metrics_dir cannot be read: check that it is a directory, and its disk";
const HANGS: &str = "reading perf_metrics_dir hangs: check its disk";
/// The notice for a server whose requests end without lines.
pub(super) const NO_LINES: &str = "requests end, but perf_metrics_dir gets no lines: set perf_metrics_output_dir of the server to it. \
     Until the server or the exporter restarts, latencies come from /prometheus/metrics";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn after_a_panic_new_lines_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let dir = LinesDir { path: directory.path().to_owned(), from_start: false };
        let (mut lines, mut batch) = (PerfMetricsDir::new(dir, LineOwner::Server), Batch::default());
        lines.files = None;
        lines.pass.spawn_blocking(|| panic!("planted"));
        while lines.problem() != Some(UNREADABLE) {
            lines.poll(&mut batch);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Waits for the pass that lists the directory again.
        while lines.problem().is_some() {
            lines.poll(&mut batch);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        std::fs::write(directory.path().join("perf_metrics-server-h-1-2.jsonl"), "{\"perf_metrics\":{}}\n").unwrap();
        lines.due = Instant::now();
        while batch.messages.is_empty() {
            lines.poll(&mut batch);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!((lines.problem(), batch.messages.len()), (None, 1));
    }
}
