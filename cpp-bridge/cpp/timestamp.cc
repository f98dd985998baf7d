#include "timestamp.h"

#include <cstddef>

namespace trtllm_bridge
{
namespace
{

/// Days since 1970-01-01 in the Gregorian calendar. Years start in March here, so that the leap day is the last day.
constexpr std::int64_t daysSinceEpoch(std::int64_t year, std::int64_t month, std::int64_t day)
{
    auto const y = month <= 2 ? year - 1 : year;
    auto const era = y / 400;
    auto const yearOfEra = y - era * 400;
    auto const dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    auto const dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear;
    return era * 146097 + dayOfEra - 719468;
}

static_assert(daysSinceEpoch(1970, 1, 1) == 0);
static_assert(daysSinceEpoch(2000, 3, 1) == 11017);
static_assert(daysSinceEpoch(2024, 2, 29) == 19782);

/// The number in the `count` digits from `at` on, or -1 if one of them is not a digit.
std::int64_t digits(std::string_view text, std::size_t at, std::size_t count)
{
    std::int64_t value = 0;
    for (auto i = at; i < at + count; ++i)
    {
        auto const digit = static_cast<unsigned>(text[i]) - unsigned{'0'};
        if (digit > 9)
        {
            return -1;
        }
        value = value * 10 + digit;
    }
    return value;
}

constexpr std::size_t kWithoutFraction = 19;
constexpr std::size_t kMostFractionDigits = 6;

} // namespace

std::optional<std::int64_t> parseTimestamp(std::string_view text)
{
    if (text.size() < kWithoutFraction || text[2] != '-' || text[5] != '-' || text[10] != ' ' || text[13] != ':'
        || text[16] != ':')
    {
        return std::nullopt;
    }
    auto const month = digits(text, 0, 2);
    auto const day = digits(text, 3, 2);
    auto const year = digits(text, 6, 4);
    auto const hour = digits(text, 11, 2);
    auto const minute = digits(text, 14, 2);
    auto const second = digits(text, 17, 2);
    // Second 60 is a leap second.
    if (month < 1 || month > 12 || day < 1 || day > 31 || year < 1 || hour < 0 || hour > 23 || minute < 0
        || minute > 59 || second < 0 || second > 60)
    {
        return std::nullopt;
    }
    std::int64_t micros = 0;
    if (text.size() > kWithoutFraction)
    {
        auto const count = text.size() - kWithoutFraction - 1;
        micros = count >= 1 && count <= kMostFractionDigits && text[kWithoutFraction] == '.'
            ? digits(text, kWithoutFraction + 1, count)
            : -1;
        if (micros < 0)
        {
            return std::nullopt;
        }
        for (auto i = count; i < kMostFractionDigits; ++i)
        {
            micros *= 10;
        }
    }
    auto const seconds = ((daysSinceEpoch(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    return seconds * 1000000 + micros;
}

} // namespace trtllm_bridge
