#!/usr/bin/env bash
# Tests a whole release on this machine, without an external service. Builds all files, pushes image and chart to a registry on this
# machine, and installs each artefact in a fresh system, scrapes it and removes it. Prints a line per step and the sizes of the files.
# usage: dry-run.sh [--built FOLDER] [amd64|arm64]...
#   --built FOLDER    uses the output of an earlier deploy/release/build.sh
# DEBIAN=FOLDER keeps the Debian system for testing packages, so that the next run can use it. BASE=IMAGE selects a base image instead
# of the substitute that tests/deploy/image_checks.sh builds.
# Needs root, everything that build.sh needs, and: buildah skopeo umoci runc docker-registry curl openssl cmake prometheus debootstrap
# systemd-container (apt), and target/tools/{helm,manifests} (tests/deploy/kubernetes.sh --build-tools). Packages for an
# architecture other than this machine's are not installed; the image for that architecture runs in an emulator.
set -euo pipefail
folder="" architectures=()
while [ $# -gt 0 ]; do
  case $1 in
    --built) folder=$(realpath "${2:?--built needs a folder}"); shift ;;
    amd64 | arm64) architectures+=("$1") ;;
    *) sed -n '4,5p' "$0" >&2; exit 2 ;;
  esac
  shift
done
# shellcheck source=tests/deploy/image_checks.sh
. "$(dirname "$0")/../../tests/deploy/image_checks.sh"
# shellcheck source=tests/deploy/artefacts.sh
. "$repo/tests/deploy/artefacts.sh"
need buildah skopeo umoci runc docker-registry curl openssl cmake promtool debootstrap systemd-nspawn rpm
export HELM=${HELM:-$repo/target/tools/helm}
need "$HELM" "$repo/target/tools/manifests"
cd "$repo"
architecture=$(dpkg --print-architecture)
[ ${#architectures[@]} -gt 0 ] || architectures=("$architecture")
version=$(deploy/release/version.sh)
cpu=x86_64; [ "$architecture" = amd64 ] || cpu=aarch64
failed=0

step() { # NAME FILE COMMAND...: runs the command and prints its last lines
  local name=$1 file=$2
  shift 2
  if "$@" >"$work/step" 2>&1; then
    echo "ok    $name ($SECONDS s)${file:+, $(($(stat -c %s "$folder/$file") / 1024)) KiB}"
    sed 's/^/        /' "$work/step" | tail -n 8
  else
    failed=1; echo "FAIL  $name"; sed 's/^/        /' "$work/step"
  fi
}

if [ -z "$folder" ]; then
  folder=$repo/target/dist
  step "build" "" deploy/release/build.sh "$folder" "${architectures[@]}"
fi
hashes() { (cd "$folder" && sha256sum --check --quiet SHA256SUMS && wc -l <SHA256SUMS); }
step "hashes" SHA256SUMS hashes
notes() { [ -s "$folder/release-notes.md" ] && wc -l "$folder/release-notes.md"; }
step "release notes" release-notes.md notes
use_own_storage
start_registry
provide_base "${architectures[@]}"
bill() { python3 deploy/release/check.py "$folder/$architecture/trtllm-exporter" "$folder/$1"; }
step "bill of materials" "trtllm-exporter-$version.linux-$architecture.cdx.json" bill "trtllm-exporter-$version.linux-$architecture.cdx.json"
one() { local file=$1; shift; step "$1: $file" "$file" "$1" "$folder/$file"; }
one "trtllm-exporter-$version.linux-$architecture.tar.gz" tarball
one "trtllm-exporter_$version-1_$architecture.deb" package
one "trtllm-exporter-$version-1.$cpu.rpm" package
one "trtllm-exporter_$version-1_$architecture.deb" repository
one "trtllm_exporter_publisher-$version-py3-none-any.whl" wheel
one "trtllm-exporter-cpp-$version.tar.gz" cpp
step "image (${architectures[*]})" "" image
step "chart: oci://$registry/charts/trtllm-exporter" "trtllm-exporter-chart-$version.tgz" chart
one "trtllm-exporter-monitoring-$version.tar.gz" monitoring
[ $failed = 0 ] || exit 1
echo "everything installed, scraped and removed in $SECONDS s; not tried: signing, attestations, public registries"
