#pragma once

// A minimal test framework. The first failed check prints its line and ends the program.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#define CHECK(condition)                                                                                               \
    do                                                                                                                 \
    {                                                                                                                  \
        if (!(condition))                                                                                              \
        {                                                                                                              \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                       \
            std::_Exit(1);                                                                                             \
        }                                                                                                              \
    } while (false)

/// Waits until another thread or process makes the condition true. The timeout is long, because a shared machine may
/// stall for seconds.
template <class Condition>
bool until(Condition const& condition, std::chrono::milliseconds timeout = std::chrono::seconds(60))
{
    auto const deadline = std::chrono::steady_clock::now() + timeout;
    while (!condition())
    {
        if (std::chrono::steady_clock::now() > deadline)
        {
            return false;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
}

/// For attempts with a time limit: a stall of the machine makes some attempts fail, a defect makes all of them fail.
template <class Attempt>
bool onceInFive(Attempt const& attempt)
{
    for (int tries = 0; tries < 5; ++tries)
    {
        if (attempt())
        {
            return true;
        }
    }
    return false;
}

template <class Call>
std::chrono::nanoseconds took(Call const& call)
{
    auto const begun = std::chrono::steady_clock::now();
    call();
    return std::chrono::steady_clock::now() - begun;
}

inline bool contains(std::string const& text, std::string const& part)
{
    return text.find(part) != std::string::npos;
}

inline std::size_t count(std::string const& text, std::string const& part)
{
    std::size_t found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    {
        ++found;
    }
    return found;
}
