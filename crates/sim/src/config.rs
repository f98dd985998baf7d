//! What is simulated: the engine's settings, its costs, its load and its faults. Times are seconds of virtual time.

use crate::cost::Costs;
use crate::load::Load;

/// Everything that determines a run, except the seed.
#[derive(Debug, Clone)]
pub struct Config {
    pub release: Release,
    pub limits: Limits,
    pub cache: CacheConfig,
    pub costs: Costs,
    pub speculation: Option<Speculation>,
    pub ranks: Ranks,
    pub role: Role,
    pub transfer: Transfer,
    pub adapters: Option<Adapters>,
    pub frontend: Frontend,
    /// Phases of the start-up, before the engine serves: the object and the name in `startup_metrics`, and seconds.
    pub startup: Vec<(&'static str, &'static str, f64)>,
    pub faults: Vec<Fault>,
    pub statistics: Statistics,
    pub load: Load,
    /// The Executor's id of the first request. If absent, the id that upstream begins with.
    pub first_id: Option<u64>,
    /// Keep the truth about each ended request. Memory grows with every request.
    pub keeps_requests: bool,
}

/// The backend and the release that write the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// The C++ Executor of this release, 0.9 to 1.2.
    Cpp {
        major: u32,
        minor: u32,
    },
    PyTorch {
        era: Era,
        cache: CacheManager,
    },
}

/// The first request id of an orchestrator, as in upstream's llmapi/disagg_utils.py.
const FIRST_ORCHESTRATOR_ID: u64 = 1 << 40;

impl Config {
    /// In disaggregated serving, PyTorch engines use the id that the orchestrator gave to a request.
    #[must_use]
    pub fn uses_orchestrator_ids(&self) -> bool {
        self.role != Role::Aggregated && !self.release.is_cpp()
    }

    /// Whether the loop stamps the first token in the first pass that handles responses after the request has its seat,
    /// even if its prompt is not computed. Upstream's `_handle_responses` did so for all active requests, except those of
    /// a generation server under overlap.
    pub(crate) fn stamps_early(&self) -> bool {
        let is_skipped = self.role == Role::GenerationOnly && self.costs.overlap;
        matches!(self.release, Release::PyTorch { era: Era::Early, .. }) && !is_skipped
    }

    /// The policy of the capacity scheduler. The scheduler of the second cache manager has only one.
    pub(crate) fn policy(&self) -> Policy {
        match self.release {
            Release::PyTorch { cache: CacheManager::V2, .. } => Policy::MaxUtilization,
            _ => self.limits.policy,
        }
    }

    /// Whether a context server counts a request as completed when it begins to send its KV cache. Upstream's loop ends the
    /// request then if its blocks are stored for reuse, which only the first cache manager does.
    pub(crate) fn counts_sending(&self) -> bool {
        let stores = matches!(self.release, Release::PyTorch { cache: CacheManager::V1, era } if era >= Era::One);
        stores && self.cache.reuse
    }

    /// Whether the C++ Executor runs micro batches in a pipeline.
    pub(crate) fn has_cpp_pipeline(&self) -> bool {
        self.release.is_cpp() && self.ranks.pipeline > 1
    }

    /// Whether the C++ Executor runs a whole static batch in one pass. Later releases have static batching as a policy of
    /// the in-flight scheduler.
    pub(crate) fn runs_static_batches(&self) -> bool {
        self.limits.policy == Policy::Static && matches!(self.release, Release::Cpp { major: 0, minor } if minor < 20)
    }

    /// Whether the C++ Executor writes a record when the requests of its batch have their tokens, and not before.
    pub(crate) fn writes_after_tokens(&self) -> bool {
        self.has_cpp_pipeline() || self.runs_static_batches()
    }

    pub(crate) fn chunks_context(&self) -> bool {
        self.limits.chunked_context && !self.runs_static_batches()
    }

