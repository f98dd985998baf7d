#pragma once

// Encodes records as rows of numbers, which exporter.h passes to the library, and the bridge to Rust. The slots are those of
// members.h.

#include "trtllm_exporter/publisher.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

namespace trtllm_exporter
{
inline namespace development
{
namespace detail
{

/// The slots of a row. One that is not written is absent.
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
                store(slot, static_cast<double>(value));
            }
        }
        else if constexpr (std::is_enum_v<Value>)
        {
            put(slot, Stages::position(value));
        }
        else
        {
            static_assert(std::is_integral_v<Value>, "a slot holds a number");
            store(slot, static_cast<std::uint64_t>(value));
        }
    }

    // What Table::visit() calls.
    template <class Key, class Value>
    void value(std::size_t slot, Key const& /*key*/, Value const& value)
    {
        put(slot, value);
    }

    template <class Table, class Key, class Value>
    void nested(std::size_t base, Key const& key, Value const& value)
    {
        if constexpr (IsOptional<Value>::value)
        {
            if (value)
            {
                nested<Table>(base, key, *value);
            }
        }
        else
        {
            Table::visit(base, value, *this);
        }
    }

    template <class Key, class Value>
    void text(Key const& /*key*/, Value const& value)
    {
        rowText = value;
    }

    static constexpr std::size_t kPresent = (count + 63) / 64;
    std::array<std::uint64_t, kPresent + count>
        words{};              ///< one bit per slot that says whether it is present, then the slots
    std::string_view rowText; ///< refers to the record

private:
    template <class Number>
    void store(std::size_t slot, Number number)
    {
        static_assert(sizeof(number) == sizeof(std::uint64_t), "a slot has eight bytes");
        std::memcpy(&words[kPresent + slot], &number, sizeof(number));
        words[slot / 64] |= std::uint64_t{1} << (slot % 64);
    }
};

/// The numbers of tokens of a finished request, if they are known.
struct Lengths
{
    std::optional<std::uint64_t> prompt;
    std::optional<std::uint64_t> output;
};

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
        row<IterationStats::kSlots>('i', [&](auto& slots) { IterationStats::visit(0, record, slots); });
    }

    /// Appends a RequestStatsPerIteration: one row for the iteration, then one for each request.
    template <class Record>
    void requests(Record const& record)
    {
        row<1>('r', [&](auto& slots) { slots.put(0, record.iter); });
        for (auto const& request : record.requestStats)
        {
            row<RequestStats::kSlots>('q', [&](auto& slots) { RequestStats::visit(0, request, slots); });
        }
    }

    /// Appends the result of a finished request. The finish reason and the RequestPerfMetrics are absent if the release
    /// or the engine does not report them.
    template <class Result>
    void finished(std::uint64_t request, Result const& result, Lengths const& lengths = {})
    {
        row<kFinishedSlots>('p',
            [&](auto& slots)
            {
                slots.put(kRequestSlot, request);
                if constexpr (Has_finishReasons<Result>::value)
                {
                    // Enumerator 0 is kNOT_FINISHED.
                    if (!result.finishReasons.empty() && static_cast<int>(result.finishReasons.front()) != 0)
                    {
                        auto const reason = FinishReasons::position(result.finishReasons.front());
                        slots.put(kReasonSlot, reason < 0 ? kOtherReason : reason);
                    }
                }
                if constexpr (Has_requestPerfMetrics<Result>::value)
                {
                    slots.template nested<RequestPerfMetrics>(0, "", result.requestPerfMetrics);
                }
                slots.put(kPromptTokensSlot, lengths.prompt);
                slots.put(kOutputTokensSlot, lengths.output);
            });
    }

    /// Appends a request that ended with an error.
    void failed(std::uint64_t request)
    {
        row<kFinishedSlots>('p',
            [&](auto& slots)
            {
                slots.put(kRequestSlot, request);
                slots.put(kReasonSlot, kOtherReason);
            });
    }

private:
    // A finished request has these slots beside those of RequestPerfMetrics.
    static constexpr std::size_t kRequestSlot = 0;
    static constexpr std::size_t kReasonSlot = 1; ///< a position in FinishReasons, or kOtherReason
    static constexpr std::size_t kPromptTokensSlot = 20;
    static constexpr std::size_t kOutputTokensSlot = 21;
    static constexpr std::size_t kFinishedSlots = std::max<std::size_t>(RequestPerfMetrics::kSlots, 22);
    static constexpr std::int64_t kOtherReason = 99;

    template <std::size_t count, class Write>
    void row(char kind, Write const& write)
    {
        Slots<count> slots;
        write(slots);
        auto const text = slots.rowText.substr(0, 64);
        std::uint16_t const sizes[] = {static_cast<std::uint16_t>(count), static_cast<std::uint16_t>(text.size())};
        mBytes.push_back(static_cast<unsigned char>(kind));
        append(sizes, sizeof(sizes));
        append(slots.words.data(), sizeof(slots.words));
        append(text.data(), text.size());
    }

    void append(void const* from, std::size_t size)
    {
        auto const* const bytes = static_cast<unsigned char const*>(from);
        mBytes.insert(mBytes.end(), bytes, bytes + size);
    }

    std::vector<unsigned char> mBytes;
};

} // namespace detail
} // namespace development
} // namespace trtllm_exporter
