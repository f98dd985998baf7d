// Hosting an Executor: opening it, draining it, ending it.

#include "trtllm_bridge/bridge.h"

#include "rows.h"

#include "tensorrt_llm/executor/executor.h"

#if defined(TRTLLM_BRIDGE_SIMULATED)
#include "tensorrt_llm/sim/truth.h"
#endif

#include <deque>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>

/// Of tensorrt_llm/plugins/api/tllmPlugin.h, a C function unchanged since 0.9. Declared here because that header pulls
/// in TensorRT, which nothing else of the bridge needs.
extern "C" bool initTrtLlmPlugins(void* logger, char const* libNamespace);

namespace trtllm_bridge
{

namespace tle = tensorrt_llm::executor;

struct ExecutorHandle::Impl
{
    Impl(std::string const& engine, tle::ExecutorConfig const& config)
        : executor(std::filesystem::path(engine), tle::ModelType::kDECODER_ONLY, config)
    {
    }

    tle::Executor executor;
    // Drained, not handed over: everything from the given index on.
    std::deque<tle::IterationStats> iterations;
    std::size_t nextIteration{0};
    std::deque<tle::RequestStatsPerIteration> requests;
    std::size_t nextRequests{0};
    std::size_t nextRow{0};

    std::size_t handOverIterations(rust::Slice<IterationRow> rows, std::size_t written)
    {
        for (; written < rows.size() && nextIteration < iterations.size(); ++nextIteration)
        {
            readRow(iterations[nextIteration], rows[written++]);
        }
        return written;
    }

    std::size_t handOverRequests(rust::Slice<RequestRow> rows, std::size_t written)
    {
        for (; nextRequests < requests.size(); ++nextRequests, nextRow = 0)
        {
            auto const& record = requests[nextRequests];
            for (; nextRow < record.requestStats.size(); ++nextRow)
            {
                if (written == rows.size())
                {
                    return written;
                }
                readRow(record.requestStats[nextRow], record.iter, rows[written++]);
            }
        }
        return written;
    }
};

ExecutorHandle::ExecutorHandle(
    rust::Str engine, std::int32_t iterStatsMaxIterations, std::int32_t requestStatsMaxIterations)
{
    // Setters only: constructors of upstream's configuration change between releases.
    tle::ExecutorConfig config;
    config.setIterStatsMaxIterations(iterStatsMaxIterations);
    config.setRequestStatsMaxIterations(requestStatsMaxIterations);
    // As TensorRT-LLM's own Python loader does: no logger of ours.
    initTrtLlmPlugins(nullptr, "tensorrt_llm");
    mImpl = std::make_unique<Impl>(std::string(engine), config);
}

ExecutorHandle::~ExecutorHandle()
{
    try
    {
        if (mImpl && mImpl->executor.canEnqueueRequests())
        {
            mImpl->executor.shutdown();
        }
    }
    catch (...) // NOLINT(bugprone-empty-catch): a destructor has nobody to tell
    {
    }
}

bool ExecutorHandle::canEnqueueRequests() const
{
    return mImpl->executor.canEnqueueRequests();
}

std::size_t ExecutorHandle::drainIterations(rust::Slice<IterationRow> rows)
{
    auto& impl = *mImpl;
    auto const left = impl.handOverIterations(rows, 0);
    if (left == rows.size())
    {
        return left;
    }
    impl.nextIteration = 0;
    impl.iterations.clear();
    try
    {
        impl.iterations = impl.executor.getLatestIterationStats();
    }
    catch (...)
    {
        // Rows already written are not lost for a failure that the next call meets again.
        if (left > 0)
        {
            return left;
        }
        throw;
    }
    return impl.handOverIterations(rows, left);
}

std::size_t ExecutorHandle::drainRequests(rust::Slice<RequestRow> rows)
{
    auto& impl = *mImpl;
    auto const left = impl.handOverRequests(rows, 0);
    if (left == rows.size())
    {
        return left;
    }
    impl.nextRequests = 0;
    impl.nextRow = 0;
    impl.requests.clear();
    try
    {
        impl.requests = impl.executor.getLatestRequestStats();
    }
    catch (...)
    {
        if (left > 0)
        {
            return left;
        }
        throw;
    }
    return impl.handOverRequests(rows, left);
}

void ExecutorHandle::shutdown()
{
    mImpl->executor.shutdown();
}

Truth ExecutorHandle::truth() const
{
#if defined(TRTLLM_BRIDGE_SIMULATED)
    auto const truth = tensorrt_llm::sim::truth(mImpl->executor);
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
    throw std::runtime_error("a real engine does not tell what it did beside its statistics");
#endif
}

std::unique_ptr<ExecutorHandle> openExecutor(
    rust::Str engine, std::int32_t iterStatsMaxIterations, std::int32_t requestStatsMaxIterations)
{
    return std::make_unique<ExecutorHandle>(engine, iterStatsMaxIterations, requestStatsMaxIterations);
}

bool isSimulated()
{
#if defined(TRTLLM_BRIDGE_SIMULATED)
    return true;
#else
    return false;
#endif
}

} // namespace trtllm_bridge
