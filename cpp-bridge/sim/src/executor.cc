// The Executor: checks roles and shutdown, then calls the engine.

#include "engine.h"

#include "tensorrt_llm/common/assert.h"
#include "tensorrt_llm/executor/executor.h"
#include "tensorrt_llm/executor/version.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace tensorrt_llm::executor
{

#if TRTLLM_SIM_SINCE(0, 13)
char const* version() noexcept
{
    return kTensorRtLlmVersion;
}
#endif

class Executor::Impl
{
public:
    Impl(std::string const& enginePath, ExecutorConfig const& config)
        : mOpened(sim::openEngine(enginePath, config))
    {
        // A real engine also reads its weights in the constructor, after its options are checked.
        std::this_thread::sleep_for(std::chrono::duration<double>(mOpened.load_seconds));
        mEngine = std::make_unique<sim::Engine>(mOpened, config);
    }

    /// Returns the engine. Throws if this is a worker rank, or after a shutdown.
    [[nodiscard]] sim::Engine& engineFor(char const* method) const
    {
        throwIfAsked();
        TLLM_CHECK_WITH_INFO(!mShutdownCalled, "Shutdown called");
        if (mOpened.rank != 0)
        {
            TLLM_THROW(std::string("With LEADER communication mode, only leader rank is expected to call ") + method);
        }
        return *mEngine;
    }

    void shutdown()
    {
        throwIfAsked();
        TLLM_CHECK_WITH_INFO(!mShutdownCalled.exchange(true), "Shutdown called");
        mEngine->stop();
    }

    [[nodiscard]] bool canEnqueueRequests() const
    {
        throwIfAsked();
        return !mShutdownCalled && mOpened.rank == 0;
    }

    [[nodiscard]] sim::Engine const& engine() const
    {
        return *mEngine;
    }

private:
    void throwIfAsked() const
    {
        switch (mOpened.throws)
        {
        case 1: TLLM_THROW("sim: throws=standard");
        case 2: throw 42;
        default: break;
        }
    }

    trtllm_sim_opened const mOpened;
    std::atomic<bool> mShutdownCalled{false};
    std::unique_ptr<sim::Engine> mEngine;
};

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
    return mImpl->engineFor("awaitResponses").mailbox().take(std::nullopt, timeout);
}

std::vector<Response> Executor::awaitResponses(
    IdType const& requestId, std::optional<std::chrono::milliseconds> const& timeout)
{
    return mImpl->engineFor("awaitResponses").mailbox().take(requestId, timeout);
}

#else
std::vector<Response> Executor::awaitResponses(
    std::optional<IdType> const& requestId, std::optional<std::chrono::milliseconds> const& timeout)
{
    return mImpl->engineFor("awaitResponses").mailbox().take(requestId, timeout);
}
#endif

SizeType32 Executor::getNumResponsesReady() const
{
    return static_cast<SizeType32>(mImpl->engineFor("getNumResponsesReady").mailbox().ready());
}

void Executor::shutdown()
{
    mImpl->shutdown();
}

std::deque<IterationStats> Executor::getLatestIterationStats()
{
    return mImpl->engineFor("getLatestIterationStats").drainIterations();
}

std::deque<RequestStatsPerIteration> Executor::getLatestRequestStats()
{
    return mImpl->engineFor("getLatestRequestStats").drainRequests();
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

struct Access
{
    static Truth truth(executor::Executor const& executor)
    {
        return executor.mImpl->engine().truth();
    }
};

Truth truth(executor::Executor const& executor)
{
    return Access::truth(executor);
}

} // namespace tensorrt_llm::sim
