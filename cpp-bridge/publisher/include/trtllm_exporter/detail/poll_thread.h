#pragma once

// The thread of a Poller.

#include "trtllm_exporter/detail/process.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include <pthread.h>

namespace trtllm_exporter
{
inline namespace development
{
namespace detail
{

/// Calls a function again and again, with pauses in between. The child of a fork() has no such thread, and there the mutex
/// may be locked, so the child must not use or free the copy of this object.
class PollThread
{
public:
    /// Returns the number of new iterations. Nothing ends the thread. Must not throw.
    using Poll = std::function<std::optional<std::size_t>()>;

    /// Throws if the system has no thread for it.
    PollThread(std::chrono::milliseconds longestPause, Poll poll)
        : mLongestPause(std::clamp<std::chrono::milliseconds>(longestPause, kShortestPause, std::chrono::hours(1)))
        , mPoll(std::move(poll))
    {
        auto const run = [](void* self) -> void*
        {
            static_cast<PollThread*>(self)->run();
            return nullptr;
        };
        if (!startThread(mThread, "trtllm-poll", run, this))
        {
            throw std::runtime_error("the system has no thread for it; check the limit of processes (ulimit -u)");
        }
    }

    /// Polls a last time and ends the thread.
    void stop() noexcept
    {
        {
            std::lock_guard const lock(mMutex);
            mStopped = true;
        }
        mWake.notify_all();
        ::pthread_join(mThread, nullptr);
    }

private:
    static constexpr std::chrono::milliseconds kShortestPause{1};
    /// The Executor's ring has 1000 records by default. A ring that is a quarter full still has room for a burst.
    static constexpr std::size_t kQuarter = 250;

    void run()
    {
        auto pause = mLongestPause;
        for (bool last = false; !last;)
        {
            {
                std::unique_lock lock(mMutex);
                last = mWake.wait_for(lock, pause, [this] { return mStopped; });
            }
            auto const iterations = mPoll();
            if (!iterations)
            {
                return;
            }
            pause = std::clamp(*iterations > kQuarter ? pause / 2 : pause * 2, kShortestPause, mLongestPause);
        }
    }

    std::chrono::milliseconds const mLongestPause;
    Poll const mPoll;
    pthread_t mThread{};
    std::mutex mMutex;
    std::condition_variable mWake;
    bool mStopped{false}; // guarded by mMutex
};

} // namespace detail
} // namespace development
} // namespace trtllm_exporter
