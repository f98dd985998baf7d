# shellcheck shell=bash disable=SC2154,SC2034  # variables of document_commands.py, and of start_api_server.sh
# The machine on which document_commands.py runs the commands of a document, and the functions that prepare it. Sourced as root in
# namespaces of its own, in which all processes end with the shell.
set -eE
trap 'echo "exit code $?: $BASH_COMMAND" >&2' ERR

# Writes go to memory. Nothing in these folders changes for other processes.
mount -t tmpfs -o size=4G tmpfs /mnt
for folder in /etc /usr /var "$root"; do
  mkdir -p "/mnt/new$folder" "/mnt/work$folder"
  mount -t overlay -o "lowerdir=$folder,upperdir=/mnt/new$folder,workdir=/mnt/work$folder" overlay "$folder"
done
mount -t tmpfs tmpfs /run
cd "$root"
ip link set lo up
# The API server needs an address and a default route.
ip address add 192.0.2.1/32 dev lo && ip route add default dev lo
echo '127.0.0.1 gpu-node gpu-node-1 gpu-node-2 prometheus' >>/etc/hosts
install "$exporter" "$(dirname "$exporter")/trtllm-doctor" /usr/bin/
install -D -m 0644 -t /usr/share/trtllm-exporter/prometheus deploy/prometheus/*.yml
PATH=$root/target/tools/documents/bin:$root/target/tools:$PATH
# pip uses the build tools of that environment. The name means the opposite: 0 switches the isolation off.
export PIP_NO_BUILD_ISOLATION=0 PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1
unset "${!TRTLLM_EXPORTER_@}"

until_ready() { # SECONDS COMMAND...
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || { echo "error: not ready: $*" >&2; return 1; }
    sleep 0.2
  done
}
sources_up() {
  local page
  page=$(curl -fs http://127.0.0.1:8002/metrics) && ! grep -q '^trtllm_exporter_source_up.* 0$' <<<"$page"
}
# A server runs in the background, in place of the one before. A command with a subcommand or --dry-run runs as it is.
trtllm-exporter() {
  case "${1:--} $*" in [!-]* | *--help* | *--version* | *--dry-run*) command trtllm-exporter "$@"; return ;; esac
  if [ -e /run/exporter.pid ]; then
    kill "$(cat /run/exporter.pid)"
    until_ready 30 bash -c '! curl -s http://127.0.0.1:8002/-/healthy'
  fi
  command trtllm-exporter "$@" >>/run/exporter.log 2>&1 &
  echo $! >/run/exporter.pid
  until_ready 30 sources_up || { cat /run/exporter.log >&2; return 1; }
}
# With exit code 3, diagnose has answered: the worst finding is a warning.
trtllm-doctor() { command trtllm-doctor "$@" || [ "$? $1" = "3 diagnose" ]; }

serve() { "$sim_serve" --port "$1" --release 1.2 >/dev/null & until_ready 10 curl -fs "http://127.0.0.1:$1/health"; }
recordings() { # END...: a recording of a minute before each of these times, as the exporter would have written it
  local end number=0 clock from recorders=()
  for end in "$@"; do
    number=$((number + 1)) clock=$end
    # A time is given as libfaketime needs it: where the clock starts.
    case $end in *Z) clock="$(date -u -d "$end 70 seconds ago" '+@%F %T')" ;; esac
    LD_PRELOAD=$(echo /usr/lib/*/faketime/libfaketimeMT.so.1) FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME=$clock TZ=UTC timeout 75 \
      trtllm-exporter --source 'sim:?rate=5&wave=0&kv_blocks=2048' --gpu off --web.listen-address 127.0.0.1:0 --record.dir "/run/recorded/$number" >/dev/null 2>&1 &
    recorders+=($!)
  done
  wait "${recorders[@]}" || true # timeout ends with code 124
  mkdir recording
  for from in /run/recorded/*/*.rec.zst; do
    number=$(basename "$(dirname "$from")")
    cp "$from" "recording/0000000$number-${from##*-tensorrt}"
  done
}
yaml() { awk '/^ *```yaml$/ { on = 1; next } on && /^ *```$/ { exit } on' "$1" | sed 's/^   //'; }
prometheus() { # Debian's services, with its configuration, to which the entries of docs/monitoring.md are then added
  local name config=/etc/prometheus
  command prometheus --config.file=$config/prometheus.yml --storage.tsdb.path=/run/data >/run/prometheus.log 2>&1 &
  echo $! >/run/prometheus.pid
  prometheus-alertmanager --config.file=$config/alertmanager.yml --storage.path=/run/alerts --cluster.listen-address= >/run/alertmanager.log 2>&1 &
  echo $! >/run/prometheus-alertmanager.pid
  for name in 9090 9093; do until_ready 30 curl -fs "http://127.0.0.1:$name/-/ready"; done
  yaml docs/monitoring.md | awk 'NR == FNR { if (/^[a-z]/) section = $0; else entries[section] = entries[section] $0 "\n"; next }
    { print } $0 in entries { printf "%s", entries[$0] }' - $config/prometheus.yml >/run/prometheus.yml
  cp /run/prometheus.yml $config/prometheus.yml
}
api_server() { # a Kubernetes API server without nodes, with Prometheus's definitions and a deployment `llama`
  local version=1.35.3 here=$root/tests/deploy tools=$root/target/tools
  # shellcheck source=tests/deploy/start_api_server.sh
  source "$here/start_api_server.sh"
  kubectl apply --server-side -f "$(module github.com/prometheus-operator/prometheus-operator@v0.89.0)/example/prometheus-operator-crd" >/dev/null
  kubectl wait --for condition=established --timeout 30s crd --all >/dev/null
  kubectl apply -f deploy/kubernetes/kustomize/example/server.yaml >/dev/null
}
release_tarball() { # The packages, which come after the tarball, are not needed.
  mkdir /run/built
  cp /usr/bin/trtllm-{exporter,doctor} /run/built/
  touch /run/built/{trtllm-{exporter,doctor}.cdx.json,third-party-licenses.txt}
  SOURCE_DATE_EPOCH=0 deploy/package/build.sh /run/built . amd64 >/dev/null 2>&1 &
  until_ready 120 compgen -G 'trtllm-doctor-*.cdx.json'
  kill $!
}
