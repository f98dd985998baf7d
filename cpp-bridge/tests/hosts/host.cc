// A server without any exporter code. Each mode uses an Executor differently. The output must be the same with and
// without the preload; run.sh compares it. If $HOST_CONTROL is set, the server also prints its progress, polls until
// the file $HOST_CONTROL.rest exists, and ends when $HOST_CONTROL.end exists.

#include "check.h"

#include "tensorrt_llm/common/tllmException.h"
#include "tensorrt_llm/executor/executor.h"
#include "tensorrt_llm/sim/truth.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <optional>

#include <sys/wait.h>
#include <unistd.h>

namespace tle = tensorrt_llm::executor;
using namespace std::chrono_literals;

namespace
{

using Records = std::deque<tle::IterationStats>;

tle::Executor engineOf(std::string const& options, int ring = 1000, int requestRing = 0)
{
    tle::ExecutorConfig config;
    config.setIterStatsMaxIterations(ring);
    config.setRequestStatsMaxIterations(requestRing);
    return tle::Executor("sim:?" + options, tle::ModelType::kDECODER_ONLY, config);
}

/// Runs one request of `iterations` iterations. Also waits for the flush record, which the engine writes after the
/// response.
void work(tle::Executor& executor, int iterations)
{
    tle::VecTokens tokens(8);
    std::iota(tokens.begin(), tokens.end(), 1);
    auto const flushes = tensorrt_llm::sim::truth(executor).flushes;
    auto const id = executor.enqueueRequest(tle::Request(tokens, iterations));
    CHECK(executor.awaitResponses(id, 60000ms).size() == 1);
    while (tensorrt_llm::sim::truth(executor).flushes == flushes)
    {
        std::this_thread::yield();
    }
}

void print(Records const& records)
{
    for (auto const& record : records)
    {
        std::printf("%lu/%d/%d/%d ", static_cast<unsigned long>(record.iter), record.numActiveRequests,
            record.inflightBatchingStats->numScheduledRequests, record.kvCacheStats->usedNumBlocks);
    }
    std::printf("(%zu)\n", records.size());
}

void printTruth(tle::Executor const& executor, std::size_t seen)
{
    auto const truth = tensorrt_llm::sim::truth(executor);
    std::printf("seen=%zu pushed=%lu iterations=%lu completed=%lu tokens=%lu\n", seen,
        static_cast<unsigned long>(truth.recordsPushed), static_cast<unsigned long>(truth.iterations),
        static_cast<unsigned long>(truth.requestsCompleted), static_cast<unsigned long>(truth.generationTokens));
}

char const* const kControl = std::getenv("HOST_CONTROL");

/// True if the script created this control file.
bool requested(std::string const& suffix)
{
    return kControl != nullptr && ::access((kControl + suffix).c_str(), F_OK) == 0;
}

/// Polls after every request and checks that no record is missing, duplicate or out of order.
void polling(std::uint64_t iterations, double perSecond)
{
    auto executor = engineOf("rate=0&speed=max");
    constexpr int kEach = 400;
    std::size_t seen = 0;
    std::uint64_t next = 0;
    auto const each
        = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(kEach / perSecond));
    for (std::uint64_t done = 0; done < iterations && !requested(".rest"); done += kEach)
    {
        // Pause relative to this request, not to the first one. Otherwise, a burst would follow each stall of the
        // machine, and the exporter could not keep up.
        auto const begun = std::chrono::steady_clock::now();
        work(executor, kEach);
        for (auto const& record : executor.getLatestIterationStats())
        {
            ++seen;
            // A flush record has the number of the next iteration.
            auto const flush = record.numActiveRequests == 0;
            CHECK(record.iter == next);
            next += flush ? 0 : 1;
        }
        if (kControl != nullptr)
        {
            std::printf("at=%lu\n", static_cast<unsigned long>(next));
            std::fflush(stdout);
        }
        std::this_thread::sleep_until(begun + each);
    }
    CHECK(next == tensorrt_llm::sim::truth(executor).iterations);
    CHECK(tensorrt_llm::sim::truth(executor).recordsLost == 0);
    printTruth(executor, seen);
}

/// Reads the iterations, and never the request statistics.
void iterationsOnly()
{
    auto executor = engineOf("rate=0&speed=max", 1000, 100);
    for (int request = 0; request < 5; ++request)
    {
        work(executor, 40);
        for (int poll = 0; poll < 50; ++poll)
        {
            executor.getLatestIterationStats();
            std::this_thread::sleep_for(5ms);
        }
    }
}

