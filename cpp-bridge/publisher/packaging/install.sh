#!/usr/bin/env bash
# install.sh PREFIX: installs publisher.h, its pkg-config file, its CMake package and the sources of the preload under PREFIX.
# Builds nothing. The result is relocatable and the same for all architectures.
set -euo pipefail
packaging=$(cd "$(dirname "$0")" && pwd)
publisher=$(dirname "$packaging")
root=$(cd "$publisher/../.." && pwd)
prefix=${1:?usage: install.sh PREFIX}
version=$(sed -n 's/^version = "\([^"]*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# install_text FILE TARGET: fills in the version.
install_text() {
    local major minor patch
    IFS=. read -r major minor patch <<<"${version%%-*}"
    sed "s/@VERSION@/$version/g; s/\(namespace\) development/\1 v${version//[^0-9a-zA-Z]/_}/
        s/\(VERSION_MAJOR\) 0$/\1 $major/; s/\(VERSION_MINOR\) 0$/\1 $minor/; s/\(VERSION_PATCH\) 0$/\1 $patch/" "$1" >"$work/text"
    install -D -m 644 "$work/text" "$2"
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
        '#pragma once' | '// install.sh replaces the'*) ;;
        *) printf '%s\n' "$line" ;;
        esac
    done <"$publisher/include/$1"
}
parts=' '
{
    printf '#pragma once\n'
    part trtllm_exporter/publisher.h
} >"$work/publisher.h"
install_text "$work/publisher.h" "$prefix/include/trtllm_exporter/publisher.h"
install_text "$packaging/trtllm_exporter.pc" "$prefix/share/pkgconfig/trtllm_exporter.pc"
for file in "$packaging"/cmake/*.cmake; do
    install_text "$file" "$prefix/share/cmake/trtllm_exporter/${file##*/}"
done
# The preload must be built for the release of TensorRT-LLM that it serves, so its sources are installed.
mkdir -p "$prefix/share/trtllm_exporter"
cp -r "$publisher/../preload" "$prefix/share/trtllm_exporter/"
