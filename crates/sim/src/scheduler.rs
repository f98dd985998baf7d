//! Chooses the batch of one rank: which requests are admitted to the cache, which decode, and whose context is computed. As in
//! TensorRT-LLM: first come, first served, and decoding before context.

use crate::cache::Cache;
use crate::config::{Config, Policy, Role};
use crate::cost::Work;
use crate::pass::Pass;
use crate::record::StaticBatch;
use crate::request::{Request, Share};

/// The requests and the cache of one rank.
#[derive(Debug)]
pub(crate) struct Rank {
    pub(crate) cache: Cache,
    pub(crate) active: Vec<Request>,
    /// Requests of a PyTorch context server that left `active` and whose KV cache is being sent.
    pub(crate) sending: Vec<Request>,
    /// Blocks that are promised to admitted requests and that they have not taken yet.
    promised: usize,
}

/// The batch of one rank.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Batch {
    pub(crate) work: Work,
    /// Tokens that the decoding requests generate, including those that are thrown away.
    pub(crate) decoded: u64,
    pub(crate) drafted: u64,
    /// Sum over the decoding requests of their mean tokens per step before this batch.
    pub(crate) tokens_per_step: f64,
    /// Seconds to load adapters, and to copy blocks from and to the host.
    pub(crate) loading: f64,
    pub(crate) resumed: u32,
    /// Cached tokens that count against the limit of tokens.
    uncredited: u64,
    /// Context tokens of paused requests that were computed before their pause, too.
    pub(crate) recomputed: u64,
    pub(crate) answers: Answers,
}

/// The answers that a static batch generates after the context phase of its requests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answers {
    /// Steps until the longest answer ends, and the mean work of a step.
    pub(crate) steps: u32,
    pub(crate) step: Work,
    /// Tokens without the first ones.
    pub(crate) tokens: u64,
    pub(crate) counts: StaticBatch,
}

impl Batch {
    /// A cost of all its passes.
    pub(crate) fn sum(&self, cost: impl Fn(&Work) -> f64) -> f64 {
        cost(&self.work) + f64::from(self.answers.steps) * cost(&self.answers.step)
    }
}

impl Rank {
    pub(crate) fn new(config: &Config) -> Self {
        let cache = Cache::new(config.cache.clone());
        Self { cache, active: Vec::new(), sending: Vec::new(), promised: 0 }
    }

    pub(crate) fn schedule(&mut self, pass: &mut Pass<'_>) -> Batch {
        let mut batch = Batch::default();
        let before = self.cache.counts;
        let was_running = self.active.iter().any(Request::is_admitted);
        self.schedule_decoding(pass, &mut batch);
        self.schedule_context(pass, &mut batch, was_running);
        if pass.config.runs_static_batches() {
            batch.answers = self.answer(pass.slot);
        }
        let counts = self.cache.counts.since(&before);
        let copied =
            (counts.onboarded + counts.offloaded) * pass.config.cache.bytes(pass.config.cache.tokens_per_block);
        batch.loading += copied as f64 / pass.config.cache.host_bandwidth;
        batch
    }

    /// Lets the requests of a static batch run until their answers end.
    fn answer(&mut self, slot: usize) -> Answers {
        let mut answers = Answers::default();
        let mut longest = 0;
        for request in self.active.iter_mut().filter(|request| request.shares[slot].is_scheduled) {
            let (prompt, output, limit) =
                (request.arrival.prompt, request.arrival.output, request.arrival.max_new_tokens);
            request.shares[slot].made = output;
            request.shares[slot].filled += output - 1;
            answers.steps = answers.steps.max(output - 1);
            answers.step.scheduled += 1;
            answers.step.generation_kv_tokens += u64::from(prompt);
            answers.tokens += u64::from(output - 1);
            answers.counts.context_tokens += u64::from(prompt);
            answers.counts.generation_tokens += u64::from(limit);
            longest = longest.max(limit);
        }
        let requests = u64::from(answers.step.scheduled);
        answers.step.generation_requests = answers.step.scheduled;
        answers.step.generation_tokens = requests;
        answers.step.generation_kv_tokens += requests * u64::from(answers.steps) / 2;
        answers.counts.empty_slots = requests * u64::from(longest) - answers.counts.generation_tokens;
        answers
    }

