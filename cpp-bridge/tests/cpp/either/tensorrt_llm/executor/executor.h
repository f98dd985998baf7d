#pragma once

// The part of the Executor that the bridge's own header needs.

#include "tensorrt_llm/executor/types.h"

#include <deque>

namespace tensorrt_llm::executor
{

struct RequestStatsPerIteration
{
};

class Executor
{
public:
    std::deque<RequestStatsPerIteration> getLatestRequestStats();
};

} // namespace tensorrt_llm::executor
