#pragma once

// Releases of TensorRT-LLM add and remove members of structs. This header detects at compile time which members exist,
// so that a missing one is skipped. The presence bits of a row then show that it is missing.

#include <type_traits>
#include <utility>

/// Defines Copy_<member>: `exists<From>` is true if From has the member, `from(source, target)` copies the member if it
/// exists, `visit(source, read)` reads an optional member.
#define TRTLLM_BRIDGE_MEMBER(member)                                                                                   \
    struct Copy_##member                                                                                               \
    {                                                                                                                  \
        template <class From, class = void>                                                                            \
        struct Has : std::false_type                                                                                   \
        {                                                                                                              \
        };                                                                                                             \
        template <class From>                                                                                          \
        struct Has<From, std::void_t<decltype(std::declval<From const&>().member)>> : std::true_type                   \
        {                                                                                                              \
        };                                                                                                             \
        template <class From>                                                                                          \
        static constexpr bool exists = Has<From>::value;                                                               \
        template <class From, class To>                                                                                \
        static void from([[maybe_unused]] From const& source, [[maybe_unused]] To& target)                             \
        {                                                                                                              \
            if constexpr (exists<From>)                                                                                \
            {                                                                                                          \
                target = static_cast<To>(source.member);                                                               \
            }                                                                                                          \
        }                                                                                                              \
        /* Calls read(value) and returns true if the optional member exists and holds a value. */                      \
        template <class From, class Read>                                                                              \
        static bool visit([[maybe_unused]] From const& source, [[maybe_unused]] Read const& read)                      \
        {                                                                                                              \
            if constexpr (exists<From>)                                                                                \
            {                                                                                                          \
                if (source.member)                                                                                     \
                {                                                                                                      \
                    read(*source.member);                                                                              \
                    return true;                                                                                       \
                }                                                                                                      \
            }                                                                                                          \
            return false;                                                                                              \
        }                                                                                                              \
    }
