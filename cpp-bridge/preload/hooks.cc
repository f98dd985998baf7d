// The hooks: functions with the mangled names of TensorRT-LLM's Executor, which the dynamic linker finds before those
// of libtensorrt_llm.so. The Itanium C++ ABI (x86-64 and aarch64 Linux) passes `this` as the first argument, and
// references and classes by value as pointers, so plain functions can replace methods. The hooks depend only on the
// layout of the records: build the preload once per release, against the headers of that release.

#include "sdk.h"
#include "tee.h"

#include <cstdint>
#include <filesystem>
#include <type_traits>
#include <utility>
#include <vector>

using trtllm_preload::Function;
using trtllm_preload::Iterations;
using trtllm_preload::Requests;
using trtllm_preload::Sdk;
using trtllm_preload::Tee;
using trtllm_preload::Word;

namespace
{

namespace tle = tensorrt_llm::executor;

static_assert(std::is_same_v<decltype(&tle::Executor::getLatestIterationStats), Iterations (tle::Executor::*)()>);
static_assert(std::is_same_v<decltype(&tle::Executor::getLatestRequestStats), Requests (tle::Executor::*)()>);
static_assert(std::is_same_v<decltype(&tle::Executor::shutdown), void (tle::Executor::*)()>);
static_assert(std::is_same_v<decltype(&tle::Executor::canEnqueueRequests), bool (tle::Executor::*)() const>);

/// The copy of TensorRT-LLM that the host's call would reach without the preload. Ends the process if there is none,
/// as the dynamic linker would.
Sdk& sdkOf(void const* caller, Function function) noexcept
{
    auto* const sdk = Sdk::of(caller, function);
    if (sdk == nullptr)
    {
        trtllm_preload::abortMissing(function);
    }
    return *sdk;
}

/// A call of the host.
struct Call
{
    Sdk& sdk;
    std::shared_ptr<trtllm_preload::Engine> engine; ///< nullptr if the preload leaves this Executor alone
};

/// Prepares the call of an Executor's method. A registered Executor always uses the copy of TensorRT-LLM that it was
/// registered with. An unknown Executor is registered if `adopt` is set.
Call callOf(void const* executor, void const* caller, Function function, bool adopt) noexcept
{
    auto* const tee = Tee::current();
    if (auto engine = tee == nullptr ? nullptr : tee->find(executor); engine != nullptr && engine->sdk.has(function))
    {
        return {engine->sdk, std::move(engine)};
    }
    auto& sdk = sdkOf(caller, function);
    return {sdk, tee == nullptr || !adopt || !sdk.matches() ? nullptr : tee->adopt(executor, sdk)};
}

void constructed(void const* executor, Sdk& sdk, Word config, Word folder) noexcept
{
    auto* const tee = Tee::current();
    if (tee != nullptr && sdk.matches())
    {
        auto* const iterations = sdk.get<std::int32_t(Word)>(Function::kIterRing);
        auto* const requests = sdk.get<std::int32_t(Word)>(Function::kRequestRing);
        tee->constructed(executor, sdk, iterations == nullptr ? 1000 : iterations(config),
            requests == nullptr ? 1000 : requests(config), static_cast<std::filesystem::path const*>(folder));
    }
}

/// Prepares a call of a method that ends an Executor: drains the Executor, and unregisters it if it will be destroyed.
Sdk& ending(void const* executor, void const* caller, Function function, bool destroyed) noexcept
{
    auto const call = callOf(executor, caller, function, false);
    auto* const tee = Tee::current();
    if (call.engine != nullptr && tee != nullptr)
    {
        tee->ending(executor, destroyed);
    }
    return call.sdk;
}

/// Drains the Executor for the host: publishes the new records and returns them after the backlog.
template <class Drained, class Backlog>
Drained drainForHost(void* executor, void const* caller, Function function, Backlog trtllm_preload::Engine::*backlog)
{
    auto const [sdk, engine] = callOf(executor, caller, function, true);
    auto* const real = sdk.get<Drained(void*)>(function);
    if (engine == nullptr)
    {
        return real(executor);
    }
    std::lock_guard const lock(engine->mutex);
    auto& kept = (*engine).*backlog;
    kept.hostDrains = true;
    if constexpr (std::is_same_v<Drained, Iterations>)
    {
        if (std::exchange(engine->owesRecords, false))
        {
            return std::move(*engine->unreadable);
        }
    }
    auto fresh = real(executor); // the host gets exceptions of the real function
    if (!sdk.canRead(fresh))
    {
        return fresh; // returned or moved as a whole; that touches no records
    }
    engine->publish(fresh);
    return kept.takeWith(std::move(fresh));
}

} // namespace

