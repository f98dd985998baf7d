// Tests the lines that a Publisher sends.

#include "publishing.h"

#include <filesystem>
#include <limits>
#include <map>

namespace
{

void recordHasTheJsonOfTensorRtLlm()
{
    Listener listener(kPath);
    {
        Publisher publisher(kPath, "a \"model\"", "7", CapturedLog().patient());
        CHECK(publisher.publish(recordOf(41)));
    }
    CHECK(until([&] { return listener.ended == 1; }));
    auto const text = listener.text();
    CHECK(text.find("{\"hello\":{\"model\":\"a \\\"model\\\"\",\"version\":\"7\",\"pid\":") == 0);
    CHECK(contains(text, "\n{\"timestamp\":\"07-25-2025 16:54:34.140189\",\"iter\":41,\"iterLatencyMS\":12.625,"));
    CHECK(contains(text, ",\"kvCacheStats\":{\"maxNumBlocks\":512,"));
    CHECK(contains(text, "\"inflightBatchingStats\":{\"numScheduledRequests\":-1,"));
    // Absent optionals, and numbers such as NaN that JSON cannot represent, are left out.
    CHECK(!contains(text, "staticBatchingStats") && !contains(text, "cacheHitRate") && !contains(text, "null"));
    CHECK(text.back() == '\n' && count(text, "\n") == 2);
}

void requestRowsOfAnIterationAreOneLine()
{
    Listener listener(kPath);
    tle::RequestStatsPerIteration record{};
    record.iter = 9;
    record.requestStats.resize(20000);
    record.requestStats[0].stage = tle::RequestStage::kENCODER_IN_PROGRESS;
    record.requestStats[1].stage = tle::RequestStage::kGENERATION_IN_PROGRESS;
    record.requestStats[1].disServingStats = tle::DisServingRequestStats{1.5, 77};
    record.requestStats.back().stage = tle::RequestStage::kGENERATION_COMPLETE;
    auto overflowing = record;
    overflowing.iter = 10;
    overflowing.requestStats.resize(60000);
    overflowing.requestStats.back().stage = tle::RequestStage::kGENERATION_COMPLETE;
    {
        Publisher publisher(kPath, "m", "1", CapturedLog().patient());
        CHECK(publisher.publish(record));
        CHECK(publisher.publish(tle::RequestStatsPerIteration{}));
        CHECK(publisher.publish(overflowing));
        CHECK(publisher.flush(60s));
    }
    CHECK(until([&] { return listener.ended == 1; }));
    auto const text = listener.text();
    auto const first = text.substr(0, text.find("{\"iter\":10,"));
    CHECK(count(first, "\n") == 2 && count(first, "\"stage\":") == 20000);
    CHECK(contains(first, "},{\"id\":0,\"stage\":\"QUEUED\"},{"));
    CHECK(contains(first, "ENCODER_IN_PROGRESS") && contains(first, "GENERATION_COMPLETE"));
    CHECK(contains(first, "\"disServingStats\":{\"kvCacheTransferMS\":1.5,\"kvCacheSize\":77}"));
    // The exporter rejects lines above 1 MiB. The ends of requests must still be sent.
    std::size_t longest = 0;
    for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    {
        longest = std::max(longest, end - at);
    }
    CHECK(longest < (1 << 20) && count(text, "GENERATION_COMPLETE") == 3);
}

void everyFinishedResponseIsSent()
{
    Listener listener(kPath);
    tle::Result result{};
    tle::RequestPerfMetrics metrics{};
    metrics.timingMetrics.arrivalTime = tle::RequestPerfMetrics::TimePoint(1234567890123456789ns);
    metrics.firstIter = 5;
    {
        Publisher publisher(kPath, "m", "1", CapturedLog().patient());
        publisher.publish(tle::Response(1, std::string("it failed")));
        publisher.publish(tle::Response(2, result));
        result.isFinal = true;
        publisher.publish(tle::Response(3, result)); // has nothing to tell
        result.finishReasons = {tle::FinishReason::kCANCELLED};
        publisher.publish(tle::Response(4, result));
        result.isFinal = false;
        result.requestPerfMetrics = metrics;
        publisher.publish(tle::Response(5, result));
        result.isFinal = true;
        result.finishReasons = {tle::FinishReason::kLENGTH};
        publisher.publish(tle::Response(6, result));
        publisher.publish(metrics);
    }
    CHECK(until([&] { return listener.ended == 1; }));
    auto const text = listener.text();
    CHECK(count(text, "perfMetrics") == 4);
    CHECK(contains(text, "\n{\"perfMetrics\":{},\"requestId\":1,\"finishReason\":\"error\"}\n"));
    CHECK(contains(text, "\n{\"perfMetrics\":{},\"requestId\":4,\"finishReason\":\"cancelled\"}\n"));
    CHECK(contains(text, "\"timingMetrics\":{\"arrivalTime\":1234567890.123456789,\"kvCacheSize\":0}"));
    CHECK(contains(text, "\"firstIter\":5") && count(text, "\"finishReason\":\"length\"") == 1
        && count(text, "\"requestId\":") == 3);
}

void engineIsNamedAfterItsFolder()
{
    using trtllm_exporter::EngineName;
    for (auto const& [path, model] : std::vector<std::pair<std::string, std::string>>{{"/models/llama/1", "llama"},
             {"/engines/llama-3-8b/fp8/tp2pp2/4-gpu/", "llama-3-8b"}, {"/srv/llama/trt_engines/bf16/1-gpu", "llama"},
             {"llama//engine/", "llama"}, {"./gpt2", "gpt2"}, {"/tmp/llama/7B/trt_engines/fp16/1-gpu", "llama"},
             {"/models/mixtral/8x7b", "mixtral"}, {"7B", "tensorrt_llm"}, {"/1/2", "tensorrt_llm"},
             {"", "tensorrt_llm"}, {"/", "tensorrt_llm"}, {"..", "tensorrt_llm"},
             {"/models/" + std::string(100, 'x'), std::string(100, 'x')}})
    {
        auto const name = EngineName::ofEngine(path);
        CHECK(name.model == model && name.derived);
    }
    CHECK(EngineName().derived && EngineName().model == "tensorrt_llm");
    CHECK(!EngineName("llama").derived && EngineName("llama", "7").version == "7");
}

std::string helloOf(trtllm_exporter::EngineName const& name, std::map<std::string, std::string> config = {})
{
    Listener listener(kPath);
    auto options = CapturedLog().options();
    options.config = std::move(config);
    Publisher publisher(kPath, name, options);
    publisher.publish(recordOf(1));
    CHECK(until([&] { return contains(listener.text(), "\n"); }));
    auto const text = listener.text();
    return text.substr(0, text.find('\n'));
}

void helloHasTheNameAndTheSettings()
{
    using trtllm_exporter::EngineName;
    auto const pid = std::to_string(::getpid());
    CHECK(helloOf(EngineName::ofEngine("/models/llama/1"))
        == "{\"hello\":{\"model\":\"llama\",\"version\":\"1\",\"pid\":" + pid + ",\"derived\":true}}");
    CHECK(helloOf(EngineName("llama", "7"))
        == "{\"hello\":{\"model\":\"llama\",\"version\":\"7\",\"pid\":" + pid + "}}");
    CHECK(helloOf(EngineName("llama"), {{"quantization", "FP8"}, {"dtype", "a \"type\""}})
        == "{\"hello\":{\"model\":\"llama\",\"version\":\"1\",\"pid\":" + pid
            + ",\"config\":{\"dtype\":\"a \\\"type\\\"\",\"quantization\":\"FP8\"}}}");
}

} // namespace

void testLines()
{
    recordHasTheJsonOfTensorRtLlm();
    requestRowsOfAnIterationAreOneLine();
    everyFinishedResponseIsSent();
    engineIsNamedAfterItsFolder();
    helloHasTheNameAndTheSettings();
}
