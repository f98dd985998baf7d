#!/usr/bin/env bash
# Judges `--source kubernetes:` with a real API server and etcd. The pods are simulated servers on this machine.
# usage: kubernetes_source.sh EXPORTER [VERSION]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
binary=$(realpath "${1:?usage: kubernetes_source.sh EXPORTER [VERSION]}")
version=${2:-1.35.3}
tools=$PWD/target/tools
# shellcheck source=tests/deploy/start_api_server.sh
source "$here/start_api_server.sh"
python3 tests/judges/kubernetes_source.py "$binary" "$port" "$work"
