# shellcheck shell=bash disable=SC2154  # the variables of kubernetes.sh
# Checks of the Helm chart: lint, the templates of each mode for three versions of Kubernetes, the schema of the values, the
# patches for the sidecar, OpenShift's constraint and the values for GKE. Sourced by kubernetes.sh.
versions=(1.28.0 1.32.0 1.35.0)
image=(--set image.repository=example/trtllm-exporter)
operator=(--api-versions monitoring.coreos.com/v1)
engines=(--set standalone.enabled=true --set 'standalone.engines[0].source=trtllm-serve:http://llama-0.llama:8000'
  --set 'standalone.engines[0].model=llama' --set 'standalone.engines[0].labels.team=search')
everything=("${engines[@]}" --set networkPolicy.enabled=true --set metricsProfile=full --set 'metricsCompat={vllm,dcgm}' --set logFormat=json
  --set 'monitoring.podTargetLabels={llm-d.ai/variant}' --set 'monitoring.sidecarNamespaces={default}' --set 'sidecar.extraArgs={--poll.interval=50ms}'
  --set 'imagePullSecrets[0].name=pull' --set podLabels.team=search --set podAnnotations.note=x
  --set gpuNodes.updateStrategy.rollingUpdate.maxUnavailable=10% --set gpuNodes.priorityClassName=system-node-critical)
for mode in gpuNodes sidecar standalone; do
  everything+=(--set "$mode.extraEnv[0].name=TRTLLM_EXPORTER_LOG_LEVEL" --set "$mode.extraEnv[0].value=debug"
    --set "$mode.extraVolumes[0].name=ca" --set "$mode.extraVolumes[0].configMap.name=ca"
    --set "$mode.extraVolumeMounts[0].name=ca" --set "$mode.extraVolumeMounts[0].mountPath=/etc/ca")
done
mode() { # NAME: sets the variable `values` to the chart's values for this mode
  case $1 in
    gpu-nodes) values=(--set sidecar.enabled=false) ;;
    gpu-nodes-pods) values=(--set sidecar.enabled=false --set gpuNodes.podResources=true --set gpuNodes.privileged=true) ;;
    gpu-nodes-engines) values=(--set sidecar.enabled=false --set gpuNodes.engines.enabled=true --set networkPolicy.enabled=true
      --set 'gpuNodes.engines.selector=app in (a\,b)') ;;
    sidecar) values=(--set gpuNodes.enabled=false) ;;
    standalone-pods) values=(--set gpuNodes.enabled=false --set sidecar.enabled=false --set standalone.enabled=true
      --set 'standalone.engines[0].source=kubernetes:team-a?all_nodes=true' --set networkPolicy.enabled=true) ;;
    standalone) values=(--set gpuNodes.enabled=false --set sidecar.enabled=false "${engines[@]}") ;;
    all) values=("${everything[@]}") ;;
    all-tls) values=("${everything[@]}" --set web.tlsSecret=tls --set web.clientCertificates=true
      --set monitoring.tlsConfig.ca.secret.name=ca --set monitoring.tlsConfig.ca.secret.key=ca.crt) ;;
    all-web-config) values=("${everything[@]}" --set web.configSecret=web --set monitoring.basicAuth.username.name=scrape
      --set monitoring.basicAuth.username.key=user) ;;
  esac
}
modes=(gpu-nodes gpu-nodes-pods gpu-nodes-engines sidecar standalone standalone-pods all all-tls all-web-config)
template() { # VERSION OUT ARGUMENT...
  local version=$1 out=$2; shift 2
  "$helm" template trtllm-exporter "$chart" --namespace monitoring --kube-version "$version" "${image[@]}" "$@" >"$out" 2>"$work/helm.err" ||
    { grep -v 'symbolic link' "$work/helm.err"; return 1; }
}

lint() {
  for mode in "${modes[@]}"; do
    mode "$mode"
    for version in "${versions[@]}"; do
      "$helm" lint --strict --kube-version "$version" "$chart" "${image[@]}" "${values[@]}" || return 1
    done
  done
}
check "chart: helm lint ($("$helm" version --short 2>/dev/null), ${#modes[@]} modes, Kubernetes ${versions[*]})" lint

