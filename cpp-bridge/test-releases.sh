#!/usr/bin/env bash
# Runs this crate's tests against the simulated SDK of each release. Then installs the simulated SDK like a real
# TensorRT-LLM and builds the bridge against it; without arguments also the exporter. Exit status 0 if everything passed.
# Uses its own target folder for all releases, so that each release compiles only what depends on it.
#
#   cpp-bridge/test-releases.sh [RELEASE…]      without arguments: 0.9 0.11 0.13 0.15 1.0 1.1, and the exporter
set -euo pipefail
cd "$(dirname "$0")"
base=${CARGO_TARGET_DIR:-../target}
mkdir -p "$base"
base=$(cd "$base" && pwd)
CARGO_TARGET_DIR=$base/releases
export CARGO_TARGET_DIR
# Debug information would double the build time.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0
unset TENSORRT_LLM_ROOT

exporter=""
[ $# -gt 0 ] || { exporter=1; set -- 0.9 0.11 0.13 0.15 1.0 1.1; }
passed=0 failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for release in "$@"; do
    begin=$SECONDS
    if TRTLLM_SIM_RELEASE=$release cargo test --quiet --package trtllm-bridge --tests --no-fail-fast >"$log" 2>&1; then
        tests=$(awk '/^test result: ok/ { sum += $4 } END { print sum }' "$log")
        printf '%-6s ok: %s tests, %s s\n' "$release" "$tests" $((SECONDS - begin))
        passed=$((passed + 1))
    else
        printf '%-6s FAILED\n' "$release"
        cat "$log"
        failed=$((failed + 1))
    fi
done

# Installs the simulated SDK like a real TensorRT-LLM: "whole" is complete, "gone" has the Executor only in its headers.
standin=$CARGO_TARGET_DIR/standin
rm -rf "$standin"
out=$(CARGO_TARGET_DIR=$base cargo check --quiet --package trtllm-bridge --message-format=json \
    | sed -n 's/.*"reason":"build-script-executed".*trtllm-bridge.*"out_dir":"\([^"]*\)".*/\1/p' | tail -1)
cargo build --quiet --package trtllm-sim-c --target-dir "$base"
for kind in whole gone; do
    mkdir -p "$standin/$kind/lib" "$standin/$kind/objects"
    ln -s "$PWD/sim/include" "$standin/$kind/include"
    (cd "$standin/$kind/objects" && ar x "$out/libtensorrt_llm_simulated.a")
    [ $kind = whole ] || rm "$standin/$kind"/objects/*-executor.o
    "${CXX:-c++}" -shared -o "$standin/$kind/lib/libtensorrt_llm.so" "$standin/$kind"/objects/*.o \
        "$base/debug/libtrtllm_sim_c.a" -Wl,--exclude-libs,ALL
    "${CXX:-c++}" -shared -o "$standin/$kind/lib/libnvinfer_plugin_tensorrt_llm.so" -x c++ /dev/null
done
# The exporter must find the library without LD_LIBRARY_PATH, and report the library's error for an invalid engine
# folder.
served() {
    local program=$CARGO_TARGET_DIR/debug/trtllm-exporter
    TENSORRT_LLM_ROOT=$standin/whole cargo build --package trtllm-exporter >"$log" 2>&1 || return 1
    readelf -d "$program" >"$log" && grep -q 'NEEDED.*libtensorrt_llm.so' "$log" || return 1
    ! "$program" --gpu off --source executor:/nowhere >"$log" 2>&1 && grep -q 'cannot load the engine directory /nowhere' "$log"
}
begin=$SECONDS
if TENSORRT_LLM_ROOT=$standin/whole cargo test --package trtllm-bridge --test real_library >"$log" 2>&1 \
    && grep -q 'building with TensorRT-LLM ' "$log" \
    && { [ -z "$exporter" ] || served; } \
    && ! TENSORRT_LLM_ROOT=$standin/gone cargo check --package trtllm-bridge >"$log" 2>&1 \
    && grep -q 'the library does not define it' "$log"; then
    echo "installed: ok, $((SECONDS - begin)) s"
    passed=$((passed + 1))
else
    echo "installed: FAILED"
    cat "$log"
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
