#!/usr/bin/env bash
# Writes what the image adds to its base: the exporter, the doctor, their licences, and the folder of the default ingest socket.
# usage: stage.sh BUILT CONTEXT      BUILT is the output of deploy/release/binary.sh; CONTEXT is the folder for Containerfile.binary
set -euo pipefail
[ $# -eq 2 ] || { sed -n '3p' "$0" >&2; exit 2; }
built=$1 context=$2 license=$(dirname "$0")/../../LICENSE
for file in trtllm-exporter trtllm-doctor third-party-licenses.txt; do
  [ -s "$built/$file" ] || { echo "$0: $built/$file is missing; build it first (deploy/release/binary.sh $built)" >&2; exit 1; }
done
umask 022
install -D -m 0755 -t "$context/rootfs/usr/bin" "$built"/trtllm-{exporter,doctor}
install -D -m 0644 -t "$context/rootfs/usr/share/doc/trtllm-exporter" "$built/third-party-licenses.txt" "$license"
# In the image, this folder belongs to the exporter's user. Other containers reach the socket through a shared volume.
install -d -m 0770 "$context/run/trtllm-exporter"
