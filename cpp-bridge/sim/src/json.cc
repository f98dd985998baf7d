// JsonSerialization: converts records to JSON objects with the members' names as keys. An absent optional becomes null.

#include "tensorrt_llm/executor/executor.h"

#include <array>
#include <charconv>
#include <string_view>
#include <type_traits>

namespace tensorrt_llm::executor
{
namespace
{

class Object
{
public:
    template <class Value>
    Object& add(std::string_view key, Value const& value)
    {
        mText += mText.empty() ? "{\"" : ",\"";
        mText += key;
        mText += "\":";
        append(value);
        return *this;
    }

    template <class Value, class Write>
    Object& addOptional(std::string_view key, std::optional<Value> const& value, Write const& write)
    {
        return add(key, Raw{value ? write(*value) : "null"});
    }

    struct Raw
    {
        std::string json;
    };

    [[nodiscard]] std::string close() const
    {
        return mText + "}";
    }

private:
    void append(Raw const& value)
    {
        mText += value.json;
    }

    void append(bool value)
    {
        mText += value ? "true" : "false";
    }

    /// For names and timestamps only, because it escapes nothing.
    void append(std::string const& value)
    {
        mText += '"' + value + '"';
    }

    template <class Number>
    std::enable_if_t<std::is_arithmetic_v<Number>> append(Number value)
    {
        std::array<char, 32> digits{};
        auto const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
        mText.append(digits.data(), end);
    }

