# Tests that the preload publishes if it matches the loaded TensorRT-LLM, and changes nothing if it does not. Sourced by
# run.sh.

# An SDK is named RELEASE-abiABI, e.g. 0.9-abi0.
built_sdks=()

# sdk NAME: installs a simulated SDK under $work/NAME, with its preload, a host, and plugins that contain or link the SDK.
sdk() {
    local name=$1 out=$work/$1 release=${1%-abi*} abi=${1#*-abi}
    mkdir -p "$out"
    cp -r "$bridge/sim/include" "$out/"
    sed -i "s/^#define TRTLLM_SIM_RELEASE .*/#define TRTLLM_SIM_RELEASE $((${release%.*} * 100 + ${release#*.}))/" \
        "$out/include/tensorrt_llm/sim/release.h"
    # One translation unit without optimization compiles in a few seconds.
    cat "$bridge"/sim/src/*.cc >"$out/sdk.cc"
    local compile=("${CXX:-g++}" -std=c++17 -pthread -w "-D_GLIBCXX_USE_CXX11_ABI=$abi" -fPIC -isystem "$out/include" -I"$bridge/sim/src")
    local step=("$artifacts/libtrtllm_sim_c.a" -Wl,--exclude-libs,ALL)
    local link=(-L"$out" -ltensorrt_llm "-Wl,-rpath,$out")
    "${compile[@]}" -c "$out/sdk.cc" -o "$out/sdk.o" &&
        "${compile[@]}" -shared "$out/sdk.o" "${step[@]}" -o "$out/libtensorrt_llm.so" &&
        "${compile[@]}" -c -DHOST_IS_A_PLUGIN "$here/host.cc" -o "$out/plugin.o" &&
        "${compile[@]}" -shared "$out/plugin.o" -o "$out/plugin.so" "${link[@]}" &&
        "${compile[@]}" -shared "$out/plugin.o" "$out/sdk.o" "${step[@]}" -o "$out/static-plugin.so" &&
        "${compile[@]}" "$here/host.cc" -o "$out/host" "${link[@]}" || return 1
    # Releases before 0.12 have no version.
    case $release in 0.9 | 0.11) rm "$out/include/tensorrt_llm/executor/version.h" ;; esac
    "$bridge/preload/build.sh" "$out/include" "$out/preload.so" "$out/libtensorrt_llm.so" -O0
}

sdks() { # sdks NAME…: installs several, two at a time
    export artifacts bridge here work
    export -f sdk
    printf '%s\n' "$@" | xargs -P2 -I{} bash -c 'sdk {}' || return 1
    built_sdks=("$@")
}

# fits BUILT LOADED: runs a server with the SDK LOADED and the preload that was built for BUILT. If they are the same,
# every iteration must arrive once. If not, the server's output must not change, and the preload must log one line.
fits() {
    local built=$1 loaded=$2 mode
    if [ "$built" = "$loaded" ]; then
        folder=$built retried delivered 800 "$work/$loaded/host"
        return
    fi
    for mode in "polling 800" "silent 300" errors; do
        # shellcheck disable=SC2086
        "$work/$loaded/host" $mode >"$work/without" &&
            socket=/nonexistent/x.sock preloaded "$built" "$work/$loaded/host" $mode >"$work/with" 2>"$work/log" &&
            cmp "$work/without" "$work/with" && logs_once "does not fit .*/libtensorrt_llm.so: " "$work/log" || return 1
    done
}

matrix() { # every built preload with every SDK
    local built loaded
    [ ${#built_sdks[@]} -gt 0 ] || { echo "no SDK was built"; return 1; }
    for built in "${built_sdks[@]}"; do
        for loaded in "${built_sdks[@]}"; do
            fits "$built" "$loaded" || { echo "built for $built, loaded $loaded"; return 1; }
        done
    done
}

# delivered ITERATIONS COMMAND…: checks that every iteration of a host in mode "silent" arrives once. Returns 2 if
# some records were dropped and the exporter counted them as lost.
delivered() {
    local count=$1 result=1
    shift
    start_sidecar "$socket" || return 1
    start_host "${folder:-plain}" "$@" silent "$count"
    if eventually host_finished && eventually accounted_is "$count"; then
        result=0
        metric_is nv_trt_llm_iterations_lost_total 0 || result=2
    fi
    end_host || result=1
    [ $result != 0 ] || until_metric nv_trt_llm_iterations_total "$count" || result=1
    stop_sidecar
    cat "$work/host" "$work/log"
    return $result
}

# build_fails TEXT ARGUMENT…: build.sh must fail with one line that contains the text, and leave no preload.
build_fails() {
    local text=$1
    shift
    ! "$bridge/preload/build.sh" "$1" "$work/none.so" "${@:2}" 2>"$work/error" && [ ! -e "$work/none.so" ] &&
        [ "$(wc -l <"$work/error")" = 1 ] && grep -q "build.sh: .*$text" "$work/error" && return
    cat "$work/error"
    return 1
}

build_rejects() { # build.sh rejects headers and flags that do not belong to the library
    local new=$work/1.1-abi1 old=$work/0.9-abi1
    ${CXX:-g++} -shared -x c++ /dev/null -o "$work/empty.so"
    sed 's/1\.1\.0+simulated/1.0.9+simulated/' "$new/libtensorrt_llm.so" >"$work/other.so" # another patch release
    build_fails "different releases" "$new/include" "$old/libtensorrt_llm.so" &&
        build_fails "was built with -D_GLIBCXX_USE_CXX11_ABI=1, so" "$new/include" "$new/libtensorrt_llm.so" -D_GLIBCXX_USE_CXX11_ABI=0 &&
        build_fails "exports no constructor" "$new/include" "$work/empty.so" &&
        build_fails "is TensorRT-LLM 1.1.0+simulated, but" "$new/include" "$work/other.so" &&
        build_fails "does not exist" "$new/include/tensorrt_llm"
}

foreign_name() { # the plugin's TensorRT-LLM has another file name
    mkdir -p "$work/renamed"
    cp "$work/1.1-abi1/libtensorrt_llm.so" "$work/renamed/libengine.so" &&
        ${CXX:-g++} -shared "$work/1.1-abi1/plugin.o" -o "$work/renamed/plugin.so" -L"$work/renamed" -lengine "-Wl,-rpath,$work/renamed" &&
        HOST_PLUGIN=$work/renamed/plugin.so folder=1.1-abi1 retried delivered 800 "$work/plain/loader"
}

static_plugin() { HOST_PLUGIN=$work/1.1-abi1/static-plugin.so folder=1.1-abi1 retried delivered 800 "$work/plain/loader"; }

two_copies() { # two plugins contain different releases; the preload fits the first one
    HOST_PLUGIN=$work/1.1-abi1/static-plugin.so:$work/0.9-abi1/static-plugin.so folder=1.1-abi1 \
        retried delivered 800 "$work/plain/loader" && [ "$(grep -c '^seen=' "$work/host")" = 2 ] &&
        [ "$(lines "does not fit")" = 1 ] && logged "does not fit $work/0.9-abi1/static-plugin.so: "
}

no_executor() { # a server that links TensorRT-LLM but creates no Executor
    preloaded plain "$work/plain/host" idle 2>"$work/log" && [ ! -s "$work/log" ]
}

deep_binding() { # the plugin finds TensorRT-LLM before the preload's hooks, so it runs without them
    HOST_DEEPBIND=1 HOST_PLUGIN=$work/plain/plugin.so preloaded plain "$work/plain/loader" silent 300 >"$work/host" 2>"$work/log" &&
        grep -q '^seen=' "$work/host" && [ ! -s "$work/log" ]
}

variables_are_described() { # the page must have a row for every environment variable that the sources read
    local name
    for name in $(grep -ohP '"\KTRTLLM_EXPORTER_\w+(?=")' "$bridge"/preload/*.cc | sort -u); do
        grep -q "^|.*\`$name\`" "$root/docs/embedding.md" || { echo "$name is missing"; return 1; }
    done
}
