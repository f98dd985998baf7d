#include "kv_events.h"

#include "member.h"

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

TRTLLM_BRIDGE_MEMBER(attentionDpRank);
TRTLLM_BRIDGE_MEMBER(numBlocksPerCacheLevel);
TRTLLM_BRIDGE_MEMBER(blocks);
TRTLLM_BRIDGE_MEMBER(blockHashes);
TRTLLM_BRIDGE_MEMBER(blockHash);

template <class Data>
void readEvent(Data const& data, KvEventRow row, std::deque<KvEventRow>& rows)
{
    auto const before = rows.size();
    auto const level = [&row](std::int64_t value)
    {
        row.has_level = true;
        row.level = static_cast<std::int32_t>(value);
    };
    if constexpr (Copy_numBlocksPerCacheLevel::exists<Data>)
    {
        row.kind = KvEventKind::Created;
        for (std::size_t i = 0; i < data.numBlocksPerCacheLevel.size(); ++i)
        {
            level(static_cast<std::int64_t>(i));
            row.value = static_cast<std::uint64_t>(data.numBlocksPerCacheLevel[i]);
            rows.push_back(row);
        }
    }
    else if constexpr (Copy_blocks::exists<Data>)
    {
        row.kind = KvEventKind::Stored;
        for (auto const& block : data.blocks)
        {
            level(block.cacheLevel);
            row.value = block.blockHash;
            rows.push_back(row);
        }
    }
    else if constexpr (Copy_blockHashes::exists<Data>)
    {
        row.kind = KvEventKind::Removed;
        for (auto const hash : data.blockHashes)
        {
            row.value = hash;
            rows.push_back(row);
        }
    }
    else if constexpr (Copy_blockHash::exists<Data>)
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
            row.has_rank = Copy_attentionDpRank::visit(event, [&row](auto rank) { row.rank = rank; });
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
