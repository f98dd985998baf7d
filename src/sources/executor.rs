//! An Executor in this process, behind the bridge. It has a thread of its own: a call into an engine that hangs hangs
//! there, and polls of it time out like any other.

use std::sync::mpsc;

use tokio::sync::oneshot;
use trtllm_bridge::{
    BridgeError, Executor, ExecutorOptions, IterationRow, RequestRow, iteration_present as it, request_present as rq,
};

use crate::model::iteration::{InflightBatchingStats, KvCacheStats, SpecDecodingStats, StaticBatchingStats};
use crate::model::request::{DisServingRequestStats, RequestStage, RequestStats};
use crate::model::{IterationStats, RecordTime, RequestStatsPerIteration};
use crate::state::EngineAbout;

use super::{Answer, Batch, Item, OpenError, SourceError};

/// Rows drained at a time.
const ROWS: usize = 256;
/// Rings of 1000 iterations hold ten seconds of a fast engine, against a poll ten times a second.
const OPTIONS: ExecutorOptions =
    ExecutorOptions { iter_stats_max_iterations: 1000, request_stats_max_iterations: 1000 };

type Drained = Result<Vec<Item>, SourceError>;

/// The thread that owns an Executor.
#[derive(Debug)]
pub struct ExecutorThread {
    target: String,
    about: Option<EngineAbout>,
    orders: mpsc::Sender<oneshot::Sender<Drained>>,
    /// An order not answered yet: a poll that timed out left it, the next one takes it up.
    pending: Option<oneshot::Receiver<Drained>>,
}

impl ExecutorThread {
    /// Opens `engine` (`sim:?key=value&…`) and waits until it runs.
    ///
    /// # Errors
    /// With the engine's own words when it cannot be opened.
    pub fn start(engine: &str) -> Result<Self, OpenError> {
        let failed = |cause: String| OpenError::Engine { engine: engine.to_owned(), cause };
        let (orders, inbox) = mpsc::channel::<oneshot::Sender<Drained>>();
        let (opened, outcome) = mpsc::sync_channel(1);
        let name = engine.to_owned();
        let serve = move || {
            let mut executor = match Executor::open(&name, &OPTIONS) {
                Ok(executor) => executor,
                Err(error) => {
                    let _ = opened.send(Err(error));
                    return;
                }
            };
            let _ = opened.send(Ok((executor.version(), executor.is_simulated())));
            let mut rows = Rows::default();
            while let Ok(reply) = inbox.recv() {
                let _ = reply.send(drain(&mut executor, &mut rows));
            }
        };
        std::thread::Builder::new().name("executor".to_owned()).spawn(serve).map_err(|e| failed(e.to_string()))?;
        let opened = outcome.recv().map_err(|_| failed("its thread ended".to_owned()))?;
        let (version, simulated) = opened.map_err(|error| match error {
            BridgeError::Open { cause, .. } => failed(cause),
            other => failed(other.to_string()),
        })?;
        let version = Some(version).filter(|version| !version.is_empty());
        let about = EngineAbout { backend: Some("tensorrt".to_owned()), version, simulated };
        Ok(Self { target: engine.to_owned(), about: Some(about), orders, pending: None })
    }

    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    pub(super) async fn poll(&mut self, batch: &mut Batch) -> Result<Answer, SourceError> {
        let gone = || SourceError::Engine { cause: "its thread ended".to_owned() };
        if self.pending.is_none() {
            let (reply, pending) = oneshot::channel();
            self.orders.send(reply).map_err(|_| gone())?;
            self.pending = Some(pending);
        }
        if let Some(pending) = &mut self.pending {
            let drained = pending.await;
            self.pending = None;
            batch.items.extend(drained.map_err(|_| gone())??);
        }
        batch.about = self.about.take();
        if batch.about.as_ref().is_some_and(|about| about.simulated) {
            tracing::info!(engine = self.target, "this engine is simulated: its numbers describe no real model");
        }
        Ok(Answer::Present)
    }
}

/// Buffers kept between drains.
#[derive(Debug)]
struct Rows {
    iterations: Vec<IterationRow>,
    requests: Vec<RequestRow>,
}

impl Default for Rows {
    fn default() -> Self {
        Self { iterations: vec![IterationRow::default(); ROWS], requests: vec![RequestRow::default(); ROWS] }
    }
}

