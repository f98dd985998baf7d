#pragma once

// The engine's own time and how it maps to the wall. With a speed, engine time passes in proportion to real time;
// without one it jumps from event to event.

#include <chrono>
#include <ctime>
#include <string>

namespace tensorrt_llm::sim
{

class Clock
{
public:
    using Steady = std::chrono::steady_clock;

    /// `speed` = engine seconds per second; 0 = no pacing.
    explicit Clock(double speed);

    [[nodiscard]] bool paced() const;
    /// Engine time now, in milliseconds since construction.
    [[nodiscard]] double now() const;
    /// Engine time that has come according to the wall; `now()` when not paced.
    [[nodiscard]] double wallNow() const;
    /// Never backwards.
    void moveTo(double timeMs);
    /// When a paced engine reaches this time.
    [[nodiscard]] Steady::time_point wallOf(double timeMs) const;
    /// Engine time as the steady clock's readings in RequestPerfMetrics: differences are engine time.
    [[nodiscard]] Steady::time_point stamp(double timeMs) const;

private:
    double mSpeed;
    Steady::time_point mStart;
    double mNow{0.0};
};

/// The wall clock as TensorRT-LLM writes it: local time, "%m-%d-%Y %H:%M:%S.uuuuuu".
class WallTimestamp
{
public:
    [[nodiscard]] std::string now();

private:
    std::time_t mSecond{-1};
    std::string mText; ///< of mSecond, up to the point
};

} // namespace tensorrt_llm::sim
