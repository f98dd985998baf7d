#!/usr/bin/env bash
# Builds the two programs, trtllm-exporter and trtllm-doctor, for one architecture. Each has its list of crates inside
# (cargo-auditable) and its software bill of materials in CycloneDX (cargo-cyclonedx). Also writes the licences of their crates. Checks
# that program and bill list the same crates, and that glibc 2.34 has each symbol that a program needs.
# usage: binary.sh FOLDER [amd64|arm64]      this machine's architecture by default
# Installs the two tools if they are missing. If g++-11 is installed (for arm64: g++-11-aarch64-linux-gnu), it compiles the C++ code,
# because the runtime library of later releases needs glibc 2.35.
# Users can then run `cargo audit bin trtllm-exporter` to compare the exporter with the known vulnerabilities.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || { sed -n '5p' "$0" >&2; exit 2; }
folder=$1 architecture=${2:-$(dpkg --print-architecture)}
case $architecture in
  amd64) cpu=x86_64 ;;
  arm64) cpu=aarch64 ;;
  *) echo "$0: $architecture: unknown architecture; use amd64 or arm64" >&2; exit 2 ;;
esac
target=$cpu-unknown-linux-gnu

tool() { # CRATE VERSION
  [ "$(cargo install --list | grep -c "^$1 v$2:")" = 1 ] ||
    CARGO_PROFILE_DEV_DEBUG=false cargo install --quiet --debug --locked --version "$2" "$1"
}
tool cargo-auditable 0.7.7
tool cargo-cyclonedx 0.5.9
[ "$architecture" = "$(dpkg --print-architecture)" ] || rustup --quiet target add "$target"

# The commit, unless the caller sets it. A tree with changes is marked, because it is not the state of its commit.
if [ -z "${TRTLLM_EXPORTER_REVISION:-}" ] && git rev-parse --git-dir >/dev/null 2>&1; then
  TRTLLM_EXPORTER_REVISION=$(git rev-parse HEAD)
  [ -z "$(git status --porcelain)" ] || TRTLLM_EXPORTER_REVISION+=-modified
  TRTLLM_EXPORTER_COMMIT_DATE=$(git log -1 --format=%cs)
  export TRTLLM_EXPORTER_REVISION TRTLLM_EXPORTER_COMMIT_DATE
fi
# Builds of the same source give identical files, without the time of the build and without paths of the build machine.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
built=$(realpath -m "${CARGO_TARGET_DIR:-target}") home=${CARGO_HOME:-$HOME/.cargo}
export RUSTFLAGS="--remap-path-prefix=$PWD=/source --remap-path-prefix=$built=/source/target --remap-path-prefix=$home=/cargo ${RUSTFLAGS:-}"
maps="-ffile-prefix-map=$PWD=/source -ffile-prefix-map=$built=/source/target -ffile-prefix-map=$home=/cargo"
# Every build sets the compilers of both architectures, so that the builds share the crates that are compiled for this machine.
for cpu in x86_64 aarch64; do
  compiler=$cpu-linux-gnu underscored=${cpu}_unknown_linux_gnu
  command -v "$compiler-g++-11" >/dev/null || continue
  export "CC_$underscored=$compiler-gcc-11" "CXX_$underscored=$compiler-g++-11"
  export "CFLAGS_$underscored=$maps" "CXXFLAGS_$underscored=$maps"
  export "CARGO_TARGET_$(tr '[:lower:]' '[:upper:]' <<<"$underscored")_LINKER=$compiler-gcc-11"
done
compiler=CXX_${target//-/_}
if [ -z "${!compiler:-}" ] && [ "$architecture" != "$(dpkg --print-architecture)" ]; then
  echo "$0: no C++ cross compiler for $architecture; install the Debian package g++-11-${target%%-*}-linux-gnu" >&2
  exit 1
fi

# One after the other: cargo would unite the features of packages that it builds together, and the doctor needs no Executor.
for program in trtllm-exporter trtllm-doctor; do
  cargo auditable build --release --locked --target "$target" --package "$program" --bin "$program"
done

# The list in the program and the bill include crates that run only during the build, because these influence the program too.
# cargo-cyclonedx writes one file beside the Cargo.toml of each crate of the workspace.
written() { find . -path '*/target' -prune -o -name release-sbom.json -print; }
trap 'written | xargs -r rm' EXIT
# It also unites the features of the workspace, so the doctor's bill is written without those of the exporter.
bills() { cargo cyclonedx --format json --spec-version 1.5 --override-filename release-sbom --target "$target" --quiet "$@"; }
mkdir -p "$folder"
for program in trtllm-exporter trtllm-doctor; do
  case $program in
    trtllm-exporter) bill=release-sbom.json; bills ;;
    trtllm-doctor) bill=crates/doctor/release-sbom.json; bills --no-default-features ;;
  esac
  cp "$built/$target/release/$program" "$folder/"
  sed "s#file://$PWD#file:///source#g" "$bill" >"$folder/$program.cdx.json"
  python3 deploy/release/check.py "$folder/$program" "$folder/$program.cdx.json"
  deploy/release/glibc.sh "$folder/$program" "${GLIBC:-2.34}"
done
python3 deploy/release/licenses.py write "$target" "$folder/third-party-licenses.txt" "$folder"/trtllm-{exporter,doctor}
