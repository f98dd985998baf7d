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

/// Ten wake-ups a second for an idle engine.
constexpr std::chrono::milliseconds kLongestPause{100};
constexpr std::chrono::milliseconds kFlushTimeout{250};
/// How long the connection of a destroyed Executor waits for an Executor with the same name.
constexpr std::chrono::seconds kRetirement{10};

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

/// Splits "a,b" into {a, b}, and "" into {}.
std::vector<std::string> split(std::string const& list)
{
    std::vector<std::string> items;
    for (std::size_t begin = 0; begin <= list.size() && !list.empty();)
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

Tee::Tee()
    : mGeneration(trtllm_exporter::detail::Forks::generation())
    , mSockets(split(sockets()))
    , mModels(split(variable("TRTLLM_EXPORTER_MODEL", "")))
    , mVersions(split(variable("TRTLLM_EXPORTER_MODEL_VERSION", "1")))
    , mRequestStats(variable("TRTLLM_EXPORTER_REQUEST_STATS", "1") != "0")
{
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
        // A Tee is never freed, because other threads of the host may run a hook until the process ends. After a fork,
        // the child does not free the parent's Tee either.
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

void Tee::constructed(void const* executor, Sdk& sdk, std::int32_t iterations, std::int32_t requests,
    std::filesystem::path const* engine) noexcept
{
    try
    {
        // An Executor with the same address must have been destroyed without a hooked call.
        if (auto const engine = known(implementationOf(executor), true))
        {
            std::lock_guard const engineLock(engine->mutex); // a poll may be publishing
            engine->implementation = nullptr;
            std::lock_guard const lock(mMutex);
            retire(*engine);
        }
        track(implementationOf(executor), sdk, capacity(iterations), capacity(requests),
            engine == nullptr ? trtllm_exporter::EngineName()
                              : trtllm_exporter::EngineName::ofEngine(
                                  std::filesystem::absolute(*engine).lexically_normal().native()));
    }
    catch (...) // NOLINT(bugprone-empty-catch): out of memory; the host's Executor works but is not published
    {
    }
}

std::shared_ptr<Engine> Tee::find(void const* executor) noexcept
{
    return known(implementationOf(executor), false);
}

std::shared_ptr<Engine> Tee::known(void* implementation, bool remove) noexcept
{
    std::lock_guard const lock(mMutex);
    auto const found = std::find_if(mEngines.begin(), mEngines.end(),
        [implementation](auto const& known) { return known->implementation == implementation; });
    if (implementation == nullptr || found == mEngines.end())
    {
        return nullptr;
    }
    auto engine = *found;
    if (remove)
    {
        mEngines.erase(found);
    }
    return engine;
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
        // The constructor was not hooked, so the ring sizes are unknown. 1000 is the default for iteration statistics.
        return track(implementationOf(executor), sdk, 1000, 1000, {});
    }
    catch (...)
    {
        return nullptr;
    }
}

std::shared_ptr<Engine> Tee::track(void* implementation, Sdk& sdk, std::size_t iterations, std::size_t requests,
    trtllm_exporter::EngineName const& derived)
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
        assignDestination(*engine, derived);
        mEngines.push_back(engine);
    }
    // The first drain also checks that the records are readable. A new Executor usually has none yet.
    std::lock_guard const engineLock(engine->mutex);
    engine->drain(true);
    std::lock_guard const lock(mMutex);
    if (!sdk.matches())
    {
        retire(*engine);
    }
    else if (mPolling == nullptr && !mStopped)
    {
        mPolling = std::make_unique<trtllm_exporter::detail::PollThread>(kLongestPause, [this] { return poll(); });
    }
    return engine;
}

void Tee::retire(Engine& engine) noexcept
{
    try
    {
        if (engine.destination != nullptr)
        {
            mRetired.emplace_back(); // may throw, but then the engine keeps its destination
            mRetired.back() = {std::move(engine.destination), Clock::now()};
        }
    }
    catch (...) // NOLINT(bugprone-empty-catch): out of memory; the connection closes with the engine
    {
    }
}

