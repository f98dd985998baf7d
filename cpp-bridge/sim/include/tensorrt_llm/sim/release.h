#pragma once

// Which TensorRT-LLM the simulated SDK presents itself as: 100 × major + minor. It then has that release's members and
// no others. Where no public header tells in which release a member came, the later one is taken.

#if !defined(TRTLLM_SIM_RELEASE)
#define TRTLLM_SIM_RELEASE 101
#endif

#define TRTLLM_SIM_SINCE(major, minor) (TRTLLM_SIM_RELEASE >= 100 * (major) + (minor))
