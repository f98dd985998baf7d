#include "kv_events.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace trtllm_bridge
{
namespace
{

namespace tle = tensorrt_llm::executor;

// Has_<member> is true if a struct has the member. These members identify the kind of an event.
#define TRTLLM_BRIDGE_HAS(member)                                                                                      \
    template <class T, class = void>                                                                                   \
    struct Has_##member : std::false_type                                                                              \
    {                                                                                                                  \
    };                                                                                                                 \
    template <class T>                                                                                                 \
    struct Has_##member<T, std::void_t<decltype(&T::member)>> : std::true_type                                         \
    {                                                                                                                  \
    }
TRTLLM_BRIDGE_HAS(attentionDpRank);
TRTLLM_BRIDGE_HAS(numBlocksPerCacheLevel);
TRTLLM_BRIDGE_HAS(blocks);
TRTLLM_BRIDGE_HAS(blockHashes);
TRTLLM_BRIDGE_HAS(blockHash);

/// Returns true and writes the rank if the event has one.
template <class Event>
bool readRank([[maybe_unused]] Event const& event, [[maybe_unused]] KvEventRow& row)
{
    if constexpr (Has_attentionDpRank<Event>::value)
    {
        if (event.attentionDpRank)
        {
            row.rank = *event.attentionDpRank;
            return true;
        }
    }
    return false;
}

template <class Data>
void readEvent(Data const& data, KvEventRow row, std::deque<KvEventRow>& rows)
{
    auto const before = rows.size();
    auto const level = [&row](std::int64_t value)
    {
        row.has_level = true;
        row.level = static_cast<std::int32_t>(value);
    };
    if constexpr (Has_numBlocksPerCacheLevel<Data>::value)
    {
        row.kind = KvEventKind::Created;
        for (std::size_t i = 0; i < data.numBlocksPerCacheLevel.size(); ++i)
        {
            level(static_cast<std::int64_t>(i));
            row.value = static_cast<std::uint64_t>(data.numBlocksPerCacheLevel[i]);
            rows.push_back(row);
        }
    }
    else if constexpr (Has_blocks<Data>::value)
    {
        row.kind = KvEventKind::Stored;
        for (auto const& block : data.blocks)
        {
            level(block.cacheLevel);
            row.value = block.blockHash;
            rows.push_back(row);
        }
    }
    else if constexpr (Has_blockHashes<Data>::value)
    {
        row.kind = KvEventKind::Removed;
        for (auto const hash : data.blockHashes)
        {
            row.value = hash;
            rows.push_back(row);
        }
    }
    else if constexpr (Has_blockHash<Data>::value)
    {
        row.kind = KvEventKind::Updated;
        row.value = data.blockHash;
        if (data.cacheLevel)
        {
            level(data.cacheLevel->newValue);
        }
        rows.push_back(row);
    }
    if (rows.size() == before)
    {
        // An event without blocks still needs a row, because its event_id shows that no event was lost.
        row.empty = true;
        rows.push_back(row);
    }
}

/// getKVCacheEventManager was added between 0.15 and 1.1.
template <class Executor, class = void>
struct Events
{
    static void take(Executor const&, std::deque<KvEventRow>&) {}
};

template <class Executor>
struct Events<Executor, std::void_t<decltype(std::declval<Executor const&>().getKVCacheEventManager())>>
{
    static void take(Executor const& executor, std::deque<KvEventRow>& rows)
    {
        auto const manager = executor.getKVCacheEventManager();
        if (!manager || !*manager)
        {
            return;
        }
        // Without a timeout, getLatestEvents would wait for an event.
        for (auto const& event : (*manager)->getLatestEvents(std::chrono::milliseconds(0)))
        {
            KvEventRow row{};
            row.event_id = event.eventId;
            row.kind = KvEventKind::Unknown;
            row.has_rank = readRank(event, row);
            std::visit([&](auto const& data) { readEvent(data, row, rows); }, event.data);
        }
    }
};

} // namespace

void takeKvEvents(tle::Executor const& executor, std::deque<KvEventRow>& rows)
{
    Events<tle::Executor>::take(executor, rows);
}

} // namespace trtllm_bridge
