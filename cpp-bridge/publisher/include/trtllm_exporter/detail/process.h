#pragma once

// Forks and threads.

#include <atomic>
#include <csignal>

#include <pthread.h>
#include <unistd.h>

namespace trtllm_exporter
{
inline namespace development
{
namespace detail
{

/// Detects forks. fork() copies no threads and may copy a locked mutex, so the child never locks, joins or frees an
/// object that the parent created. The child closes the copied sockets; otherwise the exporter would not notice when
/// the parent disconnects.
class Forks
{
public:
    /// A number that changes in the child of every fork.
    static unsigned generation() noexcept
    {
        static_cast<void>(sRegistered);
        return sGeneration.load(std::memory_order_relaxed);
    }

    static void opened(int descriptor) noexcept
    {
        replace(kNone, descriptor);
    }

    static void close(int descriptor) noexcept
    {
        replace(descriptor, kNone);
        ::close(descriptor);
    }

private:
    static constexpr int kNone = 0;

    static void inChild()
    {
        sGeneration.fetch_add(1, std::memory_order_relaxed);
        for (auto& place : sDescriptors)
        {
            if (auto const descriptor = place.exchange(kNone); descriptor != kNone)
            {
                ::close(descriptor);
            }
        }
    }

    static void replace(int before, int after) noexcept
    {
        for (auto& place : sDescriptors)
        {
            if (auto expected = before; place.compare_exchange_strong(expected, after))
            {
                return;
            }
        }
    }

    static inline std::atomic<unsigned> sGeneration{0};
    static inline std::atomic<int> sDescriptors[64]{}; // without a lock, because a child cannot wait for one
    // Registered when the program or library is loaded. A static local variable would deadlock in a child if another
    // thread was initializing it during the fork.
    static inline int const sRegistered = ::pthread_atfork(nullptr, nullptr, &inChild);
};

/// Starts `run(context)` on a new thread that blocks signals, so that it never runs the host's signal handlers. Those of a
/// crash stay: if they were blocked, the process would end without the host's report.
inline bool startThread(pthread_t& thread, char const* name, void* (*run)(void*), void* context) noexcept
{
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    for (auto const crash : {SIGSEGV, SIGBUS, SIGFPE, SIGILL})
    {
        ::sigdelset(&all, crash);
    }
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    auto const failed = ::pthread_create(&thread, nullptr, run, context);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (failed == 0)
    {
        ::pthread_setname_np(thread, name);
    }
    return failed == 0;
}

} // namespace detail
} // namespace development
} // namespace trtllm_exporter
