// Converts cxx types to plain C++ types and calls HostedExecutor.

#include "trtllm_bridge/bridge.h"

#include "hosted_executor.h"

#include <string>
#include <utility>
#include <vector>

namespace trtllm_bridge
{
namespace
{

rust::Slice<std::uint8_t const> bytes(Rows const& rows)
{
    return {rows.bytes().data(), rows.bytes().size()};
}

} // namespace

ExecutorHandle::ExecutorHandle(std::unique_ptr<HostedExecutor> hosted)
    : mHosted(std::move(hosted))
{
}

ExecutorHandle::~ExecutorHandle() = default;

bool ExecutorHandle::canEnqueueRequests() const
{
    return mHosted->canEnqueueRequests();
}

rust::Slice<std::uint8_t const> ExecutorHandle::drainIterations()
{
    return bytes(mHosted->drainIterations());
}

rust::Slice<std::uint8_t const> ExecutorHandle::drainRequests()
{
    return bytes(mHosted->drainRequests());
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

rust::Slice<std::uint8_t const> ExecutorHandle::drainPerfMetrics()
{
    return bytes(mHosted->drainPerfMetrics());
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
