#!/usr/bin/env bash
# Measures the cost of eight GPUs at one poll per second, without an engine: resident memory, CPU and duration of a scrape,
# first while every GPU works, then while one GPU hangs and another is lost. Fails if a value exceeds its limit.
# Usage: tests/nvml-standin/cost.sh [SECONDS]     (per phase, default 60; builds for release unless PREBUILT=1; needs curl)
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-60}

work=$(mktemp -d)
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true; rm -rf "$work"' EXIT

[ -n "${PREBUILT:-}" ] || nice cargo build --quiet --release --package trtllm-exporter --package nvml-standin
cp target/release/libnvml_standin.so "$work/libnvidia-ml.so.1"
set_state() { printf 'gpus=8\n%s' "$1" >"$work/draft"; mv "$work/draft" "$work/libnvidia-ml.so.1.state"; }
set_state ''
target/release/trtllm-exporter --source "socket:$work/ingest.sock" --gpu.library "$work/libnvidia-ml.so.1" --gpu.interval 1s --poll.interval 1s \
    --web.listen-address 127.0.0.1:0 --web.port-file "$work/port" 2>"$work/log" &
daemon=$!
for _ in $(seq 300); do [ -s "$work/port" ] && break; sleep 0.1; done
url=http://$(head -n 1 "$work/port")/metrics
for _ in $(seq 300); do [ "$(curl -s "$url" | grep -c '^nv_gpu_up{.*} 1$')" = 8 ] && break; sleep 0.1; done
sleep 3
hertz=$(getconf CLK_TCK)

# CPU time of the daemon in clock ticks.
ticks() { sed 's/.*) //' "/proc/$daemon/stat" | awk '{ print $12 + $13 }'; }
resident() { awk '/^VmRSS/ { print $2 }' "/proc/$daemon/status"; }
series() { curl -s "$url" | grep -vc '^#'; }

# Runs the phase NAME with one scrape per second. Sets the variables cpu, p50, p99 and rss.
phase() {
    local began
    began=$(ticks)
    : >"$work/times"
    for _ in $(seq "$seconds"); do
        curl -s -o /dev/null -w '%{time_total}\n' "$url" >>"$work/times"
        sleep 1
    done
    cpu=$(echo "$(ticks) $began $hertz $(wc -l <"$work/times")" | awk '{ printf "%.3f", ($1 - $2) / $3 / $4 * 100 }')
    sort -n "$work/times" >"$work/sorted"
    p50=$(awk '{ t[NR] = $1 } END { printf "%.2f", t[int((NR + 1) / 2)] * 1000 }' "$work/sorted")
    p99=$(awk '{ t[NR] = $1 } END { printf "%.2f", t[int(NR * 0.99 + 0.5)] * 1000 }' "$work/sorted")
    rss=$(resident)
    printf '%-28s RSS %6d KiB  CPU %s %% of a core  scrape p50 %s ms  p99 %s ms  %d series\n' "$1" "$rss" "$cpu" "$p50" "$p99" "$(series)"
}

failed=
limit() { awk -v value="$2" -v most="$3" 'BEGIN { exit !(value <= most) }' || { echo "cost.sh: $1 is $2; the limit is $3"; failed=yes; }; }

phase 'eight GPUs'
limit 'resident memory in KiB' "$rss" 12288
limit 'CPU in % of a core' "$cpu" 0.5
healthy=$p50
set_state $'gpu.3.hang_ms=86400000\ngpu.5.lost=1\n'
sleep 7
up=$(curl -s "$url" | grep -c '^nv_gpu_up{.*} 1$')
[ "$up" = 6 ] || { echo "cost.sh: $up GPUs are up; expected 6"; failed=yes; }
phase 'one hung, one lost'
limit 'resident memory in KiB' "$rss" 12288
limit 'CPU in % of a core' "$cpu" 0.5
# A failing GPU must not slow scrapes down. The limit is twice the time of the healthy phase plus one millisecond, because of noise.
limit 'scrape p50 in ms' "$p50" "$(awk -v healthy="$healthy" 'BEGIN { print 2 * healthy + 1 }')"
set_state ''
for _ in $(seq 450); do [ "$(curl -s "$url" | grep -c '^nv_gpu_up{.*} 1$')" = 8 ] && break; sleep 0.1; done
kill -TERM "$daemon"
if wait "$daemon"; then daemon=; else echo "cost.sh: the daemon did not exit with success"; failed=yes; fi
[ -z "$failed" ]
