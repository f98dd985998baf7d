//! The last finished requests, each with its lengths and times. They come from entries of RequestPerfMetrics, from the last row
//! of each request, or from both in either order if an entry has the id of its row. Memory is bounded, and allocated once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use trtllm_records::RequestStats;

use trtllm_fold::finished_request::{FinishedRequest, computed_tokens};
use trtllm_fold::lifecycle::reused_tokens;
use trtllm_fold::request_times::Times;

/// Number of requests that are kept: 56 bytes each.
const MOST: usize = 2048;
/// The row and the entry of a request are at most this many requests apart.
const NEAR: usize = 256;
/// Arrivals that are more seconds apart are assumed to be on two clocks.
const LONGEST: f64 = 86_400.0;

/// A finished request. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RecentRequest {
    row_id: Option<u64>,
    /// Arrival in seconds after the first request. Absent until the times of the request are known.
    arrived: Option<f64>,
    /// 0 until the length is known.
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    /// Tokens of the prompt that were found in the KV cache.
    pub cached_tokens: u32,
    /// Seconds from the arrival to the first token, and to the last token (`ended`).
    pub first_token: f32,
    pub ended: f32,
}

impl RecentRequest {
    /// Seconds since the first request arrived. Absent if times or lengths are missing.
    pub fn arrived(&self) -> Option<f64> {
        self.arrived.filter(|_| self.prompt_tokens > 0 && self.output_tokens > 0)
    }

    /// Tokens of the prompt that were computed. Absent while the length is unknown.
    pub fn computed_tokens(&self) -> Option<f64> {
        computed_tokens(Some(self.prompt_tokens.into()), Some(self.cached_tokens.into()))
    }
}

/// Where the requests come from. A later variant is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Source {
    #[default]
    Rows,
    /// Entries have exact times and lengths.
    Entries,
    /// Entries have exact times, and rows the lengths.
    Both,
}

/// The last finished requests, in the order in which they ended.
#[derive(Debug, Clone, Default)]
pub struct RecentRequests {
    requests: VecDeque<RecentRequest>,
    /// Arrival of the first request. Arrivals are relative to it, because the origin of the engine's clock is unknown.
    origin: Option<f64>,
    source: Source,
    /// Whether a request was added since the last poll ended.
    is_new: bool,
    /// When the poll ended that added the last request, and the last poll.
    last: Option<Instant>,
    now: Option<Instant>,
    /// Needed to convert reused blocks to tokens.
    pub tokens_per_block: Option<i64>,
}

impl RecentRequests {
    /// The row of a complete request has its lengths: the prefill position is the length of its prompt. `times` are derived
    /// from the changes of its stage. They are used while no entries have exact times.
    pub(crate) fn note_row(&mut self, row: &RequestStats, times: &Times) {
        if self.source == Source::Entries {
            return;
        }
        let cached = reused_tokens(row.reused_blocks_per_request, self.tokens_per_block);
        let Some(index) = row.id.and_then(|id| self.index_of(Some(id))) else { return };
        let request = &mut self.requests[index];
        request.prompt_tokens = length(row.context_prefill_position).unwrap_or(request.prompt_tokens);
        request.output_tokens = length(row.num_generated_tokens).unwrap_or(request.output_tokens);
        if self.source == Source::Rows {
            request.cached_tokens = cached.and_then(|tokens| u32::try_from(tokens).ok()).unwrap_or(0);
            self.note_times(index, times);
        }
    }

    pub(crate) fn note_entry(&mut self, entry: &FinishedRequest) {
        let source = match entry.row_id {
            Some(_) => Source::Both,
            None if entry.prompt_tokens.is_some() && entry.output_tokens.is_some() => Source::Entries,
            // The lengths are in a row, but it is unknown in which one.
            None => return,
        };
        if source > self.source && entry.times.ended.is_some() {
            if self.source == Source::Rows {
                // The times of rows are on another clock.
                self.clear();
            }
            self.source = source;
        }
        let newest = self.requests.iter().rev().find_map(|request| request.arrived);
        if let (Some(arrived), Some(origin), Some(newest)) = (entry.times.arrived, self.origin, newest)
            && (arrived - origin - newest).abs() > LONGEST
        {
            self.clear();
        }
        let cached = entry.cached(self.tokens_per_block).and_then(|tokens| u32::try_from(tokens).ok());
        let Some(index) = self.index_of(entry.row_id) else { return };
        let request = &mut self.requests[index];
        request.prompt_tokens = length(entry.prompt_tokens).unwrap_or(request.prompt_tokens);
        request.output_tokens = length(entry.output_tokens).unwrap_or(request.output_tokens);
        request.cached_tokens = cached.unwrap_or(0);
        self.note_times(index, &entry.times);
    }

    fn note_times(&mut self, index: usize, times: &Times) {
        let (Some(arrived), Some(first_token), Some(ended)) = (times.arrived, times.first_token, times.ended) else {
            return;
        };
        if first_token <= arrived || ended < first_token {
            return;
        }
        let origin = *self.origin.get_or_insert(arrived);
        let request = &mut self.requests[index];
        request.arrived = Some(arrived - origin);
        (request.first_token, request.ended) = ((first_token - arrived) as f32, (ended - arrived) as f32);
    }