/// Everything the engine has, oldest first. Asked first whether it may be: workers and stopped engines are a state.
fn drain(executor: &mut Executor, rows: &mut Rows) -> Drained {
    let failed = |error: BridgeError| SourceError::Engine { cause: error.to_string() };
    if !executor.can_enqueue_requests() {
        let cause = "it has been shut down, or this process is not its leader".to_owned();
        return Err(SourceError::Engine { cause });
    }
    // Request rows first: the engine runs on meanwhile, and rows must find the record of their iteration already here.
    let mut of_requests = Vec::new();
    loop {
        let count = executor.drain_requests(&mut rows.requests).map_err(failed)?;
        of_requests.extend_from_slice(&rows.requests[..count]);
        if count < rows.requests.len() {
            break;
        }
    }
    let mut items = Vec::new();
    loop {
        let count = executor.drain_iterations(&mut rows.iterations).map_err(failed)?;
        items.extend(rows.iterations[..count].iter().map(|row| Item::Record(Box::new(record(row)))));
        if count < rows.iterations.len() {
            break;
        }
    }
    items.extend(of_requests.chunk_by(same_iteration).map(|rows| {
        let request_stats = Some(rows.iter().map(request).collect());
        Item::Requests(RequestStatsPerIteration { iter: Some(rows[0].iter), request_stats })
    }));
    Ok(items)
}

/// The idle flush and the iteration after it have one number. Within an iteration completed requests come last, so that one
/// that is not, after one that is, begins another.
fn same_iteration(row: &RequestRow, next: &RequestRow) -> bool {
    let complete = |row: &RequestRow| row.request_stage() == Some(trtllm_bridge::RequestStage::GenerationComplete);
    row.iter == next.iter && (complete(next) || !complete(row))
}

fn record(row: &IterationRow) -> IterationStats {
    let time = |micros| RecordTime { micros, zoned: false };
    let int = |bit, value: i32| row.has(bit).then_some(i64::from(value));
    let bytes = |value: u64| i64::try_from(value).ok();
    IterationStats {
        timestamp: row.has(it::TIMESTAMP).then(|| time(row.timestamp_local_us)),
        iter: Some(row.iter),
        iter_latency_ms: row.has(it::ITER_LATENCY).then_some(row.iter_latency_ms),
        new_active_requests_queue_latency_ms: row
            .has(it::QUEUE_LATENCY)
            .then_some(row.new_active_requests_queue_latency_ms),
        num_new_active_requests: int(it::NEW_ACTIVE_REQUESTS, row.num_new_active_requests),
        num_active_requests: Some(row.num_active_requests.into()),
        num_queued_requests: int(it::QUEUED_REQUESTS, row.num_queued_requests),
        num_completed_requests: int(it::COMPLETED_REQUESTS, row.num_completed_requests),
        max_num_active_requests: Some(row.max_num_active_requests.into()),
        max_batch_size_static: int(it::BATCH_SIZE_LIMITS, row.max_batch_size_static),
        max_batch_size_tuner_recommended: int(it::BATCH_SIZE_LIMITS, row.max_batch_size_tuner_recommended),
        max_batch_size_runtime: int(it::BATCH_SIZE_LIMITS, row.max_batch_size_runtime),
        max_num_tokens_static: int(it::TOKEN_LIMITS, row.max_num_tokens_static),
        max_num_tokens_tuner_recommended: int(it::TOKEN_LIMITS, row.max_num_tokens_tuner_recommended),
        max_num_tokens_runtime: int(it::TOKEN_LIMITS, row.max_num_tokens_runtime),
        gpu_mem_usage: bytes(row.gpu_mem_usage),
        cpu_mem_usage: bytes(row.cpu_mem_usage),
        pinned_mem_usage: bytes(row.pinned_mem_usage),
        kv_cache_stats: row.has(it::KV).then(|| KvCacheStats {
            max_num_blocks: Some(row.kv_max_num_blocks.into()),
            free_num_blocks: Some(row.kv_free_num_blocks.into()),
            used_num_blocks: Some(row.kv_used_num_blocks.into()),
            tokens_per_block: Some(row.kv_tokens_per_block.into()),
            alloc_total_blocks: int(it::KV_ALLOC, row.kv_alloc_total_blocks),
            alloc_new_blocks: int(it::KV_ALLOC, row.kv_alloc_new_blocks),
            reused_blocks: int(it::KV_ALLOC, row.kv_reused_blocks),
            missed_blocks: int(it::KV_MISSED, row.kv_missed_blocks),
            cache_hit_rate: row.has(it::KV_MISSED).then_some(row.kv_cache_hit_rate.into()),
        }),
        cross_kv_cache_stats: row.has(it::CROSS_KV).then(|| KvCacheStats {
            max_num_blocks: Some(row.cross_kv_max_num_blocks.into()),
            free_num_blocks: Some(row.cross_kv_free_num_blocks.into()),
            used_num_blocks: Some(row.cross_kv_used_num_blocks.into()),
            tokens_per_block: Some(row.cross_kv_tokens_per_block.into()),
            alloc_total_blocks: int(it::CROSS_KV_ALLOC, row.cross_kv_alloc_total_blocks),
            alloc_new_blocks: int(it::CROSS_KV_ALLOC, row.cross_kv_alloc_new_blocks),
            reused_blocks: int(it::CROSS_KV_ALLOC, row.cross_kv_reused_blocks),
            missed_blocks: int(it::CROSS_KV_MISSED, row.cross_kv_missed_blocks),
            cache_hit_rate: row.has(it::CROSS_KV_MISSED).then_some(row.cross_kv_cache_hit_rate.into()),
        }),
        inflight_batching_stats: row.has(it::INFLIGHT).then(|| inflight(row)),
        static_batching_stats: row.has(it::STATIC).then(|| StaticBatchingStats {
            num_scheduled_requests: Some(row.static_num_scheduled_requests.into()),
            num_context_requests: Some(row.static_num_context_requests.into()),
            num_ctx_tokens: Some(row.static_num_ctx_tokens.into()),
            num_gen_tokens: Some(row.static_num_gen_tokens.into()),
            empty_gen_slots: Some(row.static_empty_gen_slots.into()),
        }),
        spec_decoding_stats: row.has(it::SPEC).then_some(SpecDecodingStats {
            num_draft_tokens: Some(row.spec_num_draft_tokens),
            num_accepted_tokens: Some(row.spec_num_accepted_tokens),
            num_requests_with_draft_tokens: Some(row.spec_num_requests_with_draft_tokens),
            acceptance_length: Some(row.spec_acceptance_length),
            iter_latency_ms: Some(row.spec_iter_latency_ms),
            draft_overhead: Some(row.spec_draft_overhead),
        }),
        ..IterationStats::default()
    }
}

