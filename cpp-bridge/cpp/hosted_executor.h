#pragma once

// An Executor that this process constructed, and the records drained from it that Rust has not read yet. The only
// Rust types that it knows are plain structs.

#include "host_config.h"
#include "load.h"

#include "tensorrt_llm/executor/executor.h"

#include <cstddef>
#include <deque>
#include <string>

namespace trtllm_bridge
{

class HostedExecutor
{
public:
    /// Loads the engine and blocks until it runs. Throws for options that this TensorRT-LLM release does not support.
    HostedExecutor(std::string const& engine, HostConfig const& config, Placement const& placement);
    /// Shuts the Executor down and ignores exceptions.
    ~HostedExecutor();
    HostedExecutor(HostedExecutor const&) = delete;
    HostedExecutor& operator=(HostedExecutor const&) = delete;

    [[nodiscard]] bool canEnqueueRequests() const;
    /// Writes up to `count` records and returns how many. Fewer than `count` means that the drain has ended: the next
    /// call begins another one. A drain returns only records that existed when it began.
    [[nodiscard]] std::size_t drainIterations(IterationStats* records, std::size_t count);
    /// Calls use() with the requests of the next iteration. Returns false at the end of the drain.
    template <class Use>
    [[nodiscard]] bool nextRequests(Use const& use)
    {
        if (!mRequestsLeft)
        {
            mRequests = mExecutor.getLatestRequestStats();
        }
        mRequestsLeft = !mRequests.empty();
        if (mRequestsLeft)
        {
            use(mRequests.front());
            mRequests.pop_front();
        }
        return mRequestsLeft;
    }
    /// Writes up to `count` rows and returns how many.
    [[nodiscard]] std::size_t drainKvEvents(KvEventRow* rows, std::size_t count);
    /// Stops the load, then shuts the Executor down.
    void shutdown();
    [[nodiscard]] Truth truth() const;

    [[nodiscard]] Load& load();
    [[nodiscard]] Load const& load() const;

private:
    tensorrt_llm::executor::Executor mExecutor;
    // Records that were taken from the Executor and not returned yet. mNextIteration is an index of mIterations.
    std::deque<tensorrt_llm::executor::IterationStats> mIterations;
    std::size_t mNextIteration{0};
    bool mIterationsLeft{false}; ///< a drain of iterations has not ended
    std::deque<tensorrt_llm::executor::RequestStatsPerIteration> mRequests;
    bool mRequestsLeft{false}; ///< a drain of requests has not ended
    std::deque<KvEventRow> mKvEvents;
    Load mLoad; ///< the last member, so that its thread ends before mExecutor is destroyed
};

} // namespace trtllm_bridge
