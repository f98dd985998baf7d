#pragma once

// Simulated SDK: the part of the Executor API that hosts and statistics readers use, for one release (sim/release.h).
// Instead of an engine directory it takes options for the load and the machine: "sim:?rate=20&seed=1"
// (sim/src/options.h).

#include "tensorrt_llm/executor/types.h"

#include <chrono>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace tensorrt_llm::sim
{
struct Access;
class CacheEvents;
} // namespace tensorrt_llm::sim

namespace tensorrt_llm::executor
{

#if TRTLLM_SIM_SINCE(0, 13)
[[nodiscard]] char const* version() noexcept;
#endif

class SamplingConfig
{
public:
    explicit SamplingConfig(SizeType32 beamWidth = 1);

    [[nodiscard]] SizeType32 getBeamWidth() const;
    [[nodiscard]] std::optional<FloatType> getTemperature() const;
    [[nodiscard]] std::optional<RandomSeedType> getSeed() const;
    void setBeamWidth(SizeType32 beamWidth);
    void setTemperature(std::optional<FloatType> const& temperature);
    void setSeed(std::optional<RandomSeedType> const& seed);

private:
    SizeType32 mBeamWidth;
    std::optional<FloatType> mTemperature;
    std::optional<RandomSeedType> mSeed;
};

class OutputConfig
{
public:
    explicit OutputConfig(bool returnLogProbs = false, bool returnContextLogits = false,
        bool returnGenerationLogits = false, bool excludeInputFromOutput = false, bool returnEncoderOutput = false);

    bool returnLogProbs;
    bool returnContextLogits;
    bool returnGenerationLogits;
    bool excludeInputFromOutput;
    bool returnEncoderOutput;
#if TRTLLM_SIM_SINCE(1, 0)
    bool returnPerfMetrics{false};
#endif
};

class Request
{
public:
    Request(VecTokens inputTokenIds, SizeType32 maxTokens, bool streaming = false,
        SamplingConfig const& samplingConfig = SamplingConfig(), OutputConfig const& outputConfig = OutputConfig(),
        std::optional<TokenIdType> const& endId = std::nullopt);

    [[nodiscard]] VecTokens getInputTokenIds() const;
    [[nodiscard]] SizeType32 getMaxTokens() const;
    [[nodiscard]] bool getStreaming() const;
    [[nodiscard]] SamplingConfig getSamplingConfig() const;
    [[nodiscard]] OutputConfig getOutputConfig() const;
    [[nodiscard]] std::optional<TokenIdType> getEndId() const;
    [[nodiscard]] std::optional<IdType> getClientId() const;
    [[nodiscard]] PriorityType getPriority() const;

    void setStreaming(bool streaming);
    void setSamplingConfig(SamplingConfig const& config);
    void setOutputConfig(OutputConfig const& outputConfig);
    void setEndId(TokenIdType endId);
    void setClientId(IdType clientId);
    void setPriority(PriorityType priority);

private:
    VecTokens mInputTokenIds;
    SizeType32 mMaxTokens;
    bool mStreaming;
    SamplingConfig mSamplingConfig;
    OutputConfig mOutputConfig;
    std::optional<TokenIdType> mEndId;
    std::optional<IdType> mClientId;
    PriorityType mPriority;
};

struct Result
{
    bool isFinal;
    BeamTokens outputTokenIds;
#if TRTLLM_SIM_SINCE(0, 13)
    std::vector<FinishReason> finishReasons;
    SizeType32 decodingIter{0};
#endif
#if TRTLLM_SIM_SINCE(1, 0)
    float avgDecodedTokensPerIter{0.0F};
#endif
#if TRTLLM_SIM_SINCE(0, 14)
    SizeType32 sequenceIndex{0};
    bool isSequenceFinal{false};
#endif
#if TRTLLM_SIM_SINCE(1, 0)
    std::optional<RequestPerfMetrics> requestPerfMetrics;
#endif
};

class Response
{
public:
    Response(IdType requestId, std::string errorMsg, std::optional<IdType> clientId = std::nullopt);
    Response(IdType requestId, Result result, std::optional<IdType> clientId = std::nullopt);

