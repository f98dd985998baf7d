//! Sources of statistics. A source fetches and parses, nothing else: each poll fills a [`Batch`] or returns an error, in
//! bounded time and size. Items that were read before a failure stay in the batch and are counted.
#![forbid(unsafe_code)]

pub mod batch;
pub mod bench_report;
mod blocking;
pub mod discovery;
pub mod engine_settings;
pub mod error;
mod followed_lines;
pub mod hosting;
pub mod http_client;
pub mod iteration_log;
pub mod keys;
pub mod kubernetes;
mod name_lookup;
mod one_process;
pub mod orchestrator;
pub mod orchestrator_page;
pub mod otlp;
pub mod perf_metrics_dir;
pub mod playback;
pub mod prometheus_text;
pub mod python_text;
pub mod replay;
pub mod server;
pub mod server_facts;
mod server_health;
pub mod server_page;
pub mod simulated;
pub mod socket;
pub mod startup_times;
mod tls;
pub mod trtllm_json;
pub mod trtllm_serve;

#[cfg(feature = "executor")]
pub mod executor;

use std::time::Duration;

pub use batch::{Batch, Presence};
pub use blocking::{Blocking, BlockingSource};
pub use error::{OpenError, SourceError};

/// The duration and the result of a poll.
#[doc(hidden)]
pub type TestPoll = (Duration, Result<Presence, SourceError>);

/// One engine's source.
#[derive(Debug)]
pub enum Source {
    TrtllmServe(Box<trtllm_serve::TrtllmServe>),
    Orchestrator(Box<orchestrator::Orchestrator>),
    Socket(socket::Ingest),
    Replay(Box<Blocking<replay::Replay>>),
    Recording(Box<Blocking<playback::Playback>>),
    PerfMetrics(perf_metrics_dir::PerfMetricsDir),
    Otlp(Box<otlp::Otlp>),
    Log(Box<Blocking<iteration_log::FollowedLog>>),
    Simulated(Box<simulated::Simulated>),
    #[cfg(feature = "executor")]
    Executor(executor::ExecutorThread),
    /// A source for tests of the poll driver.
    #[doc(hidden)]
    Test(fn(&mut Batch) -> TestPoll),
}

impl Source {
    /// Fills `batch`. Cancel-safe: a poll that is dropped at its deadline leaves the source ready for the next one. Fails if
    /// the engine cannot be reached or its answer cannot be read to the end. `batch` then holds what was read before.
    pub async fn poll(&mut self, batch: &mut Batch) -> Result<Presence, SourceError> {
        match self {
            Self::TrtllmServe(source) => source.poll(batch).await,
            Self::Orchestrator(source) => source.poll(batch).await,
            Self::Socket(source) => Ok(source.poll(batch)),
            Self::PerfMetrics(source) => source.poll_alone(batch),
            Self::Otlp(source) => Ok(source.poll_alone(batch)),
            Self::Simulated(source) => source.poll(batch),
            Self::Replay(source) => source.poll(batch).await,
            Self::Recording(source) => source.poll(batch).await,
            Self::Log(source) => source.poll(batch).await,
            #[cfg(feature = "executor")]
            Self::Executor(source) => source.poll(batch).await,
            Self::Test(poll) => {
                let (delay, result) = poll(batch);
                tokio::time::sleep(delay).await;
                result
            }
        }
    }

    /// Shortest time until the next poll.
    pub fn interval(&self) -> Duration {
        match self {
            Self::Orchestrator(_) => orchestrator::INTERVAL,
            Self::TrtllmServe(source) => source.interval(),
            _ => Duration::ZERO,
        }
    }

    /// Adds to `batch` the complete records of a poll that failed or was dropped at its deadline. Returns true if there
    /// are more. The caller must then fold the batch before the next call.
    pub fn take_partial(&mut self, batch: &mut Batch) -> bool {
        match self {
            Self::TrtllmServe(source) => source.take_partial(batch),
            _ => false,
        }
    }

    /// Whether the source is an engine of this process that still loads its model.
    pub fn is_loading(&self) -> bool {
        match self {
            #[cfg(feature = "executor")]
            Self::Executor(source) => source.loading.is_some(),
            Self::Simulated(source) => source.is_loading(),
            _ => false,
        }
    }

    /// Stops the source. An engine of this process gets a few seconds to finish its current work.
    pub async fn close(self) {
        #[cfg(feature = "executor")]
        if let Self::Executor(source) = self {
            source.stop().await;
        }
    }

    /// What the source reads, for messages.
    pub fn target(&self) -> String {
        match self {
            Self::TrtllmServe(source) => source.client.server.target.clone(),
            Self::Orchestrator(source) => source.client.server.target.clone(),
            Self::Socket(source) => source.target.clone(),
            Self::Replay(source) => source.target.clone(),
            Self::Recording(source) => source.target.clone(),
            Self::PerfMetrics(source) => source.target(),
            Self::Otlp(source) => source.target.clone(),
            Self::Log(source) => source.target.clone(),
            Self::Simulated(source) => source.target.clone(),
            #[cfg(feature = "executor")]
            Self::Executor(source) => source.target.clone(),
            Self::Test(_) => "test".to_owned(),
        }
    }
}
