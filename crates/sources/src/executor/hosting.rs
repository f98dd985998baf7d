//! The configuration of a hosted engine, from `--source executor:DIR?…`.

use trtllm_bridge::{ExecutorOptions, SyntheticLoad};

/// Rings of 1000 iterations hold ten seconds of a fast engine. It is polled ten times a second.
pub const STATISTICS: ExecutorOptions =
    ExecutorOptions { iter_stats_max_iterations: 1000, request_stats_max_iterations: 1000 };

/// An engine to construct in this process, and the requests to send to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Hosting {
    /// The engine's directory, or `sim:…`.
    pub engine: String,
    pub statistics: ExecutorOptions,
    /// `load=synthetic`.
    pub load: Option<SyntheticLoad>,
}

impl Hosting {
    /// An engine with default options.
    #[must_use]
    pub fn plain(engine: String) -> Self {
        Self { engine, statistics: STATISTICS, load: None }
    }
}
