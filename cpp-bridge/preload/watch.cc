#include "watch.h"

#include "objects.h"

#include "trtllm_exporter/publisher.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>

#include <dlfcn.h>
#include <time.h>

namespace
{

using Create = int(pthread_t*, pthread_attr_t const*, void* (*)(void*), void*);

std::atomic<Create*> gCreate{nullptr};
std::atomic<bool> gSeen{false};
std::atomic<bool> gWatched{false};
/// How many objects had been loaded when this process was last searched for TensorRT-LLM.
std::atomic<unsigned long long> gSearched{0};

char const* variable(char const* name, char const* fallback)
{
    auto const* const value = std::getenv(name);
    return value == nullptr ? fallback : value;
}

/// How long to wait for an Executor, in seconds. 0 disables the message.
long patience()
{
    return std::strtol(variable("TRTLLM_EXPORTER_EXECUTOR_WAIT", "60"), nullptr, 10);
}

void* watch(void* /*context*/)
{
    auto const seconds = patience();
    timespec until{};
    ::clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR)
    {
    }
    if (gSeen.load())
    {
        return nullptr;
    }
    try
    {
        trtllm_exporter::logToStderr("preload loaded; no Executor seen after " + std::to_string(seconds)
            + " s; nothing is published; this process does not use TensorRT-LLM's C++ Executor, or opens it with "
              "RTLD_DEEPBIND; see docs/embedding.md");
    }
    catch (...) // NOLINT(bugprone-empty-catch): no memory for the message
    {
    }
    return nullptr;
}

/// Starts the watch thread if TensorRT-LLM is loaded. Other programs that inherit LD_PRELOAD, such as shells, get no
/// thread.
void watchIfLoaded() noexcept
{
    if (gSeen.load(std::memory_order_relaxed) || gWatched.load(std::memory_order_relaxed))
    {
        return;
    }
    auto const loaded = trtllm_preload::loadCounts().loaded;
    if (gSearched.exchange(loaded) == loaded || !trtllm_preload::tensorRtLlmIsLoaded() || patience() <= 0
        || *variable("TRTLLM_EXPORTER_SOCKET", "default") == '\0')
    {
        return;
    }
    pthread_t thread{};
    if (!gWatched.exchange(true) && trtllm_exporter::detail::startThread(thread, "trtllm-watch", watch, nullptr))
    {
        ::pthread_detach(thread);
    }
}

Create* realCreate() noexcept
{
    auto* create = gCreate.load(std::memory_order_acquire);
    if (create == nullptr)
    {
        create = reinterpret_cast<Create*>(::dlsym(RTLD_NEXT, "pthread_create"));
        gCreate.store(create, std::memory_order_release);
    }
    return create;
}

__attribute__((constructor)) void atLoad()
{
    // Look the function up at the start, because later dlsym() may have to wait for a dlopen() in another thread.
    static_cast<void>(realCreate());
    // A program that links TensorRT-LLM has loaded it already.
    watchIfLoaded();
}

} // namespace

namespace trtllm_preload
{

void executorSeen() noexcept
{
    gSeen.store(true, std::memory_order_relaxed);
}

} // namespace trtllm_preload

/// For programs that load TensorRT-LLM later, such as Triton: all of them create threads afterwards. A hook of dlopen()
/// would run earlier, but dlopen() depends on the object that calls it, which would then be the preload.
extern "C" __attribute__((visibility("default"))) int trtllmPreloadThreadCreate(
    pthread_t* thread, pthread_attr_t const* attributes, void* (*run)(void*), void* argument) __asm__("pthread_create");
int trtllmPreloadThreadCreate(pthread_t* thread, pthread_attr_t const* attributes, void* (*run)(void*), void* argument)
{
    auto* const create = realCreate();
    if (create == nullptr)
    {
        return EAGAIN;
    }
    watchIfLoaded();
    return create(thread, attributes, run, argument);
}
