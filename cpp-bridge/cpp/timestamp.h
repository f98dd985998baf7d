#pragma once

// Parses TensorRT-LLM's timestamps. It does not use std::get_time, which costs more than the rest of a record together.

#include <cstdint>
#include <optional>
#include <string_view>

namespace trtllm_bridge
{

/// Converts "MM-DD-YYYY hh:mm:ss.uuuuuu" to microseconds since 1970. The fraction is optional and has up to six digits.
/// The text has no time zone and is read as UTC. Returns nullopt for any other text.
[[nodiscard]] std::optional<std::int64_t> parseTimestamp(std::string_view text);

} // namespace trtllm_bridge
