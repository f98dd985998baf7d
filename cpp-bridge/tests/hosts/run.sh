#!/usr/bin/env bash
# run.sh [fit]: tests publisher.h and the preload with the simulated SDK and the real exporter
# binary. With "fit", only tests the preload of every release and C++ ABI with the SDK of every release and C++ ABI.
# Prints a line per check with the seconds since the start, then "N passed, N failed". Variables, with their defaults:
#   HOSTS_ITERATIONS (1000000)    iterations of the exactly-once test
#   HOSTS_RATE (30000)            their rate per second; a sidecar that shares a core cannot read many more
#   HOSTS_PROFILE (release)       cargo profile of the simulated engine and the exporter; with dev, use a rate of 5000
#   HOSTS_EXPORTER                an exporter that was built before (default: built here)
#   HOSTS_SANITIZE (address,undefined thread)    the sanitizers, one after the other; none if empty
#   HOSTS_WORK                    folder for the build, which is kept (default: a temporary folder)
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bridge=$(cd "$here/../.." && pwd)
root=$(dirname "$bridge")
work=${HOSTS_WORK:-$(mktemp -d)}
mkdir -p "$work"
work=$(cd "$work" && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
profile=${HOSTS_PROFILE:-release}
artifacts=$target/${profile/#dev/debug}
export PKG_CONFIG_PATH=$work/prefix/share/pkgconfig
exporter=${HOSTS_EXPORTER:-$artifacts/trtllm-exporter}
iterations=${HOSTS_ITERATIONS:-1000000}
rate=${HOSTS_RATE:-30000}
passed=0
failed=0
. "$here/sidecar.sh"
. "$here/fit.sh"
. "$here/installed.sh"
. "$here/preload.sh"
. "$here/examples.sh"
. "$here/pages.sh"
exec 3>&1
trap 'stop_sidecar -KILL; end_host; [ -n "${HOSTS_WORK:-}" ] || rm -rf "$work"' EXIT

check() { # check NAME FUNCTION…: runs the function in this shell, and prints its output only if it fails
    local name=$1
    shift
    if "$@" >"$work/output" 2>&1; then
        passed=$((passed + 1))
        echo "ok      $name ($SECONDS s)"
    else
        failed=$((failed + 1))
        echo "FAILED  $name"
        tail -n 20 "$work/output" | sed 's/^/        /'
    fi
}

# retried COMMAND…: runs the command up to four times while it returns 2. Exit status 2 means that records were dropped
# and correctly counted, because this machine stalled.
retried() {
    local result
    for _ in 1 2 3 4; do
        "$@"
        result=$?
        [ $result = 2 ] || return $result
        echo "stalled $*" >&3
    done
    return 1
}

flags=(-std=c++17 -O2 -g -Wall -Wextra -Wpedantic -Werror -pthread)
sim=(-isystem "$bridge/sim/include")
# The simulated engine's step function, and the linker option that hides its symbols inside a library.
step=("$artifacts/libtrtllm_sim_c.a" "-Wl,--exclude-libs,ALL")

# build FOLDER FLAG…: builds the SDK, the tests and the preload with these flags, on all cores.
build() {
    local out=$work/$1 publisher
    shift
    mkdir -p "$out"
    read -ra publisher <<<"$(pkg-config --cflags trtllm_exporter)" # the installed header
    # Compiling everything as one translation unit takes half the time of compiling its files.
    cat "$bridge"/sim/src/*.cc >"$out/sdk.cc"
    local compile=("${CXX:-g++}" "${flags[@]}" "$@" -fPIC "${sim[@]}" -I"$bridge/sim/src" "${publisher[@]}")
    printf '%s\n' "-c $out/sdk.cc -o $out/sdk.o" "-c $here/publisher.cc -o $out/publisher.o" "-c $here/lines.cc -o $out/lines.o" \
        "-c $here/poller.cc -o $out/poller.o" \
        "-c $here/host.cc -o $out/host.o" \
        "-DHOST_IS_A_PLUGIN -c $here/host.cc -o $out/plugin.o" "$here/loader.cc -o $out/loader -ldl" |
        xargs -P "$(nproc)" -L 1 "${compile[@]}" || return 1
    compile+=(-L"$out" "-Wl,-rpath,$out")
    "${compile[@]}" -shared "$out/sdk.o" "${step[@]}" -o "$out/libtensorrt_llm.so" &&
        "${compile[@]}" -shared "$out/plugin.o" -o "$out/plugin.so" -ltensorrt_llm || return 1
    "${compile[@]}" "$out"/{publisher,lines,poller}.o -o "$out/publisher" -ltensorrt_llm -ldl &&
        "${compile[@]}" "$out/host.o" -o "$out/host" -ltensorrt_llm -ldl || return 1
    "$work/prefix/share/trtllm_exporter/preload/build.sh" "$bridge/sim/include" "$out/preload.so" "$out/libtensorrt_llm.so" -g "$@"
}

socket=$work/i.sock
if [ "${1:-}" = fit ]; then
    check "install: the header and the sources of the preload" installed
    check "fit: SDKs and preloads of all releases and both C++ ABIs" sdks {0.9,0.11,0.13,0.15,1.0,1.1,1.2}-abi{0,1}
    for built in "${built_sdks[@]}"; do
        for loaded in "${built_sdks[@]}"; do
            check "fit: built for $built, loaded $loaded" fits "$built" "$loaded"
        done
    done
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
    exit
fi
check "install: the header and the sources of the preload" installed
check "programs: the tests and the preload compile without warnings" build plain
check "examples: CMake finds the package" examples
check "symbols: the preload exports only its own symbols" no_foreign_symbols
check "publisher: tests of publisher.h" timeout 300 "$work/plain/publisher"
check "install: one version in all packages and names" one_version
for mode in late errors moved churn leaking "polling 100000"; do
    # shellcheck disable=SC2086
    check "preload: a host gets the same results with the preload ($mode)" same $mode
done
check "preload: a fork during the construction of the first Executors does not deadlock, 20 times" forked_early
check "preload: a fork while threads search the loaded libraries does not deadlock" preloaded plain "$work/plain/host" constructors
patience=$((iterations * 2 / rate + 120)) check "preload: $iterations iterations of a polling host are each counted once" retried exactly_once "$iterations" "$rate" polling "$work/plain/host"
check "preload: a host that never polls is polled" retried exactly_once 20000 0 silent "$work/plain/host"
check "preload: a host that reads only iterations leaves its request statistics to the preload" retried iterations_only
check "preload: children that exit, _exit or exec neither lose nor repeat records" retried exactly_once 6000 0 children "$work/plain/host"
check "preload: TensorRT-LLM loaded with dlopen(RTLD_LOCAL), as in Triton" retried plugin
check "fit: SDKs and preloads of some releases and both C++ ABIs" sdks 1.1-abi1 1.1-abi0 0.9-abi1 0.11-abi1
check "fit: every preload with every SDK delivers exactly, or changes nothing and logs one line" matrix
check "examples: an installed TensorRT-LLM 0.9" installed_sdk 0.9-abi1
check "fit: build.sh rejects headers and flags that do not belong to the library" build_rejects
check "fit: an Executor in a library with another name, opened with RTLD_LOCAL" foreign_name
check "fit: an Executor linked statically into a plugin" static_plugin
check "fit: two releases in one process keep their own functions" two_copies
check "fit: a server without an Executor gets no message" no_executor
check "fit: a plugin opened with RTLD_DEEPBIND runs without the preload" deep_binding
check "preload: the page describes each of its environment variables" variables_are_described
check "preload: Executors are named after their engines' folders" derived_names
check "preload: TRTLLM_EXPORTER_MODEL chooses names" chosen_names
check "preload: four processes share one socket" retried four_processes
check "preload: buffered records are sent when the host ends" retried flushed_at_exit
check "preload: other programs work as before" not_a_host
check "preload: a wrong socket path is logged once" wrong_path
check "preload: a read-only directory is logged once" read_only_directory
check "preload: a missing permission is logged once" no_permission
check "preload: the host survives kill -9 of the sidecar and reconnects" killed
check "preload: a full socket does not block the host" full_socket
check "examples: published" retried published
check "examples: untouched, with the preload" retried untouched
check "examples: the Python package" python_package
check "docs: the publisher's page, in a fresh prefix" publisher_page
export ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=die_after_fork=0:exitcode=66
for sanitizer in ${HOSTS_SANITIZE-address,undefined thread}; do
    folder=${sanitizer%,*}
    options=(-O1 -fsanitize="$sanitizer" -fno-sanitize-recover=all -Wno-tsan)
    check "$sanitizer: build" build "$folder" "${options[@]}"
    check "$sanitizer: publisher" timeout 300 "$work/$folder/publisher"
    for mode in churn late moved errors "polling 20000"; do
        # shellcheck disable=SC2086
        check "$sanitizer: preload ($mode)" preloaded "$folder" "$work/$folder/host" $mode
    done
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
