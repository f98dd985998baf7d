// The hooks: functions with the mangled names of TensorRT-LLM's Executor, which the dynamic linker finds before those
// of libtensorrt_llm.so. The Itanium C++ ABI (x86-64 and aarch64 Linux) passes `this` as the first argument, and
// references and classes by value as pointers, so plain functions can replace methods. The hooks depend only on the
// layout of the records: build the preload once per release, against the headers of that release.

#include "symbols.h"
#include "tee.h"

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

using trtllm_preload::Iterations;
using trtllm_preload::Real;
using trtllm_preload::Requests;
using trtllm_preload::Tee;

namespace
{

namespace tle = tensorrt_llm::executor;

static_assert(std::is_same_v<decltype(&tle::Executor::getLatestIterationStats), Iterations (tle::Executor::*)()>);
static_assert(std::is_same_v<decltype(&tle::Executor::getLatestRequestStats), Requests (tle::Executor::*)()>);
static_assert(std::is_same_v<decltype(&tle::Executor::shutdown), void (tle::Executor::*)()>);
static_assert(std::is_same_v<decltype(&tle::Executor::canEnqueueRequests), bool (tle::Executor::*)() const>);

/// Any argument that the ABI passes in one general-purpose register or one stack slot.
using Word = void*;

constexpr char const* kIterRing = "_ZNK12tensorrt_llm8executor14ExecutorConfig25getIterStatsMaxIterationsEv";
constexpr char const* kRequestRing = "_ZNK12tensorrt_llm8executor14ExecutorConfig28getRequestStatsMaxIterationsEv";
Real<std::int32_t(Word)> realIterRing(kIterRing);
Real<std::int32_t(Word)> realRequestRing(kRequestRing);

void constructed(void const* executor, Word config) noexcept
{
    if (auto* const tee = Tee::current())
    {
        auto* const iterations = realIterRing.get();
        auto* const requests = realRequestRing.get();
        tee->constructed(executor, iterations == nullptr ? 1000 : iterations(config),
            requests == nullptr ? 1000 : requests(config));
    }
}

void called(void const* executor) noexcept
{
    if (auto* const tee = Tee::current())
    {
        tee->called(executor);
    }
}

void ending(void const* executor, bool destroyed) noexcept
{
    if (auto* const tee = Tee::current())
    {
        tee->ending(executor, destroyed);
    }
}

/// Drains the Executor for the host: publishes the new records and returns them after the backlog.
template <class Drained, class Backlog>
Drained drainForHost(Real<Drained(void*)>& real, void* executor, Backlog trtllm_preload::Engine::*backlog)
{
    auto* const tee = Tee::current();
    auto const engine = tee == nullptr ? nullptr : tee->called(executor);
    if (engine == nullptr)
    {
        return real.required()(executor);
    }
    std::lock_guard const lock(engine->mutex);
    engine->hostDrains = true;
    // Exceptions of the real function go to the host.
    auto fresh = real.required()(executor);
    engine->publish(fresh);
    return ((*engine).*backlog).takeWith(std::move(fresh));
}

} // namespace

#define TRTLLM_EXPORT extern "C" __attribute__((visibility("default")))

