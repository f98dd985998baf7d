//! What each source tells of a finished request, or of several.

use trtllm_records::perf_metrics::{FinishReason, PerfMetricsEntry};
use trtllm_records::request::RequestStats;
use trtllm_records::server_metrics::RequestHistogram;

use super::choices::{Quantity, Source};
use crate::finished_request::{FinishedRequest, finish_reason};
use crate::lifecycle::Lifecycle;
use crate::request_times::{Blocks, Latencies, Transfer};
use crate::served::Served;
use crate::server_metrics::Increase;

#[derive(Debug, Clone)]
pub(super) enum Finished {
    One(Request),
    /// The requests that were added to the server's page.
    OnPage(Increase),
}

/// A request as its entry, or its row that reports it complete, describes it.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub source: Source,
    /// The id that the engine gave to it.
    pub id: Option<u64>,
    /// Of a row: unknown if the start or some rows of the request were missed.
    pub latencies: Latencies,
    /// The values by which objectives judge it. Absent if it must not be judged.
    pub served: Option<Served>,
    pub input_tokens: Option<i64>,
    pub output_tokens: Option<i64>,
    pub reason: Option<FinishReason>,
    pub transfer: Transfer,
    pub blocks: Blocks,
}

impl Request {
    /// `request`: from the metrics of the entry, if it has some.
    pub(super) fn of_entry(entry: &PerfMetricsEntry, request: Option<&FinishedRequest>, served: Served) -> Self {
        let reason = finish_reason(entry);
        let request = request.copied().unwrap_or_default();
        let kv = request.kv_cache.unwrap_or_default();
        Self {
            source: Source::Entries,
            id: request.request,
            latencies: request.latencies,
            served: Some(served),
            input_tokens: request.prompt_tokens,
            output_tokens: request.output_tokens,
            reason,
            transfer: Transfer {
                is_disaggregated: request.disaggregated,
                seconds: request.transfer_seconds,
                milliseconds: request.transfer_seconds.map(|seconds| seconds * 1000.0),
                bytes: request.transfer_bytes,
            },
            blocks: Blocks {
                total: kv.num_total_allocated_blocks,
                new: kv.num_new_allocated_blocks,
                reused: kv.num_reused_blocks,
                missed: kv.num_missed_blocks,
                request: request.request,
            },
        }
    }

    /// `is_sampled`: not all requests have rows, so objectives do not judge this one.
    pub(super) fn of_row(row: &RequestStats, lifecycle: Option<&Lifecycle>, is_sampled: bool) -> Self {
        let times = lifecycle.map(Lifecycle::times).unwrap_or_default();
        let output_tokens = row.num_generated_tokens.and_then(|tokens| u64::try_from(tokens).ok());
        // A request without a token was cancelled, so its times say nothing about the engine.
        let served = match output_tokens {
            Some(0) => Served::default(),
            _ => Served::of(&times, output_tokens),
        };
        // The row of a request that only had a context phase shows a transfer that has not ended, with a time of 0.
        let transfer =
            row.dis_serving_stats.filter(|transfer| transfer.kv_cache_transfer_ms.is_some_and(|ms| ms > 0.0));
        let transfer = transfer.unwrap_or_default();
        Self {
            source: Source::Rows,
            id: row.id,
            latencies: Latencies::of(&times, lifecycle.map(|lifecycle| lifecycle.tokens)),
            served: (!is_sampled).then_some(served),
            input_tokens: row.context_prefill_position,
            output_tokens: row.num_generated_tokens,
            reason: None,
            transfer: Transfer {
                // Triton counts each request of a context or generation server.
                is_disaggregated: row.dis_serving_stats.is_some(),
                seconds: transfer.kv_cache_transfer_ms.map(|ms| ms / 1000.0),
                milliseconds: transfer.kv_cache_transfer_ms,
                bytes: transfer.kv_cache_size.and_then(|bytes| u64::try_from(bytes).ok()),
            },
            blocks: Blocks {
                total: row.alloc_total_blocks_per_request,
                new: row.alloc_new_blocks_per_request,
                reused: row.reused_blocks_per_request,
                missed: row.missed_blocks_per_request,
                request: row.id,
            },
        }
    }

    fn has(&self, quantity: Quantity) -> bool {
        // A row has times, known or not: without better ones they show which requests have none.
        let has_times = self.source == Source::Rows || self.latencies.any();
        match quantity {
            Quantity::Times | Quantity::Outcomes => has_times,
            Quantity::TimePerToken => self.latencies.time_per_output_token.is_some(),
            Quantity::Lengths => self.input_tokens.or(self.output_tokens).is_some() || self.transfer.is_disaggregated,
            Quantity::Reasons => self.reason.is_some(),
            Quantity::Transfers => self.transfer != Transfer::default(),
            Quantity::Blocks => self.blocks != Blocks { request: self.id, ..Blocks::default() },
        }
    }
}

impl Finished {
    pub(super) fn source(&self) -> Source {
        match self {
            Self::One(request) => request.source,
            Self::OnPage(_) => Source::Page,
        }
    }

    /// Whether it tells the quantity.
    pub(super) fn has(&self, quantity: Quantity) -> bool {
        let more = match self {
            Self::One(request) => return request.has(quantity),
            Self::OnPage(more) => more,
        };
        let whole = more.of(RequestHistogram::EndToEnd);
        match quantity {
            // A histogram without its sum has no mean.
            Quantity::Times => whole.sum.is_some() && whole.count() > 0,
            Quantity::Outcomes => whole.count() > 0,
            Quantity::TimePerToken => more.of(RequestHistogram::PerOutputToken).count() > 0,
            Quantity::Reasons => more.finished.iter().any(|count| *count > 0),
            Quantity::Lengths | Quantity::Transfers | Quantity::Blocks => false,
        }
    }

    /// Whether the time per output token of this request can be judged with its other times.
    pub(super) fn has_tokens(&self) -> bool {
        match self {
            Self::One(request) => request.served.is_none_or(|served| served.output_tokens.is_some()),
            Self::OnPage(_) => false,
        }
    }
}
