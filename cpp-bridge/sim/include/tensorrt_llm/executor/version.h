#pragma once

namespace tensorrt_llm::executor
{

/// The release whose members this simulated SDK offers, marked as a build of its own.
static char const* const kTensorRtLlmVersion = "1.1.0+simulated";

} // namespace tensorrt_llm::executor
