#pragma once

// Random numbers that are the same on every machine. The distributions of the standard library are not.

#include <cmath>
#include <cstdint>

namespace tensorrt_llm::sim
{

/// One step of SplitMix64. Also used as the hash of block keys.
inline std::uint64_t mix(std::uint64_t x)
{
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

class Random
{
public:
    explicit Random(std::uint64_t seed)
        : mState(mix(seed))
    {
    }

    std::uint64_t bits()
    {
        return mix(mState++);
    }

    /// A number in [0, 1).
    double uniform()
    {
        return static_cast<double>(bits() >> 11) * 0x1.0p-53;
    }

    double exponential(double mean)
    {
        return -mean * std::log(1.0 - uniform());
    }

    double normal()
    {
        auto const radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
        return radius * std::cos(6.283185307179586 * uniform());
    }

    /// A log-normal number with this mean: many small ones, a few large ones.
    double skewed(double mean, double sigma)
    {
        return mean * std::exp(sigma * normal() - 0.5 * sigma * sigma);
    }

private:
    std::uint64_t mState;
};

} // namespace tensorrt_llm::sim
