#!/usr/bin/env bash
# Runs the soak test of soak.py with a release build.
#   tests/soak.sh [--seconds N] [--rate RECORDS_PER_SECOND] [--restart SECONDS]
# By default, it takes ten minutes with 2000 records per second and engine.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet --release
exec python3 tests/judges/soak.py "$@"
