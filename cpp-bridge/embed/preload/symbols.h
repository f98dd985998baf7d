#pragma once

// The functions that the preload stands in front of, by their names in libtensorrt_llm.so. These are the same in every
// release from 0.9 to 1.2 (GCC's C++11 ABI); what a release lacks is never called.

#include <atomic>

#define TRTLLM_EXECUTOR(name) "_ZN12tensorrt_llm8executor8Executor" name

namespace trtllm_preload
{

/// The next definition of `symbol` after this library's, also where TensorRT-LLM was opened with RTLD_LOCAL, as
/// Triton does, so that RTLD_NEXT does not see it. nullptr: there is none.
[[nodiscard]] void* findNext(char const* symbol) noexcept;

/// A function of the real library, looked up once.
template <class Function>
class Real
{
public:
    constexpr explicit Real(char const* symbol)
        : mSymbol(symbol)
    {
    }

    /// nullptr: this release has none.
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

    /// For calls that came in through the name, so that somebody has it.
    [[nodiscard]] Function& must() noexcept
    {
        if (auto* const found = get())
        {
            return *found;
        }
        missing(mSymbol);
    }

private:
    [[noreturn]] static void missing(char const* symbol) noexcept;

    char const* const mSymbol;
    std::atomic<void*> mFound{nullptr};
};

[[noreturn]] void endMissing(char const* symbol) noexcept;

template <class Function>
void Real<Function>::missing(char const* symbol) noexcept
{
    endMissing(symbol);
}

} // namespace trtllm_preload
