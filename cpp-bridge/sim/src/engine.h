#pragma once

// The simulated engine: one thread that accepts requests, runs batches in simulated time and writes statistics. Knows
// nothing about ranks, roles and shutdown rules, which belong to the Executor.

#include "arrivals.h"
#include "clock.h"
#include "kv_cache.h"
#include "live_request.h"
#include "mailbox.h"
#include "options.h"
#include "scheduler.h"
#include "stats_ring.h"

#include "tensorrt_llm/executor/executor.h"
#include "tensorrt_llm/sim/truth.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace tensorrt_llm::sim
{

/// Size of the keys and values of one token in all layers.
constexpr std::size_t kBytesPerToken = 131072;

/// The effective settings. The options of the simulation override the host's configuration.
struct Settings
{
    Options options;
    Limits limits;
    std::int32_t kvBlocks;
    bool blockReuse;
    bool staticBatching;
    std::int32_t maxSequence; ///< maximum of prompt and output together, in tokens
    std::int32_t maxPrompt;
    std::optional<std::int32_t> maxQueueSize;
    std::size_t inFlight; ///< see Options::inFlight
    std::size_t iterationRing;
    std::size_t requestRing;
    std::size_t eventBuffer; ///< size of the KV cache event buffer; 0: no events
};

[[nodiscard]] Settings effectiveSettings(Options const& options, executor::ExecutorConfig const& config);

class Engine
{
public:
    explicit Engine(Settings const& settings);
    ~Engine();
    Engine(Engine const&) = delete;
    Engine& operator=(Engine const&) = delete;

    /// Ends the thread. Unfinished requests never finish. May be called twice.
    void stop();

    /// Throws if the queue is full, or if the request does not fit into the cache.
    executor::IdType enqueue(executor::Request const& request);
    void cancel(executor::IdType id);

    [[nodiscard]] Mailbox& mailbox();
    [[nodiscard]] std::deque<executor::IterationStats> drainIterations();
    [[nodiscard]] std::deque<executor::RequestStatsPerIteration> drainRequests();
    [[nodiscard]] Truth truth() const;
#if TRTLLM_SIM_SINCE(1, 1)
    /// Null if there is no event buffer.
    [[nodiscard]] std::shared_ptr<CacheEvents> cacheEvents() const;
#endif

private:
    using Request = std::unique_ptr<LiveRequest>;

    /// The values of a record that do not come from the batch.
    struct Pass
    {
        double iterLatencyMs{0.0};
        double queueLatencyMs{0.0};
        std::int32_t newActive{0};
        std::int32_t completed{0};
    };

    // engine_loop.cc: the execution thread.
    void run();
    bool finishBatch();
    bool waitForWork();
    [[nodiscard]] bool atIterationLimit() const;
    bool waitUntil(double timeMs);
    void hold();
    void launch();
    [[nodiscard]] double durationOf(Batch const& batch);
    [[nodiscard]] double draftMs(Batch const& batch) const;

    // intake.cc: moves requests from the load and the host to the queue, and from the queue to the active requests.
    void takeArrivals();
    void takeInbox();
    void activate();
    [[nodiscard]] Request fromArrival(Arrival const& arrival);
    [[nodiscard]] Request fromHost(executor::IdType id, executor::Request const& request, double arrivalMs);

    // completion.cc: updates the requests of a finished batch.
    void applyContext(Batch::Chunk const& chunk);
    void applyStep(Batch::Step const& step);
    void respond(LiveRequest& request, std::int32_t newTokens, bool final);
    [[nodiscard]] std::vector<Request> takeFinished();
#if TRTLLM_SIM_SINCE(1, 0)
    [[nodiscard]] executor::RequestPerfMetrics perfMetrics(LiveRequest const& request) const;
#endif

    // records.cc: writes the statistics.
    void record(Batch const& batch, bool flush);
    [[nodiscard]] executor::IterationStats iterationStats(Batch const& batch);
    [[nodiscard]] executor::RequestStatsPerIteration requestStats();
    [[nodiscard]] static float decodedPerIteration(Batch const& batch);

    Settings const mSettings;
    Clock mClock;
    WallTimestamp mTimestamp;
    Arrivals mArrivals;
    Random mRandom; ///< the load has its own generator, so that neither changes the other
    KvCache mCache;
    Scheduler mScheduler;
    ActiveRequests mActive;
    std::deque<Request> mQueue;
    bool mLoadWaits{false};         ///< a request of the load is due, but too many are in flight
    std::vector<Request> mFinished; ///< finished requests that the request statistics have not reported yet
    Batch mBatch;                   ///< the batch that runs now
    double mBatchMs{0.0};
    std::size_t mStaticSlots{0}; ///< number of requests at the start of the static batch
    std::uint64_t mIter{0};
    executor::IdType mNextLoadId;
    Pass mPass;
    std::int32_t mUncounted{0}; ///< completions that no record has reported yet

    // The members below are shared with the host's threads.
    struct Incoming
    {
        executor::IdType id;
        executor::Request request;
    };

    mutable std::mutex mMutex;
    std::condition_variable mWake;
    bool mStopped{false};
    std::vector<Incoming> mInbox;
    std::vector<executor::IdType> mCancelled;
    executor::IdType mNextHostId{1};
    std::size_t mQueued{0};
    Truth mTruth{};

    StatsRing<executor::IterationStats> mIterations;
    StatsRing<executor::RequestStatsPerIteration> mRequests;
    Mailbox mMailbox;
#if TRTLLM_SIM_SINCE(1, 1)
    std::shared_ptr<CacheEvents> mCacheEvents;
#endif
    std::thread mThread; ///< the last member, so that all others are constructed before the thread runs
};

} // namespace tensorrt_llm::sim
