// Tests the Poller of publisher.h.

#include "publishing.h"

#include "tensorrt_llm/sim/truth.h"

#include <condition_variable>
#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <type_traits>

#include <sys/wait.h>

using trtllm_exporter::Poller;

namespace
{

static_assert(!std::is_constructible_v<Poller, Publisher&, tle::Executor>, "a temporary Executor ends before its Poller");
static_assert(!std::is_copy_constructible_v<Poller> && !std::is_move_constructible_v<Poller>);
static_assert(std::is_constructible_v<Poller, Publisher&, tle::Executor&>);

std::unique_ptr<tle::Executor> engine()
{
    tle::ExecutorConfig config;
    config.setRequestStatsMaxIterations(1000);
    return std::make_unique<tle::Executor>("sim:?rate=0&speed=max", tle::ModelType::kDECODER_ONLY, config);
}

/// Runs one request, and waits for the flush record, which the engine writes after the response.
void work(tle::Executor& executor, int iterations)
{
    tle::VecTokens tokens(8);
    std::iota(tokens.begin(), tokens.end(), 1);
    auto const flushes = tensorrt_llm::sim::truth(executor).flushes;
    auto const id = executor.enqueueRequest(tle::Request(tokens, iterations));
    CHECK(executor.awaitResponses(id, 60000ms).size() == 1);
    CHECK(until([&] { return tensorrt_llm::sim::truth(executor).flushes > flushes; }));
}

std::size_t iterationsOf(Listener& listener)
{
    return count(listener.text(), "\"iterLatencyMS\":");
}

void everyRecordIsPublishedOnce()
{
    Listener listener(kPath);
    auto const executor = engine();
    Publisher publisher(kPath, "m", "1", CapturedLog().patient());
    Poller poller(publisher, *executor, 10ms);
    for (int request = 0; request < 5; ++request)
    {
        work(*executor, 150);
        CHECK(until([&] { return iterationsOf(listener) == tensorrt_llm::sim::truth(*executor).recordsPushed; }));
    }
    CHECK(until([&] { return contains(listener.text(), "{\"iter\":740,\"requestStats\":"); }));
    CHECK(count(listener.text(), "\"iter\":740,") == 2);
    CHECK(executor->getLatestIterationStats().empty() && executor->getLatestRequestStats().empty());
}

void stopReadsTheLastRecords()
{
    Listener listener(kPath);
    auto const executor = engine();
    Publisher publisher(kPath, "m", "1", CapturedLog().patient());
    {
        Poller poller(publisher, *executor, std::chrono::milliseconds::max());
        work(*executor, 30);
        std::this_thread::sleep_for(50ms);
        CHECK(listener.connections == 0); // it has read nothing yet
        poller.stop();
        CHECK(until([&] { return iterationsOf(listener) == 31; }));
        work(*executor, 30);
        poller.stop(); // does nothing
    }
    CHECK(executor->getLatestIterationStats().size() == 31);
}

void requestStatisticsMayStayWithTheServer()
{
    Listener listener(kPath);
    auto const executor = engine();
    Publisher publisher(kPath, "m", "1", CapturedLog().patient());
    Poller poller(publisher, *executor, 10ms, false);
    work(*executor, 30);
    poller.stop();
    CHECK(until([&] { return iterationsOf(listener) == 31; }) && !contains(listener.text(), "requestStats"));
    CHECK(!executor->getLatestRequestStats().empty());
}

/// A Poller accepts any class with the methods of an Executor that it calls.
struct Failing
{
    std::atomic<int> calls{0};
    std::atomic<bool> fails{true};

    static bool canEnqueueRequests()
    {
        return true;
    }

    std::deque<tle::IterationStats> getLatestIterationStats()
    {
        ++calls;
        if (fails)
        {
            throw std::runtime_error("it is broken\n1 0x7f stack\n");
        }
        return std::deque<tle::IterationStats>(1);
    }

