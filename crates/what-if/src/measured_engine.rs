//! What is known of an engine now. It is the JSON of `/api/v1/model`, so another process can answer questions later.

use serde::{Deserialize, Serialize};
use trtllm_analysis::ObservedEngine;
pub use trtllm_analysis::cost_model::{EqualWork, Prices, Work};
use trtllm_analysis::iteration_sums::IterationSums;
use trtllm_analysis::window::{Span, Window};

/// JSON of `/api/v1/model`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MeasuredEngine {
    pub limits: Limits,
    pub cache: Option<Cache>,
    /// The linear fit of the costs. Absent if the costs are too far from linear, or too few iterations are known.
    pub prices: Option<Prices>,
    /// Means of iterations with about equal work.
    pub equal_work: Vec<EqualWork>,
    pub largest: LargestWork,
    pub drafts: Option<Drafts>,
    pub host_seconds: HostSeconds,
    /// The last finished requests, in the order of arrival: those of an hour, and at least 200 if so many are known.
    pub requests: Vec<Request>,
    /// Seconds from the first arrival to the last arrival of these.
    pub span_seconds: f64,
    /// Seconds since the last of them became known. Absent without a request.
    pub last_request_seconds: Option<f64>,
    pub objectives: Objectives,
    /// Iterations per record. Above 1, statistics are sampled.
    pub sampling: f64,
    /// Time of the iterations of the last minute ÷ the time of equal work in the engine's past.
    pub slowdown: Option<f64>,
    pub attention_dp_ranks: u64,
    pub static_batching: bool,
    /// Whether two engines serve each request.
    pub disaggregated: bool,
    /// The load of the last minutes. Absent if they have no iterations.
    pub workload: Option<Workload>,
}

/// JSON of `/api/v1/model`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Workload {
    pub requests_per_second: f64,
    /// Means of the requests whose lengths are known.
    pub prompt_tokens: Option<f64>,
    pub output_tokens: Option<f64>,
    /// Share of the prompts' tokens that was found in the KV cache.
    pub cached_share: Option<f64>,
    /// Mean number of requests in an iteration.
    pub batch: f64,
    /// Share of the time of all iterations that iterations with prompts take.
    pub context_share: Option<f64>,
}

/// JSON of `/api/v1/model`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    pub max_batch_size: Option<u32>,
    pub max_num_tokens: Option<u32>,
    /// Absent if the engine does not report it.
    pub policy: Option<Policy>,
    /// Whether the loop forms a batch while the one before runs. Absent if it is unknown.
    pub overlap: Option<bool>,
}

/// JSON of `/api/v1/model`: seconds of the host in each iteration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostSeconds {
    /// To form a batch, where nothing runs meanwhile. Absent until an engine that overlaps was idle.
    pub forming: Option<f64>,
    /// Beside the forward pass of the GPU. Absent if the engine does not report the forward pass.
    pub beside_device: Option<f64>,
}

/// JSON of `/api/v1/model`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Policy {
    GuaranteedNoEvict,
    MaxUtilization,
}

/// JSON of `/api/v1/model`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cache {
    pub blocks: u32,
    pub tokens_per_block: u32,
}

/// JSON of `/api/v1/model`: the largest number of tokens in one iteration. Not [`Work`], because how full the KV cache
/// was tells nothing here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LargestWork {
    pub context_tokens: f64,
    pub generation_tokens: f64,
}

/// JSON of `/api/v1/model`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drafts {
    /// Mean number of draft tokens of a request in an iteration, and how many of them are accepted.
    pub length: f64,
    pub accepted: f64,
}

/// JSON of `/api/v1/model`: a request. Times are in seconds: `arrived` since an arbitrary moment, `first_token` and
/// `ended` since the arrival.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    pub arrived: f64,
    pub prompt: u32,
    pub cached: u32,
    pub output: u32,
    pub first_token: f64,
    pub ended: f64,
}

/// JSON of `/api/v1/model`: the objectives in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Objectives {
    pub ttft: Option<f64>,
    pub tpot: Option<f64>,
    pub e2e: Option<f64>,
}

impl Objectives {
    pub(crate) fn limits(&self) -> [Option<f64>; 3] {
        [self.ttft, self.tpot, self.e2e]
    }
}

/// Seconds that the drafts cover, and seconds that the workload covers.
const RECENT: f64 = 60.0;
const MINUTES: f64 = 300.0;
/// Seconds that the requests cover.
const HOUR: f64 = 3600.0;
/// Questions need this many known requests.
pub(crate) const ENOUGH: usize = 200;

