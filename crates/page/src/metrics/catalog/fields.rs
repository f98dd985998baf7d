//! Every field of the engine's statistics: the families that it feeds, or why it feeds none. A test compares this table
//! with the structs of `trtllm-records`, and another test checks on a page that each field feeds its families.

use super::id::Id;
use super::metric::{Group, Metric};
use super::table::CATALOG;

/// One field, by the key that TensorRT-LLM writes.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The struct, by TensorRT-LLM's name.
    pub structure: &'static str,
    pub name: &'static str,
    pub statistics: Switch,
    pub destination: Destination,
}

/// A kind of statistics. Whether an engine sends it depends on its backend, its release and its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Switch {
    Any,
    Iterations,
    Cpp,
    PyTorch,
    Speculation,
    AttentionDp,
    CrossAttention,
    Windows,
    V2,
    Rows,
    Entries,
    ServerPage,
    Report,
    Orchestrator,
}

impl Switch {
    /// The name in the metrics reference, which has a table of what each kind of statistics needs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Iterations => "iterations",
            Self::Cpp => "cpp",
            Self::PyTorch => "pytorch",
            Self::Speculation => "speculation",
            Self::AttentionDp => "attention_dp",
            Self::CrossAttention => "cross_attention",
            Self::Windows => "windows",
            Self::V2 => "v2",
            Self::Rows => "rows",
            Self::Entries => "entries",
            Self::ServerPage => "server_page",
            Self::Report => "report",
            Self::Orchestrator => "orchestrator",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub enum Destination {
    /// The most important families that use the field.
    Families(&'static [Id]),
    /// Deliberately not exported, for this reason.
    None(&'static str),
}

/// Further families that a kind of statistics feeds, although its fields below do not list them.
static OTHERS: &[(Switch, &[Id])] = &[
    (Switch::Any, &[Id::EngineState, Id::EngineInfo]),
    (Switch::Any, &[Id::LimitedBy, Id::LimitedByBlind, Id::LimitedBySince, Id::LimitedBySeverity]),
    (Switch::Iterations, &[Id::IterationSlowdown, Id::Capacity, Id::Headroom]),
    (Switch::Iterations, &[Id::ThroughputOfReference, Id::EfficiencyOfReference]),
    (Switch::Any, &[Id::EngineGpuInfo, Id::EngineGpuEnergy, Id::EngineGpuSeconds, Id::EngineGpuCost]),
    (
        Switch::Rows,
        &[
            Id::RequestLatencyInfo,
            Id::TimeToFirstToken,
            Id::E2eLatency,
            Id::RequestPrefillTime,
            Id::RequestDecodeTime,
            Id::RequestInferenceTime,
            Id::ObjectiveRequests,
            Id::GoodputTokens,
            Id::RequestTime,
            Id::MissedRequestTime,
            Id::RequestsUnattributed,
        ],
    ),
    (Switch::Entries, &[Id::RequestLatencyInfo, Id::RequestTime, Id::MissedRequestTime, Id::RequestsUnattributed]),
    (Switch::ServerPage, &[Id::ObjectiveRequests]),
    (Switch::Any, &[Id::ObjectiveLimit]),
    (Switch::Iterations, &[Id::EngineConfigInfo]),
    (Switch::PyTorch, &[Id::StatisticsInterval]),
    (Switch::CrossAttention, &[Id::CrossKvBlocks]),
];

/// The statistics that feed the family; one of them is enough. Empty for families of GPUs and of the exporter. For a family of another
/// exporter's name set, the origin names its fields.
#[must_use]
pub fn statistics_of(metric: &Metric) -> Vec<Switch> {
    let is = |id: &Id| id.metric().name == metric.name;
    let mut found: Vec<Switch> = FIELDS
        .iter()
        .filter(|field| match field.destination {
            Destination::Families(ids) => ids.iter().any(is),
            Destination::None(_) => false,
        })
        .map(|field| field.statistics)
        .chain(OTHERS.iter().filter(|(_, ids)| ids.iter().any(is)).map(|(statistics, _)| *statistics))
        .collect();
    if metric.group == Group::Compat {
        for word in metric.origin.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_') {
            found.extend(FIELDS.iter().filter(|field| field.name == word).map(|field| field.statistics));
            let named = CATALOG.iter().find(|other| other.name == word && other.group != Group::Compat);
            found.extend(named.into_iter().flat_map(statistics_of));
        }
    }
    if metric.origin.contains("trtllm-serve's own") {
        found.push(Switch::ServerPage);
    }
    if metric.name.starts_with("nv_trt_llm_bench_") {
        found.push(Switch::Report);
    }
    if metric.origin.starts_with("orchestrator:") {
        found.push(Switch::Orchestrator);
    }
    found.sort();
    found.dedup();
    // Every engine sends iteration records, so other statistics are not needed for this family.
    if found.contains(&Switch::Iterations) { vec![Switch::Iterations] } else { found }
}

macro_rules! fields {
    ($($structure:ident: $statistics:ident { $($(@$other:ident)? $name:ident $destination:tt)* })*) => {
        /// Every field of every struct that is read.
        pub static FIELDS: &[Field] = &[$($(Field {
            structure: stringify!($structure),
            name: stringify!($name),
            statistics: fields!(@statistics $statistics $($other)?),
            destination: fields!(@destination $destination),
        }),*),*];
    };
    (@statistics $all:ident) => { Switch::$all };
    (@statistics $all:ident $own:ident) => { Switch::$own };
    (@destination [$($id:ident)*]) => { Destination::Families(&[$(Id::$id),*]) };
    (@destination $why:literal) => { Destination::None($why) };
}

fields! {
    IterationStats: Iterations {
        timestamp [GeneralMetrics LastIterationTimestamp]
        iter [GeneralMetrics Iterations IterationsLost EngineRestarts IterationsUnreported]
        iterLatencyMS [IterationLatency]
        newActiveRequestsQueueLatencyMS [NewRequestQueueTime]
        numNewActiveRequests [RequestsStarted NewRequestQueueTime]
        numActiveRequests [RequestMetrics BatchEfficiencyRatio SaturationRatio]
        numQueuedRequests [QueuedRequests WaitingRequestsEstimate SaturationRatio]
        numCompletedRequests [RequestsCompleted]
        maxNumActiveRequests [RequestMetrics BatchOccupancyRatio]
        @Cpp maxBatchSizeStatic [BatchSizeLimit]
        @Cpp maxBatchSizeTunerRecommended [BatchSizeLimit]
        @Cpp maxBatchSizeRuntime [BatchSizeLimit BatchEfficiencyRatio SaturationRatio]
        @Cpp maxNumTokensStatic [TokenLimit]
        @Cpp maxNumTokensTunerRecommended [TokenLimit]
        @Cpp maxNumTokensRuntime [TokenLimit SaturationRatio]
        gpuMemUsage [RuntimeMemoryMetrics]
        cpuMemUsage [RuntimeMemoryMetrics]
        pinnedMemUsage [RuntimeMemoryMetrics]
        kvCacheStats [KvCacheBlockMetrics]
        @CrossAttention crossKvCacheStats [CrossKvCacheBlockMetrics]
        @Cpp staticBatchingStats [V1Metrics]
        inflightBatchingStats [InflightBatcherMetrics]
        @Speculation specDecodingStats [SpecAcceptanceLength]
        @Rows requestStats [RequestsByStage]
        @AttentionDp attentionDpRank [AttentionDpRanks RankScheduledRequests RankContextTokens RankGenerationTokens RankImbalance]
        @AttentionDp rank [AttentionDpRanks RequestMetrics RankActiveRequests]
        @PyTorch hostStepTimeMS [HostStep IterationLatency]
        @PyTorch prevDeviceStepTimeMS [DeviceStep]
        @PyTorch gpuForwardTimeMS [GpuForward]
        @PyTorch schedulerMode [SchedulerInfo]
        @PyTorch statsSequence [IterationsLost]
        @PyTorch statsDroppedFrames [IterationsLost]
        @Windows kvCacheIterationStats [PrimaryPoolBlocks]
        @V2 kvCacheIterationStatsByPoolGroup [PrimaryPoolBlocks WindowBlocks WindowBytes KvCacheAvailableTokens]
        @V2 kvCacheIterationStatsByColdPoolGroup [SecondaryPoolBlocks]
        @V2 kvCacheIterationStatsByLifecycle [WindowBlocks KvIterationHitRatio]
        @V2 iterSuspendedRequests [RequestSuspensions]
        @V2 iterResumedRequests [RequestResumptions]
        @V2 iterDiskPrefetchBlocks [DiskPrefetchedBlocks]
        @V2 iterCachedTokensByLevel [CachedTokens]
        @V2 kvCacheLevelTiers [CachedTokens]
        currentStepsProcessed "only VisualGen sends it; a record with it is not an iteration"
    }
    KvCacheStats: Iterations {
        maxNumBlocks [KvCacheBlockMetrics KvCachePressureRatio SaturationRatio]
        freeNumBlocks [KvCacheBlockMetrics KvCacheAvailableTokens KvCachePressureRatio]
        usedNumBlocks [KvCacheBlockMetrics SaturationRatio]
        tokensPerBlock [KvCacheBlockMetrics KvCacheAvailableTokens]
        allocTotalBlocks [KvBlocksAllocated]
        allocNewBlocks [KvBlocksNewlyAllocated]
        reusedBlocks [KvCacheBlockMetrics KvBlocksReused KvCacheHitRatio KvReuseEfficiency]
        missedBlocks [KvBlocksMissed KvCacheHitRatio KvReuseEfficiency]
        cacheHitRate "counted since the engine's start, in older PyTorch releases including warm-up; nv_trt_llm_kv_cache_hit_ratio is computed from the blocks instead (the name set trtllm exports the field unchanged)"
    }
    InflightBatchingStats: Iterations {
        numScheduledRequests [RequestMetrics IterationScheduledRequests SaturationRatio]
        numContextRequests [RequestMetrics BatchOccupancyRatio ContextRequestRatio]
        numGenRequests [InflightBatcherMetrics GenerationTokens BatchOccupancyRatio ContextRequestRatio SaturationRatio]
        numPausedRequests [InflightBatcherMetrics]
        numCtxTokens [InflightBatcherMetrics ContextTokens IterationContextTokens SaturationRatio]
        microBatchId [InflightBatcherMetrics]
        avgNumDecodedTokensPerIter [DecodedTokensPerIteration GenerationTokens SaturationRatio]
        @PyTorch numCtxKvTokens [RequestKvTokens]
        @PyTorch numGenKvTokens [RequestKvTokens]
        @PyTorch numQueuedContextRequests [QueuedRequestsByPhase]
        @PyTorch numQueuedCtxTokens [QueuedContextTokens]
        @PyTorch numQueuedGenRequests [QueuedRequestsByPhase]
        @PyTorch numQueuedGenKvTokens [RequestKvTokens]
        @PyTorch numPausedKvTokens [RequestKvTokens]
    }
    StaticBatchingStats: Cpp {
        numScheduledRequests [RequestMetrics IterationScheduledRequests SaturationRatio]
        numContextRequests [RequestMetrics]
        numCtxTokens [V1Metrics ContextTokens SaturationRatio]
        numGenTokens [V1Metrics StaticBatchEfficiencyRatio]
        emptyGenSlots [V1Metrics StaticBatchEfficiencyRatio]
    }
    SpecDecodingStats: Speculation {
        numDraftTokens [SpecDraftTokens SpecAcceptanceRatio]
        numAcceptedTokens [SpecAcceptedTokens SpecAcceptanceRatio]
        numRequestsWithDraftTokens [SpecDraftedRequests]
        acceptanceLength [SpecAcceptanceLength]
        iterLatencyMS [SpecDraftTime]
        draftOverhead [SpecDraftOverheadRatio]
    }
    KvCacheIterationStats: Windows {
        slotSize [PoolByteSizes]
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
    KvCacheLifecycleStats: V2 {
        kind [WindowBlocks]
        iterReusedBlocks [WindowBlocks KvIterationHitRatio]
        iterFullReusedBlocks [WindowBlocks]
        iterPartialReusedBlocks [WindowBlocks]
        iterMissedBlocks [WindowBlocks KvIterationHitRatio]
        iterFullReusedBlocksByLevel [KvFullReusedBlocks]
        iterPartialReusedBlocksByLevel [KvPartialReusedBlocks]
        snapshotStats [SsmSnapshotLookups]
    }
    SsmSnapshotStats: V2 {
        iterSnapshotLookups [SsmSnapshotLookups]
        iterSnapshotMisses [SsmSnapshotMisses]
        iterReusedTokens [SsmSnapshotTokens]
        iterUnreusedTokens [SsmSnapshotTokens]
        iterAlignedSnapshotHits [SsmSnapshotHits]
        iterUnalignedSnapshotHits [SsmSnapshotHits]
    }
    RequestStats: Rows {
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
    DisServingRequestStats: Rows {
        kvCacheTransferMS [DisaggregatedServingMetrics KvCacheTransferTime]
        kvCacheSize [KvCacheTransferBytes]
    }
    RequestStatsPerIteration: Rows {
        iter "the exporter uses it to find the iteration's record, whose time applies to the rows"
        requestStats [RequestsByStage]
    }
    PerfMetricsEntry: Entries {
        requestId "one series per request would be unbounded; it becomes the exemplar of the request's histogram buckets"
        executorId "as above; the exporter uses it to find the rows of the request"
        disaggRequestId "as above, in disaggregated serving"
        ctxRequestId [DisaggregatedServingMetrics]
        perfMetrics [TimeToFirstToken]
        finishReason [RequestsFinished ObjectiveRequests]
        promptTokens [InputTokenLen]
        outputTokens [OutputTokenLen TimePerOutputToken GoodputTokens]
        cachedTokens [RequestCachedTokens]
        ctxPerfMetrics [TimeToFirstToken RequestQueueTime RequestPrefillTime E2eLatency RequestInferenceTime]
        genPerfMetrics [TimeToFirstToken GenerationQueueTime E2eLatency RequestDecodeTime RequestInferenceTime TimePerOutputToken KvCacheTransferTime]
        timeBreakdownMetrics [InterTokenLatency InterStepLatency RequestGpuForwardTime RequestGpuSampleTime]
        disaggServerArrivalTime [ServerTimeToFirstToken]
        disaggServerFirstTokenTime [ServerTimeToFirstToken]
    }
    StepTimes: Entries {
        ctxChunkMetrics [InterTokenLatency RequestGpuForwardTime RequestGpuSampleTime]
        stepMetrics [InterTokenLatency InterStepLatency RequestGpuForwardTime RequestGpuSampleTime]
    }
    Step: Entries {
        tokenTime [InterTokenLatency InterStepLatency]
        gpuForwardTime [RequestGpuForwardTime]
        gpuSampleTime [RequestGpuSampleTime]
    }
    RequestPerfMetrics: Entries {
        firstIter [RequestIterations]
        lastIter [RequestIterations]
        iter "equals lastIter for a finished request"
        timingMetrics [TimeToFirstToken]
        kvCacheMetrics [RequestKvHitRatio]
        speculativeDecoding [RequestSpecAcceptance]
    }
    TimingMetrics: Entries {
        serverArrivalTime [ServerTimeToFirstToken]
        serverFirstTokenTime [ServerTimeToFirstToken]
        arrivalTime [TimeToFirstToken E2eLatency RequestQueueTime ObjectiveRequests]
        firstScheduledTime [RequestQueueTime GenerationQueueTime RequestPrefillTime RequestInferenceTime]
        firstTokenTime [TimeToFirstToken RequestPrefillTime RequestDecodeTime]
        lastTokenTime [E2eLatency RequestDecodeTime RequestInferenceTime ObjectiveRequests]
        kvCacheTransferStart [KvCacheTransferTime GenerationQueueTime]
        kvCacheTransferEnd [KvCacheTransferTime GenerationQueueTime]
        kvCacheSize [KvCacheTransferBytes]
    }
    RequestKvCacheMetrics: Entries {
        numTotalAllocatedBlocks [RequestKvBlocks]
        numNewAllocatedBlocks [RequestKvNewBlocks]
        numReusedBlocks [RequestKvHitRatio]
        numMissedBlocks [RequestKvHitRatio]
        kvCacheHitRate "computed from the blocks, as for kvCacheHitRatePerRequest"
    }
    SpeculativeDecodingMetrics: Entries {
        acceptanceRate [RequestSpecAcceptance]
        totalAcceptedDraftTokens [RequestDraftTokens RequestSpecAcceptance]
        totalDraftTokens [RequestDraftTokens RequestSpecAcceptance]
    }
}
