// Which TensorRT-LLM this is.

#include "trtllm_bridge/bridge.h"

#include "tensorrt_llm/executor/executor.h"

/// Chosen only where TensorRT-LLM has no version(): between two equal matches the one that is no template wins. Outside
/// of trtllm_bridge, because two using-directives compete only if both reach the global namespace.
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

rust::String libraryVersion()
{
    return rust::String::lossy(linkedVersion());
}

} // namespace trtllm_bridge
