#!/usr/bin/env bash
# Builds the parts of a release that are the same for all architectures: the Helm chart, the Python wheel, an archive with publisher.h
# and the sources of the preload, an archive with dashboards, rules and a scrape configuration, and the release notes.
# usage: parts.sh FOLDER      needs helm (HELM=PATH selects another one) and Python with pip
set -euo pipefail
[ $# -eq 1 ] || { sed -n '4p' "$0" >&2; exit 2; }
folder=$(realpath -m "$1")
cd "$(dirname "$0")/../.."
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
version=$(deploy/release/version.sh)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
umask 022
mkdir -p "$folder"

pack() { # PARENT NAME FILE: the same files give the same archive
  tar --create --directory "$1" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu --mtime="@$SOURCE_DATE_EPOCH" "$2" | gzip -9n >"$folder/$3"
}
# Helm follows the symbolic links of the chart, and writes the time of the build. Packing the chart again removes that
# time.
"${HELM:-helm}" package deploy/helm/trtllm-exporter --destination "$work/chart" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
tar -xzmf "$work/chart/trtllm-exporter-$version.tgz" -C "$work/chart"
pack "$work/chart" trtllm-exporter "trtllm-exporter-chart-$version.tgz"

cp -rL examples/python "$work/python" # the licence is a link, so copy its target
"${PYTHON:-python3}" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$folder" "$work/python"

top=trtllm-exporter-cpp-$version
cpp-bridge/publisher/packaging/install.sh "$work/$top"
cp LICENSE docs/embedding.md "$work/$top/"
pack "$work" "$top" "$top.tar.gz"

top=trtllm-exporter-monitoring-$version
mkdir -p "$work/$top"/{grafana,prometheus}
cp deploy/grafana/*.json "$work/$top/grafana/"
cp deploy/prometheus/{recording,alerts,alerts-gpu,alertmanager}.yml deploy/prometheus/scrape.yaml "$work/$top/prometheus/"
cp LICENSE docs/monitoring.md "$work/$top/"
pack "$work" "$top" "$top.tar.gz"

deploy/release/notes.sh "$version" >"$folder/release-notes.md"
