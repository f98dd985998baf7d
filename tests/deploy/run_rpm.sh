#!/usr/bin/env bash
# Installs the .rpm with rpm into ROOT, a root file system that run_systemd.sh has created, upgrades it and erases it.
# Needs root, and rpm and cpio (apt).    usage: run_rpm.sh PACKAGE.rpm ROOT
# ROOT is a Debian, so its rpm database knows no glibc: --nodeps, and this script compares the needed glibc itself.
set -euo pipefail
package=$(realpath "$1") root=$(realpath "$2")
repo=$(cd "$(dirname "$0")/../.." && pwd)
for tool in rpm rpmbuild cpio; do
  command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
work=$(mktemp -d); trap 'rm -rf "$work" "$root/var/lib/rpm"' EXIT
rm -rf "$root/var/lib/rpm"
inside() { rpm --root "$root" --dbpath /var/lib/rpm "$@"; }
fail() { echo "$*"; exit 1; }
# On RHEL, the package filesystem owns /usr/share/licenses.
files() { find "$root"/{etc,usr,opt,var} -xdev ! -path "$root/var/lib/rpm*" ! -path "$root/var/log/*" ! -name '.pwd.lock' ! -name '*-' ! -path "$root/usr/share/licenses" | LC_ALL=C sort; }
needs_at_most() { # GLIBC
  local newest
  newest=$(rpm --query --requires --package "$package" | sed -n 's/.*(GLIBC_\([0-9.]*\)).*/\1/p' | sort --version-sort | tail -n 1)
  [ "$(printf '%s\n' "$newest" "$1" | sort --version-sort | tail -n 1)" = "$1" ] || fail "the package needs glibc $newest"
}

needs_at_most 2.34
files >"$work/before"
inside --install --nodeps "$package"
inside --verify --nodeps trtllm-exporter || fail "an installed file differs from the package"
chroot "$root" /usr/bin/trtllm-exporter --version
grep -q '^trtllm-exporter:' "$root/etc/passwd" || fail "the user was not created"
# Debian presets enable all units; RHEL presets enable none.
[ -L "$root/etc/systemd/system/multi-user.target.wants/trtllm-exporter.service" ] || fail "the service is not enabled by the preset"

echo 'ARGS="--log.level=debug"' >>"$root/etc/default/trtllm-exporter"
mkdir "$work/staged"
(cd "$work/staged" && rpm2cpio "$package" | cpio --quiet --extract --make-directories)
echo "# A line of the newer package" >>"$work/staged/etc/default/trtllm-exporter"
# A newer package. A build of another machine's program needs no search for its dependencies.
rpmbuild -bb --quiet --nodeps --target x86_64 --define "_topdir $work/build" --define "_rpmdir $work" --define "_rpmfilename newer.rpm" \
  --define "exporter_version 99" --define "staged $work/staged" "$repo/deploy/package/trtllm-exporter.spec" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
inside --upgrade --nodeps "$work/newer.rpm"
[ "$(inside --query --queryformat '%{VERSION}' trtllm-exporter)" = 99 ] || fail "the package was not upgraded"
grep -q 'log.level=debug' "$root/etc/default/trtllm-exporter" || fail "the upgrade replaced a changed configuration"
[ -e "$root/etc/default/trtllm-exporter.rpmnew" ] || fail "the new configuration was not kept beside the changed one"
rm "$root/etc/default/trtllm-exporter.rpmnew"

inside --erase trtllm-exporter
# rpm keeps a changed configuration. Packages of Fedora and RHEL keep their users.
rm "$root/etc/default/trtllm-exporter.rpmsave"
chroot "$root" userdel trtllm-exporter
files >"$work/after"
diff "$work/before" "$work/after" || fail "files are left"
echo "rpm: installed, verified, upgraded with its configuration, erased"