    static std::deque<tle::RequestStatsPerIteration> getLatestRequestStats()
    {
        throw 7; // not a std::exception
    }
};

void exceptionsAreLoggedOnceAndPollingContinues()
{
    CapturedLog const log;
    Listener listener(kPath);
    Failing executor;
    Publisher publisher(kPath, "m", "1", log.options());
    {
        Poller poller(publisher, executor, 1ms);
        CHECK(until([&] { return executor.calls > 5; }));
        CHECK(log.all() == "cannot read statistics: it is broken\n");
        executor.fails = false;
        CHECK(until([&] { return iterationsOf(listener) > 5; }));
    }
    CHECK(count(log.all(), "cannot read") == 1);
    CapturedLog const other;
    Publisher second(kPath, "m", "2", other.options());
    Poller poller(second, executor, 1ms);
    CHECK(until([&] { return contains(other.all(), "cannot read statistics: an exception that is not a std::exception"); }));
}

void throwingLogDoesNotEndTheHost()
{
    Failing executor;
    PublisherOptions options;
    options.log = [](std::string_view) { throw std::runtime_error("no log"); };
    Publisher publisher(kPath, "m", "1", options);
    Poller poller(publisher, executor, 1ms);
    CHECK(until([&] { return executor.calls > 5; }));
}

/// An Executor whose statistics call returns only when the test allows it.
class Blocking
{
public:
    bool canEnqueueRequests()
    {
        std::lock_guard const lock(mMutex);
        ++mChecks;
        return !mShutDown;
    }

    std::deque<tle::IterationStats> getLatestIterationStats()
    {
        std::unique_lock lock(mMutex);
        ++mCalls;
        mChanged.wait(lock, [this] { return mReleased; });
        return std::deque<tle::IterationStats>(3);
    }

    static std::deque<tle::RequestStatsPerIteration> getLatestRequestStats()
    {
        return {};
    }

    void release()
    {
        std::lock_guard const lock(mMutex);
        mReleased = true;
        mChanged.notify_all();
    }

    void shutdown()
    {
        std::lock_guard const lock(mMutex);
        mShutDown = true;
    }

    int calls()
    {
        std::lock_guard const lock(mMutex);
        return mCalls;
    }

    int checks()
    {
        std::lock_guard const lock(mMutex);
        return mChecks;
    }

private:
    std::mutex mMutex;
    std::condition_variable mChanged;
    int mCalls{0};
    int mChecks{0};
    bool mReleased{false};
    bool mShutDown{false};
};

void stopWaitsForARunningCall()
{
    Blocking executor;
    Publisher publisher(kPath, "m", "1", CapturedLog().options());
    Poller poller(publisher, executor, 1ms);
    CHECK(until([&] { return executor.calls() == 1; }));
    std::atomic<bool> stopped{false};
    std::thread stopping(
        [&]
        {
            poller.stop();
            stopped = true;
        });
    std::this_thread::sleep_for(50ms); // a correct stop() passes whether or not it has started by then
    CHECK(!stopped);
    executor.release();
    stopping.join();
    CHECK(stopped);
}

void executorThatWasShutDownIsNotCalledAgain()
{
    CapturedLog const log;
    Listener listener(kPath);
    Blocking executor;
    executor.release();
    Publisher publisher(kPath, "m", "1", log.options());
    Poller poller(publisher, executor, 1ms);
    CHECK(until([&] { return executor.calls() > 3; }));
    executor.shutdown();
    CHECK(until([&] { return contains(log.all(), "cannot read statistics: the executor has been shut down, or"); }));
    auto const checks = executor.checks();
    auto const calls = executor.calls();
    poller.stop();
    CHECK(executor.checks() == checks && executor.calls() == calls && count(log.all(), "cannot read") == 1);
}

void realExecutorMayBeShutDownFirst()
{
    CapturedLog const log;
    auto const executor = engine();
    Publisher publisher(kPath, "m", "1", log.options());
    Poller poller(publisher, *executor, 1ms);
    work(*executor, 10);
    executor->shutdown();
    // If the shutdown happens between canEnqueueRequests() and the drain, the log has the Executor's own message.
    CHECK(until([&] { return contains(log.all(), "shut down") || contains(log.all(), "Shutdown called"); }));
}

/// Has `full` records at each of the first `busyCalls` calls, and none later.
struct Counting
{
    int busyCalls;
    std::size_t full = 300;
    std::atomic<int> calls{0};

