# Sourced by test.sh and bench.sh: the real exporter beside the programs under test. Needs $work and $exporter.

# eventually COMMAND…: waits until it succeeds. Patient: a shared machine may stall any process for seconds.
eventually() {
    local end=$((SECONDS + ${patience:-60}))
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.05
    done
}

sidecar=
# start_sidecar SOCKET: listens there, serves on a free port.
start_sidecar() {
    rm -f "$work/port"
    "$exporter" --source "socket:$1" --poll.interval 10ms --gpu off --web.listen-address 127.0.0.1:0 \
        --web.port-file "$work/port" 2>>"$work/sidecar.log" &
    sidecar=$!
    eventually started_or_gone && [ -s "$work/port" ]
}

started_or_gone() { [ -s "$work/port" ] || ! kill -0 "$sidecar" 2>/dev/null; }

stop_sidecar() {
    [ -z "$sidecar" ] || kill "$@" "$sidecar" 2>/dev/null || true
    [ -z "$sidecar" ] || wait "$sidecar" 2>/dev/null || true
    sidecar=
}

page() { curl -sf --max-time 5 "http://${1:-$(cat "$work/port")}/metrics"; }

# metric NAME [ADDRESS]: the value of the engine's series of that name.
metric() { page "${2:-}" | awk -v name="$1" 'index($1, name "{") == 1 { print $2; exit }'; }

metric_is() { [ "$(metric "$1" "${3:-}")" = "$2" ]; }

# until_metric NAME VALUE [ADDRESS]
until_metric() {
    eventually metric_is "$@" && return 0
    echo "$1 is $(metric "$1" "${3:-}"), not $2" >&2
    return 1
}
