#!/usr/bin/env bash
# Type-checks the bridge (and the C++ of cpp-bridge/embed, where it is present) against the headers of a TensorRT-LLM.
# Compiles nothing that stays, links nothing, needs no GPU.
#
#   cpp-bridge/check-headers.sh DIR [CXXFLAGS…]
#
# DIR holds tensorrt_llm/executor/executor.h: "include" of an installation, "cpp/include" of a source tree.
# Those headers include CUDA's. Either name these:
#   check-headers.sh DIR -isystem$CUDA_HOME/include
#   (from PyPI: the include folders of nvidia-cuda-runtime-cu12, nvidia-cuda-nvcc-cu12 and nvidia-cuda-cccl-cu12)
# or give --cuda-stubs instead of DIR's first flag: empty stand-ins of our own, enough for types.
#   check-headers.sh DIR --cuda-stubs
# 0.9 and 0.10 also need -DENABLE_BF16, which is set here for all as the build does.
# Exit status: 0 if all sources type-check, 1 if one does not, 2 for a wrong call.
set -euo pipefail
usage() { sed -n '2,/^set -euo/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
[ $# -ge 1 ] && [ "$1" != --help ] && [ "$1" != -h ] || usage
headers=$(cd "$1" 2>/dev/null && pwd) || { echo "$1 is no directory" >&2; exit 2; }
shift
[ -f "$headers/tensorrt_llm/executor/executor.h" ] \
    || { echo "$headers/tensorrt_llm/executor/executor.h is not there" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=()
for flag in "$@"; do
    if [ "$flag" = --cuda-stubs ]; then
        mkdir "$work/cuda"
        echo '#pragma once
struct __half {}; using half = __half; float __half2float(__half);' >"$work/cuda/cuda_fp16.h"
        echo '#pragma once
#include "cuda_fp16.h"
struct __nv_bfloat16 {}; float __bfloat162float(__nv_bfloat16);' >"$work/cuda/cuda_bf16.h"
        echo '#pragma once
struct __nv_fp8_e4m3 {};' >"$work/cuda/cuda_fp8.h"
        echo '#pragma once
using cudaStream_t = struct CUstream_st*; using cudaEvent_t = struct CUevent_st*; enum cudaError_t { cudaSuccess };
struct cudaDeviceProp; struct cudaPointerAttributes;' >"$work/cuda/cuda_runtime_api.h"
        for name in cuda_runtime driver_types cuda; do
            echo '#include "cuda_runtime_api.h"' >"$work/cuda/$name.h"
        done
        flags+=("-isystem$work/cuda")
    else
        flags+=("$flag")
    fi
done

cd "$(dirname "$0")"
# The border's generated headers lie where the build of the bridge (simulated: it needs no TensorRT-LLM) wrote them.
out=$(unset TENSORRT_LLM_ROOT; cargo check --quiet --package trtllm-bridge --message-format=json \
    | sed -n 's/.*"reason":"build-script-executed".*trtllm-bridge.*"out_dir":"\([^"]*\)".*/\1/p' | tail -1)
[ -d "$out/cxxbridge" ] || { echo "the bridge did not build: its generated headers are missing" >&2; exit 1; }

sources=(cpp/*.cc "$out"/cxxbridge/sources/trtllm-bridge/src/ffi.rs.cc)
includes=(-Iinclude -Icpp -isystem"$out/cxxbridge/include" -isystem"$out/cxxbridge/crate")
if [ -d embed ]; then
    while IFS= read -r source; do sources+=("$source"); done \
        < <(find embed -name '*.cc' -not -path '*/test*' -not -path '*/target/*' -not -path '*/build/*' | sort)
    for folder in embed/include embed/src embed/cpp embed; do
        [ -d "$folder" ] && includes+=("-I$folder")
    done
fi
check() {
    local source=$1
    shift
    if ! "${CXX:-c++}" -std=c++17 -fsyntax-only -Wall -Wextra -Wpedantic -Werror -DENABLE_BF16 "$@" "$source"; then
        echo "$source does not type-check" >&2
        return 1
    fi
}
export -f check
# Each source alone; all are tried.
printf '%s\n' "${sources[@]}" \
    | xargs -P "$(nproc)" -I{} bash -c 'check "$@"' check {} "${includes[@]}" -isystem"$headers" ${flags[@]+"${flags[@]}"} \
    || exit 1
echo "${#sources[@]} sources type-check against $headers"
