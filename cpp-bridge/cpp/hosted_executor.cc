#include "hosted_executor.h"

#include "kv_events.h"
#include "records.h"

#if defined(TRTLLM_BRIDGE_SIMULATED)
#include "tensorrt_llm/sim/truth.h"
#endif

#include <filesystem>
#include <stdexcept>

/// From tensorrt_llm/plugins/api/tllmPlugin.h, unchanged since 0.9. Declared here because that header includes
/// TensorRT, which the bridge does not need otherwise.
extern "C" bool initTrtLlmPlugins(void* logger, char const* libNamespace);

namespace trtllm_bridge
{

namespace tle = tensorrt_llm::executor;

namespace
{

tle::ExecutorConfig configAfterPlugins(HostConfig const& config, Placement const& placement)
{
    auto converted = executorConfig(config, placement);
    // The plugins must be registered before an Executor is constructed. TensorRT-LLM's Python loader does the same.
    initTrtLlmPlugins(nullptr, "tensorrt_llm");
    return converted;
}

/// Prefetches the next records. The engine's thread wrote them on another core, so reading a record costs 100 ns
/// without this and 65 ns with it.
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
        // The timestamp's text is in other memory. The record that points to it was prefetched before.
        __builtin_prefetch(records[next + kRecords / 2].timestamp.data());
    }
}

} // namespace

HostedExecutor::HostedExecutor(std::string const& engine, HostConfig const& config, Placement const& placement)
    : mExecutor(std::filesystem::path(engine), modelType(config), configAfterPlugins(config, placement))
    , mLoad(mExecutor)
{
}

HostedExecutor::~HostedExecutor()
{
    try
    {
        mLoad.stop();
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

std::size_t HostedExecutor::drainKvEvents(KvEventRow* rows, std::size_t count)
{
    if (mKvEvents.size() < count)
    {
        try
        {
            takeKvEvents(mExecutor, mKvEvents);
        }
        catch (...)
        {
            if (mKvEvents.empty())
            {
                throw;
            }
        }
    }
    std::size_t written = 0;
    for (; written < count && !mKvEvents.empty(); mKvEvents.pop_front())
    {
        rows[written++] = mKvEvents.front();
    }
    return written;
}

void HostedExecutor::shutdown()
{
    mLoad.stop();
    mExecutor.shutdown();
}

Load& HostedExecutor::load()
{
    return mLoad;
}

Load const& HostedExecutor::load() const
{
    return mLoad;
}

Truth HostedExecutor::truth() const
{
#if defined(TRTLLM_BRIDGE_SIMULATED)
    auto const truth = tensorrt_llm::sim::truth(mExecutor);
    Truth row{};
    row.iterations = truth.iterations;
    row.flushes = truth.flushes;
    row.requests_arrived = truth.requestsArrived;
    row.requests_started = truth.requestsStarted;
    row.requests_completed = truth.requestsCompleted;
    row.context_tokens = truth.contextTokens;
    row.first_tokens = truth.firstTokens;
    row.generation_tokens = truth.generationTokens;
    row.draft_tokens = truth.draftTokens;
    row.accepted_tokens = truth.acceptedTokens;
    row.pauses = truth.pauses;
    row.records_pushed = truth.recordsPushed;
    row.records_lost = truth.recordsLost;
    row.request_records_pushed = truth.requestRecordsPushed;
    row.request_records_lost = truth.requestRecordsLost;
    row.virtual_time_ms = truth.virtualTimeMs;
    row.idle = truth.idle;
    return row;
#else
    throw std::runtime_error("truth() is only available from a simulated engine");
#endif
}

} // namespace trtllm_bridge
