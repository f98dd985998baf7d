#!/usr/bin/env bash
# test.sh [fit]: tests the publisher, the preload and the embedded exporter with the simulated SDK and the real exporter
# binary. With "fit", only tries the preload of every release and C++ ABI with the SDK of every other one.
# Prints "N passed, N failed". Variables, with their defaults:
#   TRTLLM_EMBED_ITERATIONS (1000000)  iterations of the exactly-once test
#   TRTLLM_EMBED_RATE (30000)          their rate per second; a sidecar that shares a core cannot read many more
#   TRTLLM_EMBED_PROFILE (release)     cargo profile of the library and the exporter
#   TRTLLM_EMBED_SANITIZE (1)          0 skips the sanitizers
#   TRTLLM_EMBED_WORK                  folder for the build, which is kept (default: a temporary folder)
set -uo pipefail
embed=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$embed/../.." && pwd)
work=${TRTLLM_EMBED_WORK:-$(mktemp -d)}
mkdir -p "$work"
work=$(cd "$work" && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
profile=${TRTLLM_EMBED_PROFILE:-release}
exporter=$target/$profile/trtllm-exporter
iterations=${TRTLLM_EMBED_ITERATIONS:-1000000}
rate=${TRTLLM_EMBED_RATE:-30000}
passed=0
failed=0
. "$embed/tests/sidecar.sh"
. "$embed/tests/fit.sh"
exec 3>&1
trap 'stop_sidecar -KILL; end_host; [ -n "${TRTLLM_EMBED_WORK:-}" ] || rm -rf "$work"' EXIT

check() { # check NAME FUNCTION…: runs the function in this shell, and prints its output only if it fails
    local name=$1
    shift
    if "$@" >"$work/output" 2>&1; then
        passed=$((passed + 1))
        echo "ok      $name"
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
sim=(-isystem "$embed/../sim/include")

# build FOLDER FLAG…: builds the SDK, the tests and the preload with these flags.
build() {
    local out=$work/$1
    shift
    mkdir -p "$out"
    local link=(-L"$out" -ltensorrt_llm -Wl,-rpath,"$out" -ldl)
    ${CXX:-g++} "${flags[@]}" "$@" -fPIC -shared "${sim[@]}" "$embed"/../sim/src/*.cc -o "$out/libtensorrt_llm.so" &&
        ${CXX:-g++} "${flags[@]}" "$@" -I"$embed/include" "${sim[@]}" "$embed/tests/publisher.cc" -o "$out/publisher" "${link[@]}" &&
        ${CXX:-g++} "${flags[@]}" "$@" "${sim[@]}" "$embed/tests/host.cc" -o "$out/host" "${link[@]}" &&
        ${CXX:-g++} "${flags[@]}" "$@" -DHOST_IS_A_PLUGIN -fPIC -shared "${sim[@]}" "$embed/tests/host.cc" -o "$out/plugin.so" "${link[@]}" &&
        ${CXX:-g++} "${flags[@]}" "$@" "$embed/tests/loader.cc" -o "$out/loader" -ldl &&
        "$embed/preload/build.sh" "$embed/../sim/include" "$out/preload.so" "$out/libtensorrt_llm.so" -g "$@"
}

library() {
    (cd "$root" && cargo build --profile "$profile" --quiet -p trtllm-embed && cargo build --profile "$profile" --quiet -p trtllm-exporter) &&
        PROFILE=$profile "$embed/packaging/install.sh" "$work/prefix" "$target"
}

examples() {
    cmake -S "$root/examples/cpp-server" -B "$work/examples" -DCMAKE_PREFIX_PATH="$work/prefix" &&
        cmake --build "$work/examples" -j2
}

by_pkg_config() { # builds and runs the tests of exporter.h, with the flags of pkg-config
    local folder=$work/$1
    shift
    export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
    # shellcheck disable=SC2046
    ${CXX:-g++} "${flags[@]}" "$@" $(pkg-config --cflags trtllm_exporter) "${sim[@]}" "$embed/tests/exporter.cc" \
        -o "$folder/exporter" -L"$folder" -ltensorrt_llm $(pkg-config --libs trtllm_exporter) \
        -Wl,-rpath,"$folder:$work/prefix/lib" && timeout 300 "$folder/exporter"
}

no_foreign_symbols() { # a host may have its own Rust and its own libstdc++, so the library must not export theirs
    ! nm -D --defined-only "$work/prefix/lib/libtrtllm_exporter.so" | awk '{ print $3 }' | grep -v '^trtllm_exporter_' &&
        ! nm -D --defined-only "$work/plain/preload.so" | awk '{ print $3 }' | grep -v -e '^_ZN12tensorrt_llm8executor8Executor' -e '^pthread_create$'
}

# preloaded FOLDER COMMAND…: runs the command with the preload library of that folder, which publishes to $socket.
preloaded() {
    local folder=$1
    shift
    # A short wait, so that each test also checks that the preload does not miss its Executor.
    TRTLLM_EXPORTER_EXECUTOR_WAIT=1 ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 TSAN_OPTIONS=die_after_fork=0:exitcode=66 \
        TRTLLM_EXPORTER_SOCKET=$socket LD_PRELOAD=$work/$folder/preload.so timeout "${patience:-300}" "$@"
}

host=
# start_host FOLDER COMMAND…: runs a host with the preload in the background until end_host. Writes its standard output
# to $work/host and its log to $work/log.
start_host() {
    rm -f "$work/host.rest" "$work/host.end"
    : >"$work/host"
    : >"$work/log" # clears the log of the previous host
    HOST_CONTROL=$work/host preloaded "$@" >"$work/host" 2>"$work/log" &
    host=$!
}

rest_host() { : >"$work/host.rest"; } # stops the host's requests; buffered records are still sent

end_host() { # ends the host and returns its exit status
    [ -n "$host" ] || return 0
    rest_host
    : >"$work/host.end"
    wait "$host"
    local result=$?
    host=
    return $result
}

host_runs() { kill -0 "$host" 2>/dev/null; }

at() { grep -oP '^at=\K\d+' "$work/host" | tail -n 1; } # prints the current iteration of the host

reached() { # reached ITERATION
    local at
    at=$(at)
    [ "${at:-0}" -ge "$1" ]
}

logged() { grep -q "$1" "$work/log"; } # logged TEXT

same() { # same MODE…: the host must print the same with and without the preload
    "$work/plain/host" "$@" >"$work/without" && preloaded plain "$work/plain/host" "$@" >"$work/with" 2>"$work/log" &&
        cmp "$work/without" "$work/with"
}

forked_early() { # forks while the host constructs its first Executors, because a child inherits locks in their current state
    for _ in $(seq 40); do
        preloaded plain "$work/plain/host" forks || return 1
    done
}

accounted() { # prints how many iterations the exporter counted as received or as lost
    local total lost
    total=$(metric nv_trt_llm_iterations_total) lost=$(metric nv_trt_llm_iterations_lost_total)
    echo $((total + lost))
}

accounted_is() { [ "$(accounted)" = "$1" ]; }

accounted_over() { [ "$(accounted)" -gt "$1" ]; }

host_finished() { grep -q '^seen=' "$work/host" || ! host_runs; }

# exactly_once ITERATIONS RATE MODE COMMAND…: returns 2 if records were dropped, but the exporter counted all of them as
# lost.
exactly_once() {
    local count=$1 rate=$2 mode=$3 result=1
    shift 3
    start_sidecar "$socket" || return 1
    start_host plain "$@" "$mode" "$count" "$rate"
    if eventually host_finished && eventually accounted_is "$count"; then
        if ! metric_is nv_trt_llm_iterations_lost_total 0; then
            result=2
        elif until_metric nv_trt_llm_engine_restarts_total 0 &&
            until_metric nv_trt_llm_requests_completed_total "$(grep -oP 'completed=\K\d+' "$work/host")" &&
            until_metric nv_trt_llm_generation_tokens_total "$(grep -oP 'tokens=\K\d+' "$work/host")"; then
            result=0
        fi
    fi
    end_host || result=1
    # The end of the host must not count anything twice.
    [ $result != 0 ] || until_metric nv_trt_llm_iterations_total "$count" || result=1
    echo "$(accounted) of $count accounted for, $(metric nv_trt_llm_iterations_lost_total) lost"
    stop_sidecar
    tail -n 1 "$work/host"
    cat "$work/log"
    return $result
}

plugin() { HOST_PLUGIN=$work/plain/plugin.so exactly_once 5000 0 silent "$work/plain/loader"; }

flushed_at_exit() { # the preload flushes for a quarter of a second, so a stall of this machine may cost records
    start_sidecar "$socket" || return 1
    preloaded plain "$work/plain/host" silent 1000 >"$work/host"
    local result=$?
    [ $result != 0 ] || patience=5 until_metric nv_trt_llm_iterations_total 1000 || result=2
    stop_sidecar
    return $result
}

not_a_host() { # programs that do not use TensorRT-LLM
    [ "$(preloaded plain bash -c 'echo "$(date +%Y)" | tr -d "\n" | wc -c')" = 4 ]
}

logs_once() { # logs_once TEXT FILE: the file must have one line of the exporter, with this text
    [ "$(grep -c trtllm_exporter: "$2")" = 1 ] && grep -q "$1" "$2" || { cat "$2"; return 1; }
}

fails_once() { # fails_once TEXT COMMAND…: the host cannot publish, and must log the error once, not at every retry
    local text=$1
    shift
    start_host plain "$@" silent 1000
    eventually logged trtllm_exporter:
    sleep 0.5
    end_host && logs_once "$text" "$work/log"
}

wrong_path() { socket=/nonexistent/folder/x.sock fails_once "No such file or directory" "$work/plain/host"; }

read_only_directory() { # not even root can create a socket there
    local socket=/sys/kernel/trtllm.sock
    ! start_sidecar "$socket" && fails_once "No such file or directory" "$work/plain/host"
}

no_permission() { # runs the host as another user; skipped if this user cannot switch users
    [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null || return 0
    start_sidecar "$socket" || return 1
    chmod 600 "$socket"
    chmod o+x "$work"
    fails_once "Permission denied" setpriv --reuid=65534 --regid=65534 --clear-groups "$work/plain/host"
    local result=$?
    stop_sidecar
    return $result
}

killed() { # kill -9 of the sidecar under load, then a new one: the host continues, logs each change once, and reconnects
    local result=1
    start_sidecar "$socket" || return 1
    start_host plain "$work/plain/host" polling 1000000000 12500
    eventually logged "publishing to" && eventually reached 20000 && stop_sidecar -KILL &&
        eventually logged "Connection refused" && eventually reached $(($(at) + 20000)) && start_sidecar "$socket" &&
        eventually accounted_over 30000 && # the new sidecar counts dropped records as lost from its first record on
        eventually over 10000 nv_trt_llm_iterations_total && until_metric nv_trt_llm_engine_restarts_total 0 && rest_host &&
        eventually logged_since "Connection refused" "records were dropped before" && result=0
    end_host || result=1
    stop_sidecar
    tail -n 1 "$work/host"
    cat "$work/log"
    [ $result = 0 ] && nothing_missed && [ "$(lines "Connection refused")" = 1 ] && [ "$(wc -l <"$work/log")" = \
        $(($(lines "Connection refused") + $(lines "publishing to") + $(lines "fast enough; dropping"))) ] &&
        [ "$(lines "publishing to")" -le $((2 + $(lines "fast enough; dropping"))) ] # a stall may add one of each
}

lines() { grep -c "$1" "$work/log"; } # lines TEXT: prints how many log lines have this text

logged_since() { sed -n "/$1/,\$p" "$work/log" | grep -q "$2"; } # logged_since BEFORE TEXT

nothing_missed() { grep -qP '^seen=(\d+) pushed=\1 ' "$work/host"; } # the host got all its records

full_socket() { # a stopped process does not read its socket
    local result=1
    start_sidecar "$socket" || return 1
    kill -STOP "$sidecar"
    start_host plain "$work/plain/host" polling 1000000000 50000
    eventually logged "fast enough; dropping" && eventually reached $(($(at) + 50000)) && result=0
    end_host || result=1
    kill -CONT "$sidecar"
    stop_sidecar
    tail -n 1 "$work/host"
    cat "$work/log"
    [ $result = 0 ] && nothing_missed && [ "$(lines "fast enough; dropping")" = 1 ]
}

completed() { # completed REQUESTS: returns 2 if the record of the last request is missing; the server may have ended before it
    patience=10 eventually over $(($1 - 1)) nv_trt_llm_requests_completed_total || return 2
}

published() {
    local finished
    start_sidecar "$socket" || return 1
    SOCKET=$socket "$work/examples/published" "sim:?rate=0&iter_base_ms=5" 3 20 10 | tee "$work/host" &&
        finished=$(grep -oP 'finished=\K\d+' "$work/host") &&
        until_metric nv_trt_llm_time_to_first_token_seconds_count "$finished" &&
        until_metric nv_trt_llm_iterations_lost_total 0 && completed "$finished"
    local result=$?
    stop_sidecar
    return $result
}

untouched() {
    local finished
    start_sidecar "$socket" || return 1
    TRTLLM_EXPORTER_SOCKET=$socket LD_PRELOAD=$work/examples/libtrtllm_exporter_preload.so \
        "$work/examples/untouched" "sim:?rate=0&iter_base_ms=5" 3 20 10 | tee "$work/host" &&
        finished=$(grep -oP 'finished=\K\d+' "$work/host") && completed "$finished" &&
        until_metric nv_trt_llm_iterations_lost_total 0
    local result=$?
    stop_sidecar
    return $result
}

# Excludes the sum of single-precision numbers, because JSON rounds them and the embedded exporter does not.
engine_lines() {
    page "$1" | grep -E '^nv_(trt_)?llm_' | grep -v -e nv_trt_llm_engine_info -e request_decoded_tokens_per_iteration_sum | sort
}

idle() { page "$1" | grep -q '^nv_trt_llm_engine_state{.*state="idle".*} 1'; }

same_page() { # the embedded exporter's page, made of rows of numbers, must equal the sidecar's page, made of JSON
    start_sidecar "$socket" || return 1
    : >"$work/host"
    "$work/plain/exporter" "$socket" >>"$work/host" 2>"$work/log" &
    local host=$! address iterations result
    eventually address_printed
    until_metric nv_trt_llm_iterations_total "$iterations" && until_metric nv_trt_llm_e2e_request_latency_seconds_count 5 &&
        eventually idle "$address" && eventually idle "" && engine_lines "$address" >"$work/inside" && engine_lines "" >"$work/beside" &&
        [ "$(wc -l <"$work/inside")" -gt 300 ] && diff "$work/inside" "$work/beside"
    result=$?
    kill "$host"
    wait "$host" 2>/dev/null
    stop_sidecar
    return $result
}

address_printed() { read -r address iterations <"$work/host"; }

over() { # over NUMBER METRIC [ADDRESS]: the metric must be larger than the number
    local value
    value=$(metric "$2" "${3:-}")
    [ "${value:-0}" -gt "$1" ]
}

attached() { # attached PROGRAM: serves its own page and publishes to the sidecar at the same time
    start_sidecar "$socket" || return 1
    : >"$work/log"
    LISTEN=127.0.0.1:0 SOCKET=$socket MODEL=llama "$work/examples/$1" "sim:?rate=0&iter_base_ms=5" 600 20 10 >"$work/host" 2>"$work/log" &
    local host=$! result=1
    eventually on_both_pages && kill -0 $host && result=0
    kill $host
    wait $host || result=1
    stop_sidecar
    cat "$work/log"
    return $result
}

on_both_pages() {
    local address
    address=$(grep -oP 'serving http://\K[^/]+' "$work/log") &&
        page "$address" | grep -q '^nv_trt_llm_iterations_total{model="llama",version="1"} [1-9]' &&
        over 10 nv_trt_llm_time_to_first_token_seconds_count "$address" && over 100 nv_trt_llm_iterations_total
}

socket=$work/i.sock
if [ "${1:-}" = fit ]; then
    check "library: cargo builds it and install.sh installs it" library
    check "fit: SDKs and preloads of all releases and both C++ ABIs" sdks {0.9,0.11,0.13,0.15,1.0,1.1}-abi{0,1}
    for built in "${built_sdks[@]}"; do
        for loaded in "${built_sdks[@]}"; do
            check "fit: built for $built, loaded $loaded" fits "$built" "$loaded"
        done
    done
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
    exit
fi
check "library: cargo builds it and install.sh installs it" library
check "programs: the tests and the preload compile without warnings" build plain
check "examples: CMake finds the package" examples
check "symbols: the libraries export only their own symbols" no_foreign_symbols
check "publisher: tests of publisher.h" timeout 300 "$work/plain/publisher"
check "exporter: tests of exporter.h, built with pkg-config" by_pkg_config plain
check "exporter: the embedded page equals the sidecar's page" same_page
for mode in late errors moved churn leaking "polling 100000"; do
    # shellcheck disable=SC2086
    check "preload: a host gets the same results with the preload ($mode)" same $mode
done
check "preload: a fork during the construction of the first Executors does not deadlock, 40 times" forked_early
patience=$((iterations / rate * 2 + 120)) check "preload: $iterations iterations of a polling host are each counted once" retried exactly_once "$iterations" "$rate" polling "$work/plain/host"
check "preload: a host that never polls is polled" retried exactly_once 20000 0 silent "$work/plain/host"
check "preload: TensorRT-LLM loaded with dlopen(RTLD_LOCAL), as in Triton" retried plugin
check "fit: SDKs and preloads of some releases and both C++ ABIs" sdks 1.1-abi1 1.1-abi0 0.9-abi1 0.11-abi1
check "fit: every preload with every SDK delivers exactly, or changes nothing and logs one line" matrix
check "fit: build.sh rejects headers and flags that do not belong to the library" build_rejects
check "fit: an Executor in a library with another name, opened with RTLD_LOCAL" foreign_name
check "fit: an Executor linked statically into a plugin" static_plugin
check "fit: two releases in one process keep their own functions" two_copies
check "fit: a server without an Executor gets one line" no_executor
check "fit: a plugin opened with RTLD_DEEPBIND gets one line" deep_binding
check "preload: TRTLLM_EXPORTER_HELP=1 prints the environment variables" help_is_printed
check "fit: a shell stays silent and gets no thread" shell_is_silent
check "preload: buffered records are sent when the host ends" retried flushed_at_exit
check "preload: other programs work as before" not_a_host
check "preload: a wrong socket path is logged once" wrong_path
check "preload: a read-only directory is logged once" read_only_directory
check "preload: a missing permission is logged once" no_permission
check "preload: the host survives kill -9 of the sidecar and reconnects" killed
check "preload: a full socket does not block the host" full_socket
check "examples: published" retried published
check "examples: untouched, with the preload" retried untouched
check "examples: attached" attached attached
check "examples: attached, static library" attached attached_static
if [ "${TRTLLM_EMBED_SANITIZE:-1}" != 0 ]; then
    export ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=die_after_fork=0:exitcode=66:suppressions=$embed/tests/tsan.supp
    for sanitizer in address,undefined thread; do
        folder=${sanitizer%,*}
        check "$sanitizer: build" build "$folder" -fsanitize=$sanitizer -fno-sanitize-recover=all -Wno-tsan
        check "$sanitizer: publisher" timeout 300 "$work/$folder/publisher"
        for mode in churn late moved errors "polling 20000"; do
            # shellcheck disable=SC2086
            check "$sanitizer: preload ($mode)" preloaded "$folder" "$work/$folder/host" $mode
        done
        check "$sanitizer: exporter" by_pkg_config "$folder" -fsanitize=$sanitizer -fno-sanitize-recover=all -Wno-tsan
    done
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
