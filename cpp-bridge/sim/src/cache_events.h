#pragma once

// The events of the KV cache, numbered from 0. A full buffer drops the oldest event, which leaves a gap in the numbers.

#include "step.h"

#include "tensorrt_llm/executor/executor.h"

#if TRTLLM_SIM_SINCE(1, 1)

#include <algorithm>
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
    explicit CacheEvents(std::size_t capacity)
        : mCapacity(capacity)
    {
    }

    void push(trtllm_sim_event const& event)
    {
        executor::KVCacheEventData data;
        auto const* const end = event.numbers + event.count;
        switch (event.kind)
        {
        case 0: data = executor::KVCacheCreatedData{{event.numbers, end}}; break;
        case 1:
        {
            executor::KVCacheStoredData stored;
            std::for_each(
                event.numbers, end, [&stored](std::uint64_t hash) { stored.blocks.push_back({hash, 0, 35}); });
            data = std::move(stored);
            break;
        }
        default: data = executor::KVCacheRemovedData{{event.numbers, end}};
        }
        std::lock_guard const lock(mMutex);
        if (mEvents.size() >= mCapacity)
        {
            mEvents.pop_front();
        }
        mEvents.emplace_back(event.id, std::move(data), kWholeContext);
    }

    [[nodiscard]] std::deque<executor::KVCacheEvent> take()
    {
        std::lock_guard const lock(mMutex);
        return std::exchange(mEvents, {});
    }

private:
    static constexpr executor::SizeType32 kWholeContext = 1 << 20;

    std::mutex mMutex;
    std::size_t mCapacity;
    std::deque<executor::KVCacheEvent> mEvents;
};

} // namespace tensorrt_llm::sim

#endif
