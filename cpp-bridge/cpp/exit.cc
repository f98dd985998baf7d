// The end of a process whose engine cannot be stopped.

#include "trtllm_bridge/bridge.h"

#include <cstdlib>

namespace trtllm_bridge
{

void exitNow(std::int32_t code)
{
    std::_Exit(code);
}

} // namespace trtllm_bridge
