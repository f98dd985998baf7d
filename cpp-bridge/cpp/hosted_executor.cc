#include "trtllm_bridge/bridge.h"

#include "load.h"
#include "records.h"

#if defined(TRTLLM_BRIDGE_SIMULATED)
#include "tensorrt_llm/sim/truth.h"
#endif

#include <filesystem>
#include <stdexcept>
#include <utility>

/// From tensorrt_llm/plugins/api/tllmPlugin.h, unchanged since 0.9. Declared here because that header includes
/// TensorRT, which the bridge does not need otherwise.
extern "C" bool initTrtLlmPlugins(void* logger, char const* libNamespace);

namespace trtllm_bridge
{

namespace tle = tensorrt_llm::executor;

namespace
{

tle::ExecutorConfig configOf(RingSizes rings)
{
    // Only setters are used, because the constructors change between releases.
    tle::ExecutorConfig config;
    config.setIterStatsMaxIterations(rings.iterations);
    config.setRequestStatsMaxIterations(rings.requests);
    // The plugins must be registered before an Executor is constructed. TensorRT-LLM's Python loader does the same.
    initTrtLlmPlugins(nullptr, "tensorrt_llm");
    return config;
}

/// Prefetches the next records. The engine's thread wrote them on another core, so reading a record takes 100 ns
/// without prefetching and 65 ns with it.
void prefetch(std::deque<tle::IterationStats> const& records, std::size_t next)
{
    constexpr std::size_t kLine = 64;
    constexpr std::size_t kRecords = 8;
    if (next + kRecords < records.size())
    {
        auto const* const record = reinterpret_cast<char const*>(&records[next + kRecords]);
        for (std::size_t offset = 0; offset < sizeof(tle::IterationStats); offset += kLine)
        {
            __builtin_prefetch(record + offset);
        }
        // The timestamp's text is in other memory. An earlier call has prefetched the record that points to it.
        __builtin_prefetch(records[next + kRecords / 2].timestamp.data());
    }
}

} // namespace

HostedExecutor::HostedExecutor(std::string const& engine, RingSizes rings)
    : mExecutor(std::filesystem::path(engine), tle::ModelType::kDECODER_ONLY, configOf(rings))
{
}

HostedExecutor::~HostedExecutor()
{
    try
    {
        mLoad.reset();
        if (mExecutor.canEnqueueRequests())
        {
            mExecutor.shutdown();
        }
    }
    catch (...) // NOLINT(bugprone-empty-catch): a destructor must not throw
    {
    }
}

bool HostedExecutor::canEnqueueRequests() const
{
    return mExecutor.canEnqueueRequests();
}

std::size_t HostedExecutor::drainIterations(IterationStats* records, std::size_t count)
{
    // A drain that has not ended does not fetch new records. Otherwise it would never end if the engine writes faster
    // than the caller reads.
    if (!mIterationsLeft)
    {
        mIterations = mExecutor.getLatestIterationStats();
        mNextIteration = 0;
    }
    std::size_t written = 0;
    for (; written < count && mNextIteration < mIterations.size(); ++mNextIteration)
    {
        prefetch(mIterations, mNextIteration);
        fill(records[written++], mIterations[mNextIteration]);
    }
    mIterationsLeft = written == count;
    if (!mIterationsLeft)
    {
        mIterations.clear();
    }
    return written;
}

void HostedExecutor::startLoad(LoadConfig const& config)
{
    if (mLoad != nullptr)
    {
        throw std::logic_error("this engine has a load already");
    }
    if (!mExecutor.canEnqueueRequests())
    {
        // This call throws TensorRT-LLM's own exception, which names the reason.
        static_cast<void>(mExecutor.getNumResponsesReady());
        throw std::runtime_error("this executor does not accept requests");
    }
    mLoad = std::make_unique<Load>(mExecutor, config);
}

std::size_t HostedExecutor::drainFinished(FinishedRequest* requests, std::size_t count)
{
    return mLoad == nullptr ? 0 : mLoad->drain(requests, count);
}

void HostedExecutor::shutdown()
{
    if (mLoad != nullptr)
    {
        mLoad->stop();
    }
    mExecutor.shutdown();
}

Truth HostedExecutor::truth() const
{
#if defined(TRTLLM_BRIDGE_SIMULATED)
    auto const truth = tensorrt_llm::sim::truth(mExecutor);
    return {truth.iterations, truth.flushes, truth.requestsArrived, truth.requestsStarted, truth.requestsCompleted,
        truth.contextTokens, truth.firstTokens, truth.generationTokens, truth.pauses, truth.recordsPushed,
        truth.recordsLost, truth.requestRecordsPushed, truth.requestRecordsLost, truth.idle};
#else
    throw std::runtime_error("truth() is only available from a simulated engine");
#endif
}

} // namespace trtllm_bridge
