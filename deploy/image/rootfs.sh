#!/usr/bin/env bash
# Lay out the files an image of one glibc binary needs: the binary, its libraries at their own paths, and who it runs as.
# usage: rootfs.sh BINARY ROOTFS      (ROOTFS must not exist yet)
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: $0 BINARY ROOTFS" >&2; exit 2; }
binary=$1 root=$2
[ -x "$binary" ] || { echo "$0: $binary is no executable file; build it first (cargo build --release)" >&2; exit 1; }
[ ! -e "$root" ] || { echo "$0: $root is there already; remove it or name another" >&2; exit 1; }

install -D -m 0755 "$binary" "$root/usr/bin/trtllm-exporter"

# What the binary links. `ldd` prints the loader with its own path and each library as "name => path".
libraries=$(ldd "$binary" | awk '$2 == "=>" && $3 ~ /^\// {print $3} $1 ~ /^\// {print $1}')
# NVML is loaded at run time from the driver, and links these parts of glibc by name.
libc=$(awk '/\/libc\.so\.6$/ {print; exit}' <<<"$libraries")
[ -n "$libc" ] || { echo "$0: $binary does not link glibc; NVML could not be loaded from it" >&2; exit 1; }
for name in libdl.so.2 libpthread.so.0 librt.so.1 libm.so.6; do
  libraries+=$'\n'$(dirname "$libc")/$name
done
sort -u <<<"$libraries" | while read -r library; do
  install -D -m 0755 "$(readlink -f "$library")" "$root$library"
done

install -d -m 0755 "$root/etc" "$root/proc" "$root/sys" "$root/dev"
install -d -m 1777 "$root/tmp"
install -d -m 0755 "$root/run"
# The default ingest socket's folder. Another container joins it by a shared volume.
install -d -m 0770 "$root/run/trtllm-exporter"
chown 65532:65532 "$root/run/trtllm-exporter" 2>/dev/null || chmod 1777 "$root/run/trtllm-exporter"
printf 'root:x:0:0:root:/:/nonexistent\nnonroot:x:65532:65532:nonroot:/:/nonexistent\n' > "$root/etc/passwd"
printf 'root:x:0:\nnonroot:x:65532:\n' > "$root/etc/group"
printf 'hosts: files dns\n' > "$root/etc/nsswitch.conf"
chmod 0644 "$root"/etc/*
