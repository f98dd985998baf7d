//! What a hosted engine is to be, as `--source executor:DIR?…` says it.

use std::path::PathBuf;

use trtllm_bridge::{ExecutorOptions, HostOptions, Load};

/// Rings of 1000 iterations hold ten seconds of a fast engine, against a poll ten times a second.
pub const STATISTICS: ExecutorOptions =
    ExecutorOptions { iter_stats_max_iterations: 1000, request_stats_max_iterations: 1000 };

/// An engine to construct in this process, and the requests to drive it with.
#[derive(Debug, Clone, PartialEq)]
pub struct Hosting {
    /// The engine's directory, or `sim:…`.
    pub engine: String,
    pub options: HostOptions,
    pub load: Option<LoadPlan>,
}

/// `load=…`.
#[derive(Debug, Clone, PartialEq)]
pub enum LoadPlan {
    /// Requests of one size, so many of them at any time.
    Synthetic(Load),
    /// Requests from a file.
    Recorded(Recorded),
}

/// Recorded requests and how to send them.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    pub path: PathBuf,
    /// Requests in flight beyond which the next one waits; None = any number, where the file has times.
    pub in_flight: Option<u32>,
    /// This many times as fast as recorded; None = without regard to the times.
    pub speed: Option<f64>,
}

impl Hosting {
    /// An engine with everything left at its default.
    #[must_use]
    pub fn plain(engine: String) -> Self {
        Self { engine, options: HostOptions { statistics: STATISTICS, ..HostOptions::default() }, load: None }
    }
}
