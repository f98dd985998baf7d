#!/usr/bin/env bash
# Checks the stand-in with an independent client: NVIDIA's Python bindings (nvidia-ml-py) call it through the C ABI and must
# return the values of the control file. This finds errors that the stand-in and our own NVML client have in common.
# Usage: tests/nvml-standin/judge.sh   (needs cargo, and python3 with PyPI or PYTHON with pynvml)
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python=${PYTHON:-}
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check nvidia-ml-py==13.615.71
    python=$work/venv/bin/python
fi

cargo build --quiet --package nvml-standin
ln -s "$PWD/target/debug/libnvml_standin.so" "$work/libnvidia-ml.so.1"
NVML_STANDIN_STATE=$work/state LD_LIBRARY_PATH=$work "$python" tests/judges/nvml_bindings.py "$work/state"