fn inflight(row: &IterationRow) -> InflightBatchingStats {
    let tokens = |value: i64| row.has(it::INFLIGHT_KV_TOKENS).then_some(value);
    InflightBatchingStats {
        num_scheduled_requests: Some(row.inflight_num_scheduled_requests.into()),
        num_context_requests: Some(row.inflight_num_context_requests.into()),
        num_gen_requests: Some(row.inflight_num_gen_requests.into()),
        num_paused_requests: Some(row.inflight_num_paused_requests.into()),
        num_ctx_tokens: Some(row.inflight_num_ctx_tokens.into()),
        micro_batch_id: Some(row.inflight_micro_batch_id.into()),
        avg_num_decoded_tokens_per_iter: row
            .has(it::INFLIGHT_DECODED)
            .then_some(row.inflight_avg_num_decoded_tokens_per_iter.into()),
        num_ctx_kv_tokens: tokens(row.inflight_num_ctx_kv_tokens),
        num_gen_kv_tokens: tokens(row.inflight_num_gen_kv_tokens),
        num_queued_context_requests: tokens(row.inflight_num_queued_context_requests),
        num_queued_ctx_tokens: tokens(row.inflight_num_queued_ctx_tokens),
        num_queued_gen_requests: tokens(row.inflight_num_queued_gen_requests),
        num_queued_gen_kv_tokens: tokens(row.inflight_num_queued_gen_kv_tokens),
        num_paused_kv_tokens: tokens(row.inflight_num_paused_kv_tokens),
    }
}

fn request(row: &RequestRow) -> RequestStats {
    use trtllm_bridge::RequestStage as Stage;
    let int = |bit, value: i32| row.has(bit).then_some(i64::from(value));
    RequestStats {
        id: Some(row.id),
        stage: Some(match row.request_stage() {
            Some(Stage::Queued) => RequestStage::Queued,
            Some(Stage::EncoderInProgress) => RequestStage::Encoder,
            Some(Stage::ContextInProgress) => RequestStage::Context,
            Some(Stage::GenerationInProgress) => RequestStage::Generation,
            Some(Stage::GenerationComplete) => RequestStage::Complete,
            None => RequestStage::Unknown,
        }),
        context_prefill_position: Some(row.context_prefill_position.into()),
        num_generated_tokens: Some(row.num_generated_tokens.into()),
        avg_num_decoded_tokens_per_iter: row.has(rq::DECODED).then_some(row.avg_num_decoded_tokens_per_iter.into()),
        scheduled: Some(row.scheduled),
        paused: Some(row.paused),
        dis_serving_stats: row.has(rq::DIS_SERVING).then(|| DisServingRequestStats {
            kv_cache_transfer_ms: Some(row.kv_cache_transfer_ms),
            kv_cache_size: row.has(rq::DIS_SERVING_SIZE).then(|| i64::try_from(row.kv_cache_size).ok()).flatten(),
        }),
        alloc_total_blocks_per_request: int(rq::KV_ALLOC, row.alloc_total_blocks),
        alloc_new_blocks_per_request: int(rq::KV_ALLOC, row.alloc_new_blocks),
        reused_blocks_per_request: int(rq::KV_ALLOC, row.reused_blocks),
        missed_blocks_per_request: int(rq::KV_MISSED, row.missed_blocks),
        kv_cache_hit_rate_per_request: row.has(rq::KV_MISSED).then_some(row.kv_cache_hit_rate.into()),
    }
}
