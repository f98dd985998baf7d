// Allocation, reuse and eviction of KV cache blocks.

#include "kv_cache.h"

#include "tensorrt_llm/common/assert.h"

#include <algorithm>
#include <utility>

namespace tensorrt_llm::sim
{

KvCache::KvCache(std::int32_t blocks, std::int32_t tokensPerBlock, bool reuse)
    : mTokensPerBlock(tokensPerBlock)
    , mReuse(reuse)
    , mBlocks(static_cast<std::size_t>(blocks))
{
    for (BlockId id = 0; id < blocks; ++id)
    {
        mBlocks[static_cast<std::size_t>(id)].place = mFree.insert(mFree.end(), id);
    }
}

#if TRTLLM_SIM_SINCE(1, 1)
void KvCache::reportTo(std::shared_ptr<CacheEvents> events)
{
    mEvents = std::move(events);
}
#endif

std::int32_t KvCache::freeBlocks() const
{
    return static_cast<std::int32_t>(mFree.size());
}

std::int32_t KvCache::blocksFor(std::int32_t tokens) const
{
    return (tokens + mTokensPerBlock - 1) / mTokensPerBlock;
}

std::size_t KvCache::matchingBlocks(LiveRequest const& request) const
{
    if (!mReuse)
    {
        return 0;
    }
    // At least one token is always computed, because its logits give the next token.
    auto const usable = static_cast<std::size_t>((request.contextTarget - 1) / mTokensPerBlock);
    auto const limit = std::min(usable, request.blockKeys.size());
    std::size_t count = 0;
    while (count < limit && mByKey.count(request.blockKeys[count]) != 0)
    {
        ++count;
    }
    return count;
}

std::int32_t KvCache::costOfContext(LiveRequest const& request) const
{
    auto cost = blocksFor(request.contextTarget);
    auto const matching = matchingBlocks(request);
    for (std::size_t i = 0; i < matching; ++i)
    {
        auto const id = mByKey.at(request.blockKeys[i]);
        cost -= mBlocks[static_cast<std::size_t>(id)].users > 0 ? 1 : 0;
    }
    return cost;
}

void KvCache::beginContext(LiveRequest& request)
{
    auto const matching = matchingBlocks(request);
    for (std::size_t i = 0; i < matching; ++i)
    {
        auto const id = mByKey.at(request.blockKeys[i]);
        use(id);
        request.blocks.push_back(id);
    }
    auto const total = blocksFor(request.contextTarget);
    auto const reused = static_cast<std::int32_t>(matching);
    for (auto i = reused; i < total; ++i)
    {
        request.blocks.push_back(takeFree());
    }
    request.contextDone = reused * mTokensPerBlock;
    request.reused += reused;
    request.missed += total - reused;
    request.allocNew += total - reused;
    request.allocTotal += total;
    mReused += matching;
    mMissed += static_cast<std::uint64_t>(total - reused);
    mAllocNew += static_cast<std::uint64_t>(total - reused);
    mAllocTotal += static_cast<std::uint64_t>(total);
}

void KvCache::publishContext(LiveRequest const& request)
{
    auto const count = mReuse ? std::min(request.blockKeys.size(), request.blocks.size()) : 0;
    std::vector<std::uint64_t> stored;
    for (std::size_t i = 0; i < count; ++i)
    {
        auto const id = request.blocks[i];
        // If two requests computed the same block in parallel, the cache keeps the first one.
        if (mByKey.emplace(request.blockKeys[i], id).second)
        {
            mBlocks[static_cast<std::size_t>(id)].key = request.blockKeys[i];
            stored.push_back(request.blockKeys[i]);
        }
    }
#if TRTLLM_SIM_SINCE(1, 1)
    if (mEvents && !stored.empty())
    {
        mEvents->stored(stored);
    }
#endif
}

void KvCache::extend(LiveRequest& request, std::int32_t tokens)
{
    auto const needed = static_cast<std::size_t>(blocksFor(tokens));
    while (request.blocks.size() < needed)
    {
        request.blocks.push_back(takeFree());
        ++request.allocNew;
        ++request.allocTotal;
        ++mAllocNew;
        ++mAllocTotal;
    }
}

void KvCache::release(LiveRequest& request)
{
    // Frees the last block first. Eviction then starts at the end of a prompt, because its start is reused most often.
    for (auto id = request.blocks.rbegin(); id != request.blocks.rend(); ++id)
    {
        auto& block = mBlocks[static_cast<std::size_t>(*id)];
        if (--block.users == 0)
        {
            block.place = mFree.insert(block.key == 0 ? mFree.begin() : mFree.end(), *id);
        }
    }
    request.blocks.clear();
}

BlockId KvCache::takeFree()
{
    TLLM_CHECK_WITH_INFO(!mFree.empty(), "the KV cache has no free block");
    auto const id = mFree.front();
    auto& block = mBlocks[static_cast<std::size_t>(id)];
    if (block.key != 0)
    {
        mByKey.erase(block.key);
#if TRTLLM_SIM_SINCE(1, 1)
        if (mEvents)
        {
            mEvents->removed(block.key);
        }
#endif
        block.key = 0;
    }
    use(id);
    return id;
}

void KvCache::use(BlockId id)
{
    auto& block = mBlocks[static_cast<std::size_t>(id)];
    if (block.users++ == 0)
    {
        mFree.erase(block.place);
    }
}

executor::KvCacheStats KvCache::stats() const
{
    executor::KvCacheStats stats{};
    stats.maxNumBlocks = static_cast<std::int32_t>(mBlocks.size());
    stats.freeNumBlocks = freeBlocks();
    stats.usedNumBlocks = stats.maxNumBlocks - stats.freeNumBlocks;
    stats.tokensPerBlock = mTokensPerBlock;
#if TRTLLM_SIM_SINCE(0, 11)
    // As in TensorRT-LLM, 64-bit totals are narrowed to 32 bits, so they wrap when the engine runs long enough.
    stats.allocTotalBlocks = static_cast<std::int32_t>(mAllocTotal);
    stats.allocNewBlocks = static_cast<std::int32_t>(mAllocNew);
    stats.reusedBlocks = static_cast<std::int32_t>(mReused);
#endif
#if TRTLLM_SIM_SINCE(1, 0)
    stats.missedBlocks = static_cast<std::int32_t>(mMissed);
    auto const looked = mReused + mMissed;
    stats.cacheHitRate = looked == 0 ? 0.0F : static_cast<float>(mReused) / static_cast<float>(looked);
#endif
    return stats;
}

} // namespace tensorrt_llm::sim
