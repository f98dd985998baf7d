#!/usr/bin/env bash
# Runs the C++ test programs with AddressSanitizer and UndefinedBehaviorSanitizer, then with ThreadSanitizer. Then runs
# the Rust tests, which call the C++ code through cxx, with AddressSanitizer. Prints one line per run, and the output of
# each run that fails.
#
#   cpp-bridge/sanitize.sh [address] [thread] [rust]      without arguments: all three
set -euo pipefail
cd "$(dirname "$0")"
[ $# -gt 0 ] || set -- address thread rust
base=${CARGO_TARGET_DIR:-../target}
mkdir -p "$base"
base=$(cd "$base" && pwd)
passed=0 failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
unset TENSORRT_LLM_ROOT

# run NAME COMMAND…
run() {
    local name=$1 begin=$SECONDS
    shift
    if "$@" >"$log" 2>&1; then
        echo "$name: ok, $((SECONDS - begin)) s"
        passed=$((passed + 1))
    else
        echo "$name: FAILED"
        tail -60 "$log"
        failed=$((failed + 1))
    fi
}

# Prints the output folder of the bridge's build. It contains the headers that cxx generates.
generated() {
    cargo check --quiet --package trtllm-bridge --message-format=json \
        | sed -n 's/.*"reason":"build-script-executed".*trtllm-bridge.*"out_dir":"\([^"]*\)".*/\1/p' | tail -1
}

# cpp KIND FLAGS: compiles the objects once, then links and runs each program.
cpp() {
    local kind=$1 flags=$2 out=$base/sanitize/$1 includes program sources
    includes="-Iinclude -Icpp -Ipublisher/include -Itests/cpp -Isim/include -isystem$headers/include -isystem$headers/crate"
    flags="-std=c++17 -O1 -g1 -pthread -fno-omit-frame-pointer -DTRTLLM_BRIDGE_SIMULATED -DTRTLLM_SIM_RELEASE=101 $flags"
    mkdir -p "$out"
    # Excludes the file that needs symbols of the Rust library. The Rust run below covers it.
    sources=$(printf '%s\n' cpp/*.cc sim/src/*.cc tests/cpp/{borders,executor_api,release_records}.cc | grep -v rust_interface)
    run "$kind: compile" compile "$out" "$flags $includes" "$sources"
    for program in borders executor_api release_records; do
        [ -f "$out/tests_cpp_$program.o" ] || continue
        run "$kind: $program" link_and_run "$out" "$flags" "$program"
    done
}

compile() {
    # shellcheck disable=SC2016,SC2086  # the variables are those of the inner shell
    printf '%s\n' $3 | xargs -P "$(nproc)" -I{} sh -c '
        object=$1/$(printf %s "${3%.cc}" | tr / _).o
        "${CXX:-c++}" $2 -c -o "$object" "$3"' sh "$1" "$2" {}
}

link_and_run() {
    # shellcheck disable=SC2086
    "${CXX:-c++}" $2 -o "$1/$3" "$1/tests_cpp_$3.o" "$1"/cpp_*.o "$1"/sim_*.o "$base/debug/libtrtllm_sim_c.a"
    ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        TSAN_OPTIONS=halt_on_error=1 timeout 300 "$1/$3"
}

rust() {
    # RUSTC_BOOTSTRAP enables sanitizers in the stable compiler. GCC instruments the C++ code for the same sanitizer
    # runtime. Leave out the tests cpp_programs and probing: they compile programs that already ran above.
    run "address: $1" env RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address" CXXFLAGS="-fsanitize=address -O1" \
        CARGO_TARGET_DIR="$base/sanitize/rust" CARGO_PROFILE_TEST_DEBUG=1 \
        cargo test --quiet --package trtllm-bridge --target "$(rustc -vV | sed -n 's/^host: //p')" "${@:2}"
}

for what in "$@"; do
    case $what in
    address | thread)
        cargo build --quiet --package trtllm-sim-c --target-dir "$base"
        headers=$(generated)/cxxbridge
        [ -d "$headers" ] || { echo "sanitize.sh: the bridge did not build, so the headers that cxx generates are missing; see the errors above" >&2; exit 1; }
        if [ "$what" = address ]; then
            cpp address "-fsanitize=address,undefined -fno-sanitize-recover=all"
        else
            cpp thread "-fsanitize=thread"
        fi
        ;;
    rust) rust "Rust tests" --lib --test borders --test draining --test loading --test opening --test request_rows ;;
    *) echo "sanitize.sh: unknown run $what; use address, thread or rust" >&2; exit 2 ;;
    esac
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
