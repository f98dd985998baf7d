#!/usr/bin/env bash
# Type-checks the bridge, publisher.h, the preload and the examples against the headers of a TensorRT-LLM release. Also checks
# publisher.h with strict warnings, with g++ and, if it is installed, clang++, from C++17 to C++23.
# Writes no object files, links nothing and needs no GPU.
#
#   cpp-bridge/check-headers.sh DIR [CXXFLAGS…]
#
# DIR contains tensorrt_llm/executor/executor.h. It is "include" of an installation or "cpp/include" of a source tree.
# The headers of TensorRT-LLM include those of CUDA. Either add the CUDA headers:
#   check-headers.sh DIR -isystem$CUDA_HOME/include
#   (on PyPI: the include folders of nvidia-cuda-runtime-cu12, nvidia-cuda-nvcc-cu12 and nvidia-cuda-cccl-cu12)
# or use stubs, which are enough to check types:
#   check-headers.sh DIR --cuda-stubs
# The script always sets -DENABLE_BF16, as the build does. 0.9 and 0.10 need it.
# Exit status: 0 if all sources type-check, 1 if one does not, 2 for invalid arguments.
set -euo pipefail
usage() { sed -n '2,/^set -euo/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
case ${1:-} in "" | -h | --help) usage ;; esac
headers=$(cd "$1" 2>/dev/null && pwd) || { echo "check-headers.sh: $1 is not a directory; name a folder of headers" >&2; exit 2; }
shift
[ -f "$headers/tensorrt_llm/executor/executor.h" ] \
    || { echo "check-headers.sh: $headers/tensorrt_llm/executor/executor.h does not exist; name the folder that contains tensorrt_llm/" >&2; exit 2; }
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
# The headers that cxx generates are in the output folder of the bridge's build. A simulated build is enough.
out=$(unset TENSORRT_LLM_ROOT; cargo check --quiet --package trtllm-bridge --message-format=json \
    | sed -n 's/.*"reason":"build-script-executed".*trtllm-bridge.*"out_dir":"\([^"]*\)".*/\1/p' | tail -1)
[ -d "$out/cxxbridge" ] || { echo "check-headers.sh: the bridge did not build, so the headers that cxx generates are missing; see the errors above" >&2; exit 1; }

sources=(cpp/*.cc "$out"/cxxbridge/sources/trtllm-bridge/src/ffi.rs.cc)
includes=(-Iinclude -Icpp -isystem"$out/cxxbridge/include" -isystem"$out/cxxbridge/crate")
sources+=(preload/*.cc tests/check_headers.cc)
includes+=(-Ipublisher/include -Ipreload)
for source in ../examples/cpp-server/*.cc; do sources+=("$source"); done
check() {
    local source=$1
    shift
    if ! "${CXX:-c++}" -std=c++17 -fsyntax-only -Wall -Wextra -Wpedantic -Werror -DENABLE_BF16 "$@" "$source"; then
        echo "$source does not type-check" >&2
        return 1
    fi
}
export -f check
# Checks each source separately, and continues after a failure.
printf '%s\n' "${sources[@]}" \
    | xargs -P "$(nproc)" -I{} bash -c 'check "$@"' check {} "${includes[@]}" -isystem"$headers" ${flags[@]+"${flags[@]}"} \
    || exit 1

# Users compile publisher.h with their own flags, so check with both compilers: each gives warnings that the other does not
# give. publisher.h must compile alone. check_headers.cc uses every template.
strict() { # strict COMPILER:STANDARD FLAG…
    local compiler=${1%%:*} standard=${1#*:} header
    shift
    for header in trtllm_exporter/publisher.h check_headers.cc; do
        if ! echo "#include \"$header\"" | "$compiler" -x c++ "-std=$standard" -fsyntax-only -Wall -Wextra -Wshadow \
            -Wconversion -Wpedantic -Werror -DENABLE_BF16 -Itests -Ipublisher/include "$@" -; then
            echo "$header does not compile with strict warnings: $compiler -std=$standard" >&2
            return 1
        fi
    done
}
export -f strict
compilers=(g++)
if command -v clang++ >/dev/null; then compilers+=(clang++); fi
printf '%s\n' "${compilers[@]/%/:c++17}" "${compilers[@]/%/:c++20}" "${compilers[@]/%/:c++2b}" \
    | xargs -P "$(nproc)" -I{} bash -c 'strict "$@"' strict {} -isystem"$headers" ${flags[@]+"${flags[@]}"} \
    || exit 1
echo "${#sources[@]} sources type-check against $headers, and publisher.h compiles with ${compilers[*]}"
