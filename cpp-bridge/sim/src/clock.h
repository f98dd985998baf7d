#pragma once

// The simulated time of the engine, and the real time of its records.

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <string>

#include <pthread.h>

namespace tensorrt_llm::sim
{

/// With a speed, simulated time passes in proportion to real time. Without a speed, it jumps from event to event.
class Clock
{
public:
    using Steady = std::chrono::steady_clock;

    /// `speed`: simulated seconds per real second; 0: no pacing.
    explicit Clock(double speed)
        : mSpeed(speed)
    {
    }

    [[nodiscard]] bool paced() const
    {
        return mSpeed > 0.0;
    }

    /// Simulated seconds that correspond to the real time. 0 without pacing.
    [[nodiscard]] double wallNow() const
    {
        return paced() ? std::chrono::duration<double>(Steady::now() - mStart).count() * mSpeed : 0.0;
    }

    /// The real time at which a paced engine reaches this simulated time.
    [[nodiscard]] Steady::time_point wallOf(double seconds) const
    {
        return stamp(seconds / mSpeed);
    }

    /// Simulated time as a time point of the steady clock, for RequestPerfMetrics.
    [[nodiscard]] Steady::time_point stamp(double seconds) const
    {
        return mStart + std::chrono::duration_cast<Steady::duration>(std::chrono::duration<double>(seconds));
    }

private:
    double mSpeed;
    Steady::time_point mStart{Steady::now()};
};

/// glibc does not release its time zone lock in the child of a fork. If an engine formatted a timestamp during a fork,
/// the child would wait for the lock forever. So this mutex prevents forks while a timestamp is formatted.
inline std::mutex gZone;
[[maybe_unused]] inline int const gZoneOverForks
    = ::pthread_atfork([] { gZone.lock(); }, [] { gZone.unlock(); }, [] { gZone.unlock(); });

/// Formats the real time as TensorRT-LLM does: local time, "%m-%d-%Y %H:%M:%S.uuuuuu".
class WallTimestamp
{
public:
    [[nodiscard]] std::string now()
    {
        using std::chrono::microseconds;
        auto const sinceEpoch
            = std::chrono::duration_cast<microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
        auto const second = static_cast<std::time_t>(sinceEpoch / 1000000);
        std::array<char, 32> text{};
        if (second != mSecond)
        {
            std::tm fields{};
            std::lock_guard const lock(gZone);
            ::localtime_r(&second, &fields);
            mText.assign(text.data(), std::strftime(text.data(), text.size(), "%m-%d-%Y %H:%M:%S", &fields));
            mSecond = second;
        }
        std::snprintf(text.data(), text.size(), ".%06d", static_cast<int>(sinceEpoch % 1000000));
        return mText + text.data();
    }

private:
    std::time_t mSecond{-1};
    std::string mText; ///< the text of mSecond, without the fraction
};

} // namespace tensorrt_llm::sim
