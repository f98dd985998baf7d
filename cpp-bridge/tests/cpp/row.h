#pragma once

// Reads a row back.

#include "trtllm_exporter/detail/rows.h"

#include <bitset>
#include <cstdint>
#include <cstring>
#include <string>

struct Row
{
    /// Reads the row at `at` and moves `at` to the next one.
    explicit Row(unsigned char const*& at)
    {
        std::uint16_t sizes[2];
        kind = static_cast<char>(*at);
        std::memcpy(sizes, at + 1, sizeof(sizes));
        count = sizes[0];
        auto const* const bits = at + 1 + sizeof(sizes);
        std::uint64_t word = 0;
        std::memcpy(&word, bits, sizeof(word));
        present = word;
        mSlots = bits + (count + 63) / 64 * sizeof(word);
        auto const* const end = mSlots + count * sizeof(word);
        text.assign(end, end + sizes[1]);
        at = end + sizes[1];
    }

    [[nodiscard]] std::int64_t integer(std::size_t slot) const
    {
        return read<std::int64_t>(slot);
    }

    [[nodiscard]] double number(std::size_t slot) const
    {
        return read<double>(slot);
    }

    char kind{};
    std::size_t count{};
    std::bitset<64> present; ///< no row has more slots
    std::string text;

private:
    template <class Value>
    [[nodiscard]] Value read(std::size_t slot) const
    {
        Value value{};
        std::memcpy(&value, mSlots + slot * sizeof(value), sizeof(value));
        return value;
    }

    unsigned char const* mSlots{}; ///< refers to the buffer of rows
};

/// The last row.
inline Row last(trtllm_exporter::detail::Rows const& rows)
{
    auto const* at = rows.bytes().data();
    Row row(at);
    while (at != rows.bytes().data() + rows.bytes().size())
    {
        row = Row(at);
    }
    return row;
}
