#!/usr/bin/env bash
# Builds the fuzz targets and runs one after the other, each for some seconds. A target fails at its first finding; the input
# is then in fuzz/artifacts. Inputs that reach new code are kept in fuzz/target/corpus, so that the next run begins with them.
#   fuzz/run.sh [SECONDS [TARGET...]]    600 seconds and all targets by default
# Needs rustup with a nightly compiler, because libFuzzer's instrumentation is not stable. Installs cargo-fuzz if it is missing.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-600}
shift || true

cargo fuzz --version >/dev/null 2>&1 || CARGO_PROFILE_DEV_DEBUG=false cargo install --quiet --debug --locked cargo-fuzz
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(cargo +nightly fuzz list)
# No sanitizer: the exporter's own code has no unsafe code to check here, and runs twice as fast without.
cargo +nightly fuzz build --sanitizer none

failed=()
for target in "${targets[@]}"; do
  echo "== $target for $seconds s"
  mkdir -p "target/corpus/$target"
  # An input that takes 20 s or 2 GB is a finding, too.
  cargo +nightly fuzz run --sanitizer none "$target" "target/corpus/$target" "corpus/$target" -- \
    -max_total_time="$seconds" -max_len=8192 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 || failed+=("$target")
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "fuzz/run.sh: findings in: ${failed[*]}; their inputs are in fuzz/artifacts" >&2
  exit 1
fi
