#pragma once

// Tells whether a member of a shared struct is present.

#include "records.h"

#include <cmath>
#include <limits>
#include <string>

inline bool present(std::int64_t value)
{
    return value != std::numeric_limits<std::int64_t>::min();
}

inline bool present(double value)
{
    return !std::isnan(value);
}

inline std::string textOf(trtllm_bridge::IterationStats const& record)
{
    return reinterpret_cast<char const*>(record.timestamp.data());
}
