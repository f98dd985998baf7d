// The configuration classes. Each setter validates its value.

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
    , mMaxTokens(maxTokens)
{
    TLLM_CHECK(!maxTokens || *maxTokens > 0);
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

#if TRTLLM_SIM_SINCE(0, 11)
void KvCacheConfig::setEnableBlockReuse(bool enableBlockReuse)
{
    mEnableBlockReuse = enableBlockReuse;
}

#if TRTLLM_SIM_SINCE(1, 1)
void KvCacheConfig::setMaxTokens(std::optional<SizeType32> maxTokens)
{
    TLLM_CHECK(!maxTokens || *maxTokens > 0);
    mMaxTokens = maxTokens;
}
#else
void KvCacheConfig::setMaxTokens(SizeType32 maxTokens)
{
    TLLM_CHECK(maxTokens > 0);
    mMaxTokens = maxTokens;
}
#endif

void KvCacheConfig::setFreeGpuMemoryFraction(FloatType freeGpuMemoryFraction)
{
    TLLM_CHECK(freeGpuMemoryFraction > 0.0F && freeGpuMemoryFraction < 1.0F);
    mFreeGpuMemoryFraction = freeGpuMemoryFraction;
}
#endif

#if TRTLLM_SIM_SINCE(1, 0)
void KvCacheConfig::setEventBufferMaxSize(std::size_t eventBufferMaxSize)
{
    mEventBufferMaxSize = eventBufferMaxSize;
}
#endif

#if TRTLLM_SIM_SINCE(0, 10)
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

#if TRTLLM_SIM_SINCE(0, 13)
bool OrchestratorConfig::getSpawnProcesses() const
{
    return mSpawnProcesses;
}

void OrchestratorConfig::setSpawnProcesses(bool spawnProcesses)
{
    mSpawnProcesses = spawnProcesses;
}
#endif
#endif

ParallelConfig::ParallelConfig(CommunicationType commType, CommunicationMode commMode,
    std::optional<std::vector<SizeType32>> deviceIds, std::optional<std::vector<SizeType32>> participantIds)
    : mCommType(commType)
    , mCommMode(commMode)
    , mDeviceIds(std::move(deviceIds))
    , mParticipantIds(std::move(participantIds))
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

#if TRTLLM_SIM_SINCE(0, 10)
std::optional<OrchestratorConfig> ParallelConfig::getOrchestratorConfig() const
{
    return mOrchestratorConfig;
}
#endif

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

#if TRTLLM_SIM_SINCE(0, 10)
void ParallelConfig::setOrchestratorConfig(OrchestratorConfig const& orchestratorConfig)
{
    mOrchestratorConfig = orchestratorConfig;
}
#endif

} // namespace tensorrt_llm::executor
