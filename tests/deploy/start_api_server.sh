# shellcheck shell=bash disable=SC2154  # `version`, `here` and `tools` of the script that sources this one
# Starts etcd and the API server of the release $version, which it builds at first, and sets KUBECONFIG. Sets `work`, a folder that is
# removed at the end, `port`, and `minor`. Sourced by api_server.sh and kubernetes_source.sh.
minor=${version#1.} minor=${minor%.*}
go=${TRTLLM_TEST_GO:-go}
server=$tools/kube-apiserver-$version
for tool in "$go" etcd kubectl; do command -v "$tool" >/dev/null || { echo "$tool is missing" >&2; exit 77; }; done
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
module() { "$go" mod download -json "$1" | field "${2:-Dir}"; }
# The Kubernetes module requires the other modules of its repository at v0.0.0. Replace this version by that of Kubernetes
# itself.
if [ ! -x "$server" ]; then
  source=$(mktemp -d)
  printf 'module kubeapiserver\ngo 1.26.0\nrequire k8s.io/kubernetes v%s\n' "$version" >"$source/go.mod"
  awk -v version="v0.${version#1.}" '$1 ~ /^k8s.io/ && $2 == "v0.0.0" { print "replace " $1 " => " $1 " " version }' \
    "$(module "k8s.io/kubernetes@v$version" GoMod)" >>"$source/go.mod"
  stamp="-s -w -X k8s.io/component-base/version.gitVersion=v$version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$minor"
  (cd "$source" && env -u GOFLAGS GOTOOLCHAIN=auto "$go" build -mod=mod -ldflags "$stamp" -o "$server" k8s.io/kubernetes/cmd/kube-apiserver)
  rm -r "$source"
fi

work=$(mktemp -d)
started=()
stop() { [ ${#started[@]} = 0 ] || kill "${started[@]}" 2>/dev/null || true; wait; rm -rf "$work"; }
trap stop EXIT
free_port() { python3 "$here/../judges/free_port.py"; }
etcd_port=$(free_port) peer_port=$(free_port) port=$(free_port)
etcd --data-dir "$work/etcd" --listen-client-urls "http://127.0.0.1:$etcd_port" --advertise-client-urls "http://127.0.0.1:$etcd_port" \
  --listen-peer-urls "http://127.0.0.1:$peer_port" >"$work/etcd.log" 2>&1 &
started+=($!)
openssl genrsa -out "$work/sa.key" 2048 2>/dev/null
echo 'token,admin,admin,system:masters' >"$work/tokens.csv"
"$server" --etcd-servers "http://127.0.0.1:$etcd_port" --bind-address 127.0.0.1 --secure-port "$port" --cert-dir "$work/certs" \
  --service-cluster-ip-range 10.0.0.0/24 --service-account-issuer https://test --service-account-key-file "$work/sa.key" \
  --service-account-signing-key-file "$work/sa.key" --token-auth-file "$work/tokens.csv" --authorization-mode RBAC \
  --disable-admission-plugins ServiceAccount >"$work/server.log" 2>&1 &
started+=($!)
export KUBECONFIG=$work/kubeconfig
kubectl config set-cluster test --server "https://127.0.0.1:$port" --insecure-skip-tls-verify >/dev/null
kubectl config set-credentials admin --token token >/dev/null
kubectl config set-context test --cluster test --user admin >/dev/null
kubectl config use-context test >/dev/null
for _ in $(seq 1500); do kubectl get --raw /readyz >/dev/null 2>&1 && break; sleep 0.2; done
kubectl get --raw /readyz >/dev/null || { tail -n 20 "$work/server.log"; exit 1; }