follows_pods() { # KIND FILE: the only right is to get, list and watch pods, and one pod has the token
  [ "$(grep -c "^kind: $1\$" "$2")" = 1 ] && [ "$(grep -c "^kind: $1Binding\$" "$2")" = 1 ] &&
    [ "$(sed -n '/^rules:/,/^---/p' "$2" | tr -d '\n')" = 'rules:  - apiGroups: [""]    resources: [pods]    verbs: [get, list, watch]---' ] &&
    [ "$(grep -c 'automountServiceAccountToken: true' "$2")" = 1 ] && grep -q 'honorLabels: true' "$2" && return
  echo "the rights to follow pods are not as expected"; return 1
}
render_mode() { # MODE: checks for unknown fields with and without the operator, and Pod Security
  mode "$1"
  for version in "${versions[@]}"; do
    template "$version" "$work/$1-$version.yaml" "${operator[@]}" "${values[@]}" || return 1
    "$manifests" decode "$work/$1-$version.yaml" || return 1
    template "$version" "$work/plain.yaml" "${values[@]}" || return 1
    "$manifests" decode "$work/plain.yaml" || return 1
    if grep -q 'monitoring.coreos.com' "$work/plain.yaml"; then echo "objects of the operator without the operator"; return 1; fi
    case $1 in
      gpu-nodes-engines) follows_pods ClusterRole "$work/$1-$version.yaml" || return 1 ;;
      standalone-pods) follows_pods Role "$work/$1-$version.yaml" || return 1 ;;
      *) if grep -q '^kind: \(Role\|ClusterRole\)\|automount.*true' "$work/$1-$version.yaml"; then echo "the service account has rights"; return 1; fi ;;
    esac
    case $1 in
      gpu-nodes-pods) refused "privileged" "$manifests" restricted "$work/$1-$version.yaml" || return 1 ;;
      sidecar) ;;
      *) "$manifests" restricted "$work/$1-$version.yaml" || return 1 ;;
    esac
  done
}
for name in "${modes[@]}"; do check "chart: mode $name" render_mode "$name"; done

values_are_checked() { # the chart must refuse each invalid value with a message that names it
  local wrong=0
  no() { refused "$1" "$helm" template t "$chart" --kube-version 1.32.0 "${image[@]}" --set "$2" || wrong=1; }
  no "additional properties 'gpuNode' not allowed" gpuNode.enabled=true
  no "additional properties 'runtimeClass' not allowed" gpuNodes.runtimeClass=nvidia
  no "at '/gpuNodes/enabled': got string, want boolean" gpuNodes.enabled=yes
  no "at '/sidecar/kind': value must be one of 'auto', 'native', 'container'" sidecar.kind=both
  no "at '/metricsProfile': value must be one of 'default', 'full'" metricsProfile=small
  no "at '/metricsCompat/0': value must be one of" 'metricsCompat={prometheus}'
  no "at '/monitoring/interval': got number, want string" monitoring.interval=15
  no "at '/sidecar/patches/socket/port': got string, want integer" sidecar.patches.socket.port=metrics
  no "at '/standalone/engines/0': missing property 'source'" 'standalone.engines[0].model=llama'
  no "at '/standalone/engines/0/source'" 'standalone.engines[0].source=http://llama:8000'
  no "standalone.engines is empty; name at least one engine" standalone.enabled=true
  no 'standalone.engines has "kubernetes:a?all_nodes=true", and gpuNodes.engines reads the same pods' \
    'standalone.enabled=true,standalone.engines[0].source=kubernetes:a?all_nodes=true,gpuNodes.engines.enabled=true'
  no "web.clientCertificates needs web.tlsSecret" web.clientCertificates=true
  no "web.tlsSecret and web.configSecret exclude each other" web.tlsSecret=a,web.configSecret=b
  no "sidecar.patches.socket.container is missing" sidecar.patches.socket.container=
  no "at '/image/digest'" image.digest=latest
  no "at '/gpuNodes/updateStrategy/type'" gpuNodes.updateStrategy.type=Recreate
  no "at '/openshift': value must be one of 'auto', 'always', 'never'" openshift=yes
  no "gpuNodes.driverPath needs gpuNodes.privileged: true" gpuNodes.driverPath=/home/kubernetes/bin/nvidia
  no "image.repository is \"\", which is not an image" image.repository=
  no "need monitoring.sidecarNamespaces" monitoring.operator=always,monitoring.basicAuth.username.name=scrape
  no "need monitoring.sidecarNamespaces" monitoring.operator=always,monitoring.authorization.credentials.name=token
  no "at '': missing property 'web'" web=null
  no "at '/monitoring': missing property 'kind'" monitoring.kind=null
  refused "chart requires kubeVersion" "$helm" template t "$chart" --kube-version 1.26.0 || wrong=1
  # The most likely mistake: a user copies the command of docs/kubernetes.md and leaves its placeholder.
  refused 'image.repository is "YOUR-REGISTRY/trtllm-exporter", which is not an image; build the image and push it' \
    "$helm" template t "$chart" --kube-version 1.32.0 || wrong=1
  return $wrong
}
check "chart: wrong values are refused with a message" values_are_checked

