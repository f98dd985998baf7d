#pragma once

// A small server with an Executor, for every release since 0.9. Client threads enqueue requests, and one loop awaits the responses. The clients and
// the engine are simulated; the rest is like a real server.

#include "tensorrt_llm/executor/executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>

#include <sys/resource.h>

#if __has_include("tensorrt_llm/sim/truth.h")
#include "tensorrt_llm/sim/truth.h"
#define EXAMPLE_SIMULATED 1
#endif

namespace example
{

namespace tle = tensorrt_llm::executor;

struct Settings
{
    /// An engine directory, or sim: with options for a simulated engine.
    std::string engine = "sim:?rate=0&iter_base_ms=10";
    double seconds = 10.0;
    double requestsPerSecond = 20.0;
    int outputTokens = 60;
};

/// Arguments: SERVER [ENGINE [SECONDS [REQUESTS_PER_SECOND [OUTPUT_TOKENS]]]]
inline Settings settingsOf(int count, char** arguments)
{
    Settings settings;
    settings.engine = count > 1 ? arguments[1] : settings.engine;
    settings.seconds = count > 2 ? std::atof(arguments[2]) : settings.seconds;
    settings.requestsPerSecond = count > 3 ? std::atof(arguments[3]) : settings.requestsPerSecond;
    settings.outputTokens = count > 4 ? std::atoi(arguments[4]) : settings.outputTokens;
    return settings;
}

inline std::string environment(char const* name, char const* fallback)
{
    auto const* const value = std::getenv(name);
    return value == nullptr ? fallback : value;
}

inline std::shared_ptr<tle::Executor> open(Settings const& settings)
{
    return std::make_shared<tle::Executor>(
        std::filesystem::path(settings.engine), tle::ModelType::kDECODER_ONLY, tle::ExecutorConfig());
}

/// Asks the engine to return the times of a request in its response. Releases before 1.0 do not have this option.
template <class Output>
auto requestTimes(Output& output, int /*preferred*/) -> decltype(output.returnPerfMetrics, void())
{
    output.returnPerfMetrics = true;
}

template <class Output>
void requestTimes(Output& /*output*/, long /*fallback*/)
{
}

inline void enqueue(tle::Executor& executor, int outputTokens)
{
    tle::VecTokens prompt(64);
    std::iota(prompt.begin(), prompt.end(), 1);
    tle::OutputConfig output;
    requestTimes(output, 0);
    tle::Request request(prompt, outputTokens);
    request.setOutputConfig(output);
    static_cast<void>(executor.enqueueRequest(request));
}

/// In release 0.9, the timeout is the second parameter, not the first.
template <class Executor>
auto awaitResponses(Executor& executor, std::chrono::milliseconds timeout, int /*preferred*/)
    -> decltype(executor.awaitResponses(timeout))
{
    return executor.awaitResponses(timeout);
}

template <class Executor>
auto awaitResponses(Executor& executor, std::chrono::milliseconds timeout, long /*fallback*/)
{
    return executor.awaitResponses(std::nullopt, timeout);
}

inline std::atomic<bool> terminated{false};

/// Serves for `settings.seconds`, or until SIGTERM. Calls `onResponse` with every response. Returns the number of
/// finished requests.
template <class OnResponse>
std::size_t serve(tle::Executor& executor, Settings const& settings, OnResponse const& onResponse)
{
    using Clock = std::chrono::steady_clock;
    auto const end = Clock::now() + std::chrono::duration<double>(settings.seconds);
    std::signal(SIGTERM, [](int) { terminated = true; });
    std::atomic<bool> closed{false};
    std::thread clients(
        [&]
        {
            auto const between = std::chrono::duration<double>(1.0 / settings.requestsPerSecond);
            for (auto next = std::chrono::time_point<Clock, std::chrono::duration<double>>(Clock::now());
                 next < end && !terminated; next += between)
            {
                std::this_thread::sleep_until(next);
                enqueue(executor, settings.outputTokens);
            }
            closed = true;
        });
    std::size_t finished = 0;
    while (!closed)
    {
        for (auto const& response : awaitResponses(executor, std::chrono::milliseconds(50), 0))
        {
            finished += response.hasError() || response.getResult().isFinal ? 1 : 0;
            onResponse(response);
        }
    }
    clients.join();
    return finished;
}

/// Prints the CPU time of this process, and the CPU time of the exporter's threads: those whose names start with
/// "trtllm-".
inline void report([[maybe_unused]] tle::Executor const& executor, std::size_t finished)
{
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    auto const seconds = [](timeval const& time)
    { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); };
    double exporter = 0.0;
    for (auto const& task : std::filesystem::directory_iterator("/proc/self/task"))
    {
        std::string name;
        double nanoseconds = 0.0;
        std::getline(std::ifstream(task.path() / "comm"), name);
        std::ifstream(task.path() / "schedstat") >> nanoseconds;
        exporter += name.rfind("trtllm-", 0) == 0 ? nanoseconds * 1e-9 : 0.0;
    }
#if defined(EXAMPLE_SIMULATED)
    std::printf("iterations=%llu ", static_cast<unsigned long long>(tensorrt_llm::sim::truth(executor).iterations));
#endif
    std::printf("finished=%zu cpu=%.4f exporter_cpu=%.4f\n", finished,
        seconds(usage.ru_utime) + seconds(usage.ru_stime), exporter);
}

} // namespace example
