#include "tee.h"

#include "symbols.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <new>
#include <utility>

namespace trtllm_preload
{
namespace
{

static_assert(sizeof(tle::Executor) == sizeof(void*), "an Executor that is more than its std::unique_ptr<Impl>");

/// At rest ten wake-ups a second; never so rare that a ring fills by more than a quarter, if that can be helped.
constexpr double kMostPauseMs = 100.0;
constexpr double kLeastPauseMs = 1.0;
constexpr std::chrono::milliseconds kFarewell{250};

Real<Iterations(void*)> realIterations(TRTLLM_EXECUTOR("23getLatestIterationStatsEv"));
Real<Requests(void*)> realRequests(TRTLLM_EXECUTOR("21getLatestRequestStatsEv"));
Real<bool(void const*)> realCanEnqueue("_ZNK12tensorrt_llm8executor8Executor18canEnqueueRequestsEv");

// No local variables that are made with their first use, and one handler of exit for parent and child: a child that was
// forked just then would wait for ever for its parent's guard, or for the C library's list of handlers.
std::atomic<Tee*> gTee{nullptr};
std::atomic<bool> gSwitchedOff{false};
std::atomic<bool> gAtExit{false};

std::string variable(char const* name, char const* otherwise)
{
    auto const* const value = std::getenv(name);
    return value == nullptr ? otherwise : value;
}

/// "a,b" → {a, b}
std::vector<std::string> split(std::string const& list)
{
    std::vector<std::string> items;
    for (std::size_t begin = 0; begin <= list.size();)
    {
        auto const end = std::min(list.find(',', begin), list.size());
        items.push_back(list.substr(begin, end - begin));
        begin = end + 1;
    }
    return items;
}

std::string sockets()
{
    return variable("TRTLLM_EXPORTER_SOCKET", "/run/trtllm-exporter/ingest.sock");
}

void* implementationOf(void const* executor)
{
    return executor == nullptr ? nullptr : *static_cast<void* const*>(executor);
}

std::size_t capacity(std::int32_t configured)
{
    return configured < 0 ? Kept<tle::IterationStats>::kUnbounded : static_cast<std::size_t>(configured);
}

} // namespace

template <class Record>
void Outlet::publish(Record const& record) noexcept
{
    auto* open = publisher.load(std::memory_order_acquire);
    if (open == nullptr)
    {
        open = new (std::nothrow) trtllm_exporter::Publisher(path, model);
        publisher.store(open, std::memory_order_release);
    }
    if (open != nullptr)
    {
        open->publish(record);
    }
}

template <class Record>
void Kept<Record>::keep(std::deque<Record>&& fresh)
{
    // The exporter has them already. Without memory to keep them the host loses some, and nothing else goes wrong.
    if (records.empty())
    {
        records.swap(fresh);
    }
    else
    {
        records.insert(records.end(), std::make_move_iterator(fresh.begin()), std::make_move_iterator(fresh.end()));
    }
    while (records.size() > capacity)
    {
        records.pop_front();
    }
}

template <class Record>
std::deque<Record> Kept<Record>::handOver(std::deque<Record>&& fresh)
{
    if (records.empty())
    {
        return std::move(fresh);
    }
    keep(std::move(fresh));
    return std::exchange(records, {});
}

template struct Kept<tle::IterationStats>;
template struct Kept<tle::RequestStatsPerIteration>;

void Engine::publish(Iterations const& fresh) noexcept
{
    for (auto const& record : fresh)
    {
        if (outlet != nullptr)
        {
            outlet->publish(record);
        }
    }
}

void Engine::publish(Requests const& fresh) noexcept
{
    for (auto const& record : fresh)
    {
        if (outlet != nullptr && outlet->requests)
        {
            outlet->publish(record);
        }
    }
}

double Engine::drain() noexcept
{
    auto* const mayAsk = realCanEnqueue.get();
    auto* const drainIterations = realIterations.get();
    auto* const drainRequests = realRequests.get();
    // The real functions look at nothing of an Executor but its pointer, so this stands in for wherever it is now.
    void* executor = implementation;
    if (implementation == nullptr || mayAsk == nullptr || drainIterations == nullptr || !mayAsk(&executor))
    {
        return 0.0;
    }
    double full = 0.0;
    try
    {
        auto fresh = drainIterations(&executor);
        publish(fresh);
        full = static_cast<double>(fresh.size()) / static_cast<double>(std::max<std::size_t>(iterations.capacity, 1));
        iterations.keep(std::move(fresh));
        if (drainRequests != nullptr && requests.capacity > 0)
        {
            auto rows = drainRequests(&executor);
            publish(rows);
            full = std::max(full, static_cast<double>(rows.size()) / static_cast<double>(requests.capacity));
            requests.keep(std::move(rows));
        }
    }
    catch (...) // NOLINT(bugprone-empty-catch): it shut down just now; the host meets that itself when it asks
    {
    }
    return full;
}

Tee::Tee()
    : mGeneration(trtllm_exporter::detail::Forks::generation())
{
    auto const paths = split(sockets());
    auto const requests = variable("TRTLLM_EXPORTER_REQUEST_STATS", "1") != "0";
    auto const models = split(variable("TRTLLM_EXPORTER_MODEL", "tensorrt_llm"));
    for (std::size_t i = 0; i < paths.size(); ++i)
    {
        auto outlet = std::make_unique<Outlet>();
        outlet->path = paths[i];
        outlet->model = models[std::min(i, models.size() - 1)];
        outlet->requests = requests;
        mOutlets.push_back(std::move(outlet));
    }
}

Tee* Tee::current() noexcept
{
    auto* tee = gTee.load(std::memory_order_acquire);
    if (tee != nullptr && tee->mGeneration == trtllm_exporter::detail::Forks::generation())
    {
        return tee;
    }
    try
    {
        if (gSwitchedOff.load(std::memory_order_relaxed) || sockets().empty())
        {
            gSwitchedOff.store(true, std::memory_order_relaxed);
            return nullptr;
        }
        // Never freed: other threads of the host may be in a hook until the very end. A parent's is left alone.
        auto fresh = std::make_unique<Tee>();
        if (gTee.compare_exchange_strong(tee, fresh.get()))
        {
            if (!gAtExit.exchange(true))
            {
                std::atexit(&atExit);
            }
            return fresh.release();
        }
        return tee;
    }
    catch (...)
    {
        return nullptr;
    }
}

void Tee::constructed(void const* executor, std::int32_t iterations, std::int32_t requests) noexcept
{
    try
    {
        // One with this address can only have ended behind our back.
        forget(implementationOf(executor));
        track(implementationOf(executor), capacity(iterations), capacity(requests));
    }
    catch (...) // NOLINT(bugprone-empty-catch): out of memory; the host has its Executor, unobserved
    {
    }
}

std::shared_ptr<Engine> Tee::called(void const* executor) noexcept
{
    auto* const implementation = implementationOf(executor);
    if (implementation == nullptr)
    {
        return nullptr;
    }
    try
    {
        {
            std::lock_guard const lock(mMutex);
            for (auto const& engine : mEngines)
            {
                if (engine->implementation == implementation)
                {
                    return engine;
                }
            }
        }
        // An Executor that came through a fork may hold a locked mutex: its owner may try, our poller must not.
        if (mGeneration != 0)
        {
            return nullptr;
        }
        // Upstream's default, where the constructor is not one of those we know.
        return track(implementation, 1000, 1000);
    }
    catch (...)
    {
        return nullptr;
    }
}

std::shared_ptr<Engine> Tee::track(void* implementation, std::size_t iterations, std::size_t requests)
{
    if (implementation == nullptr)
    {
        return nullptr;
    }
    auto engine = std::make_shared<Engine>(implementation);
    engine->iterations.capacity = iterations;
    engine->requests.capacity = requests;
    std::lock_guard const lock(mMutex);
    for (auto const& known : mEngines)
    {
        if (known->implementation == implementation)
        {
            return known;
        }
    }
    give(*engine);
    mEngines.push_back(engine);
    start();
    return engine;
}

void Tee::forget(void* implementation)
{
    std::lock_guard const lock(mMutex);
    auto const found = std::find_if(mEngines.begin(), mEngines.end(),
        [implementation](auto const& known) { return known->implementation == implementation; });
    if (found != mEngines.end())
    {
        if ((*found)->outlet != nullptr)
        {
            (*found)->outlet->taken = false;
        }
        mEngines.erase(found);
    }
}

void Tee::give(Engine& engine)
{
    for (auto const& outlet : mOutlets)
    {
        if (!outlet->taken)
        {
            outlet->taken = true;
            engine.outlet = outlet.get();
            return;
        }
    }
    if (std::exchange(mToldTooMany, true))
    {
        return;
    }
    trtllm_exporter::logToStderr("one Executor more than sockets in TRTLLM_EXPORTER_SOCKET: it is not published; name "
                                 "one socket for each, separated by commas");
}

void Tee::ending(void const* executor, bool destroyed) noexcept
{
    auto* const implementation = implementationOf(executor);
    std::shared_ptr<Engine> engine;
    {
        std::lock_guard const lock(mMutex);
        auto const found = std::find_if(mEngines.begin(), mEngines.end(),
            [implementation](auto const& known) { return known->implementation == implementation; });
        if (implementation == nullptr || found == mEngines.end())
        {
            return;
        }
        engine = *found;
        if (destroyed)
        {
            mEngines.erase(found);
        }
    }
    std::lock_guard const lock(engine->mutex);
    engine->drain();
    if (destroyed)
    {
        engine->implementation = nullptr;
        std::lock_guard const outlets(mMutex);
        if (engine->outlet != nullptr)
        {
            engine->outlet->taken = false;
        }
    }
}

void Tee::start()
{
    if (mRunning || mStopped)
    {
        return;
    }
    mRunning = trtllm_exporter::detail::startThread(
        mThread, "trtllm-preload",
        [](void* self) -> void*
        {
            static_cast<Tee*>(self)->poll();
            return nullptr;
        },
        this);
}

void Tee::poll()
{
    auto pauseMs = kMostPauseMs / 4;
    while (true)
    {
        {
            std::unique_lock lock(mMutex);
            if (mWake.wait_for(
                    lock, std::chrono::duration<double, std::milli>(pauseMs), [this] { return mStopped; }))
            {
                return;
            }
        }
        double fullest = 0.0;
        tick(fullest);
        // Twice too often costs little; a quarter full leaves a factor of four for a burst.
        pauseMs = std::clamp(fullest > 0.25 ? pauseMs / 2 : pauseMs * 1.25, kLeastPauseMs, kMostPauseMs);
    }
}

void Tee::tick(double& fullest)
{
    std::vector<std::shared_ptr<Engine>> engines;
    {
        std::lock_guard const lock(mMutex);
        engines = mEngines;
    }
    for (auto const& engine : engines)
    {
        if (!engine->hostDrains.exchange(false))
        {
            std::lock_guard const lock(engine->mutex);
            fullest = std::max(fullest, engine->drain());
        }
    }
}

void Tee::stop()
{
    {
        std::lock_guard const lock(mMutex);
        mStopped = true;
        if (!mRunning)
        {
            return;
        }
    }
    mWake.notify_all();
    timespec until{};
    ::clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    // A poll that hangs in an engine must not hang the host's exit.
    if (::pthread_timedjoin_np(mThread, nullptr, &until) != 0)
    {
        return;
    }
    double ignored = 0.0;
    tick(ignored);
    for (auto const& outlet : mOutlets)
    {
        auto* const publisher = outlet->publisher.load(std::memory_order_acquire);
        if (publisher != nullptr && publisher->connected())
        {
            publisher->flush(kFarewell);
        }
    }
}

void Tee::atExit()
{
    auto* const tee = gTee.load(std::memory_order_acquire);
    if (tee != nullptr && tee->mGeneration == trtllm_exporter::detail::Forks::generation())
    {
        tee->stop();
    }
}

} // namespace trtllm_preload
