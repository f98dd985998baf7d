#pragma once

// Simulated SDK: the exception type of TensorRT-LLM. Knows nothing about executors.

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
    explicit TllmException(char const* file, std::size_t line, std::string const& msg);
    ~TllmException() noexcept override;

    [[nodiscard]] std::string getTrace() const;

private:
    TllmException(std::string const& text, std::string trace);

    std::string mTrace;
};

[[noreturn]] void throwRuntimeError(char const* file, int line, std::string const& info);

} // namespace tensorrt_llm::common

#define TLLM_THROW(text) throw ::tensorrt_llm::common::TllmException(__FILE__, __LINE__, (text))
