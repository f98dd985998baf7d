#pragma once

// The events of the KV cache, numbered from 0. A full buffer drops the oldest event, which leaves a gap in the numbers.

#include "tensorrt_llm/executor/executor.h"

#if TRTLLM_SIM_SINCE(1, 1)

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

namespace tensorrt_llm::sim
{

class CacheEvents
{
public:
    /// The engine started with this many blocks in GPU memory and none elsewhere.
    CacheEvents(std::size_t capacity, std::int32_t blocks)
        : mCapacity(capacity)
    {
        push(executor::KVCacheCreatedData{{blocks, 0}});
    }

    /// Blocks were stored, and requests can reuse them. Each block continues the previous one.
    void stored(std::vector<std::uint64_t> const& keys)
    {
        executor::KVCacheStoredData data;
        for (auto const key : keys)
        {
            data.blocks.push_back({key, 0, 35});
        }
        push(std::move(data));
    }

    void removed(std::uint64_t key)
    {
        push(executor::KVCacheRemovedData{{key}});
    }

    [[nodiscard]] std::deque<executor::KVCacheEvent> take()
    {
        std::lock_guard const lock(mMutex);
        return std::exchange(mEvents, {});
    }

private:
    void push(executor::KVCacheEventData data)
    {
        std::lock_guard const lock(mMutex);
        if (mEvents.size() >= mCapacity)
        {
            mEvents.pop_front();
        }
        mEvents.emplace_back(mNext++, std::move(data), kWholeContext);
    }

    static constexpr executor::SizeType32 kWholeContext = 1 << 20;

    std::mutex mMutex;
    std::size_t mCapacity;
    executor::IdType mNext{0};
    std::deque<executor::KVCacheEvent> mEvents;
};

} // namespace tensorrt_llm::sim

#endif
