#pragma once

// Fills the shared structs of src/ffi.rs from TensorRT-LLM's records, member by member. detail/member_list.h lists the
// members. If a shared struct lacks a member of the list, this file does not compile. If the list lacks a member of a
// shared struct, the comparison of the sizes fails.

#include "trtllm-bridge/src/ffi.rs.h"

#include "trtllm_exporter/detail/values.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>

namespace trtllm_bridge
{

inline void clear(std::int64_t& to)
{
    to = std::numeric_limits<std::int64_t>::min(); // ABSENT
}

inline void clear(double& to)
{
    to = std::numeric_limits<double>::quiet_NaN();
}

inline void clear(RequestStage& to)
{
    to = RequestStage::Unknown;
}

inline void clear(std::array<std::uint8_t, 32>& to)
{
    to = {};
}

template <class Nested>
auto clear(Nested& to) -> decltype(static_cast<void>(to.present))
{
    to.present = false;
}

template <class Value>
void put(std::int64_t& to, Value const& value)
{
    static_assert(std::is_integral_v<Value>, "this member has whole numbers");
    to = static_cast<std::int64_t>(value);
}

template <class Value>
void put(double& to, Value const& value)
{
    if constexpr (trtllm_exporter::detail::IsTime<Value>::value)
    {
        // TensorRT-LLM sets the time of an event that did not happen to the clock's zero.
        auto const since = std::chrono::duration<double>(value.time_since_epoch()).count();
        put(to, since > 0 ? since : std::numeric_limits<double>::quiet_NaN());
    }
    else
    {
        static_assert(std::is_floating_point_v<Value>, "this member has numbers with a fraction");
        to = std::isfinite(value) ? static_cast<double>(value) : std::numeric_limits<double>::quiet_NaN();
    }
}

template <class Stage>
void put(RequestStage& to, Stage stage)
{
    using namespace trtllm_exporter::detail;
    to = Is_kQUEUED<Stage>::of(stage)                ? RequestStage::Queued
        : Is_kENCODER_IN_PROGRESS<Stage>::of(stage)    ? RequestStage::EncoderInProgress
        : Is_kCONTEXT_IN_PROGRESS<Stage>::of(stage)    ? RequestStage::ContextInProgress
        : Is_kGENERATION_IN_PROGRESS<Stage>::of(stage) ? RequestStage::GenerationInProgress
        : Is_kGENERATION_COMPLETE<Stage>::of(stage)    ? RequestStage::GenerationComplete
                                                       : RequestStage::Unknown;
}

inline void put(std::array<std::uint8_t, 32>& to, std::string_view text)
{
    to = {};
    std::memcpy(to.data(), text.data(), std::min(text.size(), to.size()));
}

/// Fills one member: a value, a nested struct, or an optional value or struct.
template <class To, class Value>
void fillMember(To& to, Value const& value)
{
    if constexpr (trtllm_exporter::detail::IsOptional<Value>::value)
    {
        value ? fillMember(to, *value) : clear(to);
    }
    else if constexpr (std::is_class_v<To> && std::is_class_v<Value> && !std::is_convertible_v<Value, std::string_view>
        && !trtllm_exporter::detail::IsTime<Value>::value)
    {
        to.present = true;
        fill(to, value);
    }
    else
    {
        put(to, value);
    }
}

template <class To, class From, class Get>
void fillMember(To& to, From const& from, Get const& get)
{
    if constexpr (std::is_invocable_v<Get, From const&>)
    {
        fillMember(to, get(from));
    }
    else
    {
        clear(to);
    }
}

/// Size of the flag `present` with its padding.
template <class Struct, class = void>
constexpr std::size_t kFlag = 0;
template <class Struct>
constexpr std::size_t kFlag<Struct, decltype(static_cast<void>(Struct::present))> = alignof(Struct);

#define TRTLLM_BRIDGE_FILL(name, field)                                                                                \
    fillMember(to.field, from, [](auto const& record) -> decltype((record.name)) { return record.name; });
#define TRTLLM_BRIDGE_FILL_NESTED(name, field, Nested) TRTLLM_BRIDGE_FILL(name, field)
#define TRTLLM_BRIDGE_SIZE(name, field) +sizeof(Shared::field)
#define TRTLLM_BRIDGE_SIZE_NESTED(name, field, Nested) +sizeof(Shared::field)
#define TRTLLM_BRIDGE_STRUCT(Struct)                                                                                   \
    template <class From>                                                                                              \
    void fill(Struct& to, From const& from)                                                                            \
    {                                                                                                                  \
        using Shared = Struct;                                                                                         \
        static_assert(sizeof(Shared) == kFlag<Shared>                                                                  \
            TRTLLM_EXPORTER_##Struct(TRTLLM_BRIDGE_SIZE, TRTLLM_BRIDGE_SIZE_NESTED, TRTLLM_BRIDGE_SIZE),               \
            "detail/member_list.h does not have every member of this struct of src/ffi.rs");                           \
        TRTLLM_EXPORTER_##Struct(TRTLLM_BRIDGE_FILL, TRTLLM_BRIDGE_FILL_NESTED, TRTLLM_BRIDGE_FILL)                    \
    }
TRTLLM_EXPORTER_STRUCTS(TRTLLM_BRIDGE_STRUCT)

template <class Reason>
FinishReason finishReasonOf(Reason reason)
{
    using namespace trtllm_exporter::detail;
    return Is_kNOT_FINISHED<Reason>::of(reason) ? FinishReason::Absent
        : Is_kEND_ID<Reason>::of(reason)        ? FinishReason::EndId
        : Is_kSTOP_WORDS<Reason>::of(reason)    ? FinishReason::StopWords
        : Is_kLENGTH<Reason>::of(reason)        ? FinishReason::Length
        : Is_kTIMED_OUT<Reason>::of(reason)     ? FinishReason::TimedOut
        : Is_kCANCELLED<Reason>::of(reason)     ? FinishReason::Cancelled
                                                : FinishReason::Other;
}

/// Fills the values that the engine reports about a finished request. The finish reason and the RequestPerfMetrics are
/// absent if the release or the engine does not report them.
template <class Result>
void fillResult(FinishedRequest& to, [[maybe_unused]] Result const& result)
{
    if constexpr (trtllm_exporter::detail::Has_finishReasons<Result>::value)
    {
        to.finish_reason
            = result.finishReasons.empty() ? FinishReason::Absent : finishReasonOf(result.finishReasons.front());
    }
    if constexpr (trtllm_exporter::detail::Has_requestPerfMetrics<Result>::value)
    {
        fillMember(to.perf_metrics, result.requestPerfMetrics);
    }
}

} // namespace trtllm_bridge
