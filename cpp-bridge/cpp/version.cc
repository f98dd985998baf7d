// The version of the linked TensorRT-LLM.

#include "trtllm_bridge/bridge.h"

#include "tensorrt_llm/executor/executor.h"

/// The fallback for releases without version(). If both functions are visible, overload resolution prefers
/// TensorRT-LLM's, because it is not a template. This namespace is outside of trtllm_bridge, because both
/// using-directives below must import into the same enclosing namespace, the global one.
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
