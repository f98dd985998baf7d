#!/usr/bin/env bash
# Builds deploy/image/Containerfile.binary with BINARY, runs it with a read-only root, no capability and uid 65532, and
# scrapes it. Needs buildah, umoci, runc and curl (apt), but no container engine.   usage: run_image.sh BINARY [ARGUMENT...]
# BINARY is one that deploy/release/binary.sh has built.
set -euo pipefail
binary=$1; shift
repo=$(cd "$(dirname "$0")/../.." && pwd)
for tool in buildah umoci runc curl; do
  command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
work=$(mktemp -d); id=trtllm-$$
export XDG_RUNTIME_DIR=$work/xdg; mkdir -m 0700 "$XDG_RUNTIME_DIR"
cleanup() {
  runc --root "$work/runc" kill "$id" KILL >/dev/null 2>&1 || true
  runc --root "$work/runc" delete -f "$id" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT
"$repo/deploy/image/rootfs.sh" "$binary" "$work/context/rootfs"
python3 "$repo/deploy/release/licenses.py" check "$binary" "$work/context/rootfs/usr/share/doc/trtllm-exporter/third-party-licenses.txt"
# A package that differs from its entry ends the build.
cp -r "$repo/deploy/image" "$work/changed"
sed -i -E 's/^([a-z0-9]+ libc6 [^ ]+ )[0-9a-f]{4}/\10000/' "$work/changed/packages.lock"
if "$work/changed/rootfs.sh" "$binary" "$work/rootfs" 2>"$work/refused" || ! grep -q SHA-256 "$work/refused"; then
  echo "a package with another SHA-256 is accepted"; exit 1
fi
store=(buildah --root "$work/store" --runroot "$work/run" --storage-driver vfs)
build() { "${store[@]}" bud -q --isolation chroot --format oci --timestamp 0 -f "$repo/deploy/image/Containerfile.binary" -t "$1" "$work/context"; }
first=$(build one:test); second=$(build two:test)
[ "$first" = "$second" ] || { echo "two builds of one binary differ"; exit 1; }
"${store[@]}" push -q one:test "oci:$work/oci:test"
umoci unpack --image "$work/oci:test" "$work/bundle" >/dev/null 2>&1
python3 - "$work/bundle/config.json" "$@" <<'PYTHON'
import json, sys
file, arguments = sys.argv[1], sys.argv[2:]
config = json.load(open(file))
process = config["process"]
process.update(terminal=False, rlimits=[], noNewPrivileges=True)
process["args"] = process["args"][:1] + arguments
process["capabilities"] = {kind: [] for kind in process.get("capabilities", {})}
assert process["user"]["uid"] == 65532 and process["user"]["gid"] == 65532, process["user"]
config["root"]["readonly"] = True
linux = config["linux"]
linux.pop("resources", None)
config["mounts"] = [mount for mount in config["mounts"] if mount["type"] != "cgroup"]
config["mounts"].append({"destination": "/run/trtllm-exporter", "type": "tmpfs", "source": "tmpfs",
                         "options": ["nosuid", "nodev", "mode=0770", "uid=65532", "gid=65532"]})
linux["namespaces"] = [space for space in linux["namespaces"] if space["type"] != "network"]  # the host can scrape it
json.dump(config, open(file, "w"))
PYTHON
runc --root "$work/runc" run --bundle "$work/bundle" "$id" </dev/null >"$work/log" 2>&1 & runner=$!
port=${PORT:-8002}
for _ in $(seq 50); do
  curl -fsS -o "$work/page" "http://127.0.0.1:$port/metrics" 2>/dev/null && break
  kill -0 "$runner" 2>/dev/null || break
  sleep 0.1
done
[ -s "$work/page" ] || { echo "no page from the container:"; cat "$work/log"; exit 1; }
began=$(date +%s%N)
runc --root "$work/runc" kill "$id" TERM
wait "$runner" && code=0 || code=$?
took=$(( ($(date +%s%N) - began) / 1000000 ))
[ "$code" = 0 ] || { echo "exit code $code after SIGTERM instead of 0"; cat "$work/log"; exit 1; }
size=$(du -sk "$work/context/rootfs" | cut -f1)
echo "image of $((size / 1024)) MiB, two identical builds, ran read-only as 65532, $(grep -vc '^#' "$work/page") series, SIGTERM to exit ${took} ms"
[ -z "${PAGE:-}" ] || cp "$work/page" "$PAGE"
