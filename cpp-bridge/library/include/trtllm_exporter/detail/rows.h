#pragma once

// Encodes records as rows of numbers, which exporter.h passes to the library. The slots are those of members.h.

#include "trtllm_exporter/publisher.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

namespace trtllm_exporter
{
inline namespace development
{
namespace detail
{

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
        else if constexpr (std::is_enum_v<Value>)
        {
            put(slot, Stages::position(value));
        }
        else
        {
            static_assert(std::is_integral_v<Value>, "a slot holds a number");
            values[slot] = static_cast<std::uint64_t>(value);
            present[slot / 64] |= std::uint64_t{1} << (slot % 64);
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

    std::array<std::uint64_t, (count + 63) / 64> present{};
    std::array<std::uint64_t, count> values{};
    std::string_view rowText; ///< refers to the record
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
        append<IterationStats>('i', record);
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
            append<RequestStats>('q', request);
        }
    }

    /// Appends the result of a finished request. The result must hold RequestPerfMetrics.
    template <class Result>
    void finished(std::uint64_t request, Result const& result)
    {
        Slots<RequestPerfMetrics::kSlots> slots;
        slots.put(0, request);
        if constexpr (Has_finishReasons<Result>::value)
        {
            auto const reason
                = result.finishReasons.empty() ? -1 : FinishReasons::position(result.finishReasons.front());
            if (reason >= 0)
            {
                slots.put(1, reason);
            }
        }
        slots.template nested<RequestPerfMetrics>(0, "", result.requestPerfMetrics);
        row('p', slots);
    }

private:
    template <class Table, class Record>
    void append(char kind, Record const& record)
    {
        Slots<Table::kSlots> slots;
        Table::visit(0, record, slots);
        row(kind, slots);
    }

    template <std::size_t count>
    void row(char kind, Slots<count> const& slots)
    {
        auto const text = slots.rowText;
        std::uint16_t const sizes[]
            = {static_cast<std::uint16_t>(count), static_cast<std::uint16_t>(std::min(text.size(), std::size_t{64}))};
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

} // namespace detail
} // namespace development
} // namespace trtllm_exporter
