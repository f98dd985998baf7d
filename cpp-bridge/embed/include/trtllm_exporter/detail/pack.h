#pragma once

// Records as MessagePack: what exporter.h hands to the library. Shares publisher.h's list of members.

#include "trtllm_exporter/publisher.h"

#include <cstddef>
#include <cstdint>

namespace trtllm_exporter::detail
{

/// Items one after the other: a letter for its kind, its length in four bytes (big-endian), MessagePack with TensorRT-LLM's
/// keys, which costs a third of JSON.
class Pack
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

    void append(Pack const& other)
    {
        mBytes.insert(mBytes.end(), other.mBytes.begin(), other.mBytes.end());
    }

    template <class Record>
    void record(Record const& record)
    {
        auto const at = begin('i');
        object(record);
        end(at);
    }

    template <class Record>
    void rows(Record const& record)
    {
        auto const at = begin('r');
        mBytes.push_back(0x82);
        text("iter");
        value(record.iter);
        text("requestStats");
        mBytes.push_back(0xdd);
        big(static_cast<std::uint32_t>(record.requestStats.size()));
        for (auto const& row : record.requestStats)
        {
            object(row);
        }
        end(at);
    }

    /// `reason` may be null.
    template <class Metrics>
    void perf(Metrics const& metrics, std::uint64_t request, char const* reason)
    {
        auto const at = begin('p');
        mBytes.push_back(reason == nullptr ? 0x82 : 0x83);
        text("requestId");
        value(request);
        if (reason != nullptr)
        {
            text("finishReason");
            text(reason);
        }
        text("perfMetrics");
        object(metrics);
        end(at);
    }

private:
    std::size_t begin(char kind)
    {
        mBytes.push_back(static_cast<unsigned char>(kind));
        big(std::uint32_t{0});
        return mBytes.size();
    }

    void end(std::size_t begun)
    {
        auto const length = mBytes.size() - begun;
        for (std::size_t byte = 1; byte <= 4; ++byte)
        {
            mBytes[begun - byte] = static_cast<unsigned char>(length >> (8 * (byte - 1)));
        }
    }

    template <class Struct>
    void object(Struct const& value)
    {
        mBytes.push_back(0xde);
        auto const at = mBytes.size();
        mBytes.resize(at + 2);
        std::size_t count = 0;
#define TRTLLM_EXPORTER_PACK(member)                                                                                   \
    if constexpr (Has_##member<Struct>::value)                                                                         \
    {                                                                                                                  \
        static_assert(sizeof(#member) <= 32, "a key longer than MessagePack's short strings");                         \
        count += field(#member, value.member);                                                                         \
    }
        TRTLLM_EXPORTER_MEMBERS(TRTLLM_EXPORTER_PACK)
#undef TRTLLM_EXPORTER_PACK
        mBytes[at] = static_cast<unsigned char>(count >> 8);
        mBytes[at + 1] = static_cast<unsigned char>(count);
    }

    template <class Value>
    std::size_t field(std::string_view key, Value const& value)
    {
        if constexpr (IsOptional<Value>::value)
        {
            return value ? field(key, *value) : 0;
        }
        else
        {
            if constexpr (std::is_floating_point_v<Value>)
            {
                if (!std::isfinite(value))
                {
                    return 0;
                }
            }
            if constexpr (IsTime<Value>::value)
            {
                if (value.time_since_epoch().count() <= 0)
                {
                    return 0;
                }
            }
            text(key);
            this->value(value);
            return 1;
        }
    }

    template <class Value>
    void value(Value const& value)
    {
        if constexpr (std::is_same_v<Value, bool>)
        {
            mBytes.push_back(value ? 0xc3 : 0xc2);
        }
        else if constexpr (std::is_floating_point_v<Value>)
        {
            auto const number = static_cast<double>(value);
            std::uint64_t bits = 0;
            std::memcpy(&bits, &number, sizeof(bits));
            mBytes.push_back(0xcb);
            big(bits);
        }
        else if constexpr (std::is_integral_v<Value>)
        {
            if (value >= 0 && value < 128)
            {
                mBytes.push_back(static_cast<unsigned char>(value));
                return;
            }
            mBytes.push_back(std::is_signed_v<Value> ? 0xd3 : 0xcf);
            big(static_cast<std::uint64_t>(value));
        }
        else if constexpr (std::is_enum_v<Value>)
        {
            auto const* const name = nameOf<Is_kQUEUED, Is_kENCODER_IN_PROGRESS, Is_kCONTEXT_IN_PROGRESS,
                Is_kGENERATION_IN_PROGRESS, Is_kGENERATION_COMPLETE>(value);
            text(name == nullptr ? "UNKNOWN" : name);
        }
        else if constexpr (IsTime<Value>::value)
        {
            this->value(std::chrono::duration<double>(value.time_since_epoch()).count());
        }
        else if constexpr (std::is_convertible_v<Value const&, std::string_view>)
        {
            text(std::string_view(value).substr(0, 31));
        }
        else
        {
            object(value);
        }
    }

    void text(std::string_view text)
    {
        mBytes.push_back(static_cast<unsigned char>(0xa0 | text.size()));
        mBytes.insert(mBytes.end(), text.begin(), text.end());
    }

    template <class Unsigned>
    void big(Unsigned value)
    {
        unsigned char bytes[sizeof(Unsigned)];
        for (auto at = sizeof(Unsigned); at > 0; value >>= 8)
        {
            bytes[--at] = static_cast<unsigned char>(value);
        }
        mBytes.insert(mBytes.end(), bytes, bytes + sizeof(Unsigned));
    }

    std::vector<unsigned char> mBytes;
};

} // namespace trtllm_exporter::detail
