// Compiled and linked by build.rs against TENSORRT_LLM_ROOT, never run: the object file tells in text which members the
// headers have, the link whether the Executor that they declare is in the library.

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

/// The name of a member, '+' or '-', the end of the line.
template <std::size_t size>
struct Told
{
    constexpr Told(char const (&name)[size], bool there)
    {
        for (std::size_t i = 0; i + 1 < size; ++i)
        {
            text[i] = name[i];
        }
        text[size - 1] = there ? '+' : '-';
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
    extern constexpr Told<sizeof("TRTLLM_PROBE " #Type "::" #member)> told{                                            \
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
    // All that the bridge calls.
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
