#pragma once

// The release that the simulated SDK imitates, as 100 × major + minor. The SDK has exactly the members of that release.
// If public headers do not show in which release a member was added, the SDK uses the later release.

#if !defined(TRTLLM_SIM_RELEASE)
#define TRTLLM_SIM_RELEASE 101
#endif

#define TRTLLM_SIM_SINCE(major, minor) (TRTLLM_SIM_RELEASE >= 100 * (major) + (minor))