    fn schedule_decoding(&mut self, pass: &mut Pass<'_>, batch: &mut Batch) {
        let draft = pass.config.speculation.as_ref().map_or(0, |speculation| speculation.draft_len);
        let mut index = 0;
        while index < self.active.len() {
            let request = &self.active[index];
            // The C++ Executor drafts no tokens beyond the end of the answer.
            let left = request.arrival.output.saturating_sub(request.launched_tokens() + 1);
            let draft = if pass.config.release.is_cpp() { draft.min(left) } else { draft };
            let tokens = u64::from(1 + draft);
            let eligible = request.micro_batch == pass.micro_batch
                && request.is_decoding()
                && request.wants_token()
                && !request.is_receiving(pass.now);
            let fits = batch.work.scheduled < pass.batch_limit
                && batch.work.generation_tokens + tokens <= u64::from(pass.config.limits.max_num_tokens);
            if !eligible || !fits {
                index += 1;
                continue;
            }
            if !self.grow(index, draft, pass, batch) {
                // Pausing all later requests did not free enough blocks, so this request was paused, too.
                break;
            }
            let request = &mut self.active[index];
            if pass.config.role == Role::GenerationOnly && request.generated == 0 {
                request.take_first_token(pass);
            }
            let accepted = accepted(pass, draft);
            let made = (1 + accepted).min(request.arrival.output.saturating_sub(request.launched_tokens()));
            // A request whose answer has ended still computes a token, which is thrown away.
            let filled = made.max(1);
            batch.work.scheduled += 1;
            batch.work.generation_requests += 1;
            batch.work.generation_tokens += tokens;
            batch.work.generation_kv_tokens += u64::from(request.launched_filled());
            batch.decoded += u64::from(filled);
            batch.drafted += u64::from(draft);
            batch.tokens_per_step += request.tokens_per_step();
            request.shares[pass.slot] = Share { is_scheduled: true, decodes: true, filled, made, drafted: draft };
            index += 1;
        }
    }

    /// Takes the blocks for the next tokens of a request. If no block is available, the latest requests are paused
    /// (MAX_UTILIZATION). False if the request itself was paused.
    fn grow(&mut self, index: usize, draft: u32, pass: &Pass<'_>, batch: &mut Batch) -> bool {
        let size = pass.config.cache.tokens_per_block;
        loop {
            let request = &mut self.active[index];
            if request.blocks.len() as u32 * size >= request.launched_filled() + 1 + draft {
                return true;
            }
            let blank = self.cache.counts.alloc_new;
            if let Some(block) = self.cache.take_generation() {
                request.blocks.push(block);
                request.counts.alloc_total += 1;
                request.counts.alloc_new += self.cache.counts.alloc_new - blank;
                if request.promised > 0 {
                    request.promised -= 1;
                    self.promised -= 1;
                }
                continue;
            }
            // A request whose last token is in an unhandled batch frees its blocks soon, and is not paused.
            let may_pause = |request: &Request| {
                request.is_admitted()
                    && (request.generated == request.launched_tokens()
                        || request.launched_tokens() < request.arrival.output)
            };
            let latest = self.active.iter().rposition(may_pause).unwrap_or(index).max(index);
            self.pause(latest);
            batch.work.paused += 1;
            if latest == index {
                return false;
            }
        }
    }

    /// Takes the cache blocks away from a request, which computes its tokens again later. A token that it generates in an
    /// unhandled batch counts, and is computed again, too.
    fn pause(&mut self, index: usize) {
        let request = &mut self.active[index];
        request.computed = request.computed.max(request.launched_filled());
        self.cache.store(&request.keys, &request.blocks, request.launched_filled());
        self.cache.release(&request.blocks);
        self.promised -= request.promised as usize;
        request.blocks.clear();
        request.promised = 0;
        request.filled = 0;
        request.context = request.arrival.prompt + request.launched_tokens();
        request.shares.iter_mut().for_each(|share| share.filled = 0);
        request.paused = true;
    }

    fn schedule_context(&mut self, pass: &mut Pass<'_>, batch: &mut Batch, was_running: bool) {
        let limits = &pass.config.limits;
        let chunks = pass.config.chunks_context();
        for index in 0..self.active.len() {
            let used = batch.work.generation_tokens + batch.work.context_tokens + batch.uncredited;
            let budget = u64::from(limits.max_num_tokens).saturating_sub(used) as u32;
            if batch.work.scheduled >= pass.batch_limit || budget == 0 {
                return;
            }
            let request = &self.active[index];
            if request.micro_batch != pass.micro_batch || request.is_decoding() {
                continue;
            }
            // A paused request computes its prompt and its generated tokens again. Without chunks, these may exceed the limit of an
            // iteration, so the request waits until no other request is scheduled.
            let is_too_long = !chunks && request.context > limits.max_num_tokens;
            if is_too_long && used > 0 {
                return;
            }
            if !request.is_admitted() {
                let closed = pass.config.policy() == Policy::Static && was_running;
                // A request that was paused in this pass must wait. Otherwise it would take back its blocks at once.
                let waits = closed || batch.work.paused > 0 || !chunks && request.context > budget && !is_too_long;
                if waits || !self.admit(index, pass, batch) {
                    return;
                }
            }
            let request = &mut self.active[index];
            let filled = request.launched_filled();
            let left = request.context - filled.min(request.context);
            if left == 0 {
                continue;
            }
            let mut chunk = if is_too_long { left } else { left.min(budget) };
            if chunk < left {
                if !chunks {
                    return;
                }
                let size = pass.config.cache.tokens_per_block;
                // Chunks end at the end of a block, unless the limit is smaller than a block.
                chunk -= if limits.max_num_tokens < size { 0 } else { chunk % size };
            }
            if chunk == 0 {
                return;
            }
            let made = u32::from(chunk == left);
            if !limits.credits_reuse && request.scheduled_at.is_none() {
                batch.uncredited += u64::from(filled);
            }
            request.shares[pass.slot] = Share { is_scheduled: true, filled: chunk, made, ..Share::default() };
            request.scheduled_at.get_or_insert(pass.now);
            batch.work.scheduled += 1;
            batch.work.context_requests += 1;
            batch.work.context_tokens += u64::from(chunk);
            batch.work.context_kv_tokens += u64::from(filled);
            batch.recomputed += u64::from((filled + chunk).min(request.computed).saturating_sub(filled));
            batch.work.attention_pairs += f64::from(chunk) * (f64::from(filled) + f64::from(chunk) / 2.0);
        }
    }

