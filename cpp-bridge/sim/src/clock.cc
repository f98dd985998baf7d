// Engine time and wall time.

#include "clock.h"

#include <array>
#include <cstdio>
#include <mutex>

#include <pthread.h>

namespace tensorrt_llm::sim
{

namespace
{

/// glibc does not release its time zone lock in the child of a fork. If an engine formatted a timestamp during a fork,
/// the child would wait for the lock forever. So forks and timestamps exclude each other.
std::mutex gZone;

[[maybe_unused]] int const gZoneOverForks
    = ::pthread_atfork([] { gZone.lock(); }, [] { gZone.unlock(); }, [] { gZone.unlock(); });

std::tm localTime(std::time_t second)
{
    std::tm fields{};
    std::lock_guard const lock(gZone);
    ::localtime_r(&second, &fields);
    return fields;
}

} // namespace

using Seconds = std::chrono::duration<double>;

Clock::Clock(double speed)
    : mSpeed(speed)
    , mStart(Steady::now())
{
}

bool Clock::paced() const
{
    return mSpeed > 0.0;
}

double Clock::wallNow() const
{
    return paced() ? Seconds(Steady::now() - mStart).count() * mSpeed : 0.0;
}

Clock::Steady::time_point Clock::wallOf(double seconds) const
{
    return mStart + std::chrono::duration_cast<Steady::duration>(Seconds(seconds / mSpeed));
}

Clock::Steady::time_point Clock::stamp(double seconds) const
{
    return mStart + std::chrono::duration_cast<Steady::duration>(Seconds(seconds));
}

std::string WallTimestamp::now()
{
    using std::chrono::microseconds;
    auto const sinceEpoch
        = std::chrono::duration_cast<microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    auto const second = static_cast<std::time_t>(sinceEpoch / 1000000);
    if (second != mSecond)
    {
        auto const fields = localTime(second);
        std::array<char, 32> text{};
        mText.assign(text.data(), std::strftime(text.data(), text.size(), "%m-%d-%Y %H:%M:%S", &fields));
        mSecond = second;
    }
    std::array<char, 16> fraction{};
    std::snprintf(fraction.data(), fraction.size(), ".%06d", static_cast<int>(sinceEpoch % 1000000));
    return mText + fraction.data();
}

} // namespace tensorrt_llm::sim
