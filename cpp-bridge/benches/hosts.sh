#!/usr/bin/env bash
# Measures what publishing costs the server. A simulated server runs at 2000 iterations per second in three variants, one
# after the other: alone, with publisher.h, and with the preload. Prints the iteration rate and the CPU time of each.
#
#   hosts.sh [ROUNDS [SECONDS]]      first run tests/hosts/run.sh with HOSTS_WORK set to the same folder
set -euo pipefail
bridge=$(cd "$(dirname "$0")/.." && pwd)
root=$(dirname "$bridge")
work=${HOSTS_WORK:?is not set; run tests/hosts/run.sh and this script with the same folder}
exporter=${CARGO_TARGET_DIR:-$root/target}/${HOSTS_PROFILE:-release}/trtllm-exporter
rounds=${1:-5}
seconds=${2:-8}
# shellcheck source=../tests/hosts/sidecar.sh
. "$bridge/tests/hosts/sidecar.sh"
trap 'stop_sidecar -KILL' EXIT
socket=$work/bench.sock
# 2000 iterations per second. Requests overlap, so that the engine is never idle.
load=("sim:?rate=0&iter_base_ms=0.5&ctx_token_us=0&gen_request_us=0&jitter=0" "$seconds" 20 400)

run() {
    case $1 in
    alone) "$work/examples/untouched" "${load[@]}" ;;
    publishing) SOCKET=$socket "$work/examples/published" "${load[@]}" ;;
    preloaded) TRTLLM_EXPORTER_SOCKET=$socket LD_PRELOAD=$work/examples/libtrtllm_exporter_preload.so \
        "$work/examples/untouched" "${load[@]}" ;;
    esac 2>/dev/null
}

start_sidecar "$socket"
: >"$work/bench.txt"
for _ in $(seq "$rounds"); do
    for variant in alone publishing preloaded; do
        echo "$variant $(run $variant)" >>"$work/bench.txt"
    done
done
python3 - "$work/bench.txt" "$seconds" <<'PY'
import re, statistics, sys
runs, seconds = {}, float(sys.argv[2])
for line in open(sys.argv[1]):
    name, values = line.split(" ", 1)
    runs.setdefault(name, []).append({k: float(v) for k, v in re.findall(r"(\w+)=([\d.]+)", values)})
median = lambda name, key: statistics.median(run[key] for run in runs[name]) / seconds
print(f"{'':12}{'iterations/s':>13}{'ratio':>9}{'CPU, % of a core':>18}{'above alone':>17}{'exporter threads':>18}")
for name in runs:
    more = statistics.median(a["cpu"] - b["cpu"] for a, b in zip(runs[name], runs["alone"])) / seconds
    print(f"{name:12}{median(name, 'iterations'):13.1f}{median(name, 'iterations') / median('alone', 'iterations'):9.4f}"
          f"{100 * median(name, 'cpu'):18.2f}{100 * more:+17.2f}{100 * median(name, 'exporter_cpu'):18.3f}")
spread = [100 * run["cpu"] / seconds for run in runs["alone"]]
print(f"noise: the server alone used {min(spread):.2f} to {max(spread):.2f} % of a core in {len(spread)} rounds of {seconds:g} s")
PY
