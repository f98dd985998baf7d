// Converts cxx types to plain C++ types and calls HostedExecutor.

#include "trtllm_bridge/bridge.h"

#include "hosted_executor.h"
#include "records.h"

#include <string>
#include <utility>
#include <vector>

namespace trtllm_bridge
{
ExecutorHandle::ExecutorHandle(std::unique_ptr<HostedExecutor> hosted)
    : mHosted(std::move(hosted))
{
}

ExecutorHandle::~ExecutorHandle() = default;

bool ExecutorHandle::canEnqueueRequests() const
{
    return mHosted->canEnqueueRequests();
}

std::size_t ExecutorHandle::drainIterations(rust::Slice<IterationStats> records)
{
    return mHosted->drainIterations(records.data(), records.size());
}

bool ExecutorHandle::nextRequests(RequestStatsPerIteration& record)
{
    return mHosted->nextRequests(
        [&record](auto const& from)
        {
            record.iter = from.iter;
            record.request_stats.clear();
            record.request_stats.reserve(from.requestStats.size());
            for (auto const& request : from.requestStats)
            {
                RequestStats row;
                fill(row, request);
                record.request_stats.push_back(row);
            }
        });
}

void ExecutorHandle::shutdown()
{
    mHosted->shutdown();
}

Truth ExecutorHandle::truth() const
{
    return mHosted->truth();
}

void ExecutorHandle::startLoad(LoadConfig const& config)
{
    mHosted->load().start(config);
}

void ExecutorHandle::stopLoad()
{
    mHosted->load().stop();
}

LoadProgress ExecutorHandle::loadProgress() const
{
    auto const counts = mHosted->load().counts();
    LoadProgress progress;
    progress.enqueued = counts.enqueued;
    progress.finished = counts.finished;
    progress.failed = counts.failed;
    progress.refused = counts.refused;
    progress.rows_lost = counts.rowsLost;
    progress.running = counts.running;
    progress.last_error = rust::String::lossy(counts.lastError);
    return progress;
}

std::uint64_t ExecutorHandle::enqueueSynthetic(std::int32_t promptTokens, std::int32_t outputTokens)
{
    return mHosted->load().enqueue(promptTokens, outputTokens);
}

std::uint64_t ExecutorHandle::enqueue(rust::Slice<std::int32_t const> prompt, std::int32_t outputTokens)
{
    return mHosted->load().enqueue(prompt.data(), prompt.size(), outputTokens);
}

std::size_t ExecutorHandle::drainKvEvents(rust::Slice<KvEventRow> rows)
{
    return mHosted->drainKvEvents(rows.data(), rows.size());
}

std::size_t ExecutorHandle::drainFinished(rust::Slice<FinishedRequest> requests)
{
    return mHosted->load().drain(requests.data(), requests.size());
}

std::unique_ptr<ExecutorHandle> openExecutor(rust::Str engine, HostConfig const& config,
    rust::Slice<std::int32_t const> participantIds, rust::Slice<std::int32_t const> deviceIds,
    rust::Str workerExecutable)
{
    Placement placement;
    placement.participantIds.assign(participantIds.begin(), participantIds.end());
    placement.deviceIds.assign(deviceIds.begin(), deviceIds.end());
    placement.workerExecutable = std::string(workerExecutable);
    return std::make_unique<ExecutorHandle>(std::make_unique<HostedExecutor>(std::string(engine), config, placement));
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
