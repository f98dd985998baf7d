#pragma once

// Publishes TensorRT-LLM's statistics from inside your server to trtllm-exporter's ingest socket.
//
//     trtllm_exporter::Publisher publisher("/run/trtllm-exporter/ingest.sock",
//         trtllm_exporter::EngineName::ofEngine(engineDirectory));
//     for (auto const& record : executor.getLatestIterationStats()) { publisher.publish(record); }
//     publisher.publish(response); // finished requests with OutputConfig::returnPerfMetrics
//
// One header, C++17 (GCC 11 or later), POSIX, no other dependency. It includes no header of TensorRT-LLM and detects at
// compile time which members your release's structs have. Nothing here throws, raises SIGPIPE or blocks on the
// exporter, except flush() and the destructor, which wait up to a timeout. Records wait in a bounded buffer; when it is
// full, the oldest are dropped and counted.

// install.sh replaces the includes of detail/ with the files.
#include "trtllm_exporter/detail/json.h"
#include "trtllm_exporter/detail/line_ring.h"
#include "trtllm_exporter/detail/lines.h"
#include "trtllm_exporter/detail/members.h"
#include "trtllm_exporter/detail/options.h"
#include "trtllm_exporter/detail/outgoing.h"
#include "trtllm_exporter/detail/process.h"
#include "trtllm_exporter/detail/sender.h"
#include "trtllm_exporter/detail/values.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
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
    [[nodiscard]] bool alive() const noexcept
    {
        return mSender != nullptr && mGeneration == detail::Forks::generation();
    }

    unsigned mGeneration{detail::Forks::generation()};
    detail::Sender* mSender{nullptr};
};

} // namespace development
} // namespace trtllm_exporter
