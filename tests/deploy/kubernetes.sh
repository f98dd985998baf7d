#!/usr/bin/env bash
# Checks the Helm chart, the kustomize bases and the Kubernetes examples. Each object is decoded strictly into the Go type of its API
# by tests/go/manifests, which refuses unknown fields. Needs Go; prints one line per check.
#   kubernetes.sh                  uses helm and kustomize (or kubectl) if they are installed
#   kubernetes.sh --build-tools    builds Helm and kustomize from their Go modules into target/tools first
#   kubernetes.sh --binary PATH    adds: the exporter starts with the arguments of each manifest
# Exit code 1 if a check fails, 77 if Go is missing. With CI=true, a check that cannot run counts as failed. Exceptions are the
# checks with Helm and kustomize: both take minutes to compile, so they are required only with --build-tools.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
build_tools="" binary=""
while [ $# -gt 0 ]; do
  case $1 in
    --build-tools) build_tools=1 ;;
    --binary) binary=$(realpath "${2:?--binary needs a path}"); shift ;;
    *) sed -n '2,9p' "$0" >&2; exit 2 ;;
  esac
  shift
done
cd "$repo" || exit 1
tools=$repo/target/tools
mkdir -p "$tools"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
chart=deploy/helm/trtllm-exporter
bases=deploy/kubernetes/kustomize
passed=0 failed=0

check() { # NAME COMMAND...: passes if the command succeeds; prints its output if it fails
  local name=$1; shift
  if "$@" >"$work/out" 2>&1; then passed=$((passed + 1)); echo "ok    $name"
  else failed=$((failed + 1)); echo "FAIL  $name"; sed 's/^/        /' "$work/out"; fi
}
skip() { # NAME REASON
  if [ "${CI:-}" != true ]; then echo "skip  $1: $2"; return; fi
  failed=$((failed + 1)); echo "FAIL  $1: $2; CI must run every check"
}
refused() { # TEXT COMMAND...: succeeds if the command fails and its output has the text
  local text=$1 output; shift
  if output=$("$@" 2>&1); then echo "accepted, but expected: $text"; return 1; fi
  grep -qF -- "$text" <<<"$output" || { echo "expected: $text"; echo "$output"; return 1; }
}
has_args() { # FILE LINE: succeeds if a container has exactly the arguments in LINE, which are separated by tabs
  local lines
  lines=$("$manifests" args "$1") || return 1
  grep -qxF -- "$2" <<<"$lines" || { echo "no container with $2:"; echo "$lines"; return 1; }
}

# tests/run selects a Go that is new enough.
go=${TRTLLM_TEST_GO:-go}
command -v "$go" >/dev/null || { echo "Go is not installed"; exit 77; }
go_build() { # FOLDER PACKAGE OUT
  for _ in 1 2 3; do (cd "$1" && env -u GOFLAGS GOTOOLCHAIN=auto "$go" build -mod=readonly -o "$3" "$2") && return; sleep 3; done
  return 1
}
go_build "$here/../go/manifests" . "$tools/manifests" || { echo "cannot build tests/go/manifests"; exit 1; }
manifests=$tools/manifests
if [ -n "$build_tools" ]; then
  go_build "$here/../go/tools" helm.sh/helm/v3/cmd/helm "$tools/helm" || exit 1
  go_build "$here/../go/tools" sigs.k8s.io/kustomize/kustomize/v5 "$tools/kustomize" || exit 1
fi
helm=$tools/helm
[ -x "$helm" ] || helm=$(command -v helm)