impl MeasuredEngine {
    /// `window`: the last minutes of the engine.
    pub fn of(ObservedEngine { fold, analysis }: &ObservedEngine, window: &Window) -> Self {
        let recent = &window.span(RECENT).map(|span| span.sums).unwrap_or_default();
        let latest = fold.latest();
        let limit = |of: fn(&trtllm_fold::Latest) -> trtllm_fold::latest::EngineLimits, configured: Option<i64>| {
            let limits = latest.map(of).unwrap_or_default();
            limits.runtime.or(limits.fixed).or(configured).and_then(|limit| u32::try_from(limit).ok())
        };
        let configured = analysis.iterations.configured;
        // In a pipeline, several batches share the limit of active requests.
        let one_batch = latest.filter(|_| !fold.is_in_pipeline());
        let max_active = || one_batch?.batch_limit(None).and_then(|limit| u32::try_from(limit).ok());
        let whole = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0);
        // With several pools, the sum of their blocks does not tell how many tokens fit.
        let one_pool = latest.filter(|latest| latest.pools.fullest.is_none());
        let cache = one_pool.and_then(|latest| latest.kv).and_then(|kv| {
            Some(Cache { blocks: whole(kv.max_num_blocks)?, tokens_per_block: whole(kv.tokens_per_block)? })
        });
        let model = &analysis.iterations.model;
        let (context_tokens, generation_tokens) = model.largest_tokens();
        let totals = &fold.requests.totals;
        let drafts = (recent.drafted_requests > 0.0).then(|| Drafts {
            length: recent.draft_tokens / recent.drafted_requests,
            accepted: recent.accepted_tokens / recent.drafted_requests,
        });
        let objective = analysis.objectives.map(|objectives| objectives.limits).unwrap_or_default();
        let seconds = |limit: Option<std::time::Duration>| limit.map(|limit| limit.as_secs_f64());
        let mut requests: Vec<Request> = analysis.recent.iter().filter_map(Request::of).collect();
        requests.sort_by(|one, other| one.arrived.total_cmp(&other.arrived));
        keep_last_hour(&mut requests);
        Self {
            limits: Limits {
                max_batch_size: limit(|latest| latest.batch_size_limits, configured.batch).or_else(max_active),
                max_num_tokens: limit(|latest| latest.token_limits, configured.tokens),
                policy: latest.is_some_and(trtllm_fold::Latest::never_reserves).then_some(Policy::MaxUtilization),
                overlap: fold.overlaps(),
            },
            host_seconds: HostSeconds { forming: fold.forming_seconds(), beside_device: beside_device(recent) },
            cache,
            prices: model.costs(),
            equal_work: model.equal_work().collect(),
            largest: LargestWork { context_tokens, generation_tokens },
            drafts,
            span_seconds: requests
                .first()
                .zip(requests.last())
                .map_or(0.0, |(first, last)| last.arrived - first.arrived),
            last_request_seconds: analysis.recent.age().map(|age| age.as_secs_f64()),
            workload: window.span(MINUTES).and_then(|span| Workload::of(&span, &requests)),
            requests,
            objectives: Objectives {
                ttft: seconds(objective.ttft),
                tpot: seconds(objective.tpot),
                e2e: seconds(objective.e2e),
            },
            sampling: fold.totals.statistics_interval.unwrap_or(1).max(1) as f64,
            slowdown: window.slowdown().map(|slowdown| slowdown.ratio),
            attention_dp_ranks: latest.and_then(trtllm_fold::Latest::attention_dp_ranks).unwrap_or(1).max(1),
            static_batching: recent.static_slots > 0.0
                || latest.is_some_and(|latest| !latest.is_pytorch) && recent.admits_into_empty_batches(),
            disaggregated: totals.disaggregated_requests > 0,
        }
    }
}

/// Older requests may be of another load. `requests`: in the order of arrival.
fn keep_last_hour(requests: &mut Vec<Request>) {
    let last = requests.last().map_or(0.0, |request| request.arrived);
    let older = requests.partition_point(|request| request.arrived < last - HOUR);
    requests.drain(..older.min(requests.len().saturating_sub(ENOUGH)));
}

/// Mean seconds of an iteration in which the GPU ran no forward pass.
fn beside_device(recent: &IterationSums) -> Option<f64> {
    let share = 1.0 - recent.device_seconds / recent.device_known_seconds;
    (recent.device_known_seconds > 0.0 && recent.iterations > 0.0).then(|| share * recent.seconds / recent.iterations)
}

impl Workload {
    /// `span`: the last minutes. `requests`: in the order of arrival.
    pub fn of(span: &Span, requests: &[Request]) -> Option<Self> {
        let sums = &span.sums;
        if sums.iterations <= 0.0 {
            return None;
        }
        let last = requests.last().map_or(0.0, |request| request.arrived);
        let recent = &requests[requests.partition_point(|request| request.arrived < last - span.seconds)..];
        let sum = |of: fn(&Request) -> u32| recent.iter().map(|request| f64::from(of(request))).sum::<f64>();
        let mean = |of: fn(&Request) -> u32| (!recent.is_empty()).then(|| sum(of) / recent.len() as f64);
        let prompts = sum(|request| request.prompt);
        Some(Self {
            requests_per_second: span.rate(span.served()),
            prompt_tokens: mean(|request| request.prompt),
            output_tokens: mean(|request| request.output),
            cached_share: (prompts > 0.0).then(|| sum(|request| request.cached) / prompts),
            batch: sums.scheduled / sums.iterations,
            context_share: (sums.seconds > 0.0).then(|| 1.0 - sums.generation_seconds / sums.seconds),
        })
    }
}

impl Request {
    /// When its last token came, on the clock of `arrived`.
    pub(crate) fn end(&self) -> f64 {
        self.arrived + self.ended
    }

    fn of(recent: &trtllm_analysis::recent_requests::RecentRequest) -> Option<Self> {
        Some(Self {
            arrived: recent.arrived()?,
            prompt: recent.prompt_tokens,
            // The last token of a prompt is always computed.
            cached: recent.cached_tokens.min(recent.prompt_tokens - 1),
            output: recent.output_tokens,
            first_token: recent.first_token.into(),
            ended: recent.ended.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_an_hour_are_kept_or_200() {
        let kept = |distance: f64| {
            let mut requests: Vec<_> =
                (0..2000).map(|at| Request { arrived: distance * f64::from(at), ..Request::default() }).collect();
            keep_last_hour(&mut requests);
            requests.len()
        };
        assert_eq!([1.0, 4.0, 60.0].map(kept), [2000, 901, 200]);
    }
}
