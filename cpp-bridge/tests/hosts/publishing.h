#pragma once

// What the tests of publisher.h share: a record and the log.

#include "check.h"
#include "listener.h"

#include "trtllm_exporter/publisher.h"

#include "tensorrt_llm/executor/executor.h"

#include <memory>
#include <mutex>
#include <string>

namespace tle = tensorrt_llm::executor;
using namespace std::chrono_literals;
using trtllm_exporter::Publisher;
using trtllm_exporter::PublisherOptions;

inline std::string const kPath = "/tmp/trtllm-publisher-test-" + std::to_string(::getpid()) + ".sock";

struct CapturedLog
{
    std::shared_ptr<std::mutex> mutex = std::make_shared<std::mutex>();
    std::shared_ptr<std::string> text = std::make_shared<std::string>();

    PublisherOptions options(std::size_t bytes = 1 << 20) const
    {
        PublisherOptions options;
        options.bufferBytes = bytes;
        options.log = [*this](std::string_view line)
        {
            std::lock_guard const lock(*mutex);
            *text += std::string(line) + "\n";
        };
        return options;
    }

    /// For tests that check the data and not the duration of the destructor.
    PublisherOptions patient() const
    {
        auto patient = options(4 << 20);
        patient.flushTimeout = 60s;
        return patient;
    }

    std::string all() const
    {
        std::lock_guard const lock(*mutex);
        return *text;
    }
};

inline tle::IterationStats recordOf(std::uint64_t iter)
{
    tle::IterationStats record{};
    record.timestamp = "07-25-2025 16:54:34.140189";
    record.iter = iter;
    record.iterLatencyMS = 12.625;
    record.numActiveRequests = 3;
    record.kvCacheStats = tle::KvCacheStats{};
    record.kvCacheStats->maxNumBlocks = 512;
    record.kvCacheStats->cacheHitRate = std::numeric_limits<float>::quiet_NaN();
    record.inflightBatchingStats = tle::InflightBatchingStats{};
    record.inflightBatchingStats->numScheduledRequests = -1;
    return record;
}
