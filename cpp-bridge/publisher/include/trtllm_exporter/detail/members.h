#pragma once

// Visits the members of a record that this release of TensorRT-LLM has, for the JSON of publisher.h.

#include "trtllm_exporter/detail/member_list.h"

#include <type_traits>

namespace trtllm_exporter
{
inline namespace development
{
namespace detail
{

/// Calls use(get(record)) if the struct has the member.
template <class Struct, class Get, class Use>
void visitMember(Struct const& record, Get const& get, Use const& use)
{
    if constexpr (std::is_invocable_v<Get, Struct const&>)
    {
        use(get(record));
    }
}

#define TRTLLM_EXPORTER_GET(name) [](auto const& from) -> decltype((from.name)) { return from.name; }
#define TRTLLM_EXPORTER_VALUE(name, field)                                                                             \
    visitMember(record, TRTLLM_EXPORTER_GET(name), [&](auto const& value) { visitor.value(",\"" #name "\":", value); });
#define TRTLLM_EXPORTER_NESTED(name, field, Table)                                                                     \
    visitMember(record, TRTLLM_EXPORTER_GET(name),                                                                     \
        [&](auto const& value) { visitor.template nested<Table>(",\"" #name "\":", value); });
/// visit() calls the visitor for each member that `record` has.
#define TRTLLM_EXPORTER_TABLE(Struct)                                                                                  \
    struct Struct                                                                                                      \
    {                                                                                                                  \
        template <class From, class Visitor>                                                                           \
        static void visit(From const& record, Visitor& visitor)                                                        \
        {                                                                                                              \
            TRTLLM_EXPORTER_##Struct(TRTLLM_EXPORTER_VALUE, TRTLLM_EXPORTER_NESTED, TRTLLM_EXPORTER_VALUE)             \
        }                                                                                                              \
    };
TRTLLM_EXPORTER_STRUCTS(TRTLLM_EXPORTER_TABLE)
#undef TRTLLM_EXPORTER_GET
#undef TRTLLM_EXPORTER_VALUE
#undef TRTLLM_EXPORTER_NESTED
#undef TRTLLM_EXPORTER_TABLE

// Has_<member> is true if a struct has the member. These members identify the kind of a record.
#define TRTLLM_EXPORTER_HAS(member)                                                                                    \
    template <class T, class = void>                                                                                   \
    struct Has_##member : std::false_type                                                                              \
    {                                                                                                                  \
    };                                                                                                                 \
    template <class T>                                                                                                 \
    struct Has_##member<T, std::void_t<decltype(&T::member)>> : std::true_type                                         \
    {                                                                                                                  \
    };
TRTLLM_EXPORTER_HAS(iter)
TRTLLM_EXPORTER_HAS(numActiveRequests)
TRTLLM_EXPORTER_HAS(timingMetrics)
TRTLLM_EXPORTER_HAS(requestStats)
TRTLLM_EXPORTER_HAS(requestPerfMetrics)
TRTLLM_EXPORTER_HAS(getResult)
TRTLLM_EXPORTER_HAS(isFinal)
TRTLLM_EXPORTER_HAS(finishReasons)
TRTLLM_EXPORTER_HAS(returnPerfMetrics)
#undef TRTLLM_EXPORTER_HAS

} // namespace detail
} // namespace development
} // namespace trtllm_exporter