    /// Gives a request its blocks, if the policy and the adapters allow it.
    fn admit(&mut self, index: usize, pass: &mut Pass<'_>, batch: &mut Batch) -> bool {
        let request = &self.active[index];
        let needed = request.context.div_ceil(pass.config.cache.tokens_per_block) as usize;
        let at_end = blocks_at_end(pass.config, request.arrival.prompt, request.arrival.max_new_tokens);
        let held = self.cache.held_by_others(&request.keys, request.context);
        let policy = pass.config.policy();
        let fits = match policy {
            Policy::GuaranteedNoEvict | Policy::Static => self.cache.available() + held >= self.promised + at_end,
            // One more block is kept for the next token, unless the request is alone.
            Policy::MaxUtilization => {
                let is_alone = !self.active.iter().any(Request::is_admitted);
                self.cache.available() + held >= needed + usize::from(!is_alone)
            }
        };
        if !fits {
            return false;
        }
        if let Some(adapter) = request.arrival.adapter {
            let active = &self.active;
            let is_used = |other: u32| {
                active.iter().any(|request| request.is_admitted() && request.arrival.adapter == Some(other))
            };
            let Some(seconds) = pass.adapters.use_adapter(adapter, is_used) else { return false };
            batch.loading += seconds;
        }
        let before = self.cache.counts;
        let request = &mut self.active[index];
        let (blocks, cached) = self.cache.take_prompt(&request.keys, request.context);
        let counts = self.cache.counts.since(&before);
        if policy != Policy::MaxUtilization {
            request.promised = at_end.saturating_sub(blocks.len()) as u32;
            self.promised += request.promised as usize;
        }
        request.blocks = blocks;
        request.filled = cached;
        request.counts.alloc_total += counts.alloc_total;
        request.counts.alloc_new += counts.alloc_new;
        request.counts.full_reused += counts.full_reused;
        request.counts.partial_reused += counts.partial_reused;
        request.counts.missed += counts.missed;
        batch.resumed += u32::from(request.paused);
        request.paused = false;
        if pass.config.role == Role::GenerationOnly && request.transfer.is_none() {
            let start = pass.link_free_at.max(pass.now);
            let end = start + transfer_seconds(pass.config, request.arrival.prompt);
            *pass.link_free_at = end;
            request.transfer = Some((start, end));
            request.filled = request.context;
            // The C++ Executor gives a request its slot before the transfer, the PyTorch loop after it.
            request.scheduled_at = pass.config.release.is_cpp().then_some(pass.now);
        }
        true
    }

    /// Removes a request. Its blocks become reusable.
    pub(crate) fn remove(&mut self, index: usize) -> Request {
        let request = self.active.remove(index);
        self.release(&request);
        request
    }

    /// Removes the requests whose KV cache was sent. Their blocks become reusable.
    pub(crate) fn remove_sent(&mut self, now: f64) -> Vec<Request> {
        let sent: Vec<_> = self.sending.extract_if(.., |request| !request.is_receiving(now)).collect();
        sent.iter().for_each(|request| self.release(request));
        sent
    }

    fn release(&mut self, request: &Request) {
        self.promised -= request.promised as usize;
        self.cache.store(&request.keys, &request.blocks, request.filled);
        self.cache.release(&request.blocks);
    }
}

/// Blocks that a request holds when it has all its tokens.
pub(crate) fn blocks_at_end(config: &Config, prompt: u32, output: u32) -> usize {
    let draft = config.speculation.as_ref().map_or(0, |speculation| speculation.draft_len);
    (prompt + output + draft).div_ceil(config.cache.tokens_per_block) as usize
}

pub(crate) fn transfer_seconds(config: &Config, prompt: u32) -> f64 {
    config.transfer.seconds + config.cache.bytes(prompt) as f64 / config.transfer.bytes_per_second
}

/// Draft tokens accepted in one step.
fn accepted(pass: &mut Pass<'_>, draft: u32) -> u32 {
    let Some(speculation) = &pass.config.speculation else { return 0 };
    (0..draft).take_while(|_| pass.random.chance(speculation.acceptance)).count() as u32
}
