#pragma once

// Looks up the functions of libtensorrt_llm.so that the preload library interposes. Their mangled names are the same in
// all releases from 0.9 to 1.2 (GCC's C++11 ABI). A host never calls a function that its release lacks.

#include <atomic>

#define TRTLLM_EXECUTOR(name) "_ZN12tensorrt_llm8executor8Executor" name

namespace trtllm_preload
{

/// Finds the definition of `symbol` in another library. RTLD_NEXT misses libraries opened with RTLD_LOCAL, which is how
/// Triton opens TensorRT-LLM, so this searches those too. Returns nullptr if there is no definition.
[[nodiscard]] void* findNext(char const* symbol) noexcept;

/// Ends the process with the dynamic linker's message for an undefined symbol.
[[noreturn]] void abortMissing(char const* symbol) noexcept;

/// A function of the real library. It is looked up once.
template <class Function>
class Real
{
public:
    constexpr explicit Real(char const* symbol)
        : mSymbol(symbol)
    {
    }

    /// Returns nullptr if this release does not have the function.
    [[nodiscard]] Function* get() noexcept
    {
        auto* found = mFound.load(std::memory_order_acquire);
        if (found == nullptr)
        {
            found = findNext(mSymbol);
            mFound.store(found, std::memory_order_release);
        }
        return reinterpret_cast<Function*>(found);
    }

    /// For hooks. The host called this symbol, so the real library must define it; ends the process if not.
    [[nodiscard]] Function& required() noexcept
    {
        if (auto* const found = get())
        {
            return *found;
        }
        abortMissing(mSymbol);
    }

private:
    char const* const mSymbol;
    std::atomic<void*> mFound{nullptr};
};

} // namespace trtllm_preload
