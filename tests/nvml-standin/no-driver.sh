#!/usr/bin/env bash
# Runs the exporter with Debian's libnvidia-ml1 on a machine without a driver: it must report the missing driver and serve
# its page. The package comes from non-free through a separate apt configuration; it is only unpacked, and deleted at the end.
# Usage: tests/nvml-standin/no-driver.sh   (needs Debian, its mirror, cargo and curl)
set -euo pipefail
cd "$(dirname "$0")/../.."
[ ! -e /proc/driver/nvidia/version ] || { echo "no-driver.sh: this machine has an NVIDIA driver" >&2; exit 1; }

work=$(mktemp -d)
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true; rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,archives/partial,debs,root}
# shellcheck disable=SC2016  # a variable of apt, not of the shell
for mirror in $(apt-get indextargets --format '$(SITE)' | awk '!seen[$0]++'); do
    . /etc/os-release
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $VERSION_CODENAME non-free" >"$work/sources.list"
    options=(-q -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$work/lists" -o "Dir::Cache::Archives=$work/archives"
        -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=)
    apt-get "${options[@]}" update >"$work/apt.log" 2>&1 || continue
    (cd "$work/debs" && apt-get "${options[@]}" download libnvidia-ml1) >>"$work/apt.log" 2>&1 && break
done
package=$(ls "$work"/debs/*.deb 2>/dev/null) || { tail -n 3 "$work/apt.log" >&2; echo "no-driver.sh: cannot download libnvidia-ml1" >&2; exit 1; }
dpkg --extract "$package" "$work/root"
library=$(find "$work/root" -name 'libnvidia-ml.so.[0-9]*' -type f | head -n 1)

cargo build --quiet
target/debug/trtllm-exporter --source "socket:$work/ingest.sock" --gpu.library "$library" --web.listen-address 127.0.0.1:0 \
    --web.port-file "$work/port" 2>"$work/log" &
daemon=$!
for _ in $(seq 300); do [ -s "$work/port" ] && break; sleep 0.1; done
page() { curl -s "http://$(head -n 1 "$work/port")/metrics"; }
for _ in $(seq 300); do page | grep -q '^trtllm_exporter_nvml_state{state="driver_not_loaded"} 1$' && break; sleep 0.1; done
page | grep '^trtllm_exporter_nvml_\(up\|state{state="driver_not_loaded"}\|init_errors_total\)'
page | grep -q '^trtllm_exporter_nvml_state{state="driver_not_loaded"} 1$'
grep -o 'reason="[^"]*"' "$work/log"
if target/debug/trtllm-exporter --source "socket:$work/other.sock" --gpu required --gpu.library "$library" 2>"$work/log"; then
    echo "no-driver.sh: --gpu required started without a driver" >&2
    exit 1
fi
grep 'the NVIDIA driver is not loaded' "$work/log"
kill -TERM "$daemon"
wait "$daemon" && daemon=
