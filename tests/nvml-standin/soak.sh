#!/usr/bin/env bash
# Eight stand-in GPUs that are lost, hang, are split, denied and reloaded every few hundred milliseconds for a while: every
# sample is compared with the stand-in's truth, and memory, threads and descriptors must stay flat. Prints one line.
# Usage: tests/nvml-standin/soak.sh [SECONDS [SEED]]     (600 and 1; an hour is 3600)
set -euo pipefail
cd "$(dirname "$0")/../.."
TRTLLM_SOAK_SECONDS=${1:-600} TRTLLM_SOAK_SEED=${2:-1} cargo test --quiet --test gpu_soak -- --nocapture | grep '^seed\|panicked\|test result'
