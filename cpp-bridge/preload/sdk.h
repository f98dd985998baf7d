#pragma once

// A copy of TensorRT-LLM in this process, and the check whether this preload can read its records. The preload contains
// the struct layouts of one release and one C++ ABI; reading records with another layout would crash the server.

#include "functions.h"
#include "objects.h"

#include "tensorrt_llm/executor/executor.h"

#include <atomic>
#include <deque>
#include <string>

namespace trtllm_preload
{

namespace tle = tensorrt_llm::executor;

using Iterations = std::deque<tle::IterationStats>;
using Requests = std::deque<tle::RequestStatsPerIteration>;

/// One copy of TensorRT-LLM. The object is never destroyed: hooks in other threads may use it until the process ends.
/// It uses no locks, so that it also works in the child of a fork.
class Sdk
{
public:
    /// The copy that a call of `function` from the code at `caller` would reach without the preload. A process can have
    /// several copies, for example in two plugins. Returns nullptr if no object defines the function. Ends the process
    /// with std::bad_alloc if there is no memory.
    [[nodiscard]] static Sdk* of(void const* caller, Function function) noexcept;

    [[nodiscard]] bool has(Function function) const noexcept
    {
        return mFunctions[static_cast<std::size_t>(function)] != nullptr;
    }

    /// Returns nullptr if this copy does not have the function.
    template <class Signature>
    [[nodiscard]] Signature* get(Function function) const noexcept
    {
        return reinterpret_cast<Signature*>(mFunctions[static_cast<std::size_t>(function)]);
    }

    /// False if the preload was built for another release or ABI. Logs the first difference, once.
    [[nodiscard]] bool matches() noexcept;

    /// False if the library's IterationStats has another size than the preload's. Call it before reading the records.
    [[nodiscard]] bool canRead(Iterations const& drained) noexcept;

    /// True if RequestStats are known to be readable. Their size cannot be found from a drained std::deque, so this
    /// depends on the version and on canRead(Iterations).
    [[nodiscard]] bool canReadRequests() noexcept;
    [[nodiscard]] bool canRead(Requests const& /*drained*/) noexcept
    {
        return canReadRequests();
    }

private:
    enum class State
    {
        kUnknown,
        kPlausible, ///< ABI and version do not differ; no records seen yet
        kReadable,
        kDiffers,
    };

    explicit Sdk(Object object);
    [[nodiscard]] static Sdk* at(void const* definition);
    [[nodiscard]] std::string difference() const;
    void differs(std::string const& what) noexcept;

    Object const mObject;
    void* mFunctions[kFunctions]{};
    std::atomic<State> mState{State::kUnknown};
    Sdk* mNext{nullptr};
};

/// Ends the process with the dynamic linker's message for an undefined symbol.
[[noreturn]] void abortMissing(Function function) noexcept;

} // namespace trtllm_preload
