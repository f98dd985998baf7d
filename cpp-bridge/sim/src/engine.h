#pragma once

// The thread, rings and responses of the simulated engine. The step function (step.h) decides what the engine does. The
// rules about ranks, roles and shutdown are in the Executor (executor.cc).

#include "clock.h"
#include "mailbox.h"
#include "stats_ring.h"
#include "step.h"

#include "tensorrt_llm/executor/executor.h"
#include "tensorrt_llm/sim/truth.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tensorrt_llm::sim
{

/// Parses the options, and makes an engine for them and for the host's configuration. Throws a TllmException that names the
/// option, its value and the valid values.
[[nodiscard]] trtllm_sim_opened openEngine(std::string const& enginePath, executor::ExecutorConfig const& config);

class Engine
{
public:
    /// Takes ownership of the engine in `opened`.
    Engine(trtllm_sim_opened const& opened, executor::ExecutorConfig const& config);
    ~Engine();
    Engine(Engine const&) = delete;
    Engine& operator=(Engine const&) = delete;

    /// Ends the thread. Unfinished requests never finish. May be called twice.
    void stop();

    /// The response to a request that does not fit into the cache is an error.
    executor::IdType enqueue(executor::Request const& request);

    [[nodiscard]] Mailbox& mailbox();
    [[nodiscard]] std::deque<executor::IterationStats> drainIterations();
    [[nodiscard]] std::deque<executor::RequestStatsPerIteration> drainRequests();
    [[nodiscard]] Truth truth() const;

private:
    using Inbox = std::vector<std::pair<executor::IdType, executor::Request>>;

    void run();
    bool waitForNext();
    void step();
    void respond(executor::IdType id, trtllm_sim_entry const* entry);

    // statistics.cc: fills TensorRT-LLM's structs.
    [[nodiscard]] static executor::IterationStats iterationStats(trtllm_sim_record const& record);
    [[nodiscard]] static executor::RequestStats requestStats(trtllm_sim_row const& row);
#if TRTLLM_SIM_SINCE(1, 0)
    [[nodiscard]] executor::RequestPerfMetrics perfMetrics(trtllm_sim_entry const& entry) const;
#endif

    trtllm_sim_opened const mOpened;
    Clock const mClock;
    WallTimestamp mTimestamp;
    double mNow{0.0};
    std::map<executor::IdType, executor::Request> mHosted; ///< requests of the host that have not ended

    // The members below are shared with the host's threads.
    mutable std::mutex mMutex;
    std::condition_variable mWake;
    bool mStopped{false};
    Inbox mInbox;
    executor::IdType mNextHostId{1};
    trtllm_sim_state mState{};

    StatsRing<executor::IterationStats> mIterations;
    StatsRing<executor::RequestStatsPerIteration> mRequests;
    Mailbox mMailbox;
    std::thread mThread; ///< the last member, so that all others are constructed before the thread runs
};

} // namespace tensorrt_llm::sim
