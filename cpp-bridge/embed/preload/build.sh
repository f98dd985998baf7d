#!/usr/bin/env bash
# build.sh INCLUDE_DIR OUT.so [LIBTENSORRT_LLM.so] [CXXFLAGS…]: the preload for the release whose headers these are.
# One library for each release of TensorRT-LLM, because it copies that release's structs. With the release's library
# it is also checked that the preload stands in front of the functions that this library has.
set -euo pipefail
embed=$(cd "$(dirname "$0")/.." && pwd)
include=${1:?usage: build.sh INCLUDE_DIR OUT.so [LIBTENSORRT_LLM.so] [CXXFLAGS...]}
out=${2:?usage: build.sh INCLUDE_DIR OUT.so [LIBTENSORRT_LLM.so] [CXXFLAGS...]}
library=
if [[ ${3:-} == *.so* ]]; then
    library=$3
    shift
fi
shift 2
# Everything but the interposed names stays inside: the host has a libstdc++ and perhaps a publisher of its own.
${CXX:-g++} -std=c++17 -O2 -Wall -Wextra -Wpedantic -Werror -pthread -fPIC -shared -fvisibility=hidden \
    -I"$embed/include" -isystem "$include" "$@" "$embed"/preload/*.cc \
    -Wl,--version-script="$embed/preload/exports.map" -ldl -o "$out"
[ -n "$library" ] || exit 0
names() { nm -D --defined-only "$1" | awk '{ print $3 }' | grep -E '^_ZN12tensorrt_llm8executor8Executor' | sort; }
missing=$(comm -23 <(printf '%s\n' _ZN12tensorrt_llm8executor8Executor{21getLatestRequestStatsEv,23getLatestIterationStatsEv,D1Ev}) <(names "$library"))
if [ -n "$missing" ]; then
    echo "build.sh: $library does not export $missing: it cannot be preloaded (no C++ Executor, or another ABI)" >&2
    exit 1
fi
unknown=$(comm -13 <(names "$out") <(names "$library") | grep -E 'ExecutorC1E' | grep -v 'C1EOS1_' || true)
if [ -n "$unknown" ]; then
    echo "build.sh: note: Executors constructed by $unknown are seen from their first request on, their ring taken for 1000" >&2
fi
