#pragma once

// Publishes TensorRT-LLM's statistics from inside your server to trtllm-exporter's ingest socket.
//
//     trtllm_exporter::Publisher publisher("/run/trtllm-exporter/ingest.sock",
//         trtllm_exporter::EngineName::ofEngine(engineDirectory));
//     trtllm_exporter::Poller poller(publisher, executor); // or publish() the records that your server reads itself
//     publisher.publish(response); // finished requests with OutputConfig::returnPerfMetrics
//
// One header, C++17 (GCC 11 or later), POSIX, no other dependency. It includes no header of TensorRT-LLM and detects at
// compile time which members your release's structs have. Nothing here throws, raises SIGPIPE or blocks on the
// exporter, except flush() and ~Publisher(), which wait up to a timeout. Records wait in a bounded buffer; when it is
// full, the oldest are dropped and counted.

// install.sh replaces the includes of detail/ with the files.
#include "trtllm_exporter/detail/json.h"
#include "trtllm_exporter/detail/line_ring.h"
#include "trtllm_exporter/detail/lines.h"
#include "trtllm_exporter/detail/members.h"
#include "trtllm_exporter/detail/options.h"
#include "trtllm_exporter/detail/outgoing.h"
#include "trtllm_exporter/detail/poll_thread.h"
#include "trtllm_exporter/detail/process.h"
#include "trtllm_exporter/detail/sender.h"
#include "trtllm_exporter/detail/values.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <unistd.h>

