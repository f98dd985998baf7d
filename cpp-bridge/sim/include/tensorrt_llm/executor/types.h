#pragma once

// Simulated SDK: the value types of the Executor API, with the members of release 1.1.
// As upstream, members carry no initialisers: value-initialise what you create.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tensorrt_llm::executor
{

class Request;
class Response;

using SizeType32 = std::int32_t;
using FloatType = float;
using TokenIdType = std::int32_t;
using VecTokens = std::vector<TokenIdType>;
using BeamTokens = std::vector<VecTokens>;
using IdType = std::uint64_t;
using IterationType = std::uint64_t;
using RandomSeedType = std::uint64_t;
using PriorityType = float;
using MillisecondsType = std::chrono::milliseconds;

enum class ModelType
{
    kDECODER_ONLY = 0,
    kENCODER_ONLY = 1,
    kENCODER_DECODER = 2,
};

enum class BatchingType
{
    kSTATIC = 0,
    kINFLIGHT = 1,
};

enum class CapacitySchedulerPolicy
{
    kMAX_UTILIZATION = 0,
    kGUARANTEED_NO_EVICT = 1,
    kSTATIC_BATCH = 2,
};

enum class ContextChunkingPolicy
{
    kFIRST_COME_FIRST_SERVED = 0,
    kEQUAL_PROGRESS = 1,
};

enum class CommunicationType
{
    kMPI = 0,
};

enum class CommunicationMode
{
    kLEADER,
    kORCHESTRATOR,
};

/// State of the paged KV cache. Block counts of the primary pool are current; allocated, reused and missed blocks
/// count up from the creation of the cache.
struct KvCacheStats
{
    SizeType32 maxNumBlocks;
    SizeType32 freeNumBlocks;
    SizeType32 usedNumBlocks;
    SizeType32 tokensPerBlock;
    SizeType32 allocTotalBlocks;
    SizeType32 allocNewBlocks;
    SizeType32 reusedBlocks;
    SizeType32 missedBlocks;
    float cacheHitRate;
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
    float avgNumDecodedTokensPerIter;
};

struct SpecDecodingStats
{
    std::int64_t numDraftTokens;
    std::int64_t numAcceptedTokens;
    std::int64_t numRequestsWithDraftTokens;
    double acceptanceLength;
    double iterLatencyMS;
    double draftOverhead;
};

struct IterationStats
{
    std::string timestamp;
    IterationType iter;
    double iterLatencyMS;
    double newActiveRequestsQueueLatencyMS;
    SizeType32 numNewActiveRequests;
    SizeType32 numActiveRequests;
    SizeType32 numQueuedRequests;
    SizeType32 numCompletedRequests;
    SizeType32 maxNumActiveRequests;
    SizeType32 maxBatchSizeStatic;
    SizeType32 maxBatchSizeTunerRecommended;
    SizeType32 maxBatchSizeRuntime;
    SizeType32 maxNumTokensStatic;
    SizeType32 maxNumTokensTunerRecommended;
    SizeType32 maxNumTokensRuntime;
    std::size_t gpuMemUsage;
    std::size_t cpuMemUsage;
    std::size_t pinnedMemUsage;
    std::optional<KvCacheStats> kvCacheStats;
    std::optional<KvCacheStats> crossKvCacheStats;
    std::optional<StaticBatchingStats> staticBatchingStats;
    std::optional<InflightBatchingStats> inflightBatchingStats;
    std::optional<SpecDecodingStats> specDecodingStats;
};

enum class RequestStage
{
    kQUEUED,
    kENCODER_IN_PROGRESS,
    kCONTEXT_IN_PROGRESS,
    kGENERATION_IN_PROGRESS,
    kGENERATION_COMPLETE,
};

struct DisServingRequestStats
{
    double kvCacheTransferMS;
    std::size_t kvCacheSize;
};

struct RequestStats
{
    IdType id;
    RequestStage stage;
    SizeType32 contextPrefillPosition;
    SizeType32 numGeneratedTokens;
    float avgNumDecodedTokensPerIter;
    bool scheduled;
    bool paused;
    std::optional<DisServingRequestStats> disServingStats;
    SizeType32 allocTotalBlocksPerRequest;
    SizeType32 allocNewBlocksPerRequest;
    SizeType32 reusedBlocksPerRequest;
    SizeType32 missedBlocksPerRequest;
    FloatType kvCacheHitRatePerRequest;
};

struct RequestStatsPerIteration
{
    IterationType iter;
    std::vector<RequestStats> requestStats;
};

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

enum class FinishReason
{
    kNOT_FINISHED = 0,
    kEND_ID = 1,
    kSTOP_WORDS = 2,
    kLENGTH = 3,
    kTIMED_OUT = 4,
    kCANCELLED = 5,
};

} // namespace tensorrt_llm::executor
