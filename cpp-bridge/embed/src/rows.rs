//! Decodes the rows that `detail/rows.h` writes into the model's records. Header and library agree on slot numbers: a
//! slot that an older header does not write is absent, and a slot that a newer header adds is ignored.

use exporter::model::iteration::{InflightBatchingStats, KvCacheStats, SpecDecodingStats, StaticBatchingStats};
use exporter::model::perf_metrics::{
    FinishReason, RequestKvCacheMetrics, RequestPerfMetrics, SpeculativeDecodingMetrics, TimingMetrics,
};
use exporter::model::request::{DisServingRequestStats, RequestStage, RequestStats};
use exporter::model::timestamp::parse_timestamp;
use exporter::model::{IterationStats, PerfMetricsEntry};

/// The kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Iteration,
    /// The start of one iteration's requests. A `Request` row follows for each of them.
    Requests,
    Request,
    Finished,
    /// A kind that a newer header added.
    Unknown,
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) kind: Kind,
    count: usize,
    present: &'a [u8],
    values: &'a [u8],
    text: &'a [u8],
}

impl<'a> Row<'a> {
    /// Reads the first row and removes it from `rows`. None at the end, or if the row is truncated.
    pub(crate) fn next(rows: &mut &'a [u8]) -> Option<Self> {
        let (kind, rest) = rows.split_first()?;
        let (count, rest) = rest.split_first_chunk()?;
        let (text, rest) = rest.split_first_chunk()?;
        let (count, text) = (usize::from(u16::from_ne_bytes(*count)), usize::from(u16::from_ne_bytes(*text)));
        let (present, rest) = rest.split_at_checked(count.div_ceil(64) * 8)?;
        let (values, rest) = rest.split_at_checked(count * 8)?;
        let (text, rest) = rest.split_at_checked(text)?;
        *rows = rest;
        let kind = match kind {
            b'i' => Kind::Iteration,
            b'r' => Kind::Requests,
            b'q' => Kind::Request,
            b'p' => Kind::Finished,
            _ => Kind::Unknown,
        };
        Some(Self { kind, count, present, values, text })
    }

    fn bits(&self, slot: usize) -> Option<[u8; 8]> {
        let words = self.present.as_chunks::<8>().0;
        let present = slot < self.count && u64::from_ne_bytes(*words.get(slot / 64)?) >> (slot % 64) & 1 == 1;
        present.then(|| self.values.as_chunks::<8>().0.get(slot).copied())?
    }

    fn int(&self, slot: usize) -> Option<i64> {
        self.bits(slot).map(i64::from_ne_bytes)
    }

    pub(crate) fn count(&self, slot: usize) -> Option<u64> {
        self.bits(slot).map(u64::from_ne_bytes)
    }

    fn float(&self, slot: usize) -> Option<f64> {
        self.bits(slot).map(f64::from_ne_bytes)
    }

    fn flag(&self, slot: usize) -> Option<bool> {
        self.int(slot).map(|value| value != 0)
    }

    /// True if any of these slots is present. A nested struct without a present slot is absent.
    fn any(&self, mut slots: std::ops::Range<usize>) -> bool {
        slots.any(|slot| self.bits(slot).is_some())
    }

    pub(crate) fn iteration(&self) -> IterationStats {
        IterationStats {
            timestamp: std::str::from_utf8(self.text).ok().and_then(parse_timestamp),
            iter: self.count(0),
            iter_latency_ms: self.float(1),
            new_active_requests_queue_latency_ms: self.float(2),
            num_new_active_requests: self.int(3),
            num_active_requests: self.int(4),
            num_queued_requests: self.int(5),
            num_completed_requests: self.int(6),
            max_num_active_requests: self.int(7),
            max_batch_size_static: self.int(8),
            max_batch_size_tuner_recommended: self.int(9),
            max_batch_size_runtime: self.int(10),
            max_num_tokens_static: self.int(11),
            max_num_tokens_tuner_recommended: self.int(12),
            max_num_tokens_runtime: self.int(13),
            gpu_mem_usage: self.int(14),
            cpu_mem_usage: self.int(15),
            pinned_mem_usage: self.int(16),
            kv_cache_stats: self.cache(17),
            cross_kv_cache_stats: self.cache(26),
            inflight_batching_stats: self.any(35..49).then(|| InflightBatchingStats {
                num_scheduled_requests: self.int(35),
                num_context_requests: self.int(36),
                num_gen_requests: self.int(37),
                num_paused_requests: self.int(38),
                num_ctx_tokens: self.int(39),
                micro_batch_id: self.int(40),
                avg_num_decoded_tokens_per_iter: self.float(41),
                num_ctx_kv_tokens: self.int(42),
                num_gen_kv_tokens: self.int(43),
                num_queued_context_requests: self.int(44),
                num_queued_ctx_tokens: self.int(45),
                num_queued_gen_requests: self.int(46),
                num_queued_gen_kv_tokens: self.int(47),
                num_paused_kv_tokens: self.int(48),
            }),
            static_batching_stats: self.any(49..54).then(|| StaticBatchingStats {
                num_scheduled_requests: self.int(49),
                num_context_requests: self.int(50),
                num_ctx_tokens: self.int(51),
                num_gen_tokens: self.int(52),
                empty_gen_slots: self.int(53),
            }),
            spec_decoding_stats: self.any(54..60).then(|| SpecDecodingStats {
                num_draft_tokens: self.int(54),
                num_accepted_tokens: self.int(55),
                num_requests_with_draft_tokens: self.int(56),
                acceptance_length: self.float(57),
                iter_latency_ms: self.float(58),
                draft_overhead: self.float(59),
            }),
            ..IterationStats::default()
        }
    }

