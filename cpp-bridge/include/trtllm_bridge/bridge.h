#pragma once

// The border to Rust. Names no tensorrt_llm type: those change between releases, this does not.

#include "rust/cxx.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace trtllm_bridge
{

struct IterationRow;
struct RequestRow;
struct Truth;

/// One hosted Executor and what was drained from it but not handed over yet.
/// Every call that can fail throws; cxx turns that into Err. None is noexcept.
class ExecutorHandle
{
public:
    ExecutorHandle(rust::Str engine, std::int32_t iterStatsMaxIterations, std::int32_t requestStatsMaxIterations);
    /// Shuts the Executor down; swallows what that throws.
    ~ExecutorHandle();
    ExecutorHandle(ExecutorHandle const&) = delete;
    ExecutorHandle& operator=(ExecutorHandle const&) = delete;

    [[nodiscard]] bool canEnqueueRequests() const;
    /// How many rows were written, oldest first. Records that did not fit are kept for the next call.
    [[nodiscard]] std::size_t drainIterations(rust::Slice<IterationRow> rows);
    [[nodiscard]] std::size_t drainRequests(rust::Slice<RequestRow> rows);
    void shutdown();
    /// Throws unless the Executor is simulated.
    [[nodiscard]] Truth truth() const;

private:
    struct Impl;
    std::unique_ptr<Impl> mImpl;
};

[[nodiscard]] std::unique_ptr<ExecutorHandle> openExecutor(
    rust::Str engine, std::int32_t iterStatsMaxIterations, std::int32_t requestStatsMaxIterations);

/// Of the linked TensorRT-LLM; empty where it does not say.
[[nodiscard]] rust::String libraryVersion();

[[nodiscard]] bool isSimulated();

} // namespace trtllm_bridge
