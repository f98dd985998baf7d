//! The configuration of a hosted engine, from `--source executor:DIR?…`.

use std::path::PathBuf;

use trtllm_bridge::{ExecutorOptions, HostOptions, Load};

/// Rings of 1000 iterations hold ten seconds of a fast engine. It is polled ten times a second.
pub const STATISTICS: ExecutorOptions =
    ExecutorOptions { iter_stats_max_iterations: 1000, request_stats_max_iterations: 1000 };

/// An engine to construct in this process, and the requests to send to it.
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
    /// Requests of one size, with a constant number in flight.
    Synthetic(Load),
    /// Requests from a file.
    Recorded(Recorded),
}

/// Recorded requests and how to send them.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    pub path: PathBuf,
    /// Maximum number of requests in flight. None: unlimited, if the file has times.
    pub in_flight: Option<u32>,
    /// This many times as fast as recorded. Infinite: the recorded times are ignored.
    pub speed: f64,
}

impl Hosting {
    /// An engine with default options.
    #[must_use]
    pub fn plain(engine: String) -> Self {
        Self { engine, options: HostOptions { statistics: STATISTICS, ..HostOptions::default() }, load: None }
    }
}
