#include "tee.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <new>
#include <utility>

namespace trtllm_preload
{
namespace
{

static_assert(sizeof(tle::Executor) == sizeof(void*), "Executor must hold nothing but its std::unique_ptr<Impl>");

/// An idle engine costs ten wake-ups a second. Busy engines are polled before a quarter of their ring is full, as long
/// as the minimum pause allows it.
constexpr double kMaxPauseMs = 100.0;
constexpr double kMinPauseMs = 1.0;
constexpr std::chrono::milliseconds kFlushTimeout{250};

// These are globals, not static local variables, and atexit() is called once for parent and child. Otherwise a child
// forked at the wrong moment would wait forever for a lock of its parent: the guard of the variable, or the lock of the
// C library's list of exit handlers.
std::atomic<Tee*> gTee{nullptr};
std::atomic<bool> gDisabled{false};
std::atomic<bool> gAtExit{false};

std::string variable(char const* name, char const* fallback)
{
    auto const* const value = std::getenv(name);
    return value == nullptr ? fallback : value;
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
    return configured < 0 ? Backlog<tle::IterationStats>::kUnbounded : static_cast<std::size_t>(configured);
}

} // namespace

template <class Record>
void Destination::publish(Record const& record) noexcept
{
    auto* current = publisher.load(std::memory_order_acquire);
    if (current == nullptr)
    {
        current = new (std::nothrow) trtllm_exporter::Publisher(path, model);
        publisher.store(current, std::memory_order_release);
    }
    if (current != nullptr)
    {
        current->publish(record);
    }
}

template <class Record>
void Backlog<Record>::append(std::deque<Record>&& fresh)
{
    // These records are published already. If there is no memory here, the host loses records but the exporter does
    // not.
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
std::deque<Record> Backlog<Record>::takeWith(std::deque<Record>&& fresh)
{
    if (records.empty())
    {
        return std::move(fresh);
    }
    append(std::move(fresh));
    return std::exchange(records, {});
}

template struct Backlog<tle::IterationStats>;
template struct Backlog<tle::RequestStatsPerIteration>;

void Engine::publish(Iterations const& fresh) noexcept
{
    for (auto const& record : fresh)
    {
        if (destination != nullptr)
        {
            destination->publish(record);
        }
    }
}

void Engine::publish(Requests const& fresh) noexcept
{
    for (auto const& record : fresh)
    {
        if (destination != nullptr && destination->publishRequests)
        {
            destination->publish(record);
        }
    }
}

double Engine::drain() noexcept
{
    auto* const canEnqueue = sdk.get<bool(void const*)>(Function::kCanEnqueue);
    auto* const drainIterations = sdk.get<Iterations(void*)>(Function::kIterations);
    auto* const drainRequests = sdk.get<Requests(void*)>(Function::kRequests);
    // The real functions read only the pointer inside the Executor, so a copy of the pointer works as an Executor. The
    // host may have moved the original.
    void* executor = implementation;
    if (implementation == nullptr || !sdk.matches() || canEnqueue == nullptr || drainIterations == nullptr
        || !canEnqueue(&executor))
    {
        return 0.0;
    }
    double full = 0.0;
    try
    {
        auto fresh = drainIterations(&executor);
        if (!sdk.canRead(fresh))
        {
            // Neither empty() nor the swap of two std::deques touches a record.
            owesRecords = !fresh.empty();
            hasUnreadable = true;
            unreadable->swap(fresh);
            return 0.0;
        }
        publish(fresh);
        full = static_cast<double>(fresh.size()) / static_cast<double>(std::max<std::size_t>(iterations.capacity, 1));
        iterations.append(std::move(fresh));
        if (drainRequests != nullptr && requests.capacity > 0 && sdk.canReadRequests())
        {
            auto rows = drainRequests(&executor);
            publish(rows);
            full = std::max(full, static_cast<double>(rows.size()) / static_cast<double>(requests.capacity));
            requests.append(std::move(rows));
        }
    }
    catch (...) // NOLINT(bugprone-empty-catch): the Executor shut down meanwhile; the host's own calls report it
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
        auto destination = std::make_unique<Destination>();
        destination->path = paths[i];
        destination->model = models[std::min(i, models.size() - 1)];
        destination->publishRequests = requests;
        mDestinations.push_back(std::move(destination));
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
        if (gDisabled.load(std::memory_order_relaxed) || sockets().empty())
        {
            gDisabled.store(true, std::memory_order_relaxed);
            return nullptr;
        }
        // Never freed, because other threads of the host may run a hook until the process ends. After a fork, the child
        // does not free the parent's Tee either.
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

void Tee::constructed(void const* executor, Sdk& sdk, std::int32_t iterations, std::int32_t requests) noexcept
{
    try
    {
        // An Executor with the same address must have been destroyed without a hooked call.
        forget(implementationOf(executor));
        track(implementationOf(executor), sdk, capacity(iterations), capacity(requests));
    }
    catch (...) // NOLINT(bugprone-empty-catch): out of memory; the host's Executor works but is not published
    {
    }
}

std::shared_ptr<Engine> Tee::find(void const* executor) noexcept
{
    auto* const implementation = implementationOf(executor);
    std::lock_guard const lock(mMutex);
    auto const found = std::find_if(mEngines.begin(), mEngines.end(),
        [implementation](auto const& known) { return known->implementation == implementation; });
    return found == mEngines.end() ? nullptr : *found;
}

std::shared_ptr<Engine> Tee::adopt(void const* executor, Sdk& sdk) noexcept
{
    // The child of a fork may have copied an Executor with a locked mutex. The polling thread must not call it.
    if (mGeneration != 0)
    {
        return nullptr;
    }
    try
    {
        // The constructor was not hooked, so the ring sizes are unknown. These are TensorRT-LLM's defaults.
        return track(implementationOf(executor), sdk, 1000, 1000);
    }
    catch (...)
    {
        return nullptr;
    }
}

std::shared_ptr<Engine> Tee::track(void* implementation, Sdk& sdk, std::size_t iterations, std::size_t requests)
{
    if (implementation == nullptr || !sdk.matches())
    {
        return nullptr;
    }
    auto engine = std::make_shared<Engine>(implementation, sdk);
    engine->iterations.capacity = iterations;
    engine->requests.capacity = requests;
    {
        std::lock_guard const lock(mMutex);
        for (auto const& known : mEngines)
        {
            if (known->implementation == implementation)
            {
                return known;
            }
        }
        assignDestination(*engine);
        mEngines.push_back(engine);
    }
    // The first drain also checks that the records are readable. A new Executor usually has none yet.
    std::lock_guard const engineLock(engine->mutex);
    engine->drain();
    std::lock_guard const lock(mMutex);
    if (sdk.matches())
    {
        start();
    }
    else if (auto* const unused = std::exchange(engine->destination, nullptr))
    {
        unused->inUse = false;
    }
    return engine;
}

void Tee::forget(void* implementation)
{
    std::lock_guard const lock(mMutex);
    auto const found = std::find_if(mEngines.begin(), mEngines.end(),
        [implementation](auto const& known) { return known->implementation == implementation; });
    if (found != mEngines.end())
    {
        if ((*found)->destination != nullptr)
        {
            (*found)->destination->inUse = false;
        }
        mEngines.erase(found);
    }
}

void Tee::assignDestination(Engine& engine)
{
    for (auto const& destination : mDestinations)
    {
        if (!destination->inUse)
        {
            destination->inUse = true;
            engine.destination = destination.get();
            return;
        }
    }
    if (std::exchange(mLoggedTooMany, true))
    {
        return;
    }
    trtllm_exporter::logToStderr("an Executor is not published: there are more Executors than sockets in "
                                 "TRTLLM_EXPORTER_SOCKET; list one socket per Executor, separated by commas");
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
        std::lock_guard const listLock(mMutex);
        if (engine->destination != nullptr)
        {
            engine->destination->inUse = false;
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
    auto pauseMs = kMaxPauseMs / 4;
    while (true)
    {
        {
            std::unique_lock lock(mMutex);
            if (mWake.wait_for(lock, std::chrono::duration<double, std::milli>(pauseMs), [this] { return mStopped; }))
            {
                return;
            }
        }
        double fullest = 0.0;
        tick(fullest);
        // Polling twice too often costs little. A ring that is a quarter full still has room for a burst.
        pauseMs = std::clamp(fullest > 0.25 ? pauseMs / 2 : pauseMs * 1.25, kMinPauseMs, kMaxPauseMs);
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
    // If a poll hangs in the engine, the host must still exit.
    if (::pthread_timedjoin_np(mThread, nullptr, &until) != 0)
    {
        return;
    }
    double ignored = 0.0;
    tick(ignored);
    for (auto const& destination : mDestinations)
    {
        auto* const publisher = destination->publisher.load(std::memory_order_acquire);
        if (publisher != nullptr && publisher->connected())
        {
            publisher->flush(kFlushTimeout);
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
