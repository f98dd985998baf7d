// Settling what an engine is: upstream's defaults, the host's configuration, the options; in that order.

#include "engine.h"

#include <algorithm>

namespace tensorrt_llm::sim
{
namespace
{

constexpr std::int32_t kDefaultBatchSize = 64;
constexpr std::int32_t kDefaultNumTokens = 2048;
/// Of the GPU's free memory, for the cache: kv_blocks is what it holds.
constexpr float kDefaultFraction = 0.9F;
constexpr std::size_t kDefaultRing = 1000;
/// Beyond a full batch: a queue that is long enough to be seen, and short enough for each record to name all of it.
constexpr std::size_t kDefaultWaiting = 256;

} // namespace

Settings settle(Options const& options, executor::ExecutorConfig const& config)
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
