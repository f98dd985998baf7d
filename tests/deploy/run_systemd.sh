#!/usr/bin/env bash
# Boots a real systemd in a container and installs the .deb or the .rpm there, as systemd_checks.sh describes: start notification,
# sandbox, scrape, group of the ingest socket, reload, watchdog, socket activation, TLS by credentials, upgrade and removal.
# Needs root, and systemd-container and debootstrap (apt); for an .rpm also rpm and cpio.
# usage: run_systemd.sh PACKAGE.deb|PACKAGE.rpm ROOT
# Creates the root file system ROOT if it is missing, which takes about a minute. ROOT is a Debian even for the .rpm. Its rpm database
# does not contain glibc, so rpm cannot check dependencies. Instead, this script compares the glibc version that the package requires.
set -euo pipefail
[ $# -eq 2 ] || { sed -n '5p' "$0" >&2; exit 2; }
package=$1 root=$2 kind=${1##*.}
here=$(cd "$(dirname "$0")" && pwd)
tools=(systemd-nspawn debootstrap)
case $kind in
  deb) ;;
  rpm) tools+=(rpm rpmbuild rpm2cpio cpio) ;;
  *) echo "$0: $package is not a package; give a .deb or an .rpm" >&2; exit 2 ;;
esac
[ -f "$package" ] || { echo "$0: $package is missing; build it with deploy/release/build.sh" >&2; exit 2; }
for tool in "${tools[@]}"; do
  command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
if [ ! -d "$root/usr" ]; then
  # shellcheck disable=SC2016 # a placeholder of apt, not of the shell
  mirror=$(apt-get indextargets --format '$(SITE)' | head -n 1)
  debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,ca-certificates,curl,rpm bookworm "$root" "$mirror" >/dev/null
fi
[ "$kind" = deb ] || [ -x "$root/usr/bin/rpm" ] || { echo "$0: $root has no rpm; remove $root, and this script creates it again" >&2; exit 1; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

# Builds a newer package with another file in /etc/default. The upgrade must keep the file that was changed on the machine.
newer_line="# A line of the newer package"
newer_deb() {
  dpkg-deb --raw-extract "$package" "$work/second"
  sed -i 's/^Version: .*/&+upgrade/' "$work/second/DEBIAN/control"
  echo "$newer_line" >>"$work/second/etc/default/trtllm-exporter"
  dpkg-deb --root-owner-group -Znone --build "$work/second" "$root/root/second.deb" >/dev/null
}
newer_rpm() { # --nodeps: rpmbuild does not search for the program's dependencies
  mkdir "$work/staged"
  rpm2cpio "$package" | (cd "$work/staged" && cpio --quiet --extract --make-directories)
  echo "$newer_line" >>"$work/staged/etc/default/trtllm-exporter"
  rpmbuild -bb --quiet --nodeps --target x86_64 --define "_topdir $work/build" --define "_rpmdir $root/root" --define "_rpmfilename second.rpm" \
    --define "exporter_version 99" --define "staged $work/staged" "$here/../../deploy/package/trtllm-exporter.spec" >"$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
}
if [ "$kind" = rpm ]; then
  glibc=$(rpm --query --requires --package "$package" | sed -n 's/.*(GLIBC_\([0-9.]*\)).*/\1/p' | sort --version-sort | tail -n 1)
  [ "$(printf '%s\n' "$glibc" 2.34 | sort --version-sort | tail -n 1)" = 2.34 ] || { echo "the package needs glibc $glibc; RHEL 9 has 2.34"; exit 1; }
fi
cp "$package" "$root/root/first.$kind"
"newer_$kind"
install -m 0755 "$here/systemd_checks.sh" "$root/root/check.sh"
cat > "$root/etc/systemd/system/check.service" <<UNIT
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/root/check.sh $kind
UNIT
mkdir -p "$root/etc/systemd/system/default.target.wants"
ln -sf ../check.service "$root/etc/systemd/system/default.target.wants/check.service"
rm -f "$root/root/results.txt" "$root/root/page"
timeout "${LIMIT:-180}" systemd-nspawn -q -D "$root" --register=no --keep-unit --private-network --boot --console=pipe </dev/null >/dev/null 2>&1 || true
results=$root/root/results.txt
[ -s "$results" ] || { echo "the container did not boot"; exit 1; }
sed '/^== journal/,$d' "$results"
[ -z "${PAGE:-}" ] || cp "$root/root/page" "$PAGE"

expected_of_deb() {
  cat <<'EXPECTED'
^after-install: active=active enabled=enabled
^remove=0 active=inactive configuration=/etc/default/trtllm-exporter$
^purge=0
EXPECTED
}
expected_of_rpm() { # at an upgrade, rpm saves the new configuration as .rpmnew; at the removal, it keeps the changed file as .rpmsave
  cat <<'EXPECTED'
^after-install: active=inactive enabled=enabled
^verified=0
^version=99 new configuration=/etc/default/trtllm-exporter.rpmnew$
^remove=0 active=inactive configuration=/etc/default/trtllm-exporter.rpmsave$
^user=kept
EXPECTED
}
missing=0
while read -r expected; do
  grep -qE -- "$expected" "$results" || { echo "missing: $expected"; missing=1; }
done < <("expected_of_$kind"; cat <<'EXPECTED'
^install=0
^running: type=notify active=active status=listening on
^sockets: disabled disabled
CapBnd: 0000000000000000 NoNewPrivs: 1 Seccomp: 2
^user=trtllm-exporter
^exposure=(0\.[0-9]|1\.[0-5])$
^doctor=[03]
^page=[1-9]
^own socket=660 trtllm-exporter trtllm-exporter member=connected other=refused
^after-kill=active restarts=1
^reload=0
^reloaded=in-place
^recording=750 trtllm-exporter files=yes
^drop-in: capabilities=0000000000080000 users=host hidden=0
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
^recordings=kept
^left=nothing
^units=0
EXPECTED
)
if [ "$missing" != 0 ]; then
  sed -n '/^== journal/,$p' "$results"
  echo "$root may have files of this run; remove it before the next one"
  exit 1
fi
echo "all checks of the .$kind passed in a booted systemd"
