// Converts HostConfig to tensorrt_llm::executor::ExecutorConfig.

#include "host_config.h"

#include <stdexcept>
#include <type_traits>
#include <utility>

namespace trtllm_bridge
{
namespace
{

namespace tle = tensorrt_llm::executor;

[[noreturn]] void unsupported(char const* option, char const* upstream)
{
    throw std::invalid_argument(std::string("this release of TensorRT-LLM has no ") + upstream + "; remove " + option);
}

/// Defines Set_<setter>: `call(object, value, option)` calls the setter, or throws if this release does not have it.
#define TRTLLM_BRIDGE_SETTER(setter)                                                                                   \
    struct Set_##setter                                                                                                \
    {                                                                                                                  \
        template <class Object, class Value, class = void>                                                             \
        struct Has : std::false_type                                                                                   \
        {                                                                                                              \
        };                                                                                                             \
        template <class Object, class Value>                                                                           \
        struct Has<Object, Value, std::void_t<decltype(std::declval<Object&>().setter(std::declval<Value>()))>>        \
            : std::true_type                                                                                           \
        {                                                                                                              \
        };                                                                                                             \
        template <class Object, class Value>                                                                           \
        static void call(                                                                                              \
            [[maybe_unused]] Object& object, [[maybe_unused]] Value const& value, [[maybe_unused]] char const* option) \
        {                                                                                                              \
            if constexpr (Has<Object, Value>::value)                                                                   \
            {                                                                                                          \
                object.setter(value);                                                                                  \
            }                                                                                                          \
            else                                                                                                       \
            {                                                                                                          \
                unsupported(option, #setter);                                                                          \
            }                                                                                                          \
        }                                                                                                              \
    }

TRTLLM_BRIDGE_SETTER(setMaxBatchSize);
TRTLLM_BRIDGE_SETTER(setMaxNumTokens);
TRTLLM_BRIDGE_SETTER(setMaxQueueSize);
TRTLLM_BRIDGE_SETTER(setEnableBlockReuse);
TRTLLM_BRIDGE_SETTER(setFreeGpuMemoryFraction);
TRTLLM_BRIDGE_SETTER(setMaxTokens);
TRTLLM_BRIDGE_SETTER(setEventBufferMaxSize);
TRTLLM_BRIDGE_SETTER(setSpawnProcesses);

bool has(HostConfig const& config, HostSet option)
{
    return (config.set & static_cast<std::uint64_t>(option)) != 0;
}

/// Release 0.10 added kORCHESTRATOR and the class OrchestratorConfig.
template <class Mode, class = void>
struct Orchestrator
{
    static Mode mode()
    {
        unsupported("the orchestrator mode", "CommunicationMode::kORCHESTRATOR");
    }
};

template <class Mode>
struct Orchestrator<Mode, std::void_t<decltype(Mode::kORCHESTRATOR)>>
{
    static Mode mode()
    {
        return Mode::kORCHESTRATOR;
    }
};

template <class Parallel, class = void>
struct Orchestration
{
    static void set(Parallel&, HostConfig const&, Placement const&)
    {
        unsupported("the orchestrator's options", "OrchestratorConfig");
    }
};

template <class Parallel>
struct Orchestration<Parallel, std::void_t<decltype(std::declval<Parallel const&>().getOrchestratorConfig())>>
{
    using Config = typename std::decay_t<decltype(std::declval<Parallel const&>().getOrchestratorConfig())>::value_type;

