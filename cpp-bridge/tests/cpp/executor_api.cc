// The simulated Executor as a C++ host uses it.

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

tle::Request requestOf(int promptTokens, int outputTokens, bool streaming = false)
{
    tle::VecTokens tokens(static_cast<std::size_t>(promptTokens));
    std::iota(tokens.begin(), tokens.end(), 1);
    tle::Request request(tokens, outputTokens, streaming);
    tle::OutputConfig output;
    output.returnPerfMetrics = true;
    output.excludeInputFromOutput = true;
    request.setOutputConfig(output);
    return request;
}

tle::Executor silentEngine(tle::ExecutorConfig const& config = tle::ExecutorConfig(), char const* more = "")
{
    return tle::Executor(std::string("sim:?rate=0&speed=max") + more, tle::ModelType::kDECODER_ONLY, config);
}

void aRequestIsAnsweredWithItsTokensAndItsTimes()
{
    auto executor = silentEngine();
    auto const id = executor.enqueueRequest(requestOf(100, 7));
    auto const responses = executor.awaitResponses(id, kPatience);
    CHECK(responses.size() == 1);
    CHECK(responses[0].getRequestId() == id && !responses[0].hasError());
    auto const& result = responses[0].getResult();
    CHECK(result.isFinal && result.finishReasons.at(0) == tle::FinishReason::kLENGTH);
    CHECK(result.outputTokenIds.at(0).size() == 7);
    CHECK(result.decodingIter == 7);
    auto const& timing = result.requestPerfMetrics->timingMetrics;
    CHECK(timing.arrivalTime <= timing.firstScheduledTime && timing.firstScheduledTime < timing.firstTokenTime);
    CHECK(timing.firstTokenTime < timing.lastTokenTime);
    CHECK(result.requestPerfMetrics->kvCacheMetrics.numMissedBlocks == 4);
}

void aStreamHasOneResponsePerToken()
{
    auto executor = silentEngine();
    auto const id = executor.enqueueRequest(requestOf(10, 5, true));
    std::size_t tokens = 0;
    for (bool final = false; !final;)
    {
        for (auto const& response : executor.awaitResponses(id, kPatience))
        {
            tokens += response.getResult().outputTokenIds.at(0).size();
            final = response.getResult().isFinal;
        }
    }
    CHECK(tokens == 5);
    CHECK(executor.getNumResponsesReady() == 0);
}

void anEqualPromptFindsItsBlocks()
{
    auto executor = silentEngine();
    for (int reused : {0, 3})
    {
        auto const id = executor.enqueueRequest(requestOf(100, 2));
        auto const responses = executor.awaitResponses(id, kPatience);
        CHECK(responses.at(0).getResult().requestPerfMetrics->kvCacheMetrics.numReusedBlocks == reused);
    }
}

void aRequestThatCannotFitIsAnsweredWithAnError()
{
    auto executor = silentEngine(tle::ExecutorConfig(), "&kv_blocks=4");
    auto const id = executor.enqueueRequest(requestOf(100, 100));
    auto const responses = executor.awaitResponses(id, kPatience);
    CHECK(responses.at(0).hasError() && contains(responses[0].getErrorMsg(), "100 tokens"));
    CHECK(contains(thrownBy([&] { static_cast<void>(responses[0].getResult()); }), "carries an error"));
}

void aCancelledRequestEnds()
{
    tle::Executor executor("sim:?rate=0&iter_base_ms=5", tle::ModelType::kDECODER_ONLY, tle::ExecutorConfig());
    auto const id = executor.enqueueRequest(requestOf(100, 10000));
    executor.cancelRequest(id);
    auto const responses = executor.awaitResponses(id, kPatience);
    CHECK(responses.at(0).getResult().finishReasons.at(0) == tle::FinishReason::kCANCELLED);
}

void hostRequestsJoinTheLoadAndTheStatistics()
{
    auto executor = silentEngine();
    auto const ids = executor.enqueueRequests({requestOf(50, 3), requestOf(60, 3)});
    CHECK(executor.awaitResponses(ids, kPatience).size() == 2);
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
        started += record.numActiveRequests > 0 ? record.numNewActiveRequests : 0;
    }
    CHECK(started == 2);
}

void shutdownWakesTheHostAndRefusesCalls()
{
    auto executor = silentEngine();
    // Whichever comes first, the wait ends: by the wake-up or by the exception of a late call.
    std::thread waiting([&] { thrownBy([&] { CHECK(executor.awaitResponses().empty()); }); });
    executor.shutdown();
    waiting.join();
    CHECK(!executor.canEnqueueRequests() && executor.isParticipant());
    CHECK(contains(thrownBy([&] { executor.getLatestIterationStats(); }), "Assertion failed: Shutdown called ("));
    CHECK(contains(thrownBy([&] { static_cast<void>(executor.enqueueRequest(requestOf(1, 1))); }), "Shutdown called"));
}

