#!/usr/bin/env bash
# Boots a real systemd in a container, installs deploy/systemd with BINARY as its header describes, and checks the service:
# start notification, sandbox, scrape, access to the socket by its group only, restart after a kill, stop.
# Needs root and systemd-container and debootstrap (apt).    usage: run_systemd.sh BINARY ROOT
# Creates the root file system ROOT if it is missing, which takes about a minute.
set -euo pipefail
binary=$1 root=$2
repo=$(cd "$(dirname "$0")/../.." && pwd)
for tool in systemd-nspawn debootstrap; do
  command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
if [ ! -d "$root/usr" ]; then
  # shellcheck disable=SC2016 # a placeholder of apt, not of the shell
  mirror=$(apt-get indextargets --format '$(SITE)' | head -n 1)
  debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,ca-certificates,curl bookworm "$root" "$mirror" >/dev/null
fi
install -m 0755 "$binary" "$root/usr/bin/trtllm-exporter"
install -D -m 0644 "$repo/deploy/systemd/trtllm-exporter.service" "$root/etc/systemd/system/trtllm-exporter.service"
install -D -m 0644 "$repo/deploy/systemd/trtllm-exporter.sysusers" "$root/etc/sysusers.d/trtllm-exporter.conf"
install -D -m 0644 "$repo/deploy/systemd/trtllm-exporter.default" "$root/etc/default/trtllm-exporter"
[ -z "${ARGS+set}" ] || printf 'ARGS="%s"\n' "$ARGS" > "$root/etc/default/trtllm-exporter"
cat > "$root/root/check.sh" <<'CHECK'
#!/bin/bash
exec > /root/results.txt 2>&1
systemctl start trtllm-exporter; echo "start=$?"
show() { systemctl show trtllm-exporter -p "$1" --value; }
echo "type=$(show Type) active=$(show ActiveState) status=$(show StatusText)"
grep -E '^(CapBnd|NoNewPrivs|Seccomp):' "/proc/$(show MainPID)/status" | tr -s '\t\n' ' '; echo
echo "user=$(ps -o user:20= -p "$(show MainPID)" 2>/dev/null || stat -c %U "/proc/$(show MainPID)")"
for _ in $(seq 50); do curl -fsS -o /root/page http://127.0.0.1:8002/metrics && break; sleep 0.1; done
echo "page=$(grep -vc '^#' /root/page)"
useradd -G trtllm-exporter server 2>/dev/null; useradd other 2>/dev/null
try() { setpriv --reuid="$1" --regid="$1" --init-groups curl -s --max-time 1 --unix-socket /run/trtllm-exporter/ingest.sock http://x/ ; c=$?; [ $c = 7 ] && echo refused || echo connected; }
echo "socket=$(stat -c '%a %U' /run/trtllm-exporter/ingest.sock) member=$(try server) other=$(try other)"
kill -KILL "$(show MainPID)"; sleep 3.5; echo "after-kill=$(show ActiveState) restarts=$(show NRestarts)"
systemctl stop trtllm-exporter; echo "result=$(show Result)"
journalctl -u trtllm-exporter --no-pager -o cat
systemctl poweroff --no-block
CHECK
chmod +x "$root/root/check.sh"
cat > "$root/etc/systemd/system/check.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/root/check.sh
UNIT
mkdir -p "$root/etc/systemd/system/default.target.wants"
ln -sf ../check.service "$root/etc/systemd/system/default.target.wants/check.service"
rm -f "$root/root/results.txt" "$root/root/page"
timeout 90 systemd-nspawn -q -D "$root" --register=no --keep-unit --private-network --boot --console=pipe </dev/null >/dev/null 2>&1 || true
results=$root/root/results.txt
[ -s "$results" ] || { echo "the container did not boot"; exit 1; }
cat "$results"
[ -z "${PAGE:-}" ] || cp "$root/root/page" "$PAGE"
for expected in '^start=0' '^type=notify active=active' 'CapBnd: 0000000000000000 NoNewPrivs: 1 Seccomp: 2' '^user=trtllm-exporter' \
  '^page=[1-9]' 'member=connected other=refused' '^after-kill=active restarts=1' '^result=success'; do
  grep -q -- "$expected" "$results" || { echo "missing: $expected"; exit 1; }
done
