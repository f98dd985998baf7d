#!/usr/bin/env bash
# build.sh INCLUDE_DIR OUT.so [LIBTENSORRT_LLM.so] [CXXFLAGS…]: builds the preload library for one TensorRT-LLM release.
# Each release and each C++ ABI needs its own build, because the preload copies that release's structs. If the release's
# library is given, the script builds for its ABI, and checks that headers and library belong to the same release.
# The headers of a real release include those of CUDA, from $CUDA_HOME, $CUDA_PATH or /usr/local/cuda.
set -euo pipefail
preload=$(cd "$(dirname "$0")" && pwd)
publisher=$preload/../publisher/include # in the source tree; the next line is for PREFIX/share/trtllm_exporter/preload
[ -d "$publisher" ] || publisher=$preload/../../../include
usage='usage: build.sh INCLUDE_DIR OUT.so [LIBTENSORRT_LLM.so] [CXXFLAGS...]'
include=${1:?$usage}
out=${2:?$usage}
library=
if [[ ${3:-} == *.so* ]]; then
    library=$3
    shift
fi
shift 2
fail() {
    echo "build.sh: $*" >&2
    exit 1
}
[ -f "$include/tensorrt_llm/executor/executor.h" ] ||
    fail "$include/tensorrt_llm/executor/executor.h does not exist; name the folder that contains tensorrt_llm/"
[ -z "$library" ] || [ -f "$library" ] || fail "$library does not exist; name the release's libtensorrt_llm.so"

# 0.9 and 0.10 include cuda_fp16.h only if this is defined, and do not compile without it.
flags=(-std=c++17 -DENABLE_BF16 -I"$publisher" -isystem "$include")
for cuda in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
    [ -z "$cuda" ] || [ ! -d "$cuda/include" ] || flags+=(-isystem "$cuda/include")
done
flags+=("$@")

# All names of a library that belong to the Executor API, one per line.
names() { nm -D --defined-only "$1" | awk '$3 ~ /^_ZN12tensorrt_llm8executor(8Executor|7versionEv)/ { print $3 }' | sort; }
exported=
if [ -n "$library" ]; then
    exported=$(names "$library")
    # std::filesystem::path has a different mangled name in each ABI.
    abi=
    grep -q '^_ZN12tensorrt_llm8executor8ExecutorC1ERKNSt10filesystem7__cxx114pathENS0_' <<<"$exported" && abi=1
    grep -q '^_ZN12tensorrt_llm8executor8ExecutorC1ERKNSt10filesystem4pathENS0_' <<<"$exported" && abi=0
    [ -n "$abi" ] || fail "$library exports no constructor of the C++ Executor; give the libtensorrt_llm.so of a release from 0.9 to 1.3.0rc20"
    for flag in "$@"; do
        [[ $flag != -D_GLIBCXX_USE_CXX11_ABI=* || $flag = *=$abi ]] ||
            fail "$library was built with -D_GLIBCXX_USE_CXX11_ABI=$abi, so $flag would crash the server; leave the flag out"
    done
    flags+=("-D_GLIBCXX_USE_CXX11_ABI=$abi")
fi

read_headers() { # read_headers HEADER: prints the header as the compiler sees it
    echo "#include \"tensorrt_llm/executor/$1.h\"" | ${CXX:-g++} "${flags[@]}" -x c++ -E - 2>&1
}
if ! text=$(read_headers executor); then
    reason=$(grep -m 1 'error:' <<<"$text" || tail -n 1 <<<"$text")
    fail "the headers in $include do not compile: ${reason#*error: }; set CUDA_HOME to the CUDA toolkit, or add -isystem DIR for each missing folder"
fi
declares_version=$(grep -cE '\bversion\(\) noexcept' <<<"$text" || true)
version=
if [ -f "$include/tensorrt_llm/executor/version.h" ]; then
    version=$(read_headers version | sed -n 's/.*kTensorRtLlmVersion *= *"\([^"]*\)".*/\1/p')
elif [ -f "$include/../../tensorrt_llm/version.py" ]; then # a source tree that was not built
    version=$(sed -n 's/^__version__ *= *"\([^"]*\)".*/\1/p' "$include/../../tensorrt_llm/version.py")
fi
[ -z "$version" ] || flags+=("-DTRTLLM_PRELOAD_VERSION=\"$version\"")

if [ -n "$library" ]; then
    missing=$(comm -23 <(printf '%s\n' _ZN12tensorrt_llm8executor8Executor{21getLatestRequestStatsEv,23getLatestIterationStatsEv,D1Ev}) <(echo "$exported"))
    [ -z "$missing" ] || fail "$library does not export ${missing//$'\n'/ }, so the preload cannot hook it"
    has_version=$(grep -c '8executor7versionEv$' <<<"$exported" || true)
    [ "$((declares_version > 0))" = "$((has_version > 0))" ] ||
        fail "$include and $library belong to different releases: version() exists in only one of them; use the headers of the library's release"
    # The library contains the text that version() returns. The linker may have merged it with the end of a longer text.
    if [ "$has_version" != 0 ] && [ -n "$version" ] && ! LC_ALL=C grep -aqz -- "${version//./\\.}\$" "$library"; then
        fail "$include is TensorRT-LLM $version, but $library is not; use the headers of the library's release"
    fi
fi

# exports.map hides all symbols but the hooks, because the host has its own libstdc++ and perhaps its own publisher.
${CXX:-g++} -O2 -Wall -Wextra -Wpedantic -Werror "${flags[@]}" -pthread -fPIC -shared -fvisibility=hidden \
    "$preload"/*.cc -Wl,--version-script="$preload/exports.map" -ldl -o "$out"
[ -n "$library" ] || exit 0
unknown=$(comm -13 <(names "$out") <(echo "$exported") | grep -E 'ExecutorC1E' | grep -v 'C1EOS1_' || true)
if [ -n "$unknown" ]; then
    echo "build.sh: note: constructors $unknown are not hooked; their Executors are published from their first request on, with an assumed ring size of 1000" >&2
fi
