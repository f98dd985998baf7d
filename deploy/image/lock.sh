#!/usr/bin/env bash
# Writes packages.lock: the newest version of each Debian package of the image, with the SHA-256 of its file.
# usage: lock.sh      Review the change, build the image, and commit the file.
# Needs apt. It reads Debian's package lists into a temporary folder and checks their signatures; nothing is installed, and the
# package sources of this machine are not used.
set -euo pipefail
cd "$(dirname "$0")"
release=bookworm architectures=(amd64 arm64)
# glibc and libgcc for the exporter and NVML; the authorities that https sources trust; the file that names the distribution; the
# licences of all of these.
packages=(base-files ca-certificates gcc-12-base libc6 libgcc-s1)
mirror=${DEBIAN_MIRROR:-https://deb.debian.org}

work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,archives/partial,empty}
key="[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
cat >"$work/sources.list" <<SOURCES
deb $key $mirror/debian $release main
deb $key $mirror/debian $release-updates main
deb $key $mirror/debian-security $release-security main
SOURCES
lines=()
for architecture in "${architectures[@]}"; do
  options=(-q -o Acquire::Retries=5 -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture"
    -o "Dir::Etc::SourceList=$work/sources.list" -o "Dir::Etc::SourceParts=$work/empty" -o "Dir::Etc::PreferencesParts=$work/empty"
    -o "Dir::State::Lists=$work/lists" -o "Dir::Cache::Archives=$work/archives" -o "Dir::State::Status=/dev/null"
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=)
  apt-get "${options[@]}" update >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  for package in "${packages[@]}"; do
    found=$(apt-cache "${options[@]}" --no-all-versions show "$package")
    field() { sed -n "s/^$1: //p" <<<"$found"; }
    path=$(field Filename)
    # Security updates are in an archive of their own.
    case $path in pool/updates/*) archive=debian-security ;; *) archive=debian ;; esac
    lines+=("$architecture $package $(field Version) $(field SHA256) $archive $path")
  done
done
{
  echo "# Written by lock.sh. The Debian $release packages of the image, which rootfs.sh downloads and checks."
  echo "# architecture package version SHA-256 archive path"
  printf '%s\n' "${lines[@]}"
} >"$work/packages.lock"
cp "$work/packages.lock" packages.lock
echo "packages.lock: ${#lines[@]} packages"