# Prometheus must send the password only to pods in the namespaces of the model servers. Without the sidecar, no such pod needs it.
password_stays_in_its_namespaces() {
  local auth=(--set monitoring.basicAuth.username.name=scrape)
  template 1.32.0 "$work/auth.yaml" "${operator[@]}" "${auth[@]}" --set 'monitoring.sidecarNamespaces={llama}' || return 1
  grep -A 2 'namespaceSelector:' "$work/auth.yaml" | grep -q -- '- llama' || { echo "the PodMonitor does not select the namespace"; return 1; }
  template 1.32.0 "$work/auth.yaml" "${operator[@]}" "${auth[@]}" --set sidecar.enabled=false || return 1
  if grep -q 'any: true' "$work/auth.yaml"; then echo "a monitor of any namespace has a password"; return 1; fi
}
check "chart: no password for pods of other namespaces" password_stays_in_its_namespaces

# YAML reads these names as a number or as a boolean unless they are quoted. A strict decoder refuses that.
names_stay_strings() {
  local name
  for name in 1234 0x1f 1e5 true 007 null; do
    "$helm" template "$name" "$chart" --namespace 123 --kube-version 1.32.0 "${operator[@]}" "${image[@]}" "${everything[@]}" \
      --set-string "nameOverride=$name,web.tlsSecret=$name,serviceAccount.name=$name,podLabels.a=$name,gpuNodes.runtimeClassName=$name" \
      --set-string "gpuNodes.priorityClassName=$name,standalone.priorityClassName=$name,image.tag=$name" \
      --set-string 'sidecar.patches.socket.sources={socket:/123/456}' >"$work/names.yaml" 2>"$work/helm.err" || { cat "$work/helm.err"; return 1; }
    "$manifests" decode "$work/names.yaml" || return 1
  done
}
check "chart: names that YAML would read as numbers or booleans" names_stay_strings

# Helm removes a value that is set to null. The chart renders without it, or refuses it in words.
nulls_render_or_are_refused() {
  local key wrong=0
  for key in podSecurityContext securityContext podLabels logFormat openshift metricsProfile metricsCompat monitoring.alerts monitoring.alerts.labels \
    monitoring.alerts.severities monitoring.alerts.overrides monitoring.relabelings monitoring.sampleLimit monitoring.namespace \
    monitoring.objectiveBudget dashboards.folder dashboards.grafanaOperator monitoring.interval image.tag image.pullPolicy gpuNodes.resources gpuNodes.nodeSelector sidecar.kind \
    gpuNodes.updateStrategy standalone.priorityClassName web.tlsSecret networkPolicy.from serviceAccount.name; do
    if ! { template 1.32.0 "$work/null.yaml" "${operator[@]}" "${everything[@]}" --set "$key=null" && "$manifests" decode "$work/null.yaml"; }; then
      echo "$key=null"; wrong=1
    fi
    if grep -n '%!\|<nil>' "$work/null.yaml"; then echo "$key=null"; wrong=1; fi
  done
  return $wrong
}
check "chart: null for a value" nulls_render_or_are_refused

