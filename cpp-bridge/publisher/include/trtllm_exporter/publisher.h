#pragma once

// Publishes TensorRT-LLM's statistics from inside your server to trtllm-exporter's ingest socket.
//
//     trtllm_exporter::Publisher publisher("/run/trtllm-exporter/ingest.sock",
//         trtllm_exporter::EngineName::ofEngine(engineDirectory));
//     trtllm_exporter::Poller poller(publisher, executor); // or publish() the records that your server reads itself
//     publisher.publish(response); // finished requests; their times need OutputConfig::returnPerfMetrics
//
// One header, C++17 (GCC 11 or later), POSIX, no other dependency. It includes no header of TensorRT-LLM and detects at
// compile time which members your release's structs have. Nothing here throws, raises SIGPIPE or blocks on the
// exporter, except flush() and ~Publisher(), which wait up to a timeout. A record is sent at once, without blocking. If
// the exporter reads too slowly, records wait in a bounded buffer for the next call. If the buffer is full or there is no
// exporter, records are dropped and counted.

// install.sh replaces the includes of detail/ with the files.
#include "trtllm_exporter/detail/connection.h"
#include "trtllm_exporter/detail/json.h"
#include "trtllm_exporter/detail/lines.h"
#include "trtllm_exporter/detail/members.h"
#include "trtllm_exporter/detail/options.h"
#include "trtllm_exporter/detail/poll_thread.h"
#include "trtllm_exporter/detail/process.h"
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
    /// time. publishAll() or the first record opens the connection.
    explicit Publisher(std::string const& path, EngineName const& name = {}, PublisherOptions options = {}) noexcept
    {
        try
        {
            auto const hello = "{" + detail::helloOf(name, options.config) + "}\n";
            mConnection = new detail::Connection(path, hello, std::move(options));
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
            delete mConnection;
        }
    }

    Publisher(Publisher const&) = delete;
    Publisher& operator=(Publisher const&) = delete;

    /// Publishes an IterationStats, a RequestStatsPerIteration, a RequestPerfMetrics, a Response or a Result. Ignores a
    /// Response or Result that is not final. Returns false only if there is no memory for the record. dropped() counts
    /// the records that were not sent.
    template <class Record>
    bool publish(Record const& record) noexcept
    {
        return send([&record](auto const& push) { detail::writeLines(record, push); });
    }

    /// Publishes all records of a container, with fewer system calls. Call it after each poll of your Executor, also
    /// without records: it connects, so that the exporter shows an idle engine, and sends what waits in the buffer.
    template <class Records>
    bool publishAll(Records const& records) noexcept
    {
        auto const sent = send(
            [&records](auto const& push)
            {
                for (auto const& record : records)
                {
                    detail::writeLines(record, push);
                }
            });
        if (alive())
        {
            mConnection->start();
        }
        flush(std::chrono::milliseconds(0));
        return sent;
    }

    /// Publishes one JSON object in the format of the ingest socket. `line` must not contain a newline.
    bool publishLine(std::string_view line) noexcept
    {
        return line.find('\n') == std::string_view::npos && send([line](auto const& push) { push(line); });
    }

    /// Returns true if all records that were not dropped are in the exporter's socket. Waits for room in it, at most
    /// until `timeout`. Returns false immediately if there is no connection.
    bool flush(std::chrono::milliseconds timeout) noexcept
    {
        try
        {
            return alive() && mConnection->flush(timeout);
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
        return alive() ? mConnection->dropped.load(std::memory_order_relaxed) : 0;
    }

    /// True if the publisher is connected. The publisher notices the end of a connection
    /// when it sends.
    [[nodiscard]] bool connected() const noexcept
    {
        return alive() && mConnection->connected();
    }

    /// Why the exporter cannot be reached, or does not accept the records. Empty if it accepts them, and before the
    /// first attempt to connect.
    [[nodiscard]] std::string error() const
    {
        return alive() ? mConnection->error() : std::string();
    }

private:
    friend class Poller; // uses unreadable()

    /// Calls write(push), and sends the lines that it pushes. Many lines take several sends, so that they need little
    /// memory.
    template <class Write>
    bool send(Write const& write) noexcept
    {
        if (!alive())
        {
            return false;
        }
        try
        {
            std::string lines;
            write(
                [this, &lines](std::string_view line)
                {
                    lines.append(line) += '\n';
                    if (lines.size() >= detail::kChunk)
                    {
                        mConnection->send(std::exchange(lines, {}));
                    }
                });
            if (!lines.empty())
            {
                mConnection->send(lines);
            }
            return true;
        }
        catch (...)
        {
            mConnection->dropped.fetch_add(1, std::memory_order_relaxed);
            return false;
        }
    }

    /// Logs once why the Executor's statistics cannot be read.
    void unreadable(std::string_view reason) noexcept
    {
        if (alive() && !mUnreadable.exchange(true))
        {
            mConnection->log("cannot read statistics: ", reason.substr(0, reason.find('\n')));
        }
    }

    [[nodiscard]] bool alive() const noexcept
    {
        return mConnection != nullptr && mGeneration == detail::Forks::generation();
    }

    unsigned mGeneration{detail::Forks::generation()};
    detail::Connection* mConnection{nullptr};
    std::atomic<bool> mUnreadable{false};
};

/// Reads an Executor's statistics on a thread of its own and publishes them. Nothing else may read them, because the
/// Executor returns each record once. Stop the Poller before Executor::shutdown(), so that the last records are read, and
/// before the Executor or the Publisher is destroyed: declare it after both. In the child of a fork() it does nothing.
class Poller
{
public:
    /// `interval` is the longest pause between two polls. Set `drainRequests` to false if your server reads the request
    /// statistics itself. `ring` is the ExecutorConfig's iterStatsMaxIterations: a smaller ring is polled more often.
    template <class Executor>
    Poller(Publisher& publisher, Executor& executor,
        std::chrono::milliseconds interval = std::chrono::milliseconds(100), bool drainRequests = true, std::size_t ring = 1000) noexcept
        : mPublisher(publisher)
    {
        try
        {
            mThread = new detail::PollThread(
                interval, [this, &executor, drainRequests, ring] { return poll(executor, drainRequests, ring); });
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
    /// Returns how full the ring was. Nothing ends the thread.
    template <class Executor>
    std::optional<double> poll(Executor& executor, bool drainRequests, std::size_t ring) noexcept
    {
        try
        {
            // If this is false, the calls below throw an exception with a call stack.
            if (!executor.canEnqueueRequests())
            {
                mPublisher.unreadable("the executor has been shut down, or this process is not the leader");
                return std::nullopt;
            }
            auto const iterations = executor.getLatestIterationStats();
            mPublisher.publishAll(iterations);
            if (drainRequests)
            {
                mPublisher.publishAll(executor.getLatestRequestStats());
            }
            return static_cast<double>(iterations.size()) / static_cast<double>(ring);
        }
        catch (std::exception const& error)
        {
            mPublisher.unreadable(error.what());
        }
        catch (...)
        {
            mPublisher.unreadable("an exception that is not a std::exception");
        }
        return 0.0;
    }

    Publisher& mPublisher;
    unsigned mGeneration{detail::Forks::generation()};
    detail::PollThread* mThread{nullptr};
};

} // namespace development
} // namespace trtllm_exporter
