#pragma once

// Copies the statistics of every Executor in this process to the exporter, like tee(1). The host still gets every
// record it asks for. If the host does not drain an Executor, a polling thread drains it and keeps the records for the
// host in a backlog. The backlog has the size that the host configured for the Executor's own ring, and drops the
// oldest records.

#include "sdk.h"

#include "trtllm_exporter/publisher.h"

#include <cstddef>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

namespace trtllm_preload
{

/// A connection to the exporter, for one Executor at a time. The exporter shows it as one engine.
struct Destination
{
    std::string socket;
    trtllm_exporter::EngineName name;
    std::unique_ptr<trtllm_exporter::Publisher> publisher;
};

/// Records of one kind that were drained from one Executor and that the host has not read yet.
template <class Record>
struct Backlog
{
    static constexpr std::size_t kUnbounded = static_cast<std::size_t>(-1);

    std::deque<Record> records;
    std::size_t capacity{kUnbounded};
    /// True if the host drained these records since the last poll. Then the polling thread leaves them to it.
    bool hostDrains{false};

    /// Appends records that were just drained. Drops the oldest if there are more than `capacity`.
    void append(std::deque<Record>&& fresh);
    /// Returns the backlog followed by `fresh`, and empties the backlog.
    [[nodiscard]] std::deque<Record> takeWith(std::deque<Record>&& fresh);
};

/// An Executor, from its construction (or its first hooked call) to its destruction.
struct Engine
{
    Engine(void* implementation, Sdk& sdk)
        : implementation(implementation)
        , sdk(sdk)
    {
    }

    Engine(Engine const&) = delete;
    Engine& operator=(Engine const&) = delete;

    ~Engine()
    {
        if (!hasUnreadable)
        {
            delete unreadable;
        }
    }

    /// Held during every drain, so that records keep their order, and while the Executor is destroyed.
    std::mutex mutex;
    /// The pointer inside the Executor, which is one std::unique_ptr<Impl>. It identifies the Executor, because a move
    /// of the Executor does not change it. nullptr after destruction.
    void* implementation;
    /// The copy of TensorRT-LLM that the Executor belongs to.
    Sdk& sdk;
    /// Records that the preload drained and then found to be unreadable. Only TensorRT-LLM can destroy them.
    Iterations* const unreadable{new Iterations};
    bool hasUnreadable{false};
    /// True if `unreadable` has records. The host gets them at its next call.
    bool owesRecords{false};
    Backlog<tle::IterationStats> iterations;
    Backlog<tle::RequestStatsPerIteration> requests;
    /// The lowest number that no other Executor of this process has. Selects the socket and a chosen name.
    std::size_t number{0};
    std::unique_ptr<Destination> destination; ///< nullptr after destruction
    bool publishesRequests{true};

    template <class Records>
    void publish(Records const& fresh) noexcept
    {
        if (destination != nullptr && (publishesRequests || !std::is_same_v<Records, Requests>))
        {
            destination->publisher->publishAll(fresh);
        }
    }

    /// Drains the Executor into the backlogs, unless the host drains these records itself; with `all`, also then. Returns
    /// how full the fuller ring was, 0 to 1. The caller holds `mutex`.
    double drain(bool all) noexcept;
};

/// All Executors of this process. The child of a fork() starts with an empty Tee.
class Tee
{
public:
    /// Returns nullptr if the preload is disabled, or if there is no memory.
    static Tee* current() noexcept;

    /// Call it after a constructor. `iterations` and `requests` are the configured ring sizes; negative means
    /// unbounded. `engine` is the engine's folder, or nullptr if the engine was in memory.
    void constructed(void const* executor, Sdk& sdk, std::int32_t iterations, std::int32_t requests,
        std::filesystem::path const* engine) noexcept;
    /// The Executor, or nullptr if it is not registered.
    std::shared_ptr<Engine> find(void const* executor) noexcept;
    /// Registers an Executor that was created by a constructor that is not hooked.
    std::shared_ptr<Engine> adopt(void const* executor, Sdk& sdk) noexcept;
    /// Call it before a shutdown or destruction. Drains the records that the Executor still holds.
    void ending(void const* executor, bool destroyed) noexcept;

    Tee();

private:
    using Clock = std::chrono::steady_clock;

    /// The connection of a destroyed Executor. An Executor with the same name takes it over: servers reload engines.
    struct Retired
    {
        std::unique_ptr<Destination> destination;
        Clock::time_point since;
    };

    std::shared_ptr<Engine> track(void* implementation, Sdk& sdk, std::size_t iterations, std::size_t requests,
        trtllm_exporter::EngineName const& derived);
    /// Finds a registered Executor, and removes it from the list if `remove` is set.
    std::shared_ptr<Engine> known(void* implementation, bool remove) noexcept;
    void retire(Engine& engine) noexcept;
    void assignDestination(Engine& engine, trtllm_exporter::EngineName const& derived);
    void closeRetired();
    double poll() noexcept;
    void stop();
    static void atExit();

    unsigned const mGeneration;
    std::mutex mMutex;
    std::vector<std::shared_ptr<Engine>> mEngines; // guarded by mMutex
    std::vector<Retired> mRetired;                 // guarded by mMutex
    std::vector<std::string> const mSockets;
    std::vector<std::string> const mModels; ///< empty if the operator chose no names
    std::vector<std::string> const mVersions;
    bool const mRequestStats;
    std::unique_ptr<trtllm_exporter::detail::PollThread> mPolling; // guarded by mMutex
    bool mStopped{false};                                          // guarded by mMutex
};

} // namespace trtllm_preload
