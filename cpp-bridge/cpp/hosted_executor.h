#pragma once

// An Executor that this process constructed, and what was drained from it but not handed over yet. Knows Rust's row
// structs but none of its other types.

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
    /// Loads the engine and blocks until it runs. Throws for options that this release of TensorRT-LLM lacks.
    HostedExecutor(std::string const& engine, HostConfig const& config, Placement const& placement);
    /// Shuts the Executor down; swallows what that throws.
    ~HostedExecutor();
    HostedExecutor(HostedExecutor const&) = delete;
    HostedExecutor& operator=(HostedExecutor const&) = delete;

    [[nodiscard]] bool canEnqueueRequests() const;
    /// How many rows were written. As many as there was room for: more may be left, and the next call goes on with
    /// them; fewer: a drain ends here, with what the Executor had when it began.
    [[nodiscard]] std::size_t drainIterations(IterationRow* rows, std::size_t count);
    [[nodiscard]] std::size_t drainRequests(RequestRow* rows, std::size_t count);
    [[nodiscard]] std::size_t drainKvEvents(KvEventRow* rows, std::size_t count);
    /// Ends the load, then the Executor.
    void shutdown();
    [[nodiscard]] Truth truth() const;

    [[nodiscard]] Load& load();
    [[nodiscard]] Load const& load() const;

private:
    [[nodiscard]] std::size_t handOverIterations(IterationRow* rows, std::size_t count);
    [[nodiscard]] std::size_t handOverRequests(RequestRow* rows, std::size_t count);

    tensorrt_llm::executor::Executor mExecutor;
    // Everything from the given index, or the first record's given row, on was drained and not handed over; `…Left`
    // while a drain goes on.
    std::deque<tensorrt_llm::executor::IterationStats> mIterations;
    std::size_t mNextIteration{0};
    bool mIterationsLeft{false};
    std::deque<tensorrt_llm::executor::RequestStatsPerIteration> mRequests;
    std::size_t mNextRow{0};
    bool mRequestsLeft{false};
    std::deque<KvEventRow> mKvEvents;
    Load mLoad; ///< last: its thread calls the Executor
};

} // namespace trtllm_bridge
