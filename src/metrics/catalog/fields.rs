//! Where each field of the engine's statistics goes: the families it feeds, or why it feeds none. A test compares the
//! table with the model's structs, and each claim with a page.

use super::Id;

/// One field, by the key under which TensorRT-LLM writes it.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The struct, as TensorRT-LLM calls it.
    pub of: &'static str,
    pub name: &'static str,
    pub goes: Goes,
}

#[derive(Debug, Clone, Copy)]
pub enum Goes {
    /// Not only these, but these above all.
    To(&'static [Id]),
    /// Deliberately not exported, and why.
    Nowhere(&'static str),
}

macro_rules! fields {
    ($($of:ident { $($name:ident $goes:tt)* })*) => {
        /// Every field of every struct that is read.
        pub static FIELDS: &[Field] =
            &[$($(Field { of: stringify!($of), name: stringify!($name), goes: fields!(@goes $goes) }),*),*];
    };
    (@goes [$($id:ident)*]) => { Goes::To(&[$(Id::$id),*]) };
    (@goes $why:literal) => { Goes::Nowhere($why) };
}

fields! {
    IterationStats {
        timestamp [GeneralMetrics LastIterationTimestamp]
        iter [GeneralMetrics Iterations IterationsLost EngineRestarts]
        iterLatencyMS [IterationLatency]
        newActiveRequestsQueueLatencyMS [NewRequestQueueTime]
        numNewActiveRequests [RequestsStarted NewRequestQueueTime]
        numActiveRequests [RequestMetrics BatchEfficiencyRatio]
        numQueuedRequests [QueuedRequests]
        numCompletedRequests [RequestsCompleted]
        maxNumActiveRequests [RequestMetrics BatchOccupancyRatio]
        maxBatchSizeStatic [BatchSizeLimit]
        maxBatchSizeTunerRecommended [BatchSizeLimit]
        maxBatchSizeRuntime [BatchSizeLimit BatchEfficiencyRatio]
        maxNumTokensStatic [TokenLimit]
        maxNumTokensTunerRecommended [TokenLimit]
        maxNumTokensRuntime [TokenLimit]
        gpuMemUsage [RuntimeMemoryMetrics]
        cpuMemUsage [RuntimeMemoryMetrics]
        pinnedMemUsage [RuntimeMemoryMetrics]
        kvCacheStats [KvCacheBlockMetrics]
        crossKvCacheStats [CrossKvCacheBlockMetrics]
        staticBatchingStats [V1Metrics]
        inflightBatchingStats [InflightBatcherMetrics]
        specDecodingStats [SpecAcceptanceLength]
        requestStats [RequestsByStage]
        attentionDpRank [AttentionDpRanks]
        rank "the process that wrote the record, which is always the engine's leader"
        hostStepTimeMS [HostStep IterationLatency]
        prevDeviceStepTimeMS [DeviceStep]
        gpuForwardTimeMS [GpuForward]
        schedulerMode [SchedulerInfo]
        statsSequence [IterationsLost]
        statsDroppedFrames [IterationsLost]
        kvCacheIterationStats [PrimaryPoolBlocks]
        iterSuspendedRequests [RequestSuspensions]
        iterResumedRequests [RequestResumptions]
        iterDiskPrefetchBlocks [DiskPrefetchedBlocks]
        iterCachedTokensByLevel [CachedTokens]
        kvCacheLevelTiers [CachedTokens]
    }
    KvCacheStats {
        maxNumBlocks [KvCacheBlockMetrics KvCachePressureRatio]
        freeNumBlocks [KvCacheBlockMetrics KvCacheAvailableTokens KvCachePressureRatio]
        usedNumBlocks [KvCacheBlockMetrics]
        tokensPerBlock [KvCacheBlockMetrics KvCacheAvailableTokens]
        allocTotalBlocks [KvBlocksAllocated KvReuseEfficiency]
        allocNewBlocks [KvBlocksNewlyAllocated]
        reusedBlocks [KvCacheBlockMetrics KvBlocksReused KvCacheHitRatio KvReuseEfficiency]
        missedBlocks [KvBlocksMissed KvCacheHitRatio]
        cacheHitRate "since the engine's start, on older PyTorch releases with its warm-up; nv_trt_llm_kv_cache_hit_ratio is computed from the blocks instead (the set trtllm has it as it is)"
    }
    InflightBatchingStats {
        numScheduledRequests [RequestMetrics IterationScheduledRequests]
        numContextRequests [RequestMetrics BatchOccupancyRatio ContextRequestRatio]
        numGenRequests [InflightBatcherMetrics GenerationTokens BatchOccupancyRatio ContextRequestRatio]
        numPausedRequests [InflightBatcherMetrics]
        numCtxTokens [InflightBatcherMetrics ContextTokens IterationContextTokens]
        microBatchId [InflightBatcherMetrics]
        avgNumDecodedTokensPerIter [DecodedTokensPerIteration GenerationTokens]
        numCtxKvTokens [RequestKvTokens]
        numGenKvTokens [RequestKvTokens]
        numQueuedContextRequests [QueuedRequestsByPhase]
        numQueuedCtxTokens [QueuedContextTokens]
        numQueuedGenRequests [QueuedRequestsByPhase]
        numQueuedGenKvTokens [RequestKvTokens]
        numPausedKvTokens [RequestKvTokens]
    }
    StaticBatchingStats {
        numScheduledRequests [RequestMetrics IterationScheduledRequests]
        numContextRequests [RequestMetrics]
        numCtxTokens [V1Metrics ContextTokens]
        numGenTokens [V1Metrics GenerationTokens StaticBatchEfficiencyRatio]
        emptyGenSlots [V1Metrics StaticBatchEfficiencyRatio]
    }
    SpecDecodingStats {
        numDraftTokens [SpecDraftTokens SpecAcceptanceRatio]
        numAcceptedTokens [SpecAcceptedTokens SpecAcceptanceRatio]
        numRequestsWithDraftTokens [SpecDraftedRequests]
        acceptanceLength [SpecAcceptanceLength]
        iterLatencyMS [SpecDraftTime]
        draftOverhead [SpecDraftOverheadRatio]
    }
    KvCacheIterationStats {
        primaryMaxNumBlocks [PrimaryPoolBlocks]
        primaryFreeNumBlocks [PrimaryPoolBlocks]
        primaryUsedNumBlocks [PrimaryPoolBlocks]
        primaryEvictableNumBlocks [PrimaryPoolBlocks]
        primaryPeakFreeNumBlocks [PrimaryPoolBlocks]
        primaryPeakUsedNumBlocks [PrimaryPoolBlocks]
        primaryPeakEvictableNumBlocks [PrimaryPoolBlocks]
        secondaryMaxNumBlocks [SecondaryPoolBlocks]
        secondaryFreeNumBlocks [SecondaryPoolBlocks]
        secondaryUsedNumBlocks [SecondaryPoolBlocks]
        secondaryEvictableNumBlocks [SecondaryPoolBlocks]
        secondaryPeakFreeNumBlocks [SecondaryPoolBlocks]
        secondaryPeakUsedNumBlocks [SecondaryPoolBlocks]
        secondaryPeakEvictableNumBlocks [SecondaryPoolBlocks]
        iterAllocTotalBlocks [WindowBlocks]
        iterAllocNewBlocks [WindowBlocks]
        iterReusedBlocks [WindowBlocks KvIterationHitRatio]
        iterFullReusedBlocks [WindowBlocks]
        iterPartialReusedBlocks [WindowBlocks]
        iterMissedBlocks [WindowBlocks KvIterationHitRatio]
        iterCacheHitRate "of one window; nv_trt_llm_kv_cache_iteration_hit_ratio is over all windows, from the blocks"
        iterGenAllocBlocks [WindowBlocks]
        iterOnboardBlocks [WindowBlocks]
        iterOnboardBytes [WindowBytes]
        iterOffloadBlocks [WindowBlocks]
        iterOffloadBytes [WindowBytes]
        iterIntraDeviceCopyBlocks [WindowBlocks]
        iterIntraDeviceCopyBytes [WindowBytes]
        iterHostDroppedBlocks [WindowBlocks]
        iterHostDroppedBytes [WindowBytes]
    }
    RequestStats {
        id "a series per request would be without bound; it finds a request's rows in following iterations"
        stage [RequestsByStage]
        contextPrefillPosition [InputTokenLen]
        numGeneratedTokens [OutputTokenLen TimePerOutputToken]
        avgNumDecodedTokensPerIter [RequestDecodedTokens]
        scheduled [RequestQueueTime]
        paused [RequestPauses]
        disServingStats [DisaggregatedServingMetrics]
        allocTotalBlocksPerRequest [RequestKvBlocks]
        allocNewBlocksPerRequest [RequestKvNewBlocks]
        reusedBlocksPerRequest [RequestKvHitRatio]
        missedBlocksPerRequest [RequestKvHitRatio]
        kvCacheHitRatePerRequest "nv_trt_llm_request_kv_cache_hit_ratio is computed from the blocks: a request that looked none up has no ratio, and upstream says 0"
    }
    DisServingRequestStats {
        kvCacheTransferMS [DisaggregatedServingMetrics KvCacheTransferTime]
        kvCacheSize [KvCacheTransferBytes]
    }
    RequestStatsPerIteration {
        iter "it finds the iteration's record, whose time is the rows' time"
        requestStats [RequestsByStage]
    }
    PerfMetricsEntry {
        requestId "a series per request would be without bound; it is the exemplar of its buckets"
        ctxRequestId [DisaggregatedServingMetrics]
        perfMetrics [TimeToFirstToken]
        finishReason [RequestsFinished]
        promptTokens [InputTokenLen]
        outputTokens [OutputTokenLen TimePerOutputToken]
    }
    RequestPerfMetrics {
        firstIter [RequestIterations]
        lastIter [RequestIterations]
        iter "of a finished request it is lastIter"
        timingMetrics [TimeToFirstToken]
        kvCacheMetrics [RequestKvHitRatio]
        speculativeDecoding [RequestSpecAcceptance]
    }
    TimingMetrics {
        serverArrivalTime [ServerTimeToFirstToken]
        serverFirstTokenTime [ServerTimeToFirstToken]
        arrivalTime [TimeToFirstToken E2eLatency RequestQueueTime]
        firstScheduledTime [RequestQueueTime RequestPrefillTime RequestInferenceTime]
        firstTokenTime [TimeToFirstToken RequestPrefillTime RequestDecodeTime]
        lastTokenTime [E2eLatency RequestDecodeTime RequestInferenceTime]
        kvCacheTransferStart [KvCacheTransferTime]
        kvCacheTransferEnd [KvCacheTransferTime]
        kvCacheSize [KvCacheTransferBytes]
    }
    RequestKvCacheMetrics {
        numTotalAllocatedBlocks [RequestKvBlocks]
        numNewAllocatedBlocks [RequestKvNewBlocks]
        numReusedBlocks [RequestKvHitRatio]
        numMissedBlocks [RequestKvHitRatio]
        kvCacheHitRate "computed from the blocks, for the reason of kvCacheHitRatePerRequest"
    }
    SpeculativeDecodingMetrics {
        acceptanceRate [RequestSpecAcceptance]
        totalAcceptedDraftTokens [RequestDraftTokens RequestSpecAcceptance]
        totalDraftTokens [RequestDraftTokens RequestSpecAcceptance]
    }
}

/// Keys of newer releases that are not read at all.
pub static NOT_READ: &[(&str, &str)] = &[
    (
        "kvCacheIterationStatsByPoolGroup",
        "the same counts by pool group of the second KV cache manager; a label's values would be the engine's to choose",
    ),
    ("kvCacheIterationStatsByColdPoolGroup", "as above, of pools on host and disk"),
    ("kvCacheIterationStatsByLifecycle", "as above, by life cycle of a layer's blocks"),
    ("peftCacheIterationStats", "of LoRA adapters; proposed upstream, not released"),
    (
        "time_breakdown_metrics",
        "a server's own stages, in /perf_metrics of some releases; upstream gives them no fixed meaning",
    ),
];