    fn cache(&self, first: usize) -> Option<KvCacheStats> {
        self.any(first..first + 9).then(|| KvCacheStats {
            max_num_blocks: self.int(first),
            free_num_blocks: self.int(first + 1),
            used_num_blocks: self.int(first + 2),
            tokens_per_block: self.int(first + 3),
            alloc_total_blocks: self.int(first + 4),
            alloc_new_blocks: self.int(first + 5),
            reused_blocks: self.int(first + 6),
            missed_blocks: self.int(first + 7),
            cache_hit_rate: self.float(first + 8),
        })
    }

    pub(crate) fn request(&self) -> RequestStats {
        RequestStats {
            id: self.count(0),
            stage: self.int(1).map(|stage| match stage {
                0 => RequestStage::Queued,
                1 => RequestStage::Encoder,
                2 => RequestStage::Context,
                3 => RequestStage::Generation,
                4 => RequestStage::Complete,
                _ => RequestStage::Unknown,
            }),
            context_prefill_position: self.int(2),
            num_generated_tokens: self.int(3),
            avg_num_decoded_tokens_per_iter: self.float(4),
            scheduled: self.flag(5),
            paused: self.flag(6),
            alloc_total_blocks_per_request: self.int(7),
            alloc_new_blocks_per_request: self.int(8),
            reused_blocks_per_request: self.int(9),
            missed_blocks_per_request: self.int(10),
            kv_cache_hit_rate_per_request: self.float(11),
            dis_serving_stats: self
                .any(12..14)
                .then(|| DisServingRequestStats { kv_cache_transfer_ms: self.float(12), kv_cache_size: self.int(13) }),
        }
    }

    pub(crate) fn finished(&self) -> PerfMetricsEntry {
        let metrics = RequestPerfMetrics {
            first_iter: self.count(2),
            last_iter: self.count(3),
            timing_metrics: self.any(4..11).then(|| TimingMetrics {
                arrival_time: self.float(4),
                first_scheduled_time: self.float(5),
                first_token_time: self.float(6),
                last_token_time: self.float(7),
                kv_cache_transfer_start: self.float(8),
                kv_cache_transfer_end: self.float(9),
                kv_cache_size: self.count(10),
                ..TimingMetrics::default()
            }),
            kv_cache_metrics: self.any(11..16).then(|| RequestKvCacheMetrics {
                num_total_allocated_blocks: self.int(11),
                num_new_allocated_blocks: self.int(12),
                num_reused_blocks: self.int(13),
                num_missed_blocks: self.int(14),
                kv_cache_hit_rate: self.float(15),
            }),
            speculative_decoding: self.any(16..19).then(|| SpeculativeDecodingMetrics {
                acceptance_rate: self.float(16),
                total_accepted_draft_tokens: self.int(17),
                total_draft_tokens: self.int(18),
            }),
            ..RequestPerfMetrics::default()
        };
        PerfMetricsEntry {
            request_id: self.count(0),
            finish_reason: self.int(1).map(|reason| match reason {
                0 | 1 => FinishReason::Stop,
                2 => FinishReason::Length,
                3 => FinishReason::Timeout,
                4 => FinishReason::Cancelled,
                _ => FinishReason::Other,
            }),
            perf_metrics: Some(metrics),
            ..PerfMetricsEntry::default()
        }
    }
}