    static bool canEnqueueRequests()
    {
        return true;
    }

    std::deque<tle::IterationStats> getLatestIterationStats()
    {
        return std::deque<tle::IterationStats>(++calls <= busyCalls ? full : 0);
    }

    static std::deque<tle::RequestStatsPerIteration> getLatestRequestStats()
    {
        return {};
    }
};

void busyEngineIsPolledMoreOften()
{
    CHECK(onceInFive(
        []
        {
            Counting quiet{1000, 250};
            Counting calmed{9};
            Counting busy{1000};
            Counting small{1000, 250};
            Publisher publisher(kPath, "m", "1", CapturedLog().options());
            Poller const polls[]{{publisher, quiet, 400ms}, {publisher, calmed, 400ms}, {publisher, busy, 400ms},
                {publisher, small, 400ms, true, 900}};
            CHECK(until([&] { return busy.calls >= 12; }));
            auto const rare = quiet.calls <= 4;
            // After its busy calls, the pause of this engine grows to 400 ms again. Meanwhile the other one pauses 1 ms.
            return until([&] { return busy.calls >= 500 && small.calls >= 500; }) && rare && calmed.calls < 100;
        }));
}

/// The signals that the thread with this name blocks, in hexadecimal digits.
std::string blockedBy(std::string const& thread)
{
    for (auto const& task : std::filesystem::directory_iterator("/proc/self/task"))
    {
        std::string name;
        std::getline(std::ifstream(task.path() / "comm"), name);
        std::ifstream status(task.path() / "status");
        for (std::string line; name == thread && std::getline(status, line);)
        {
            if (line.rfind("SigBlk:\t", 0) == 0)
            {
                return line.substr(8);
            }
        }
    }
    return "";
}

void threadHasANameAndBlocksSignals()
{
    Counting executor{0};
    Publisher publisher(kPath, "m", "1", CapturedLog().options());
    Poller const poller(publisher, executor, 1ms);
    CHECK(until([&] { return executor.calls > 0; })); // glibc blocks all signals while it starts a thread
    auto const blocked = std::stoull("0" + blockedBy("trtllm-poll"), nullptr, 16);
    for (auto const signal : {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGPROF, SIGCHLD})
    {
        CHECK((blocked >> (signal - 1) & 1) == 1);
    }
    for (auto const crash : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) // the host may report crashes
    {
        CHECK((blocked >> (crash - 1) & 1) == 0);
    }
}

[[maybe_unused]] void forkedChildNeedsItsOwnPoller()
{
    Listener listener(kPath);
    auto const executor = engine();
    Publisher publisher(kPath, "m", "1", CapturedLog().patient());
    auto poller = std::make_unique<Poller>(publisher, *executor, 1ms); // holds its mutex during some of these forks
    for (int fork = 0; fork < 20; ++fork)
    {
        auto const child = ::fork();
        if (child == 0)
        {
            ::alarm(60);
            poller->stop();
            poller.reset();
            std::string const own = kPath + ".child";
            Listener there(own);
            Blocking mine;
            mine.release();
            Publisher publisherOfChild(own, "m", "1", CapturedLog().options());
            Poller const pollerOfChild(publisherOfChild, mine, 1ms);
            std::_Exit(until([&] { return iterationsOf(there) >= 3; }) ? 0 : 1);
        }
        int status = -1;
        CHECK(::waitpid(child, &status, 0) == child && status == 0);
    }
    work(*executor, 30);
    poller.reset();
    CHECK(until([&] { return iterationsOf(listener) == 31; }));
}

} // namespace

void testPoller()
{
    everyRecordIsPublishedOnce();
    stopReadsTheLastRecords();
    requestStatisticsMayStayWithTheServer();
    exceptionsAreLoggedOnceAndPollingContinues();
    throwingLogDoesNotEndTheHost();
    stopWaitsForARunningCall();
    executorThatWasShutDownIsNotCalledAgain();
    realExecutorMayBeShutDownFirst();
    busyEngineIsPolledMoreOften();
    threadHasANameAndBlocksSignals();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // for the reason in churn() of host.cc
    forkedChildNeedsItsOwnPoller();
#endif
}
