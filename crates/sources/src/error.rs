//! Why a source cannot be opened, and why a poll failed. No text contains a secret or the body of a response.

use std::error::Error;
use std::path::PathBuf;

use trtllm_records::{ErrorKind, PollFailure};

/// A poll that failed. The text names the target.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("cannot connect to {target}: {cause}; check that the engine runs and that --source names its address")]
    Connect { target: String, cause: String },
    #[error("the certificate of {target} is not accepted: {cause}; {remedy}")]
    Certificate { target: String, cause: String, remedy: &'static str },
    #[error(
        "{target} gave no valid answer: {cause}; if the port speaks https, write https:// instead of http://, otherwise check \
         the server and the network"
    )]
    NoHttp { target: String, cause: String },
    #[error("the port of {target} does not speak https; write http:// instead of https://, or correct the port")]
    SpeaksHttp { target: String },
    #[error("{target} did not answer within {after:?}; look at the log of the server, or raise --poll.timeout")]
    Timeout { target: String, after: std::time::Duration },
    #[error("{target} answered with status {status}; check that bearer_token_file in --source names a valid token")]
    Unauthorized { target: String, status: u16 },
    #[error("cannot read bearer_token_file {path}: {cause}; check the path and its permissions")]
    Token { path: PathBuf, cause: std::io::Error },
    #[error("{target} answered with status {status}; {}", status_remedy(*status))]
    HttpStatus { target: String, status: u16 },
    #[error(
        "{target} answers, and has no statistics (status {status}): a server for embeddings or reranking has none; for an \
         orchestrator (trtllm-serve disaggregated), write --source trtllm-disagg:URL; for another server, check that --source \
         names the port of trtllm-serve"
    )]
    NoStatistics { target: String, status: u16 },
    /// A new server, whose engine still loads.
    #[error("{target} answers that the server is starting; wait until its model is loaded")]
    Starting { target: String },
    #[error(
        "{target} redirects to {to} (status {status}); name that address if it is the right server. Redirects are not \
         followed, so that no token is sent to another one"
    )]
    Redirect { target: String, to: String, status: u16 },
    #[error(
        "a frontend answers at {target}, but the process with the engine does not answer it; restart the server, and look at its log"
    )]
    LauncherGone { target: String },
    #[error(
        "{target} did not send a JSON array of statistics: {cause}; check that --source names the port of trtllm-serve"
    )]
    NotJson { target: String, cause: String },
    #[error(
        "{target} is a page for Prometheus, not the statistics of trtllm-serve; check that --source names the port of \
         trtllm-serve. A worker of Dynamo publishes to --source socket:PATH instead"
    )]
    PrometheusPage { target: String },
    #[error(
        "{target} answered with status {status}; check that --source names the port of the orchestrator (trtllm-serve \
         disaggregated), not of a worker or a coordinator"
    )]
    NoOrchestratorPage { target: String, status: u16 },
    #[error(
        "{target} is not the page of an orchestrator; check that --source names the port of trtllm-serve disaggregated. A \
         worker is --source trtllm-serve:http://HOST:PORT"
    )]
    NotAnOrchestrator { target: String },
    #[error("{target} ended its answer in the middle of a record; look at the log of the server")]
    Truncated { target: String },
    #[error(
        "{target} sent more than {limit} bytes in one answer; check that its address and port are right, and that no other peer floods the exporter, or poll more often"
    )]
    TooLarge { target: String, limit: usize },
    #[error(
        "reading from {target} failed: {cause}; if this continues, check the server and the network, or the disk of the file"
    )]
    Io { target: String, cause: String },
    #[error("cannot read the directory {path}: {cause}; check that it exists and that the exporter's user may read it")]
    Directory { path: PathBuf, cause: std::io::Error },
    #[error("cannot read the engine's statistics: {cause}; if this continues, restart the exporter")]
    Engine { cause: String },
    #[error("reading from {target} failed by a bug in the exporter; please report the log line \"panic\" before it")]
    Panicked { target: String },
    /// A failure that a recording contains.
    #[error("{}", .0.text)]
    Recorded(PollFailure),
    /// The source can never work. Polling it again is useless.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl SourceError {
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Connect { .. } | Self::Certificate { .. } | Self::SpeaksHttp { .. } => ErrorKind::Connect,
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::HttpStatus { .. }
            | Self::Redirect { .. }
            | Self::Unauthorized { .. }
            | Self::LauncherGone { .. }
            | Self::NoStatistics { .. }
            | Self::Starting { .. }
            | Self::NoOrchestratorPage { .. } => ErrorKind::HttpStatus,
            Self::NotJson { .. } | Self::PrometheusPage { .. } | Self::NotAnOrchestrator { .. } => ErrorKind::NotJson,
            Self::Truncated { .. } => ErrorKind::Truncated,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Io { .. } | Self::NoHttp { .. } | Self::Token { .. } | Self::Directory { .. } => ErrorKind::Io,
            Self::Recorded(failure) => failure.kind,
            Self::Engine { .. } | Self::Panicked { .. } | Self::Open(_) => ErrorKind::Engine,
        }
    }

    /// Whether the server answers that it does not have this path. Any other status may be that of a proxy, or of a server
    /// that is starting or busy, so the path is requested again.
    pub const fn is_missing(&self) -> bool {
        matches!(self, Self::HttpStatus { status: 404 | 405 | 410, .. })
    }

    /// The status of an answer that is an error.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::HttpStatus { status, .. }
            | Self::Redirect { status, .. }
            | Self::Unauthorized { status, .. }
            | Self::NoStatistics { status, .. }
            | Self::NoOrchestratorPage { status, .. } => Some(*status),
            Self::LauncherGone { .. } | Self::Starting { .. } => Some(503),
            _ => None,
        }
    }

    /// Whether the server answers that it is not ready yet. [`Self::LauncherGone`] means something else: a frontend
    /// starts after its engine, so it has lost its engine.
    pub const fn is_not_ready(&self) -> bool {
        self.is_starting()
            || matches!(
                self,
                Self::HttpStatus { status: 503, .. } | Self::Recorded(PollFailure { not_ready: true, .. })
            )
    }

    /// Whether the server says that it has just been started, so that it has lost no engine.
    pub const fn is_starting(&self) -> bool {
        matches!(self, Self::Starting { .. })
    }
}

