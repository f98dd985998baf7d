#!/usr/bin/env bash
# Builds the fuzz targets and runs one after the other, each for some seconds. A target that fails ends at its first finding;
# the input is then in fuzz/artifacts. Inputs that reach new code are kept in fuzz/target/corpus for the next run.
#   fuzz/run.sh [SECONDS [TARGET...]]    600 seconds and all targets by default
# Needs only the project's Rust compiler, and a C++ compiler for libFuzzer.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-600}
shift || true

targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(basename -s .rs fuzz_targets/*.rs)
# Instruments the coverage that libFuzzer needs. No sanitizer is enabled, because the targets run no unsafe code of the
# exporter.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
coverage+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
host=$(rustc -vV | sed -n 's/^host: //p')
# With --target, build scripts and macros are compiled without the instrumentation.
RUSTFLAGS="$coverage --cfg fuzzing -Ccodegen-units=1" cargo build --release --target "$host"

failed=()
for target in "${targets[@]}"; do
  echo "== $target for $seconds s"
  mkdir -p "target/corpus/$target" "artifacts/$target"
  # An input that takes 20 s or 2 GB also counts as a finding.
  "target/$host/release/$target" "target/corpus/$target" "corpus/$target" -artifact_prefix="artifacts/$target/" \
    -max_total_time="$seconds" -max_len=8192 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 || failed+=("$target")
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "fuzz/run.sh: findings in: ${failed[*]}; their inputs are in fuzz/artifacts" >&2
  exit 1
fi
