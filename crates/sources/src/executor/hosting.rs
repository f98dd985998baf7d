//! The configuration of a hosted engine, from `--source executor:DIR?…`.

use trtllm_bridge::{ExecutorOptions, SyntheticLoad};

/// The engine keeps 1000 iterations. That is ten seconds of a fast engine, which is polled ten times a second.
pub const STATISTICS: ExecutorOptions =
    ExecutorOptions { iter_stats_max_iterations: 1000, request_stats_max_iterations: 1000 };

/// An engine to construct in this process, and the requests to send to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Hosting {
    /// The engine's directory, or `sim:…`.
    pub engine: String,
    pub statistics: ExecutorOptions,
    /// The requests of `load=synthetic`, if it is given.
    pub load: Option<SyntheticLoad>,
}

impl Hosting {
    /// An engine with default options.
    #[must_use]
    pub fn plain(engine: String) -> Self {
        Self { engine, statistics: STATISTICS, load: None }
    }
}
