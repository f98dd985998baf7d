//! What really happened in the simulation. Tests compare it with what readers compute from the records.

use crate::record::End;

/// One ended request.
#[derive(Debug, Clone)]
pub struct RequestTruth {
    pub id: u64,
    pub end: End,
    /// When the client sent the request, and when the engine received it.
    pub arrival: f64,
    pub queued: f64,
    pub scheduled: Option<f64>,
    /// When the engine generated the first token, and when the client received it.
    pub first_token: Option<f64>,
    pub first_seen: Option<f64>,
    pub last_token: f64,
    pub last_seen: f64,
    /// Longest time between two tokens.
    pub longest_gap: f64,
    pub prompt: u32,
    pub generated: u32,
    /// The parts of its time that were not its own work.
    pub parts: RequestParts,
}

/// Seconds between a request's first batch and its last token that were not its own work.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RequestParts {
    /// Work on prompts of other requests, during its prefill and during its decoding.
    pub blocked: [f64; 2],
    /// Paused without KV cache, until the next token.
    pub pause: f64,
    /// Waiting for its KV cache from another engine.
    pub transfer: f64,
    /// Delays by faults, during its prefill and during its decoding.
    pub unexplained: [f64; 2],
}

/// One batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchTruth {
    /// The `iter` of its record.
    pub iter: u64,
    /// Its time. Under the overlap scheduler from the end of the batch before on the GPU, or from when the pass that
    /// formed it took its requests if that is later, to its own end on the GPU. Else from there to where it is handled.
    pub seconds: f64,
    /// Work of the GPU in seconds, with sampling.
    pub gpu_seconds: f64,
    /// When its tokens were handled.
    pub handled_at: f64,
}

/// Sums over all iterations.
#[derive(Debug, Clone, Default)]
pub struct Truth {
    pub iterations: u64,
    pub arrived: u64,
    /// Requests without streaming among them.
    pub arrived_nonstream: u64,
    pub started: u64,
    /// Requests that ended inside the engine.
    pub completed: u64,
    pub context_tokens: u64,
    /// Tokens that decoding steps generated. Excludes the first token of an answer, which the context phase generates.
    pub decoded_tokens: u64,
    /// Tokens that decoding steps generated after their request had ended. Records count them, too.
    pub discarded_tokens: u64,
    /// Tokens that context phases generated.
    pub first_tokens: u64,
    pub drafted: u64,
    pub accepted: u64,
    pub pauses: u64,
    /// Context tokens that were computed before a pause of their request, too.
    pub recomputed_tokens: u64,
    pub restarts: u64,
    /// Records that the C++ Executor wrote because it became idle.
    pub flushes: u64,
    pub records: u64,
    pub records_lost: u64,
    pub busy_seconds: f64,
    /// Waiting time of the started requests in the engine's queue.
    pub queue_seconds: f64,
    /// Integral over time of the number of requests in the engine that wait to become active, until the last step. A request
    /// that arrived during a batch counts from its arrival, as soon as the engine looks at its queue.
    pub waiting_seconds: f64,
    pub requests: Vec<RequestTruth>,
    /// The handled batches, if the configuration keeps the truth about requests.
    pub batches: Vec<BatchTruth>,
}
