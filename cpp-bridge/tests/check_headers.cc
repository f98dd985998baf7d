// Compiled by cpp-bridge/check-headers.sh only. Uses publisher.h with every kind of record, as a host does.

#include "trtllm_exporter/publisher.h"

#include "tensorrt_llm/executor/executor.h"

namespace tle = tensorrt_llm::executor;

void checkHeaders(tle::Executor& executor, trtllm_exporter::Publisher& publisher)
{
    trtllm_exporter::Poller poller(publisher, executor);
    for (auto const& record : executor.getLatestIterationStats())
    {
        publisher.publish(record);
    }
    for (auto const& record : executor.getLatestRequestStats())
    {
        publisher.publish(record);
    }
    for (auto const& response : executor.awaitResponses())
    {
        publisher.publish(response);
    }
}
