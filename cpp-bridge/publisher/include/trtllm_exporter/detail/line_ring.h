#pragma once

// The buffer of a publisher.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

namespace trtllm_exporter
{
inline namespace development
{
namespace detail
{

/// A ring buffer of whole lines. When it is full, it drops the oldest lines. It touches only as many pages as it needs.
class LineRing
{
public:
    explicit LineRing(std::size_t bytes)
        : mSize(std::max<std::size_t>(bytes, 4096))
        , mBytes(new char[mSize])
    {
    }

    [[nodiscard]] std::size_t used() const
    {
        return mUsed;
    }

    [[nodiscard]] std::size_t size() const
    {
        return mSize;
    }

    /// Returns how many lines were dropped: older lines, or the new line if it is longer than the buffer.
    std::size_t push(std::string_view line)
    {
        if (line.size() >= mSize)
        {
            return 1;
        }
        std::size_t lost = 0;
        for (; mSize - mUsed < line.size() + 1; ++lost)
        {
            drop(lineEnd());
        }
        auto const at = (mHead + mUsed) % mSize;
        auto const first = std::min(line.size(), mSize - at);
        std::memcpy(&mBytes[at], line.data(), first);
        std::memcpy(&mBytes[0], line.data() + first, line.size() - first);
        mBytes[(at + line.size()) % mSize] = '\n';
        mUsed += line.size() + 1;
        return lost;
    }

    /// Moves whole lines to the end of `to`: lines of at most `maxBytes` bytes together, or one longer line.
    void take(std::string& to, std::size_t maxBytes)
    {
        auto length = std::min(maxBytes, mUsed);
        while (length > 0 && mBytes[(mHead + length - 1) % mSize] != '\n')
        {
            --length;
        }
        length = length > 0 ? length : lineEnd();
        auto const first = std::min(length, mSize - mHead);
        to.append(&mBytes[mHead], first);
        to.append(&mBytes[0], length - first);
        drop(length);
    }

private:
    [[nodiscard]] std::size_t lineEnd() const
    {
        auto const first = std::min(mUsed, mSize - mHead);
        if (auto const* const end = std::memchr(&mBytes[mHead], '\n', first))
        {
            return static_cast<std::size_t>(static_cast<char const*>(end) - &mBytes[mHead]) + 1;
        }
        auto const* const end = std::memchr(&mBytes[0], '\n', mUsed - first);
        return end == nullptr ? mUsed
                              : first + static_cast<std::size_t>(static_cast<char const*>(end) - &mBytes[0]) + 1;
    }

    void drop(std::size_t bytes)
    {
        mUsed -= bytes;
        // An empty ring restarts at 0, so it touches few pages if the exporter reads fast enough.
        mHead = mUsed == 0 ? 0 : (mHead + bytes) % mSize;
    }

    std::size_t mSize;
    std::unique_ptr<char[]> mBytes;
    std::size_t mHead{0};
    std::size_t mUsed{0};
};

} // namespace detail
} // namespace development
} // namespace trtllm_exporter
