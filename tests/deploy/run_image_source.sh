#!/usr/bin/env bash
# Builds deploy/image/Containerfile, which compiles the exporter, and runs the image (check_image in image_checks.sh).
# Does not pull the base image, rust:VERSION-bookworm, but builds a stand-in with this name: a small Debian with the compiler, the
# tools that the build uses, and Rust from rustup in the same folders. The stand-in has fewer packages than the original.
# Needs root, and buildah, skopeo, umoci, runc, curl, openssl, docker-registry, debootstrap (apt) and rustup, but no container engine. Takes 12 minutes on 2 cores,
# and 6 GiB in the folder of temporary files.      usage: run_image_source.sh [ARGUMENT...]      the arguments are those of the exporter
set -euo pipefail
# shellcheck source=tests/deploy/image_checks.sh
. "$(dirname "$0")/image_checks.sh"
need buildah skopeo umoci runc curl openssl docker-registry debootstrap rustup
use_own_storage
start_registry
provide_base "$(dpkg --print-architecture)"
cd "$repo"
containerfile=deploy/image/Containerfile
RUST_VERSION=$(sed -n 's/^ARG RUST_VERSION=//p' $containerfile)
base=rust:$RUST_VERSION-bookworm
# shellcheck disable=SC2016 # the text of the file contains the placeholder
grep -qx 'FROM rust:${RUST_VERSION}-bookworm AS build' $containerfile || { echo "$containerfile has another base image; change $0"; exit 1; }

root=$work/base
# shellcheck disable=SC2016 # a placeholder of apt, not of the shell
mirror=$(apt-get indextargets --format '$(SITE)' | head -n 1)
debootstrap --variant=minbase --include=ca-certificates,curl,dpkg-dev,g++,git,python3 bookworm "$root" "$mirror" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
# Copies the CA certificates of this machine, and its configuration of cargo, which may name another registry of crates.
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
mkdir -p "$root"/usr/local/{cargo/bin,rustup}
[ ! -e "${CARGO_HOME:-$HOME/.cargo}/config.toml" ] || cp "${CARGO_HOME:-$HOME/.cargo}/config.toml" "$root/usr/local/cargo/"
for name in rustup cargo rustc; do cp -L "$(command -v rustup)" "$root/usr/local/cargo/bin/$name"; done
(
  export RUSTUP_HOME=$root/usr/local/rustup CARGO_HOME=$root/usr/local/cargo
  rustup --quiet toolchain install "$RUST_VERSION" --profile minimal --no-self-update && rustup --quiet default "$RUST_VERSION"
) >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cat >"$work/Containerfile.base" <<'BASE'
FROM scratch
COPY base/ /
ENV RUSTUP_HOME=/usr/local/rustup CARGO_HOME=/usr/local/cargo PATH=/usr/local/cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
BASE
buildah bud -q -f "$work/Containerfile.base" -t "$base" "$work" >/dev/null
rm -rf "$root"
echo "stand-in for $base: built in $SECONDS s"

revision=$(git rev-parse HEAD)
buildah bud --pull=missing --timestamp 0 --ignorefile $containerfile.dockerignore -f $containerfile -t source:test --build-arg "BASE=$BASE" --build-arg "REVISION=$revision" \
  --build-arg "COMMIT_DATE=$(git log -1 --format=%cs)" --build-arg "SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)" . >"$work/log" 2>&1 ||
  { tail -n 40 "$work/log"; exit 1; }
buildah push -q source:test "oci:$work/oci:test"
check_image "$work/oci:test" "$@"
grep -q "^trtllm_exporter_build_info{.*revision=\"$revision\"" "$work/page" || { echo "the program does not have the revision of --build-arg"; exit 1; }
echo "built from source in $SECONDS s"
