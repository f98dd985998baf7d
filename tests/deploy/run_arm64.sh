#!/usr/bin/env bash
# Runs the exporter for arm64 in an emulator on an x86-64 machine: it must serve a simulated engine and stop at SIGTERM.
# Needs qemu-user-static and libc6-arm64-cross (apt).    usage: run_arm64.sh BINARY
set -euo pipefail
binary=$1
if [ ! -d /usr/aarch64-linux-gnu ] || ! command -v qemu-aarch64-static >/dev/null; then
  echo "skipped: qemu-user-static or libc6-arm64-cross is not installed"
  exit 77
fi
work=$(mktemp -d); process=""
trap '[ -z "$process" ] || kill -KILL "$process" 2>/dev/null || true; rm -rf "$work"' EXIT
qemu-aarch64-static -L /usr/aarch64-linux-gnu "$binary" --source=sim: --gpu=off --web.listen-address=127.0.0.1:0 --web.port-file="$work/port" 2>"$work/log" &
process=$!
iterations=""
for _ in $(seq 150); do
  if [ -s "$work/port" ]; then curl -fsS -o "$work/page" "http://$(cat "$work/port")/metrics" 2>/dev/null || true; fi
  iterations=$(sed -n 's/^nv_trt_llm_iterations_total{.*} //p' "$work/page" 2>/dev/null || true)
  [ "${iterations:-0}" -gt 0 ] && break
  sleep 0.2
done
[ "${iterations:-0}" -gt 0 ] || { echo "the simulated engine has no iterations:"; cat "$work/log"; exit 1; }
kill -TERM "$process"; wait "$process" && code=0 || code=$?
process=""
[ "$code" = 0 ] || { echo "exit code $code after SIGTERM instead of 0"; cat "$work/log"; exit 1; }
echo "arm64: $iterations iterations and $(grep -vc '^#' "$work/page") series, exit code 0 after SIGTERM"
