#!/usr/bin/env bash
# Prints the version of Cargo.toml. The chart and the wheel must have the same version. If a tag is given, the tag and CHANGELOG.md, too.
# usage: version.sh [vX.Y.Z]
set -euo pipefail
cd "$(dirname "$0")/../.."
first() { sed -n "s/^$1\"\{0,1\}\([0-9][^\"]*\)\"\{0,1\}\$/\1/p" "$2" | head -n 1; }
version=$(first 'version = ' Cargo.toml)
wrong=0
agree() { # FILE VERSION
  [ "$2" = "$version" ] || { echo "$0: $1 has the version \"$2\", but Cargo.toml has $version" >&2; wrong=1; }
}
chart=deploy/helm/trtllm-exporter/Chart.yaml
agree $chart "$(first 'version: ' $chart)"
agree "$chart (appVersion)" "$(first 'appVersion: ' $chart)"
agree examples/python/pyproject.toml "$(first 'version = ' examples/python/pyproject.toml)"
if [ $# -gt 0 ]; then
  [ "$1" = "v$version" ] || { echo "$0: the tag is $1, but Cargo.toml has version $version; tag v$version, or change Cargo.toml" >&2; wrong=1; }
  grep -qE "^## ${version//./\\.} \([0-9]{4}-[0-9]{2}-[0-9]{2}\)\$" CHANGELOG.md ||
    { echo "$0: CHANGELOG.md has no heading \"## $version (YEAR-MONTH-DAY)\"; set the day of the release" >&2; wrong=1; }
fi
[ $wrong = 0 ] || exit 1
echo "$version"
