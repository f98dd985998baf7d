#!/usr/bin/env bash
# install.sh PREFIX [TARGET_DIR]: installs headers, libraries, the pkg-config file and the CMake package under PREFIX.
# The result is relocatable. Run `cargo build --release -p trtllm-embed` first. TARGET_DIR is cargo's target directory
# (default: CARGO_TARGET_DIR or target).
set -euo pipefail
embed=$(cd "$(dirname "$0")/.." && pwd)
prefix=${1:?usage: install.sh PREFIX [TARGET_DIR]}
built=${2:-${CARGO_TARGET_DIR:-$embed/../../target}}/${PROFILE:-release}
[ -f "$built/libtrtllm_exporter.so" ] || {
    echo "install.sh: $built/libtrtllm_exporter.so does not exist; run cargo build --release -p trtllm-embed first" >&2
    exit 1
}
mkdir -p "$prefix"/{include/trtllm_exporter/detail,lib/pkgconfig,lib/cmake/trtllm_exporter}
install -m 644 "$embed"/include/trtllm_exporter/*.h "$prefix/include/trtllm_exporter/"
install -m 644 "$embed"/include/trtllm_exporter/detail/*.h "$prefix/include/trtllm_exporter/detail/"
install -m 755 "$built/libtrtllm_exporter.so" "$prefix/lib/libtrtllm_exporter.so.0"
ln -sf libtrtllm_exporter.so.0 "$prefix/lib/libtrtllm_exporter.so"
install -m 644 "$built/libtrtllm_exporter.a" "$prefix/lib/"
install -m 644 "$embed/packaging/trtllm_exporter.pc" "$prefix/lib/pkgconfig/"
install -m 644 "$embed"/packaging/cmake/*.cmake "$prefix/lib/cmake/trtllm_exporter/"
