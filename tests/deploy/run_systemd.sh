#!/usr/bin/env bash
# Boots a real systemd in a container and installs the .deb there, as systemd_checks.sh describes: start notification, sandbox,
# scrape, group of the ingest socket, reload, watchdog, socket activation, TLS by credentials, upgrade, removal and purge.
# Needs root, and systemd-container and debootstrap (apt).    usage: run_systemd.sh PACKAGE.deb ROOT
# Creates the root file system ROOT if it is missing, which takes about a minute.
set -euo pipefail
deb=$1 root=$2
here=$(cd "$(dirname "$0")" && pwd)
for tool in systemd-nspawn debootstrap; do
  command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
if [ ! -d "$root/usr" ]; then
  # shellcheck disable=SC2016 # a placeholder of apt, not of the shell
  mirror=$(apt-get indextargets --format '$(SITE)' | head -n 1)
  debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,ca-certificates,curl bookworm "$root" "$mirror" >/dev/null
fi
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cp "$deb" "$root/root/first.deb"
# An upgrade whose default file differs: dpkg must keep the changed one of the machine.
dpkg-deb --raw-extract "$deb" "$work/second"
sed -i 's/^Version: .*/&+upgrade/' "$work/second/DEBIAN/control"
echo "# A line of the newer package" >>"$work/second/etc/default/trtllm-exporter"
dpkg-deb --root-owner-group -Znone --build "$work/second" "$root/root/second.deb" >/dev/null
install -m 0755 "$here/systemd_checks.sh" "$root/root/check.sh"
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
timeout "${LIMIT:-180}" systemd-nspawn -q -D "$root" --register=no --keep-unit --private-network --boot --console=pipe </dev/null >/dev/null 2>&1 || true
results=$root/root/results.txt
[ -s "$results" ] || { echo "the container did not boot"; exit 1; }
sed '/^== journal/,$d' "$results"
[ -z "${PAGE:-}" ] || cp "$root/root/page" "$PAGE"
missing=0
while read -r expected; do
  grep -qE -- "$expected" "$results" || { echo "missing: $expected"; missing=1; }
done <<'EXPECTED'
^install=0
^installed: type=notify active=active enabled=enabled status=listening on
^sockets: disabled disabled
CapBnd: 0000000000000000 NoNewPrivs: 1 Seccomp: 2
^user=trtllm-exporter
^exposure=(0\.[0-9]|1\.[0-5])$
^page=[1-9]
^own socket=660 trtllm-exporter trtllm-exporter member=connected other=refused
^after-kill=active restarts=1
^reload=0
^reloaded=in-place
^watchdog fed: restarts=0
^after-stop=active restarts=1
Watchdog timeout
^before=inactive socket=660 trtllm-exporter trtllm-exporter
^by-page=active
^stopped=inactive
^member=connected other=refused
^by-publisher=active
^restarts without socket: refused scrapes=0
^published=counted
^tls=1 key=600 root
^upgrade=0
^configuration=kept
^upgraded: active=active new-process=yes sockets=enabled
^remove=0 active=inactive configuration=/etc/default/trtllm-exporter
^purge=0
^left=nothing
^units=0
EXPECTED
[ "$missing" = 0 ] || { sed -n '/^== journal/,$p' "$results"; exit 1; }
echo "all checks passed in a booted systemd"
