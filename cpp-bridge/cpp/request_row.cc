// Converts tensorrt_llm::executor::RequestStats to RequestRow.

#include "member.h"
#include "rows.h"

namespace trtllm_bridge
{
namespace
{

TRTLLM_BRIDGE_MEMBER(avgNumDecodedTokensPerIter);
TRTLLM_BRIDGE_MEMBER(allocTotalBlocksPerRequest);
TRTLLM_BRIDGE_MEMBER(allocNewBlocksPerRequest);
TRTLLM_BRIDGE_MEMBER(reusedBlocksPerRequest);
TRTLLM_BRIDGE_MEMBER(missedBlocksPerRequest);
TRTLLM_BRIDGE_MEMBER(kvCacheHitRatePerRequest);
TRTLLM_BRIDGE_MEMBER(disServingStats);
TRTLLM_BRIDGE_MEMBER(kvCacheTransferMS);
TRTLLM_BRIDGE_MEMBER(kvCacheSize);

constexpr std::uint64_t bit(RequestPresent group, bool exists = true)
{
    return exists ? static_cast<std::uint64_t>(group) : 0;
}

/// Release 0.11 added kENCODER_IN_PROGRESS, which renumbered the stages after it.
template <class Stages, class = void>
struct Encoder
{
    static constexpr bool is(Stages)
    {
        return false;
    }
};

template <class Stages>
struct Encoder<Stages, std::void_t<decltype(Stages::kENCODER_IN_PROGRESS)>>
{
    static constexpr bool is(Stages stage)
    {
        return stage == Stages::kENCODER_IN_PROGRESS;
    }
};

template <class Stages>
Stage stageOf(Stages stage)
{
    if (Encoder<Stages>::is(stage))
    {
        return Stage::EncoderInProgress;
    }
    switch (stage)
    {
    case Stages::kQUEUED: return Stage::Queued;
    case Stages::kCONTEXT_IN_PROGRESS: return Stage::ContextInProgress;
    case Stages::kGENERATION_IN_PROGRESS: return Stage::GenerationInProgress;
    case Stages::kGENERATION_COMPLETE: return Stage::GenerationComplete;
    default: return Stage::Unknown;
    }
}

template <class Stats>
constexpr std::uint64_t kAlwaysPresent = bit(RequestPresent::Decoded, Copy_avgNumDecodedTokensPerIter::exists<Stats>)
    | bit(RequestPresent::KvAlloc, Copy_reusedBlocksPerRequest::exists<Stats>)
    | bit(RequestPresent::KvMissed, Copy_missedBlocksPerRequest::exists<Stats>);

template <class Stats>
void readAny(Stats const& stats, std::uint64_t iter, RequestRow& row)
{
    row = RequestRow{};
    row.present = kAlwaysPresent<Stats>;
    row.iter = iter;
    row.id = stats.id;
    row.stage = static_cast<std::uint8_t>(stageOf(stats.stage));
    row.scheduled = stats.scheduled;
    row.paused = stats.paused;
    row.context_prefill_position = stats.contextPrefillPosition;
    row.num_generated_tokens = stats.numGeneratedTokens;
    Copy_avgNumDecodedTokensPerIter::from(stats, row.avg_num_decoded_tokens_per_iter);
    Copy_allocTotalBlocksPerRequest::from(stats, row.alloc_total_blocks);
    Copy_allocNewBlocksPerRequest::from(stats, row.alloc_new_blocks);
    Copy_reusedBlocksPerRequest::from(stats, row.reused_blocks);
    Copy_missedBlocksPerRequest::from(stats, row.missed_blocks);
    Copy_kvCacheHitRatePerRequest::from(stats, row.kv_cache_hit_rate);
    Copy_disServingStats::visit(stats,
        [&row](auto const& serving)
        {
            using Serving = std::decay_t<decltype(serving)>;
            Copy_kvCacheTransferMS::from(serving, row.kv_cache_transfer_ms);
            Copy_kvCacheSize::from(serving, row.kv_cache_size);
            row.present |= bit(RequestPresent::DisServing)
                | bit(RequestPresent::DisServingSize, Copy_kvCacheSize::exists<Serving>);
        });
}

} // namespace

void readRow(tensorrt_llm::executor::RequestStats const& stats, std::uint64_t iter, RequestRow& row)
{
    readAny(stats, iter, row);
}

} // namespace trtllm_bridge
