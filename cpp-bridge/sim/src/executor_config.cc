// ExecutorConfig. Each setter validates its value.

#include "tensorrt_llm/common/assert.h"
#include "tensorrt_llm/executor/executor.h"

namespace tensorrt_llm::executor
{

ExecutorConfig::ExecutorConfig(SizeType32 maxBeamWidth)
    : mMaxBeamWidth(0)
{
    setMaxBeamWidth(maxBeamWidth);
}

SizeType32 ExecutorConfig::getMaxBeamWidth() const
{
    return mMaxBeamWidth;
}

SchedulerConfig ExecutorConfig::getSchedulerConfig() const
{
    return mSchedulerConfig;
}

KvCacheConfig ExecutorConfig::getKvCacheConfig() const
{
    return mKvCacheConfig;
}

bool ExecutorConfig::getEnableChunkedContext() const
{
    return mEnableChunkedContext;
}

SizeType32 ExecutorConfig::getIterStatsMaxIterations() const
{
    return mIterStatsMaxIterations;
}

SizeType32 ExecutorConfig::getRequestStatsMaxIterations() const
{
    return mRequestStatsMaxIterations;
}

BatchingType ExecutorConfig::getBatchingType() const
{
    return mBatchingType;
}

std::optional<SizeType32> ExecutorConfig::getMaxBatchSize() const
{
    return mMaxBatchSize;
}

std::optional<SizeType32> ExecutorConfig::getMaxNumTokens() const
{
    return mMaxNumTokens;
}

std::optional<ParallelConfig> ExecutorConfig::getParallelConfig() const
{
    return mParallelConfig;
}

std::optional<SizeType32> ExecutorConfig::getMaxQueueSize() const
{
    return mMaxQueueSize;
}

void ExecutorConfig::setMaxBeamWidth(SizeType32 maxBeamWidth)
{
    TLLM_CHECK(maxBeamWidth > 0);
    mMaxBeamWidth = maxBeamWidth;
}

void ExecutorConfig::setSchedulerConfig(SchedulerConfig const& schedulerConfig)
{
    mSchedulerConfig = schedulerConfig;
}

void ExecutorConfig::setKvCacheConfig(KvCacheConfig const& kvCacheConfig)
{
    mKvCacheConfig = kvCacheConfig;
}

void ExecutorConfig::setEnableChunkedContext(bool enableChunkedContext)
{
    mEnableChunkedContext = enableChunkedContext;
}

void ExecutorConfig::setIterStatsMaxIterations(SizeType32 iterStatsMaxIterations)
{
    TLLM_CHECK(iterStatsMaxIterations >= 0);
    mIterStatsMaxIterations = iterStatsMaxIterations;
}

void ExecutorConfig::setRequestStatsMaxIterations(SizeType32 requestStatsMaxIterations)
{
    TLLM_CHECK(requestStatsMaxIterations >= 0);
    mRequestStatsMaxIterations = requestStatsMaxIterations;
}

void ExecutorConfig::setBatchingType(BatchingType batchingType)
{
    mBatchingType = batchingType;
}

#if TRTLLM_SIM_SINCE(0, 11)
void ExecutorConfig::setMaxBatchSize(SizeType32 maxBatchSize)
{
    TLLM_CHECK(maxBatchSize > 0);
    mMaxBatchSize = maxBatchSize;
}
#endif

#if TRTLLM_SIM_SINCE(0, 11)
void ExecutorConfig::setMaxNumTokens(SizeType32 maxNumTokens)
{
    TLLM_CHECK(maxNumTokens > 0);
    mMaxNumTokens = maxNumTokens;
}
#endif

void ExecutorConfig::setParallelConfig(ParallelConfig const& parallelConfig)
{
    mParallelConfig = parallelConfig;
}

#if TRTLLM_SIM_SINCE(0, 12)
void ExecutorConfig::setMaxQueueSize(std::optional<SizeType32> const& maxQueueSize)
{
    TLLM_CHECK(!maxQueueSize || *maxQueueSize > 0);
    mMaxQueueSize = maxQueueSize;
}
#endif

} // namespace tensorrt_llm::executor
