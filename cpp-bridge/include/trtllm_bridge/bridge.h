#pragma once

// The C++ interface that Rust calls through cxx. It names no tensorrt_llm type, because those change between releases.

#include "rust/cxx.h"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>

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
struct HostConfig;
struct IterationStats;
struct KvEventRow;
struct LoadConfig;
struct LoadProgress;
struct RequestStatsPerIteration;
struct Truth;
class HostedExecutor;

/// One Executor, and the records drained from it that Rust has not read yet.
/// Every call that can fail throws. cxx turns the exception into an Err, so no function here may be noexcept.
class ExecutorHandle
{
public:
    explicit ExecutorHandle(std::unique_ptr<HostedExecutor> hosted);
    ~ExecutorHandle();
    ExecutorHandle(ExecutorHandle const&) = delete;
    ExecutorHandle& operator=(ExecutorHandle const&) = delete;

    [[nodiscard]] bool canEnqueueRequests() const;
    /// Writes records, oldest first, and returns how many. Fewer than the slice can hold means that the drain has ended.
    [[nodiscard]] std::size_t drainIterations(rust::Slice<IterationStats> records);
    /// Writes the requests of the next iteration. Returns false at the end of the drain.
    [[nodiscard]] bool nextRequests(RequestStatsPerIteration& record);
    /// Writes rows, oldest first, and returns how many. The next call writes the events that did not fit.
    [[nodiscard]] std::size_t drainKvEvents(rust::Slice<KvEventRow> rows);
    void shutdown();
    /// Throws unless the Executor is simulated.
    [[nodiscard]] Truth truth() const;

    void startLoad(LoadConfig const& config);
    void stopLoad();
    [[nodiscard]] LoadProgress loadProgress() const;
    [[nodiscard]] std::uint64_t enqueueSynthetic(std::int32_t promptTokens, std::int32_t outputTokens);
    [[nodiscard]] std::uint64_t enqueue(rust::Slice<std::int32_t const> prompt, std::int32_t outputTokens);
    /// Like drainKvEvents().
    [[nodiscard]] std::size_t drainFinished(rust::Slice<FinishedRequest> requests);

private:
    std::unique_ptr<HostedExecutor> mHosted;
};

/// Loads an engine and blocks until it runs. An empty list or `workerExecutable` means that the option is not set.
[[nodiscard]] std::unique_ptr<ExecutorHandle> openExecutor(rust::Str engine, HostConfig const& config,
    rust::Slice<std::int32_t const> participantIds, rust::Slice<std::int32_t const> deviceIds,
    rust::Str workerExecutable);

/// The version of the linked TensorRT-LLM. Empty for releases that do not report one.
[[nodiscard]] rust::String libraryVersion();

/// True if this build links the simulated TensorRT-LLM.
[[nodiscard]] bool isSimulated();

/// Ends the process without running exit handlers or the destructors of globals.
[[noreturn]] void exitNow(std::int32_t code);

} // namespace trtllm_bridge
