#!/usr/bin/env bash
# Packs the two built programs: a tarball, a .deb and an .rpm. deploy/release/build.sh calls it.
# usage: build.sh BUILT FOLDER amd64|arm64      BUILT holds the output of deploy/release/binary.sh
# SOURCE_DATE_EPOCH sets the time of all files. In the packages, files belong to root, although the script does not run
# as root.
set -euo pipefail
built=$(realpath "$1") folder=$(realpath "$2") architecture=$3
cd "$(dirname "$0")/../.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
name=trtllm-exporter cpu=x86_64
[ "$architecture" != arm64 ] || cpu=aarch64
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
umask 022

run() { # PROGRAM ARGUMENT...: runs it; one for another architecture runs in an emulator
  local program=$built/$1
  shift
  if [ "$architecture" = "$(dpkg --print-architecture)" ]; then "$program" "$@"; else qemu-$cpu-static -L /usr/$cpu-linux-gnu "$program" "$@"; fi
}
same_time() { find "$1" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +; }

# Files that both packages have. The folders for completions, licences and changelogs differ.
common=$work/common
install -D -t "$common/usr/bin" "$built"/trtllm-{exporter,doctor}
install -D -m 0644 -t "$common/usr/lib/systemd/system" deploy/systemd/$name{.service,.socket,-ingest.socket}
install -D -m 0644 deploy/systemd/$name.sysusers "$common/usr/lib/sysusers.d/$name.conf"
install -D -m 0644 deploy/systemd/$name.default "$common/etc/default/$name"
mkdir -p "$common"/usr/share/{man/man1,bash-completion/completions,fish/vendor_completions.d} "$work/shared"
for program in trtllm-exporter trtllm-doctor; do
  run $program man >"$work/$program.1"
  run $program completions bash >"$common/usr/share/bash-completion/completions/$program"
  run $program completions fish >"$common/usr/share/fish/vendor_completions.d/$program.fish"
  run $program completions zsh >"$work/_$program"
  gzip -9n <"$work/$program.1" >"$common/usr/share/man/man1/$program.1.gz"
