#pragma once

// Simulated SDK: the value types of the Executor API, with the members of one release (sim/release.h).
// TensorRT-LLM initialises only some members. Here none are, so value-initialise these structs.

#include "tensorrt_llm/sim/release.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tensorrt_llm::executor
{

using SizeType32 = std::int32_t;
using FloatType = float;
using TokenIdType = std::int32_t;
using VecTokens = std::vector<TokenIdType>;
using BeamTokens = std::vector<VecTokens>;
using IdType = std::uint64_t;
using IterationType = std::uint64_t;

enum class ModelType
{
    kDECODER_ONLY = 0,
};

/// State of the paged KV cache. Max, free and used blocks are current values of the primary pool. Allocated, reused and
/// missed blocks are totals since the creation of the cache.
struct KvCacheStats
{
    SizeType32 maxNumBlocks;
    SizeType32 freeNumBlocks;
    SizeType32 usedNumBlocks;
    SizeType32 tokensPerBlock;
#if TRTLLM_SIM_SINCE(0, 11)
    SizeType32 allocTotalBlocks;
    SizeType32 allocNewBlocks;
    SizeType32 reusedBlocks;
#endif
#if TRTLLM_SIM_SINCE(1, 0)
    SizeType32 missedBlocks;
    float cacheHitRate;
#endif
};

struct StaticBatchingStats
{
    SizeType32 numScheduledRequests;
    SizeType32 numContextRequests;
    SizeType32 numCtxTokens;
    SizeType32 numGenTokens;
    SizeType32 emptyGenSlots;
};

struct InflightBatchingStats
{
    SizeType32 numScheduledRequests;
    SizeType32 numContextRequests;
    SizeType32 numGenRequests;
    SizeType32 numPausedRequests;
    SizeType32 numCtxTokens;
    SizeType32 microBatchId;
#if TRTLLM_SIM_SINCE(0, 11)
    float avgNumDecodedTokensPerIter;
#endif
};

#if TRTLLM_SIM_SINCE(1, 0)
struct SpecDecodingStats
{
    std::int64_t numDraftTokens;
    std::int64_t numAcceptedTokens;
    std::int64_t numRequestsWithDraftTokens;
    double acceptanceLength;
    double iterLatencyMS;
    double draftOverhead;
};
#endif

struct IterationStats
{
    std::string timestamp;
    IterationType iter;
#if TRTLLM_SIM_SINCE(0, 11)
    double iterLatencyMS;
#endif
#if TRTLLM_SIM_SINCE(0, 13)
    double newActiveRequestsQueueLatencyMS;
#endif
#if TRTLLM_SIM_SINCE(0, 15)
    SizeType32 numNewActiveRequests;
#endif
    SizeType32 numActiveRequests;
#if TRTLLM_SIM_SINCE(0, 11)
    SizeType32 numQueuedRequests;
#endif
#if TRTLLM_SIM_SINCE(0, 13)
    SizeType32 numCompletedRequests;
#endif
    SizeType32 maxNumActiveRequests;
#if TRTLLM_SIM_SINCE(1, 0)
    SizeType32 maxBatchSizeStatic;
    SizeType32 maxBatchSizeTunerRecommended;
    SizeType32 maxBatchSizeRuntime;
    SizeType32 maxNumTokensStatic;
    SizeType32 maxNumTokensTunerRecommended;
    SizeType32 maxNumTokensRuntime;
#endif
    std::size_t gpuMemUsage;
    std::size_t cpuMemUsage;
    std::size_t pinnedMemUsage;
    std::optional<KvCacheStats> kvCacheStats;
#if TRTLLM_SIM_SINCE(0, 11)
    std::optional<KvCacheStats> crossKvCacheStats;
#endif
    std::optional<StaticBatchingStats> staticBatchingStats;
    std::optional<InflightBatchingStats> inflightBatchingStats;
#if TRTLLM_SIM_SINCE(1, 0)
    std::optional<SpecDecodingStats> specDecodingStats;
#endif
};

enum class RequestStage
{
    kQUEUED,
#if TRTLLM_SIM_SINCE(0, 11)
    kENCODER_IN_PROGRESS,
#endif
    kCONTEXT_IN_PROGRESS,
    kGENERATION_IN_PROGRESS,
    kGENERATION_COMPLETE,
};

#if TRTLLM_SIM_SINCE(0, 14)
struct DisServingRequestStats
{
    double kvCacheTransferMS;
#if TRTLLM_SIM_SINCE(1, 1)
    std::size_t kvCacheSize;
#endif
};
#endif

struct RequestStats
{
    IdType id;
    RequestStage stage;
    SizeType32 contextPrefillPosition;
    SizeType32 numGeneratedTokens;
#if TRTLLM_SIM_SINCE(0, 11)
    float avgNumDecodedTokensPerIter;
#endif
    bool scheduled;
    bool paused;
#if TRTLLM_SIM_SINCE(0, 14)
    std::optional<DisServingRequestStats> disServingStats;
#endif
#if TRTLLM_SIM_SINCE(0, 15)
    SizeType32 allocTotalBlocksPerRequest;
    SizeType32 allocNewBlocksPerRequest;
    SizeType32 reusedBlocksPerRequest;
#endif
#if TRTLLM_SIM_SINCE(1, 1)
    SizeType32 missedBlocksPerRequest;
    FloatType kvCacheHitRatePerRequest;
#endif
};

struct RequestStatsPerIteration
{
    IterationType iter;
    std::vector<RequestStats> requestStats;
};

#if TRTLLM_SIM_SINCE(1, 0)
struct RequestPerfMetrics
{
    using TimePoint = std::chrono::time_point<std::chrono::steady_clock>;

    struct TimingMetrics
    {
        TimePoint arrivalTime;
        TimePoint firstScheduledTime;
        TimePoint firstTokenTime;
        TimePoint lastTokenTime;
        TimePoint kvCacheTransferStart;
        TimePoint kvCacheTransferEnd;
        // As in TensorRT-LLM, where a const request adds to it.
        mutable std::size_t kvCacheSize;
    };

    struct KvCacheMetrics
    {
        SizeType32 numTotalAllocatedBlocks;
        SizeType32 numNewAllocatedBlocks;
        SizeType32 numReusedBlocks;
        SizeType32 numMissedBlocks;
        FloatType kvCacheHitRate;
    };

    struct SpeculativeDecodingMetrics
    {
        FloatType acceptanceRate;
        SizeType32 totalAcceptedDraftTokens;
        SizeType32 totalDraftTokens;
    };

    TimingMetrics timingMetrics;
    KvCacheMetrics kvCacheMetrics;
    SpeculativeDecodingMetrics speculativeDecoding;
    std::optional<IterationType> firstIter;
    std::optional<IterationType> lastIter;
    std::optional<IterationType> iter;
};
#endif

enum class FinishReason
{
    kNOT_FINISHED = 0,
    kEND_ID = 1,
    kSTOP_WORDS = 2,
    kLENGTH = 3,
#if TRTLLM_SIM_SINCE(1, 0)
    kTIMED_OUT = 4,
    kCANCELLED = 5,
#endif
};

} // namespace tensorrt_llm::executor
