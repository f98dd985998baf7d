//! Every field of the engine's statistics: the families that it feeds, or why it feeds none. A test compares this table with the
//! model's structs, and each claim with a page.

use super::id::Id;

/// One field, by the key that TensorRT-LLM writes.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The struct, by TensorRT-LLM's name.
    pub structure: &'static str,
    pub name: &'static str,
    pub destination: Destination,
}

#[derive(Debug, Clone, Copy)]
pub enum Destination {
    /// The most important families; others may depend on the field, too.
    Families(&'static [Id]),
    /// Deliberately not exported; the reason.
    None(&'static str),
}

macro_rules! fields {
    ($($structure:ident { $($name:ident $destination:tt)* })*) => {
        /// Every field of every struct that is read.
        pub static FIELDS: &[Field] = &[$($(Field {
            structure: stringify!($structure),
            name: stringify!($name),
            destination: fields!(@destination $destination),
        }),*),*];
    };
    (@destination [$($id:ident)*]) => { Destination::Families(&[$(Id::$id),*]) };
    (@destination $why:literal) => { Destination::None($why) };
}

fields! {
    IterationStats {
        timestamp [GeneralMetrics LastIterationTimestamp]
        iter [GeneralMetrics Iterations IterationsLost EngineRestarts IterationsUnreported]
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
        rank [AttentionDpRanks RequestMetrics]
        hostStepTimeMS [HostStep IterationLatency]
        prevDeviceStepTimeMS [DeviceStep]
        gpuForwardTimeMS [GpuForward]
        schedulerMode [SchedulerInfo]
        statsSequence [IterationsLost]
        statsDroppedFrames [IterationsLost]
        kvCacheIterationStats [PrimaryPoolBlocks]
        kvCacheIterationStatsByPoolGroup [PrimaryPoolBlocks WindowBlocks WindowBytes KvCacheAvailableTokens]
        kvCacheIterationStatsByColdPoolGroup [SecondaryPoolBlocks]
        kvCacheIterationStatsByLifecycle [WindowBlocks KvIterationHitRatio]
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
        cacheHitRate "counted since the engine's start, in older PyTorch releases including warm-up; nv_trt_llm_kv_cache_hit_ratio is computed from the blocks instead (the name set trtllm exports the field unchanged)"
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
        iterCacheHitRate "covers one window; nv_trt_llm_kv_cache_iteration_hit_ratio covers all windows and is computed from the blocks"
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
    KvCacheLifecycleStats {
        kind [WindowBlocks]
        iterReusedBlocks [WindowBlocks KvIterationHitRatio]
        iterFullReusedBlocks [WindowBlocks]
        iterPartialReusedBlocks [WindowBlocks]
        iterMissedBlocks [WindowBlocks KvIterationHitRatio]
        iterFullReusedBlocksByLevel [KvFullReusedBlocks]
        iterPartialReusedBlocksByLevel [KvPartialReusedBlocks]
        snapshotStats [SsmSnapshotLookups]
    }
    SsmSnapshotStats {
        iterSnapshotLookups [SsmSnapshotLookups]
        iterSnapshotMisses [SsmSnapshotMisses]
        iterReusedTokens [SsmSnapshotTokens]
        iterUnreusedTokens [SsmSnapshotTokens]
        iterAlignedSnapshotHits [SsmSnapshotHits]
        iterUnalignedSnapshotHits [SsmSnapshotHits]
    }
    RequestStats {
        id "one series per request would be unbounded; the exporter uses it to match a request's rows of different iterations"
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
        kvCacheHitRatePerRequest "nv_trt_llm_request_kv_cache_hit_ratio is computed from the blocks, because upstream sends 0 for a request without lookups, which has no ratio"
    }
    DisServingRequestStats {
        kvCacheTransferMS [DisaggregatedServingMetrics KvCacheTransferTime]
        kvCacheSize [KvCacheTransferBytes]
    }
    RequestStatsPerIteration {
        iter "the exporter uses it to find the iteration's record, whose time applies to the rows"
        requestStats [RequestsByStage]
    }
    PerfMetricsEntry {
        requestId "one series per request would be unbounded; it becomes the exemplar of the request's histogram buckets"
        ctxRequestId [DisaggregatedServingMetrics]
        perfMetrics [TimeToFirstToken]
        finishReason [RequestsFinished]
        promptTokens [InputTokenLen]
        outputTokens [OutputTokenLen TimePerOutputToken]
    }
    RequestPerfMetrics {
        firstIter [RequestIterations]
        lastIter [RequestIterations]
        iter "equals lastIter for a finished request"
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
        kvCacheHitRate "computed from the blocks, as for kvCacheHitRatePerRequest"
    }
    SpeculativeDecodingMetrics {
        acceptanceRate [RequestSpecAcceptance]
        totalAcceptedDraftTokens [RequestDraftTokens RequestSpecAcceptance]
        totalDraftTokens [RequestDraftTokens RequestSpecAcceptance]
    }
}

/// Keys of newer releases that the exporter does not read, with the reason.
pub static NOT_READ: &[(&str, &str)] = &[
    ("poolGroupId", "identifies a row; the exporter sums over rows, because the engine would choose the label values"),
    ("coldPoolGroupId", "as above"),
    ("lifeCycleId", "as above"),
    ("windowSize", "as above"),
    ("windowSizes", "as above"),
    ("slotSize", "bytes per block of a pool group; the pools are exported in blocks, summed over pool groups"),
    (
        "iterCacheHitRate of a life cycle",
        "nv_trt_llm_kv_cache_iteration_hit_ratio covers all life cycles and is computed from the blocks",
    ),
    ("iterSnapshotHits", "the sum of iterAlignedSnapshotHits and iterUnalignedSnapshotHits"),
    (
        "iterSnapshotHitRate",
        "covers one life cycle; compute it from nv_trt_llm_ssm_snapshot_hits_total and nv_trt_llm_ssm_snapshot_lookups_total",
    ),
    ("peftCacheIterationStats", "LoRA adapter statistics; proposed upstream, not released"),
    (
        "time_breakdown_metrics",
        "server stages in /perf_metrics of some releases; upstream does not define their meaning",
    ),
];
