#pragma once

// An Executor that this process constructed, and the records drained from it that Rust has not read yet. Knows the row
// structs of Rust, but no other Rust type.

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
    /// Writes up to `count` rows and returns how many. If it returns `count`, the next call continues the drain. A
    /// smaller number ends the drain. One drain returns only records that existed when it began.
    [[nodiscard]] std::size_t drainIterations(IterationRow* rows, std::size_t count);
    [[nodiscard]] std::size_t drainRequests(RequestRow* rows, std::size_t count);
    [[nodiscard]] std::size_t drainKvEvents(KvEventRow* rows, std::size_t count);
    /// Stops the load, then shuts the Executor down.
    void shutdown();
    [[nodiscard]] Truth truth() const;

    [[nodiscard]] Load& load();
    [[nodiscard]] Load const& load() const;

private:
    [[nodiscard]] std::size_t writeIterations(IterationRow* rows, std::size_t count);
    [[nodiscard]] std::size_t writeRequests(RequestRow* rows, std::size_t count);

    tensorrt_llm::executor::Executor mExecutor;
    // Drained records that are not written to Rust yet. mNextIteration is an index of mIterations, mNextRow an index
    // into the rows of the first record of mRequests.
    std::deque<tensorrt_llm::executor::IterationStats> mIterations;
    std::size_t mNextIteration{0};
    bool mIterationsLeft{false}; ///< a drain of iterations is not finished
    std::deque<tensorrt_llm::executor::RequestStatsPerIteration> mRequests;
    std::size_t mNextRow{0};
    bool mRequestsLeft{false}; ///< a drain of requests is not finished
    std::deque<KvEventRow> mKvEvents;
    Load mLoad; ///< the last member, so that its thread ends before mExecutor is destroyed
};

} // namespace trtllm_bridge
