#pragma once

// The members of the 1.3 releases: those of the simulated SDK and seven more, in another order.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace tensorrt_llm::executor
{

using SizeType32 = std::int32_t;

struct KvCacheStats
{
    float cacheHitRate;
    SizeType32 maxNumBlocks;
    SizeType32 freeNumBlocks;
    SizeType32 usedNumBlocks;
    SizeType32 tokensPerBlock;
    SizeType32 allocTotalBlocks;
    SizeType32 allocNewBlocks;
    SizeType32 reusedBlocks;
    SizeType32 missedBlocks;
};

struct InflightBatchingStats
{
    float avgNumDecodedTokensPerIter;
    SizeType32 numScheduledRequests;
    SizeType32 numContextRequests;
    SizeType32 numGenRequests;
    SizeType32 numPausedRequests;
    SizeType32 numCtxTokens;
    SizeType32 microBatchId;
    SizeType32 numCtxKvTokens;
    SizeType32 numGenKvTokens;
    SizeType32 numQueuedContextRequests;
    SizeType32 numQueuedCtxTokens;
    SizeType32 numQueuedGenRequests;
    SizeType32 numQueuedGenKvTokens;
    SizeType32 numPausedKvTokens;
};

/// These releases have no static batching, so the bridge must compile without it.
struct IterationStats
{
    std::uint64_t iter;
    std::string timestamp;
    double iterLatencyMS;
    double newActiveRequestsQueueLatencyMS;
    SizeType32 numNewActiveRequests;
    SizeType32 numActiveRequests;
    SizeType32 numQueuedRequests;
    SizeType32 numCompletedRequests;
    SizeType32 maxNumActiveRequests;
    std::size_t gpuMemUsage;
    std::size_t cpuMemUsage;
    std::size_t pinnedMemUsage;
    std::optional<KvCacheStats> kvCacheStats;
    std::optional<KvCacheStats> crossKvCacheStats;
    std::optional<InflightBatchingStats> inflightBatchingStats;
};

enum class RequestStage
{
    kQUEUED,
    kENCODER_IN_PROGRESS,
    kCONTEXT_IN_PROGRESS,
    kGENERATION_IN_PROGRESS,
    kGENERATION_COMPLETE,
    kSOMETHING_NEW,
};

struct DisServingRequestStats
{
    double kvCacheTransferMS;
    std::size_t kvCacheSize;
};

struct RequestStats
{
    std::uint64_t id;
    RequestStage stage;
    SizeType32 contextPrefillPosition;
    SizeType32 numGeneratedTokens;
    float avgNumDecodedTokensPerIter;
    bool scheduled;
    bool paused;
    std::optional<DisServingRequestStats> disServingStats;
};

} // namespace tensorrt_llm::executor
