// The two ways of draining that the benchmark compares the bridge with. The first copies the deque in C++. The second
// does what Triton's reporter does: it converts each record to JSON text, parses the text, and sets gauges by name
// under a lock. Each of them drains an engine of its own. The benchmark loads this file as a library, so that all runs
// are measured in one process.

#include "tensorrt_llm/executor/executor.h"
#include "tensorrt_llm/sim/truth.h"

#include <chrono>
#include <ctime>
#include <deque>
#include <iomanip>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#if __has_include(<rapidjson/document.h>)
#include <rapidjson/document.h>
#define YARDSTICK_RAPIDJSON
#endif

namespace tle = tensorrt_llm::executor;

namespace
{

using Clock = std::chrono::steady_clock;
using Records = std::deque<tle::IterationStats>;

/// Prevents the compiler from removing the computation of a result.
volatile double sink;

double nanosecondsSince(Clock::time_point start)
{
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

std::unique_ptr<tle::Executor> open(char const* engine)
{
    tle::ExecutorConfig config;
    config.setIterStatsMaxIterations(1000000);
    return std::make_unique<tle::Executor>(engine, tle::ModelType::kDECODER_ONLY, config);
}

/// All records of an engine that stops after this many iterations.
Records recordsOf(tle::Executor& executor, std::uint64_t iterations)
{
    while (tensorrt_llm::sim::truth(executor).iterations < iterations)
    {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return executor.getLatestIterationStats();
}

/// Converts a record to JSON with the keys of Triton's backend.
std::string jsonOf(tle::IterationStats const& stats)
{
    std::string json = "{";
    auto const add = [&json](char const* key, std::string const& value)
    {
        json += json.size() == 1 ? "\"" : ",\"";
        json += key;
        json += "\":";
        json += value;
    };
    add("Timestamp", "\"" + stats.timestamp + "\"");
    add("Iteration Counter", std::to_string(stats.iter));
    add("Active Request Count", std::to_string(stats.numActiveRequests));
    add("Max Request Count", std::to_string(stats.maxNumActiveRequests));
    add("Runtime CPU Memory Usage", std::to_string(stats.cpuMemUsage));
    add("Runtime GPU Memory Usage", std::to_string(stats.gpuMemUsage));
    add("Runtime Pinned Memory Usage", std::to_string(stats.pinnedMemUsage));
    if (stats.kvCacheStats)
    {
        auto const& kv = *stats.kvCacheStats;
        add("Max KV cache blocks", std::to_string(kv.maxNumBlocks));
        add("Free KV cache blocks", std::to_string(kv.freeNumBlocks));
        add("Used KV cache blocks", std::to_string(kv.usedNumBlocks));
        add("Tokens per KV cache block", std::to_string(kv.tokensPerBlock));
        add("Reused KV cache blocks", std::to_string(kv.reusedBlocks));
        add("Fraction used KV cache blocks",
            std::to_string(kv.maxNumBlocks == 0 ? 0.0 : static_cast<double>(kv.usedNumBlocks) / kv.maxNumBlocks));
    }
    if (stats.inflightBatchingStats)
    {
        auto const& batching = *stats.inflightBatchingStats;
        add("Scheduled Requests", std::to_string(batching.numScheduledRequests));
        add("Context Requests", std::to_string(batching.numContextRequests));
        add("Generation Requests", std::to_string(batching.numGenRequests));
        add("Total Context Tokens", std::to_string(batching.numCtxTokens));
        add("MicroBatch ID", std::to_string(batching.microBatchId));
        add("Paused Requests", std::to_string(batching.numPausedRequests));
        add("Waiting Requests", std::to_string(stats.numActiveRequests - batching.numScheduledRequests));
    }
    return json + "}";
}

double microseconds(std::string const& text)
{
    std::tm fields{};
    std::istringstream stream(text);
    stream >> std::get_time(&fields, "%m-%d-%Y %H:%M:%S");
    double fraction = 0.0;
    stream >> fraction;
    return static_cast<double>(std::mktime(&fields)) * 1e6 + fraction * 1e6;
}

/// Gauges by label, as in a metrics library.
class Gauges
{
public:
    void set(std::string const& label, double value)
    {
        std::lock_guard const lock(mMutex);
        mValues[label] = value;
    }

    [[nodiscard]] double sum()
    {
        std::lock_guard const lock(mMutex);
        double sum = 0.0;
        for (auto const& [label, value] : mValues)
        {
            sum += value;
        }
        return sum;
    }

private:
    std::mutex mMutex;
    std::map<std::string, double> mValues;
};

#if defined(YARDSTICK_RAPIDJSON)
void report(std::string const& json, Gauges& gauges)
{
    rapidjson::Document document;
    document.Parse(json.c_str());
    for (auto const& member : document.GetObject())
    {
        auto const& value = member.value;
        gauges.set(member.name.GetString(), value.IsString() ? microseconds(value.GetString()) : value.GetDouble());
    }
}
#else
/// Parses one flat object of numbers and strings without escapes, which is what jsonOf writes.
void report(std::string const& json, Gauges& gauges)
{
    std::size_t at = 1;
    while (at < json.size() && json[at] == '"')
    {
        auto const end = json.find('"', at + 1);
        auto const key = json.substr(at + 1, end - at - 1);
        at = end + 2;
        if (json[at] == '"')
        {
            auto const close = json.find('"', at + 1);
            gauges.set(key, microseconds(json.substr(at + 1, close - at - 1)));
            at = close + 1;
        }
        else
        {
            char* stop = nullptr;
            gauges.set(key, std::strtod(json.c_str() + at, &stop));
            at = static_cast<std::size_t>(stop - json.c_str());
        }
        at += json[at] == ',' ? 1 : 0;
    }
}
#endif

} // namespace

/// Returns the nanoseconds to copy all records and free the copy. Sets `count` to the number of records.
extern "C" double yardstick_copy(char const* engine, std::uint64_t iterations, std::size_t* count)
{
    auto const executor = open(engine);
    auto const records = recordsOf(*executor, iterations);
    *count = records.size();
    auto const start = Clock::now();
    {
        auto const copy = records;
        sink = static_cast<double>(copy.back().iter);
    }
    return nanosecondsSince(start);
}

/// Returns the nanoseconds to drain all records and report them as Triton does.
extern "C" double yardstick_triton(char const* engine, std::uint64_t iterations, std::size_t* count)
{
    auto const executor = open(engine);
    while (tensorrt_llm::sim::truth(*executor).iterations < iterations)
    {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    static Gauges gauges;
    auto const start = Clock::now();
    {
        auto const records = executor->getLatestIterationStats();
        *count = records.size();
        for (auto const& record : records)
        {
            report(jsonOf(record), gauges);
        }
    }
    auto const elapsed = nanosecondsSince(start);
    sink = gauges.sum();
    return elapsed;
}

extern "C" char const* yardstick_json()
{
#if defined(YARDSTICK_RAPIDJSON)
    return "rapidjson";
#else
    return "the benchmark's own flat parser";
#endif
}