namespace trtllm_exporter
{
inline namespace development
{

/// Publishes to one exporter. Any thread may call any method. In the child of a fork() a Publisher of the parent does
/// nothing, and a new Publisher works.
class Publisher
{
public:
    /// `path` is the PATH of the exporter's `--source socket:PATH`. The exporter may start, stop and restart at any
    /// time. The first record starts the thread that connects.
    explicit Publisher(std::string const& path, EngineName const& name = {}, PublisherOptions options = {}) noexcept
    {
        try
        {
            auto const hello = "{" + detail::helloOf(name, options.config) + "}\n";
            mSender = new detail::Sender(path, hello, std::move(options));
        }
        catch (...) // NOLINT(bugprone-empty-catch): out of memory; the server runs without a publisher
        {
        }
    }

    Publisher(std::string const& path, std::string const& model, std::string const& version = "1",
        PublisherOptions options = {}) noexcept
        : Publisher(path, EngineName(model, version), std::move(options))
    {
    }

    ~Publisher()
    {
        if (alive())
        {
            mSender->stop();
            delete mSender;
        }
    }

    Publisher(Publisher const&) = delete;
    Publisher& operator=(Publisher const&) = delete;

    /// Publishes an IterationStats, a RequestStatsPerIteration, a RequestPerfMetrics, a Response or a Result. Ignores a
    /// Response or Result that is not final or has no RequestPerfMetrics. Returns false only if there is no memory to
    /// store the record. dropped() counts the records that did not reach the exporter.
    template <class Record>
    bool publish(Record const& record) noexcept
    {
        try
        {
            if (!alive())
            {
                return false;
            }
            detail::writeLines(record, [this](std::string_view line) { mSender->push(line); });
            return true;
        }
        catch (...)
        {
            mSender->dropped.fetch_add(1, std::memory_order_relaxed);
            return false;
        }
    }

    /// Publishes one JSON object in the format of the ingest socket. `line` must not contain a newline.
    bool publishLine(std::string_view line) noexcept
    {
        try
        {
            if (!alive() || line.find('\n') != std::string_view::npos)
            {
                return false;
            }
            mSender->push(line);
            return true;
        }
        catch (...)
        {
            mSender->dropped.fetch_add(1, std::memory_order_relaxed);
            return false;
        }
    }

    /// Waits until all records published so far are sent. Returns false if they are not sent after `timeout`.
    bool flush(std::chrono::milliseconds timeout) noexcept
    {
        try
        {
            return alive() && mSender->flush(timeout);
        }
        catch (...)
        {
            return false;
        }
    }

    /// Number of records dropped because the exporter was not running or did not read fast enough. The exporter detects
    /// dropped records by gaps in `iter`.
    [[nodiscard]] std::uint64_t dropped() const noexcept
    {
        return alive() ? mSender->dropped.load(std::memory_order_relaxed) : 0;
    }

    /// True if the publisher is connected. False before the first record.
    [[nodiscard]] bool connected() const noexcept
    {
        return alive() && mSender->connected.load(std::memory_order_relaxed);
    }

    /// True if the last attempt to connect failed. The publisher retries.
    [[nodiscard]] bool failing() const noexcept
    {
        return alive() && mSender->failing.load(std::memory_order_relaxed);
    }

    /// Why the exporter cannot be reached, or does not accept the records. Empty if it accepts them, and before the
    /// first record.
    [[nodiscard]] std::string error() const
    {
        return alive() ? mSender->error() : std::string();
    }

private:
    friend class Poller; // uses the next two functions

    template <class Records>
    std::size_t publishAll(Records const& records) noexcept
    {
        for (auto const& record : records)
        {
            publish(record);
        }
        return records.size();
    }

    /// Logs once why the Executor's statistics cannot be read.
    void unreadable(std::string_view reason) noexcept
    {
        if (alive() && !mUnreadable.exchange(true))
        {
            mSender->log("cannot read statistics: ", reason.substr(0, reason.find('\n')));
        }
    }

    [[nodiscard]] bool alive() const noexcept
    {
        return mSender != nullptr && mGeneration == detail::Forks::generation();
    }

    unsigned mGeneration{detail::Forks::generation()};
    detail::Sender* mSender{nullptr};
    std::atomic<bool> mUnreadable{false};
};

/// Reads an Executor's statistics on a thread of its own and publishes them. Nothing else may read them, because the
/// Executor returns each record once. Stop the Poller before Executor::shutdown(), so that the last records are read, and
/// before the Executor or the Publisher is destroyed: declare it after both. In the child of a fork() it does nothing.
class Poller
{
public:
    /// `interval` is the longest pause between two polls. Set `drainRequests` to false if your server reads the request
    /// statistics itself.
    template <class Executor>
    Poller(Publisher& publisher, Executor& executor,
        std::chrono::milliseconds interval = std::chrono::milliseconds(100), bool drainRequests = true) noexcept
        : mPublisher(publisher)
    {
        try
        {
            mThread = new detail::PollThread(
                interval, [this, &executor, drainRequests] { return poll(executor, drainRequests); });
        }
        catch (std::exception const& error) // no memory or no thread; the server runs without statistics
        {
            mPublisher.unreadable(error.what());
        }
    }

    ~Poller()
    {
        stop();
    }

    Poller(Poller const&) = delete;
    Poller& operator=(Poller const&) = delete;

    /// Reads the last records and ends the thread. Waits until the Executor's calls return.
    void stop() noexcept
    {
        if (mThread != nullptr && mGeneration == detail::Forks::generation())
        {
            mThread->stop();
            delete mThread;
        }
        mThread = nullptr;
    }

private:
    /// Returns the number of iterations. Nothing ends the thread.
    template <class Executor>
    std::optional<std::size_t> poll(Executor& executor, bool drainRequests) noexcept
    {
        try
        {
            // If this is false, the calls below throw an exception with a call stack.
            if (!executor.canEnqueueRequests())
            {
                mPublisher.unreadable("the executor has been shut down, or this process is not the leader");
                return std::nullopt;
            }
            auto const iterations = mPublisher.publishAll(executor.getLatestIterationStats());
            if (drainRequests)
            {
                mPublisher.publishAll(executor.getLatestRequestStats());
            }
            return iterations;
        }
        catch (std::exception const& error)
        {
            mPublisher.unreadable(error.what());
        }
        catch (...)
        {
            mPublisher.unreadable("an exception that is not a std::exception");
        }
        return 0;
    }

    Publisher& mPublisher;
    unsigned mGeneration{detail::Forks::generation()};
    detail::PollThread* mThread{nullptr};
};

} // namespace development
} // namespace trtllm_exporter
