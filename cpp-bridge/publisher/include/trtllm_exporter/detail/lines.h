#pragma once

// Writes records as lines of JSON for the exporter's ingest socket.

#include "trtllm_exporter/detail/json.h"
#include "trtllm_exporter/detail/options.h"

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>

#include <unistd.h>

namespace trtllm_exporter
{
inline namespace development
{
namespace detail
{

/// The member `"hello":{…}`, which identifies the publisher and its engine.
inline std::string helloOf(EngineName const& name, std::map<std::string, std::string> const& config)
{
    Json hello;
    hello.raw("\"hello\":{\"model\":\"");
    hello.escaped(name.model);
    hello.raw("\",\"version\":\"");
    hello.escaped(name.version);
    // A different pid tells the exporter that the engine restarted.
    hello.raw("\",\"pid\":" + std::to_string(::getpid()));
    if (!config.empty())
    {
        hello.raw(",\"config\":");
        hello.texts(config);
    }
    hello.raw(name.derived ? ",\"derived\":true}" : "}");
    return std::string(hello.text());
}

/// A line of this size is full. The exporter accepts up to 1 MiB; the row of an active request takes about 300 bytes.
constexpr std::size_t kLine = std::size_t{1000} << 10;

/// Writes one iteration in one line, with a row for each request. The row of a queued request has only id and stage.
template <class Record, class Push>
void writeRows(Record const& record, Json& line, Push const& push)
{
    auto const start = "{\"iter\":" + std::to_string(record.iter) + ",\"requestStats\":[";
    std::string_view before = start;
    for (auto const& row : record.requestStats)
    {
        using Stage = std::decay_t<decltype(row.stage)>;
        if (line.text().size() >= kLine)
        {
            // The line is full, so further rows are left out. Rows of ended requests go into another line, because the
            // end of a request is reported only once.
            if (row.stage != Stage::kGENERATION_COMPLETE)
            {
                continue;
            }
            line.raw("]}");
            push(line.text());
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
            line.object<RequestStats>(row);
        }
        before = ",";
    }
    if (!line.text().empty())
    {
        line.raw("]}");
        push(line.text());
    }
}

/// Writes a final result that has RequestPerfMetrics or a finish reason.
template <class Result, class Push>
void writeResult(Result const& result, std::string const& id, Json& line, Push const& push)
{
    auto const* const reason = finishReason(result);
    Json metrics;
    if constexpr (Has_requestPerfMetrics<Result>::value)
    {
        if (result.requestPerfMetrics)
        {
            metrics.object<RequestPerfMetrics>(*result.requestPerfMetrics);
        }
    }
    if (result.isFinal && (reason != nullptr || !metrics.text().empty()))
    {
        line.raw("{\"perfMetrics\":");
        line.raw(metrics.text().empty() ? "{}" : metrics.text());
        line.raw(id);
        line.raw(reason == nullptr ? "}" : ",\"finishReason\":\"" + std::string(reason) + "\"}");
        push(line.text());
    }
}

/// Calls push() with the line of an IterationStats, a RequestStatsPerIteration, a RequestPerfMetrics, a Response or a
/// Result. Request rows may take several lines. A Result has a line only if it is final.
template <class Record, class Push>
void writeLines(Record const& record, Push const& push)
{
    Json line;
    if constexpr (Has_getResult<Record>::value)
    {
        auto const id = ",\"requestId\":" + std::to_string(record.getRequestId());
        record.hasError() ? push("{\"perfMetrics\":{}" + id + ",\"finishReason\":\"error\"}")
                          : writeResult(record.getResult(), id, line, push);
    }
    else if constexpr (Has_isFinal<Record>::value)
    {
        writeResult(record, {}, line, push);
    }
    else if constexpr (Has_timingMetrics<Record>::value)
    {
        line.raw("{\"perfMetrics\":");
        line.object<RequestPerfMetrics>(record);
        line.raw("}");
        push(line.text());
    }
    else if constexpr (Has_requestStats<Record>::value)
    {
        writeRows(record, line, push);
    }
    else
    {
        static_assert(Has_iter<Record>::value && Has_numActiveRequests<Record>::value,
            "publish() takes IterationStats, RequestStatsPerIteration, RequestPerfMetrics, Response or Result");
        line.object<IterationStats>(record);
        push(line.text());
    }
}

} // namespace detail
} // namespace development
} // namespace trtllm_exporter
