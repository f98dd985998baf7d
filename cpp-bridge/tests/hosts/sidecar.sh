# Starts and reads the real exporter as a sidecar. run.sh and benches/hosts.sh source it and set $work and $exporter.

# eventually COMMAND…: repeats the command until it succeeds. The timeout is $patience seconds (60), because a shared
# machine may stall a process for seconds.
eventually() {
    local end=$((SECONDS + ${patience:-60}))
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.05
    done
}

sidecar=
# start_sidecar SOCKET: starts the exporter with this ingest socket and a free port for its page.
start_sidecar() {
    rm -f "$work/port"
    "$exporter" --source "socket:$1" --poll.interval 10ms --gpu off --web.listen-address 127.0.0.1:0 \
        --web.port-file "$work/port" 2>>"$work/sidecar.log" &
    sidecar=$!
    eventually started_or_ended && [ -s "$work/port" ]
}

started_or_ended() { [ -s "$work/port" ] || ! kill -0 "$sidecar" 2>/dev/null; }

stop_sidecar() {
    [ -z "$sidecar" ] || kill "$@" "$sidecar" 2>/dev/null || true
    [ -z "$sidecar" ] || wait "$sidecar" 2>/dev/null || true
    sidecar=
}

page() { curl -sf --max-time 5 "http://$(cat "$work/port")/metrics"; }

# metric NAME: prints the value of the first series with this name.
metric() { page | awk -v name="$1" 'index($1, name "{") == 1 { print $2; exit }'; }

metric_is() { [ "$(metric "$1")" = "$2" ]; }

# until_metric NAME VALUE: waits until the metric has this value.
until_metric() {
    eventually metric_is "$@" && return 0
    echo "$1 is $(metric "$1"), not $2" >&2
    return 1
}
