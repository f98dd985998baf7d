#pragma once

// The simulated engine behind the Executor: its thread, rings and responses, and the rules about ranks and shutdown. The
// step function (step.h) decides what the engine does.

#include "clock.h"
#include "mailbox.h"
#include "stats_ring.h"
#include "step.h"

#include "tensorrt_llm/executor/executor.h"
#include "tensorrt_llm/sim/truth.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tensorrt_llm::executor
{

class Executor::Impl
{
public:
    /// Takes as long as the option `load_seconds` says. Throws a TllmException that names an invalid option, its value and the
    /// valid values.
    Impl(std::string const& enginePath, ExecutorConfig const& config);
    ~Impl();
    Impl(Impl const&) = delete;
    Impl& operator=(Impl const&) = delete;

    /// Returns this engine for a call of `method`. Throws if this is a worker rank, or after a shutdown.
    [[nodiscard]] Impl& engineFor(char const* method);
    [[nodiscard]] bool canEnqueueRequests() const;
    /// Unfinished requests never finish. Throws if it was called before.
    void shutdown();
    /// The response to a request that does not fit into the cache is an error.
    IdType enqueue(Request const& request);
    [[nodiscard]] sim::Truth truth() const;

    // Any thread may use these.
    sim::StatsRing<IterationStats> iterations;
    sim::StatsRing<RequestStatsPerIteration> requests;
    sim::Mailbox mailbox;

private:
    using Inbox = std::vector<std::pair<IdType, Request>>;

    void throwIfAsked() const;
    void stop();
    void run();
    bool waitForNext();
    void step();
    void respond(IdType id, trtllm_sim_entry const* entry);

    trtllm_sim_opened const mOpened;
    sim::Clock const mClock;
    sim::WallTimestamp mTimestamp;
    double mNow{0.0};
    std::map<IdType, Request> mHosted; ///< requests of the host that have not ended
    std::atomic<bool> mShutdownCalled{false};

    // The members below are shared with the host's threads.
    mutable std::mutex mMutex;
    std::condition_variable mWake;
    bool mStopped{false};
    Inbox mInbox;
    IdType mNextHostId{1};
    trtllm_sim_state mState{};
    std::thread mThread; ///< the last member, so that all others are constructed before the thread runs
};

} // namespace tensorrt_llm::executor

namespace tensorrt_llm::sim
{

// statistics.cc: fills TensorRT-LLM's structs.
[[nodiscard]] executor::IterationStats iterationStats(trtllm_sim_record const& record);
[[nodiscard]] executor::RequestStats requestStats(trtllm_sim_row const& row);
#if TRTLLM_SIM_SINCE(1, 0)
[[nodiscard]] executor::RequestPerfMetrics perfMetrics(trtllm_sim_entry const& entry, Clock const& clock);
#endif

} // namespace tensorrt_llm::sim
