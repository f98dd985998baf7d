//! The configuration of a hosted engine, from `--source executor:DIR?…`. Builds that cannot host an engine parse it, too.

/// An engine to construct in this process, and the requests to send to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosting {
    /// The engine's directory, or `sim:…`.
    pub engine: String,
    /// Number of iterations whose statistics the engine keeps between two polls.
    pub iter_stats_max_iterations: u32,
    /// The same for the statistics of requests. 0 disables them.
    pub request_stats_max_iterations: u32,
    /// The requests of `load=synthetic`, if it is given.
    pub load: Option<HostedLoad>,
}

/// Synthetic requests of equal size with different prompts. The number of requests in flight is constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostedLoad {
    pub in_flight: u32,
    /// Number of tokens in each prompt.
    pub prompt_tokens: u32,
    /// Number of tokens that each request generates.
    pub output_tokens: u32,
    /// The load ends after this many requests. `None`: it does not end.
    pub requests: Option<u64>,
}

impl Hosting {
    /// An engine with default options. It keeps 1000 iterations: ten seconds of a fast engine, which is polled ten times a second.
    pub const fn plain(engine: String) -> Self {
        Self { engine, iter_stats_max_iterations: 1000, request_stats_max_iterations: 1000, load: None }
    }
}
