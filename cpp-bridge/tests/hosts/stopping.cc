// Tests the end of an Exporter and of its Executor.

#include "exporting.h"

namespace
{

void stopIsFastWithAnOpenConnection()
{
    auto const executor = engine();
    CHECK(onceInFive(
        [&]
        {
            auto exporter = Exporter::attach(executor, CapturedLog().options("127.0.0.1:0"));
            auto const idle = connectTo(exporter.address());
            CHECK(::send(idle, "GET /metr", 9, MSG_NOSIGNAL) == 9);
            auto const stopping = took([&] { exporter.stop(); });
            ::close(idle);
            return stopping < 3s;
        }));
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

void stopLeavesABlockedCallOfASharedExecutorBehind()
{
    CapturedLog const log;
    auto const executor = std::make_shared<Blocking>();
    auto options = log.options("127.0.0.1:0");
    options.stopTimeout = 50ms;
    auto exporter = Exporter::attach(executor, options);
    CHECK(until([&] { return executor->calls() == 1; }));
    exporter.stop(); // returns although the call is still blocked
    CHECK(executor->calls() == 1 && contains(log.all(), "does not wait for the executor's statistics any longer"));
    CHECK(executor.use_count() == 2);
    executor->release();
    CHECK(until([&] { return executor.use_count() == 1; }));
    CHECK(executor->calls() == 1); // no further call after stop()
}

void stopWaitsForARunningCallOfAReferencedExecutor()
{
    CapturedLog const log;
    Blocking executor;
    auto options = log.options("127.0.0.1:0");
    options.stopTimeout = 50ms;
    auto exporter = Exporter::attach(executor, options);
    CHECK(until([&] { return executor.calls() == 1; }));
    std::atomic<bool> stopped{false};
    std::thread stopping(
        [&]
        {
            exporter.stop();
            stopped = true;
        });
    CHECK(until([&] { return contains(log.all(), "stop() waits until the executor returns its statistics"); }));
    CHECK(!stopped);
    executor.release();
    stopping.join();
    CHECK(executor.calls() == 1); // a second slow call would double the wait
}

void referencedExecutorIsNotUsedAfterItsShutdown()
{
    CapturedLog const log;
    Blocking executor;
    executor.release();
    auto exporter = Exporter::attach(executor, log.options("127.0.0.1:0"));
    CHECK(until([&] { return executor.calls() > 3; }));
    executor.shutdown();
    CHECK(until([&] { return contains(log.all(), "the executor has been shut down"); }));
    auto const checks = executor.checks();
    exporter.stop(); // polls a last time, but not this Executor
    CHECK(executor.checks() == checks);
}

} // namespace

void testStopping()
{
    stopIsFastWithAnOpenConnection();
    stopLeavesABlockedCallOfASharedExecutorBehind();
    stopWaitsForARunningCallOfAReferencedExecutor();
    referencedExecutorIsNotUsedAfterItsShutdown();
}
