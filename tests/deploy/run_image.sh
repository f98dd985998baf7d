#!/usr/bin/env bash
# Builds deploy/image/Containerfile.binary with BINARY twice, compares both images, and runs one (check_image in image_checks.sh).
# Needs root, and buildah, skopeo, umoci, runc and curl (apt), but no container engine. A BINARY of the other architecture runs in
# an emulator (qemu-user-static).
# usage: run_image.sh BINARY [ARGUMENT...]      deploy/release/binary.sh has built BINARY; the arguments are those of the exporter
# PAGE=FILE keeps the page.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '5p' "$0" >&2; exit 2; }
binary=$1; shift
# shellcheck source=tests/deploy/image_checks.sh
. "$(dirname "$0")/image_checks.sh"
need buildah skopeo umoci runc curl
use_own_storage
"$repo/deploy/image/rootfs.sh" "$binary" "$work/context/rootfs"
python3 "$repo/deploy/release/licenses.py" check "$binary" "$work/context/rootfs/usr/share/doc/trtllm-exporter/third-party-licenses.txt"
# A package that differs from its entry ends the build.
cp -r "$repo/deploy/image" "$work/changed"
sed -i -E 's/^([a-z0-9]+ libc6 [^ ]+ )[0-9a-f]{4}/\10000/' "$work/changed/packages.lock"
if "$work/changed/rootfs.sh" "$binary" "$work/rootfs" 2>"$work/refused" || ! grep -q SHA-256 "$work/refused"; then
  echo "a package with another SHA-256 is accepted"; exit 1
fi
architecture=$(architecture_of "$binary")
build() { buildah bud -q --timestamp 0 --platform "linux/$architecture" -f "$repo/deploy/image/Containerfile.binary" -t "$1" "$work/context"; }
first=$(build one:test); second=$(build two:test)
[ "$first" = "$second" ] || { echo "two builds of one binary differ"; exit 1; }
echo "two builds of one binary are identical"
buildah push -q one:test "oci:$work/oci:test"
check_image "$work/oci:test" "$@"
[ -z "${PAGE:-}" ] || cp "$work/page" "$PAGE"
