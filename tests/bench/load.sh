#!/usr/bin/env bash
# Scrapes under load, beside a bare axum server with a constant body of the same bytes, in one run and in turns, while the
# exporter reads an engine of 1000 records a second and 8 GPUs.
#   [CONNECTIONS="1 16 64"] [ENCODINGS="identity gzip"] tests/bench/load.sh [ROUNDS] [SECONDS]
# 5 rounds of 2 s for each way; needs wrk, python3 and taskset.
# Prints the median over rounds of exporter ÷ constant: throughput (at least 0.9 is meant), p50 and p99 latency (at most 1.25)
# and CPU time a request, which on a busy machine says more than they do; the exporter's holds its polling and rendering.
# Ratios only: absolute figures do not carry from machine to machine. The servers have one core, everybody else another.
# The constant server is started anew for each round: ratios of whole runs against one start of it differed by a quarter.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-5} seconds=${2:-2}
servers=0 others=1
for program in wrk taskset python3; do
  command -v "$program" >/dev/null || { echo "load.sh: $program is missing: apt-get install wrk util-linux python3" >&2; exit 2; }
done
cargo build --release --quiet --bin trtllm-exporter --example constant
cargo build --release --quiet --package nvml-standin
target=${CARGO_TARGET_DIR:-target}/release

work=$(mktemp -d)
children=()
cleanup() { kill "${children[@]}" $constant 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"; }
trap cleanup EXIT

cp "$target/libnvml_standin.so" "$work/libnvidia-ml.so.1"
printf 'log=%s/log\ngpus=8\n' "$work" >"$work/libnvidia-ml.so.1.state"
touch "$work/engine"
taskset -c $others python3 examples/trtllm_serve_lookalike.py --port 0 --rate 1000 --ring 100000 >"$work/engine" &
children+=($!)
until grep -q . "$work/engine"; do sleep 0.05; done
engine=$(sed -n '1s/.*:\([0-9]*\)$/\1/p' "$work/engine")
taskset -c $servers "$target/trtllm-exporter" --source "trtllm-serve:http://127.0.0.1:$engine" --gpu required \
  --gpu.library "$work/libnvidia-ml.so.1" --web.listen-address 127.0.0.1:0 --web.port-file "$work/port" \
  --web.max-requests 0 2>"$work/stderr" &
exporter=$!
children+=("$exporter")
until [ -s "$work/port" ]; do sleep 0.05; done
ours=http://$(head -n 1 "$work/port")/metrics

get() { python3 -c '
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers=dict(pair.split("=", 1) for pair in sys.argv[2:]))
sys.stdout.buffer.write(urllib.request.urlopen(request, timeout=10).read())' "$@"; }
until get "$ours" | grep -q '^nv_gpu_up{.* 1$' && get "$ours" | grep -q 'state="busy".* 1$'; do sleep 0.1; done
get "$ours" >"$work/plain"
get "$ours" Accept-Encoding=gzip >"$work/gzip"

constant=
start_constant() {
  [ -z "$constant" ] || { kill "$constant"; wait "$constant" 2>/dev/null || true; }
  # A port that was free a moment ago.
  floor=127.0.0.1:$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  taskset -c $servers "$target/examples/constant" "$floor" "$work/plain" 'text/plain; version=0.0.4; charset=utf-8' "$work/gzip" &
  constant=$!
  until get "http://$floor/metrics" >/dev/null 2>&1; do sleep 0.05; done
}

# Machine-readable: wrk's own words round too much.
cat >"$work/report.lua" <<'LUA'
done = function(summary, latency)
  local bad = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status + summary.errors.timeout
  io.write(string.format("result %d %f %f %f %d\n", summary.requests, summary.requests / summary.duration * 1e6, latency:percentile(50), latency:percentile(99), bad))
end
LUA
ticks() { cut -d ' ' -f 14,15 "/proc/$1/stat" | tr ' ' '+' | { read -r sum; echo $((sum)); }; }
measure() { # URL CONNECTIONS ENCODING
  taskset -c $others wrk --threads 1 --connections "$2" --duration "${seconds}s" --header "Accept-Encoding: $3" \
    --script "$work/report.lua" "$1" | sed -n 's/^result //p'
}

for connections in ${CONNECTIONS:-1 16 64}; do
  for encoding in ${ENCODINGS:-identity gzip}; do
    for round in $(seq "$rounds"); do
      sides=(ours floor)
      [ $((round % 2)) = 1 ] || sides=(floor ours)
      start_constant
      for side in "${sides[@]}"; do
        url=$ours pid=$exporter
        [ "$side" = ours ] || url=http://$floor/metrics pid=$constant
        before=$(ticks "$pid")
        measured=$(measure "$url" "$connections" "$encoding")
        echo "$connections $encoding $round $side $measured $(($(ticks "$pid") - before))" >>"$work/results"
      done
    done
  done
done
get "$ours" >"$work/after"

python3 - "$work" "$exporter" <<'PYTHON'
import collections, pathlib, statistics, sys
work = pathlib.Path(sys.argv[1])
found = collections.defaultdict(dict)
for line in (work / "results").read_text().splitlines():
    connections, encoding, round_, side, *numbers = line.split()
    requests, rate, p50, p99, bad, ticks = map(float, numbers)
    if bad:
        sys.exit(f"load.sh: {bad:.0f} requests failed: {line}")
    found[int(connections), encoding][int(round_), side] = (rate, p50, p99, ticks / requests)
print(f"{'connections':>11} {'encoding':9} {'constant/s':>10} {'exporter/s':>10} {'throughput':>10} {'p50':>6} {'p99':>6} {'CPU':>6}")
good = True
for (connections, encoding), results in found.items():
    rounds = sorted({round_ for round_, _ in results})
    median = lambda pick: statistics.median(pick(results[r, "ours"], results[r, "floor"]) for r in rounds)
    rate, p50, p99, cpu = (median(lambda ours, floor, at=at: ours[at] / floor[at]) for at in range(4))
    meant = rate >= 0.9 and p99 <= 1.25
    good &= meant
    print(f"{connections:11} {encoding:9} {median(lambda ours, floor: floor[0]):10.0f} {median(lambda ours, floor: ours[0]):10.0f}"
          f" {rate:9.2f}x {p50:5.2f}x {p99:5.2f}x {cpu:5.2f}x{'' if meant else '   not as meant'}")
page = (work / "after").read_text()
value = lambda name: sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))
print(f"the page: {len(page)} bytes, {(work / 'gzip').stat().st_size} packed; iterations {value('nv_trt_llm_iterations_total'):.0f},"
      f" lost {value('nv_trt_llm_iterations_lost_total'):.0f}, GPUs {value('nv_gpu_up'):.0f}")
status = pathlib.Path(f"/proc/{sys.argv[2]}/status").read_text()
print("memory:", ", ".join(line.replace("\t", " ") for line in status.splitlines() if line.startswith(("VmHWM", "VmRSS"))))
sys.exit(0 if good else 1)
PYTHON