void silent(std::uint64_t iterations)
{
    auto executor = engineOf("rate=0&speed=max");
    for (std::uint64_t done = 0; done < iterations; done += 100)
    {
        // Sleeps before the request, so that the last records are still in the Executor when it is destroyed.
        std::this_thread::sleep_for(10ms);
        work(executor, 100);
    }
    printTruth(executor, 0);
}

/// Polls rarely. The records that the preload drained meanwhile must be those that the ring would have kept.
void late()
{
    for (auto const ring : {10, 250, 1000})
    {
        auto executor = engineOf("rate=0&speed=max", ring, ring);
        for (int round = 0; round < 3; ++round)
        {
            for (int part = 0; part < 5; ++part)
            {
                work(executor, 40);
                std::this_thread::sleep_for(120ms);
            }
            print(executor.getLatestIterationStats());
            auto const requests = executor.getLatestRequestStats();
            std::printf("%zu rows from %lu to %lu\n", requests.size(),
                static_cast<unsigned long>(requests.front().iter), static_cast<unsigned long>(requests.back().iter));
        }
        CHECK(executor.getLatestIterationStats().empty() && executor.getLatestRequestStats().empty());
    }
    auto executor = engineOf("rate=0&speed=max", 0, 0);
    work(executor, 40);
    std::this_thread::sleep_for(250ms);
    print(executor.getLatestIterationStats());
}

void throwing(char const* what, std::function<void()> const& call)
{
    try
    {
        call();
        std::printf("%s: nothing\n", what);
    }
    catch (tensorrt_llm::common::TllmException const& error)
    {
        std::string const text = error.what();
        std::printf("%s: %s\n", what, text.substr(0, text.find('\n')).c_str());
    }
}

void errors()
{
    auto executor = engineOf("rate=0&speed=max");
    work(executor, 40);
    std::this_thread::sleep_for(250ms);
    executor.shutdown();
    throwing("stats", [&] { executor.getLatestIterationStats(); });
    throwing("requests", [&] { executor.getLatestRequestStats(); });
    throwing("shutdown", [&] { executor.shutdown(); });
    throwing("enqueue", [&] { static_cast<void>(executor.enqueueRequest(tle::Request({1}, 1))); });
    std::printf("can enqueue: %d\n", executor.canEnqueueRequests());
    auto worker = engineOf("rank=1");
    throwing("worker", [&] { worker.getLatestIterationStats(); });
    std::this_thread::sleep_for(250ms);
    throwing("constructor", [&] { engineOf("nonsense=1"); });
    throwing("ring", [&] { engineOf("", -1); });
}

#if TRTLLM_SIM_SINCE(1, 1) // older releases do not declare the moves
void moved()
{
    auto first = engineOf("rate=0&speed=max");
    work(first, 40);
    auto second = std::move(first);
    work(second, 40);
    std::this_thread::sleep_for(250ms);
    print(second.getLatestIterationStats());
    auto third = engineOf("rate=0&speed=max&seed=2");
    work(third, 20);
    std::this_thread::sleep_for(250ms);
    second = std::move(third);
    work(second, 20);
    print(second.getLatestIterationStats());
}

/// Forks while other threads call constructors all the time, so that the preload searches the loaded libraries during
/// the forks. Each child must be able to use an Executor of its own.
void forkedInConstructors()
{
    std::atomic<bool> stopped{false};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 3; ++thread)
    {
        threads.emplace_back(
            [&]
            {
                auto executor = engineOf("rate=0&speed=max");
                while (!stopped)
                {
                    tle::Executor moved(std::move(executor));
                    executor = std::move(moved);
                }
            });
    }
    for (int fork = 0; fork < 300; ++fork)
    {
        auto const child = ::fork();
        if (child == 0)
        {
            ::alarm(60);
            engineOf("rate=0&speed=max").getLatestIterationStats();
            std::_Exit(0);
        }
        int status = -1;
        CHECK(::waitpid(child, &status, 0) == child && status == 0);
    }
    stopped = true;
    for (auto& thread : threads)
    {
        thread.join();
    }
    std::printf("done\n");
}

#else
void moved() {}
void forkedInConstructors() {}
#endif

