// Tests publisher.h with a test listener instead of the exporter.

#include "check.h"
#include "listener.h"

#include "trtllm_exporter/publisher.h"

#include "tensorrt_llm/executor/executor.h"

#include <csignal>
#include <filesystem>
#include <limits>

#include <sys/wait.h>

namespace tle = tensorrt_llm::executor;
using namespace std::chrono_literals;
using trtllm_exporter::Publisher;
using trtllm_exporter::PublisherOptions;

namespace
{

std::string const kPath = "/tmp/trtllm-publisher-test-" + std::to_string(::getpid()) + ".sock";

struct CapturedLog
{
    std::shared_ptr<std::mutex> mutex = std::make_shared<std::mutex>();
    std::shared_ptr<std::string> text = std::make_shared<std::string>();

    PublisherOptions options(std::size_t bytes = 1 << 20) const
    {
        PublisherOptions options;
        options.bufferBytes = bytes;
        options.linger = 5ms;
        options.log = [*this](std::string_view line)
        {
            std::lock_guard const lock(*mutex);
            *text += std::string(line) + "\n";
        };
        return options;
    }

    /// For tests of the data, not of the duration of the destructor.
    PublisherOptions patient() const
    {
        auto patient = options(4 << 20);
        patient.flushTimeout = 60s;
        return patient;
    }

    std::string all() const
    {
        std::lock_guard const lock(*mutex);
        return *text;
    }
};

tle::IterationStats recordOf(std::uint64_t iter)
{
    tle::IterationStats record{};
    record.timestamp = "07-25-2025 16:54:34.140189";
    record.iter = iter;
    record.iterLatencyMS = 12.625;
    record.numActiveRequests = 3;
    record.kvCacheStats = tle::KvCacheStats{};
    record.kvCacheStats->maxNumBlocks = 512;
    record.kvCacheStats->cacheHitRate = std::numeric_limits<float>::quiet_NaN();
    record.inflightBatchingStats = tle::InflightBatchingStats{};
    record.inflightBatchingStats->numScheduledRequests = -1;
    return record;
}

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

void onlyFinishedResponsesWithPerfMetricsAreSent()
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
        result.requestPerfMetrics = metrics;
        publisher.publish(tle::Response(3, result));
        result.isFinal = true;
        result.finishReasons = {tle::FinishReason::kLENGTH};
        publisher.publish(tle::Response(4, result));
        publisher.publish(metrics);
    }
    CHECK(until([&] { return listener.ended == 1; }));
    auto const text = listener.text();
    CHECK(count(text, "perfMetrics") == 2);
    CHECK(contains(text, "\"timingMetrics\":{\"arrivalTime\":1234567890.123456789,\"kvCacheSize\":0}"));
    CHECK(contains(text, "\"firstIter\":5") && count(text, "\"finishReason\":\"length\"") == 1
        && count(text, "\"requestId\":") == 1);
}

void recordsOfManyThreadsArriveOnce()
{
    Listener listener(kPath);
    constexpr std::size_t kThreads = 4;
    constexpr std::size_t kEach = 5000;
    Publisher publisher(kPath, "m", "1", CapturedLog().options(std::size_t{64} << 20));
    std::vector<std::thread> threads;
    for (std::size_t thread = 0; thread < kThreads; ++thread)
    {
        threads.emplace_back(
            [&publisher, thread]
            {
                for (std::size_t i = 0; i < kEach; ++i)
                {
                    publisher.publish(recordOf(thread * kEach + i));
                }
            });
    }
    for (auto& thread : threads)
    {
        thread.join();
    }
    CHECK(publisher.flush(60s) && publisher.dropped() == 0);
    CHECK(until([&] { return count(listener.text(), "\n") == kThreads * kEach + 1; }));
    auto const text = listener.text();
    for (auto const iter : {0UL, 4999UL, 5000UL, 19999UL})
    {
        CHECK(count(text, "\"iter\":" + std::to_string(iter) + ",") == 1);
    }
}

void withoutAnExporterTheOldestAreDroppedAndItIsLoggedOnce()
{
    CapturedLog const log;
    Publisher publisher(kPath, "m", "1", log.options(64 << 10));
    for (std::uint64_t i = 0; i < 1000; ++i)
    {
        publisher.publish(recordOf(i));
    }
    auto const dropped = publisher.dropped();
    CHECK(dropped > 800 && dropped < 1000 && !publisher.connected());
    CHECK(until([&] { return count(log.all(), "\n") == 1; }));
    std::this_thread::sleep_for(400ms); // enough time for retries
    CHECK(count(log.all(), "\n") == 1
        && contains(log.all(), kPath + ": No such file or directory; check that trtllm-exporter runs"));

    Listener listener(kPath);
    CHECK(publisher.flush(60s));
    CHECK(until([&] { return contains(listener.text(), "\"iter\":999,"); }));
    auto const text = listener.text();
    CHECK(count(text, "\n") == 1000 - dropped + 1 && text.find("{\"hello\"") == 0);
    CHECK(contains(text, "\n{\"timestamp\":\"07-25-2025 16:54:34.140189\",\"iter\":" + std::to_string(dropped) + ","));
    CHECK(until([&] { return count(log.all(), "\n") == 2; }));
    CHECK(contains(log.all(), std::to_string(dropped) + " records were dropped before"));
}

