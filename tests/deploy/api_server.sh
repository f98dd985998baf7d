#!/usr/bin/env bash
# Installs the Helm chart and the examples in a real Kubernetes API server without nodes. The server checks every field, custom resources of
# operators against their definitions, and Pod Security. Needs Go, etcd (apt-get install etcd-server), kubectl, and target/tools/helm
# (tests/deploy/kubernetes.sh --build-tools). Builds each kube-apiserver from its Go module: ten minutes the first time, then seconds.
# usage: api_server.sh [VERSION...]      default: 1.28.15, which has no native sidecars, 1.32.13 and 1.35.3
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
if [ $# != 1 ]; then
  [ $# != 0 ] || set -- 1.28.15 1.32.13 1.35.3
  for version in "$@"; do "$here/api_server.sh" "$version"; done
  exit
fi
version=$1
tools=$PWD/target/tools
helm=$tools/helm
chart=deploy/helm/trtllm-exporter
command -v "$helm" >/dev/null || { echo "$helm is missing" >&2; exit 77; }
# shellcheck source=tests/deploy/start_api_server.sh
source "$here/start_api_server.sh"
say() { echo "ok    $*"; }
fail() { echo "FAIL  $*"; exit 1; }
say "API server $(kubectl get --raw /version | field gitVersion)"

definitions=(
  "$(module github.com/prometheus-operator/prometheus-operator@v0.89.0)"/example/prometheus-operator-crd/monitoring.coreos.com_{podmonitors,servicemonitors,prometheusrules}.yaml
  "$(module github.com/kedacore/keda/v2@v2.20.1)"/config/crd/bases/keda.sh_scaledobjects.yaml
  "$(module sigs.k8s.io/gateway-api-inference-extension@v1.5.0)"/config/crd/bases/inference.networking.k8s.io_inferencepools.yaml
  "$(module sigs.k8s.io/gateway-api@v1.4.1)"/config/crd/standard/gateway.networking.k8s.io_httproutes.yaml
  "$(module github.com/GoogleCloudPlatform/prometheus-engine@v0.17.2)"/charts/operator/crds/monitoring.googleapis.com_{podmonitorings,clusterpodmonitorings,clusterrules}.yaml
  "$(module github.com/VictoriaMetrics/operator@v0.50.0)"/config/crd/overlay/crd.yaml
  "$(module github.com/grafana/grafana-operator/v5@v5.18.0)"/config/crd/bases/grafana.integreatly.org_grafanadashboards.yaml
)
for definition in "${definitions[@]}"; do kubectl apply --server-side -f "$definition" >/dev/null; done
kubectl wait --for condition=established --timeout 30s crd --all >/dev/null
say "${#definitions[@]} definitions of operators"

# Follow docs/kubernetes.md: install the chart, patch a server, upgrade with TLS.
kubectl create namespace monitoring >/dev/null
kubectl label namespace monitoring pod-security.kubernetes.io/enforce=restricted pod-security.kubernetes.io/warn=restricted >/dev/null
"$helm" install trtllm-exporter $chart --namespace monitoring --set image.repository=example/trtllm-exporter >"$work/notes" 2>"$work/warnings"
if grep -i 'would violate' "$work/warnings"; then fail "the chart violates Pod Security restricted"; fi
grep -q 'kubectl patch deployment' "$work/notes" || fail "the notes lack the patch"
for object in daemonset/trtllm-exporter-gpu podmonitor/trtllm-exporter-gpu podmonitor/trtllm-exporter-sidecar prometheusrule/trtllm-exporter; do
  kubectl --namespace monitoring get "$object" -o name >/dev/null
done
say "helm install: GPU nodes and sidecar"
kubectl apply -f deploy/kubernetes/kustomize/example/server.yaml >/dev/null
kubectl --namespace monitoring get configmap trtllm-exporter-sidecar -o jsonpath='{.data.trtllm-serve\.yaml}' >"$work/trtllm-serve.yaml"
kubectl patch deployment llama --patch-file "$work/trtllm-serve.yaml" >/dev/null
again=$(kubectl patch deployment llama --patch-file "$work/trtllm-serve.yaml")
[ "$again" = "deployment.apps/llama patched (no change)" ] || fail "the same patch changes something: $again"
# Native sidecars are on by default from 1.29.
kind=initContainers restarts=" Always"
[ "$minor" -ge 29 ] || { kind=containers; restarts=" "; }
patched=$(kubectl get deployment llama -o jsonpath="{.spec.template.spec.${kind}[0].name} {.spec.template.spec.${kind}[0].restartPolicy} {.spec.template.metadata.labels.trtllm-exporter}")
[ "$patched" = "trtllm-exporter$restarts sidecar" ] || fail "the patched Deployment has: $patched"
say "kubectl patch: the sidecar of trtllm-serve"
"$helm" upgrade trtllm-exporter $chart --namespace monitoring --reuse-values --set sidecar.patches.socket.container=trtllm-serve \
  --set sidecar.patches.socket.group=1000 --set web.tlsSecret=tls --set monitoring.tlsConfig.insecureSkipVerify=true \
  --set standalone.enabled=true --set 'standalone.engines[0].source=trtllm-serve:http://llama-0.llama:8000' --set networkPolicy.enabled=true >/dev/null 2>"$work/warnings"
if grep -i 'would violate' "$work/warnings"; then fail "the chart violates Pod Security restricted"; fi
kubectl --namespace monitoring get configmap trtllm-exporter-sidecar -o jsonpath='{.data.socket\.yaml}' >"$work/socket.yaml"
# Run the command of docs/kubernetes.md that removes the exporter, while the server also has an init container of its own. Then
# apply the patch for the socket.
removal=$(sed -n "s/^kubectl patch deployment llama --patch '\(.*delete.*\)'$/\1/p" docs/kubernetes.md)
[ -n "$removal" ] || fail "docs/kubernetes.md has no command that removes the exporter"
removal=${removal/initContainers/$kind}
kubectl patch deployment llama --patch '{"spec": {"template": {"spec": {"initContainers": [{"name": "own", "image": "own:1"}]}}}}' >/dev/null
kubectl patch deployment llama --patch "$removal" >/dev/null
names=$(kubectl get deployment llama -o jsonpath='{.spec.template.spec.initContainers[*].name}')
[ "$names" = own ] || fail "after the removal, the init containers are: $names"
kubectl patch deployment llama --patch-file "$work/socket.yaml" >/dev/null
mounts=$(kubectl get deployment llama -o jsonpath='{.spec.template.spec.containers[?(@.name=="trtllm-serve")].volumeMounts[*].mountPath}')
[ "$mounts" = /run/trtllm-exporter ] || fail "the server's container has the mounts: $mounts"
say "helm upgrade: TLS, standalone, NetworkPolicy; kubectl patch: the socket"

# Create the pods of the templates, as a controller would do, because the namespace enforces Pod Security "restricted" for pods.
pod_of() { # KIND NAME NAMESPACE
  kubectl --namespace "$3" get "$1" "$2" -o json | python3 -c '
import json, sys
template = json.load(sys.stdin)["spec"]["template"]
template["spec"].pop("serviceAccountName", None), template["spec"].pop("serviceAccount", None)
template["spec"].pop("runtimeClassName", None)  # there is no RuntimeClass here
print(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": template["metadata"]["labels"]}, "spec": template["spec"]}))'
}
pod_of daemonset trtllm-exporter-gpu monitoring | kubectl --namespace monitoring create --dry-run=server -f - >/dev/null
pod_of deployment trtllm-exporter monitoring | kubectl --namespace monitoring create --dry-run=server -f - >/dev/null
say "the pods are admitted in a namespace that enforces Pod Security restricted"
"$helm" upgrade trtllm-exporter $chart --namespace monitoring --reuse-values --set gpuNodes.podResources=true >/dev/null 2>&1
if pod_of daemonset trtllm-exporter-gpu monitoring | kubectl --namespace monitoring create --dry-run=server -f - >"$work/refused" 2>&1; then
  fail "a pod with a hostPath volume is admitted"
fi
grep -q 'violates PodSecurity "restricted' "$work/refused" || fail "$(cat "$work/refused")"
say "the pods with podResources are refused there, as documented"

"$helm" upgrade trtllm-exporter $chart --namespace monitoring --reuse-values --set gpuNodes.engines.enabled=true >/dev/null 2>&1
can() { kubectl auth can-i "$@" --all-namespaces --as=system:serviceaccount:monitoring:trtllm-exporter 2>/dev/null || true; }
rights="$(can get pods) $(can list pods) $(can watch pods) $(can delete pods) $(can get secrets)"
[ "$rights" = "yes yes yes no no" ] || fail "with gpuNodes.engines, get, list, watch and delete pods, and get secrets: $rights"
say "gpuNodes.engines: the service account may get, list and watch pods, and nothing else"
settings=(--set image.repository=example/trtllm-exporter --set monitoring.operator=always --set standalone.enabled=true
  --set 'standalone.engines[0].source=trtllm-serve:http://llama-0.llama:8000' --set 'monitoring.podTargetLabels={llm-d.ai/variant}'
  --set monitoring.sampleLimit=50000 --set monitoring.labelLimit=30 --set monitoring.labelNameLengthLimit=100 --set monitoring.labelValueLengthLimit=500
  --set 'monitoring.metricRelabelings[0].sourceLabels={__name__}' --set 'monitoring.metricRelabelings[0].regex=nv_trt_llm_rank_.+'
  --set 'monitoring.metricRelabelings[0].action=drop' --set monitoring.proxyUrl=http://proxy:3128 --set monitoring.alerts.overrides.TrtllmRequestsFailing.for=10m
  --set dashboards.folder=LLM --set dashboards.grafanaOperator.enabled=true)
operator=(--set monitoring.jobLabel=team --set monitoring.targetLimit=500 --set monitoring.attachMetadata.node=true
  --set 'monitoring.relabelings[0].targetLabel=cluster' --set 'monitoring.relabelings[0].replacement=eu')
applied() { # NAME ARGUMENT...
  local name=$1; shift
  "$helm" template trtllm-exporter $chart --namespace monitoring --kube-version "$version" "${settings[@]}" "$@" >"$work/objects.yaml" 2>"$work/warnings" || fail "$name: $(cat "$work/warnings")"
  kubectl apply --validate=strict --dry-run=server --server-side --force-conflicts -f "$work/objects.yaml" >/dev/null 2>"$work/warnings" ||
    fail "$name: $(cat "$work/warnings")"
}
for kind in PodMonitor ServiceMonitor; do applied $kind "${operator[@]}" --set monitoring.kind=$kind; done
applied VMPodScrape "${operator[@]}" --set monitoring.kind=VMPodScrape
applied "VMPodScrape with a password" "${operator[@]}" --set monitoring.kind=VMPodScrape --set 'monitoring.sidecarNamespaces={default}' \
  --set web.tlsSecret=tls --set monitoring.basicAuth.username.name=s --set monitoring.basicAuth.username.key=k \
  --set monitoring.tlsConfig.ca.secret.name=ca --set monitoring.tlsConfig.ca.secret.key=ca.crt
applied PodMonitoring --set monitoring.kind=PodMonitoring
applied "PodMonitoring with a password" --set monitoring.kind=PodMonitoring --set 'monitoring.sidecarNamespaces={default}' --set web.tlsSecret=tls \
  --set monitoring.basicAuth.username=u --set monitoring.basicAuth.password.secret.name=s --set monitoring.basicAuth.password.secret.key=k \
  --set monitoring.tlsConfig.insecureSkipVerify=true
say "each kind of monitor, and GrafanaDashboard: applied with strict validation"

kubectl delete deployment llama >/dev/null
needs_native() { [ "$minor" -lt 29 ] && grep -q 'restartPolicy: Always' "$@"; } # FILE
for file in deploy/kubernetes/*.yaml deploy/kubernetes/autoscaling/{hpa,keda,keda-headroom}.yaml deploy/kubernetes/gateway/inferencepool.yaml; do
  needs_native "$file" && continue
  kubectl apply --validate=strict --dry-run=server -f "$file" >/dev/null || fail "$file"
done
kubectl apply --validate=strict --dry-run=server -f deploy/kubernetes/autoscaling/llm-d.yaml >/dev/null
say "examples: applied with strict validation"
for base in gpu-nodes standalone sidecar-monitor rules example; do
  [ $base = example ] && needs_native deploy/kubernetes/kustomize/sidecar/trtllm-serve.yaml && continue
  kubectl apply --validate=strict --dry-run=server --server-side --force-conflicts -k deploy/kubernetes/kustomize/$base >/dev/null || fail "$base"
done
say "kustomize: applied with strict validation"
"$helm" uninstall trtllm-exporter --namespace monitoring >/dev/null
if kubectl get clusterrole,clusterrolebinding -o name | grep trtllm; then fail "rights are left after helm uninstall"; fi
left=$(kubectl --namespace monitoring get all,configmap,podmonitor,servicemonitor,prometheusrule,networkpolicy,serviceaccount -o name | grep -v kube-root-ca || true)
[ -z "$left" ] || fail "left after helm uninstall: $left"
say "helm uninstall leaves nothing"
