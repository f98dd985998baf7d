#!/usr/bin/env bash
# The publisher, the preload and the embedded exporter against the simulated SDK and the real exporter's binary.
# Prints "N passed, N failed". TRTLLM_EMBED_ITERATIONS (1000000): of the exactly-once test, at TRTLLM_EMBED_RATE
# (30000) a second; a sidecar that gets no core of its own cannot take many more.
# TRTLLM_EMBED_PROFILE (release): cargo's, of the library and the exporter. TRTLLM_EMBED_SANITIZE=0 leaves the
# sanitizers out. TRTLLM_EMBED_WORK: a folder to build in and keep.
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
exec 3>&1
trap 'stop_sidecar -KILL; end_host; [ -n "${TRTLLM_EMBED_WORK:-}" ] || rm -rf "$work"' EXIT

check() { # check NAME FUNCTION…: runs it in this shell; its output is shown only if it fails
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

# tried COMMAND…: at most four times while it returns 2: all is accounted for, but a stall of this machine has cost
# what nobody promised to save.
tried() {
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

# built FOLDER FLAG…: the SDK, the tests and the preload with these flags.
built() {
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

by_pkg_config() { # the embedded tests, linked as a host without CMake would
    local folder=$work/$1
    shift
    export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
    # shellcheck disable=SC2046
    ${CXX:-g++} "${flags[@]}" "$@" $(pkg-config --cflags trtllm_exporter) "${sim[@]}" "$embed/tests/exporter.cc" \
        -o "$folder/exporter" -L"$folder" -ltensorrt_llm $(pkg-config --libs trtllm_exporter) \
        -Wl,-rpath,"$folder:$work/prefix/lib" && timeout 300 "$folder/exporter"
}

only_its_own_names() { # a host has its own Rust, its own libstdc++, its own everything
    ! nm -D --defined-only "$work/prefix/lib/libtrtllm_exporter.so" | awk '{ print $3 }' | grep -v '^trtllm_exporter_' &&
        ! nm -D --defined-only "$work/plain/preload.so" | awk '{ print $3 }' | grep -v '^_ZN12tensorrt_llm8executor8Executor'
}

# preloaded FOLDER COMMAND…: with the preload of that folder, publishing to $socket.
preloaded() {
    local folder=$1
    shift
    ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 TSAN_OPTIONS=die_after_fork=0:exitcode=66 \
        TRTLLM_EXPORTER_SOCKET=$socket LD_PRELOAD=$work/$folder/preload.so timeout "${patience:-300}" "$@"
}

host=
# lasting FOLDER COMMAND…: preloaded, beside this shell, until end_host; its output is in $work/host and $work/told.
lasting() {
    rm -f "$work/host.rest" "$work/host.end"
    : >"$work/host"
    : >"$work/told" # not what the last one said
    HOST_TOLD=$work/host preloaded "$@" >"$work/host" 2>"$work/told" &
    host=$!
}

rest_host() { : >"$work/host.rest"; } # it does no more, but what waits is still sent

end_host() { # its exit status
    [ -n "$host" ] || return 0
    rest_host
    : >"$work/host.end"
    wait "$host"
    local result=$?
    host=
    return $result
}

lives() { kill -0 "$host" 2>/dev/null; }

at() { grep -oP '^at=\K\d+' "$work/host" | tail -n 1; } # the iteration that it reached

reached() { # reached ITERATION
    local at
    at=$(at)
    [ "${at:-0}" -ge "$1" ]
}

said() { grep -q "$1" "$work/told"; } # said TEXT

same() { # same MODE…: the host prints the same with the preload as without
    "$work/plain/host" "$@" >"$work/without" && preloaded plain "$work/plain/host" "$@" >"$work/with" 2>"$work/told" &&
        cmp "$work/without" "$work/with"
}

forked_early() { # children of a host whose first Executors are just being made: a lock that they inherit stays locked
    for _ in $(seq 40); do
        preloaded plain "$work/plain/host" forks || return 1
    done
}

known() { # iterations that were counted or are known to be lost
    local total lost
    total=$(metric nv_trt_llm_iterations_total) lost=$(metric nv_trt_llm_iterations_lost_total)
    echo $((total + lost))
}

known_are() { [ "$(known)" = "$1" ]; }

known_over() { [ "$(known)" -gt "$1" ]; }

summed_up() { grep -q '^seen=' "$work/host" || ! lives; }

# exactly_once ITERATIONS RATE MODE COMMAND…: 2 if the only fault is that a buffer overflowed and the exporter says so.
exactly_once() {
    local count=$1 rate=$2 mode=$3 result=1
    shift 3
    start_sidecar "$socket" || return 1
    lasting plain "$@" "$mode" "$count" "$rate"
    if eventually summed_up && eventually known_are "$count"; then
        if ! metric_is nv_trt_llm_iterations_lost_total 0; then
            result=2
        elif until_metric nv_trt_llm_engine_restarts_total 0 &&
            until_metric nv_trt_llm_requests_completed_total "$(grep -oP 'completed=\K\d+' "$work/host")" &&
            until_metric nv_trt_llm_generation_tokens_total "$(grep -oP 'tokens=\K\d+' "$work/host")"; then
            result=0
        fi
    fi
    end_host || result=1
    # Nor does its end count anything again.
    [ $result != 0 ] || until_metric nv_trt_llm_iterations_total "$count" || result=1
    echo "$(known) known of $count, $(metric nv_trt_llm_iterations_lost_total) lost"
    stop_sidecar
    tail -n 1 "$work/host"
    cat "$work/told"
    return $result
}

plugin() { HOST_PLUGIN=$work/plain/plugin.so exactly_once 5000 0 silent "$work/plain/loader"; }

farewell() { # a quarter of a second, which a stall may outlast
    start_sidecar "$socket" || return 1
    preloaded plain "$work/plain/host" silent 1000 >"$work/host"
    local result=$?
    [ $result != 0 ] || patience=5 until_metric nv_trt_llm_iterations_total 1000 || result=2
    stop_sidecar
    return $result
}

not_a_host() { # a child of the host that has nothing to do with TensorRT-LLM
    [ "$(preloaded plain bash -c 'echo "$(date +%Y)" | tr -d "\n" | wc -c')" = 4 ]
}

says_once() { # says_once TEXT FILE: one line, of this text
    [ "$(grep -c trtllm_exporter: "$2")" = 1 ] && grep -q "$1" "$2" || { cat "$2"; return 1; }
}

fails_once() { # fails_once TEXT COMMAND…: that cannot publish, and says so once, however often it tries
    local text=$1
    shift
    lasting plain "$@" silent 1000
    eventually said trtllm_exporter:
    sleep 0.5
    end_host && says_once "$text" "$work/told"
}

wrong_path() { socket=/nonexistent/folder/x.sock fails_once "No such file or directory" "$work/plain/host"; }

read_only_directory() { # no sidecar can make its socket there; neither can anybody, root included
    local socket=/sys/kernel/trtllm.sock
    ! start_sidecar "$socket" && fails_once "No such file or directory" "$work/plain/host"
}

no_permission() { # as another user, if we may become one
    [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null || return 0
    start_sidecar "$socket" || return 1
    chmod 600 "$socket"
    chmod o+x "$work"
    fails_once "Permission denied" setpriv --reuid=65534 --regid=65534 --clear-groups "$work/plain/host"
    local result=$?
    stop_sidecar
    return $result
}

killed() { # kill -9 under load, then another one comes: the host never stops, says it once each way, and is found again
    local result=1
    start_sidecar "$socket" || return 1
    lasting plain "$work/plain/host" polling 1000000000 12500
    eventually said "publishing to" && eventually reached 20000 && stop_sidecar -KILL &&
        eventually said "Connection refused" && eventually reached $(($(at) + 20000)) && start_sidecar "$socket" &&
        eventually known_over 30000 && # what it did not get it knows of, from the first record that it saw
        eventually over 10000 nv_trt_llm_iterations_total && until_metric nv_trt_llm_engine_restarts_total 0 && rest_host &&
        eventually said_since "Connection refused" "records were dropped before" && result=0
    end_host || result=1
    stop_sidecar
    tail -n 1 "$work/host"
    cat "$work/told"
    [ $result = 0 ] && nothing_missed && [ "$(told "Connection refused")" = 1 ] && [ "$(wc -l <"$work/told")" = \
        $(($(told "Connection refused") + $(told "publishing to") + $(told "fast enough; dropping"))) ] &&
        [ "$(told "publishing to")" -le $((2 + $(told "fast enough; dropping"))) ] # a stall may add a pair of these
}

told() { grep -c "$1" "$work/told"; } # told TEXT: how many lines

said_since() { sed -n "/$1/,\$p" "$work/told" | grep -q "$2"; } # said_since BEFORE TEXT

nothing_missed() { grep -qP '^seen=(\d+) pushed=\1 ' "$work/host"; } # by the host

full_socket() { # a sidecar that is stopped does not read
    local result=1
    start_sidecar "$socket" || return 1
    kill -STOP "$sidecar"
    lasting plain "$work/plain/host" polling 1000000000 50000
    eventually said "fast enough; dropping" && eventually reached $(($(at) + 50000)) && result=0
    end_host || result=1
    kill -CONT "$sidecar"
    stop_sidecar
    tail -n 1 "$work/host"
    cat "$work/told"
    [ $result = 0 ] && nothing_missed && [ "$(told "fast enough; dropping")" = 1 ]
}

completed() { # completed REQUESTS: the last is told by a record that an engine may write only after the server's end
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

# Not the sum of single-precision numbers: JSON has their shortest decimals, the page in process their exact values.
engine_lines() {
    page "$1" | grep -E '^nv_(trt_)?llm_' | grep -v -e nv_trt_llm_engine_info -e request_decoded_tokens_per_iteration_sum | sort
}

idle() { page "$1" | grep -q '^nv_trt_llm_engine_state{.*state="idle".*} 1'; }

same_page() { # what crosses as numbers in process says what crosses as JSON says: each field at its place
    start_sidecar "$socket" || return 1
    : >"$work/host"
    "$work/plain/exporter" "$socket" >>"$work/host" 2>"$work/told" &
    local host=$! address iterations result
    eventually introduced
    until_metric nv_trt_llm_iterations_total "$iterations" && until_metric nv_trt_llm_e2e_request_latency_seconds_count 5 &&
        eventually idle "$address" && eventually idle "" && engine_lines "$address" >"$work/inside" && engine_lines "" >"$work/beside" &&
        [ "$(wc -l <"$work/inside")" -gt 300 ] && diff "$work/inside" "$work/beside"
    result=$?
    kill "$host"
    wait "$host" 2>/dev/null
    stop_sidecar
    return $result
}

introduced() { read -r address iterations <"$work/host"; }

over() { # over NUMBER METRIC [ADDRESS]
    local value
    value=$(metric "$2" "${3:-}")
    [ "${value:-0}" -gt "$1" ]
}

attached() { # attached PROGRAM: both ways at once, read while it runs
    start_sidecar "$socket" || return 1
    : >"$work/told"
    LISTEN=127.0.0.1:0 SOCKET=$socket MODEL=llama "$work/examples/$1" "sim:?rate=0&iter_base_ms=5" 600 20 10 >"$work/host" 2>"$work/told" &
    local host=$! result=1
    eventually seen_both_ways && kill -0 $host && result=0
    kill $host
    wait $host || result=1
    stop_sidecar
    cat "$work/told"
    return $result
}

seen_both_ways() {
    local address
    address=$(grep -oP 'serving http://\K[^/]+' "$work/told") &&
        page "$address" | grep -q '^nv_trt_llm_iterations_total{model="llama",version="1"} [1-9]' &&
        over 10 nv_trt_llm_time_to_first_token_seconds_count "$address" && over 100 nv_trt_llm_iterations_total
}

socket=$work/i.sock
check "library: cargo builds it, install.sh installs it" library
check "programs: warnings are errors" built plain
check "examples: CMake finds the package" examples
check "names: nothing but our own is exported" only_its_own_names
check "publisher: its promises" timeout 300 "$work/plain/publisher"
check "exporter: its promises, found by pkg-config" by_pkg_config plain
check "exporter: the page in process is the sidecar's" same_page
for mode in late errors moved churn leaking "polling 100000"; do
    # shellcheck disable=SC2086
    check "preload: a host sees no difference ($mode)" same $mode
done
check "preload: forked while the first Executors are made, 40 times" forked_early
patience=$((iterations / rate * 2 + 120)) check "preload: $iterations iterations of a polling host are each counted once" tried exactly_once "$iterations" "$rate" polling "$work/plain/host"
check "preload: a host that never polls is polled" tried exactly_once 20000 0 silent "$work/plain/host"
check "preload: TensorRT-LLM behind dlopen(RTLD_LOCAL), as in Triton" tried plugin
check "preload: what waits when a host ends is sent" tried farewell
check "preload: other programs are left alone" not_a_host
check "a wrong path: said once" wrong_path
check "a read-only directory: said once" read_only_directory
check "no permission: said once" no_permission
check "kill -9 of the sidecar, and its return" killed
check "a full socket" full_socket
check "examples: published" tried published
check "examples: untouched, preloaded" tried untouched
check "examples: attached" attached attached
check "examples: attached, static library" attached attached_static
if [ "${TRTLLM_EMBED_SANITIZE:-1}" != 0 ]; then
    export ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=die_after_fork=0:exitcode=66:suppressions=$embed/tests/tsan.supp
    for sanitizer in address,undefined thread; do
        folder=${sanitizer%,*}
        check "$sanitizer: built" built "$folder" -fsanitize=$sanitizer -fno-sanitize-recover=all -Wno-tsan
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