    /// The index of the request. Adds it if it is new.
    fn index_of(&mut self, id: Option<u64>) -> Option<usize> {
        let near = self.requests.iter().rev().take(NEAR);
        if let Some(back) = id.and_then(|_| near.clone().position(|request| request.row_id == id)) {
            return Some(self.requests.len() - 1 - back);
        }
        if self.requests.capacity() == 0 {
            self.requests.reserve_exact(MOST);
        }
        if self.requests.len() >= MOST {
            self.requests.pop_front();
        }
        self.is_new = true;
        self.requests.push_back(RecentRequest { row_id: id, ..RecentRequest::default() });
        self.requests.len().checked_sub(1)
    }

    /// A poll has ended.
    pub(crate) fn poll_ended(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_new) {
            self.last = Some(now);
        }
        self.now = Some(now);
    }

    /// Time since the last request became known, until the last poll.
    pub fn age(&self) -> Option<Duration> {
        Some(self.now?.saturating_duration_since(self.last?))
    }

    /// Forgets all requests, as after a restart of the engine.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.origin = None;
    }

    /// The request whose rows have this id, if it is among the last [`NEAR`].
    pub(crate) fn find(&self, id: u64) -> Option<&RecentRequest> {
        self.requests.iter().rev().take(NEAR).find(|request| request.row_id == Some(id))
    }

    pub fn iter(&self) -> impl Iterator<Item = &RecentRequest> {
        self.requests.iter()
    }
}

fn length(tokens: Option<i64>) -> Option<u32> {
    tokens.and_then(|tokens| u32::try_from(tokens).ok()).filter(|tokens| *tokens > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u64) -> RequestStats {
        RequestStats {
            id: Some(id),
            context_prefill_position: Some(100),
            num_generated_tokens: Some(10),
            ..RequestStats::default()
        }
    }

    fn times(arrived: f64) -> Times {
        Times { arrived: Some(arrived), scheduled: None, first_token: Some(arrived + 0.5), ended: Some(arrived + 2.0) }
    }

    fn entry(id: u64, arrived: f64) -> FinishedRequest {
        FinishedRequest { row_id: Some(id), times: times(arrived), ..FinishedRequest::default() }
    }

    fn shown(requests: &RecentRequests) -> Vec<(Option<u64>, Option<f64>, u32)> {
        requests.iter().map(|request| (request.row_id, request.arrived(), request.prompt_tokens)).collect()
    }

    #[test]
    fn a_row_and_an_entry_are_one_request_in_either_order() {
        let mut requests = RecentRequests { tokens_per_block: Some(32), ..RecentRequests::default() };
        requests.note_entry(&entry(1, 7000.0));
        requests.note_row(&row(2), &Times::default());
        requests.note_row(&row(1), &Times::default());
        let reused =
            trtllm_records::perf_metrics::RequestKvCacheMetrics { num_reused_blocks: Some(2), ..Default::default() };
        requests.note_entry(&FinishedRequest { kv_cache: Some(reused), ..entry(2, 7003.0) });
        assert_eq!(shown(&requests), [(Some(1), Some(0.0), 100), (Some(2), Some(3.0), 100)]);
        let computed = |id| requests.find(id).and_then(RecentRequest::computed_tokens);
        assert_eq!((computed(1), computed(2), computed(3)), (Some(100.0), Some(36.0), None));
    }

    #[test]
    fn times_of_rows_count_until_an_entry_has_exact_ones() {
        let mut requests = RecentRequests::default();
        requests.note_row(&row(1), &times(50.0));
        requests.note_row(&row(2), &times(51.0));
        assert_eq!(shown(&requests), [(Some(1), Some(0.0), 100), (Some(2), Some(1.0), 100)]);
        // The entry is on another clock, so the other requests are forgotten.
        requests.note_entry(&entry(3, 9000.0));
        requests.note_row(&row(3), &times(52.0));
        assert_eq!(shown(&requests), [(Some(3), Some(0.0), 100)]);
        // A day later.
        requests.note_entry(&entry(4, 9000.0 + 90_000.0));
        assert_eq!(shown(&requests), [(Some(4), None, 0)]);
    }

    #[test]
    fn an_engine_that_serves_for_days_keeps_its_requests() {
        let mut requests = RecentRequests::default();
        (0..5).for_each(|id| requests.note_entry(&entry(id, 40_000.0 * id as f64)));
        assert_eq!(requests.iter().count(), 5);
    }

    #[test]
    fn the_oldest_requests_are_dropped_and_a_restart_drops_all() {
        let mut requests = RecentRequests::default();
        (0..3000).for_each(|id| requests.note_row(&row(id), &times(id as f64)));
        let kept = shown(&requests);
        assert_eq!((kept.len(), kept[0].0, requests.requests.capacity()), (MOST, Some(3000 - MOST as u64), MOST));
        assert_eq!(requests.find(3000 - NEAR as u64 - 1), None, "its row and its entry come sooner");
        requests.clear();
        requests.note_row(&row(1), &times(70.0));
        assert_eq!(shown(&requests), [(Some(1), Some(0.0), 100)]);
    }
}
