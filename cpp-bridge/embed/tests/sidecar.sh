# Sourced by test.sh and bench.sh: the real exporter beside the programs under test. Needs $work and $exporter.

sidecar=
# start_sidecar SOCKET: listens there, serves on a free port.
start_sidecar() {
    rm -f "$work/port"
    "$exporter" --source "socket:$1" --poll.interval 10ms --gpu off --web.listen-address 127.0.0.1:0 \
        --web.port-file "$work/port" 2>>"$work/sidecar.log" &
    sidecar=$!
    for _ in $(seq 200); do
        [ -s "$work/port" ] && return 0
        kill -0 "$sidecar" 2>/dev/null || return 1
        sleep 0.05
    done
    return 1
}

stop_sidecar() {
    [ -z "$sidecar" ] || kill "$@" "$sidecar" 2>/dev/null || true
    [ -z "$sidecar" ] || wait "$sidecar" 2>/dev/null || true
    sidecar=
}

page() { curl -sf --max-time 5 "http://${1:-$(cat "$work/port")}/metrics"; }

# metric NAME [ADDRESS]: the value of the engine's series of that name.
metric() { page "${2:-}" | awk -v name="$1" 'index($1, name "{") == 1 { print $2; exit }'; }

# until_metric NAME VALUE [ADDRESS]
until_metric() {
    for _ in $(seq 400); do
        [ "$(metric "$1" "${3:-}")" = "$2" ] && return 0
        sleep 0.05
    done
    echo "$1 is $(metric "$1" "${3:-}"), not $2" >&2
    return 1
}
