// Tests parsing TensorRT-LLM's timestamps.

#include "check.h"
#include "timestamp.h"

#include <ctime>

using trtllm_bridge::parseTimestamp;

namespace
{

/// Parses the same text with the C library.
std::int64_t slowly(char const* text)
{
    std::tm fields{};
    ::strptime(text, "%m-%d-%Y %H:%M:%S", &fields);
    return static_cast<std::int64_t>(::timegm(&fields)) * 1000000;
}

} // namespace

int main()
{
    CHECK(parseTimestamp("01-01-1970 00:00:00.000000") == 0);
    CHECK(parseTimestamp("07-25-2025 16:54:34.140189") == slowly("07-25-2025 16:54:34") + 140189);
    CHECK(parseTimestamp("07-25-2025 16:54:34") == slowly("07-25-2025 16:54:34"));
    CHECK(parseTimestamp("07-25-2025 16:54:34.5") == slowly("07-25-2025 16:54:34") + 500000);
    for (auto const* text : {"02-29-2024 23:59:59", "03-01-2100 00:00:00", "12-31-1969 23:59:59", "11-30-2399 12:00:00"})
    {
        CHECK(parseTimestamp(text) == slowly(text));
    }
    std::string const whole = "07-25-2025 16:54:34.140189";
    for (std::size_t size = 0; size < whole.size(); ++size)
    {
        // A truncated timestamp is rejected, unless only digits of the fraction are missing.
        CHECK(parseTimestamp(whole.substr(0, size)).has_value() == (size == 19 || size > 20));
    }
    for (auto const* text : {"", "2025-07-25T16:54:34.140189", "13-25-2025 16:54:34", "00-25-2025 16:54:34",
             "07-32-2025 16:54:34", "07-25-2025 24:54:34", "07-25-2025 16:60:34", "07-25-2025 16:54:61",
             "07-2x-2025 16:54:34", "07-25-2025 16:54:34,140189", "07-25-2025 16:54:34.1401890", "07-25-2025 16:54:34.14018x",
             " 7-25-2025 16:54:34"})
    {
        CHECK(!parseTimestamp(text));
    }
}
