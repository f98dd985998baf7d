#pragma once

// Sends synthetic requests to an Executor that this process opened. One thread keeps a number of requests in flight and
// collects their responses and performance metrics. Never use it with another program's Executor: awaitResponses would
// take responses from that program.

#include "trtllm-bridge/src/ffi.rs.h"

#include "tensorrt_llm/executor/executor.h"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

namespace trtllm_bridge
{

class Load
{
public:
    struct Counts
    {
        std::uint64_t enqueued{0};
        std::uint64_t finished{0};
        std::uint64_t failed{0};
        std::uint64_t refused{0};
        std::uint64_t rowsLost{0};
        bool running{false};
        std::string lastError;
    };

    explicit Load(tensorrt_llm::executor::Executor& executor);
    ~Load();
    Load(Load const&) = delete;
    Load& operator=(Load const&) = delete;

    /// Starts a load. It replaces an earlier load. Throws if the Executor does not accept requests.
    void start(LoadConfig const& config);
    /// Stops enqueueing and collecting. May be called twice.
    void stop();
    /// Enqueues one request in addition to the load, and returns its id.
    [[nodiscard]] std::uint64_t enqueue(std::int32_t promptTokens, std::int32_t outputTokens);
    /// Enqueues one request with the given prompt, and returns its id.
    [[nodiscard]] std::uint64_t enqueue(std::int32_t const* prompt, std::size_t count, std::int32_t outputTokens);

    [[nodiscard]] Counts counts() const;
    /// Writes up to `count` finished requests, in the order in which they finished, and returns how many.
    [[nodiscard]] std::size_t drain(FinishedRequest* requests, std::size_t count);

private:
    void run();
    void topUp();
    [[nodiscard]] std::uint64_t enqueueLocked(tensorrt_llm::executor::VecTokens prompt, std::int32_t output);
    void collect();
    void take(tensorrt_llm::executor::Response const& response);
    void pause(char const* why);
    void ensureThread();
    void checkAcceptsRequests();

    tensorrt_llm::executor::Executor& mExecutor;
    mutable std::mutex mMutex; ///< guards all members below except mThread
    std::condition_variable mStopping;
    bool mStopped{false};
    LoadConfig mConfig{};
    std::uint64_t mLeft{0};    ///< requests of mConfig that are not enqueued yet
    std::uint64_t mPrompts{0}; ///< how many prompts were generated
    Counts mCounts;
    std::unordered_map<std::uint64_t, std::int32_t> mPromptTokens; ///< prompt lengths of the requests in flight, by id
    std::deque<FinishedRequest> mRows;
    std::thread mThread; ///< used by start, stop and enqueue only; callers never run these in parallel
};

} // namespace trtllm_bridge
