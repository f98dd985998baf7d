#!/usr/bin/env bash
# Runs the soak test tests/own_process/gpu_soak.rs for longer: eight simulated GPUs change their condition every few hundred
# milliseconds, every sample is compared with the control file, and memory, threads and file descriptors must not grow.
# Usage: tests/nvml-standin/soak.sh [SECONDS [SEED]]     (default 600 and 1)
set -euo pipefail
cd "$(dirname "$0")/../.."
TRTLLM_SOAK_SECONDS=${1:-600} TRTLLM_SOAK_SEED=${2:-1} cargo test --quiet --test own_process gpu_soak -- --nocapture | grep '^seed\|panicked\|test result'
