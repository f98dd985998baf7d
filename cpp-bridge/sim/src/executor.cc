// The methods of the Executor.

#include "engine.h"

#include "tensorrt_llm/executor/version.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace tensorrt_llm::executor
{

#if TRTLLM_SIM_SINCE(0, 13)
char const* version() noexcept
{
    return kTensorRtLlmVersion;
}
#endif

Executor::Executor(
    std::filesystem::path const& modelPath, ModelType /*modelType*/, ExecutorConfig const& executorConfig)
    : mImpl(std::make_unique<Impl>(modelPath.string(), executorConfig))
{
}

Executor::~Executor() = default;
#if TRTLLM_SIM_SINCE(1, 1)
Executor::Executor(Executor&&) noexcept = default;
Executor& Executor::operator=(Executor&&) noexcept = default;
#endif

IdType Executor::enqueueRequest(Request const& request)
{
    return mImpl->engineFor("enqueueRequest").enqueue(request);
}

std::vector<IdType> Executor::enqueueRequests(std::vector<Request> const& requests)
{
    auto& engine = mImpl->engineFor("enqueueRequests");
    std::vector<IdType> ids;
    ids.reserve(requests.size());
    for (auto const& request : requests)
    {
        ids.push_back(engine.enqueue(request));
    }
    return ids;
}

#if TRTLLM_SIM_SINCE(0, 11)
std::vector<Response> Executor::awaitResponses(std::optional<std::chrono::milliseconds> const& timeout)
{
    return mImpl->engineFor("awaitResponses").mailbox.take(std::nullopt, timeout);
}

std::vector<Response> Executor::awaitResponses(
    IdType const& requestId, std::optional<std::chrono::milliseconds> const& timeout)
{
    return mImpl->engineFor("awaitResponses").mailbox.take(requestId, timeout);
}

#else
std::vector<Response> Executor::awaitResponses(
    std::optional<IdType> const& requestId, std::optional<std::chrono::milliseconds> const& timeout)
{
    return mImpl->engineFor("awaitResponses").mailbox.take(requestId, timeout);
}
#endif

SizeType32 Executor::getNumResponsesReady() const
{
    return static_cast<SizeType32>(mImpl->engineFor("getNumResponsesReady").mailbox.ready());
}

void Executor::shutdown()
{
    mImpl->shutdown();
}

std::deque<IterationStats> Executor::getLatestIterationStats()
{
    return mImpl->engineFor("getLatestIterationStats").iterations.drain();
}

std::deque<RequestStatsPerIteration> Executor::getLatestRequestStats()
{
    return mImpl->engineFor("getLatestRequestStats").requests.drain();
}

bool Executor::canEnqueueRequests() const
{
    return mImpl->canEnqueueRequests();
}

SizeType32 ExecutorConfig::getIterStatsMaxIterations() const
{
    return mIterStatsMaxIterations;
}

SizeType32 ExecutorConfig::getRequestStatsMaxIterations() const
{
    return mRequestStatsMaxIterations;
}

} // namespace tensorrt_llm::executor

namespace tensorrt_llm::sim
{

Truth truth(executor::Executor const& executor)
{
    return executor.mImpl->truth();
}

} // namespace tensorrt_llm::sim
