// Tests the C++ side of the bridge with threads and failures. sanitize.sh runs it with the sanitizers. It also makes
// concurrent calls that Rust's &mut does not allow.

#include "check.h"
#include "records.h"
#include "trtllm_bridge/bridge.h"

#include "tensorrt_llm/common/tllmException.h"

#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

using namespace trtllm_bridge;
namespace tle = tensorrt_llm::executor;

namespace
{

std::unique_ptr<HostedExecutor> hosted(char const* more, std::int32_t ring = 1000)
{
    return std::make_unique<HostedExecutor>(std::string("sim:?speed=max&") + more, RingSizes{ring, ring});
}

LoadConfig endless()
{
    return LoadConfig{8, 100, 6, std::numeric_limits<std::uint64_t>::max()};
}

template <class Reached>
void waitUntil(Reached const& reached)
{
    auto const deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (!reached())
    {
        CHECK(std::chrono::steady_clock::now() < deadline);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

std::vector<IterationStats> drain(HostedExecutor& executor)
{
    std::vector<IterationStats> records(64);
    records.resize(executor.drainIterations(records.data(), records.size()));
    return records;
}

std::size_t requestsOfNextIteration(HostedExecutor& executor)
{
    std::size_t count = 0;
    static_cast<void>(executor.nextRequests([&count](auto const& record) { count = record.requestStats.size(); }));
    return count;
}

void tenDrainsRaceAShutdown()
{
    for (int round = 0; round < 20; ++round)
    {
        tle::ExecutorConfig config;
        config.setRequestStatsMaxIterations(100);
        tle::Executor executor("sim:?rate=100&speed=max", tle::ModelType::kDECODER_ONLY, config);
        std::atomic<int> rejected{0};
        std::vector<std::thread> drains;
        for (int i = 0; i < 10; ++i)
        {
            drains.emplace_back(
                [&executor, &rejected, i]
                {
                    try
                    {
                        while (true)
                        {
                            static_cast<void>(i % 2 == 0 ? executor.getLatestIterationStats().size()
                                                         : executor.getLatestRequestStats().size());
                            static_cast<void>(executor.canEnqueueRequests());
                        }
                    }
                    catch (tensorrt_llm::common::TllmException const& error)
                    {
                        rejected += contains(error.what(), "Shutdown called") ? 1 : 0;
                    }
                });
        }
        executor.shutdown();
        for (auto& drain : drains)
        {
            drain.join();
        }
        CHECK(rejected == 10);
    }
}

void loadRunsDuringDrainsOnAnotherThread()
{
    auto const executor = hosted("rate=20");
    executor->startLoad(endless());
    std::uint64_t finished = 0;
    std::thread draining(
        [&]
        {
            while (finished < 300)
            {
                static_cast<void>(drain(*executor));
                static_cast<void>(requestsOfNextIteration(*executor));
                FinishedRequest requests[32];
                finished += executor->drainFinished(requests, 32);
            }
        });
    draining.join();
    CHECK(finished >= 300);
}

void overflowingRingKeepsTheNewestRecords()
{
    auto const executor = hosted("rate=100&requests=200", 8);
    waitUntil([&] { return executor->truth().requests_completed == 200; });
    auto const records = drain(*executor);
    CHECK(records.size() == 8);
    CHECK(records.back().iter == static_cast<std::int64_t>(executor->truth().iterations));
}

void executorCanBeDestroyedWhileItRuns()
{
    for (char const* more : {"rate=100", "rate=0&iterations=2", "rate=100&spec_draft_len=3&disagg=1"})
    {
        for (bool shutDown : {false, true})
        {
            auto const executor = hosted(more);
            executor->startLoad(endless());
            // An engine that hangs after its second iteration accepts no more requests, so it may have received only
            // the first one.
            waitUntil([&] { return executor->truth().requests_arrived >= 1; });
            static_cast<void>(drain(*executor));
            if (shutDown)
            {
                executor->shutdown();
                CHECK(contains(thrownBy([&] { executor->startLoad(endless()); }), "a load already"));
                CHECK(thrownBy([&] { executor->shutdown(); }) != "");
            }
        }
    }
}

void executorThatAlwaysThrowsCanBeDestroyed()
{
    for (char const* more : {"throws=standard", "throws=foreign"})
    {
        auto const executor = hosted(more);
        int thrown = 0;
        auto const attempt = [&thrown](auto const& call)
        {
            try
            {
                call();
            }
            catch (...)
            {
                ++thrown;
            }
        };
        attempt([&] { static_cast<void>(executor->canEnqueueRequests()); });
        attempt([&] { static_cast<void>(drain(*executor)); });
        attempt([&] { static_cast<void>(requestsOfNextIteration(*executor)); });
        attempt([&] { executor->startLoad(endless()); });
        attempt([&] { executor->shutdown(); });
        CHECK(thrown == 5);
    }
}

void failedConstructionLeaksNothing()
{
    CHECK(contains(thrownBy([] { hosted("rate=fast"); }), "rate=fast"));
    CHECK(contains(thrownBy([] { hosted("", -1); }), "MaxIterations >= 0"));
}

} // namespace

int main()
{
    tenDrainsRaceAShutdown();
    loadRunsDuringDrainsOnAnotherThread();
    overflowingRingKeepsTheNewestRecords();
    executorCanBeDestroyedWhileItRuns();
    executorThatAlwaysThrowsCanBeDestroyed();
    failedConstructionLeaksNothing();
}
