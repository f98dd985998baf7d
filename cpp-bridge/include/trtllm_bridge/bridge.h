#pragma once

// The C++ interface that Rust calls through cxx: an Executor that this process constructed.

#include "rust/cxx.h"

#include "tensorrt_llm/executor/executor.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>

namespace rust::behavior
{

/// Replaces cxx's own version, which catches only std::exception. Any other exception would end the process.
template <typename Try, typename Fail>
void trycatch(Try&& call, Fail&& fail) noexcept
{
    try
    {
        call();
    }
    catch (std::exception const& error)
    {
        fail(error.what());
    }
    catch (...)
    {
        fail("an exception that is not a std::exception");
    }
}

} // namespace rust::behavior

namespace trtllm_bridge
{

struct FinishedRequest;
struct IterationStats;
struct LoadConfig;
struct RequestStatsPerIteration;
struct RingSizes;
struct Truth;
class Load;

/// One Executor, and the records drained from it that Rust has not read yet.
/// Every call that can fail throws. cxx turns the exception into an Err, so no function here may be noexcept.
class HostedExecutor
{
public:
    /// Loads the engine and blocks until it runs.
    HostedExecutor(std::string const& engine, RingSizes rings);
    /// Shuts the Executor down and ignores exceptions.
    ~HostedExecutor();
    HostedExecutor(HostedExecutor const&) = delete;
    HostedExecutor& operator=(HostedExecutor const&) = delete;

    [[nodiscard]] bool canEnqueueRequests() const;
    /// Writes up to `count` records, oldest first, and returns how many. Fewer than `count` means that the drain has
    /// ended, and the next call begins another drain. A drain returns only records that existed when it began.
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
    /// Starts sending synthetic requests. Throws if there is a load already, or if the Executor accepts no requests.
    void startLoad(LoadConfig const& config);
    /// Writes up to `count` ended requests of the load, in the order in which they ended, and returns how many.
    [[nodiscard]] std::size_t drainFinished(FinishedRequest* requests, std::size_t count);
    /// Stops the load, then shuts the Executor down.
    void shutdown();
    /// Throws unless the Executor is simulated.
    [[nodiscard]] Truth truth() const;

private:
    tensorrt_llm::executor::Executor mExecutor;
    // Records that were taken from the Executor and not returned yet. mNextIteration is an index of mIterations.
    std::deque<tensorrt_llm::executor::IterationStats> mIterations;
    std::size_t mNextIteration{0};
    bool mIterationsLeft{false}; ///< a drain of iterations has not ended
    std::deque<tensorrt_llm::executor::RequestStatsPerIteration> mRequests;
    bool mRequestsLeft{false}; ///< a drain of requests has not ended
    std::unique_ptr<Load> mLoad; ///< the last member, so that its thread ends before mExecutor is destroyed
};

// Functions for Rust. Their parameters have types of cxx, unlike those of the methods above.
[[nodiscard]] std::unique_ptr<HostedExecutor> openExecutor(rust::Str engine, RingSizes rings);
[[nodiscard]] std::size_t drainIterations(HostedExecutor& executor, rust::Slice<IterationStats> records);
[[nodiscard]] bool nextRequests(HostedExecutor& executor, RequestStatsPerIteration& record);
[[nodiscard]] std::size_t drainFinished(HostedExecutor& executor, rust::Slice<FinishedRequest> requests);

/// The version of the linked TensorRT-LLM. Empty for releases that do not report one.
[[nodiscard]] rust::String libraryVersion();

/// True if this build links the simulated TensorRT-LLM.
[[nodiscard]] bool isSimulated();

/// Ends the process without running exit handlers or the destructors of globals.
[[noreturn]] void exitNow(std::int32_t code);

} // namespace trtllm_bridge
