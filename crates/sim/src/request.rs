//! A request inside the engine.

use crate::cache::Keys;
use crate::config::Role;
use crate::load::Arrival;
use crate::pass::Pass;
use crate::record::{CacheCounts, End, Stage, StepTimes};
use crate::truth::RequestParts;

/// What a launched batch does for one request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Share {
    pub(crate) is_scheduled: bool,
    /// Whether the batch decodes for the request. Otherwise it computes a chunk of its context.
    pub(crate) decodes: bool,
    /// Tokens that the batch adds to the KV cache. 0 if the request lost its blocks after the launch.
    pub(crate) filled: u32,
    /// Tokens of the answer that the request receives when the batch is handled.
    pub(crate) made: u32,
    pub(crate) drafted: u32,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) arrival: Arrival,
    /// Length and limit of the answer that the client asked for. A context server generates only its first token.
    pub(crate) asked: (u32, u32),
    pub(crate) keys: Keys,
    /// When the engine received the request from the frontend.
    pub(crate) queued_at: f64,
    pub(crate) scheduled_at: Option<f64>,
    pub(crate) first_token_at: Option<f64>,
    /// The time of the first token that the entry has instead, if the release stamps it early.
    pub(crate) stamped_at: Option<f64>,
    pub(crate) last_token_at: f64,
    /// Longest time between two tokens.
    pub(crate) longest_gap: f64,
    pub(crate) first_iter: Option<u64>,
    pub(crate) last_iter: u64,
    /// When the client received the first token. Without streaming, that is when the answer is complete.
    pub(crate) first_seen_at: Option<f64>,
    /// Whether the server refused the request when it arrived.
    pub(crate) is_refused: bool,
    pub(crate) generated: u32,
    /// Tokens in the KV cache (`filled`), and how many must be there before decoding starts or continues (`context`).
    /// Batches that are not handled yet do not count, see [`Self::launched_filled`].
    pub(crate) filled: u32,
    pub(crate) context: u32,
    pub(crate) blocks: Vec<u32>,
    /// Blocks that GUARANTEED_NO_EVICT has promised to the request and that the request has not taken yet.
    pub(crate) promised: u32,
    pub(crate) paused: bool,
    /// The most tokens that were in the KV cache before a pause.
    pub(crate) computed: u32,
    /// Its part of each launched batch that is not handled yet, by the slot of the batch.
    pub(crate) shares: [Share; 2],
    /// Decoding steps so far, and steps that ended a context phase.
    pub(crate) steps: u32,
    pub(crate) context_steps: u32,
    /// Whether the request was in the batch that ended last.
    pub(crate) was_scheduled: bool,
    pub(crate) drafted: u32,
    pub(crate) accepted: u32,
    pub(crate) counts: CacheCounts,
    /// The micro batch of the pipeline that the request belongs to.
    pub(crate) micro_batch: usize,
    /// Start and end of the transfer of its KV cache between two engines.
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
            context: arrival.prompt,
            asked: (arrival.output, arrival.max_new_tokens),
            arrival,
            ..Self::default()
        }
    }

    /// Adds the tokens of iteration `iter`. Returns whether its first token is among them.
    pub(crate) fn receive(&mut self, tokens: u32, iter: u64, now: f64) -> bool {
        // Upstream's `first_iter` is the iteration of the first token, too.
        self.first_iter.get_or_insert(iter);
        (self.last_iter, self.generated) = (iter, self.generated + tokens);
        let is_first = self.first_token_at.is_none();
        if is_first {
            self.first_token_at = Some(now);
        } else {
            self.longest_gap = self.longest_gap.max(now - self.last_token_at);
        }
        self.last_token_at = now;
        is_first
    }

    /// A generation server has the token of the context server when it first schedules the request, and sends it to the client
    /// then. Its own first token, which `first_token_at` means, is the second of the answer.
    pub(crate) fn take_first_token(&mut self, pass: &Pass<'_>) {
        self.generated = 1;
        self.scheduled_at.get_or_insert(pass.now);
        if !pass.config.release.is_cpp() {
            self.first_seen_at = self.is_streamed(pass.config.role).then_some(pass.now);
            self.last_token_at = pass.now;
        }
    }

    pub(crate) fn is_admitted(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// Tokens in the KV cache after all launched batches.
    pub(crate) fn launched_filled(&self) -> u32 {
        self.filled + self.shares[0].filled + self.shares[1].filled
    }

    /// Tokens of the answer after all launched batches.
    pub(crate) fn launched_tokens(&self) -> u32 {
        self.generated + self.shares[0].made + self.shares[1].made
    }

    /// Whether its context is computed after all launched batches.
    pub(crate) fn is_decoding(&self) -> bool {
        self.is_admitted() && self.launched_filled() >= self.context
    }

    /// Whether the next batch decodes for the request. If its last token is in a batch that is not handled yet, the loop
    /// knows that only for an answer that ends by its length. An answer with a stop word is in one more batch.
    pub(crate) fn wants_token(&self) -> bool {
        let (output, limit) = (self.arrival.output, self.arrival.max_new_tokens);
        self.launched_tokens() < output || output < limit && self.generated < output
    }

    /// Mean tokens of its steps, as upstream's `getAvgDecodedTokensPerIter`. A pause makes the tokens before it a part of the
    /// prompt, but their steps still count.
    pub(crate) fn tokens_per_step(&self) -> f64 {
        let before_pause = self.context - self.arrival.prompt;
        f64::from(self.generated.saturating_sub(before_pause)) / f64::from((self.steps + self.context_steps).max(1))
    }

    pub(crate) fn is_scheduled(&self) -> bool {
        self.shares.iter().any(|share| share.is_scheduled)
    }

    /// The stage of a request with this many tokens in the KV cache.
    pub(crate) fn stage(&self, filled: u32) -> Stage {
        let is_decoding = self.is_admitted() && filled >= self.context;
        let was_paused = self.context > self.arrival.prompt;
        if is_decoding || self.generated > 0 && !was_paused { Stage::Generation } else { Stage::Context }
    }

    /// Whether its KV cache is still being transferred.
    pub(crate) fn is_receiving(&self, now: f64) -> bool {
        self.transfer.is_some_and(|(_, end)| end > now)
    }

    /// How the request ends, if it has all its tokens.
    pub(crate) fn end(&self) -> Option<End> {
        let (output, limit) = self.asked;
        let end = if output < limit && self.generated >= output { End::Stop } else { End::Length };
        (self.generated >= self.arrival.output).then_some(end)
    }

    /// Whether the client receives each token at once. The orchestrator asks a context server without streaming.
    pub(crate) fn is_streamed(&self, role: Role) -> bool {
        !self.arrival.nonstream && role != Role::ContextOnly
    }

    /// Whether a generation server continues the answer of this context server.
    pub(crate) fn is_handed_over(&self, role: Role) -> bool {
        role == Role::ContextOnly && self.asked.0 > 1
    }
}
