#pragma once

// The simulated time of the engine. With a speed, it passes in proportion to real time. Without a speed, it jumps from
// event to event.

#include <chrono>
#include <ctime>
#include <string>

namespace tensorrt_llm::sim
{

class Clock
{
public:
    using Steady = std::chrono::steady_clock;

    /// `speed`: simulated seconds per real second; 0: no pacing.
    explicit Clock(double speed);

    [[nodiscard]] bool paced() const;
    /// Simulated seconds that correspond to the real time. 0 without pacing.
    [[nodiscard]] double wallNow() const;
    /// The real time at which a paced engine reaches this simulated time.
    [[nodiscard]] Steady::time_point wallOf(double seconds) const;
    /// Simulated time as a time point of the steady clock, for RequestPerfMetrics.
    [[nodiscard]] Steady::time_point stamp(double seconds) const;

private:
    double mSpeed;
    Steady::time_point mStart;
};

/// Formats the real time as TensorRT-LLM does: local time, "%m-%d-%Y %H:%M:%S.uuuuuu".
class WallTimestamp
{
public:
    [[nodiscard]] std::string now();

private:
    std::time_t mSecond{-1};
    std::string mText; ///< the text of mSecond, without the fraction
};

} // namespace tensorrt_llm::sim