void exporterThatDoesNotReadNeverBlocksTheHost()
{
    CapturedLog const log;
    Listener listener(kPath);
    listener.reading = false;
    Publisher publisher(kPath, "m", "1", log.options(256 << 10));
    std::uint64_t published = 0;
    CHECK(onceInFive(
        [&]
        {
            auto slowest = 0ns;
            for (int i = 0; i < 20000; ++i, ++published)
            {
                slowest = std::max(slowest, took([&] { publisher.publish(recordOf(published)); }));
            }
            return slowest < 1s;
        }));
    CHECK(publisher.dropped() > published - 10000);
    CHECK(until([&] { return contains(log.all(), "fast enough; dropping"); }));
    listener.reading = true;
    CHECK(until([&] { return contains(listener.text(), "\"iter\":" + std::to_string(published - 1) + ","); }));
    CHECK(count(listener.text(), "\n") == published - publisher.dropped() + 1);
    CHECK(until([&] { return contains(log.all(), "records were dropped before"); }));
    CHECK(count(log.all(), "\n") <= 3); // publishing, dropping, publishing again
}

void idleEngineReconnectsAfterAnExporterRestart()
{
    CapturedLog const log;
    auto first = std::make_unique<Listener>(kPath);
    Publisher publisher(kPath, "m", "1", log.options());
    publisher.publish(recordOf(1));
    CHECK(until([&] { return contains(first->text(), "\"iter\":1,"); }));
    first.reset();
    CHECK(until([&] { return !publisher.connected(); }));
    Listener second(kPath);
    CHECK(until([&] { return contains(second.text(), "{\"hello\""); }));
    publisher.publish(recordOf(2));
    CHECK(until([&] { return contains(second.text(), "\"iter\":2,"); }));
    CHECK(!contains(second.text(), "\"iter\":1,"));
}

void invalidPathIsLoggedOnce()
{
    for (auto const& path : {std::string("/proc/no/such.sock"), std::string(200, 'x'), std::string("/dev/null")})
    {
        CapturedLog const log;
        Publisher publisher(path, "m", "1", log.options());
        publisher.publish(recordOf(1));
        CHECK(until([&] { return contains(log.all(), "cannot publish to " + path); }));
        std::this_thread::sleep_for(200ms);
        CHECK(count(log.all(), "\n") == 1);
    }
}

void engineIsNamedAfterItsFolder()
{
    using trtllm_exporter::EngineName;
    for (auto const& [path, model] : std::vector<std::pair<std::string, std::string>>{{"/models/llama/1", "llama"},
             {"/engines/llama-3-8b/fp8/tp2pp2/4-gpu/", "llama-3-8b"}, {"/srv/llama/trt_engines/bf16/1-gpu", "llama"},
             {"llama//engine/", "llama"}, {"./gpt2", "gpt2"}, {"/tmp/llama/7B/trt_engines/fp16/1-gpu", "llama"},
             {"/models/mixtral/8x7b", "mixtral"}, {"7B", "tensorrt_llm"}, {"/1/2", "tensorrt_llm"},
             {"", "tensorrt_llm"}, {"/", "tensorrt_llm"}, {"..", "tensorrt_llm"},
             {"/models/" + std::string(100, 'x'), std::string(64, 'x')}})
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
    for (auto const* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    {
        ::unsetenv(name);
    }
    auto const pid = std::to_string(::getpid());
    CHECK(helloOf(EngineName::ofEngine("/models/llama/1"))
        == "{\"hello\":{\"model\":\"llama\",\"version\":\"1\",\"pid\":" + pid + ",\"derived\":true}}");
    ::setenv("OMPI_COMM_WORLD_RANK", "3", 1);
    CHECK(helloOf(EngineName("llama", "7"))
        == "{\"hello\":{\"model\":\"llama\",\"version\":\"7\",\"pid\":" + pid + ",\"rank\":3}}");
    ::unsetenv("OMPI_COMM_WORLD_RANK");
    CHECK(helloOf(EngineName("llama"), {{"quantization", "FP8"}, {"dtype", "a \"type\""}})
        == "{\"hello\":{\"model\":\"llama\",\"version\":\"1\",\"pid\":" + pid
            + ",\"config\":{\"dtype\":\"a \\\"type\\\"\",\"quantization\":\"FP8\"}}}");
}

/// A worker rank has no records. Its connection would look like one more engine.
void publisherWithoutRecordsHasNoThreadAndNoConnection()
{
    Listener listener(kPath);
    auto const threads = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); };
    {
        auto const before = threads();
        Publisher publisher(kPath, "m", "1", CapturedLog().options());
        CHECK(!publisher.connected() && threads() == before);
    }
    CHECK(listener.connections == 0);
}