void Tee::assignDestination(Engine& engine, trtllm_exporter::EngineName const& derived)
{
    auto const taken = [this](std::size_t number)
    {
        return std::any_of(
            mEngines.begin(), mEngines.end(), [number](auto const& other) { return other->number == number; });
    };
    while (taken(engine.number))
    {
        ++engine.number;
    }
    engine.publishesRequests = mRequestStats;
    auto const of = [&engine](std::vector<std::string> const& list)
    { return list.empty() ? std::string() : list[std::min(engine.number, list.size() - 1)]; };
    auto const socket = of(mSockets);
    auto name = derived;
    if (!mModels.empty())
    {
        name = trtllm_exporter::EngineName(of(mModels), of(mVersions));
        // A second Executor on the same socket cannot have the same chosen name.
        name.derived = engine.number >= std::max(mModels.size(), mSockets.size());
    }
    auto const same = std::find_if(mRetired.begin(), mRetired.end(),
        [&](auto const& retired)
        {
            auto const& known = *retired.destination;
            return known.socket == socket && known.name == name;
        });
    if (same != mRetired.end())
    {
        engine.destination = std::move(same->destination);
        mRetired.erase(same);
        return;
    }
    engine.destination = std::make_unique<Destination>();
    *engine.destination = {socket, name, std::make_unique<trtllm_exporter::Publisher>(socket, name)};
}

/// Called by the polling thread only, because closing a connection can take PublisherOptions::flushTimeout.
void Tee::closeRetired()
{
    std::vector<Retired> closing;
    {
        std::lock_guard const lock(mMutex);
        auto const recent = std::stable_partition(mRetired.begin(), mRetired.end(),
            [now = Clock::now()](auto const& retired) { return now - retired.since > kRetirement; });
        closing.assign(std::make_move_iterator(mRetired.begin()), std::make_move_iterator(recent));
        mRetired.erase(mRetired.begin(), recent);
    }
}

void Tee::ending(void const* executor, bool destroyed) noexcept
{
    auto const engine = known(implementationOf(executor), destroyed);
    if (engine == nullptr)
    {
        return;
    }
    std::lock_guard const lock(engine->mutex);
    engine->drain(true);
    if (destroyed)
    {
        engine->implementation = nullptr;
        std::lock_guard const listLock(mMutex);
        retire(*engine);
    }
}

double Tee::poll() noexcept
{
    double fullest = 0.0;
    try
    {
        std::vector<std::shared_ptr<Engine>> engines;
        {
            std::lock_guard const lock(mMutex);
            engines = mEngines;
        }
        for (auto const& engine : engines)
        {
            std::lock_guard const lock(engine->mutex);
            fullest = std::max(fullest, engine->drain(false));
        }
        closeRetired();
    }
    catch (...) // NOLINT(bugprone-empty-catch): out of memory; the next poll tries again
    {
    }
    return fullest;
}

void Tee::stop()
{
    trtllm_exporter::detail::PollThread* polling = nullptr;
    {
        std::lock_guard const lock(mMutex);
        mStopped = true;
        polling = mPolling.get();
    }
    // The last poll runs on its thread. If it hangs in the engine, the host must still exit.
    if (polling == nullptr || !polling->stopWithin(std::chrono::seconds(1)))
    {
        return;
    }
    std::vector<trtllm_exporter::Publisher*> publishers; // only the polling thread frees them, and it has ended
    {
        std::lock_guard const lock(mMutex);
        for (auto const& engine : mEngines)
        {
            publishers.push_back(engine->destination == nullptr ? nullptr : engine->destination->publisher.get());
        }
        for (auto const& retired : mRetired)
        {
            publishers.push_back(retired.destination->publisher.get());
        }
    }
    auto const deadline = Clock::now() + kFlushTimeout;
    for (auto* const publisher : publishers)
    {
        if (publisher != nullptr)
        {
            publisher->flush(std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()));
        }
    }
}

void Tee::atExit()
{
    auto* const tee = gTee.load(std::memory_order_acquire);
    if (tee != nullptr && tee->mGeneration == trtllm_exporter::detail::Forks::generation())
    {
        try
        {
            tee->stop();
        }
        catch (...) // NOLINT(bugprone-empty-catch): out of memory; the host ends anyway
        {
        }
    }
}

} // namespace trtllm_preload
