#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#define CHECK(condition)                                                                                               \
    do                                                                                                                 \
    {                                                                                                                  \
        if (!(condition))                                                                                              \
        {                                                                                                              \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                       \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (false)

/// The first line of the exception that `call` throws. Empty if it throws nothing.
template <class Call>
std::string thrownBy(Call const& call)
{
    try
    {
        call();
    }
    catch (std::exception const& error)
    {
        std::string const what = error.what();
        return what.substr(0, what.find('\n'));
    }
    return "";
}

inline bool contains(std::string const& text, std::string const& part)
{
    return text.find(part) != std::string::npos;
}
