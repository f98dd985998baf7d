// TllmException: a message with its source position and the call stack, in TensorRT-LLM's format.

#include "tensorrt_llm/common/tllmException.h"

#include <array>
#include <cstdlib>
#include <execinfo.h>
#include <memory>

namespace tensorrt_llm::common
{
namespace
{

constexpr int kMaxFrames = 32;

std::string captureTrace()
{
    std::array<void*, kMaxFrames> frames{};
    auto const count = ::backtrace(frames.data(), kMaxFrames);
    std::unique_ptr<char*, void (*)(void*)> const symbols(
        ::backtrace_symbols(frames.data(), count), [](void* memory) { std::free(memory); });
    std::string trace;
    for (int i = 1; symbols && i < count; ++i)
    {
        trace += '\n' + std::to_string(i) + "       " + symbols.get()[i];
    }
    return trace;
}

std::string located(char const* file, std::size_t line, std::string const& msg)
{
    return msg + " (" + file + ":" + std::to_string(line) + ")";
}

} // namespace

TllmException::TllmException(char const* file, std::size_t line, std::string const& msg)
    : TllmException(located(file, line, msg), captureTrace())
{
}

TllmException::TllmException(std::string const& text, std::string trace)
    : std::runtime_error(text + trace)
    , mTrace(std::move(trace))
{
}

TllmException::~TllmException() noexcept = default;

std::string TllmException::getTrace() const
{
    return mTrace;
}

void throwRuntimeError(char const* file, int line, std::string const& info)
{
    throw TllmException(file, static_cast<std::size_t>(line), "[TensorRT-LLM][ERROR] Assertion failed: " + info);
}

} // namespace tensorrt_llm::common