    static void set(Parallel& parallel, HostConfig const& config, Placement const& placement)
    {
        Config orchestrator;
        if (has(config, HostSet::IsOrchestrator))
        {
            orchestrator.setIsOrchestrator(config.is_orchestrator);
        }
        if (!placement.workerExecutable.empty())
        {
            orchestrator.setWorkerExecutablePath(placement.workerExecutable);
        }
        if (has(config, HostSet::SpawnProcesses))
        {
            Set_setSpawnProcesses::call(orchestrator, config.spawn_processes, "spawn_processes");
        }
        parallel.setOrchestratorConfig(orchestrator);
    }
};

template <class Type, class = void>
struct Models
{
    static Type of(std::uint8_t)
    {
        unsupported("the model type", "models with an encoder");
    }
};

template <class Type>
struct Models<Type, std::void_t<decltype(Type::kENCODER_ONLY), decltype(Type::kENCODER_DECODER)>>
{
    static Type of(std::uint8_t type)
    {
        return type == 1 ? Type::kENCODER_ONLY : Type::kENCODER_DECODER;
    }
};

template <class Config>
void setCache(Config& executor, HostConfig const& config)
{
    if (!has(config, HostSet::BlockReuse) && !has(config, HostSet::GpuFraction) && !has(config, HostSet::KvMaxTokens)
        && !has(config, HostSet::EventBuffer))
    {
        return;
    }
    tle::KvCacheConfig cache;
    if (has(config, HostSet::BlockReuse))
    {
        Set_setEnableBlockReuse::call(cache, config.enable_block_reuse, "enable_block_reuse");
    }
    if (has(config, HostSet::GpuFraction))
    {
        Set_setFreeGpuMemoryFraction::call(cache, config.free_gpu_memory_fraction, "free_gpu_memory_fraction");
    }
    if (has(config, HostSet::KvMaxTokens))
    {
        Set_setMaxTokens::call(cache, config.kv_max_tokens, "max_tokens");
    }
    if (has(config, HostSet::EventBuffer))
    {
        Set_setEventBufferMaxSize::call(
            cache, static_cast<std::size_t>(config.event_buffer_max_size), "event_buffer_max_size");
    }
    executor.setKvCacheConfig(cache);
}

template <class Config>
void setParallel(Config& executor, HostConfig const& config, Placement const& placement)
{
    auto const orchestration = has(config, HostSet::IsOrchestrator) || has(config, HostSet::SpawnProcesses)
        || !placement.workerExecutable.empty();
    if (!orchestration && !has(config, HostSet::CommMode) && placement.participantIds.empty()
        && placement.deviceIds.empty())
    {
        return;
    }
    tle::ParallelConfig parallel;
    if (has(config, HostSet::CommMode))
    {
        parallel.setCommunicationMode(
            config.orchestrator_mode ? Orchestrator<tle::CommunicationMode>::mode() : tle::CommunicationMode::kLEADER);
    }
    if (!placement.participantIds.empty())
    {
        parallel.setParticipantIds(placement.participantIds);
    }
    if (!placement.deviceIds.empty())
    {
        parallel.setDeviceIds(placement.deviceIds);
    }
    if (orchestration)
    {
        Orchestration<tle::ParallelConfig>::set(parallel, config, placement);
    }
    executor.setParallelConfig(parallel);
}

} // namespace

tle::ExecutorConfig executorConfig(HostConfig const& config, Placement const& placement)
{
    tle::ExecutorConfig executor;
    executor.setIterStatsMaxIterations(config.iter_stats_max_iterations);
    executor.setRequestStatsMaxIterations(config.request_stats_max_iterations);
    if (has(config, HostSet::Batching))
    {
        executor.setBatchingType(config.static_batching ? tle::BatchingType::kSTATIC : tle::BatchingType::kINFLIGHT);
    }
    if (has(config, HostSet::ChunkedContext))
    {
        executor.setEnableChunkedContext(config.enable_chunked_context);
    }
    if (has(config, HostSet::MaxBatchSize))
    {
        Set_setMaxBatchSize::call(executor, config.max_batch_size, "max_batch_size");
    }
    if (has(config, HostSet::MaxNumTokens))
    {
        Set_setMaxNumTokens::call(executor, config.max_num_tokens, "max_num_tokens");
    }
    if (has(config, HostSet::MaxQueueSize))
    {
        Set_setMaxQueueSize::call(executor, config.max_queue_size, "max_queue_size");
    }
    setCache(executor, config);
    setParallel(executor, config, placement);
    return executor;
}

tle::ModelType modelType(HostConfig const& config)
{
    return config.model_type == 0 ? tle::ModelType::kDECODER_ONLY : Models<tle::ModelType>::of(config.model_type);
}

} // namespace trtllm_bridge
