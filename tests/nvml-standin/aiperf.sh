#!/usr/bin/env bash
# Checks that AIPerf's GPU collector (aiperf 0.13.0) reads every field that it knows, in its own unit, from the `dcgm` metrics
# of the daemon with the stand-in for NVML.
# Usage: tests/nvml-standin/aiperf.sh   (needs cargo, and python3 with PyPI or PYTHON with aiperf and its imports)
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true; rm -rf "$work"' EXIT

python=${PYTHON:-}
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    pip=("$work/venv/bin/pip" install --quiet --disable-pip-version-check)
    # Installs only the imports of the collector, because AIPerf as a whole also needs data sets and plotting.
    "${pip[@]}" --no-deps aiperf==0.13.0
    "${pip[@]}" 'prometheus_client~=0.23.1' aiohttp 'pyzmq~=26.4' aiofiles pydantic pydantic-settings orjson rich psutil \
        numpy ruamel.yaml PyYAML jinja2 cyclopts setproctitle msgspec
    python=$work/venv/bin/python
fi

cargo build --quiet --package nvml-standin
cargo build --quiet
cp target/debug/libnvml_standin.so "$work/libnvidia-ml.so.1"
{ echo gpus=2; cat tests/fixtures/busy_gpu.state; } >"$work/libnvidia-ml.so.1.state"
target/debug/trtllm-exporter --source "socket:$work/ingest.sock" --gpu.library "$work/libnvidia-ml.so.1" \
    --gpu.pod-resources "" --metrics.compat dcgm --web.listen-address 127.0.0.1:0 --web.port-file "$work/port" \
    2>"$work/log" &
daemon=$!
for _ in $(seq 300); do [ -s "$work/port" ] && break; sleep 0.1; done
sleep 3 # wait for two polls, because some values are differences between two polls
"$python" tests/judges/aiperf_fields.py "http://$(head -n 1 "$work/port")/metrics"
