#pragma once

// Just enough to write tests as functions: the first failed check ends the program with its line.

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

/// Waits for what another thread or process is to do. Patient: a shared machine may stall any of them for seconds.
template <class Condition>
bool until(Condition const& condition, std::chrono::milliseconds patience = std::chrono::seconds(60))
{
    auto const deadline = std::chrono::steady_clock::now() + patience;
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

/// Of what has a bound in time: a machine that stalls spoils a try, a defect spoils every one.
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
