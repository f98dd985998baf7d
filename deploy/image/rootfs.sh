#!/usr/bin/env bash
# Creates the root file system of the image: the exporter, the Debian packages of packages.lock and the user.
# usage: rootfs.sh BINARY ROOTFS
# ROOTFS must not exist yet. third-party-licenses.txt, which deploy/release/binary.sh writes, must be in the folder of BINARY.
# If the SHA-256 of a package differs from packages.lock, the build fails. Downloaded packages are kept in the folder $PACKAGES
# (default: ~/.cache/trtllm-exporter).
# Debian's mirrors have only the newest version of each package. If a download fails with 404, run lock.sh for the new version. To
# build an old image again, set PACKAGE_URL to the archive of all versions; {archive} and {path} in it are replaced:
#   PACKAGE_URL='https://snapshot.debian.org/archive/{archive}/20261122T000000Z/{path}' rootfs.sh BINARY ROOTFS
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: $0 BINARY ROOTFS" >&2; exit 2; }
binary=$1 root=$2
lock=$(cd "$(dirname "$0")" && pwd)/packages.lock
packages=${PACKAGES:-${XDG_CACHE_HOME:-$HOME/.cache}/trtllm-exporter}
package_url=${PACKAGE_URL:-"https://deb.debian.org/{archive}/{path}"}
fail() { echo "$0: $*" >&2; exit 1; }
[ -x "$binary" ] || fail "$binary is not an executable file; build it first (deploy/release/binary.sh FOLDER)"
licenses=$(dirname "$binary")/third-party-licenses.txt
[ -s "$licenses" ] || fail "$licenses is missing; build the binary with deploy/release/binary.sh"
[ ! -e "$root" ] || fail "$root exists already; remove it or choose another path"
# The machine of an ELF file is the number in its bytes 18 and 19.
case $(od -An -tu2 -j18 -N2 "$binary" | tr -d ' ') in
  62) architecture=amd64 triplet=x86_64-linux-gnu loader=lib64/ld-linux-x86-64.so.2 ;;
  183) architecture=arm64 triplet=aarch64-linux-gnu loader=lib/ld-linux-aarch64.so.1 ;;
  *) fail "$binary is not a program for amd64 or arm64" ;;
esac
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

fetch() { # SHA-256 ARCHIVE PATH: downloads the package unless it is in $packages
  local file=$packages/${3##*/} url=$package_url
  if [ ! -e "$file" ]; then
    url=${url//\{archive\}/$2}
    curl --fail --silent --show-error --location --retry 5 --output "$work/package" "${url//\{path\}/$3}" ||
      fail "cannot download ${3##*/}; if the mirror has no such file, run deploy/image/lock.sh"
    mkdir -p "$packages"
    cp "$work/package" "$file.$$" && mv "$file.$$" "$file"
  fi
  echo "$1  $file" | sha256sum --check --quiet >/dev/null 2>&1 ||
    fail "$file differs from its SHA-256 in packages.lock; remove the file and build again"
}

count=0
while read -r of package _version sha256 archive path; do
  [ "$of" = "$architecture" ] || continue
  fetch "$sha256" "$archive" "$path"
  dpkg-deb --extract "$packages/${path##*/}" "$work/debian"
  # Scanners for vulnerabilities find the packages here, as in other images without a package manager.
  mkdir -p "$work/status.d"
  dpkg-deb --field "$packages/${path##*/}" >"$work/status.d/$package"
  count=$((count + 1))
done < <(grep -v '^#' "$lock")
[ "$count" -gt 0 ] || fail "packages.lock has no packages for $architecture"

# The image gets the shared libraries, the loader, the name of the distribution and the licences. It needs neither glibc's character
# sets nor its programs.
mkdir -p "$root/usr/lib/$triplet"
root=$(cd "$root" && pwd)
(
  cd "$work/debian"
  cp -a --parents "lib/$triplet"/*.so* "$loader" etc/os-release etc/debian_version usr/lib/os-release usr/share/common-licenses "$root"
  find usr/share/doc -name copyright -exec cp -a --parents {} "$root" \;
  # The folder of a package may be a link to that of another package with the same licence.
  find usr/share/doc -maxdepth 1 -type l -exec cp -a {} "$root/usr/share/doc" \;
)
# As Debian's update-ca-certificates does when the package is installed.
mkdir -p "$root/etc/ssl/certs"
find "$work/debian/usr/share/ca-certificates" -name '*.crt' -print0 | LC_ALL=C sort -z | xargs -0 cat >"$root/etc/ssl/certs/ca-certificates.crt"
mkdir -p "$root/var/lib/dpkg"
cp -r "$work/status.d" "$root/var/lib/dpkg/"
install -D -m 0755 "$binary" "$root/usr/bin/trtllm-exporter"
install -D -m 0644 -t "$root/usr/share/doc/trtllm-exporter" "$licenses" "$(dirname "$lock")/../../LICENSE"

# The binary must start with the libraries of the image. Only a machine of the same architecture can try.
if [ "$architecture" = "$(dpkg --print-architecture)" ]; then
  "$root/lib/$triplet/$(basename "$loader")" --inhibit-cache --library-path "$root/lib/$triplet" "$binary" --version >/dev/null ||
    fail "$binary does not run with the libraries of packages.lock; build it on Debian bookworm"
fi

install -d -m 0755 "$root/proc" "$root/sys" "$root/dev" "$root/run"
install -d -m 1777 "$root/tmp"
# The folder of the default ingest socket. Another container reaches it through a shared volume.
install -d -m 0770 "$root/run/trtllm-exporter"
chown 65532:65532 "$root/run/trtllm-exporter" 2>/dev/null || chmod 1777 "$root/run/trtllm-exporter"
printf 'root:x:0:0:root:/:/nonexistent\nnonroot:x:65532:65532:nonroot:/:/nonexistent\n' > "$root/etc/passwd"
printf 'root:x:0:\nnonroot:x:65532:\n' > "$root/etc/group"
printf 'hosts: files dns\n' > "$root/etc/nsswitch.conf"
chmod 0644 "$root"/etc/{passwd,group,nsswitch.conf}
echo "$root: $count Debian packages"
