// Compiled by cpp-bridge/check-headers.sh only. Uses the public headers with every kind of record, as a host does.

#include "trtllm_exporter/exporter.h"
#include "trtllm_exporter/publisher.h"

#include "tensorrt_llm/executor/executor.h"

namespace tle = tensorrt_llm::executor;

void checkHeaders(std::shared_ptr<tle::Executor> const& executor, trtllm_exporter::Publisher& publisher)
{
    auto exporter = trtllm_exporter::Exporter::attach(executor);
    for (auto const& record : executor->getLatestIterationStats())
    {
        publisher.publish(record);
    }
    for (auto const& record : executor->getLatestRequestStats())
    {
        publisher.publish(record);
    }
    for (auto const& response : executor->awaitResponses())
    {
        publisher.publish(response);
        exporter.observe(response);
    }
}