examples=(deploy/kubernetes/*.yaml deploy/kubernetes/autoscaling/*.yaml deploy/kubernetes/gateway/inferencepool.yaml)
check "examples: known fields and types" "$manifests" decode "${examples[@]}"
check "examples: Pod Security restricted" "$manifests" restricted deploy/kubernetes/*.yaml deploy/kubernetes/gateway/inferencepool.yaml

versions_agree() { # compares the version of the chart, of the images in manifests, and of Cargo.toml
  local version
  version=$(sed -n '0,/^version = "\(.*\)"/s//\1/p' Cargo.toml)
  if ! grep -qx "version: $version" $chart/Chart.yaml || ! grep -qx "appVersion: \"$version\"" $chart/Chart.yaml; then
    echo "Chart.yaml is not of version $version"
    return 1
  fi
  ! grep -rn 'image: "\?trtllm-exporter:' deploy/kubernetes | grep -v "image: \"\?trtllm-exporter:$version\"\?\$"
}
check "versions are that of Cargo.toml" versions_agree

# With a planted error, the same files must be refused. This shows that the checks above can fail.
planted() { # FILE EXPRESSION TEXT: the sed EXPRESSION plants an error in FILE; the message about it must contain TEXT
  sed -e "$2" "$1" >"$work/planted.yaml"
  if cmp -s "$1" "$work/planted.yaml"; then echo "$1: $2 changes nothing"; return 1; fi
  refused "$3" "$manifests" decode "$work/planted.yaml"
}
planted_errors() {
  local d=deploy/kubernetes wrong=0
  planted $d/sidecar-trtllm-serve.yaml 's/readOnlyRootFilesystem/readOnlyRootFileSystem/' 'readOnlyRootFileSystem' || wrong=1
  planted $bases/sidecar-monitor/monitor.yaml 's/interval: 15s/intervall: 15s/' 'unknown field "spec.podMetricsEndpoints[0].intervall"' || wrong=1
  planted $d/sidecar-trtllm-serve.yaml 's/replicas: 1/replicas: one/' 'replicas' || wrong=1
  planted $d/sidecar-trtllm-serve.yaml 's/^  replicas: 1/&\n&/' 'already set' || wrong=1
  planted $d/autoscaling/hpa.yaml 's/maxReplicas/maxreplicas/' 'unknown field "spec.maxreplicas"' || wrong=1
  planted $d/autoscaling/keda.yaml 's/pollingInterval/pollInterval/' 'unknown field "spec.pollInterval"' || wrong=1
  planted $d/autoscaling/prometheus-adapter-values.yaml '0,/metricsQuery/s//metricQuery/' 'metricQuery' || wrong=1
  planted $d/gateway/inferencepool.yaml 's/targetPorts/targetPort/' 'unknown field "spec.targetPort"' || wrong=1
  planted $d/gateway/inferencepool.yaml 's/backendRefs/backends/' 'unknown field "spec.rules[0].backends"' || wrong=1
  planted $d/gateway/inferencepool.yaml 's/- pluginRef: queue/- plugin: queue/' 'unknown field "schedulingProfiles[0].plugins[0].plugin"' || wrong=1
  planted $bases/rules/rules.yaml '0,/expr:/s//expression:/' 'unknown field "spec.groups[0].rules[0].expression"' || wrong=1
  planted $d/autoscaling/keda.yaml 's/kind: ScaledObject/kind: ScaledObjects/' 'no kind "ScaledObjects"' || wrong=1
  return $wrong
}
check "planted errors are refused" planted_errors

kustomize=("$tools/kustomize" build)
[ -x "$tools/kustomize" ] || kustomize=(kubectl kustomize)
if command -v "${kustomize[0]}" >/dev/null; then
  for base in gpu-nodes standalone sidecar-monitor rules example; do
    kustomized() { "${kustomize[@]}" "$bases/$1" >"$work/$1.yaml" && "$manifests" decode "$work/$1.yaml"; }
    check "kustomize: $base" kustomized "$base"
  done
  component_adds_the_sidecar() { has_args "$work/example.yaml" $'--source=auto\t--gpu=off\t--metrics.profile=default'; }
  check "kustomize: the component adds the sidecar" component_adds_the_sidecar
  dashboards_are_listed() {
    diff <(cd deploy/grafana && printf '%s\n' *.json) <(sed -n 's/.*files: \[\(.*\)\]/\1/p' deploy/grafana/kustomization.yaml | sort) ||
      { echo "list each dashboard in deploy/grafana/kustomization.yaml"; return 1; }
  }
  check "kustomize: all dashboards" dashboards_are_listed
else
  echo "skip  kustomize: neither kubectl nor kustomize is installed; build it with --build-tools"
fi
check "kustomize: the rules are those of deploy/prometheus" "$manifests" rules $bases/rules/rules.yaml deploy/prometheus/{recording,alerts,alerts-gpu}.yml

if [ -n "$helm" ]; then
  # shellcheck source=tests/deploy/helm.sh
  source "$here/helm.sh"
else
  echo "skip  Helm chart: helm is not installed; build it with --build-tools"
fi

if [ -n "$binary" ]; then
  # shellcheck source=tests/deploy/start_args.sh
  source "$here/start_args.sh"
fi

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
