#!/usr/bin/env bash
# Builds the image of BINARY with deploy/release/image.sh twice, compares both images, and runs one of them (check_image in
# image_checks.sh). Needs root, and buildah, skopeo, umoci, runc, curl, openssl and docker-registry (apt), but no container engine. A
# BINARY for another architecture runs in an emulator (qemu-user-static).
# usage: run_image.sh BINARY [ARGUMENT...]      deploy/release/binary.sh has built BINARY; the arguments are those of the exporter
# PAGE=FILE keeps the page. BASE=IMAGE uses another base image than the stand-in of image_checks.sh.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '5p' "$0" >&2; exit 2; }
binary=$(realpath "$1"); shift
# shellcheck source=tests/deploy/image_checks.sh
. "$(dirname "$0")/image_checks.sh"
need buildah skopeo umoci runc curl openssl docker-registry
use_own_storage
architecture=$(architecture_of "$binary")
start_registry
provide_base "$architecture"
mkdir "$work/dist"
cp -r "$(dirname "$binary")" "$work/dist/$architecture"
digest() { "$repo/deploy/release/image.sh" "$work/dist" "oci:$work/oci" "$architecture" >"$work/log" || { cat "$work/log"; return 1; }; cat "$work/dist/image-digest"; }
first=$(TAG=one digest); second=$(TAG=two digest)
[ "$first" = "$second" ] || { echo "two builds of one binary differ: $first, $second"; exit 1; }
echo "two builds of one binary are identical"
skopeo copy -q --override-arch "$architecture" "oci:$work/oci:one" "oci:$work/pulled:one"
check_image "$work/pulled:one" "$@"
for program in trtllm-exporter trtllm-doctor; do
  python3 "$repo/deploy/release/licenses.py" check "$bundle/rootfs/usr/bin/$program" "$bundle/rootfs/usr/share/doc/trtllm-exporter/third-party-licenses.txt"
done
[ -z "${PAGE:-}" ] || cp "$work/page" "$PAGE"