    [[nodiscard]] IdType getRequestId() const;
    [[nodiscard]] std::optional<IdType> getClientId() const;
    [[nodiscard]] bool hasError() const;
    [[nodiscard]] std::string const& getErrorMsg() const;
    [[nodiscard]] Result const& getResult() const;

private:
    IdType mRequestId;
    std::optional<IdType> mClientId;
    std::string mErrorMsg;
    std::optional<Result> mResult;
};

class SchedulerConfig
{
public:
    explicit SchedulerConfig(
        CapacitySchedulerPolicy capacitySchedulerPolicy = CapacitySchedulerPolicy::kGUARANTEED_NO_EVICT,
        std::optional<ContextChunkingPolicy> contextChunkingPolicy = std::nullopt);

    [[nodiscard]] CapacitySchedulerPolicy getCapacitySchedulerPolicy() const;
    [[nodiscard]] std::optional<ContextChunkingPolicy> getContextChunkingPolicy() const;

private:
    CapacitySchedulerPolicy mCapacitySchedulerPolicy;
    std::optional<ContextChunkingPolicy> mContextChunkingPolicy;
};

class KvCacheConfig
{
public:
    static constexpr bool kReuseByDefault = TRTLLM_SIM_SINCE(1, 0);

    explicit KvCacheConfig(
        bool enableBlockReuse = kReuseByDefault, std::optional<SizeType32> const& maxTokens = std::nullopt);

    [[nodiscard]] bool getEnableBlockReuse() const;
    [[nodiscard]] std::optional<SizeType32> getMaxTokens() const;
    [[nodiscard]] std::optional<FloatType> getFreeGpuMemoryFraction() const;
    [[nodiscard]] std::size_t getEventBufferMaxSize() const;

#if TRTLLM_SIM_SINCE(0, 11)
    void setEnableBlockReuse(bool enableBlockReuse);
#if TRTLLM_SIM_SINCE(1, 1)
    void setMaxTokens(std::optional<SizeType32> maxTokens);
#else
    void setMaxTokens(SizeType32 maxTokens);
#endif
    void setFreeGpuMemoryFraction(FloatType freeGpuMemoryFraction);
#endif
#if TRTLLM_SIM_SINCE(1, 0)
    void setEventBufferMaxSize(std::size_t eventBufferMaxSize);
#endif

private:
    bool mEnableBlockReuse;
    std::optional<SizeType32> mMaxTokens;
    std::optional<FloatType> mFreeGpuMemoryFraction;
    std::size_t mEventBufferMaxSize{0};
};

#if TRTLLM_SIM_SINCE(0, 10)
class OrchestratorConfig
{
public:
    explicit OrchestratorConfig(bool isOrchestrator = true, std::string workerExecutablePath = "");

    [[nodiscard]] bool getIsOrchestrator() const;
    [[nodiscard]] std::string getWorkerExecutablePath() const;
    void setIsOrchestrator(bool isOrchestrator);
    void setWorkerExecutablePath(std::string const& workerExecutablePath);
#if TRTLLM_SIM_SINCE(0, 13)
    [[nodiscard]] bool getSpawnProcesses() const;
    void setSpawnProcesses(bool spawnProcesses);
#endif

private:
    bool mIsOrchestrator;
    std::string mWorkerExecutablePath;
    bool mSpawnProcesses{true};
};
#endif

class ParallelConfig
{
public:
    explicit ParallelConfig(CommunicationType commType = CommunicationType::kMPI,
        CommunicationMode commMode = CommunicationMode::kLEADER,
        std::optional<std::vector<SizeType32>> deviceIds = std::nullopt,
        std::optional<std::vector<SizeType32>> participantIds = std::nullopt);

    [[nodiscard]] CommunicationType getCommunicationType() const;
    [[nodiscard]] CommunicationMode getCommunicationMode() const;
    [[nodiscard]] std::optional<std::vector<SizeType32>> getDeviceIds() const;
    [[nodiscard]] std::optional<std::vector<SizeType32>> getParticipantIds() const;
#if TRTLLM_SIM_SINCE(0, 10)
    [[nodiscard]] std::optional<OrchestratorConfig> getOrchestratorConfig() const;
#endif

