#pragma once

// Selects the requests of the next iteration and their numbers of tokens. Knows neither time nor statistics records.

#include "kv_cache.h"
#include "live_request.h"

#include "tensorrt_llm/executor/types.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace tensorrt_llm::sim
{

/// Requests in the order in which they became active.
using ActiveRequests = std::vector<std::unique_ptr<LiveRequest>>;

struct Batch
{
    struct Chunk
    {
        LiveRequest* request;
        std::int32_t tokens;
    };

    struct Step
    {
        LiveRequest* request;
        std::int32_t draft;  ///< tokens proposed
        std::int32_t tokens; ///< tokens produced
    };

    std::vector<Chunk> context;
    std::vector<Step> generation;
    std::int32_t paused{0};

    [[nodiscard]] std::size_t size() const
    {
        return context.size() + generation.size();
    }

    [[nodiscard]] std::int32_t contextTokens() const;
};

struct Limits
{
    std::int32_t batchSize;
    std::int32_t tokens;
    executor::CapacitySchedulerPolicy policy;
    bool chunkedContext;
    std::int32_t draftTokens;
    std::int32_t tokensPerBlock;
};

class Scheduler
{
public:
    explicit Scheduler(Limits const& limits);

    /// Selects the batch, allocates its blocks and pauses requests that must make room. The steps have no results yet.
    [[nodiscard]] Batch schedule(ActiveRequests& active, KvCache& cache) const;

private:
    [[nodiscard]] std::vector<LiveRequest*> fitWithoutEviction(
        ActiveRequests const& active, KvCache const& cache) const;
    [[nodiscard]] std::vector<LiveRequest*> fitByPausing(
        ActiveRequests const& active, KvCache& cache, std::int32_t& paused) const;
    [[nodiscard]] std::int32_t costOfStep(LiveRequest const& request, KvCache const& cache) const;
    [[nodiscard]] std::int32_t draftFor(LiveRequest const& request) const;

    Limits mLimits;
};

} // namespace tensorrt_llm::sim
