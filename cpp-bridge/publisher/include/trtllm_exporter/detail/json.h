#pragma once

// Writes records as JSON text.

#include "trtllm_exporter/detail/members.h"
#include "trtllm_exporter/detail/values.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace trtllm_exporter
{
inline namespace development
{
namespace detail
{

/// Builds JSON text. A key and its number share one capacity check, because most of the text is keys and numbers.
class Json
{
public:
    [[nodiscard]] std::string_view text() const
    {
        return {mBegin, static_cast<std::size_t>(mAt - mBegin)};
    }

    void clear()
    {
        mAt = mBegin;
    }

    void raw(std::string_view text)
    {
        reserve(text.size());
        std::memcpy(mAt, text.data(), text.size());
        mAt += text.size();
    }

    /// Appends the characters of a string, escaped for JSON.
    void escaped(std::string_view text)
    {
        reserve(2 * text.size());
        for (auto const c : text)
        {
            if (c == '"' || c == '\\')
            {
                *mAt++ = '\\';
            }
            // No name contains control characters, so a space can replace them.
            *mAt++ = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
        }
    }

    /// Writes an object whose values are texts.
    void texts(std::map<std::string, std::string> const& members)
    {
        raw("{");
        for (auto const& [key, value] : members)
        {
            raw(text().back() == '{' ? "\"" : ",\"");
            escaped(key);
            raw("\":\"");
            escaped(value);
            raw("\"");
        }
        raw("}");
    }

    /// Writes the members that `record` has.
    template <class Table, class Struct>
    void object(Struct const& record)
    {
        auto const start = mAt - mBegin;
        Table::visit(record, *this);
        reserve(2);
        if (mAt - mBegin == start)
        {
            *mAt++ = '{';
        }
        mBegin[start] = '{'; // replaces the comma of the first field
        *mAt++ = '}';
    }

    // Table::visit() calls the following two methods. A key begins with a comma.
    template <std::size_t N, class Value>
    void value(char const (&key)[N], Value const& value)
    {
        field(key, value, [this](auto const& present) { return this->write(present); });
    }

    template <class Table, std::size_t N, class Value>
    void nested(char const (&key)[N], Value const& value)
    {
        field(key, value,
            [this](auto const& present)
            {
                this->template object<Table>(present);
                return true;
            });
    }

private:
    static constexpr std::size_t kNumber = 40;

    template <std::size_t N, class Value, class Write>
    void field(char const (&key)[N], Value const& value, Write const& write)
    {
        if constexpr (IsOptional<Value>::value)
        {
            // An absent value is left out. The exporter treats a missing key like null.
            if (value)
            {
                field(key, *value, write);
            }
        }
        else
        {
            reserve(N + kNumber);
            auto* const before = mAt;
            std::memcpy(mAt, key, N - 1);
            mAt += N - 1;
            if (!write(value))
            {
                mAt = before;
            }
        }
    }

    /// Returns false if the value has no JSON form. The caller then removes the key.
    template <class Value>
    bool write(Value const& value)
    {
        if constexpr (std::is_same_v<Value, bool>)
        {
            raw(value ? "true" : "false");
        }
        else if constexpr (std::is_floating_point_v<Value>)
        {
            if (!std::isfinite(value))
            {
                return false;
            }
            number(value);
        }
        else if constexpr (std::is_integral_v<Value>)
        {
            number(value);
        }
        else if constexpr (std::is_enum_v<Value>)
        {
            auto const* const name = Stages::name(value);
            raw("\"");
            raw(name == nullptr ? "UNKNOWN" : name);
            raw("\"");
        }
        else if constexpr (IsTime<Value>::value)
        {
            // TensorRT-LLM sets the time of an event that did not happen to the clock's zero. The digits are written
            // one by one, because a double would round the nanoseconds.
            auto const since = std::chrono::duration_cast<std::chrono::nanoseconds>(value.time_since_epoch()).count();
            if (since <= 0)
            {
                return false;
            }
            number(since / 1000000000);
            auto fraction = since % 1000000000;
            *mAt = '.';
            for (int digit = 9; digit > 0; --digit, fraction /= 10)
            {
                mAt[digit] = static_cast<char>('0' + fraction % 10);
            }
            mAt += 10;
        }
        else
        {
            raw("\"");
            escaped(std::string_view(value).substr(0, 256));
            raw("\"");
        }
        return true;
    }

    template <class Number>
    void number(Number value)
    {
        mAt = std::to_chars(mAt, mAt + kNumber, value).ptr;
    }

    void reserve(std::size_t more)
    {
        auto const used = static_cast<std::size_t>(mAt - mBegin);
        if (mSize - used >= more)
        {
            return;
        }
        mSize = std::max(mSize * 2, used + more);
        std::unique_ptr<char[]> grown(new char[mSize]);
        std::memcpy(grown.get(), mBegin, used);
        mHeap = std::move(grown);
        mBegin = mHeap.get();
        mAt = mBegin + used;
    }

    char mInline[2048];
    std::unique_ptr<char[]> mHeap;
    char* mBegin{mInline};
    char* mAt{mInline};
    std::size_t mSize{sizeof(mInline)};
};

} // namespace detail
} // namespace development
} // namespace trtllm_exporter
