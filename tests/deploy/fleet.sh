#!/usr/bin/env bash
# Causes incidents in a simulated fleet: three engines, eight simulated GPUs, a real Prometheus and Alertmanager. See tests/judges/incident.py.
#   fleet.sh            all incidents with Prometheus 2, Prometheus 3, and Prometheus 3 with native histograms only; 16 minutes
#   fleet.sh draw       three faults with Prometheus 3, for 3 and for 200 engines, and the pictures of the dashboards in docs/images; 8 minutes
#   fleet.sh short      one short incident with the installed Prometheus, with the default page
# Builds the exporter unless it is in PREBUILT=FOLDER. Uses the Prometheus 3 that tests/run installed in target/tools, or PROMETHEUS3=PATH.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PYTHONDONTWRITEBYTECODE=1
folder=${PREBUILT:-target/debug}
prometheus3=${PROMETHEUS3:-target/tools/prometheus3/usr/bin/prometheus}
[ -n "${PREBUILT:-}" ] || nice cargo build --quiet --package trtllm-exporter --package nvml-standin
play() { "${python:-python3}" tests/judges/incident.py "$folder/trtllm-exporter" "$folder/libnvml_standin.so" "$@"; }

case ${1:-all} in
  short) play --short ;;
  draw)
    python=target/tools/draw/bin/python
    "$python" -c 'import matplotlib, PIL' 2>/dev/null || {
      python3 -m venv target/tools/draw
      target/tools/draw/bin/pip install --quiet --disable-pip-version-check 'matplotlib==3.11.*' 'pillow==13.*'
    }
    play --prometheus "$prometheus3" --draw docs/images
    play --prometheus "$prometheus3" --draw docs/images --crowd 14
    ;;
  all)
    play
    [ -x "$prometheus3" ] || { echo "run.sh: $prometheus3 is missing; run tests/run, or set PROMETHEUS3" >&2; exit 1; }
    play --prometheus "$prometheus3"
    play --prometheus "$prometheus3" --native
    ;;
  *) sed -n '2,6p' "$0" >&2; exit 2 ;;
esac
