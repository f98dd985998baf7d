#pragma once

// The border to Rust. Names no tensorrt_llm type: those change between releases, this does not.

#include "rust/cxx.h"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>

namespace rust::behavior
{

/// cxx's own version lets through what is no std::exception, and that would end the process.
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
        fail("an exception that is no std::exception");
    }
}

} // namespace rust::behavior

namespace trtllm_bridge
{

struct HostConfig;
struct IterationRow;
struct KvEventRow;
struct LoadConfig;
struct LoadProgress;
struct PerfRow;
struct RequestRow;
struct Truth;
class HostedExecutor;

/// One hosted Executor and what was drained from it but not handed over yet.
/// Every call that can fail throws; cxx turns that into Err. None is noexcept.
class ExecutorHandle
{
public:
    explicit ExecutorHandle(std::unique_ptr<HostedExecutor> hosted);
    ~ExecutorHandle();
    ExecutorHandle(ExecutorHandle const&) = delete;
    ExecutorHandle& operator=(ExecutorHandle const&) = delete;

    [[nodiscard]] bool canEnqueueRequests() const;
    /// How many rows were written, oldest first. Records that did not fit are kept for the next call.
    [[nodiscard]] std::size_t drainIterations(rust::Slice<IterationRow> rows);
    [[nodiscard]] std::size_t drainRequests(rust::Slice<RequestRow> rows);
    [[nodiscard]] std::size_t drainKvEvents(rust::Slice<KvEventRow> rows);
    void shutdown();
    /// Throws unless the Executor is simulated.
    [[nodiscard]] Truth truth() const;

    void startLoad(LoadConfig const& config);
    void stopLoad();
    [[nodiscard]] LoadProgress loadProgress() const;
    [[nodiscard]] std::uint64_t enqueueSynthetic(std::int32_t promptTokens, std::int32_t outputTokens);
    [[nodiscard]] std::uint64_t enqueue(rust::Slice<std::int32_t const> prompt, std::int32_t outputTokens);
    [[nodiscard]] std::size_t drainPerfMetrics(rust::Slice<PerfRow> rows);

private:
    std::unique_ptr<HostedExecutor> mHosted;
};

/// Empty lists and an empty name stand for values not given.
[[nodiscard]] std::unique_ptr<ExecutorHandle> openExecutor(rust::Str engine, HostConfig const& config,
    rust::Slice<std::int32_t const> participantIds, rust::Slice<std::int32_t const> deviceIds,
    rust::Str workerExecutable);

/// Of the linked TensorRT-LLM; empty where it does not say.
[[nodiscard]] rust::String libraryVersion();

[[nodiscard]] bool isSimulated();

/// Ends the process without running exit handlers or the destructors of globals.
[[noreturn]] void exitNow(std::int32_t code);

} // namespace trtllm_bridge
