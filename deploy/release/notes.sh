#!/usr/bin/env bash
# Prints the release notes: the section of CHANGELOG.md, with links that work outside the repository.
# usage: notes.sh [VERSION]
set -euo pipefail
cd "$(dirname "$0")/../.."
version=${1:-$(deploy/release/version.sh)}
page=https://github.com/trtllm-exporter/trtllm-exporter/blob/v$version/
notes=$(awk -v heading="## $version " 'index($0, "## ") == 1 { inside = index($0 " ", heading) == 1; next } inside' CHANGELOG.md |
  sed -E "s#\]\((docs|examples|deploy|README|SECURITY)#](${page}\1#g")
[ -n "${notes//[[:space:]]/}" ] || { echo "$0: CHANGELOG.md has no section \"## $version\", or it is empty" >&2; exit 1; }
printf '%s\n' "$notes" | sed '/./,$!d'
