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
#include "trtllm_exporter/detail/members.h"
#include "trtllm_exporter/detail/options.h"
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
            detail::Json hello;
            hello.raw("{\"hello\":{\"model\":\"");
            hello.escaped(name.model);
            hello.raw("\",\"version\":\"");
            hello.escaped(name.version);
            // A different pid tells the exporter that the engine restarted.
            hello.raw("\",\"pid\":" + std::to_string(::getpid()));
            if (auto const rank = detail::mpiRank(); !rank.empty())
            {
                hello.raw(",\"rank\":" + rank);
            }
            if (!options.config.empty())
            {
                hello.raw(",\"config\":");
                hello.texts(options.config);
            }
            hello.raw(name.derived ? ",\"derived\":true}}\n" : "}}\n");
            mSender = new detail::Sender(path, std::string(hello.text()), std::move(options));
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

    /// Publishes an IterationStats, a RequestStatsPerIteration, a RequestPerfMetrics, a Response or a Result. A
    /// Response or Result is sent only if it is final and has RequestPerfMetrics; any other one is ignored. Returns
    /// false only if the record could not be stored, for want of memory. dropped() counts the records that did not
    /// reach the exporter.
    template <class Record>
    bool publish(Record const& record) noexcept
    {
        try
        {
            return alive() && write(record);
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

    /// False before the first record too.
    [[nodiscard]] bool connected() const noexcept
    {
        return alive() && mSender->connected.load(std::memory_order_relaxed);
    }

    /// True if the last attempt to connect failed. The publisher retries.
    [[nodiscard]] bool failing() const noexcept
    {
        return alive() && mSender->failing.load(std::memory_order_relaxed);
    }

private:
    /// The exporter accepts lines of up to 1 MiB. The row of an active request takes about 300 bytes.
    static constexpr std::size_t kLine = std::size_t{1000} << 10;

    [[nodiscard]] bool alive() const noexcept
    {
        return mSender != nullptr && mGeneration == detail::Forks::generation();
    }

    template <class Record>
    bool write(Record const& record)
    {
        detail::Json line;
        if constexpr (detail::Has_getResult<Record>::value)
        {
            return record.hasError()
                || writeResult(record.getResult(), ",\"requestId\":" + std::to_string(record.getRequestId()), line);
        }
        else if constexpr (detail::Has_isFinal<Record>::value)
        {
            return writeResult(record, {}, line);
        }
        else if constexpr (detail::Has_timingMetrics<Record>::value)
        {
            line.raw("{\"perfMetrics\":");
            line.object<detail::RequestPerfMetrics>(record);
            line.raw("}");
            mSender->push(line.text());
        }
        else if constexpr (detail::Has_requestStats<Record>::value)
        {
            writeRows(record, line);
        }
        else
        {
            static_assert(detail::Has_iter<Record>::value && detail::Has_numActiveRequests<Record>::value,
                "publish() takes IterationStats, RequestStatsPerIteration, RequestPerfMetrics, Response or Result");
            line.object<detail::IterationStats>(record);
            mSender->push(line.text());
        }
        return true;
    }

    /// Writes the rows of one iteration in one line. A queued request has no other values, so its row is short.
    template <class Record>
    void writeRows(Record const& record, detail::Json& line)
    {
        auto const start = "{\"iter\":" + std::to_string(record.iter) + ",\"requestStats\":[";
        std::string_view before = start;
        for (auto const& row : record.requestStats)
        {
            using Stage = std::decay_t<decltype(row.stage)>;
            if (line.text().size() >= kLine)
            {
                // The line is full, so further rows are left out. The end of a request is reported only once, so those
                // rows go into another line.
                if (row.stage != Stage::kGENERATION_COMPLETE)
                {
                    continue;
                }
                line.raw("]}");
                mSender->push(line.text());
                line.clear();
                before = start;
            }
            line.raw(before);
            if (row.stage == Stage::kQUEUED)
            {
                line.raw("{\"id\":" + std::to_string(row.id) + ",\"stage\":\"QUEUED\"}");
            }
            else
            {
                line.object<detail::RequestStats>(row);
            }
            before = ",";
        }
        if (!line.text().empty())
        {
            line.raw("]}");
            mSender->push(line.text());
        }
    }

    template <class Result>
    bool writeResult([[maybe_unused]] Result const& result, [[maybe_unused]] std::string const& id,
        [[maybe_unused]] detail::Json& line)
    {
        if constexpr (detail::Has_requestPerfMetrics<Result>::value)
        {
            if (result.isFinal && result.requestPerfMetrics)
            {
                line.raw("{\"perfMetrics\":");
                line.object<detail::RequestPerfMetrics>(*result.requestPerfMetrics);
                line.raw(id);
                if (auto const* const reason = detail::finishReason(result))
                {
                    line.raw(",\"finishReason\":\"");
                    line.raw(reason);
                    line.raw("\"");
                }
                line.raw("}");
                mSender->push(line.text());
            }
        }
        return true;
    }

    unsigned mGeneration{detail::Forks::generation()};
    detail::Sender* mSender{nullptr};
};

} // namespace development
} // namespace trtllm_exporter
