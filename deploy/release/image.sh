#!/usr/bin/env bash
# Builds the image of a release and pushes it: one index with an image for each architecture, so that each node pulls the right one.
# Writes the digest of the index to FOLDER/image-digest. Needs buildah, but no emulator: the build runs no program of the image.
# usage: image.sh FOLDER REPOSITORY [amd64|arm64]...
#   FOLDER       the output of deploy/release/build.sh
#   REPOSITORY   such as ghcr.io/OWNER/trtllm-exporter, or oci:PATH for a folder on this machine
# BASE selects another base image (deploy/image/Containerfile.binary). The tag is the version; TAG selects another one. TLS_VERIFY=false is
# for a registry without TLS.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '4,8p' "$0" >&2; exit 2; }
folder=$(realpath "$1") repository=$2
architectures=("${@:3}")
cd "$(dirname "$0")/../.."
version=$(deploy/release/version.sh)
if [ ${#architectures[@]} = 0 ]; then
  for architecture in amd64 arm64; do [ ! -x "$folder/$architecture/trtllm-exporter" ] || architectures+=("$architecture"); done
fi
[ ${#architectures[@]} -gt 0 ] || { echo "$0: $folder has no binary; run deploy/release/build.sh $folder" >&2; exit 1; }
revision=${TRTLLM_EXPORTER_REVISION:-$(git rev-parse HEAD)}
timestamp=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
index=trtllm-exporter-$$:$version
work=$(mktemp -d); trap 'rm -rf "$work"; buildah manifest rm "$index" >/dev/null 2>&1 || true' EXIT
tls=(${TLS_VERIFY:+"--tls-verify=$TLS_VERIFY"})
base=()
[ -z "${BASE:-}" ] || base=(--build-arg "BASE=$BASE")

buildah manifest create "$index" >/dev/null
for architecture in "${architectures[@]}"; do
  deploy/image/stage.sh "$folder/$architecture" "$work/$architecture"
  buildah bud --quiet "${tls[@]}" --timestamp "$timestamp" --platform "linux/$architecture" --manifest "$index" "${base[@]}" --build-arg "VERSION=$version" \
    --build-arg "REVISION=$revision" -f deploy/image/Containerfile.binary "$work/$architecture" >/dev/null
done
case $repository in oci:*) target=$repository ;; *) target=docker://$repository ;; esac
buildah manifest push --quiet "${tls[@]}" --all --digestfile "$folder/image-digest" "$index" "$target:${TAG:-$version}" >/dev/null
# buildah 1.28 ends with code 0 if the registry has no TLS.
[ -s "$folder/image-digest" ] || { echo "$0: nothing was pushed to $target; for a registry without TLS, set TLS_VERIFY=false" >&2; exit 1; }
echo "$target:${TAG:-$version} $(cat "$folder/image-digest")"
