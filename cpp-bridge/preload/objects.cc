#include "objects.h"

#include <ctime>

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>

namespace trtllm_preload
{
namespace
{

// dladdr() would also find the object, but it compares the address with every symbol of the object, and
// libtensorrt_llm.so has hundreds of thousands.
bool contains(dl_phdr_info const& object, void const* address)
{
    auto const offset = reinterpret_cast<ElfW(Addr)>(address) - object.dlpi_addr;
    for (int i = 0; i < object.dlpi_phnum; ++i)
    {
        auto const& segment = object.dlpi_phdr[i];
        if (segment.p_type == PT_LOAD && offset - segment.p_vaddr < segment.p_memsz)
        {
            return true;
        }
    }
    return false;
}

// dl_iterate_phdr() holds a lock of the dynamic linker. If another thread holds it during a fork, the child inherits the
// locked lock and hangs when it uses it. So forks and the preload's own calls of it exclude each other with this mutex.
// They wait for a limited time, because each may hold, or wait for, a lock that another library's fork handler takes.
pthread_mutex_t gListing = PTHREAD_MUTEX_INITIALIZER;
// One flag per thread, because two threads may fork at the same time.
thread_local bool tForkHolds = false;

/// Returns false after about 100 ms. It counts attempts instead of reading a clock, because a clock may be set and a
/// machine may stall.
bool lockListing()
{
    constexpr int kYields = 50;
    constexpr int kPauses = 100;
    for (int attempt = 0; attempt < kYields + kPauses; ++attempt)
    {
        if (::pthread_mutex_trylock(&gListing) == 0)
        {
            return true;
        }
        if (attempt < kYields)
        {
            ::sched_yield();
        }
        else
        {
            timespec const pause{0, 1'000'000};
            ::nanosleep(&pause, nullptr);
        }
    }
    return false;
}

class ListingLock
{
public:
    ListingLock() noexcept
        : mHolds(lockListing())
    {
    }

    ~ListingLock()
    {
        if (mHolds)
        {
            ::pthread_mutex_unlock(&gListing);
        }
    }

    ListingLock(ListingLock const&) = delete;
    ListingLock& operator=(ListingLock const&) = delete;

private:
    bool const mHolds;
};

[[maybe_unused]] void beforeFork()
{
    tForkHolds = lockListing();
}

[[maybe_unused]] void inParent()
{
    if (tForkHolds)
    {
        ::pthread_mutex_unlock(&gListing);
    }
}

[[maybe_unused]] void inChild()
{
    gListing = PTHREAD_MUTEX_INITIALIZER;
}

#if !defined(__SANITIZE_THREAD__) // ThreadSanitizer holds its own locks during a fork, so a handler with a mutex would hang
[[maybe_unused]] int const gRegistered = ::pthread_atfork(&beforeFork, &inParent, &inChild);
#endif

/// Calls `visit` for every object until it returns true.
template <class Visit>
void forEach(Visit visit)
{
    ListingLock const lock;
    ::dl_iterate_phdr([](dl_phdr_info* object, std::size_t /*size*/, void* context)
        { return (*static_cast<Visit*>(context))(*object) ? 1 : 0; },
        &visit);
}

char const* pathOf(dl_phdr_info const& object)
{
    return object.dlpi_name == nullptr ? "" : object.dlpi_name;
}

/// Calls dlsym() in a library and in the libraries that it depends on.
void* find(Object const& object, char const* symbol)
{
    auto* const handle = handleOf(object);
    auto* const found = handle == nullptr ? nullptr : ::dlsym(handle, symbol);
    if (handle != nullptr)
    {
        ::dlclose(handle);
    }
    return found;
}

} // namespace

Object objectOf(void const* address)
{
    Object found;
    forEach(
        [&](dl_phdr_info const& object)
        {
            if (!contains(object, address))
            {
                return false;
            }
            found = {object.dlpi_phdr, pathOf(object)};
            return true;
        });
    return found;
}

std::vector<Object> allObjects()
{
    std::vector<Object> objects;
    forEach(
        [&](dl_phdr_info const& object)
        {
            objects.push_back({object.dlpi_phdr, pathOf(object)});
            return false;
        });
    return objects;
}

void* handleOf(Object const& object) noexcept
{
    // Accepts paths only. dlopen() would search for a plain name, such as linux-vdso.so.1, in the library folders.
    if (object.path.find('/') == std::string::npos)
    {
        return nullptr;
    }
    return ::dlopen(object.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
}

void* definitionFor(void const* caller, char const* symbol)
{
    // Search the global scope first, like the dynamic linker.
    if (auto* const found = ::dlsym(RTLD_NEXT, symbol))
    {
        return found;
    }
    auto const* const preload = objectOf(reinterpret_cast<void const*>(&definitionFor)).id;
    // Then search the caller and the libraries that it depends on. Triton opens its backends with RTLD_LOCAL.
    auto* found = find(objectOf(caller), symbol);
    if (found != nullptr && objectOf(found).id != preload)
    {
        return found;
    }
    // Then search all objects: the definition may belong to a library that has opened the caller's library. Or `caller`
    // is not the real caller: after a tail call, the return address is that of the caller's caller.
    for (auto const& object : allObjects())
    {
        found = object.id == preload ? nullptr : find(object, symbol);
        if (found != nullptr && objectOf(found).id == object.id)
        {
            return found;
        }
    }
    return nullptr;
}

unsigned long long unloadCount() noexcept
{
    unsigned long long count = 0;
    forEach(
        [&](dl_phdr_info const& object)
        {
            count = object.dlpi_subs;
            return true;
        });
    return count;
}

} // namespace trtllm_preload
