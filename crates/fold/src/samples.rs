//! Records for the tests of this crate and of trtllm-analysis, which includes this file.

use trtllm_records::iteration::{InflightBatchingStats, SchedulerMode, SpecDecodingStats};
use trtllm_records::{IterationStats, RecordTime, RequestStage, RequestStats};

/// A working iteration: 2 requests, one of them new, 10 ms.
pub(crate) fn working(iter: u64) -> IterationStats {
    IterationStats {
        timestamp: Some(RecordTime { micros: iter as i64 * 10_000, zoned: true }),
        iter: Some(iter),
        iter_latency_ms: Some(10.0),
        num_active_requests: Some(2),
        num_queued_requests: Some(0),
        num_new_active_requests: Some(1),
        num_completed_requests: Some(0),
        new_active_requests_queue_latency_ms: Some(4.0),
        inflight_batching_stats: Some(InflightBatchingStats {
            num_scheduled_requests: Some(2),
            num_context_requests: Some(1),
            num_gen_requests: Some(1),
            num_ctx_tokens: Some(100),
            avg_num_decoded_tokens_per_iter: Some(1.0),
            ..InflightBatchingStats::default()
        }),
        ..IterationStats::default()
    }
}

/// A record of the PyTorch backend: active requests are counted before the iteration, and there is no timestamp.
pub(crate) fn pytorch(iter: u64, active: i64, started: i64, completed: i64) -> IterationStats {
    IterationStats {
        num_active_requests: Some(active),
        num_new_active_requests: Some(started),
        num_completed_requests: Some(completed),
        timestamp: None,
        ..working(iter)
    }
}

/// A pass of an overlapped loop in batches of 50 ms. All four seats are taken. Its rows are read in the next pass.
pub(crate) fn full_pass(iter: u64, waited: Option<f64>, started: i64, row: Option<RequestStats>) -> IterationStats {
    IterationStats {
        timestamp: Some(RecordTime { micros: 50_000 * iter as i64, zoned: true }),
        iter_latency_ms: Some(100.0),
        host_step_time_ms: Some(50.0),
        scheduler_mode: Some(SchedulerMode::Overlap),
        max_num_active_requests: Some(4),
        new_active_requests_queue_latency_ms: waited,
        request_stats: Some(row.into_iter().collect()),
        ..pytorch(iter, 4, started, 0)
    }
}

pub(crate) fn row_of_7(stage: RequestStage, tokens: i64, scheduled: bool) -> Option<RequestStats> {
    Some(RequestStats {
        id: Some(7),
        stage: Some(stage),
        context_prefill_position: Some(100),
        num_generated_tokens: Some(tokens),
        scheduled: Some(scheduled),
        paused: Some(false),
        ..RequestStats::default()
    })
}

/// Request 7 gets a seat in pass `from` and decodes two tokens.
pub(crate) fn seated(from: u64, before: Option<f64>, after: Option<f64>) -> [IterationStats; 3] {
    use RequestStage::{Complete, Context, Generation};
    [
        full_pass(from - 1, before, 0, row_of_7(Context, 0, false)),
        full_pass(from, after, 1, row_of_7(Generation, 1, true)),
        full_pass(from + 1, after, 0, row_of_7(Complete, 2, true)),
    ]
}

/// The rows of eight ranks that decode 32 requests each. `own`: each row has its own drafts, otherwise those of rank 0.
pub(crate) fn ranks_with_drafts(iter: u64, accepted: i64, own: bool) -> Vec<IterationStats> {
    let row = |rank| IterationStats {
        rank: own.then_some(rank),
        attention_dp_rank: Some(rank),
        inflight_batching_stats: Some(InflightBatchingStats {
            num_scheduled_requests: Some(32),
            num_gen_requests: Some(32),
            avg_num_decoded_tokens_per_iter: Some(0.0),
            ..InflightBatchingStats::default()
        }),
        spec_decoding_stats: Some(SpecDecodingStats {
            num_draft_tokens: Some(96),
            num_accepted_tokens: Some(accepted),
            num_requests_with_draft_tokens: Some(32),
            ..SpecDecodingStats::default()
        }),
        ..pytorch(iter, 32, 0, 0)
    };
    (0..8).map(row).collect()
}
