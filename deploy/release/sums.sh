#!/usr/bin/env bash
# Writes SHA256SUMS, the hashes of all files of a release.
# usage: sums.sh FOLDER
set -euo pipefail
[ $# -eq 1 ] || { sed -n '3p' "$0" >&2; exit 2; }
cd "$1"
rm -f SHA256SUMS
mapfile -d '' -t files < <(find . -maxdepth 1 -type f ! -name release-notes.md ! -name image-digest -printf '%P\0' | LC_ALL=C sort -z)
sha256sum "${files[@]}" >SHA256SUMS
cat SHA256SUMS
