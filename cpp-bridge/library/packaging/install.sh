#!/usr/bin/env bash
# install.sh PREFIX [TARGET_DIR]: installs headers, libraries, the pkg-config files, the CMake package and the sources of the
# preload under PREFIX.
# The result is relocatable. Run `cargo build --release -p trtllm-embed` first. TARGET_DIR is cargo's target directory
# (default: CARGO_TARGET_DIR or target).
# install.sh --publisher PREFIX: installs publisher.h only, which needs no library.
set -euo pipefail
packaging=$(cd "$(dirname "$0")" && pwd)
library=$(dirname "$packaging")
root=$(cd "$library/../.." && pwd)
only_publisher=
[ "${1:-}" != --publisher ] || { only_publisher=1; shift; }
prefix=${1:?usage: install.sh PREFIX [TARGET_DIR], or install.sh --publisher PREFIX}
built=${2:-${CARGO_TARGET_DIR:-$root/target}}/${PROFILE:-release}
[ -n "$only_publisher" ] || [ -f "$built/libtrtllm_exporter.a" ] || {
    echo "install.sh: $built/libtrtllm_exporter.a does not exist; run cargo build --release -p trtllm-embed first" >&2
    exit 1
}
version=$(sed -n 's/^version = "\([^"]*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$prefix/include/trtllm_exporter"

# install_text FILE TARGET: fills in the version.
install_text() {
    local major minor patch
    IFS=. read -r major minor patch <<<"${version%%-*}"
    sed "s/@VERSION@/$version/g; s/\(namespace\) development/\1 v${version//[^0-9a-zA-Z]/_}/
        s/\(VERSION_MAJOR\) 0$/\1 $major/; s/\(VERSION_MINOR\) 0$/\1 $minor/; s/\(VERSION_PATCH\) 0$/\1 $patch/" "$1" >"$work/text"
    install -m 644 "$work/text" "$2"
}
# part FILE: prints a header in which each include of a file in detail/ is replaced with the text of that file. Each file
# appears once, after the files that it includes.
part() {
    local line file
    while IFS= read -r line; do
        case $line in
        '#include "trtllm_exporter/detail/'*)
            file=${line#*\"}
            file=${file%\"}
            [[ $parts = *" $file "* ]] || { parts+="$file " && part "$file"; }
            ;;
        '#include "trtllm_exporter/'* | '#pragma once' | '// install.sh replaces the'*) ;;
        *) printf '%s\n' "$line" ;;
        esac
    done <"$library/include/$1"
}
parts=' '
for header in publisher exporter; do # exporter.h needs all that publisher.h contains, so it includes publisher.h
    {
        printf '#pragma once\n'
        [ $header = publisher ] || printf '\n#include "trtllm_exporter/publisher.h"\n'
        part "trtllm_exporter/$header.h"
    } >"$work/$header.h"
    install_text "$work/$header.h" "$prefix/include/trtllm_exporter/$header.h"
    [ -z "$only_publisher" ] || exit 0
done
mkdir -p "$prefix"/lib/{pkgconfig,cmake/trtllm_exporter} "$prefix/share/trtllm_exporter"
# The preload must be built for the release of TensorRT-LLM that it serves, so its sources are installed.
cp -r "$library/../preload" "$prefix/share/trtllm_exporter/"
for file in trtllm_exporter.pc trtllm_exporter-static.pc; do
    install_text "$packaging/$file" "$prefix/lib/pkgconfig/$file"
done
for file in "$packaging"/cmake/*.cmake; do
    install_text "$file" "$prefix/lib/cmake/trtllm_exporter/${file##*/}"
done

# Cargo's archive contains all of Rust's standard library and of zstd with global symbols. It cannot be linked beside
# another Rust archive or the system's zstd. So make one object that has only the needed code, with local symbols.
# Section groups are dissolved, because a linker would discard a group that the other archive also has.
functions=$(sed -n 's/.*extern "C" fn \(trtllm_exporter_\w*\).*/\1/p' "$library/src/border.rs")
# shellcheck disable=SC2046,SC2086
"${LD:-ld}" -r --gc-sections --force-group-allocation $(printf -- '-u %s ' $functions) \
    "$built/libtrtllm_exporter.a" -o "$work/all.o"
# shellcheck disable=SC2046,SC2086
"${OBJCOPY:-objcopy}" --strip-debug --strip-unneeded --remove-section=.llvmbc --remove-section=.llvmcmd \
    $(printf -- '--keep-global-symbol=%s ' $functions) "$work/all.o" "$work/trtllm_exporter.o"
rm -f "$work/libtrtllm_exporter.a"
"${AR:-ar}" rcs "$work/libtrtllm_exporter.a" "$work/trtllm_exporter.o"
install -m 644 "$work/libtrtllm_exporter.a" "$prefix/lib/"

# The symbols get a version, so that a program never calls the functions of a library with another major number.
echo "TRTLLM_EXPORTER_0 { global: ${functions//$'\n'/; }; local: *; };" >"$work/exports.map"
"${CC:-cc}" -shared -Wl,-soname,libtrtllm_exporter.so.0 -Wl,--version-script="$work/exports.map" -Wl,-z,defs \
    "$work/trtllm_exporter.o" -o "$work/libtrtllm_exporter.so.0" -lgcc_s -ldl -lm -pthread
install -m 755 "$work/libtrtllm_exporter.so.0" "$prefix/lib/"
ln -sf libtrtllm_exporter.so.0 "$prefix/lib/libtrtllm_exporter.so"
