# shellcheck shell=bash disable=SC2154  # the variables of kubernetes.sh
# Starts the exporter with the arguments of each manifest, but with the test's own folders. Sourced by kubernetes.sh.
starts() { # ARGUMENT...: the health page must answer, and SIGTERM must end the exporter with code 0
  local arguments=() argument daemon address code
  rm -f "$work/port"
  for argument in "$@"; do
    argument=${argument//\/run\/trtllm-exporter/$work/run}
    argument=${argument//\/etc\/trtllm-exporter/$work/etc}
    case $argument in
      --web.listen-address=*) ;;
      --web.health-address=*) arguments+=(--web.health-address=127.0.0.1:0) ;;
      *) arguments+=("$argument") ;;
    esac
  done
  "$binary" "${arguments[@]}" --web.listen-address=127.0.0.1:0 --web.port-file="$work/port" 2>"$work/log" &
  daemon=$!
  for _ in $(seq 100); do [ -s "$work/port" ] && break; kill -0 $daemon 2>/dev/null || break; sleep 0.1; done
  address=$(head -n 1 "$work/port" 2>/dev/null)
  curl --silent --show-error --insecure --output /dev/null --fail "http://$address/healthz" ||
    curl --silent --show-error --insecure --output /dev/null "https://$address/healthz"
  code=$?
  kill $daemon; wait $daemon || code=1
  [ $code = 0 ] || { echo "the exporter does not start with: $*"; cat "$work/log"; }
  return $code
}
every_manifest_starts() { # FILE...
  local line seen=0 arguments
  while IFS= read -r line; do
    IFS=$'\t' read -r -a arguments <<<"$line"
    starts "${arguments[@]}" || return 1
    seen=$((seen + 1))
  done < <("$manifests" args "$@" | sort -u)
  echo "$seen sets of arguments"
  [ $seen -gt 0 ]
}
mkdir -p "$work/run" "$work/etc/web"
check "examples: the exporter starts with their arguments" every_manifest_starts deploy/kubernetes/*.yaml
refuses_an_unknown_flag() {
  sed 's/--gpu=off/--gpus=off/' deploy/kubernetes/sidecar-trtllm-serve.yaml >"$work/unknown.yaml"
  refused "--gpus: unknown flag" every_manifest_starts "$work/unknown.yaml"
}
check "examples: an unknown flag is noticed" refuses_an_unknown_flag
if [ -n "$helm" ]; then
  "$manifests" data trtllm-exporter config.yaml "$work/all-1.32.0.yaml" >"$work/etc/config.yaml"
  check "chart: check-config accepts the engines" "$binary" check-config "$work/etc/config.yaml"
  check "chart: the exporter starts with its arguments" every_manifest_starts "$work/all-1.32.0.yaml" "$work/patched-1.32.0.yaml" "$work/patched-socket.yaml"
  if command -v openssl >/dev/null; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test -addext subjectAltName=DNS:test \
      -keyout "$work/etc/web/tls.key" -out "$work/etc/web/tls.crt" 2>/dev/null
    cp "$work/etc/web/tls.crt" "$work/etc/web/ca.crt"
    "$manifests" data trtllm-exporter-web web.yml "$work/all-tls-1.32.0.yaml" | grep -v client >"$work/etc/web/web.yml"
    check "chart: the exporter starts with TLS" every_manifest_starts "$work/all-tls-1.32.0.yaml"
    "$manifests" data trtllm-exporter-web web.yml "$work/all-tls-1.32.0.yaml" >"$work/etc/web/web.yml"
    demands_a_certificate() { refused "certificate required" every_manifest_starts "$work/all-tls-1.32.0.yaml"; }
    check "chart: the exporter demands a client certificate" demands_a_certificate
  else
    skip "chart: TLS" "openssl is not installed"
  fi
fi
