#pragma once

// The paged KV cache: a pool of blocks. Requests with the same prefix share blocks. An unused block counts as free, but
// keeps its content until the pool needs the block.

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
    /// Reports all further changes of blocks to `events`.
    void reportTo(std::shared_ptr<CacheEvents> events);
#endif
    [[nodiscard]] std::int32_t freeBlocks() const;
    [[nodiscard]] std::int32_t blocksFor(std::int32_t tokens) const;
    /// Number of free blocks that the context phase of this request would need.
    [[nodiscard]] std::int32_t costOfContext(LiveRequest const& request) const;

    /// Allocates all blocks for the request's context. Reused blocks count as computed.
    void beginContext(LiveRequest& request);
    /// Lets other requests reuse the blocks of this request's prompt.
    void publishContext(LiveRequest const& request);
    /// Allocates blocks until the request has room for this many tokens.
    void extend(LiveRequest& request, std::int32_t tokens);
    void release(LiveRequest& request);

    [[nodiscard]] executor::KvCacheStats stats() const;

private:
    struct Block
    {
        std::uint64_t key{0}; ///< 0: other requests cannot reuse the content
        std::int32_t users{0};
        std::list<BlockId>::iterator place; ///< the position in mFree while the block is unused
    };

    [[nodiscard]] std::size_t matchingBlocks(LiveRequest const& request) const;
    BlockId takeFree();
    void use(BlockId id);

    std::int32_t mTokensPerBlock;
    bool mReuse;
    std::vector<Block> mBlocks;
    std::list<BlockId> mFree; ///< the first one is overwritten first
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