    void setCommunicationType(CommunicationType type);
    void setCommunicationMode(CommunicationMode mode);
    void setDeviceIds(std::vector<SizeType32> const& deviceIds);
    void setParticipantIds(std::vector<SizeType32> const& participantIds);
#if TRTLLM_SIM_SINCE(0, 10)
    void setOrchestratorConfig(OrchestratorConfig const& orchestratorConfig);
#endif

private:
    CommunicationType mCommType;
    CommunicationMode mCommMode;
    std::optional<std::vector<SizeType32>> mDeviceIds;
    std::optional<std::vector<SizeType32>> mParticipantIds;
#if TRTLLM_SIM_SINCE(0, 10)
    std::optional<OrchestratorConfig> mOrchestratorConfig;
#endif
};

#if !TRTLLM_SIM_SINCE(0, 16)
SizeType32 const kDefaultIterStatsMaxIterations = 1000;
SizeType32 const kDefaultRequestStatsMaxIterations = 0;
#endif

class ExecutorConfig
{
public:
#if TRTLLM_SIM_SINCE(0, 16)
    static constexpr SizeType32 kDefaultIterStatsMaxIterations = 1000;
    static constexpr SizeType32 kDefaultRequestStatsMaxIterations = 0;
#endif

    explicit ExecutorConfig(SizeType32 maxBeamWidth = 1);

    [[nodiscard]] SizeType32 getMaxBeamWidth() const;
    [[nodiscard]] SchedulerConfig getSchedulerConfig() const;
    [[nodiscard]] KvCacheConfig getKvCacheConfig() const;
    [[nodiscard]] bool getEnableChunkedContext() const;
    [[nodiscard]] SizeType32 getIterStatsMaxIterations() const;
    [[nodiscard]] SizeType32 getRequestStatsMaxIterations() const;
    [[nodiscard]] BatchingType getBatchingType() const;
    [[nodiscard]] std::optional<SizeType32> getMaxBatchSize() const;
    [[nodiscard]] std::optional<SizeType32> getMaxNumTokens() const;
    [[nodiscard]] std::optional<ParallelConfig> getParallelConfig() const;
    [[nodiscard]] std::optional<SizeType32> getMaxQueueSize() const;

    void setMaxBeamWidth(SizeType32 maxBeamWidth);
    void setSchedulerConfig(SchedulerConfig const& schedulerConfig);
    void setKvCacheConfig(KvCacheConfig const& kvCacheConfig);
    void setEnableChunkedContext(bool enableChunkedContext);
    void setIterStatsMaxIterations(SizeType32 iterStatsMaxIterations);
    void setRequestStatsMaxIterations(SizeType32 requestStatsMaxIterations);
    void setBatchingType(BatchingType batchingType);
#if TRTLLM_SIM_SINCE(0, 11)
    void setMaxBatchSize(SizeType32 maxBatchSize);
    void setMaxNumTokens(SizeType32 maxNumTokens);
#endif
    void setParallelConfig(ParallelConfig const& parallelConfig);
#if TRTLLM_SIM_SINCE(0, 12)
    void setMaxQueueSize(std::optional<SizeType32> const& maxQueueSize);
#endif

private:
    SizeType32 mMaxBeamWidth;
    SchedulerConfig mSchedulerConfig;
    KvCacheConfig mKvCacheConfig;
    bool mEnableChunkedContext{TRTLLM_SIM_SINCE(1, 1)};
    SizeType32 mIterStatsMaxIterations{kDefaultIterStatsMaxIterations};
    SizeType32 mRequestStatsMaxIterations{kDefaultRequestStatsMaxIterations};
    BatchingType mBatchingType{BatchingType::kINFLIGHT};
    std::optional<SizeType32> mMaxBatchSize;
    std::optional<SizeType32> mMaxNumTokens;
    std::optional<ParallelConfig> mParallelConfig;
    std::optional<SizeType32> mMaxQueueSize;
};

#if TRTLLM_SIM_SINCE(1, 1)
struct KVCacheCreatedData
{
    std::vector<SizeType32> numBlocksPerCacheLevel;
};

/// TensorRT-LLM's struct also has the tokens of the block.
struct KVCacheStoredBlockData
{
    IdType blockHash;
    SizeType32 cacheLevel;
    SizeType32 priority;
};

struct KVCacheStoredData
{
    std::optional<IdType> parentHash;
    std::vector<KVCacheStoredBlockData> blocks;
};

struct KVCacheRemovedData
{
    std::vector<IdType> blockHashes;
};

template <class Value>
struct KVCacheEventDiff
{
    Value oldValue;
    Value newValue;
};

struct KVCacheUpdatedData
{
    IdType blockHash;
    std::optional<KVCacheEventDiff<SizeType32>> cacheLevel;
    std::optional<KVCacheEventDiff<SizeType32>> priority;
};

using KVCacheEventData = std::variant<KVCacheCreatedData, KVCacheStoredData, KVCacheRemovedData, KVCacheUpdatedData>;

struct KVCacheEvent
{
    KVCacheEvent(IdType eventId, KVCacheEventData data, SizeType32 windowSize,
        std::optional<SizeType32> attentionDpRank = std::nullopt);

