#pragma once

// The thread of a Poller and of the preload.

#include "trtllm_exporter/detail/process.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include <pthread.h>
#include <time.h>

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
    /// Returns how full the Executor's ring of records was, 0 to 1. Nothing ends the thread. Must not throw.
    using Poll = std::function<std::optional<double>()>;

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
        requestStop();
        ::pthread_join(mThread, nullptr);
    }

    /// Returns false if a poll hangs for this time. Then this object must not be freed.
    bool stopWithin(std::chrono::seconds time) noexcept
    {
        requestStop();
        timespec until{};
        ::clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += time.count();
        return ::pthread_timedjoin_np(mThread, nullptr, &until) == 0;
    }

private:
    static constexpr std::chrono::milliseconds kShortestPause{1};
    /// A ring that is a quarter full still has room for a burst.
    static constexpr double kFull = 0.25;

    void requestStop() noexcept
    {
        {
            std::lock_guard const lock(mMutex);
            mStopped = true;
        }
        mWake.notify_all();
    }

    void run()
    {
        auto pause = std::max(mLongestPause / 4, kShortestPause); // the engine may be busy already
        for (bool last = false; !last;)
        {
            {
                std::unique_lock lock(mMutex);
                last = mWake.wait_for(lock, pause, [this] { return mStopped; });
            }
            auto const full = mPoll();
            if (!full)
            {
                return;
            }
            pause = std::clamp(*full > kFull ? pause / 2 : pause * 2, kShortestPause, mLongestPause);
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