/// The exporter closes a connection whose name is in use.
void refusedPublisherLogsOnceAndKeepsItsRecords(std::chrono::milliseconds patience)
{
    CapturedLog const log;
    Listener listener(kPath);
    listener.patience = patience;
    listener.refusing = true;
    Publisher publisher(kPath, "m", "1", log.options());
    publisher.publish(recordOf(0));
    CHECK(until([&] { return listener.connections >= 4; }));
    CHECK(count(log.all(), "closes the connection; either another process publishes with the same model and version")
        == 1);
    // Only the first connection may have had records: they are lost, because the refusal was not known yet.
    CHECK(count(listener.text(), "\"iter\":") <= 1);
    publisher.publish(recordOf(1));
    publisher.publish(recordOf(2));
    listener.refusing = false;
    CHECK(until([&] { return contains(listener.text(), "\"iter\":2,"); }));
    CHECK(count(listener.text(), "\"iter\":1,") == 1 && publisher.dropped() == 0);
    CHECK(until([&] { return contains(log.all(), "publishing to " + kPath); }));
}

void newlineOrOversizedLineDoesNotBreakTheStream()
{
    Listener listener(kPath);
    Publisher publisher(kPath, "m", "1", CapturedLog().options(8192));
    CHECK(!publisher.publishLine("{}\n{}"));
    publisher.publishLine(std::string(10000, ' '));
    publisher.publishLine("{\"iter\":3}");
    CHECK(until([&] { return contains(listener.text(), "\n{\"iter\":3}\n"); }) && publisher.dropped() == 1);
}

[[maybe_unused]] void forkedChildNeedsItsOwnPublisher()
{
    Listener listener(kPath);
    auto publisher = std::make_unique<Publisher>(kPath, "m", "1", CapturedLog().options());
    publisher->publish(recordOf(0));
    CHECK(until([&] { return publisher->connected(); }));
    // Another thread holds the mutex during some of these forks.
    std::atomic<bool> stopped{false};
    std::thread busy(
        [&]
        {
            for (std::uint64_t i = 0; !stopped; ++i)
            {
                publisher->publish(recordOf(i));
            }
        });
    for (int fork = 0; fork < 20; ++fork)
    {
        auto const child = ::fork();
        if (child == 0)
        {
            ::alarm(60);
            auto const silent = !publisher->publish(recordOf(1)) && !publisher->publishLine("{}")
                && !publisher->flush(1ms) && !publisher->connected() && publisher->dropped() == 0;
            publisher.reset();
            std::string const own = kPath + ".child";
            Listener there(own);
            Publisher mine(own);
            mine.publish(recordOf(7));
            auto const received = until([&] { return contains(there.text(), "\"iter\":7,"); });
            std::_Exit(silent && received ? 0 : 1);
        }
        int status = -1;
        CHECK(::waitpid(child, &status, 0) == child && status == 0);
    }
    stopped = true;
    busy.join();
    // A child that keeps running must not keep the connection open.
    auto const child = ::fork();
    if (child == 0)
    {
        ::pause();
    }
    publisher.reset();
    CHECK(until([&] { return listener.ended == 1; }));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
}

void destructionIsFastWhateverTheExporterDoes()
{
    auto const end = [](int times, std::uint64_t records)
    {
        for (int i = 0; i < times; ++i)
        {
            Publisher publisher(kPath, "m", "1", CapturedLog().options());
            for (std::uint64_t n = 0; n < records; ++n)
            {
                publisher.publish(recordOf(n));
            }
        }
    };
    CHECK(onceInFive([&] { return took([&] { end(20, 1); }) < 5s; }));
    Listener listener(kPath);
    listener.reading = false;
    CHECK(onceInFive([&] { return took([&] { end(3, 1000); }) < 5s; }));
}

} // namespace

int main()
{
    recordHasTheJsonOfTensorRtLlm();
    requestRowsOfAnIterationAreOneLine();
    onlyFinishedResponsesWithPerfMetricsAreSent();
    recordsOfManyThreadsArriveOnce();
    withoutAnExporterTheOldestAreDroppedAndItIsLoggedOnce();
    exporterThatDoesNotReadNeverBlocksTheHost();
    idleEngineReconnectsAfterAnExporterRestart();
    invalidPathIsLoggedOnce();
    newlineOrOversizedLineDoesNotBreakTheStream();
    engineIsNamedAfterItsFolder();
    helloHasTheNameAndTheSettings();
    publisherWithoutRecordsHasNoThreadAndNoConnection();
    refusedPublisherLogsOnceAndKeepsItsRecords(std::chrono::milliseconds(0));
    // The exporter waits a second for the name before it refuses it.
    refusedPublisherLogsOnceAndKeepsItsRecords(std::chrono::milliseconds(1000));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // as in host.cc
    forkedChildNeedsItsOwnPublisher();
#endif
    destructionIsFastWhateverTheExporterDoes();
}