done
rules=(deploy/prometheus/{recording,alerts,alerts-gpu,alertmanager}.yml deploy/prometheus/scrape.yaml)
install -D -m 0644 -t "$common/usr/share/$name/prometheus" "${rules[@]}"
install -D -m 0644 -t "$common/usr/share/$name/grafana" deploy/grafana/*.json
install -D -m 0644 -t "$common/usr/share/$name/systemd" deploy/systemd/engine-gpus.conf
install -D -m 0644 -t "$common/usr/share/doc/$name/docs" docs/*.md
install -D -m 0644 -t "$common/usr/share/doc/$name/docs/runbooks" docs/runbooks/*.md
install -D -m 0644 -t "$common/usr/share/doc/$name/examples" examples/config.yaml
gzip -9n <"$built/third-party-licenses.txt" >"$common/usr/share/doc/$name/third-party-licenses.txt.gz"

pack() { # FOLDER-IN-WORK: makes a tarball; the same files give the same tarball
  tar --create --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu --mtime="@$SOURCE_DATE_EPOCH" "$1" |
    gzip -9n >"$folder/$1.tar.gz"
}
tarball() { # as in Prometheus's own tarballs: one folder with the program, its licence and its other files
  local top=$name-$version.linux-$architecture
  mkdir -p "$work/$top"/{completions,systemd}
  cp -r "$common/usr/share/$name"/{prometheus,grafana} "$common/usr/share/doc/$name"/{docs,examples} "$work/$top/"
  cp "$built"/trtllm-{exporter,doctor} "$built/third-party-licenses.txt" LICENSE CHANGELOG.md "$work"/trtllm-{exporter,doctor}.1 "$work/$top/"
  cp deploy/systemd/* "$work/$top/systemd/"
  for program in trtllm-exporter trtllm-doctor; do
    cp "$common/usr/share/bash-completion/completions/$program" "$work/$top/completions/$program.bash"
    cp "$common/usr/share/fish/vendor_completions.d/$program.fish" "$work/_$program" "$work/$top/completions/"
  done
  pack "$top"
  cp "$built/$name.cdx.json" "$folder/$top.cdx.json"
  cp "$built/trtllm-doctor.cdx.json" "$folder/trtllm-doctor-$version.linux-$architecture.cdx.json"
}

deb() {
  local root=$work/deb size
  cp -a "$common" "$root"
  install -D -m 0644 -t "$root/usr/share/zsh/vendor-completions" "$work"/_trtllm-{exporter,doctor}
  install -D -m 0644 deploy/package/copyright "$root/usr/share/doc/$name/copyright"
  gzip -9n <CHANGELOG.md >"$root/usr/share/doc/$name/changelog.gz"
  # The changelog of the package itself. The changelog of the program is changelog.gz.
  printf '%s (%s-1) unstable; urgency=medium\n\n  * Release %s of the exporter.\n\n -- %s  %s\n' "$name" "$version" "$version" \
    "The trtllm-exporter authors <trtllm-exporter@users.noreply.github.com>" "$(date --utc --rfc-email --date="@$SOURCE_DATE_EPOCH")" |
    gzip -9n >"$root/usr/share/doc/$name/changelog.Debian.gz"
  install -D -m 0644 deploy/package/lintian-overrides "$root/usr/share/lintian/overrides/$name"
  mkdir "$root/DEBIAN"
  install -m 0755 -t "$root/DEBIAN" deploy/package/{postinst,prerm,postrm}
  echo "/etc/default/$name" >"$root/DEBIAN/conffiles"
  (cd "$root" && find etc usr -type f ! -path 'etc/*' -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
  size=$(du --apparent-size -sk --exclude=DEBIAN "$root" | cut -f1)
  cat >"$root/DEBIAN/control" <<CONTROL
Package: $name
Version: $version-1
Architecture: $architecture
Maintainer: The trtllm-exporter authors <trtllm-exporter@users.noreply.github.com>
Installed-Size: $size
Depends: libc6 (>= $(for program in "$built"/trtllm-{exporter,doctor}; do deploy/release/glibc.sh "$program"; done | sort --version-sort | tail -n 1)), systemd | systemd-standalone-sysusers | systemd-sysusers
Suggests: prometheus
Section: net
Priority: optional
Homepage: https://github.com/trtllm-exporter/trtllm-exporter
Description: Prometheus exporter for NVIDIA TensorRT-LLM engines and their GPUs
 It serves the metrics of TensorRT-LLM engines (trtllm-serve, Triton, and C++
 or Python servers) and of their GPUs to Prometheus: load, KV cache, latency of
 requests and iterations, and GPU state. trtllm-doctor says what limits an
 engine.
CONTROL
  same_time "$root"
  dpkg-deb --root-owner-group -Zxz --build "$root" "$folder/${name}_$version-1_$architecture.deb" >/dev/null
}

rpm() {
  local root=$work/rpm
  cp -a "$common" "$root"
  install -D -m 0644 -t "$root/usr/share/zsh/site-functions" "$work"/_trtllm-{exporter,doctor}
  install -D -m 0644 CHANGELOG.md "$root/usr/share/doc/$name/CHANGELOG.md"
  install -D -m 0644 LICENSE "$root/usr/share/licenses/$name/LICENSE"
  same_time "$root"
  rpmbuild -bb --quiet --nodeps --target "$cpu" --define "_topdir $work/rpmbuild" --define "_rpmdir $folder" \
    --define "_rpmfilename $name-$version-1.$cpu.rpm" --define "exporter_version $version" --define "staged $root" \
    --define "_buildhost release" --define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" \
    --define "_binary_payload w19.zstdio" deploy/package/$name.spec
}

tarball
deb
rpm

# Checks the finished packages: they must contain the licence of each crate.
(
  mkdir "$work/packed" && cd "$work/packed"
  tar -xzOf "$folder/$name-$version.linux-$architecture.tar.gz" "$name-$version.linux-$architecture/third-party-licenses.txt" >tarball.txt
  dpkg-deb --fsys-tarfile "$folder/${name}_$version-1_$architecture.deb" | tar -xO "./usr/share/doc/$name/third-party-licenses.txt.gz" >deb.txt.gz
  rpm2cpio "$folder/$name-$version-1.$cpu.rpm" | cpio --quiet --extract --to-stdout "./usr/share/doc/$name/third-party-licenses.txt.gz" >rpm.txt.gz
)
for program in trtllm-exporter trtllm-doctor; do
  python3 deploy/release/licenses.py check "$built/$program" "$work"/packed/{tarball.txt,deb.txt.gz,rpm.txt.gz}
done
