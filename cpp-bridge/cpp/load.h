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
#include <thread>

namespace trtllm_bridge
{

class Load
{
public:
    /// Starts the thread.
    Load(tensorrt_llm::executor::Executor& executor, LoadConfig const& config);
    ~Load();
    Load(Load const&) = delete;
    Load& operator=(Load const&) = delete;

    /// Stops sending and collecting. May be called twice.
    void stop();
    /// Writes up to `count` ended requests, in the order in which they ended, and returns how many.
    [[nodiscard]] std::size_t drain(FinishedRequest* requests, std::size_t count);

private:
    void run();
    void enqueue();
    void collect();

    tensorrt_llm::executor::Executor& mExecutor;
    LoadConfig const mConfig;
    std::uint64_t mSent{0};     ///< used by the thread only
    std::uint64_t mInFlight{0}; ///< used by the thread only
    std::mutex mMutex;
    std::condition_variable mStopping;
    bool mStopped{false};               // guarded by mMutex
    std::deque<FinishedRequest> mEnded; // guarded by mMutex
    std::thread mThread;                ///< the last member, so that the thread finds the others constructed
};

} // namespace trtllm_bridge
