#!/usr/bin/env bash
# Creates the root file system of an image for one glibc binary: the binary, its libraries and its user.
# usage: rootfs.sh BINARY ROOTFS      (ROOTFS must not exist yet)
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: $0 BINARY ROOTFS" >&2; exit 2; }
binary=$1 root=$2
[ -x "$binary" ] || { echo "$0: $binary is not an executable file; build it first (cargo build --release)" >&2; exit 1; }
[ ! -e "$root" ] || { echo "$0: $root exists already; remove it or choose another path" >&2; exit 1; }

install -D -m 0755 "$binary" "$root/usr/bin/trtllm-exporter"

# The libraries of the binary. `ldd` prints the path of the loader, and each library as "name => path".
libraries=$(ldd "$binary" | awk '$2 == "=>" && $3 ~ /^\// {print $3} $1 ~ /^\// {print $1}')
# NVML comes from the driver at run time. It needs these parts of glibc by name.
libc=$(awk '/\/libc\.so\.6$/ {print; exit}' <<<"$libraries")
[ -n "$libc" ] || { echo "$0: $binary does not link glibc, so it cannot load NVML; build it for a glibc target" >&2; exit 1; }
for name in libdl.so.2 libpthread.so.0 librt.so.1 libm.so.6; do
  libraries+=$'\n'$(dirname "$libc")/$name
done
sort -u <<<"$libraries" | while read -r library; do
  install -D -m 0755 "$(readlink -f "$library")" "$root$library"
done

install -d -m 0755 "$root/etc" "$root/proc" "$root/sys" "$root/dev"
install -d -m 1777 "$root/tmp"
install -d -m 0755 "$root/run"
# The folder of the default ingest socket. Another container reaches it through a shared volume.
install -d -m 0770 "$root/run/trtllm-exporter"
chown 65532:65532 "$root/run/trtllm-exporter" 2>/dev/null || chmod 1777 "$root/run/trtllm-exporter"
printf 'root:x:0:0:root:/:/nonexistent\nnonroot:x:65532:65532:nonroot:/:/nonexistent\n' > "$root/etc/passwd"
printf 'root:x:0:\nnonroot:x:65532:\n' > "$root/etc/group"
printf 'hosts: files dns\n' > "$root/etc/nsswitch.conf"
chmod 0644 "$root"/etc/*
