#pragma once

// Simulated SDK: the exception type of TensorRT-LLM.

#include <cstddef>
#include <stdexcept>
#include <string>

namespace tensorrt_llm::common
{

/// The exception that failing TensorRT-LLM calls throw. `what()` has the message and the source position in the first
/// line, and the call stack in further lines.
class TllmException : public std::runtime_error
{
public:
    TllmException(char const* file, std::size_t line, std::string const& message)
        : std::runtime_error(
              message + " (" + file + ":" + std::to_string(line) + ")\n1       a simulated engine has no call stack")
    {
    }
};

[[noreturn]] inline void throwRuntimeError(char const* file, int line, std::string const& info)
{
    throw TllmException(file, static_cast<std::size_t>(line), "[TensorRT-LLM][ERROR] Assertion failed: " + info);
}

} // namespace tensorrt_llm::common

#define TLLM_THROW(message) throw ::tensorrt_llm::common::TllmException(__FILE__, __LINE__, (message))
