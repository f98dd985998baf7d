#pragma once

// The members of release 0.9, the first with an Executor.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace tensorrt_llm::executor
{

using SizeType = std::int32_t;

struct KvCacheStats
{
    SizeType maxNumBlocks;
    SizeType freeNumBlocks;
    SizeType usedNumBlocks;
    SizeType tokensPerBlock;
};

struct StaticBatchingStats
{
    SizeType numScheduledRequests;
    SizeType numContextRequests;
    SizeType numCtxTokens;
    SizeType numGenTokens;
    SizeType emptyGenSlots;
};

struct InflightBatchingStats
{
    SizeType numScheduledRequests;
    SizeType numContextRequests;
    SizeType numGenRequests;
    SizeType numPausedRequests;
    SizeType numCtxTokens;
    SizeType microBatchId;
};

struct IterationStats
{
    std::string timestamp;
    std::uint64_t iter;
    SizeType numActiveRequests;
    SizeType maxNumActiveRequests;
    std::size_t gpuMemUsage;
    std::size_t cpuMemUsage;
    std::size_t pinnedMemUsage;
    std::optional<KvCacheStats> kvCacheStats;
    std::optional<StaticBatchingStats> staticBatchingStats;
    std::optional<InflightBatchingStats> inflightBatchingStats;
};

enum class RequestStage
{
    kQUEUED,
    kCONTEXT_IN_PROGRESS,
    kGENERATION_IN_PROGRESS,
    kGENERATION_COMPLETE,
};

struct RequestStats
{
    std::uint64_t id;
    RequestStage stage;
    SizeType contextPrefillPosition;
    SizeType numGeneratedTokens;
    bool scheduled;
    bool paused;
};

} // namespace tensorrt_llm::executor
