#!/usr/bin/env bash
# Runs the soak test of soak.py with a release build, and draws its measurements.
#   tests/soak.sh [--seconds N] [--rate RECORDS_PER_SECOND] [--restart SECONDS]
# By default, it takes ten minutes with 2000 records per second and engine. Writes target/soak.csv and target/soak.svg.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet --release
result=0
python3 tests/judges/soak.py --csv target/soak.csv "$@" || result=$?
python3 tests/judges/soak_plot.py target/soak.csv target/soak.svg
echo "target/soak.svg shows the measurements"
exit "$result"