#define TRTLLM_EXPORT extern "C" __attribute__((visibility("default")))
#define TRTLLM_CALLER __builtin_return_address(0)

/// The two symbols of one constructor, C1 (complete object) and C2 (base object).
#define TRTLLM_CONSTRUCTOR_KIND(name, kind, mangled, parameters, arguments, folder)                                    \
    TRTLLM_EXPORT void trtllmPreload##name##kind parameters __asm__(TRTLLM_EXECUTOR(#kind) mangled);                   \
    void trtllmPreload##name##kind parameters                                                                          \
    {                                                                                                                  \
        auto& sdk = sdkOf(TRTLLM_CALLER, Function::k##name##kind);                                                     \
        sdk.get<void parameters>(Function::k##name##kind) arguments;                                                   \
        constructed(self, sdk, config, folder);                                                                        \
    }
#define TRTLLM_CONSTRUCTOR(name, mangled, parameters, arguments, folder)                                               \
    TRTLLM_CONSTRUCTOR_KIND(name, C1, mangled, parameters, arguments, folder)                                          \
    TRTLLM_CONSTRUCTOR_KIND(name, C2, mangled, parameters, arguments, folder)
TRTLLM_CONSTRUCTORS(TRTLLM_CONSTRUCTOR)

#define TRTLLM_HOOK(result, name, parameters)                                                                          \
    TRTLLM_EXPORT result trtllmPreload##name parameters __asm__(TRTLLM_NAME_##name);                                   \
    result trtllmPreload##name parameters

TRTLLM_HOOK(void, D1, (void* self))
{
    ending(self, TRTLLM_CALLER, Function::kD1, true).get<void(void*)>(Function::kD1)(self);
}

TRTLLM_HOOK(void, D2, (void* self))
{
    ending(self, TRTLLM_CALLER, Function::kD2, true).get<void(void*)>(Function::kD2)(self);
}

/// A move assignment destroys the Executor that the target held.
TRTLLM_HOOK(void*, Assign, (void* self, void* other))
{
    auto& sdk = self == other ? sdkOf(TRTLLM_CALLER, Function::kAssign)
                              : ending(self, TRTLLM_CALLER, Function::kAssign, true);
    return sdk.get<void*(void*, void*)>(Function::kAssign)(self, other);
}

TRTLLM_HOOK(void, Shutdown, (void* self))
{
    ending(self, TRTLLM_CALLER, Function::kShutdown, false).get<void(void*)>(Function::kShutdown)(self);
}

TRTLLM_HOOK(std::uint64_t, Enqueue, (void* self, Word request))
{
    auto& sdk = callOf(self, TRTLLM_CALLER, Function::kEnqueue, true).sdk;
    return sdk.get<std::uint64_t(void*, Word)>(Function::kEnqueue)(self, request);
}

// extern "C" only sets the symbol name here; the hooks return classes by value with the C++ ABI.
#pragma GCC diagnostic push
#if defined(__clang__)
#pragma GCC diagnostic ignored "-Wreturn-type-c-linkage"
#endif

TRTLLM_HOOK(std::vector<std::uint64_t>, EnqueueMany, (void* self, Word requests))
{
    auto& sdk = callOf(self, TRTLLM_CALLER, Function::kEnqueueMany, true).sdk;
    return sdk.get<std::vector<std::uint64_t>(void*, Word)>(Function::kEnqueueMany)(self, requests);
}

TRTLLM_HOOK(Iterations, Iterations, (void* self))
{
    return drainForHost<Iterations>(self, TRTLLM_CALLER, Function::kIterations, &trtllm_preload::Engine::iterations);
}

TRTLLM_HOOK(Requests, Requests, (void* self))
{
    return drainForHost<Requests>(self, TRTLLM_CALLER, Function::kRequests, &trtllm_preload::Engine::requests);
}

#pragma GCC diagnostic pop
