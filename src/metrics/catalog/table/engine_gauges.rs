//! Our gauges of an engine.

use crate::engine::pools::{PoolBlocks, TIERS};
use crate::model::named_numbers::{NamedNumbers, named_numbers};

use super::super::id::{Id, families};
use super::super::metric::{Area, Group, Metric, Stability};
use super::triton::KvCacheBlocks;

const ENGINE: Area = Area::new(Group::Engine, Stability::Experimental, &["model", "version"]);

named_numbers! {
    pub struct QueuedByPhase: i64 { context = "context", generation = "generation" }
}
named_numbers! {
    pub struct KvTokensByPhase: i64 {
        context = "context",
        generation = "generation",
        paused = "paused",
        queued_generation = "queued_generation",
    }
}
named_numbers! {
    pub struct RequestsByStage: u64 { queued = "queued", encoder = "encoder", context = "context", generation = "generation" }
}
named_numbers! {
    pub struct LimitKinds: i64 { as_built = "static", tuner = "tuner", runtime = "runtime" }
}

families! {
    first: super::engine_histograms::END;

    QueuedRequests = ENGINE.gauge("nv_trt_llm_queued_requests").unit("requests").stable()
        .help("Requests in the executor's own queue, not yet active (Triton's waiting does not contain them).")
        .origin("numQueuedRequests");
    QueuedRequestsByPhase = ENGINE.gauge("nv_trt_llm_queued_requests_by_phase").by("phase", QueuedByPhase::NAMES)
        .help("Queued requests by the phase they wait for; those that wait for generation come from another instance.")
        .origin("inflightBatchingStats: numQueuedContextRequests, numQueuedGenRequests");
    QueuedContextTokens = ENGINE.gauge("nv_trt_llm_queued_context_tokens").unit("tokens")
        .help("Prompt tokens of the queued requests.")
        .origin("inflightBatchingStats: numQueuedCtxTokens");
    RequestKvTokens = ENGINE.gauge("nv_trt_llm_request_kv_tokens").unit("tokens").by("phase", KvTokensByPhase::NAMES)
        .help("Tokens that requests hold in the KV cache, by where the requests are.")
        .origin("inflightBatchingStats: numCtxKvTokens, numGenKvTokens, numPausedKvTokens, numQueuedGenKvTokens");
    RequestsByStage = ENGINE.gauge("nv_trt_llm_requests_by_stage").stable().by("stage", RequestsByStage::NAMES)
        .help("Requests by the stage they are in, where the engine reports its requests.")
        .origin("RequestStats.stage in the last iteration");
    RequestLatencyInfo = ENGINE.gauge("nv_trt_llm_request_latency_info")
        .by("from", &["none", "request_stats", "perf_metrics"])
        .help("What feeds the request latency histograms: perf_metrics are exact, request_stats right to one iteration.")
        .origin("the kind of request statistics the source delivers");
    BatchSizeLimit = ENGINE.gauge("nv_trt_llm_batch_size_limit").stable().by("limit", LimitKinds::NAMES)
        .help("Most requests in a batch: as built, as the tuner recommends, as in force.")
        .origin("maxBatchSizeStatic, maxBatchSizeTunerRecommended, maxBatchSizeRuntime; absent where 0");
    TokenLimit = ENGINE.gauge("nv_trt_llm_token_limit").stable().by("limit", LimitKinds::NAMES)
        .help("Most tokens in a batch: as built, as the tuner recommends, as in force.")
        .origin("maxNumTokensStatic, maxNumTokensTunerRecommended, maxNumTokensRuntime; absent where 0");
    KvCacheHitRatio = ENGINE.gauge("nv_trt_llm_kv_cache_hit_ratio").unit("ratio").stable()
        .help("Share (0-1) of looked-up KV cache blocks found, since this exporter met the engine; for a recent value use the rates of the block counters.")
        .origin("increases of reusedBlocks / (reusedBlocks + missedBlocks)");
    KvReuseEfficiency = ENGINE.gauge("nv_trt_llm_kv_cache_reuse_efficiency_ratio").unit("ratio")
        .help("Share (0-1) of allocated KV cache blocks that were reused, since this exporter met the engine.")
        .origin("increases of reusedBlocks / allocTotalBlocks");
    KvIterationHitRatio = ENGINE.gauge("nv_trt_llm_kv_cache_iteration_hit_ratio").unit("ratio")
        .help("Share (0-1) of the KV cache blocks looked up in the last iteration that were found.")
        .origin("kvCacheIterationStats: iterReusedBlocks / (iterReusedBlocks + iterMissedBlocks) over all windows");
    PrimaryPoolBlocks = ENGINE.gauge("nv_trt_llm_kv_cache_primary_pool_blocks").unit("blocks")
        .by("state", PoolBlocks::NAMES)
        .help("KV cache blocks on the GPU, over all attention windows; peaks are since the record before.")
        .origin("kvCacheIterationStats: primaryMaxNumBlocks, primaryFreeNumBlocks, primaryUsedNumBlocks, primaryEvictableNumBlocks, primaryPeakFreeNumBlocks, primaryPeakUsedNumBlocks, primaryPeakEvictableNumBlocks");
    SecondaryPoolBlocks = ENGINE.gauge("nv_trt_llm_kv_cache_secondary_pool_blocks").unit("blocks")
        .by("state", PoolBlocks::NAMES)
        .help("KV cache blocks on the host, over all attention windows; peaks are since the record before.")
        .origin("kvCacheIterationStats: secondaryMaxNumBlocks, secondaryFreeNumBlocks, secondaryUsedNumBlocks, secondaryEvictableNumBlocks, secondaryPeakFreeNumBlocks, secondaryPeakUsedNumBlocks, secondaryPeakEvictableNumBlocks");
    KvTierBlocks = ENGINE.gauge("nv_trt_llm_kv_cache_tier_blocks").unit("blocks").by("tier", &TIERS)
        .help("KV cache blocks there are, by tier, as the engine said when it made them.")
        .origin("/kv_cache_events: num_blocks_per_cache_level of the last created event");
    KvCacheAvailableTokens = ENGINE.gauge("nv_trt_llm_kv_cache_available_tokens").unit("tokens").stable()
        .help("Tokens the free KV cache blocks can hold.")
        .origin("freeNumBlocks × tokensPerBlock");
    KvCachePressureRatio = ENGINE.gauge("nv_trt_llm_kv_cache_pressure_ratio").unit("ratio").stable()
        .help("Share (0-1) of KV cache blocks that are not free.")
        .origin("1 − freeNumBlocks / maxNumBlocks");
    BatchOccupancyRatio = ENGINE.gauge("nv_trt_llm_batch_occupancy_ratio").unit("ratio").stable()
        .help("Requests in context and generation phase as a share (0-1) of the most that may be active.")
        .origin("(numContextRequests + numGenRequests) / maxNumActiveRequests");
    BatchEfficiencyRatio = ENGINE.gauge("nv_trt_llm_batch_efficiency_ratio").unit("ratio")
        .help("Active requests as a share of the batch size in force; above 1 some of them wait.")
        .origin("numActiveRequests / maxBatchSizeRuntime");
    ContextRequestRatio = ENGINE.gauge("nv_trt_llm_context_request_ratio").unit("ratio").stable()
        .help("Requests in context phase as a share (0-1) of those in the batch.")
        .origin("numContextRequests / (numContextRequests + numGenRequests)");
    StaticBatchEfficiencyRatio = ENGINE.gauge("nv_trt_llm_static_batch_efficiency_ratio").unit("ratio").stable()
        .help("Share (0-1) of a static batch's generation slots that were used.")
        .origin("1 − emptyGenSlots / (numGenTokens + emptyGenSlots)");
    DecodedTokensPerIteration = ENGINE.gauge("nv_trt_llm_decoded_tokens_per_iteration").stable()
        .help("Tokens a generation request decodes in one iteration, on average over the batch.")
        .origin("avgNumDecodedTokensPerIter; absent where 0");
    SpecAcceptanceLength = ENGINE.gauge("nv_trt_llm_spec_decode_acceptance_length").stable()
        .help("Tokens per decoding step with speculative decoding, on average over the last iteration.")
        .origin("specDecodingStats.acceptanceLength");
    SpecAcceptanceRatio = ENGINE.gauge("nv_trt_llm_spec_decode_acceptance_ratio").unit("ratio").stable()
        .help("Share (0-1) of the last iteration's draft tokens that were accepted.")
        .origin("numAcceptedTokens / numDraftTokens");
    SpecDraftOverheadRatio = ENGINE.gauge("nv_trt_llm_spec_decode_draft_overhead_ratio").unit("ratio").stable()
        .help("Time spent drafting as a share (0-1) of the iteration.")
        .origin("specDecodingStats.draftOverhead");
    CrossKvCacheBlockMetrics = ENGINE.gauge("nv_trt_llm_cross_kv_cache_block_metrics").stable()
        .by("kv_cache_block_type", KvCacheBlocks::NAMES)
        .help("KV cache blocks of the cross attention of encoder-decoder models.")
        .origin("crossKvCacheStats, as nv_trt_llm_kv_cache_block_metrics");
    AttentionDpRanks = ENGINE.gauge("nv_trt_llm_attention_dp_ranks")
        .help("Ranks that share the requests of one iteration (attention data parallelism).")
        .origin("rows of one iter by attentionDpRank");
    SchedulerInfo = ENGINE.gauge("nv_trt_llm_scheduler_info").by("mode", &["overlap", "non_overlap", "other"])
        .help("How the PyTorch engine interleaves host and device: 1 for the mode it is in.")
        .origin("schedulerMode");
    LastIterationTimestamp = ENGINE.gauge("nv_trt_llm_last_iteration_timestamp_seconds").unit("seconds").stable()
        .help("When the last iteration ended, in seconds since 1970 UTC.")
        .origin("timestamp, or the time of receipt where the engine sends none");
    EngineState = ENGINE.gauge("nv_trt_llm_engine_state").stable()
        .by("state", &["starting", "busy", "idle", "stalled", "unreachable"])
        .help("What the engine is doing: 1 for the state it is in.")
        .origin("polls, records and --stale-after");
    EngineInfo = ENGINE.gauge("nv_trt_llm_engine_info").labels(&["backend", "engine_version", "model", "simulated", "source", "version"]).stable()
        .help("Which engine this is: kind of source, backend, engine version, and whether it is simulated.")
        .origin("the source");
}
