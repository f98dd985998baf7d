// build.rs compiles and links this file against TENSORRT_LLM_ROOT, and never runs it. The link fails if the library does
// not define the Executor.

#include "tensorrt_llm/executor/executor.h"

#include <filesystem>

extern "C" bool initTrtLlmPlugins(void* logger, char const* libNamespace);

namespace tle = tensorrt_llm::executor;

int main(int count, char** values)
{
    // All functions that the bridge calls.
    initTrtLlmPlugins(nullptr, "tensorrt_llm");
    tle::ExecutorConfig config;
    tle::Executor executor(std::filesystem::path(values[count - 1]), tle::ModelType::kDECODER_ONLY, config);
    if (executor.canEnqueueRequests())
    {
        static_cast<void>(executor.enqueueRequest(tle::Request({1}, 1)));
        static_cast<void>(executor.awaitResponses());
        auto const records = executor.getLatestIterationStats().size() + executor.getLatestRequestStats().size();
        executor.shutdown();
        return static_cast<int>(records);
    }
    return 0;
}
