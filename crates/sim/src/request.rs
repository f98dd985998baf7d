//! A request inside the engine.

use crate::cache::CacheCounts;
use crate::keys::Keys;
use crate::load::Arrival;
use crate::parts::RequestParts;
use crate::record::StepTimes;

/// Where a request is, by TensorRT-LLM's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Queued,
    Context,
    Generation,
    Complete,
}

/// Why a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// The answer's end.
    Stop,
    /// `max_tokens`.
    Length,
    TimedOut,
    Cancelled,
    /// Refused or failed; the client sees an HTTP error.
    Error,
}

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) arrival: Arrival,
    pub(crate) keys: Keys,
    /// When the engine got it from the frontend.
    pub(crate) queued_at: f64,
    pub(crate) scheduled_at: Option<f64>,
    pub(crate) first_token_at: Option<f64>,
    pub(crate) last_token_at: f64,
    /// Longest time between two tokens.
    pub(crate) longest_gap: f64,
    pub(crate) first_iter: Option<u64>,
    pub(crate) last_iter: u64,
    /// When the client had its first token.
    pub(crate) first_seen_at: Option<f64>,
    pub(crate) generated: u32,
    /// Tokens whose KV is in the cache, and how many must be before decoding goes on.
    pub(crate) filled: u32,
    pub(crate) context: u32,
    pub(crate) blocks: Vec<u32>,
    /// Blocks promised by GUARANTEED_NO_EVICT and not taken.
    pub(crate) promised: u32,
    pub(crate) paused: bool,
    /// Work in the running batch: context tokens, or the tokens that its decoding step makes.
    pub(crate) chunk: u32,
    pub(crate) step: u32,
    pub(crate) steps: u32,
    /// Whether the batch that ended last had it.
    pub(crate) was_scheduled: bool,
    pub(crate) drafted: u32,
    pub(crate) accepted: u32,
    pub(crate) counts: CacheCounts,
    /// The pipeline's micro batch.
    pub(crate) micro_batch: usize,
    pub(crate) transfer: Option<(f64, f64)>,
    pub(crate) parts: RequestParts,
    pub(crate) step_times: Option<Box<StepTimes>>,
}

impl Request {
    pub(crate) fn new(id: u64, arrival: Arrival, queued_at: f64, tokens_per_block: u32) -> Self {
        Self {
            id,
            keys: Keys::new(&arrival, tokens_per_block),
            queued_at,
            scheduled_at: None,
            first_token_at: None,
            last_token_at: 0.0,
            longest_gap: 0.0,
            first_iter: None,
            last_iter: 0,
            first_seen_at: None,
            generated: 0,
            filled: 0,
            context: arrival.prompt,
            blocks: Vec::new(),
            promised: 0,
            paused: false,
            chunk: 0,
            step: 0,
            steps: 0,
            was_scheduled: false,
            drafted: 0,
            accepted: 0,
            counts: CacheCounts::default(),
            micro_batch: 0,
            transfer: None,
            parts: RequestParts::default(),
            step_times: None,
            arrival,
        }
    }

    pub(crate) fn is_admitted(&self) -> bool {
        !self.blocks.is_empty()
    }

    pub(crate) fn is_decoding(&self) -> bool {
        self.is_admitted() && self.filled >= self.context
    }

    pub(crate) fn is_scheduled(&self) -> bool {
        self.step > 0 || self.chunk > 0
    }

    pub(crate) fn stage(&self) -> Stage {
        if self.is_decoding() || self.generated > 0 { Stage::Generation } else { Stage::Context }
    }

    /// Whether the cache still waits for the context server.
    pub(crate) fn is_receiving(&self, now: f64) -> bool {
        self.transfer.is_some_and(|(_, end)| end > now)
    }

    /// How it ends by itself, if it has all its tokens.
    pub(crate) fn end(&self) -> Option<End> {
        let end = if self.arrival.output < self.arrival.max_new_tokens { End::Stop } else { End::Length };
        (self.generated >= self.arrival.output).then_some(end)
    }
}
