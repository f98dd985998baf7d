#!/usr/bin/env bash
# Builds the image of both architectures with deploy/release/image.sh, pushes it to a registry on this machine, pulls the image of each
# architecture from there, and runs it (check_image in image_checks.sh). BASE=IMAGE uses another base than the stand-in.
# Needs root, and buildah, skopeo, umoci, runc, curl, openssl, qemu-user-static and docker-registry (apt), but no container engine.
# usage: run_image_index.sh FOLDER      deploy/release/build.sh FOLDER amd64 arm64 has created FOLDER
set -euo pipefail
[ $# -eq 1 ] || { sed -n '5p' "$0" >&2; exit 2; }
folder=$(realpath "$1")
for architecture in amd64 arm64; do
  [ -x "$folder/$architecture/trtllm-exporter" ] ||
    { echo "$0: $folder/$architecture/trtllm-exporter is missing; run deploy/release/build.sh $folder amd64 arm64" >&2; exit 1; }
done
# shellcheck source=tests/deploy/image_checks.sh
. "$(dirname "$0")/image_checks.sh"
need buildah skopeo umoci runc curl openssl qemu-aarch64-static qemu-x86_64-static docker-registry
use_own_storage

start_registry
provide_base amd64 arm64
"$repo/deploy/release/image.sh" "$folder" "$registry/trtllm-exporter"

version=$("$repo/deploy/release/version.sh")
image=docker://$registry/trtllm-exporter:$version
platforms=$(skopeo inspect --raw "$image" | python3 -c 'import json, sys
print(*sorted("{os}/{architecture}".format(**entry["platform"]) for entry in json.load(sys.stdin)["manifests"]))')
[ "$platforms" = "linux/amd64 linux/arm64" ] || { echo "the index has the platforms \"$platforms\" instead of linux/amd64 and linux/arm64"; exit 1; }
for architecture in amd64 arm64; do
  skopeo copy -q --override-arch "$architecture" "$image" "oci:$work/oci:$architecture"
  check_image "$work/oci:$architecture"
  [ "$checked" = "$architecture" ] || { echo "the index has the image for $checked as that for $architecture"; exit 1; }
done
echo "one index for $platforms, pushed to a registry and pulled again"
