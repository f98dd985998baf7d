//! Our counters of an engine.

use crate::engine::pools::{BlockEvents, ByteEvents, TIERS};
use crate::model::named_numbers::{NamedNumbers, named_numbers};

use super::super::id::{Id, families};
use super::super::metric::{Area, Group, Metric, Stability};

const ENGINE: Area = Area::new(Group::Engine, Stability::Experimental, &["model", "version"]);

named_numbers! {
    pub struct CrossBlockEvents: u64 {
        allocated = "allocated",
        newly_allocated = "newly_allocated",
        reused = "reused",
        missed = "missed",
    }
}
named_numbers! {
    pub struct DraftTokens: u64 { proposed = "proposed", accepted = "accepted" }
}

families! {
    first: super::triton::END;

    Iterations = ENGINE.counter("nv_trt_llm_iterations_total").stable()
        .help("Iterations the engine reported, each counted once.")
        .origin("one per distinct iter; the idle flush record and further attention-DP rows are not iterations");
    IterationsLost = ENGINE.counter("nv_trt_llm_iterations_lost_total").stable()
        .help("Iterations whose record never arrived here, from gaps in the engine's numbering.")
        .origin("gaps in iter or statsSequence, or statsDroppedFrames where that is larger");
    EngineRestarts = ENGINE.counter("nv_trt_llm_engine_restarts_total").stable()
        .help("Times the engine was seen to have started anew.")
        .origin("iter going backwards, or another process behind the source");
    RequestsStarted = ENGINE.counter("nv_trt_llm_requests_started_total").stable()
        .help("Requests that became active.")
        .origin("numNewActiveRequests, without the stale value of the idle flush record");
    RequestsCompleted = ENGINE.counter("nv_trt_llm_requests_completed_total").stable()
        .help("Requests the engine completed, each counted once.")
        .origin("numCompletedRequests, once per iter");
    ContextTokens = ENGINE.counter("nv_trt_llm_context_tokens_total").stable()
        .help("Tokens computed in context phases (prefill), so without those found in the KV cache.")
        .origin("numCtxTokens");
    GenerationTokens = ENGINE.counter("nv_trt_llm_generation_tokens_total").stable()
        .help("Tokens decoded in generation phases; a request's first token comes from its context phase and is not included.")
        .origin("numGenRequests × avgNumDecodedTokensPerIter (1 where that is 0), or numGenTokens with static batching");
    KvBlocksAllocated = ENGINE.counter("nv_trt_llm_kv_cache_blocks_allocated_total").stable()
        .help("KV cache blocks allocated, new or reused.")
        .origin("increases of kvCacheStats.allocTotalBlocks");
    KvBlocksNewlyAllocated = ENGINE.counter("nv_trt_llm_kv_cache_blocks_newly_allocated_total").stable()
        .help("KV cache blocks allocated that were not reused.")
        .origin("increases of kvCacheStats.allocNewBlocks");
    KvBlocksReused = ENGINE.counter("nv_trt_llm_kv_cache_blocks_reused_total").stable()
        .help("KV cache blocks found in the cache (hits).")
        .origin("increases of kvCacheStats.reusedBlocks");
    KvBlocksMissed = ENGINE.counter("nv_trt_llm_kv_cache_blocks_missed_total").stable()
        .help("KV cache blocks looked up and not found (misses).")
        .origin("increases of kvCacheStats.missedBlocks");
    CrossKvBlocks = ENGINE.counter("nv_trt_llm_cross_kv_cache_blocks_total").by("event", CrossBlockEvents::NAMES)
        .help("KV cache blocks of the cross attention of encoder-decoder models, by what happened to them.")
        .origin("increases of crossKvCacheStats: allocTotalBlocks, allocNewBlocks, reusedBlocks, missedBlocks");
    WindowBlocks = ENGINE.counter("nv_trt_llm_kv_cache_window_blocks_total").by("event", BlockEvents::NAMES)
        .help("KV cache blocks by what iterations did with them, over all attention windows; copied is within the GPU.")
        .origin("kvCacheIterationStats, summed over windows: iterAllocTotalBlocks, iterAllocNewBlocks, iterReusedBlocks, iterFullReusedBlocks, iterPartialReusedBlocks, iterMissedBlocks, iterGenAllocBlocks, iterOnboardBlocks, iterOffloadBlocks, iterIntraDeviceCopyBlocks, iterHostDroppedBlocks");
    WindowBytes = ENGINE.counter("nv_trt_llm_kv_cache_window_bytes_total").unit("bytes").by("event", ByteEvents::NAMES)
        .help("Bytes of the KV cache that iterations moved between host and GPU or within the GPU, or dropped on the host.")
        .origin("kvCacheIterationStats, summed over windows: iterOnboardBytes, iterOffloadBytes, iterIntraDeviceCopyBytes, iterHostDroppedBytes");
    DiskPrefetchedBlocks = ENGINE.counter("nv_trt_llm_kv_cache_disk_prefetched_blocks_total")
        .help("KV cache blocks fetched from disk ahead of their use.")
        .origin("iterDiskPrefetchBlocks");
    CachedTokens = ENGINE.counter("nv_trt_llm_cached_tokens_total").by("tier", &TIERS)
        .help("Prompt tokens found in the KV cache, by the tier they were found in.")
        .origin("iterCachedTokensByLevel, levels named by kvCacheLevelTiers where it is sent");
    KvEvents = ENGINE.counter("nv_trt_llm_kv_cache_events_total")
        .by("event", &["created", "stored", "removed", "updated", "other"])
        .help("Events of the KV cache (kv_cache_events=true, or event_buffer_max_size of a hosted engine).")
        .origin("/kv_cache_events, getKVCacheEventManager: data.type");
    KvEventsLost = ENGINE.counter("nv_trt_llm_kv_cache_events_lost_total")
        .help("Events of the KV cache that never arrived here, from gaps in their numbers.")
        .origin("/kv_cache_events: event_id");
    KvBlocksStored = ENGINE.counter("nv_trt_llm_kv_cache_blocks_stored_total").by("tier", &TIERS)
        .help("KV cache blocks that became reusable, by the tier they are in.")
        .origin("/kv_cache_events: blocks of stored events, by cache_level");
    KvBlocksRemoved = ENGINE.counter("nv_trt_llm_kv_cache_blocks_removed_total").by("tier", &TIERS)
        .help("KV cache blocks that cannot be reused any more, by the tier they were in; other where they were not seen stored.")
        .origin("/kv_cache_events: block_hashes of removed events");
    KvBlocksUpdated = ENGINE.counter("nv_trt_llm_kv_cache_blocks_updated_total").by("tier", &TIERS)
        .help("KV cache blocks that changed their tier or priority, by the tier they are in now.")
        .origin("/kv_cache_events: updated events, cache_level");
    SpecDraftTokens = ENGINE.counter("nv_trt_llm_spec_decode_draft_tokens_total").stable()
        .help("Draft tokens proposed by speculative decoding.")
        .origin("specDecodingStats.numDraftTokens");
    SpecAcceptedTokens = ENGINE.counter("nv_trt_llm_spec_decode_accepted_tokens_total").stable()
        .help("Draft tokens the model accepted.")
        .origin("specDecodingStats.numAcceptedTokens");
    SpecDraftedRequests = ENGINE.counter("nv_trt_llm_spec_decode_drafted_requests_total")
        .help("Generation requests that had draft tokens, summed over iterations: accepted tokens per one of them is the gain of a step.")
        .origin("specDecodingStats.numRequestsWithDraftTokens");
    SpecDraftTime = ENGINE.counter("nv_trt_llm_spec_decode_draft_seconds_total").unit("seconds")
        .help("Time spent drafting in seconds.")
        .origin("specDecodingStats.iterLatencyMS, set where the draft model runs by itself");
    RequestDraftTokens = ENGINE.counter("nv_trt_llm_request_draft_tokens_total").by("outcome", DraftTokens::NAMES)
        .help("Draft tokens of finished requests: all that were proposed, and those of them that were accepted.")
        .origin("RequestPerfMetrics totalDraftTokens, totalAcceptedDraftTokens");
    RequestsFinished = ENGINE.counter("nv_trt_llm_requests_finished_total").stable()
        .by("reason", &["stop", "length", "timeout", "cancelled", "other"])
        .help("Finished requests by why they ended, where a publisher tells.")
        .origin("finishReason beside RequestPerfMetrics (END_ID and STOP_WORDS are stop)");
    RequestSuspensions = ENGINE.counter("nv_trt_llm_request_suspensions_total")
        .help("Times a request lost its KV cache to others.")
        .origin("iterSuspendedRequests");
    RequestResumptions = ENGINE.counter("nv_trt_llm_request_resumptions_total")
        .help("Times a suspended request went on.")
        .origin("iterResumedRequests");
    RequestPauses = ENGINE.counter("nv_trt_llm_request_pauses_total").stable()
        .help("Times a request was paused for lack of resources; counted where the engine reports its requests.")
        .origin("RequestStats.paused becoming true");
}
