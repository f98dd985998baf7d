#include "symbols.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <link.h>

namespace trtllm_preload
{
namespace
{

/// The load address of the library that contains `address`.
void const* libraryOf(void const* address)
{
    Dl_info where{};
    return ::dladdr(address, &where) != 0 ? where.dli_fbase : nullptr;
}

int collect(dl_phdr_info* object, std::size_t /*size*/, void* names)
{
    if (object->dlpi_name != nullptr && std::strstr(object->dlpi_name, "tensorrt_llm") != nullptr)
    {
        static_cast<std::vector<std::string>*>(names)->emplace_back(object->dlpi_name);
    }
    return 0;
}

} // namespace

void* findNext(char const* symbol) noexcept
{
    if (auto* const found = ::dlsym(RTLD_NEXT, symbol))
    {
        return found;
    }
    try
    {
        auto const* const here = libraryOf(reinterpret_cast<void const*>(&findNext));
        std::vector<std::string> names;
        ::dl_iterate_phdr(&collect, &names);
        for (auto const& name : names)
        {
            // Never closed: the function must stay loaded even if the host closes its own handle.
            auto* const handle = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
            auto* const found = handle == nullptr ? nullptr : ::dlsym(handle, symbol);
            if (found != nullptr && libraryOf(found) != here)
            {
                return found;
            }
        }
    }
    catch (...) // NOLINT(bugprone-empty-catch): out of memory; the caller reports that the symbol was not found
    {
    }
    return nullptr;
}

void abortMissing(char const* symbol) noexcept
{
    // Without the preload, the dynamic linker would have failed with the same message.
    std::fprintf(stderr, "libtrtllm_exporter_preload.so: symbol lookup error: undefined symbol: %s\n", symbol);
    std::abort();
}

} // namespace trtllm_preload
