#pragma once

// TensorRT-LLM's timestamps, read without the C library: std::get_time costs more than all the rest of a record.

#include <cstdint>
#include <optional>
#include <string_view>

namespace trtllm_bridge
{

/// "MM-DD-YYYY hh:mm:ss.uuuuuu" (fraction optional, up to six digits) as microseconds since 1970, the fields taken as
/// if they were UTC: the text names no time zone. Nothing for any other text.
[[nodiscard]] std::optional<std::int64_t> parseTimestamp(std::string_view text);

} // namespace trtllm_bridge