    /// The id of the first request. The C++ Executor counts from 1. PyTorch keeps the ids below max_batch_size for its
    /// warm-up requests.
    pub(crate) fn first_id(&self) -> u64 {
        self.first_id.unwrap_or(match self.release {
            Release::Cpp { .. } => 1,
            Release::PyTorch { .. } if self.uses_orchestrator_ids() => FIRST_ORCHESTRATOR_ID,
            Release::PyTorch { .. } => self.limits.max_batch_size.into(),
        })
    }
}

impl Release {
    #[must_use]
    pub fn is_cpp(self) -> bool {
        matches!(self, Self::Cpp { .. })
    }

    /// Whether the release is 1.3 or newer.
    #[must_use]
    pub fn is_since_1_3(self) -> bool {
        matches!(self, Self::PyTorch { era, .. } if era >= Era::Ranks)
    }

    /// Whether the requests that became active in a pass without a batch are in the next record (TensorRT-LLM #19717).
    /// In older releases, no record counts them.
    pub(crate) fn carries_new_requests(self) -> bool {
        !matches!(self, Self::PyTorch { era, .. } if era < Era::Frames)
    }

    /// Whether the loop moves all new requests into a waiting queue that no record counts: PyTorch since 1.0.
    pub(crate) fn has_waiting_queue(self) -> bool {
        matches!(self, Self::PyTorch { era, .. } if era >= Era::One)
    }
}

/// Releases of the PyTorch backend, by what their records contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Era {
    /// About 0.20: records have no statistics of static batching and of speculation.
    Early,
    /// 1.0 to 1.2.
    One,
    /// 1.3: a record for each rank, partly copied from rank 0; host and device times; statistics of the cache for each
    /// iteration.
    Ranks,
    /// 1.4, whose loop contains no C++: sequence numbers, and a count of dropped records.
    Frames,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheManager {
    V1,
    V2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    GuaranteedNoEvict,
    MaxUtilization,
    /// The C++ Executor admits requests only when none is running.
    Static,
}

#[derive(Debug, Clone)]
pub struct Limits {
    pub max_batch_size: u32,
    pub max_num_tokens: u32,
    pub policy: Policy,
    pub chunked_context: bool,
    /// Whether tokens that are found in the KV cache do not count against `max_num_tokens`. With MAX_UTILIZATION, releases before
    /// TensorRT-LLM #15066 count them, unless another running request holds their blocks.
    pub credits_reuse: bool,
    /// A request fails if this many already wait in the queue.
    pub max_queue: usize,
}

#[derive(Debug, Clone)]
pub struct CacheConfig {
    pub blocks: u32,
    pub tokens_per_block: u32,
    pub reuse: bool,
    pub partial_reuse: bool,
    pub host_blocks: u32,
    pub bytes_per_token: u64,
    /// Bytes per second between the GPU and the host.
    pub host_bandwidth: f64,
}

impl CacheConfig {
    /// Bytes of the KV cache of these tokens.
    pub(crate) fn bytes(&self, tokens: u32) -> u64 {
        u64::from(tokens) * self.bytes_per_token
    }
}

#[derive(Debug, Clone)]
pub struct Speculation {
    pub draft_len: u32,
    /// Probability that a draft token is accepted if all earlier draft tokens were accepted.
    pub acceptance: f64,
    /// Seconds that each draft position adds to an iteration.
    pub seconds_per_position: f64,
}

#[derive(Debug, Clone)]
pub struct Ranks {
    /// At least 1.
    pub attention_dp: usize,
    /// Pipeline stages, at least 1.
    pub pipeline: usize,
    /// With attention data parallelism, the share of requests that the routing sends to rank 0 regardless of its load.
    /// With a pipeline, the share by which the slowest stage runs longer than the mean stage.
    pub imbalance: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Aggregated,
    ContextOnly,
    GenerationOnly,
}

/// The link between context and generation servers. It transfers the KV cache of one request at a time.
#[derive(Debug, Clone)]
pub struct Transfer {
    pub bytes_per_second: f64,
    pub seconds: f64,
}

#[derive(Debug, Clone)]
pub struct Adapters {
    pub count: u32,
    pub slots: u32,
    pub load_seconds: f64,
}

