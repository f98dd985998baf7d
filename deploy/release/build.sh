#!/usr/bin/env bash
# Builds a release: the exporter with its list of crates inside (cargo-auditable), a software bill of materials in CycloneDX
# (cargo-cyclonedx), and their SHA-256. Checks that both name the same crates. Installs the two tools if they are missing.
# usage: build.sh [FOLDER]      target/dist by default
# Later, `cargo audit bin trtllm-exporter` compares the exporter itself with the known vulnerabilities.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-target/dist}

tool() { # CRATE VERSION
  [ "$(cargo install --list | grep -c "^$1 v$2:")" = 1 ] ||
    CARGO_PROFILE_DEV_DEBUG=false cargo install --quiet --debug --locked --version "$2" "$1"
}
tool cargo-auditable 0.7.7
tool cargo-cyclonedx 0.5.9

cargo auditable build --release --locked --bin trtllm-exporter

# The same source gives the same SBOM: it contains neither the time of the build nor paths of the build machine. Both lists include
# the crates that only the build runs, such as procedural macros: they decide what the program contains, too.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
# cargo-cyclonedx writes one file beside the Cargo.toml of each crate of the workspace.
written() { find . -path '*/target' -prune -o -name release-sbom.json -print; }
trap 'written | xargs -r rm' EXIT
cargo cyclonedx --format json --spec-version 1.5 --override-filename release-sbom --quiet
mkdir -p "$folder"
cp "${CARGO_TARGET_DIR:-target}/release/trtllm-exporter" "$folder/"
sed "s#file://$PWD#file:///source#g" release-sbom.json >"$folder/trtllm-exporter.cdx.json"
python3 deploy/release/check.py "$folder/trtllm-exporter" "$folder/trtllm-exporter.cdx.json"
(cd "$folder" && sha256sum trtllm-exporter trtllm-exporter.cdx.json | tee SHA256SUMS)
