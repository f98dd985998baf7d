#!/usr/bin/env bash
# Runs the simulation of src/simulation.rs for millions of polls: tests/simulation.sh [POLLS of each of 12 seeds]
set -euo pipefail
cd "$(dirname "$0")/.."
TRTLLM_SIMULATION_POLLS=${1:-1000000} cargo test --release --lib simulation -- --nocapture
