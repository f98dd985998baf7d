#pragma once

// Members come and go between releases of TensorRT-LLM. What the headers at hand lack is left out at compile time, and
// a row's presence bits say so.

#include <type_traits>
#include <utility>

/// Defines Copy_<member>: `there<From>` tells whether From has the member, `from(source, target)` copies it if so,
/// `visit(source, read)` reads an optional one.
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
        static constexpr bool there = Has<From>::value;                                                                \
        template <class From, class To>                                                                                \
        static void from([[maybe_unused]] From const& source, [[maybe_unused]] To& target)                             \
        {                                                                                                              \
            if constexpr (there<From>)                                                                                 \
            {                                                                                                          \
                target = static_cast<To>(source.member);                                                               \
            }                                                                                                          \
        }                                                                                                              \
        /* Calls read(value) and returns true if the optional member exists and holds a value. */                      \
        template <class From, class Read>                                                                              \
        static bool visit([[maybe_unused]] From const& source, [[maybe_unused]] Read const& read)                      \
        {                                                                                                              \
            if constexpr (there<From>)                                                                                 \
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
