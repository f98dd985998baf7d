#!/usr/bin/env bash
# Builds the files of a release without an external service. For each architecture: the exporter and the doctor, with their bills of
# materials and the licences of their crates (binary.sh), a tarball, a .deb and an .rpm. Then the parts that all
# architectures share (parts.sh). SHA256SUMS has the hashes of all files. The same commit gives the same files.
# usage: build.sh [FOLDER [amd64|arm64]...]      default: FOLDER is target/dist, the architecture is that of this machine
# Needs Debian with dpkg-dev, rpm and cpio, and helm (HELM=PATH selects another one). For the other architecture: its g++-11 cross compiler, qemu-user-static and rustup.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(realpath -m "${1:-target/dist}")
architectures=("${@:2}")
[ ${#architectures[@]} -gt 0 ] || architectures=("$(dpkg --print-architecture)")
for tool in dpkg-deb rpmbuild cpio readelf; do
  command -v "$tool" >/dev/null || { echo "$0: $tool is missing; install the Debian packages dpkg-dev, rpm, cpio and binutils" >&2; exit 1; }
done
helm=$PWD/target/tools/helm
[ -x "$helm" ] || helm=helm
export HELM=${HELM:-$helm}
command -v "$HELM" >/dev/null || { echo "$0: helm is missing; install it, or build it with tests/deploy/kubernetes.sh --build-tools" >&2; exit 1; }
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
mkdir -p "$folder"
find "$folder" -maxdepth 1 -type f -delete
for architecture in "${architectures[@]}"; do
  deploy/release/binary.sh "$folder/$architecture" "$architecture"
  deploy/package/build.sh "$folder/$architecture" "$folder" "$architecture"
done
deploy/release/parts.sh "$folder"
deploy/release/sums.sh "$folder"