/// The two symbols of one constructor, C1 (complete object) and C2 (base object). `parameters` must include `config`.
#define TRTLLM_CONSTRUCTOR_KIND(function, kind, mangled, parameters, arguments)                                        \
    TRTLLM_EXPORT void function##kind parameters __asm__(TRTLLM_EXECUTOR(#kind) mangled);                              \
    void function##kind parameters                                                                                     \
    {                                                                                                                  \
        static Real<void parameters> real(TRTLLM_EXECUTOR(#kind) mangled);                                             \
        real.required() arguments;                                                                                     \
        constructed(self, config);                                                                                     \
    }
#define TRTLLM_CONSTRUCTOR(function, mangled, parameters, arguments)                                                   \
    TRTLLM_CONSTRUCTOR_KIND(function, C1, mangled, parameters, arguments)                                              \
    TRTLLM_CONSTRUCTOR_KIND(function, C2, mangled, parameters, arguments)

#define TRTLLM_PATH "RKNSt10filesystem7__cxx114pathE"
#define TRTLLM_TYPE_CONFIG "NS0_9ModelTypeERKNS0_14ExecutorConfigE"

TRTLLM_CONSTRUCTOR(trtllmPreloadPath, "E" TRTLLM_PATH TRTLLM_TYPE_CONFIG, //
    (void* self, Word path, Word type, Word config), (self, path, type, config))
TRTLLM_CONSTRUCTOR(trtllmPreloadPaths, "E" TRTLLM_PATH "S6_" TRTLLM_TYPE_CONFIG, //
    (void* self, Word encoder, Word decoder, Word type, Word config), (self, encoder, decoder, type, config))
TRTLLM_CONSTRUCTOR(trtllmPreloadModel, "ESt10shared_ptrINS0_5ModelEERKNS0_14ExecutorConfigE", //
    (void* self, Word model, Word config), (self, model, config))
TRTLLM_CONSTRUCTOR(trtllmPreloadModels, "ESt10shared_ptrINS0_5ModelEES4_RKNS0_14ExecutorConfigE", //
    (void* self, Word encoder, Word decoder, Word config), (self, encoder, decoder, config))
// Constructors for engines in memory: from vectors up to 0.13, from views (with optional managed weights) since 0.14.
TRTLLM_CONSTRUCTOR(trtllmPreloadVector,
    "ERKSt6vectorIhSaIhEERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE" TRTLLM_TYPE_CONFIG,
    (void* self, Word engine, Word json, Word type, Word config), (self, engine, json, type, config))
TRTLLM_CONSTRUCTOR(trtllmPreloadVectors,
    "ERKSt6vectorIhSaIhEERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEES6_SE_" TRTLLM_TYPE_CONFIG,
    (void* self, Word encoder, Word encoderJson, Word decoder, Word decoderJson, Word type, Word config),
    (self, encoder, encoderJson, decoder, decoderJson, type, config))
#define TRTLLM_VIEW "ERKSt17basic_string_viewIhSt11char_traitsIhEERKNSt7__cxx1112basic_stringIcS3_IcESaIcEEE"
TRTLLM_CONSTRUCTOR(trtllmPreloadView, TRTLLM_VIEW TRTLLM_TYPE_CONFIG,
    (void* self, Word engine, Word json, Word type, Word config), (self, engine, json, type, config))
TRTLLM_CONSTRUCTOR(trtllmPreloadWeights,
    TRTLLM_VIEW TRTLLM_TYPE_CONFIG "RKSt8optionalISt3mapISC_NS0_6TensorESt4lessISC_ESaISt4pairISD_SL_EEEE",
    (void* self, Word engine, Word json, Word type, Word config, Word weights),
    (self, engine, json, type, config, weights))
TRTLLM_CONSTRUCTOR(trtllmPreloadViews, TRTLLM_VIEW "S7_SE_" TRTLLM_TYPE_CONFIG,
    (void* self, Word encoder, Word encoderJson, Word decoder, Word decoderJson, Word type, Word config),
    (self, encoder, encoderJson, decoder, decoderJson, type, config))

/// The two destructor symbols. The Executor is drained and forgotten before the real destructor runs.
#define TRTLLM_DESTRUCTOR(kind)                                                                                        \
    TRTLLM_EXPORT void trtllmPreload##kind(void* self) __asm__(TRTLLM_EXECUTOR(#kind "Ev"));                           \
    void trtllmPreload##kind(void* self)                                                                               \
    {                                                                                                                  \
        static Real<void(void*)> real(TRTLLM_EXECUTOR(#kind "Ev"));                                                    \
        ending(self, true);                                                                                            \
        real.required()(self);                                                                                         \
    }
TRTLLM_DESTRUCTOR(D1)
TRTLLM_DESTRUCTOR(D2)

#define TRTLLM_HOOK(result, function, mangled, parameters)                                                             \
    TRTLLM_EXPORT result function parameters __asm__(mangled);                                                         \
    namespace                                                                                                          \
    {                                                                                                                  \
    Real<result parameters> function##Real(mangled);                                                                   \
    }                                                                                                                  \
    result function parameters

/// A move assignment destroys the Executor that the target held.
TRTLLM_HOOK(void*, trtllmPreloadAssign, TRTLLM_EXECUTOR("aSEOS1_"), (void* self, void* other))
{
    if (self != other)
    {
        ending(self, true);
    }
    return trtllmPreloadAssignReal.required()(self, other);
}

TRTLLM_HOOK(void, trtllmPreloadShutdown, TRTLLM_EXECUTOR("8shutdownEv"), (void* self))
{
    ending(self, false);
    trtllmPreloadShutdownReal.required()(self);
}

TRTLLM_HOOK(std::uint64_t, trtllmPreloadEnqueue, TRTLLM_EXECUTOR("14enqueueRequestERKNS0_7RequestE"),
    (void* self, Word request))
{
    called(self);
    return trtllmPreloadEnqueueReal.required()(self, request);
}

// extern "C" only sets the symbol name here; the hooks return classes by value with the C++ ABI.
#pragma GCC diagnostic push
#if defined(__clang__)
#pragma GCC diagnostic ignored "-Wreturn-type-c-linkage"
#endif

TRTLLM_HOOK(std::vector<std::uint64_t>, trtllmPreloadEnqueueMany,
    TRTLLM_EXECUTOR("15enqueueRequestsERKSt6vectorINS0_7RequestESaIS3_EE"), (void* self, Word requests))
{
    called(self);
    return trtllmPreloadEnqueueManyReal.required()(self, requests);
}

TRTLLM_HOOK(Iterations, trtllmPreloadIterations, TRTLLM_EXECUTOR("23getLatestIterationStatsEv"), (void* self))
{
    return drainForHost(trtllmPreloadIterationsReal, self, &trtllm_preload::Engine::iterations);
}

TRTLLM_HOOK(Requests, trtllmPreloadRequests, TRTLLM_EXECUTOR("21getLatestRequestStatsEv"), (void* self))
{
    return drainForHost(trtllmPreloadRequestsReal, self, &trtllm_preload::Engine::requests);
}

#pragma GCC diagnostic pop
