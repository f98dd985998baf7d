// Functions that Rust calls. Only this file needs the symbols of cxx.

#include "trtllm_bridge/bridge.h"

#include "records.h"

#include <cstdlib>

/// The fallback for releases without version(). If both functions are visible, overload resolution prefers
/// TensorRT-LLM's, because it is not a template. This namespace is outside of trtllm_bridge: only then do both
/// using-directives below import into the same enclosing namespace, the global one.
namespace trtllm_bridge_fallback
{

template <int = 0>
char const* version()
{
    return "";
}

} // namespace trtllm_bridge_fallback

namespace
{

char const* linkedVersion()
{
    using namespace trtllm_bridge_fallback;
    using namespace tensorrt_llm::executor;
    return version();
}

} // namespace

namespace trtllm_bridge
{

std::unique_ptr<HostedExecutor> openExecutor(rust::Str engine, RingSizes rings)
{
    return std::make_unique<HostedExecutor>(std::string(engine), rings);
}

std::size_t drainIterations(HostedExecutor& executor, rust::Slice<IterationStats> records)
{
    return executor.drainIterations(records.data(), records.size());
}

bool nextRequests(HostedExecutor& executor, RequestStatsPerIteration& record)
{
    return executor.nextRequests(
        [&record](auto const& from)
        {
            record.iter = from.iter;
            record.request_stats.clear();
            record.request_stats.reserve(from.requestStats.size());
            for (auto const& request : from.requestStats)
            {
                RequestStats row;
                fill(row, request);
                record.request_stats.push_back(row);
            }
        });
}

std::size_t drainFinished(HostedExecutor& executor, rust::Slice<FinishedRequest> requests)
{
    return executor.drainFinished(requests.data(), requests.size());
}

rust::String libraryVersion()
{
    return rust::String::lossy(linkedVersion());
}

bool isSimulated()
{
#if defined(TRTLLM_BRIDGE_SIMULATED)
    return true;
#else
    return false;
#endif
}

void exitNow(std::int32_t code)
{
    std::_Exit(code);
}

} // namespace trtllm_bridge
