//! Where statistics come from. A source fetches and parses, nothing else: each poll fills a [`Batch`] or says why not, in
//! bounded time and size. What was read before a failure stays in the batch and is counted.

pub mod http_client;
pub mod replay;
pub mod socket;
pub mod trtllm_json;
pub mod trtllm_serve;

#[cfg(feature = "executor")]
pub mod executor;

use std::path::PathBuf;
use std::sync::Arc;

use crate::model::{BenchReport, IterationStats, KvCacheEvent, PerfMetricsEntry, RequestStatsPerIteration};
use crate::state::{ERROR_KINDS, EngineAbout, REJECT_REASONS};

/// One thing a source delivered, in the order the engine said it.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    Record(Box<IterationStats>),
    Requests(RequestStatsPerIteration),
    PerfMetrics(Box<PerfMetricsEntry>),
    KvEvent(Box<KvCacheEvent>),
    BenchReport(Arc<BenchReport>),
    /// The process that speaks from here on, by any number that another process would not have.
    Process(u64),
}

/// What one poll brought.
#[derive(Debug, Default)]
pub struct Batch {
    pub items: Vec<Item>,
    /// By [`RejectReason`].
    pub rejected: [u64; REJECT_REASONS],
    /// What the source learned about the engine, if anything new.
    pub about: Option<EngineAbout>,
    /// Publishers connected, for sources that listen.
    pub connections: Option<u64>,
    /// The source will never deliver again (a replay's end).
    pub ended: bool,
}

impl Batch {
    /// Empties the batch for the next poll; one unusually large poll does not keep its memory.
    pub fn clear(&mut self) {
        const KEEP: usize = 4096;
        self.items.clear();
        self.items.shrink_to(KEEP);
        *self = Self { items: std::mem::take(&mut self.items), ..Self::default() };
    }

    pub fn reject(&mut self, reason: RejectReason) {
        self.rejected[reason as usize] += 1;
    }
}

/// Whether an engine is behind the source at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The engine, or what speaks for it, is there; it may have had nothing to say.
    Present,
    /// We listen and nobody is connected.
    Nobody,
}

/// Why a poll failed, by what an operator can do. The order is that of the catalog's label values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    Connect,
    Timeout,
    HttpStatus,
    NotJson,
    Truncated,
    TooLarge,
    Io,
    Engine,
}

impl ErrorKind {
    pub const ALL: [Self; ERROR_KINDS] = [
        Self::Connect,
        Self::Timeout,
        Self::HttpStatus,
        Self::NotJson,
        Self::Truncated,
        Self::TooLarge,
        Self::Io,
        Self::Engine,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::HttpStatus => "http_status",
            Self::NotJson => "not_json",
            Self::Truncated => "truncated",
            Self::TooLarge => "too_large",
            Self::Io => "io",
            Self::Engine => "engine",
        }
    }
}

/// Why a record was skipped. The order is that of the catalog's label values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectReason {
    NotJson,
    NotARecord,
    TooLong,
    Truncated,
}

impl RejectReason {
    pub const ALL: [Self; REJECT_REASONS] = [Self::NotJson, Self::NotARecord, Self::TooLong, Self::Truncated];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotJson => "not_json",
            Self::NotARecord => "not_a_record",
            Self::TooLong => "too_long",
            Self::Truncated => "truncated",
        }
    }
}

/// A poll that failed. The text names the target; none carries a secret or a body.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("cannot connect to {target}: {cause}; is the engine running and the address in --source right?")]
    Connect { target: String, cause: std::io::Error },
    #[error("{target} did not answer within {after:?} (--poll.timeout)")]
    Timeout { target: String, after: std::time::Duration },
    #[error("{target} answered {status}; is this trtllm-serve's own port?")]
    HttpStatus { target: String, status: u16 },
    #[error("{target} sent something other than a JSON array of statistics: {cause}")]
    NotJson { target: String, cause: String },
    #[error("{target} ended its answer in the middle of a record")]
    Truncated { target: String },
    #[error("{target} sent more than {limit} bytes in one answer")]
    TooLarge { target: String, limit: usize },
    #[error("{target} broke off: {cause}")]
    Io { target: String, cause: String },
    #[error("the engine refused its statistics: {cause}")]
    Engine { cause: String },
}

impl SourceError {
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Connect { .. } => ErrorKind::Connect,
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::HttpStatus { .. } => ErrorKind::HttpStatus,
            Self::NotJson { .. } => ErrorKind::NotJson,
            Self::Truncated { .. } => ErrorKind::Truncated,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Io { .. } => ErrorKind::Io,
            Self::Engine { .. } => ErrorKind::Engine,
        }
    }
}

/// A source that cannot even be set up; the daemon does not start with it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot listen on the ingest socket {path}: {cause}; choose another path with --source socket:PATH")]
    Socket { path: PathBuf, cause: std::io::Error },
    #[error("cannot read {path} for --source replay: {cause}")]
    Replay { path: PathBuf, cause: std::io::Error },
    #[error("cannot read the requests of load={path}: {cause}")]
    Load { path: PathBuf, cause: std::io::Error },
    #[error("cannot start the engine {engine} of --source: {cause}")]
    Engine { engine: String, cause: String },
}

/// One engine's source.
#[derive(Debug)]
pub enum Source {
    TrtllmServe(trtllm_serve::TrtllmServe),
    Socket(socket::Ingest),
    Replay(replay::Replay),
    #[cfg(feature = "executor")]
    Executor(executor::ExecutorThread),
}

impl Source {
    /// Fills `batch`. Cancel-safe: a poll dropped at its deadline leaves the source ready for the next.
    ///
    /// # Errors
    /// When the engine could not be asked or its answer not be read to its end; `batch` then holds what was read before.
    pub async fn poll(&mut self, batch: &mut Batch) -> Result<Answer, SourceError> {
        match self {
            Self::TrtllmServe(source) => source.poll(batch).await,
            Self::Socket(source) => source.poll(batch),
            Self::Replay(source) => source.poll(batch),
            #[cfg(feature = "executor")]
            Self::Executor(source) => source.poll(batch).await,
        }
    }

    /// After a poll that failed or was dropped at its deadline: what had come of it, into `batch`.
    pub fn salvage(&mut self, batch: &mut Batch) {
        if let Self::TrtllmServe(source) = self {
            source.salvage(batch);
        }
    }

    /// What the poll asks, for messages.
    #[must_use]
    pub fn target(&self) -> &str {
        match self {
            Self::TrtllmServe(source) => source.target(),
            Self::Socket(source) => source.target(),
            Self::Replay(source) => source.target(),
            #[cfg(feature = "executor")]
            Self::Executor(source) => source.target(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::catalog::Id;

    #[test]
    fn kinds_and_reasons_are_the_catalogs_in_its_order() {
        let values = |id: Id| id.metric().variant.unwrap().values;
        assert_eq!(values(Id::PollErrors), ErrorKind::ALL.map(ErrorKind::name));
        assert_eq!(values(Id::RecordsRejected), RejectReason::ALL.map(RejectReason::name));
    }
}
