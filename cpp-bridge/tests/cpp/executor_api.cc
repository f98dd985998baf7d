// Tests the simulated Executor as a C++ host uses it.

#include "check.h"

#include "tensorrt_llm/common/tllmException.h"
#include "tensorrt_llm/executor/executor.h"
#include "tensorrt_llm/plugins/api/tllmPlugin.h"
#include "tensorrt_llm/sim/truth.h"

#include <chrono>
#include <numeric>
#include <thread>

namespace tle = tensorrt_llm::executor;
using namespace std::chrono_literals;

namespace
{

constexpr auto kPatience = std::optional(60000ms);

tle::Request requestOf(int promptTokens, int outputTokens)
{
    tle::VecTokens tokens(static_cast<std::size_t>(promptTokens));
    std::iota(tokens.begin(), tokens.end(), 1);
    tle::Request request(tokens, outputTokens);
    tle::OutputConfig output;
#if TRTLLM_SIM_RELEASE >= 100
    output.returnPerfMetrics = true;
#endif
    output.excludeInputFromOutput = true;
    request.setOutputConfig(output);
    return request;
}

tle::Executor silentEngine(tle::ExecutorConfig const& config = tle::ExecutorConfig(), char const* more = "")
{
    return tle::Executor(std::string("sim:?rate=0&speed=max") + more, tle::ModelType::kDECODER_ONLY, config);
}

void responseHasTokensAndTimes()
{
    auto executor = silentEngine();
    auto const id = executor.enqueueRequest(requestOf(100, 7));
    auto const responses = executor.awaitResponses(id, kPatience);
    CHECK(responses.size() == 1);
    CHECK(responses[0].getRequestId() == id && !responses[0].hasError());
    auto const& result = responses[0].getResult();
    CHECK(result.isFinal && result.outputTokenIds.at(0).size() == 7);
    CHECK(executor.getNumResponsesReady() == 0);
#if TRTLLM_SIM_RELEASE >= 13
    CHECK(result.finishReasons.at(0) == tle::FinishReason::kLENGTH);
#endif
#if TRTLLM_SIM_RELEASE >= 100
    auto const& timing = result.requestPerfMetrics->timingMetrics;
    CHECK(timing.arrivalTime <= timing.firstScheduledTime && timing.firstScheduledTime < timing.firstTokenTime);
    CHECK(timing.firstTokenTime < timing.lastTokenTime);
    CHECK(result.requestPerfMetrics->kvCacheMetrics.numMissedBlocks == 4);
#endif
}

#if TRTLLM_SIM_RELEASE >= 100
void equalPromptReusesBlocks()
{
    auto executor = silentEngine();
    for (int reused : {0, 3})
    {
        auto const id = executor.enqueueRequest(requestOf(100, 2));
        auto const responses = executor.awaitResponses(id, kPatience);
        CHECK(responses.at(0).getResult().requestPerfMetrics->kvCacheMetrics.numReusedBlocks == reused);
    }
}
#endif

void requestThatDoesNotFitGetsAnError()
{
    auto executor = silentEngine(tle::ExecutorConfig(), "&kv_blocks=4");
    auto const id = executor.enqueueRequest(requestOf(100, 100));
    auto const responses = executor.awaitResponses(id, kPatience);
    CHECK(responses.at(0).hasError() && contains(responses[0].getErrorMsg(), "100 tokens"));
    CHECK(contains(thrownBy([&] { static_cast<void>(responses[0].getResult()); }), "has an error"));
}

#if TRTLLM_SIM_RELEASE >= 100
/// A fifth of the requests of this scenario fail.
void requestThatFailsGetsAnError()
{
    tle::Executor executor("sim:?scenario=errors-cpp&speed=max", tle::ModelType::kDECODER_ONLY, tle::ExecutorConfig());
    for (bool failed = false; !failed;)
    {
        auto const id = executor.enqueueRequest(requestOf(100, 2));
        auto const responses = executor.awaitResponses(id, kPatience);
        CHECK(responses.size() == 1);
        failed = responses[0].hasError();
        CHECK(failed || responses[0].getResult().finishReasons.at(0) == tle::FinishReason::kLENGTH);
    }
}
#endif

void hostRequestsAreInTheStatistics()
{
    auto executor = silentEngine();
    auto const ids = executor.enqueueRequests({requestOf(50, 3), requestOf(60, 3)});
    for (auto const id : ids)
    {
        CHECK(executor.awaitResponses(id, kPatience).size() == 1);
    }
    tensorrt_llm::sim::Truth truth{};
    auto const deadline = std::chrono::steady_clock::now() + 60s;
    do
    {
        CHECK(std::chrono::steady_clock::now() < deadline);
        std::this_thread::yield();
        truth = tensorrt_llm::sim::truth(executor);
    } while (truth.requestsCompleted < 2);
    int started = 0;
    for (auto const& record : executor.getLatestIterationStats())
    {
        // The prompts are short, so each is computed in one iteration.
        started += record.inflightBatchingStats->numContextRequests;
    }
    CHECK(started == 2);
}

void shutdownWakesTheHostAndRejectsCalls()
{
    auto executor = silentEngine();
    // The wait must end: the shutdown wakes a waiting thread, and a call after the shutdown throws.
    std::thread waiting([&] { thrownBy([&] { CHECK(executor.awaitResponses().empty()); }); });
    executor.shutdown();
    waiting.join();
    CHECK(!executor.canEnqueueRequests());
    CHECK(contains(thrownBy([&] { executor.getLatestIterationStats(); }), "Assertion failed: Shutdown called ("));
    CHECK(contains(thrownBy([&] { static_cast<void>(executor.enqueueRequest(requestOf(1, 1))); }), "Shutdown called"));
}

void onlyTheLeaderHasStatistics()
{
    auto follower = silentEngine(tle::ExecutorConfig(), "&rank=1");
    CHECK(contains(thrownBy([&] { follower.getLatestRequestStats(); }),
        "With LEADER communication mode, only leader rank is expected to call getLatestRequestStats"));
    CHECK(!follower.canEnqueueRequests());
}

void settersRejectInvalidValues()
{
    tle::ExecutorConfig config;
    CHECK(config.getIterStatsMaxIterations() == 1000 && config.getRequestStatsMaxIterations() == 0);
    CHECK(thrownBy([&] { config.setRequestStatsMaxIterations(-1); }) != "");
    try
    {
        config.setIterStatsMaxIterations(-1);
        CHECK(false);
    }
    catch (tensorrt_llm::common::TllmException const& error)
    {
        CHECK(contains(error.what(), "\n1       "));
    }
}

} // namespace

int main()
{
    CHECK(initTrtLlmPlugins());
    responseHasTokensAndTimes();
#if TRTLLM_SIM_RELEASE >= 100
    equalPromptReusesBlocks();
    requestThatFailsGetsAnError();
#endif
    requestThatDoesNotFitGetsAnError();
    hostRequestsAreInTheStatistics();
    shutdownWakesTheHostAndRejectsCalls();
    onlyTheLeaderHasStatistics();
    settersRejectInvalidValues();
}
