// build.rs compiles and links this file against TENSORRT_LLM_ROOT, and never runs it. The object file contains a text
// that lists which members the headers have. The link fails if the library does not define the Executor.

#include "tensorrt_llm/executor/executor.h"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <type_traits>
#include <utility>

extern "C" bool initTrtLlmPlugins(void* logger, char const* libNamespace);

namespace tle = tensorrt_llm::executor;

namespace
{

/// One line of text: the name of a member, then '+' if it exists or '-' if not.
template <std::size_t size>
struct Line
{
    constexpr Line(char const (&name)[size], bool exists)
    {
        for (std::size_t i = 0; i + 1 < size; ++i)
        {
            text[i] = name[i];
        }
        text[size - 1] = exists ? '+' : '-';
        text[size] = '\n';
    }

    char text[size + 1]{};
};

} // namespace

#define PROBE(Type, member)                                                                                            \
    namespace Type##_##member                                                                                          \
    {                                                                                                                  \
    template <class T, class = void>                                                                                   \
    struct Has : std::false_type                                                                                       \
    {                                                                                                                  \
    };                                                                                                                 \
    template <class T>                                                                                                 \
    struct Has<T, std::void_t<decltype(std::declval<T const&>().member)>> : std::true_type                             \
    {                                                                                                                  \
    };                                                                                                                 \
    extern constexpr Line<sizeof("TRTLLM_PROBE " #Type "::" #member)> line{                                            \
        "TRTLLM_PROBE " #Type "::" #member, Has<tle::Type>::value};                                                    \
    }

PROBE(IterationStats, iterLatencyMS)
PROBE(IterationStats, newActiveRequestsQueueLatencyMS)
PROBE(IterationStats, numNewActiveRequests)
PROBE(IterationStats, numQueuedRequests)
PROBE(IterationStats, numCompletedRequests)
PROBE(IterationStats, maxBatchSizeRuntime)
PROBE(IterationStats, maxNumTokensRuntime)
PROBE(IterationStats, crossKvCacheStats)
PROBE(IterationStats, specDecodingStats)
PROBE(KvCacheStats, reusedBlocks)
PROBE(KvCacheStats, missedBlocks)
PROBE(InflightBatchingStats, avgNumDecodedTokensPerIter)
PROBE(RequestStats, avgNumDecodedTokensPerIter)
PROBE(RequestStats, disServingStats)
PROBE(RequestStats, reusedBlocksPerRequest)
PROBE(RequestStats, missedBlocksPerRequest)
PROBE(Result, requestPerfMetrics)

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
