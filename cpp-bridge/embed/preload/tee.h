#pragma once

// Every Executor of this process and a copy of its statistics on their way to the exporter. What the host asks for it
// gets as if nobody else had asked; what it never asks for is drained here and kept for it, as the Executor's own ring
// would have kept it: as many records as the host configured, the oldest lost.

#include "trtllm_exporter/publisher.h"

#include "tensorrt_llm/executor/executor.h"

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace trtllm_preload
{

namespace tle = tensorrt_llm::executor;

using Iterations = std::deque<tle::IterationStats>;
using Requests = std::deque<tle::RequestStatsPerIteration>;

/// Where one Executor's records go. A socket of the exporter is one engine, so two at a time never share one.
struct Outlet
{
    std::string path;
    std::string model;
    bool requests{true}; // are published as well
    std::atomic<trtllm_exporter::Publisher*> publisher{nullptr}; // never freed
    bool taken{false};

    /// Connects with the first record only: a worker rank has none, and its pid would look like a restart.
    template <class Record>
    void publish(Record const& record) noexcept;
};

/// One kind of record of one Executor.
template <class Record>
struct Kept
{
    static constexpr std::size_t kUnbounded = static_cast<std::size_t>(-1);

    std::deque<Record> records;
    std::size_t capacity{kUnbounded};

    /// Takes what the Executor just gave up; the oldest leave, as they would have left its ring.
    void keep(std::deque<Record>&& fresh);
    /// What the host gets: everything kept and `fresh`, oldest first.
    [[nodiscard]] std::deque<Record> handOver(std::deque<Record>&& fresh);
};

/// An Executor from its construction (or from when it was first seen) to its end.
struct Engine
{
    explicit Engine(void* implementation)
        : implementation(implementation)
    {
    }

    /// Held for every drain, so that the order of records is that of the Executor's ring, and while the Executor ends.
    std::mutex mutex;
    /// Executor is one std::unique_ptr<Impl>: the same while the Executor is moved about. nullptr once it has ended.
    void* implementation;
    Kept<tle::IterationStats> iterations;
    Kept<tle::RequestStatsPerIteration> requests;
    Outlet* outlet{nullptr};
    /// The host drained since the poller last looked: it is left to the host.
    std::atomic<bool> hostDrains{false};

    void publish(Iterations const& fresh) noexcept;
    void publish(Requests const& fresh) noexcept;
    /// Drains for ourselves. How full the ring was, 0..1. The mutex is held.
    double drain() noexcept;
};

/// All of them, in this process: a fork's child starts with none.
class Tee
{
public:
    /// nullptr: switched off, or out of memory.
    static Tee* current() noexcept;

    /// A constructor returned. Sizes of the rings as the host configured them; negative is unbounded.
    void constructed(void const* executor, std::int32_t iterations, std::int32_t requests) noexcept;
    /// The Executor was called. Makes it known where its constructor is one that we do not know.
    std::shared_ptr<Engine> called(void const* executor) noexcept;
    /// Before it ends or shuts down: what it still holds.
    void ending(void const* executor, bool destroyed) noexcept;

    Tee();

private:
    std::shared_ptr<Engine> track(void* implementation, std::size_t iterations, std::size_t requests);
    void forget(void* implementation);
    void give(Engine& engine);
    void start();
    void poll();
    void tick(double& fullest);
    void stop();
    static void atExit();

    unsigned const mGeneration;
    std::mutex mMutex;
    std::condition_variable mWake;
    std::vector<std::shared_ptr<Engine>> mEngines; // under the mutex
    std::vector<std::unique_ptr<Outlet>> mOutlets;
    pthread_t mThread{};
    bool mRunning{false}; // under the mutex
    bool mStopped{false}; // under the mutex
    bool mToldTooMany{false}; // under the mutex
};

} // namespace trtllm_preload