    std::string mText;
};

std::string toJson(KvCacheStats const& stats)
{
    return Object()
        .add("maxNumBlocks", stats.maxNumBlocks)
        .add("freeNumBlocks", stats.freeNumBlocks)
        .add("usedNumBlocks", stats.usedNumBlocks)
        .add("tokensPerBlock", stats.tokensPerBlock)
#if TRTLLM_SIM_SINCE(0, 11)
        .add("allocTotalBlocks", stats.allocTotalBlocks)
        .add("allocNewBlocks", stats.allocNewBlocks)
        .add("reusedBlocks", stats.reusedBlocks)
#endif
#if TRTLLM_SIM_SINCE(1, 0)
        .add("missedBlocks", stats.missedBlocks)
        .add("cacheHitRate", stats.cacheHitRate)
#endif
        .close();
}

std::string toJson(StaticBatchingStats const& stats)
{
    return Object()
        .add("numScheduledRequests", stats.numScheduledRequests)
        .add("numContextRequests", stats.numContextRequests)
        .add("numCtxTokens", stats.numCtxTokens)
        .add("numGenTokens", stats.numGenTokens)
        .add("emptyGenSlots", stats.emptyGenSlots)
        .close();
}

std::string toJson(InflightBatchingStats const& stats)
{
    return Object()
        .add("numScheduledRequests", stats.numScheduledRequests)
        .add("numContextRequests", stats.numContextRequests)
        .add("numGenRequests", stats.numGenRequests)
        .add("numPausedRequests", stats.numPausedRequests)
        .add("numCtxTokens", stats.numCtxTokens)
        .add("microBatchId", stats.microBatchId)
#if TRTLLM_SIM_SINCE(0, 11)
        .add("avgNumDecodedTokensPerIter", stats.avgNumDecodedTokensPerIter)
#endif
        .close();
}

#if TRTLLM_SIM_SINCE(1, 0)
std::string toJson(SpecDecodingStats const& stats)
{
    return Object()
        .add("numDraftTokens", stats.numDraftTokens)
        .add("numAcceptedTokens", stats.numAcceptedTokens)
        .add("numRequestsWithDraftTokens", stats.numRequestsWithDraftTokens)
        .add("acceptanceLength", stats.acceptanceLength)
        .add("iterLatencyMS", stats.iterLatencyMS)
        .add("draftOverhead", stats.draftOverhead)
        .close();
}
#endif

#if TRTLLM_SIM_SINCE(0, 14)
std::string toJson(DisServingRequestStats const& stats)
{
    return Object()
        .add("kvCacheTransferMS", stats.kvCacheTransferMS)
#if TRTLLM_SIM_SINCE(1, 1)
        .add("kvCacheSize", stats.kvCacheSize)
#endif
        .close();
}
#endif

std::string nameOf(RequestStage stage)
{
    switch (stage)
    {
    case RequestStage::kCONTEXT_IN_PROGRESS: return "CONTEXT_IN_PROGRESS";
    case RequestStage::kGENERATION_IN_PROGRESS: return "GENERATION_IN_PROGRESS";
    case RequestStage::kGENERATION_COMPLETE: return "GENERATION_COMPLETE";
    // As in TensorRT-LLM, the encoder stage has no name and gets that of the first stage.
#if TRTLLM_SIM_SINCE(0, 11)
    case RequestStage::kENCODER_IN_PROGRESS:
#endif
    case RequestStage::kQUEUED: break;
    }
    return "QUEUED";
}

/// Wraps the overloads above, because a template argument cannot name a set of overloads.
constexpr auto kToJson = [](auto const& stats) { return toJson(stats); };

} // namespace

std::string JsonSerialization::toJsonStr(IterationStats const& stats)
{
    // crossKvCacheStats is missing here, because TensorRT-LLM does not write it either.
    return Object()
        .add("timestamp", stats.timestamp)
        .add("iter", stats.iter)
#if TRTLLM_SIM_SINCE(0, 11)
        .add("iterLatencyMS", stats.iterLatencyMS)
#endif
#if TRTLLM_SIM_SINCE(0, 13)
        .add("newActiveRequestsQueueLatencyMS", stats.newActiveRequestsQueueLatencyMS)
#endif
#if TRTLLM_SIM_SINCE(0, 15)
        .add("numNewActiveRequests", stats.numNewActiveRequests)
#endif
        .add("numActiveRequests", stats.numActiveRequests)
#if TRTLLM_SIM_SINCE(0, 11)
        .add("numQueuedRequests", stats.numQueuedRequests)
#endif
#if TRTLLM_SIM_SINCE(0, 13)
        .add("numCompletedRequests", stats.numCompletedRequests)
#endif
        .add("maxNumActiveRequests", stats.maxNumActiveRequests)
#if TRTLLM_SIM_SINCE(1, 0)
        .add("maxBatchSizeStatic", stats.maxBatchSizeStatic)
        .add("maxBatchSizeTunerRecommended", stats.maxBatchSizeTunerRecommended)
        .add("maxBatchSizeRuntime", stats.maxBatchSizeRuntime)
        .add("maxNumTokensStatic", stats.maxNumTokensStatic)
        .add("maxNumTokensTunerRecommended", stats.maxNumTokensTunerRecommended)
        .add("maxNumTokensRuntime", stats.maxNumTokensRuntime)
#endif
        .add("gpuMemUsage", stats.gpuMemUsage)
        .add("cpuMemUsage", stats.cpuMemUsage)
        .add("pinnedMemUsage", stats.pinnedMemUsage)
        .addOptional("kvCacheStats", stats.kvCacheStats, kToJson)
        .addOptional("staticBatchingStats", stats.staticBatchingStats, kToJson)
        .addOptional("inflightBatchingStats", stats.inflightBatchingStats, kToJson)
#if TRTLLM_SIM_SINCE(1, 0)
        .addOptional("specDecodingStats", stats.specDecodingStats, kToJson)
#endif
        .close();
}

std::string JsonSerialization::toJsonStr(RequestStats const& stats)
{
    return Object()
        .add("id", stats.id)
        .add("stage", nameOf(stats.stage))
        .add("contextPrefillPosition", stats.contextPrefillPosition)
        .add("numGeneratedTokens", stats.numGeneratedTokens)
#if TRTLLM_SIM_SINCE(0, 11)
        .add("avgNumDecodedTokensPerIter", stats.avgNumDecodedTokensPerIter)
#endif
        .add("scheduled", stats.scheduled)
        .add("paused", stats.paused)
#if TRTLLM_SIM_SINCE(0, 14)
        .addOptional("disServingStats", stats.disServingStats, kToJson)
#endif
#if TRTLLM_SIM_SINCE(0, 15)
        .add("allocTotalBlocksPerRequest", stats.allocTotalBlocksPerRequest)
        .add("allocNewBlocksPerRequest", stats.allocNewBlocksPerRequest)
        .add("reusedBlocksPerRequest", stats.reusedBlocksPerRequest)
#endif
#if TRTLLM_SIM_SINCE(1, 1)
        .add("missedBlocksPerRequest", stats.missedBlocksPerRequest)
        .add("kvCacheHitRatePerRequest", stats.kvCacheHitRatePerRequest)
#endif
        .close();
}

std::string JsonSerialization::toJsonStr(RequestStatsPerIteration const& stats)
{
    std::string rows = "[";
    for (auto const& row : stats.requestStats)
    {
        rows += (rows.size() == 1 ? "" : ",") + toJsonStr(row);
    }
    return Object().add("iter", stats.iter).add("requestStats", Object::Raw{rows + "]"}).close();
}

} // namespace tensorrt_llm::executor