    IdType eventId;
    KVCacheEventData data;
    SizeType32 windowSize;
    std::optional<SizeType32> attentionDpRank;
};

/// Exists if the Executor's KvCacheConfig has an event buffer.
class KVCacheEventManager
{
public:
    explicit KVCacheEventManager(std::shared_ptr<sim::CacheEvents> events);

    /// Returns each event once. The simulated one never waits.
    std::deque<KVCacheEvent> getLatestEvents(std::optional<std::chrono::milliseconds> timeout = std::nullopt);

private:
    std::shared_ptr<sim::CacheEvents> mEvents;
};
#endif

/// One model instance. It accepts requests, batches them in flight and writes statistics into bounded rings. Any thread
/// may call any method. After shutdown() all methods throw, except canEnqueueRequests() and isParticipant().
class Executor
{
public:
    Executor(std::filesystem::path const& modelPath, ModelType modelType, ExecutorConfig const& executorConfig);
    ~Executor();
#if TRTLLM_SIM_SINCE(1, 1)
    Executor(Executor const&) = delete;
    Executor& operator=(Executor const&) = delete;
    Executor(Executor&&) noexcept;
    Executor& operator=(Executor&&) noexcept;
#endif

    [[nodiscard]] IdType enqueueRequest(Request const& request);
    [[nodiscard]] std::vector<IdType> enqueueRequests(std::vector<Request> const& requests);

#if TRTLLM_SIM_SINCE(0, 11)
    [[nodiscard]] std::vector<Response> awaitResponses(
        std::optional<std::chrono::milliseconds> const& timeout = std::nullopt);
    [[nodiscard]] std::vector<Response> awaitResponses(
        IdType const& requestId, std::optional<std::chrono::milliseconds> const& timeout = std::nullopt);
    [[nodiscard]] std::vector<std::vector<Response>> awaitResponses(
        std::vector<IdType> const& requestIds, std::optional<std::chrono::milliseconds> const& timeout = std::nullopt);
#else
    [[nodiscard]] std::vector<Response> awaitResponses(std::optional<IdType> const& requestId = std::nullopt,
        std::optional<std::chrono::milliseconds> const& timeout = std::nullopt);
#endif
    [[nodiscard]] SizeType32 getNumResponsesReady(std::optional<IdType> const& requestId = std::nullopt) const;

    void cancelRequest(IdType requestId);
    void shutdown();

    /// Returns the records since the last call, oldest first, and empties the ring.
    std::deque<IterationStats> getLatestIterationStats();
    std::deque<RequestStatsPerIteration> getLatestRequestStats();

    [[nodiscard]] bool canEnqueueRequests() const;
#if TRTLLM_SIM_SINCE(0, 15)
    [[nodiscard]] bool isParticipant() const;
#endif
#if TRTLLM_SIM_SINCE(1, 1)
    [[nodiscard]] std::optional<std::shared_ptr<KVCacheEventManager>> getKVCacheEventManager() const;
#endif

private:
    class Impl;
    friend struct ::tensorrt_llm::sim::Access;
    std::unique_ptr<Impl> mImpl;
};

class JsonSerialization
{
public:
    [[nodiscard]] static std::string toJsonStr(IterationStats const& iterationStats);
    [[nodiscard]] static std::string toJsonStr(RequestStatsPerIteration const& requestStatsPerIter);
    [[nodiscard]] static std::string toJsonStr(RequestStats const& requestStats);
};

} // namespace tensorrt_llm::executor
