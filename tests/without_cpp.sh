#!/usr/bin/env bash
# Builds the exporter with --no-default-features while the variable CXX names no C++ compiler. The exporter must serve a recording and a
# simulated engine, and refuse executor: with a message that names the feature. Its tests must compile, too. The doctor, which users get
# without this feature, must read the configuration of an exporter that has it.      usage: tests/without_cpp.sh
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { echo "$*" >&2; exit 1; }
# Use a separate folder: in the usual one, another build may have compiled the C++ code before.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/without-cpp
CXX=/bin/false cargo build --quiet --locked --no-default-features --bin trtllm-exporter
CXX=/bin/false cargo build --quiet --locked --package trtllm-doctor
CXX=/bin/false cargo clippy --quiet --locked --no-default-features --all-targets -- -D warnings
binary=$CARGO_TARGET_DIR/debug/trtllm-exporter
! readelf --dynamic "$binary" | grep -F libstdc++ || fail "the program needs libstdc++"

work=$(mktemp -d); process=""
trap '[ -z "$process" ] || kill -KILL "$process" 2>/dev/null || true; rm -rf "$work"' EXIT
timeout 20 "$binary" --source="executor:$work" --gpu=off --web.listen-address=127.0.0.1:0 2>"$work/refused" && code=0 || code=$?
[ "$code" = 2 ] || fail "exit code $code instead of 2 with --source=executor:"
grep -q 'feature "executor"' "$work/refused" || { cat "$work/refused"; fail "the message for --source=executor: does not name the feature"; }
printf 'engines:\n- source: executor:/engines/llama\n' >"$work/engines.yaml"
"${binary%/*}/trtllm-doctor" diagnose http://127.0.0.1:1 --config.file="$work/engines.yaml" >"$work/report" 2>&1 && code=0 || code=$?
[ "$code" = 4 ] || { cat "$work/report"; fail "exit code $code of the doctor instead of 4 with executor: in the configuration"; }
for source in 'replay:tests/fixtures/session.ndjson?speed=max' 'sim:?rate=20' 'sim:?scenario=kv-capacity-cpp'; do
  rm -f "$work/port" "$work/page"
  "$binary" --source="$source" --gpu=off --web.listen-address=127.0.0.1:0 --web.port-file="$work/port" 2>"$work/log" &
  process=$!
  for _ in $(seq 100); do
    if [ -s "$work/port" ]; then curl -fsS -o "$work/page" "http://$(cat "$work/port")/metrics" 2>/dev/null || true; fi
    ! grep -q '^nv_trt_llm_iterations_total{.*} [1-9]' "$work/page" 2>/dev/null || break
    sleep 0.1
  done
  grep -q '^nv_trt_llm_iterations_total{.*} [1-9]' "$work/page" || { cat "$work/log"; fail "$source has no iterations on the page"; }
  kill -TERM "$process"; wait "$process" && code=0 || code=$?
  process=""
  [ "$code" = 0 ] || { cat "$work/log"; fail "exit code $code after SIGTERM instead of 0"; }
done
echo "without C++: built, served sim:, refused executor:, $(grep -vc '^#' "$work/page") series, exit code 0 after SIGTERM"
