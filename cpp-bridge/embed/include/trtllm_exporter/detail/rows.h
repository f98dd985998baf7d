#pragma once

// Encodes records as rows of numbers, which exporter.h passes to the library. Header and library may come from
// different versions, so a slot number never changes its meaning, and new numbers go to the end of a row.
// embed/src/rows.rs decodes the same slots.

#include "trtllm_exporter/publisher.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace trtllm_exporter::detail
{

/// The position of `value` in the list of enumerators, or -1.
template <template <class, class> class... Named, class E>
std::int64_t indexOf(E value)
{
    std::int64_t index = 0, found = -1;
    static_cast<void>(((found = Named<E, void>::of(value) != nullptr ? index : found, ++index), ...));
    return found;
}

/// `count` numbers, each present or absent.
template <std::size_t count>
class Slots
{
public:
    template <class Value>
    void put(std::size_t slot, Value const& value)
    {
        if constexpr (IsOptional<Value>::value)
        {
            if (value)
            {
                put(slot, *value);
            }
        }
        else if constexpr (IsTime<Value>::value)
        {
            if (value.time_since_epoch().count() > 0)
            {
                put(slot, std::chrono::duration<double>(value.time_since_epoch()).count());
            }
        }
        else if constexpr (std::is_floating_point_v<Value>)
        {
            if (std::isfinite(value))
            {
                auto const number = static_cast<double>(value);
                std::memcpy(&values[slot], &number, sizeof(number));
                present[slot / 64] |= std::uint64_t{1} << (slot % 64);
            }
        }
        else
        {
            static_assert(std::is_integral_v<Value>, "a slot holds a number");
            values[slot] = static_cast<std::uint64_t>(value);
            present[slot / 64] |= std::uint64_t{1} << (slot % 64);
        }
    }

    std::array<std::uint64_t, (count + 63) / 64> present{};
    std::array<std::uint64_t, count> values{};
};

// Writes the member of `from` into `slot`. Writes nothing if this release's struct has no such member.
#define TRTLLM_EXPORTER_PUT(slots, slot, from, member)                                                                 \
    if constexpr (Has_##member<std::decay_t<decltype(from)>>::value)                                                   \
    {                                                                                                                  \
        (slots).put(slot, (from).member);                                                                              \
    }
// Calls `action` with the nested struct, if this release has it and it holds a value.
#define TRTLLM_EXPORTER_WITH(from, member, action)                                                                     \
    if constexpr (Has_##member<std::decay_t<decltype(from)>>::value)                                                   \
    {                                                                                                                  \
        with((from).member, action);                                                                                   \
    }

/// A buffer of rows. Each row holds, in the machine's byte order: one letter for its kind, the number of slots and the
/// length of the text (two bytes each), one bit per slot that says whether it is present, the slots, and the text.
class Rows
{
public:
    [[nodiscard]] std::vector<unsigned char> const& bytes() const
    {
        return mBytes;
    }

    void clear()
    {
        mBytes.clear();
    }

    void append(Rows const& other)
    {
        mBytes.insert(mBytes.end(), other.mBytes.begin(), other.mBytes.end());
    }

    /// Appends an IterationStats.
    template <class Record>
    void record(Record const& record)
    {
        Slots<60> slots;
        TRTLLM_EXPORTER_PUT(slots, 0, record, iter)
        TRTLLM_EXPORTER_PUT(slots, 1, record, iterLatencyMS)
        TRTLLM_EXPORTER_PUT(slots, 2, record, newActiveRequestsQueueLatencyMS)
        TRTLLM_EXPORTER_PUT(slots, 3, record, numNewActiveRequests)
        TRTLLM_EXPORTER_PUT(slots, 4, record, numActiveRequests)
        TRTLLM_EXPORTER_PUT(slots, 5, record, numQueuedRequests)
        TRTLLM_EXPORTER_PUT(slots, 6, record, numCompletedRequests)
        TRTLLM_EXPORTER_PUT(slots, 7, record, maxNumActiveRequests)
        TRTLLM_EXPORTER_PUT(slots, 8, record, maxBatchSizeStatic)
        TRTLLM_EXPORTER_PUT(slots, 9, record, maxBatchSizeTunerRecommended)
        TRTLLM_EXPORTER_PUT(slots, 10, record, maxBatchSizeRuntime)
        TRTLLM_EXPORTER_PUT(slots, 11, record, maxNumTokensStatic)
        TRTLLM_EXPORTER_PUT(slots, 12, record, maxNumTokensTunerRecommended)
        TRTLLM_EXPORTER_PUT(slots, 13, record, maxNumTokensRuntime)
        TRTLLM_EXPORTER_PUT(slots, 14, record, gpuMemUsage)
        TRTLLM_EXPORTER_PUT(slots, 15, record, cpuMemUsage)
        TRTLLM_EXPORTER_PUT(slots, 16, record, pinnedMemUsage)
        TRTLLM_EXPORTER_WITH(record, kvCacheStats, [&](auto const& cache) { putCache(slots, 17, cache); })
        TRTLLM_EXPORTER_WITH(record, crossKvCacheStats, [&](auto const& cache) { putCache(slots, 26, cache); })
        TRTLLM_EXPORTER_WITH(record, inflightBatchingStats, [&](auto const& batch) { putInflight(slots, batch); })
        TRTLLM_EXPORTER_WITH(record, staticBatchingStats, [&](auto const& batch) { putStatic(slots, batch); })
        TRTLLM_EXPORTER_WITH(record, specDecodingStats, [&](auto const& decoding) { putSpec(slots, decoding); })
        row('i', slots, record.timestamp);
    }

    /// Appends a RequestStatsPerIteration: one row for the iteration, then one for each request.
    template <class Record>
    void requests(Record const& record)
    {
        Slots<1> iteration;
        iteration.put(0, record.iter);
        row('r', iteration);
        for (auto const& request : record.requestStats)
        {
            Slots<14> slots;
            slots.put(0, request.id);
            slots.put(1, indexOf<Is_kQUEUED, Is_kENCODER_IN_PROGRESS, Is_kCONTEXT_IN_PROGRESS,
                Is_kGENERATION_IN_PROGRESS, Is_kGENERATION_COMPLETE>(request.stage));
            TRTLLM_EXPORTER_PUT(slots, 2, request, contextPrefillPosition)
            TRTLLM_EXPORTER_PUT(slots, 3, request, numGeneratedTokens)
            TRTLLM_EXPORTER_PUT(slots, 4, request, avgNumDecodedTokensPerIter)
            TRTLLM_EXPORTER_PUT(slots, 5, request, scheduled)
            TRTLLM_EXPORTER_PUT(slots, 6, request, paused)
            TRTLLM_EXPORTER_PUT(slots, 7, request, allocTotalBlocksPerRequest)
            TRTLLM_EXPORTER_PUT(slots, 8, request, allocNewBlocksPerRequest)
            TRTLLM_EXPORTER_PUT(slots, 9, request, reusedBlocksPerRequest)
            TRTLLM_EXPORTER_PUT(slots, 10, request, missedBlocksPerRequest)
            TRTLLM_EXPORTER_PUT(slots, 11, request, kvCacheHitRatePerRequest)
            TRTLLM_EXPORTER_WITH(request, disServingStats, [&](auto const& transfer) {
                TRTLLM_EXPORTER_PUT(slots, 12, transfer, kvCacheTransferMS)
                TRTLLM_EXPORTER_PUT(slots, 13, transfer, kvCacheSize)
            })
            row('q', slots);
        }
    }

    /// Appends the result of a finished request. The result must hold RequestPerfMetrics.
    template <class Result>
    void finished(std::uint64_t request, Result const& result)
    {
        Slots<19> slots;
        slots.put(0, request);
        if constexpr (Has_finishReasons<Result>::value)
        {
            auto const reason = result.finishReasons.empty() ? -1
                : indexOf<Is_kEND_ID, Is_kSTOP_WORDS, Is_kLENGTH, Is_kTIMED_OUT, Is_kCANCELLED>(
                    result.finishReasons.front());
            if (reason >= 0)
            {
                slots.put(1, reason);
            }
        }
        with(result.requestPerfMetrics, [&](auto const& metrics) { putMetrics(slots, metrics); });
        row('p', slots);
    }

private:
    template <class Value, class Action>
    static void with(Value const& value, Action const& action)
    {
        if constexpr (IsOptional<Value>::value)
        {
            if (value)
            {
                action(*value);
            }
        }
        else
        {
            action(value);
        }
    }

    template <class Into, class Cache>
    static void putCache(Into& slots, std::size_t first, Cache const& cache)
    {
        TRTLLM_EXPORTER_PUT(slots, first, cache, maxNumBlocks)
        TRTLLM_EXPORTER_PUT(slots, first + 1, cache, freeNumBlocks)
        TRTLLM_EXPORTER_PUT(slots, first + 2, cache, usedNumBlocks)
        TRTLLM_EXPORTER_PUT(slots, first + 3, cache, tokensPerBlock)
        TRTLLM_EXPORTER_PUT(slots, first + 4, cache, allocTotalBlocks)
        TRTLLM_EXPORTER_PUT(slots, first + 5, cache, allocNewBlocks)
        TRTLLM_EXPORTER_PUT(slots, first + 6, cache, reusedBlocks)
        TRTLLM_EXPORTER_PUT(slots, first + 7, cache, missedBlocks)
        TRTLLM_EXPORTER_PUT(slots, first + 8, cache, cacheHitRate)
    }

    template <class Into, class Batch>
    static void putInflight(Into& slots, Batch const& batch)
    {
        TRTLLM_EXPORTER_PUT(slots, 35, batch, numScheduledRequests)
        TRTLLM_EXPORTER_PUT(slots, 36, batch, numContextRequests)
        TRTLLM_EXPORTER_PUT(slots, 37, batch, numGenRequests)
        TRTLLM_EXPORTER_PUT(slots, 38, batch, numPausedRequests)
        TRTLLM_EXPORTER_PUT(slots, 39, batch, numCtxTokens)
        TRTLLM_EXPORTER_PUT(slots, 40, batch, microBatchId)
        TRTLLM_EXPORTER_PUT(slots, 41, batch, avgNumDecodedTokensPerIter)
        TRTLLM_EXPORTER_PUT(slots, 42, batch, numCtxKvTokens)
        TRTLLM_EXPORTER_PUT(slots, 43, batch, numGenKvTokens)
        TRTLLM_EXPORTER_PUT(slots, 44, batch, numQueuedContextRequests)
        TRTLLM_EXPORTER_PUT(slots, 45, batch, numQueuedCtxTokens)
        TRTLLM_EXPORTER_PUT(slots, 46, batch, numQueuedGenRequests)
        TRTLLM_EXPORTER_PUT(slots, 47, batch, numQueuedGenKvTokens)
        TRTLLM_EXPORTER_PUT(slots, 48, batch, numPausedKvTokens)
    }

    template <class Into, class Batch>
    static void putStatic(Into& slots, Batch const& batch)
    {
        TRTLLM_EXPORTER_PUT(slots, 49, batch, numScheduledRequests)
        TRTLLM_EXPORTER_PUT(slots, 50, batch, numContextRequests)
        TRTLLM_EXPORTER_PUT(slots, 51, batch, numCtxTokens)
        TRTLLM_EXPORTER_PUT(slots, 52, batch, numGenTokens)
        TRTLLM_EXPORTER_PUT(slots, 53, batch, emptyGenSlots)
    }

    template <class Into, class Decoding>
    static void putSpec(Into& slots, Decoding const& decoding)
    {
        TRTLLM_EXPORTER_PUT(slots, 54, decoding, numDraftTokens)
        TRTLLM_EXPORTER_PUT(slots, 55, decoding, numAcceptedTokens)
        TRTLLM_EXPORTER_PUT(slots, 56, decoding, numRequestsWithDraftTokens)
        TRTLLM_EXPORTER_PUT(slots, 57, decoding, acceptanceLength)
        TRTLLM_EXPORTER_PUT(slots, 58, decoding, iterLatencyMS)
        TRTLLM_EXPORTER_PUT(slots, 59, decoding, draftOverhead)
    }

    template <class Into, class Metrics>
    static void putMetrics(Into& slots, Metrics const& metrics)
    {
        TRTLLM_EXPORTER_PUT(slots, 2, metrics, firstIter)
        TRTLLM_EXPORTER_PUT(slots, 3, metrics, lastIter)
        TRTLLM_EXPORTER_WITH(metrics, timingMetrics, [&](auto const& times) {
            TRTLLM_EXPORTER_PUT(slots, 4, times, arrivalTime)
            TRTLLM_EXPORTER_PUT(slots, 5, times, firstScheduledTime)
            TRTLLM_EXPORTER_PUT(slots, 6, times, firstTokenTime)
            TRTLLM_EXPORTER_PUT(slots, 7, times, lastTokenTime)
            TRTLLM_EXPORTER_PUT(slots, 8, times, kvCacheTransferStart)
            TRTLLM_EXPORTER_PUT(slots, 9, times, kvCacheTransferEnd)
            TRTLLM_EXPORTER_PUT(slots, 10, times, kvCacheSize)
        })
        TRTLLM_EXPORTER_WITH(metrics, kvCacheMetrics, [&](auto const& cache) {
            TRTLLM_EXPORTER_PUT(slots, 11, cache, numTotalAllocatedBlocks)
            TRTLLM_EXPORTER_PUT(slots, 12, cache, numNewAllocatedBlocks)
            TRTLLM_EXPORTER_PUT(slots, 13, cache, numReusedBlocks)
            TRTLLM_EXPORTER_PUT(slots, 14, cache, numMissedBlocks)
            TRTLLM_EXPORTER_PUT(slots, 15, cache, kvCacheHitRate)
        })
        TRTLLM_EXPORTER_WITH(metrics, speculativeDecoding, [&](auto const& decoding) {
            TRTLLM_EXPORTER_PUT(slots, 16, decoding, acceptanceRate)
            TRTLLM_EXPORTER_PUT(slots, 17, decoding, totalAcceptedDraftTokens)
            TRTLLM_EXPORTER_PUT(slots, 18, decoding, totalDraftTokens)
        })
    }

    template <std::size_t count>
    void row(char kind, Slots<count> const& slots, std::string_view text = {})
    {
        std::uint16_t const sizes[] = {static_cast<std::uint16_t>(count),
            static_cast<std::uint16_t>(std::min(text.size(), std::size_t{64}))};
        auto at = mBytes.size();
        mBytes.resize(at + 1 + sizeof(sizes) + sizeof(slots.present) + sizeof(slots.values) + sizes[1]);
        auto const put = [&](void const* from, std::size_t size)
        {
            if (size > 0) // an empty text may have a null address, which memcpy does not allow
            {
                std::memcpy(mBytes.data() + at, from, size);
                at += size;
            }
        };
        put(&kind, 1);
        put(sizes, sizeof(sizes));
        put(slots.present.data(), sizeof(slots.present));
        put(slots.values.data(), sizeof(slots.values));
        put(text.data(), sizes[1]);
    }

    std::vector<unsigned char> mBytes;
};

#undef TRTLLM_EXPORTER_PUT
#undef TRTLLM_EXPORTER_WITH

} // namespace trtllm_exporter::detail
