// First selects requests that have KV cache blocks, then those that fit into the token budget of the micro batch.

#include "scheduler.h"

#include <algorithm>

namespace tensorrt_llm::sim
{
namespace
{

void pause(LiveRequest& request, KvCache& cache)
{
    cache.release(request);
    request.paused = true;
    request.inGeneration = false;
    request.contextDone = 0;
    // The tokens generated so far become part of the context, which must be computed again.
    request.contextTarget = request.promptTokens + request.generated;
}

} // namespace

std::int32_t Batch::contextTokens() const
{
    std::int32_t tokens = 0;
    for (auto const& chunk : context)
    {
        tokens += chunk.tokens;
    }
    return tokens;
}

Scheduler::Scheduler(Limits const& limits)
    : mLimits(limits)
{
}

std::int32_t Scheduler::draftFor(LiveRequest const& request) const
{
    return std::min(mLimits.draftTokens, request.remaining() - 1);
}

std::int32_t Scheduler::costOfStep(LiveRequest const& request, KvCache const& cache) const
{
    if (request.blocks.empty())
    {
        return cache.costOfContext(request);
    }
    if (!request.inGeneration)
    {
        return 0;
    }
    auto const tokens = request.promptTokens + request.generated + 1 + draftFor(request);
    return std::max(cache.blocksFor(tokens) - static_cast<std::int32_t>(request.blocks.size()), 0);
}

std::vector<LiveRequest*> Scheduler::fitWithoutEviction(ActiveRequests const& active, KvCache const& cache) const
{
    std::vector<LiveRequest*> fitting;
    auto budget = cache.freeBlocks();
    auto const toCompletion = [&cache](LiveRequest const& request)
    { return cache.blocksFor(request.promptTokens + request.outputTokens); };
    for (auto const& request : active)
    {
        if (!request->blocks.empty())
        {
            budget -= std::max(toCompletion(*request) - static_cast<std::int32_t>(request->blocks.size()), 0);
            fitting.push_back(request.get());
        }
    }
    for (auto const& request : active)
    {
        if (request->blocks.empty())
        {
            auto const growth = toCompletion(*request) - cache.blocksFor(request->contextTarget);
            auto const cost = cache.costOfContext(*request) + growth;
            if (cost > budget)
            {
                break;
            }
            budget -= cost;
            fitting.push_back(request.get());
        }
    }
    return fitting;
}

std::vector<LiveRequest*> Scheduler::fitByPausing(
    ActiveRequests const& active, KvCache& cache, std::int32_t& paused) const
{
    std::vector<LiveRequest*> fitting;
    auto budget = cache.freeBlocks();
    for (std::size_t i = 0; i < active.size(); ++i)
    {
        auto const cost = costOfStep(*active[i], cache);
        if (cost <= budget)
        {
            budget -= cost;
            fitting.push_back(active[i].get());
            continue;
        }
        auto const younger = active.begin() + static_cast<std::ptrdiff_t>(i) + 1;
        auto const victim = std::find_if(active.rbegin(), std::make_reverse_iterator(younger),
            [](auto const& request) { return !request->blocks.empty(); });
        if (victim == std::make_reverse_iterator(younger))
        {
            break;
        }
        pause(**victim, cache);
        ++paused;
        // The cost depends on the blocks that other requests share, so count again from the oldest request.
        fitting.clear();
        budget = cache.freeBlocks();
        i = static_cast<std::size_t>(-1);
    }
    return fitting;
}

Batch Scheduler::schedule(ActiveRequests& active, KvCache& cache) const
{
    for (auto const& request : active)
    {
        request->scheduled = false;
    }
    Batch batch;
    auto const fitting = mLimits.policy == executor::CapacitySchedulerPolicy::kMAX_UTILIZATION
        ? fitByPausing(active, cache, batch.paused)
        : fitWithoutEviction(active, cache);

    auto tokens = mLimits.tokens;
    auto slots = mLimits.batchSize;
    // Requests in the generation phase have priority: they hold blocks, and users wait for their next tokens.
    for (auto* const request : fitting)
    {
        if (request->inGeneration && slots > 0)
        {
            auto const draft = std::min(draftFor(*request), tokens - 1);
            if (draft < 0)
            {
                break;
            }
            cache.extend(*request, request->promptTokens + request->generated + 1 + draft);
            batch.generation.push_back({request, draft, 1});
            request->scheduled = true;
            tokens -= 1 + draft;
            --slots;
        }
    }
    for (auto* const request : fitting)
    {
        if (request->inGeneration)
        {
            continue;
        }
        if (slots == 0 || tokens <= 0)
        {
            break;
        }
        if (request->blocks.empty())
        {
            if (!mLimits.chunkedContext && request->contextTarget > tokens && batch.size() > 0)
            {
                break;
            }
            cache.beginContext(*request);
            request->paused = false;
        }
        auto chunk = request->contextTarget - request->contextDone;
        if (chunk > tokens && mLimits.chunkedContext)
        {
            // All chunks except the last end on a block boundary, unless the budget is smaller than a block.
            chunk = tokens >= mLimits.tokensPerBlock ? tokens - tokens % mLimits.tokensPerBlock : tokens;
        }
        batch.context.push_back({request, chunk});
        request->scheduled = true;
        tokens -= chunk;
        --slots;
    }
    return batch;
}

} // namespace tensorrt_llm::sim
