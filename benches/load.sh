#!/usr/bin/env bash
# Compares scrapes of the exporter with scrapes of a minimal axum server that answers the same bytes (benches/constant.rs).
# Meanwhile the exporter reads an engine of 1000 records a second and 8 simulated GPUs.
#
#   benches/load.sh [ROUNDS [REQUESTS]]        20 rounds of 20000 requests to each server
#   CONNECTIONS="1 16 64" ENCODINGS="identity gzip"    the combinations to measure
#
# Prints the median over all rounds of exporter ÷ constant server: throughput, p50, p99 and CPU time per request.
# The CPU time of the exporter includes its polling and rendering. Exit code 1 if a median misses its target.
# Needs h2load (Debian: nghttp2-client), python3, curl and taskset, and two cores: one for the servers, one for the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-20} requests=${2:-20000}
server_core=0 client_core=1
for program in h2load taskset python3 curl; do
  command -v "$program" >/dev/null || {
    echo "load.sh: $program is missing; run: apt-get install nghttp2-client util-linux python3 curl" >&2
    exit 2
  }
done
cargo build --release --quiet --bin trtllm-exporter --example constant
cargo build --release --quiet --package nvml-standin --package trtllm-sim-serve
target=${CARGO_TARGET_DIR:-target}/release

work=$(mktemp -d)
children=()
constant=
cleanup() {
  kill "${children[@]}" $constant 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

# --- the exporter, its engine and its GPUs ---
cp "$target/libnvml_standin.so" "$work/libnvidia-ml.so.1"
printf 'log=%s/log\ngpus=8\n' "$work" >"$work/libnvidia-ml.so.1.state"
touch "$work/engine"
taskset -c $client_core "$target/trtllm-sim-serve" 'sim:?iter_base_ms=1&ctx_token_us=0&gen_request_us=0&rate=200' --port 0 \
  --release 1.1 --ring 100000 >"$work/engine" &
children+=($!)
until grep -q . "$work/engine"; do sleep 0.05; done
engine_port=$(sed -n '1s/.*:\([0-9]*\)$/\1/p' "$work/engine")
taskset -c $server_core "$target/trtllm-exporter" --source "trtllm-serve:http://127.0.0.1:$engine_port" --gpu required \
  --gpu.library "$work/libnvidia-ml.so.1" --web.listen-address 127.0.0.1:0 --web.port-file "$work/port" \
  --web.max-requests 0 2>"$work/stderr" &
exporter=$!
children+=("$exporter")
until [ -s "$work/port" ]; do
  kill -0 "$exporter" 2>/dev/null || { cat "$work/stderr" >&2; exit 1; }
  sleep 0.05
done
exporter_url=http://$(head -n 1 "$work/port")/metrics
# Rates appear only with the second poll of the GPUs.
until curl -s "$exporter_url" >"$work/plain" && grep -q '^nv_gpu_pcie_transmit_bytes_per_second{' "$work/plain" && grep -q 'state="busy".* 1$' "$work/plain"; do
  sleep 0.1
done

# --- the constant server ---
# The constant server is restarted for each round, because the speeds of two processes can differ by up to a quarter.
# It serves the exporter's current page: a page grows while the exporter runs, and a few more bytes can mean one more TCP
# segment.
start_constant() {
  local port
  curl -s "$exporter_url" >"$work/plain"
  curl -s -H 'Accept-Encoding: gzip' "$exporter_url" >"$work/gzip"
  if [ -n "$constant" ]; then
    kill "$constant"
    wait "$constant" 2>/dev/null || true
  fi
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  taskset -c $server_core "$target/examples/constant" "127.0.0.1:$port" "$work/plain" \
    'text/plain; version=0.0.4; charset=utf-8' "$work/gzip" &
  constant=$!
  constant_url=http://127.0.0.1:$port/metrics
  until curl -s -o /dev/null "$constant_url"; do sleep 0.05; done
}

# User and system CPU time of a process in clock ticks.
cpu_ticks() { sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'; }

measure() { # SERVER URL PID CONNECTIONS ENCODING ROUND
  local log=$work/log.$4.$5.$6.$1 before
  before=$(cpu_ticks "$3")
  taskset -c $client_core h2load --h1 --requests "$requests" --clients "$4" --header "accept-encoding: $5" \
    --log-file "$log" "$2" >/dev/null
  echo "$4 $5 $6 $1 $log $(($(cpu_ticks "$3") - before))" >>"$work/results"
}

for round in $(seq "$rounds"); do
  for connections in ${CONNECTIONS:-1 16 64}; do
    for encoding in ${ENCODINGS:-identity gzip}; do
      start_constant
      order="exporter constant"
      [ $((round % 2)) = 1 ] || order="constant exporter"
      for server in $order; do
        url=$exporter_url pid=$exporter
        [ "$server" = exporter ] || { url=$constant_url pid=$constant; }
        measure "$server" "$url" "$pid" "$connections" "$encoding" "$round"
      done
    done
  done
done

grep -E '^Vm(HWM|RSS)' "/proc/$exporter/status" | tr -s '\t\n' '  ' && echo "(memory of the exporter)"
python3 benches/load_report.py "$requests" "$(getconf CLK_TCK)" <"$work/results"