/// The HTTP process in front of the engine. Its workers tokenise prompts and send each token to the client.
#[derive(Debug, Clone)]
pub struct Frontend {
    pub seconds_per_request: f64,
    pub seconds_per_prompt_token: f64,
    pub seconds_per_output_token: f64,
    pub workers: u32,
    /// A request that would wait longer than this for a worker gets an error.
    pub max_wait: f64,
}

/// Why a GPU is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slow {
    /// The driver shows the reason and the lower clock.
    PowerCap,
    Thermal,
    /// The driver shows the full clock, no reason, and lower power.
    Silent,
    /// The code became slower: clock and power are as before.
    Regression,
}

#[derive(Debug, Clone)]
pub enum Fault {
    /// The engine does nothing from `at`, for this long.
    Hang {
        at: f64,
        seconds: f64,
    },
    /// From `at`, nothing is scheduled although requests are active.
    Wedge {
        at: f64,
    },
    /// One iteration in each `every` seconds takes `seconds` longer.
    Spike {
        every: f64,
        seconds: f64,
    },
    Slow {
        at: f64,
        factor: f64,
        why: Slow,
    },
    /// All requests fail at `at`; the engine serves again after `seconds`.
    Restart {
        at: f64,
        seconds: f64,
    },
    /// This share of requests fails.
    Errors {
        share: f64,
    },
    /// Host memory grows; at `limit` bytes new requests fail.
    MemoryGrowth {
        bytes_per_second: f64,
        limit: f64,
    },
    /// The tuner switches the batch limit between `low` and the configured limit, each for half a period.
    Tuner {
        low: u32,
        period: f64,
    },
    /// This share of records is lost before anybody reads it.
    LoseRecords {
        share: f64,
    },
    /// Another reader takes the records in this share of the polls, which happen every 100 ms.
    SecondReader {
        share: f64,
    },
}

#[derive(Debug, Clone)]
pub struct Statistics {
    pub enabled: bool,
    /// One record per this many iterations (PyTorch).
    pub interval: u64,
    /// Attention-DP ranks write records of their own (`TLLM_METRICS_ALL_RANKS=1`), and not copies of rank 0.
    pub all_ranks: bool,
    pub rows: bool,
    pub entries: bool,
    /// Whether requests without an answer have an entry, too. A program that hosts the C++ Executor can report them.
    pub unanswered: bool,
    /// Perf-metrics entries contain the times of each step, as with PyTorch's `return_perf_metrics`.
    pub steps: bool,
}

impl Default for Config {
    /// A healthy engine with one GPU.
    fn default() -> Self {
        Self {
            release: Release::PyTorch { era: Era::Frames, cache: CacheManager::V2 },
            limits: Limits {
                max_batch_size: 64,
                max_num_tokens: 8192,
                policy: Policy::GuaranteedNoEvict,
                chunked_context: true,
                credits_reuse: true,
                max_queue: 100_000,
            },
            cache: CacheConfig {
                blocks: 4000,
                tokens_per_block: 32,
                reuse: true,
                partial_reuse: true,
                host_blocks: 0,
                bytes_per_token: 131_072,
                host_bandwidth: 20e9,
            },
            costs: Costs::default(),
            speculation: None,
            ranks: Ranks { attention_dp: 1, pipeline: 1, imbalance: 0.0 },
            role: Role::Aggregated,
            transfer: Transfer { bytes_per_second: 20e9, seconds: 0.001 },
            adapters: None,
            frontend: Frontend {
                seconds_per_request: 0.0005,
                seconds_per_prompt_token: 1e-6,
                seconds_per_output_token: 5e-6,
                workers: 4,
                max_wait: 60.0,
            },
            startup: Vec::new(),
            faults: Vec::new(),
            statistics: Statistics {
                enabled: true,
                interval: 1,
                all_ranks: false,
                rows: true,
                entries: true,
                unanswered: false,
                steps: false,
            },
            load: Load::default(),
            first_id: None,
            keeps_requests: true,
        }
    }
}
