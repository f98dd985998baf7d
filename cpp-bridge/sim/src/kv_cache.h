#pragma once

// The paged KV cache: a pool of blocks, shared by reference between requests with equal beginnings. A block that
// nobody uses keeps its content until the pool needs it; it counts as free.

#include "cache_events.h"
#include "live_request.h"

#include "tensorrt_llm/executor/types.h"

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

namespace tensorrt_llm::sim
{

class KvCache
{
public:
    KvCache(std::int32_t blocks, std::int32_t tokensPerBlock, bool reuse);

#if TRTLLM_SIM_SINCE(1, 1)
    /// Tells from here on what becomes of blocks.
    void tell(std::shared_ptr<CacheEvents> events);
#endif
    [[nodiscard]] std::int32_t freeBlocks() const;
    [[nodiscard]] std::int32_t blocksFor(std::int32_t tokens) const;
    /// Free blocks that a start of this request's context phase would take.
    [[nodiscard]] std::int32_t costOfContext(LiveRequest const& request) const;

    /// Gives the request all blocks of its context; what the cache already holds counts as done.
    void beginContext(LiveRequest& request);
    /// From here on others can reuse the blocks of its prompt.
    void publishContext(LiveRequest const& request);
    /// Extends the request's blocks to hold this many tokens.
    void extend(LiveRequest& request, std::int32_t tokens);
    void release(LiveRequest& request);

    [[nodiscard]] executor::KvCacheStats stats() const;

private:
    struct Block
    {
        std::uint64_t key{0}; ///< 0 = content that nobody else can use
        std::int32_t users{0};
        std::list<BlockId>::iterator place; ///< in mFree, while nobody uses it
    };

    [[nodiscard]] std::size_t matchingBlocks(LiveRequest const& request) const;
    BlockId takeFree();
    void use(BlockId id);

    std::int32_t mTokensPerBlock;
    bool mReuse;
    std::vector<Block> mBlocks;
    std::list<BlockId> mFree; ///< front = to be overwritten first
    std::unordered_map<std::uint64_t, BlockId> mByKey;
    std::uint64_t mAllocTotal{0};
    std::uint64_t mAllocNew{0};
    std::uint64_t mReused{0};
    std::uint64_t mMissed{0};
#if TRTLLM_SIM_SINCE(1, 1)
    std::shared_ptr<CacheEvents> mEvents;
#endif
};

} // namespace tensorrt_llm::sim
