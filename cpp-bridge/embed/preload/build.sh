#!/usr/bin/env bash
# build.sh INCLUDE_DIR OUT.so [LIBTENSORRT_LLM.so] [CXXFLAGS…]: builds the preload library for one TensorRT-LLM release.
# Each release needs its own build, because the preload copies that release's structs. If the release's library is
# given, the script also checks that the library exports the functions that the preload hooks.
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
# exports.map hides all symbols but the hooks, because the host has its own libstdc++ and perhaps its own publisher.
${CXX:-g++} -std=c++17 -O2 -Wall -Wextra -Wpedantic -Werror -pthread -fPIC -shared -fvisibility=hidden \
    -I"$embed/include" -isystem "$include" "$@" "$embed"/preload/*.cc \
    -Wl,--version-script="$embed/preload/exports.map" -ldl -o "$out"
[ -n "$library" ] || exit 0
names() { nm -D --defined-only "$1" | awk '{ print $3 }' | grep -E '^_ZN12tensorrt_llm8executor8Executor' | sort; }
missing=$(comm -23 <(printf '%s\n' _ZN12tensorrt_llm8executor8Executor{21getLatestRequestStatsEv,23getLatestIterationStatsEv,D1Ev}) <(names "$library"))
if [ -n "$missing" ]; then
    echo "build.sh: $library does not export $missing: it has no C++ Executor or another ABI, so the preload cannot hook it" >&2
    exit 1
fi
unknown=$(comm -13 <(names "$out") <(names "$library") | grep -E 'ExecutorC1E' | grep -v 'C1EOS1_' || true)
if [ -n "$unknown" ]; then
    echo "build.sh: note: constructors $unknown are not hooked; their Executors are published from their first request on, with an assumed ring size of 1000" >&2
fi
