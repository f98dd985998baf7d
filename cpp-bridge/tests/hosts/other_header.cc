// A host that is compiled against headers of a different version than the library.

#include "check.h"

#include "trtllm_exporter/exporter.h"

#include "tensorrt_llm/executor/executor.h"

#include <chrono>
#include <thread>

namespace tle = tensorrt_llm::executor;

int main()
{
    tle::ExecutorConfig config;
    config.setRequestStatsMaxIterations(1000);
    auto const executor = std::make_shared<tle::Executor>("sim:?rate=20", tle::ModelType::kDECODER_ONLY, config);
    trtllm_exporter::Options options;
    options.listen = "127.0.0.1:0";
    options.interval = std::chrono::milliseconds(10);
    auto exporter = trtllm_exporter::Exporter::attach(executor, options);
    CHECK(!exporter.address().empty());
    std::this_thread::sleep_for(std::chrono::seconds(1));
    CHECK(exporter.dropped() == 0); // the library counted every line
}