/// Constructs and destroys Executors under load, while threads poll them and children are forked.
void churn(int forks, std::chrono::milliseconds rest)
{
    std::atomic<bool> stopped{false};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 3; ++thread)
    {
        threads.emplace_back(
            [&stopped, thread]
            {
                while (!stopped)
                {
                    auto executor = engineOf("rate=20&speed=max&output_mean=20", 50, thread == 0 ? 50 : 0);
                    for (int poll = 0; poll < (thread == 1 ? 0 : 20); ++poll)
                    {
                        executor.getLatestIterationStats();
                        executor.getLatestRequestStats();
                        std::this_thread::sleep_for(1ms);
                    }
                    if (thread == 2)
                    {
                        executor.shutdown();
                    }
                    std::this_thread::sleep_for(std::chrono::milliseconds(thread == 1 ? 30 : 0));
                }
            });
    }
    for (int fork = 0; fork < forks; ++fork)
    {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        break; // the sanitizers' allocators do not support a fork of a process with threads
#endif
        auto const child = ::fork();
        if (child == 0)
        {
            ::alarm(60);
            {
                auto executor = engineOf("rate=0&speed=max");
                work(executor, 30);
                std::this_thread::sleep_for(50ms);
                CHECK(executor.getLatestIterationStats().size() == 31);
            }
            std::_Exit(0);
        }
        int status = -1;
        CHECK(::waitpid(child, &status, 0) == child && status == 0);
    }
    std::this_thread::sleep_for(rest);
    stopped = true;
    for (auto& thread : threads)
    {
        thread.join();
    }
    std::printf("done\n");
}

/// Runs the engines in these folders at the same time, then loads the first one again.
void folders(std::vector<std::string> const& engines)
{
    auto const open = [](std::string const& folder)
    { return std::make_unique<tle::Executor>(folder, tle::ModelType::kDECODER_ONLY, tle::ExecutorConfig()); };
    std::vector<std::unique_ptr<tle::Executor>> executors;
    for (auto const& folder : engines)
    {
        executors.push_back(open(folder));
        work(*executors.back(), 30);
    }
    executors.front().reset();
    executors.front() = open(engines.front());
    work(*executors.front(), 30);
    std::printf("done\n");
}

/// Forks while it serves. The children call _exit() or exit(), or replace themselves with another program. No child may
/// send, lose or repeat records of this process.
void children(std::uint64_t iterations)
{
    auto executor = engineOf("rate=0&speed=max");
    for (std::uint64_t done = 0; done < iterations; done += 100)
    {
        std::this_thread::sleep_for(10ms); // the preload must drain the ring of 1000 records in time
        work(executor, 100);
        auto const child = ::fork();
        if (child == 0)
        {
            ::alarm(60);
            switch (done / 100 % 3)
            {
            case 0: ::_exit(0);
            case 1: ::execl("/bin/true", "true", nullptr); ::_exit(1);
            default: std::exit(0);
            }
        }
        int status = -1;
        CHECK(::waitpid(child, &status, 0) == child && status == 0);
    }
    printTruth(executor, 0);
}

/// Exits without destroying its Executor, as many servers do.
void leaking()
{
    auto* const executor = new tle::Executor(engineOf("rate=0&speed=max"));
    work(*executor, 500);
    printTruth(*executor, 0);
    std::exit(0);
}

} // namespace

extern "C" __attribute__((visibility("default"))) int runHost(int count, char** arguments)
{
    std::string const mode = count > 1 ? arguments[1] : "";
    auto const number = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 10000;
    auto const rate = count > 3 ? std::strtod(arguments[3], nullptr) : 1e9;
    std::map<std::string, std::function<void()>> const modes{{"polling", [&] { polling(number, rate); }},
        {"silent", [&] { silent(number); }}, {"children", [&] { children(number); }}, {"late", late},
        {"iterations", iterationsOnly},
        {"errors", errors}, {"moved", moved}, {"idle", [] {}}, {"churn", [] { churn(20, 2s); }},
        {"forks", [] { churn(3, 0s); }}, {"constructors", forkedInConstructors}, {"leaking", leaking},
        {"folders", [&] { folders({arguments + 2, arguments + count}); }}};
    auto const found = modes.find(mode);
    CHECK(found != modes.end());
    found->second();
    std::fflush(stdout);
    while (kControl != nullptr && !requested(".end"))
    {
        std::this_thread::sleep_for(5ms);
    }
    return 0;
}

#if !defined(HOST_IS_A_PLUGIN)
int main(int count, char** arguments)
{
    return runHost(count, arguments);
}
#endif