void rolesDecideWhoMayAsk()
{
    tle::ParallelConfig parallel;
    parallel.setCommunicationMode(tle::CommunicationMode::kORCHESTRATOR);
    parallel.setOrchestratorConfig(tle::OrchestratorConfig(false));
    tle::ExecutorConfig config;
    config.setParallelConfig(parallel);
    auto worker = silentEngine(config);
    CHECK(!worker.canEnqueueRequests() && worker.isParticipant());
    CHECK(contains(thrownBy([&] { worker.getLatestIterationStats(); }),
        "With ORCHESTRATOR communication mode, only orchestrator rank is expected to call getLatestIterationStats"));
    parallel.setOrchestratorConfig(tle::OrchestratorConfig(true));
    config.setParallelConfig(parallel);
    auto orchestrator = silentEngine(config);
    CHECK(orchestrator.canEnqueueRequests() && !orchestrator.isParticipant());
    auto follower = silentEngine(tle::ExecutorConfig(), "&rank=1");
    CHECK(contains(thrownBy([&] { follower.getLatestRequestStats(); }),
        "With LEADER communication mode, only leader rank is expected to call getLatestRequestStats"));
}

void settersRefuseWhatTheEngineCannotDo()
{
    tle::ExecutorConfig config;
    CHECK(config.getIterStatsMaxIterations() == 1000 && config.getRequestStatsMaxIterations() == 0);
    CHECK(thrownBy([&] { config.setIterStatsMaxIterations(-1); }) != "");
    CHECK(thrownBy([&] { config.setRequestStatsMaxIterations(-1); }) != "");
    CHECK(thrownBy([&] { config.setMaxBatchSize(0); }) != "");
    try
    {
        config.setMaxNumTokens(0);
        CHECK(false);
    }
    catch (tensorrt_llm::common::TllmException const& error)
    {
        CHECK(contains(error.what(), "\n1       ") && !error.getTrace().empty());
    }
}

void aFullQueueRefusesRequests()
{
    tle::ExecutorConfig config;
    config.setMaxQueueSize(2);
    auto executor = silentEngine(config, "&iterations=0");
    static_cast<void>(executor.enqueueRequests({requestOf(1, 1), requestOf(1, 1)}));
    CHECK(contains(thrownBy([&] { static_cast<void>(executor.enqueueRequest(requestOf(1, 1))); }), "maximum of 2"));
}

void recordsBecomeJsonWithTheirMembersNames()
{
    tle::IterationStats stats{};
    stats.timestamp = "07-25-2025 16:54:34.140189";
    stats.iter = 60;
    stats.iterLatencyMS = 13.021209;
    stats.inflightBatchingStats = tle::InflightBatchingStats{1, 0, 1, 0, 0, 0, 1.0F};
    auto const json = tle::JsonSerialization::toJsonStr(stats);
    CHECK(contains(json, R"({"timestamp":"07-25-2025 16:54:34.140189","iter":60,"iterLatencyMS":13.021209,)"));
    CHECK(contains(json, R"("kvCacheStats":null,"staticBatchingStats":null,"inflightBatchingStats":{"numSch)"));
    CHECK(!contains(json, "cross"));
    tle::RequestStatsPerIteration rows{7, {tle::RequestStats{}, tle::RequestStats{}}};
    rows.requestStats[1].stage = tle::RequestStage::kGENERATION_COMPLETE;
    CHECK(contains(tle::JsonSerialization::toJsonStr(rows), R"(null,"allocTotalBlocksPerRequest":0)"));
    CHECK(contains(tle::JsonSerialization::toJsonStr(rows), R"(},{"id":0,"stage":"GENERATION_COMPLETE",)"));
}

} // namespace

int main()
{
    CHECK(initTrtLlmPlugins());
    aRequestIsAnsweredWithItsTokensAndItsTimes();
    aStreamHasOneResponsePerToken();
    anEqualPromptFindsItsBlocks();
    aRequestThatCannotFitIsAnsweredWithAnError();
    aCancelledRequestEnds();
    hostRequestsJoinTheLoadAndTheStatistics();
    shutdownWakesTheHostAndRefusesCalls();
    rolesDecideWhoMayAsk();
    settersRefuseWhatTheEngineCannotDo();
    aFullQueueRefusesRequests();
    recordsBecomeJsonWithTheirMembersNames();
}
