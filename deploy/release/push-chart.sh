#!/usr/bin/env bash
# Pushes the Helm chart of a release to a registry, as an OCI artefact.
# usage: push-chart.sh FOLDER REPOSITORY      FOLDER is the output of deploy/release/build.sh; REPOSITORY such as ghcr.io/OWNER/charts
# Needs helm (HELM=PATH selects another one). The chart becomes REPOSITORY/trtllm-exporter, with its version as the tag.
set -euo pipefail
[ $# -eq 2 ] || { sed -n '3p' "$0" >&2; exit 2; }
chart=$1/trtllm-exporter-chart-$("$(dirname "$0")/version.sh").tgz
"${HELM:-helm}" push "$chart" "oci://$2"
