// The configuration classes: what a host sets before it constructs an Executor, checked where it is set.

#include "tensorrt_llm/common/assert.h"
#include "tensorrt_llm/executor/executor.h"

#include <utility>

namespace tensorrt_llm::executor
{

SchedulerConfig::SchedulerConfig(CapacitySchedulerPolicy capacitySchedulerPolicy,
    std::optional<ContextChunkingPolicy> contextChunkingPolicy)
    : mCapacitySchedulerPolicy(capacitySchedulerPolicy)
    , mContextChunkingPolicy(contextChunkingPolicy)
{
}

CapacitySchedulerPolicy SchedulerConfig::getCapacitySchedulerPolicy() const
{
    return mCapacitySchedulerPolicy;
}

std::optional<ContextChunkingPolicy> SchedulerConfig::getContextChunkingPolicy() const
{
    return mContextChunkingPolicy;
}

KvCacheConfig::KvCacheConfig(bool enableBlockReuse, std::optional<SizeType32> const& maxTokens)
    : mEnableBlockReuse(enableBlockReuse)
{
    setMaxTokens(maxTokens);
}

bool KvCacheConfig::getEnableBlockReuse() const
{
    return mEnableBlockReuse;
}

std::optional<SizeType32> KvCacheConfig::getMaxTokens() const
{
    return mMaxTokens;
}

std::optional<FloatType> KvCacheConfig::getFreeGpuMemoryFraction() const
{
    return mFreeGpuMemoryFraction;
}

std::size_t KvCacheConfig::getEventBufferMaxSize() const
{
    return mEventBufferMaxSize;
}

void KvCacheConfig::setEnableBlockReuse(bool enableBlockReuse)
{
    mEnableBlockReuse = enableBlockReuse;
}

void KvCacheConfig::setMaxTokens(std::optional<SizeType32> maxTokens)
{
    TLLM_CHECK(!maxTokens || *maxTokens > 0);
    mMaxTokens = maxTokens;
}

void KvCacheConfig::setFreeGpuMemoryFraction(FloatType freeGpuMemoryFraction)
{
    TLLM_CHECK(freeGpuMemoryFraction > 0.0F && freeGpuMemoryFraction < 1.0F);
    mFreeGpuMemoryFraction = freeGpuMemoryFraction;
}

void KvCacheConfig::setEventBufferMaxSize(std::size_t eventBufferMaxSize)
{
    mEventBufferMaxSize = eventBufferMaxSize;
}

OrchestratorConfig::OrchestratorConfig(bool isOrchestrator, std::string workerExecutablePath)
    : mIsOrchestrator(isOrchestrator)
    , mWorkerExecutablePath(std::move(workerExecutablePath))
{
}

bool OrchestratorConfig::getIsOrchestrator() const
{
    return mIsOrchestrator;
}

std::string OrchestratorConfig::getWorkerExecutablePath() const
{
    return mWorkerExecutablePath;
}

void OrchestratorConfig::setIsOrchestrator(bool isOrchestrator)
{
    mIsOrchestrator = isOrchestrator;
}

void OrchestratorConfig::setWorkerExecutablePath(std::string const& workerExecutablePath)
{
    mWorkerExecutablePath = workerExecutablePath;
}

ParallelConfig::ParallelConfig(CommunicationType commType, CommunicationMode commMode,
    std::optional<std::vector<SizeType32>> deviceIds, std::optional<std::vector<SizeType32>> participantIds,
    std::optional<OrchestratorConfig> const& orchestratorConfig)
    : mCommType(commType)
    , mCommMode(commMode)
    , mDeviceIds(std::move(deviceIds))
    , mParticipantIds(std::move(participantIds))
    , mOrchestratorConfig(orchestratorConfig)
{
}

CommunicationType ParallelConfig::getCommunicationType() const
{
    return mCommType;
}

CommunicationMode ParallelConfig::getCommunicationMode() const
{
    return mCommMode;
}

std::optional<std::vector<SizeType32>> ParallelConfig::getDeviceIds() const
{
    return mDeviceIds;
}

std::optional<std::vector<SizeType32>> ParallelConfig::getParticipantIds() const
{
    return mParticipantIds;
}

std::optional<OrchestratorConfig> ParallelConfig::getOrchestratorConfig() const
{
    return mOrchestratorConfig;
}

void ParallelConfig::setCommunicationType(CommunicationType type)
{
    mCommType = type;
}

void ParallelConfig::setCommunicationMode(CommunicationMode mode)
{
    mCommMode = mode;
}

void ParallelConfig::setDeviceIds(std::vector<SizeType32> const& deviceIds)
{
    mDeviceIds = deviceIds;
}

void ParallelConfig::setParticipantIds(std::vector<SizeType32> const& participantIds)
{
    mParticipantIds = participantIds;
}

void ParallelConfig::setOrchestratorConfig(OrchestratorConfig const& orchestratorConfig)
{
    mOrchestratorConfig = orchestratorConfig;
}

} // namespace tensorrt_llm::executor