/// What to do about a status that is an error.
const fn status_remedy(status: u16) -> &'static str {
    match status {
        404 | 405 | 410 => "check that --source names the port of trtllm-serve",
        429 => "raise the limit of requests of the server or of the proxy before it",
        407 => "a proxy wants a password; name the address of the server itself",
        300..400 => "it redirects without an address; check the server or the proxy before it",
        503 => "if this continues, look at the log of the server",
        500..600 => "look at the log of the server, or of the proxy before it",
        _ => {
            "check that --source names the port of trtllm-serve, and look at the log of the server or of the proxy before it"
        }
    }
}

/// A source that cannot be opened. It ends the daemon.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "cannot listen on {address} for OTLP: {cause}; choose another address in --source otlp:HOST:PORT or in the option otlp"
    )]
    Otlp { address: std::net::SocketAddr, cause: std::io::Error },
    #[error("cannot listen on the ingest socket {path}: {cause}; choose another path with --source socket:PATH")]
    Socket { path: PathBuf, cause: std::io::Error },
    #[error(
        "cannot read {path} for --source replay: {cause}; name a file with records, a report of trtllm-bench or the folder of a recording"
    )]
    Replay { path: PathBuf, cause: std::io::Error },
    #[error(
        "cannot read the directory {path} of --source: {cause}; name the directory in which TensorRT-LLM writes the lines of finished requests"
    )]
    Lines { path: PathBuf, cause: std::io::Error },
    #[error(
        "cannot read {path} for --source log: {cause}; name the file with the log of the server, or - for standard input"
    )]
    Log { path: PathBuf, cause: std::io::Error },
    #[error("cannot read the certificates for https from {}: {cause}; name a PEM file with ca_file in --source", file.as_ref().map_or("the system".into(), |file| file.display().to_string()))]
    Certificates { file: Option<PathBuf>, cause: std::io::Error },
    #[error("cannot find pods for --source kubernetes: {cause}")]
    Kubernetes { cause: String },
    #[error("cannot start the engine {engine} of --source: {cause}")]
    Engine { engine: String, cause: String },
}

/// The innermost error says what happened. The outer errors only name a stage, such as "tcp connect error".
pub(crate) fn root_cause(error: &(dyn Error + 'static)) -> String {
    std::iter::successors(Some(error), |&error| error.source()).last().unwrap_or(error).to_string()
}

/// The beginning of a text that may be long, such as a value in an error.
pub(crate) fn shortened(text: &str, characters: usize) -> String {
    let beginning: String = text.chars().take(characters).collect();
    if beginning.len() < text.len() { beginning + "…" } else { beginning }
}
