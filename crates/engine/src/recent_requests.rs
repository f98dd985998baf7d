//! The last finished requests, each with its lengths and times: what a load consists of. Times come from the request's entry of
//! RequestPerfMetrics, lengths from there or from its last row, in either order. Memory is bounded and taken once.

use std::collections::VecDeque;

use trtllm_model::request::RequestStats;

use super::finished_request::FinishedRequest;
use super::request_times::Times;

/// Requests that are kept: 40 bytes each.
const MOST: usize = 2048;
/// The row and the entry of a request come within this many requests.
const NEAR: usize = 256;
/// Arrivals further apart are of two clocks, or of another day.
const LONGEST: f64 = 86_400.0;

/// A finished request. Times are seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecentRequest {
    id: Option<u64>,
    /// Since the first request. Absent until its entry comes.
    arrived: Option<f64>,
    /// 0 until they are known.
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    /// Tokens of the prompt that were found in the KV cache.
    pub cached_tokens: u32,
    /// After the arrival.
    pub first_token: f32,
    pub ended: f32,
}

impl RecentRequest {
    fn new(id: Option<u64>) -> Self {
        Self { id, arrived: None, prompt_tokens: 0, output_tokens: 0, cached_tokens: 0, first_token: 0.0, ended: 0.0 }
    }

    /// Seconds since the first request arrived. Absent if times or lengths are missing.
    #[must_use]
    pub fn arrived(&self) -> Option<f64> {
        self.arrived.filter(|_| self.prompt_tokens > 0 && self.output_tokens > 0)
    }
}

/// The last finished requests, in the order in which they ended.
#[derive(Debug, Clone, Default)]
pub struct RecentRequests {
    requests: VecDeque<RecentRequest>,
    /// The engine's clock has an unknown beginning. Times count from the arrival of the first request.
    origin: Option<f64>,
    /// Entries have exact times.
    has_entries: bool,
    /// To count the tokens of reused blocks.
    pub tokens_per_block: Option<i64>,
}

impl RecentRequests {
    /// The row of a complete request has its lengths: the prefill position is that of the whole prompt.
    /// `times`: from the changes of its stage, which count while no entries come.
    pub(crate) fn note_row(&mut self, row: &RequestStats, times: &Times) {
        let Some(place) = row.id.and_then(|id| self.place(Some(id))) else { return };
        let request = &mut self.requests[place];
        request.prompt_tokens = length(row.context_prefill_position).unwrap_or(request.prompt_tokens);
        request.output_tokens = length(row.num_generated_tokens).unwrap_or(request.output_tokens);
        if !self.has_entries {
            self.note_times(place, times);
        }
    }

    pub(crate) fn note_entry(&mut self, entry: &FinishedRequest) {
        if !self.has_entries && entry.times.ended.is_some() {
            // Times of rows are on another clock.
            self.clear();
            self.has_entries = true;
        }
        if let (Some(arrived), Some(origin)) = (entry.times.arrived, self.origin)
            && (arrived - origin).abs() > LONGEST
        {
            self.clear();
        }
        let reused = || {
            let blocks = entry.kv_cache?.num_reused_blocks?;
            u64::try_from(blocks.checked_mul(self.tokens_per_block?)?).ok()
        };
        let cached = entry.cached_tokens.or_else(reused).and_then(|tokens| u32::try_from(tokens).ok());
        let Some(place) = self.place(entry.request) else { return };
        let request = &mut self.requests[place];
        request.prompt_tokens = length(entry.prompt_tokens).unwrap_or(request.prompt_tokens);
        request.output_tokens = length(entry.output_tokens).unwrap_or(request.output_tokens);
        request.cached_tokens = cached.unwrap_or(0);
        self.note_times(place, &entry.times);
    }

    fn note_times(&mut self, place: usize, times: &Times) {
        let (Some(arrived), Some(first_token), Some(ended)) = (times.arrived, times.first_token, times.ended) else {
            return;
        };
        if first_token <= arrived || ended < first_token {
            return;
        }
        let origin = *self.origin.get_or_insert(arrived);
        let request = &mut self.requests[place];
        request.arrived = Some(arrived - origin);
        (request.first_token, request.ended) = ((first_token - arrived) as f32, (ended - arrived) as f32);
    }

    /// Where the request is, or will be.
    fn place(&mut self, id: Option<u64>) -> Option<usize> {
        let near = self.requests.iter().rev().take(NEAR);
        if let Some(back) = id.and_then(|_| near.clone().position(|request| request.id == id)) {
            return Some(self.requests.len() - 1 - back);
        }
        if self.requests.capacity() == 0 {
            self.requests.reserve_exact(MOST);
        }
        if self.requests.len() >= MOST {
            self.requests.pop_front();
        }
        self.requests.push_back(RecentRequest::new(id));
        self.requests.len().checked_sub(1)
    }

    /// The requests of an engine before its restart say nothing about the one after it.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.origin = None;
    }

    pub fn iter(&self) -> impl Iterator<Item = &RecentRequest> {
        self.requests.iter()
    }
}

fn length(tokens: Option<i64>) -> Option<u32> {
    tokens.and_then(|tokens| u32::try_from(tokens).ok()).filter(|tokens| *tokens > 0)
}