image_is_that_of_the_values() {
  local digest
  digest=sha256:$(printf '%064d' 7)
  template 1.32.0 "$work/image.yaml" --set image.tag=1.2.3 && grep -q 'image: "example/trtllm-exporter:1.2.3"$' "$work/image.yaml" &&
    template 1.32.0 "$work/image.yaml" --set image.tag=1.2.3 --set "image.digest=$digest" &&
    grep -q "image: \"example/trtllm-exporter@$digest\"\$" "$work/image.yaml" && ! grep -q 'image: .*1\.2\.3' "$work/image.yaml"
}
check "chart: the image by tag and by digest" image_is_that_of_the_values

# OpenShift's constraint refuses manifests that set a user id. If OpenShift's API is available, the chart sets no user id. Otherwise it
# sets one, and the constraint must refuse the manifests, which shows that the check can fail.
openshift_admits_the_pods() {
  local name as
  for name in gpu-nodes standalone all all-tls all-web-config; do
    mode "$name"
    for as in "--api-versions security.openshift.io/v1" "--set openshift=always"; do
      # shellcheck disable=SC2086  # a flag and its value
      template 1.32.0 "$work/openshift.yaml" "${operator[@]}" $as "${values[@]}" || return 1
      "$manifests" decode "$work/openshift.yaml" && "$manifests" openshift "$work/openshift.yaml" && "$manifests" restricted "$work/openshift.yaml" || return 1
    done
    refused "runAsUser is not in the range of the namespace" "$manifests" openshift "$work/$name-1.32.0.yaml" || return 1
  done
  refused "privileged is not allowed" "$manifests" openshift "$work/gpu-nodes-pods-1.32.0.yaml" || return 1
  refused "volume pod-resources: this kind is not allowed" "$manifests" openshift "$work/gpu-nodes-pods-1.32.0.yaml" || return 1
  # Patch a server whose own manifest sets no user id.
  sed '/runAsUser\|runAsGroup\|fsGroup/d' "$bases/example/server.yaml" >"$work/server.yaml"
  template 1.32.0 "$work/openshift.yaml" --set openshift=always --set sidecar.patches.socket.container=trtllm-serve || return 1
  for name in trtllm-serve socket; do
    "$manifests" data trtllm-exporter-sidecar $name.yaml "$work/openshift.yaml" >"$work/patch.yaml" &&
      "$manifests" patch "$work/server.yaml" "$work/patch.yaml" >"$work/patched.yaml" && "$manifests" openshift "$work/patched.yaml" || return 1
    if grep -q 'runAsUser\|runAsGroup' "$work/patch.yaml"; then echo "the patch $name names a user"; return 1; fi
  done
}
check "chart: OpenShift's constraint restricted-v2" openshift_admits_the_pods

gke_finds_the_driver() {
  template 1.32.0 "$work/gke.yaml" --values deploy/helm/values-gke.yaml && "$manifests" decode "$work/gke.yaml" || return 1
  "$manifests" json "$work/gke.yaml" | python3 -c '
import json, sys
(pod,) = [o["spec"]["template"]["spec"] for o in map(json.loads, sys.stdin) if o["kind"] == "DaemonSet"]
(container,) = pod["containers"]
(driver,) = [v for v in pod["volumes"] if v["name"] == "driver"]
(mount,) = [m for m in container["volumeMounts"] if m["name"] == "driver"]
assert driver["hostPath"]["path"] == "/home/kubernetes/bin/nvidia" and mount["readOnly"], (driver, mount)
library = mount["mountPath"] + "/lib64/libnvidia-ml.so.1"
assert library in open("crates/gpu/src/nvml.rs").read(), library + " is not where the exporter looks"
assert container["securityContext"]["privileged"] and "runtimeClassName" not in pod and "nodeSelector" not in pod, pod'
}
check "chart: the driver of GKE" gke_finds_the_driver

