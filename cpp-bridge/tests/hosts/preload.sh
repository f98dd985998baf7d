# Tests servers that run with the preload. Sourced by run.sh.

# preloaded FOLDER COMMAND…: runs the command with the preload library of that folder, which publishes to $socket.
preloaded() {
    local folder=$1
    shift
    ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 TSAN_OPTIONS=die_after_fork=0:exitcode=66 \
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
    for _ in $(seq 20); do
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

# exactly_once ITERATIONS RATE MODE COMMAND…: checks that the exporter counts every iteration once. Returns 2 if records
# were dropped, but the exporter counted all of them as lost.
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

iterations_only() { # the preload reads the request statistics that the host leaves; returns 2 if some were lost
    local result=1
    start_sidecar "$socket" || return 1
    if preloaded plain "$work/plain/host" iterations; then
        result=2
        ! patience=30 until_metric nv_llm_output_token_len_count 5 || result=0
    fi
    stop_sidecar
    return $result
}

plugin() { HOST_PLUGIN=$work/plain/plugin.so exactly_once 5000 0 silent "$work/plain/loader"; }

flushed_at_exit() { # the preload flushes for at most a quarter of a second, so a stall of this machine may lose records
    start_sidecar "$socket" || return 1
    preloaded plain "$work/plain/host" silent 1000 >"$work/host"
    local result=$?
    [ $result != 0 ] || patience=5 until_metric nv_trt_llm_iterations_total 1000 || result=2
    stop_sidecar
    return $result
}

# names EXPECTED…: checks the hello lines of three Executors in one process. The host loads the first one twice.
names() {
    local folder listener result=1
    for folder in llama/1 gpt2/fp8/2-gpu other/llama/1; do
        mkdir -p "$work/engines/$folder"
        echo 'sim:?rate=0&speed=max' >"$work/engines/$folder/simulated.engine"
    done
    rm -f "$socket" "$work/hellos"
    python3 "$here/listen.py" "$socket" "$work/hellos" &
    listener=$!
    eventually [ -S "$socket" ] &&
        (cd "$work/engines" && preloaded plain "$work/plain/host" folders "$work/engines/llama/1" gpt2/fp8/2-gpu other/llama/1/) &&
        eventually hellos 3 && result=0
    kill $listener
    wait $listener
    rm -f "$socket"
    sed 's/"pid":[0-9]*/"pid":P/; s/^{"hello":{\(.*\)}}$/\1/' "$work/hellos" | sort >"$work/named"
    printf '%s\n' "$@" | sort | diff "$work/named" - && return $result
}

hellos() { [ "$(wc -l <"$work/hellos")" = "$1" ]; }

derived_names() {
    names '"model":"llama","version":"1","pid":P,"derived":true' '"model":"gpt2","version":"1","pid":P,"derived":true' \
        '"model":"llama","version":"1","pid":P,"derived":true'
}

chosen_names() { # the third Executor has no name of its own
    TRTLLM_EXPORTER_MODEL=a,b TRTLLM_EXPORTER_MODEL_VERSION=7 names '"model":"a","version":"7","pid":P' \
        '"model":"b","version":"7","pid":P' '"model":"b","version":"7","pid":P,"derived":true'
}

# Four engine processes with the same folder share one socket. They must appear as four engines without restarts. Returns 2
# if records were lost.
four_processes() {
    local host hosts=() result=1
    rm -f "$work/four.end"
    start_sidecar "$socket" || return 1
    for _ in 1 2 3 4; do
        HOST_CONTROL=$work/four preloaded plain "$work/plain/host" silent 500 >/dev/null &
        hosts+=($!)
    done
    if eventually four_engines; then
        result=0
        [ "$(sum_of nv_trt_llm_iterations_lost_total)" = 0 ] || result=2
    fi
    [ "$(sum_of nv_trt_llm_engine_restarts_total)" = 0 ] || result=1
    page | grep -E '^nv_trt_llm_(iterations|iterations_lost|engine_restarts)_total'
    : >"$work/four.end"
    for host in "${hosts[@]}"; do wait "$host" || result=1; done
    stop_sidecar
    return $result
}

sum_of() { page | awk -v name="$1{" 'index($1, name) == 1 { sum += $2 } END { print sum + 0 }'; }

four_engines() {
    [ "$(page | grep -cE '^nv_trt_llm_iterations_total\{.*version="[1-4]"\} [1-9]')" = 4 ] &&
        [ $(($(sum_of nv_trt_llm_iterations_total) + $(sum_of nv_trt_llm_iterations_lost_total))) = 2000 ]
}

not_a_host() { # programs that do not use TensorRT-LLM
    [ "$(preloaded plain bash -c 'echo "$(date +%Y)" | tr -d "\n" | wc -c')" = 4 ]
}

logs_once() { # logs_once TEXT FILE: the file must contain exactly one line from the exporter, with this text
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
        [ "$(lines "publishing to")" -le $((2 + $(lines "fast enough; dropping"))) ] # a stall may add a line of each kind
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

completed() { # completed REQUESTS: returns 2 if the last request has no record; the server may have ended before writing it
    patience=10 eventually over $(($1 - 1)) nv_trt_llm_requests_completed_total || return 2
}
