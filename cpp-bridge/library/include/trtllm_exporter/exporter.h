#pragma once

// The exporter inside your C++ server. It serves the Prometheus page from your process, publishes to a sidecar
// exporter, or both.
//
//     trtllm_exporter::Options options;
//     options.listen = "127.0.0.1:8002";
//     auto exporter = trtllm_exporter::Exporter::attach(executor, options);
//     for (auto const& response : executor->awaitResponses()) { exporter.observe(response); ... }
//
// Link libtrtllm_exporter (`pkg-config --libs trtllm_exporter`, or CMake's trtllm_exporter::trtllm_exporter).
// The Executor returns each statistics record once, so nothing else may read statistics after attach().
// Nothing here throws into your server or blocks on a peer.
//
// attach() accepts either of these:
// - A std::shared_ptr to the Executor. The Executor may be destroyed at any time, and stop() has a time limit. The
//   polling thread holds a shared_ptr during each poll. If you release yours during a poll, the polling thread destroys
//   the Executor. To destroy it on a thread of your choice, call stop() first.
// - A reference, for servers that hold a std::unique_ptr or a member. Call stop(), or destroy the Exporter, before the
//   Executor is destroyed: declare the Exporter after the Executor. stop() then waits for a running call of the
//   Executor without a time limit, because that call uses the Executor. A temporary Executor does not compile. Call
//   stop() before Executor::shutdown(), so that the last records are read. shutdown() does not replace stop(): the
//   Exporter notices it only at its next poll.

// install.sh replaces the includes of detail/ with the files.
#include "trtllm_exporter/detail/attachment.h"
#include "trtllm_exporter/publisher.h"

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace trtllm_exporter
{
inline namespace development
{

/// Exports the statistics of one Executor. Any thread may call observe(), address() and dropped(); stop(), moves and
/// the destructor must not run at the same time as another call. In the child of a fork() every method does nothing.
class Exporter
{
public:
    Exporter() = default;

    /// Starts exporting immediately. If one part fails, for example because the port is in use, it logs the error and
    /// starts the other parts.
    template <class Executor>
    [[nodiscard]] static Exporter attach(std::shared_ptr<Executor> const& executor, Options options = {}) noexcept
    {
        return attachTo(
            [held = std::weak_ptr<Executor>(executor)](detail::Attachment& to)
            {
                auto const alive = held.lock();
                return alive == nullptr ? "the executor has been destroyed" : poll(*alive, to);
            },
            executor.get(), std::move(options), true);
    }

    /// Like the overload above, but without ownership: stop() must be called before the Executor is destroyed.
    template <class Executor, class = std::enable_if_t<detail::IsExecutor<Executor>::value>>
    [[nodiscard]] static Exporter attach(Executor& executor, Options options = {}) noexcept
    {
        return attachTo(
            [&executor, error = std::string()](detail::Attachment& to) mutable
            {
                // Once a call has found the Executor shut down, do not call it again.
                if (error != kShutDown)
                {
                    error = poll(executor, to);
                }
                return error;
            },
            &executor, std::move(options), false);
    }

    /// A temporary Executor would be destroyed before the Exporter.
    template <class Executor, class = std::enable_if_t<detail::IsExecutor<Executor>::value>>
    static Exporter attach(Executor const&& executor, Options options = {}) = delete;

    ~Exporter()
    {
        stop();
    }

    Exporter(Exporter&& other) noexcept
        : mGeneration(other.mGeneration)
        , mAttachment(std::exchange(other.mAttachment, nullptr))
    {
    }

    Exporter& operator=(Exporter&& other) noexcept
    {
        if (this != &other)
        {
            stop();
            mGeneration = other.mGeneration;
            mAttachment = std::exchange(other.mAttachment, nullptr);
        }
        return *this;
    }

    /// Takes a Response of the Executor. Finished responses with RequestPerfMetrics (set
    /// OutputConfig::returnPerfMetrics) give exact request times; all others are ignored.
    template <class Response>
    void observe(Response const& response) noexcept
    {
        if (alive())
        {
            try
            {
                (*mAttachment)->observe(response);
            }
            catch (...)
            {
                (*mAttachment)->lost.fetch_add(1, std::memory_order_relaxed);
            }
        }
    }

    /// Polls a last time, then stops the page and the publisher. With a shared Executor it takes at most
    /// Options::stopTimeout (300 ms), PublisherOptions::flushTimeout (200 ms) and 500 ms for open HTTP requests. With a
    /// reference it also waits until a running call of the Executor returns.
    void stop() noexcept
    {
        if (alive())
        {
            (*mAttachment)->stop();
            delete mAttachment;
        }
        // A fork copies no threads and may copy locked mutexes, so the child must not use or free the copied object.
        mAttachment = nullptr;
    }

    /// HOST:PORT of the page. Empty if there is no page.
    [[nodiscard]] std::string address() const
    {
        return alive() ? (*mAttachment)->address() : std::string();
    }

    /// The destinations that the exporter reaches, and its errors. Empty after stop().
    [[nodiscard]] Status status() const
    {
        return alive() ? (*mAttachment)->status() : Status();
    }

    /// Number of records dropped because the sidecar did not read them, or because a buffer was full.
    [[nodiscard]] std::uint64_t dropped() const noexcept
    {
        return alive() ? (*mAttachment)->dropped() : 0;
    }

private:
    [[nodiscard]] bool alive() const noexcept
    {
        return mAttachment != nullptr && mGeneration == detail::Forks::generation();
    }

    static constexpr char const* kShutDown
        = "the executor has been shut down, or this process is not the leader; attach in the leader";

    static Exporter attachTo(
        detail::Attachment::Poll poll, void const* executor, Options options, bool shared) noexcept
    {
        Exporter exporter;
        try
        {
            auto const attachment
                = std::make_shared<detail::Attachment>(std::move(poll), executor, std::move(options), shared);
            if (detail::Attachment::start(attachment))
            {
                exporter.mAttachment = new std::shared_ptr<detail::Attachment>(attachment);
            }
            else
            {
                attachment->stop();
            }
        }
        catch (...) // NOLINT(bugprone-empty-catch): out of memory; the server runs without the exporter
        {
        }
        return exporter;
    }

    template <class Executor>
    static std::string poll(Executor& executor, detail::Attachment& to)
    {
        try
        {
            // Check this first. If it is false, the calls below would throw an exception with a call stack.
            if (!executor.canEnqueueRequests())
            {
                return kShutDown;
            }
            to.take(executor.getLatestIterationStats());
            if (to.drainsRequests())
            {
                to.take(executor.getLatestRequestStats());
            }
            return "";
        }
        catch (std::exception const& error)
        {
            return detail::firstLine(error.what());
        }
        catch (...)
        {
            return "the executor threw an exception that is not a std::exception";
        }
    }

    unsigned mGeneration{detail::Forks::generation()};
    std::shared_ptr<detail::Attachment>* mAttachment{nullptr};
};

} // namespace development
} // namespace trtllm_exporter
