#!/usr/bin/env bash
# Builds the image of both architectures with the commands of docs/install.md ("Build the image"), pushes it to a registry on this
# machine, pulls the image of each architecture from there, and runs it (check_image in image_checks.sh).
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

registry=127.0.0.1:$(python3 "$repo/tests/judges/free_port.py")
# A certificate that only this script trusts: buildah pushes to a registry without TLS only with another flag than in the document.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=registry -addext subjectAltName=IP:127.0.0.1 -days 1 \
  -keyout "$work/tls.key" -out "$work/tls.crt" 2>/dev/null
cat "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$work/tls.crt" >"$work/authorities.crt"
export SSL_CERT_FILE=$work/authorities.crt
cat >"$work/registry.yml" <<CONFIGURATION
version: 0.1
log: {level: error}
storage: {filesystem: {rootdirectory: $work/registry}}
http: {addr: "$registry", tls: {certificate: $work/tls.crt, key: $work/tls.key}}
CONFIGURATION
docker-registry serve "$work/registry.yml" >"$work/registry.log" 2>&1 & server=$!
trap 'kill "$server" 2>/dev/null || true; clean_up' EXIT
for _ in $(seq 50); do curl -fsS --cacert "$work/tls.crt" "https://$registry/v2/" >/dev/null 2>&1 && break; sleep 0.1; done

# The block of commands that has `buildah manifest`, with other names for the registry and the folders.
commands=$(awk '/^```sh$/ { block = ""; inside = 1; next } /^```$/ { if (block ~ /buildah manifest create/) print block; inside = 0 } inside { block = block $0 "\n" }' "$repo/docs/install.md")
[ -n "$commands" ] || { echo "docs/install.md has no commands with: buildah manifest create"; exit 1; }
commands=${commands//YOUR-REGISTRY/$registry}
commands=${commands//target\/dist/$folder}
commands=${commands//target\/image/$work/image}
(cd "$repo" && bash -euo pipefail -c "$commands") >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }

version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$repo/Cargo.toml" | head -n 1)
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
