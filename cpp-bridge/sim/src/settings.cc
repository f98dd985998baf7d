// Computes the effective settings. Options of the simulation override the host's configuration, which overrides
// TensorRT-LLM's defaults.

#include "engine.h"

#include <algorithm>

namespace tensorrt_llm::sim
{
namespace
{

constexpr std::int32_t kDefaultBatchSize = 64;
constexpr std::int32_t kDefaultNumTokens = 2048;
/// The default fraction of free GPU memory for the KV cache. With this fraction, the cache has kv_blocks blocks.
constexpr float kDefaultFraction = 0.9F;
constexpr std::size_t kDefaultRing = 1000;
/// How many requests may queue in addition to a full batch: enough to see a queue, and few enough for request records.
constexpr std::size_t kDefaultWaiting = 256;

} // namespace

Settings effectiveSettings(Options const& options, executor::ExecutorConfig const& config)
{
    Settings settings{};
    settings.options = options;
    auto const cache = config.getKvCacheConfig();
    settings.kvBlocks = options.kvBlocks;
    if (auto const fraction = cache.getFreeGpuMemoryFraction())
    {
        settings.kvBlocks = std::max(static_cast<std::int32_t>(options.kvBlocks * (*fraction / kDefaultFraction)), 2);
    }
    if (auto const maxTokens = cache.getMaxTokens())
    {
        settings.kvBlocks = std::clamp(*maxTokens / options.tokensPerBlock, 2, settings.kvBlocks);
    }
    settings.blockReuse = cache.getEnableBlockReuse();
    settings.staticBatching = options.batching.value_or(config.getBatchingType()) == executor::BatchingType::kSTATIC;
    settings.maxSequence
        = static_cast<std::int32_t>(std::min<std::int64_t>(std::int64_t{settings.kvBlocks} * options.tokensPerBlock,
            1 << 20));

    auto& limits = settings.limits;
    limits.batchSize = options.maxBatchSize.value_or(config.getMaxBatchSize().value_or(kDefaultBatchSize));
    limits.tokens = options.maxNumTokens.value_or(config.getMaxNumTokens().value_or(kDefaultNumTokens));
    limits.policy = options.policy.value_or(config.getSchedulerConfig().getCapacitySchedulerPolicy());
    limits.chunkedContext = config.getEnableChunkedContext();
    limits.draftTokens = options.specDraftLen;
    limits.tokensPerBlock = options.tokensPerBlock;
    settings.maxPrompt
        = std::min(settings.maxSequence - 1, limits.chunkedContext ? settings.maxSequence : limits.tokens);

    settings.inFlight = options.inFlight ? static_cast<std::size_t>(*options.inFlight)
                                         : static_cast<std::size_t>(limits.batchSize) + kDefaultWaiting;
    settings.maxQueueSize = config.getMaxQueueSize();
    settings.iterationRing = static_cast<std::size_t>(config.getIterStatsMaxIterations());
    settings.eventBuffer = cache.getEventBufferMaxSize();
    settings.requestRing = static_cast<std::size_t>(config.getRequestStatsMaxIterations());
    if (options.requestStats && settings.requestRing == 0)
    {
        settings.requestRing = kDefaultRing;
    }
    return settings;
}

} // namespace tensorrt_llm::sim
