#pragma once

// Synthetic requests for an Executor of our own: one thread keeps some of them in flight, collects their responses and
// keeps what each one cost. Never for somebody else's Executor: awaitResponses takes responses away from its host.

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

    /// From now on these requests; replaces those of an earlier call. Throws where the Executor takes none.
    void start(LoadConfig const& config);
    /// Enqueues nothing more and collects nothing more. May be called twice.
    void stop();
    /// One request now, whatever is in flight; its id.
    [[nodiscard]] std::uint64_t enqueue(std::int32_t promptTokens, std::int32_t outputTokens);
    /// The same for a prompt of the caller's.
    [[nodiscard]] std::uint64_t enqueue(std::int32_t const* prompt, std::size_t count, std::int32_t outputTokens);

    [[nodiscard]] Counts counts() const;
    /// How many rows were written, in the order in which the requests ended.
    [[nodiscard]] std::size_t drain(PerfRow* rows, std::size_t count);

private:
    void run();
    void topUp();
    [[nodiscard]] std::uint64_t enqueueLocked(tensorrt_llm::executor::VecTokens prompt, std::int32_t output);
    void collect();
    void take(tensorrt_llm::executor::Response const& response);
    void pause(char const* why);
    void ensureThread();
    void ensureResponsible();

    tensorrt_llm::executor::Executor& mExecutor;
    mutable std::mutex mMutex; ///< of all below but the thread itself
    std::condition_variable mStopping;
    bool mStopped{false};
    LoadConfig mConfig{};
    std::uint64_t mLeft{0}; ///< of mConfig, not enqueued yet
    std::uint64_t mDrawn{0};
    Counts mCounts;
    std::unordered_map<std::uint64_t, std::int32_t> mPromptTokens; ///< of the requests in flight
    std::deque<PerfRow> mRows;
    std::thread mThread; ///< touched by start, stop and enqueue only, which their caller does not run side by side
};

} // namespace trtllm_bridge
