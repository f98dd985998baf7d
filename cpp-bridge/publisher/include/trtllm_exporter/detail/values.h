#pragma once

// The kinds of values that the structs have: optional values, times, and enumerators.

#include "trtllm_exporter/detail/members.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace trtllm_exporter
{
inline namespace development
{
namespace detail
{

template <class T>
struct IsOptional : std::false_type
{
};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type
{
};
template <class T>
struct IsTime : std::false_type
{
};
template <class Clock, class Duration>
struct IsTime<std::chrono::time_point<Clock, Duration>> : std::true_type
{
};

/// Release 0.11 added kENCODER_IN_PROGRESS, which renumbered the enumerators after it. Releases after 0.15 added
/// kTIMED_OUT and kCANCELLED. So enumerators are compared by name, and a missing one never matches.
#define TRTLLM_EXPORTER_NAMED(enumerator, name)                                                                        \
    template <class E, class = void>                                                                                   \
    struct Is_##enumerator                                                                                             \
    {                                                                                                                  \
        static constexpr char const* of(E)                                                                             \
        {                                                                                                              \
            return nullptr;                                                                                            \
        }                                                                                                              \
    };                                                                                                                 \
    template <class E>                                                                                                 \
    struct Is_##enumerator<E, std::void_t<decltype(E::enumerator)>>                                                    \
    {                                                                                                                  \
        static constexpr char const* of(E value)                                                                       \
        {                                                                                                              \
            return value == E::enumerator ? name : nullptr;                                                            \
        }                                                                                                              \
    };
TRTLLM_EXPORTER_NAMED(kQUEUED, "QUEUED")
TRTLLM_EXPORTER_NAMED(kENCODER_IN_PROGRESS, "ENCODER_IN_PROGRESS")
TRTLLM_EXPORTER_NAMED(kCONTEXT_IN_PROGRESS, "CONTEXT_IN_PROGRESS")
TRTLLM_EXPORTER_NAMED(kGENERATION_IN_PROGRESS, "GENERATION_IN_PROGRESS")
TRTLLM_EXPORTER_NAMED(kGENERATION_COMPLETE, "GENERATION_COMPLETE")
TRTLLM_EXPORTER_NAMED(kNOT_FINISHED, "")
// The same texts as in TensorRT-LLM's Python API.
TRTLLM_EXPORTER_NAMED(kEND_ID, "stop")
TRTLLM_EXPORTER_NAMED(kSTOP_WORDS, "stop")
TRTLLM_EXPORTER_NAMED(kLENGTH, "length")
TRTLLM_EXPORTER_NAMED(kTIMED_OUT, "timeout")
TRTLLM_EXPORTER_NAMED(kCANCELLED, "cancelled")
#undef TRTLLM_EXPORTER_NAMED

/// A list of enumerators.
template <template <class, class> class... Named>
struct Enumerators
{
    /// The text for an enumerator. Null if it is not in the list.
    template <class E>
    static char const* name(E value)
    {
        char const* name = nullptr;
        static_cast<void>(((name = Named<E, void>::of(value)) || ...));
        return name;
    }
};
using Stages = Enumerators<Is_kQUEUED, Is_kENCODER_IN_PROGRESS, Is_kCONTEXT_IN_PROGRESS, Is_kGENERATION_IN_PROGRESS,
    Is_kGENERATION_COMPLETE>;
using FinishReasons = Enumerators<Is_kEND_ID, Is_kSTOP_WORDS, Is_kLENGTH, Is_kTIMED_OUT, Is_kCANCELLED>;

/// Why a request ended. Null if the release or the engine does not report it.
template <class Result>
char const* finishReason([[maybe_unused]] Result const& result)
{
    if constexpr (Has_finishReasons<Result>::value)
    {
        return result.finishReasons.empty()
            ? nullptr
            : FinishReasons::name(result.finishReasons.front());
    }
    else
    {
        return nullptr;
    }
}

} // namespace detail
} // namespace development
} // namespace trtllm_exporter