rules_are_the_file() { "$manifests" rules "$work/all-1.32.0.yaml" deploy/prometheus/{recording,alerts,alerts-gpu}.yml; }
check "chart: the rules are those of deploy/prometheus" rules_are_the_file
alerts_have_labels() {
  template 1.32.0 "$work/alerts.yaml" --set monitoring.operator=always --set monitoring.alerts.labels.team=llm \
    --set monitoring.alerts.severities.critical=page || return 1
  local alerts
  alerts=$(grep -c ' alert: Trtllm' "$work/alerts.yaml")
  if [ "$alerts" -le 30 ] || [ "$(grep -c 'team: llm$' "$work/alerts.yaml")" != "$alerts" ]; then
    echo "not all of $alerts alerts have the label"
    return 1
  fi
  if grep -q 'severity: critical' "$work/alerts.yaml"; then echo "an alert is still critical"; return 1; fi
  [ "$(grep -c 'severity: page' "$work/alerts.yaml")" = "$(grep -c 'severity: critical' deploy/prometheus/alerts.yml)" ]
}
check "chart: alerts have labels and severities of the user" alerts_have_labels
values_of_monitoring() { # promtool is optional here; check.sh selects it by PROMTOOL
  local promtool=${PROMTOOL:-promtool}
  command -v "$promtool" >/dev/null || promtool=""
  python3 tests/judges/chart.py "$helm" "$manifests" ${promtool:+--promtool "$promtool"}
}
check "chart: each value of monitors, alerts and dashboards" values_of_monitoring
dashboards_are_the_files() {
  local file name
  for file in deploy/grafana/*.json; do
    name=$(basename "$file" .json)
    "$manifests" data "trtllm-exporter-${name#trtllm-}" "$name.json" "$work/all-1.32.0.yaml" >"$work/dashboard" || return 1
    diff -q <(cat "$work/dashboard" && echo) "$file" || diff -q "$work/dashboard" "$file" || return 1
  done
}
check "chart: the dashboards are those of deploy/grafana" dashboards_are_the_files

bases_are_generated() {
  mkdir -p "$work/bases" && HELM=$helm "$bases/generate.sh" "$work/bases" || return 1
  diff -r "$work/bases" "$bases" --exclude kustomization.yaml --exclude generate.sh --exclude example ||
    { echo "run $bases/generate.sh"; return 1; }
}
check "kustomize: the bases are those of the chart" bases_are_generated

# Applies the patches of the chart to a Deployment, like "kubectl patch deployment llama --patch-file".
patches_fit() {
  local version
  for version in "${versions[@]}"; do
    "$manifests" data trtllm-exporter-sidecar trtllm-serve.yaml "$work/sidecar-$version.yaml" >"$work/patch.yaml" || return 1
    "$manifests" patch "$bases/example/server.yaml" "$work/patch.yaml" >"$work/patched-$version.yaml" || return 1
    "$manifests" decode "$work/patched-$version.yaml" || return 1
    has_args "$work/patched-$version.yaml" $'--source=auto\t--gpu=off\t--metrics.profile=default' || return 1
  done
  if grep -q 'initContainers' "$work/patched-1.28.0.yaml"; then echo "1.28 has no native sidecars"; return 1; fi
  grep -q 'restartPolicy: Always' "$work/patched-1.32.0.yaml" || { echo "1.32 has native sidecars"; return 1; }
  # The patch mounts the socket in both containers.
  template 1.32.0 "$work/socket.yaml" --set sidecar.patches.socket.container=trtllm-serve || return 1
  "$manifests" data trtllm-exporter-sidecar socket.yaml "$work/socket.yaml" >"$work/patch.yaml" || return 1
  "$manifests" patch "$bases/example/server.yaml" "$work/patch.yaml" >"$work/patched-socket.yaml" || return 1
  "$manifests" decode "$work/patched-socket.yaml" || return 1
  [ "$(grep -c 'mountPath: /run/trtllm-exporter$' "$work/patched-socket.yaml")" = 2 ] || { echo "the socket is not in both containers"; return 1; }
}
check "chart: the sidecar's patches fit a Deployment" patches_fit

# Tests the command of docs/kubernetes.md that removes the exporter. The container "own" precedes the exporter, so a command that
# removes by position would remove "own".
removal_keeps_other_containers() {
  sed -n "s/^kubectl patch deployment llama --patch '\(.*delete.*\)'$/\1/p" docs/kubernetes.md >"$work/removal.yaml"
  [ -s "$work/removal.yaml" ] || { echo "docs/kubernetes.md has no command that removes the exporter"; return 1; }
  echo '{"spec": {"template": {"spec": {"initContainers": [{"name": "own", "image": "own:1"}]}}}}' >"$work/own.yaml"
  "$manifests" patch "$work/patched-1.32.0.yaml" "$work/own.yaml" >"$work/two.yaml" || return 1
  grep -q 'name: trtllm-exporter$' "$work/two.yaml" || { echo "the exporter is not in the Deployment"; return 1; }
  "$manifests" patch "$work/two.yaml" "$work/removal.yaml" >"$work/removed.yaml" || return 1
  if grep -q 'name: trtllm-exporter$' "$work/removed.yaml"; then echo "the exporter is still there"; return 1; fi
  # With this label, no exporter of a node would read the engine.
  if grep -q '^        trtllm-exporter: sidecar' "$work/removed.yaml"; then echo "the pod still has the label of a sidecar"; return 1; fi
  grep -q 'name: own$' "$work/removed.yaml" || { echo "the server's own init container was removed"; return 1; }
}
check "chart: the documented removal takes only the exporter" removal_keeps_other_containers

# Renders the chart of a user, which depends on our chart and includes the sidecar.
users_chart() {
  mkdir -p "$work/user/templates" "$work/user/charts" && cp -rL "$chart" "$work/user/charts/" || return 1
  printf 'apiVersion: v2\nname: user\nversion: 1.0.0\n' >"$work/user/Chart.yaml"
  cat >"$work/user/templates/server.yaml" <<'YAML'
{{- $sidecar := include "trtllm-exporter.sidecar" (dict "root" (index .Subcharts "trtllm-exporter") "sources" (list "auto") "model" "llama" "port" 8002) | fromYaml }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: llama
spec:
  selector:
    matchLabels: {app: llama}
  template:
    metadata:
      labels: {app: llama, trtllm-exporter: sidecar}
    spec:
      initContainers: {{ toYaml $sidecar.initContainers | nindent 8 }}
      containers:
        - name: server
          image: server:1
YAML
  "$helm" template t "$work/user" --kube-version 1.32.0 --set trtllm-exporter.gpuNodes.enabled=false \
    --set trtllm-exporter.image.repository=example/trtllm-exporter >"$work/user.yaml" || return 1
  "$manifests" decode "$work/user.yaml" || return 1
  has_args "$work/user.yaml" $'--source=auto\t--model=llama\t--gpu=off\t--metrics.profile=default'
}
check "chart: a user's chart includes the sidecar" users_chart

packaged() { # the packaged chart must contain the rule files themselves, which are links in the repository
  local name
  "$helm" package "$chart" --destination "$work" || return 1
  for name in recording alerts alerts-gpu; do
    tar -xzOf "$work"/trtllm-exporter-*.tgz "trtllm-exporter/files/$name.yml" | cmp - "deploy/prometheus/$name.yml" || return 1
  done
}
check "chart: helm package" packaged

# Renders the endpoint picker's own chart, which is in its Go module, with our values.
pickers_chart() {
  local module
  module=$(cd "$here/../go/manifests" && env -u GOFLAGS GOTOOLCHAIN=auto "$go" list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api-inference-extension) || return 1
  cp -rL "$module/config/charts" "$work/picker" && chmod -R u+w "$work/picker" || return 1
  "$helm" dependency build "$work/picker/inferencepool" || return 1
  "$helm" template llama "$work/picker/inferencepool" --kube-version 1.32.0 -f deploy/kubernetes/gateway/values.yaml >"$work/picker.yaml" || return 1
  "$manifests" decode "$work/picker.yaml" || return 1
  grep -A 1 -- '--model-server-metrics-port' "$work/picker.yaml" | grep -q '"8002"' || { echo "the picker does not use port 8002"; return 1; }
  grep -q 'path: "/metrics/gateway"' "$work/picker.yaml" || { echo "the picker does not use /metrics/gateway"; return 1; }
}
check "gateway: the picker's own chart takes the values" pickers_chart
