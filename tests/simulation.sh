#!/usr/bin/env bash
# Runs the simulation of crates/intake/src/simulation.rs for longer than the test does: tests/simulation.sh [POLLS of each of 12 seeds [RECORDS]]
# RECORDS is the largest number of records between two polls, 8 by default. With long answers, each record takes less time:
# `tests/simulation.sh 90000 800` simulates a hundred million records. Beyond 800, an answer after an outage would exceed 16 MiB.
set -euo pipefail
cd "$(dirname "$0")/.."
export TRTLLM_SIMULATION_POLLS=${1:-1000000} TRTLLM_SIMULATION_RECORDS=${2:-8}
cargo test --release -p trtllm-intake simulation -- --nocapture
