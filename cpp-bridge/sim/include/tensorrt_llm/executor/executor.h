#pragma once

// Simulated SDK: the part of the Executor API that hosts and statistics readers use, for one release (sim/release.h).
// Instead of an engine directory it takes options for the load and the machine: "sim:?rate=20&seed=1"
// (crates/sim/src/options.rs).

#include "tensorrt_llm/common/assert.h"
#include "tensorrt_llm/executor/types.h"

#include <chrono>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tensorrt_llm::executor
{
class Executor;
} // namespace tensorrt_llm::executor

namespace tensorrt_llm::sim
{
struct Truth;
[[nodiscard]] Truth truth(executor::Executor const& executor);
} // namespace tensorrt_llm::sim

namespace tensorrt_llm::executor
{

#if TRTLLM_SIM_SINCE(0, 13)
[[nodiscard]] char const* version() noexcept;
#endif

class OutputConfig
{
public:
    bool excludeInputFromOutput{false};
#if TRTLLM_SIM_SINCE(1, 0)
    bool returnPerfMetrics{false};
#endif
};

class Request
{
public:
    Request(VecTokens inputTokenIds, SizeType32 maxTokens)
        : mInputTokenIds(std::move(inputTokenIds))
        , mMaxTokens(maxTokens)
    {
        TLLM_CHECK(!mInputTokenIds.empty());
        TLLM_CHECK(mMaxTokens > 0);
    }

    [[nodiscard]] VecTokens getInputTokenIds() const
    {
        return mInputTokenIds;
    }

    [[nodiscard]] SizeType32 getMaxTokens() const
    {
        return mMaxTokens;
    }

    [[nodiscard]] OutputConfig getOutputConfig() const
    {
        return mOutputConfig;
    }

    void setOutputConfig(OutputConfig const& outputConfig)
    {
        mOutputConfig = outputConfig;
    }

private:
    VecTokens mInputTokenIds;
    SizeType32 mMaxTokens;
    OutputConfig mOutputConfig;
};

struct Result
{
    bool isFinal;
    BeamTokens outputTokenIds;
#if TRTLLM_SIM_SINCE(0, 13)
    std::vector<FinishReason> finishReasons;
#endif
#if TRTLLM_SIM_SINCE(1, 0)
    std::optional<RequestPerfMetrics> requestPerfMetrics;
#endif
};

class Response
{
public:
    Response(IdType requestId, std::string errorMsg)
        : mRequestId(requestId)
        , mErrorMsg(std::move(errorMsg))
    {
    }

    Response(IdType requestId, Result result)
        : mRequestId(requestId)
        , mResult(std::move(result))
    {
    }

    [[nodiscard]] IdType getRequestId() const
    {
        return mRequestId;
    }

    [[nodiscard]] bool hasError() const
    {
        return !mResult.has_value();
    }

    [[nodiscard]] std::string const& getErrorMsg() const
    {
        TLLM_CHECK_WITH_INFO(hasError(), "the response has no error");
        return mErrorMsg;
    }

    [[nodiscard]] Result const& getResult() const
    {
        TLLM_CHECK_WITH_INFO(!hasError(), "the response has an error: " + mErrorMsg);
        return *mResult;
    }

private:
    IdType mRequestId;
    std::string mErrorMsg;
    std::optional<Result> mResult;
};

class ExecutorConfig
{
public:
    // The preload library finds these two functions by their symbol names.
    [[nodiscard]] SizeType32 getIterStatsMaxIterations() const;
    [[nodiscard]] SizeType32 getRequestStatsMaxIterations() const;

    void setIterStatsMaxIterations(SizeType32 iterStatsMaxIterations)
    {
        TLLM_CHECK(iterStatsMaxIterations >= 0);
        mIterStatsMaxIterations = iterStatsMaxIterations;
    }

    void setRequestStatsMaxIterations(SizeType32 requestStatsMaxIterations)
    {
        TLLM_CHECK(requestStatsMaxIterations >= 0);
        mRequestStatsMaxIterations = requestStatsMaxIterations;
    }

private:
    SizeType32 mIterStatsMaxIterations{1000};
    SizeType32 mRequestStatsMaxIterations{0};
};

/// One model instance. It accepts requests, batches them in flight and writes statistics into bounded rings. Any thread
/// may call any method. After shutdown() all methods throw, except canEnqueueRequests().
class Executor
{
public:
    Executor(std::filesystem::path const& modelPath, ModelType modelType, ExecutorConfig const& executorConfig);
    ~Executor();
#if TRTLLM_SIM_SINCE(1, 1)
    Executor(Executor const&) = delete;
    Executor& operator=(Executor const&) = delete;
    Executor(Executor&&) noexcept;
    Executor& operator=(Executor&&) noexcept;
#endif

    [[nodiscard]] IdType enqueueRequest(Request const& request);
    [[nodiscard]] std::vector<IdType> enqueueRequests(std::vector<Request> const& requests);

#if TRTLLM_SIM_SINCE(0, 11)
    [[nodiscard]] std::vector<Response> awaitResponses(
        std::optional<std::chrono::milliseconds> const& timeout = std::nullopt);
    [[nodiscard]] std::vector<Response> awaitResponses(
        IdType const& requestId, std::optional<std::chrono::milliseconds> const& timeout = std::nullopt);
#else
    [[nodiscard]] std::vector<Response> awaitResponses(std::optional<IdType> const& requestId = std::nullopt,
        std::optional<std::chrono::milliseconds> const& timeout = std::nullopt);
#endif
    [[nodiscard]] SizeType32 getNumResponsesReady() const;

    void shutdown();

    /// Returns the records since the last call, oldest first, and empties the ring.
    std::deque<IterationStats> getLatestIterationStats();
    std::deque<RequestStatsPerIteration> getLatestRequestStats();

    [[nodiscard]] bool canEnqueueRequests() const;

private:
    class Impl;
    friend sim::Truth sim::truth(Executor const& executor);
    std::unique_ptr<Impl> mImpl;
};

} // namespace tensorrt_llm::executor
