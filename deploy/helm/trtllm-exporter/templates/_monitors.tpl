{{/* The API of the objects that monitoring.kind chooses. */}}
{{- define "trtllm-exporter.monitorApi" -}}
{{- get (dict "PodMonitoring" "monitoring.googleapis.com/v1" "VMPodScrape" "operator.victoriametrics.com/v1beta1") .Values.monitoring.kind | default "monitoring.coreos.com/v1" }}
{{- end }}

{{- define "trtllm-exporter.hasOperator" -}}
{{- $found := .Capabilities.APIVersions.Has (include "trtllm-exporter.monitorApi" .) }}
{{- if or (eq .Values.monitoring.operator "always") (and (eq .Values.monitoring.operator "auto") $found) }}true{{ end }}
{{- end }}

{{/* Parameters: root, mode. */}}
{{- define "trtllm-exporter.monitorName" -}}
{{- $name := include "trtllm-exporter.fullname" .root }}
{{- ternary $name (printf "%s-%s" $name .mode) (eq .mode "standalone") }}
{{- end }}

{{/* Metadata of monitors and rules. Parameters: root, name. */}}
{{- define "trtllm-exporter.monitorMetadata" -}}
name: {{ .name | quote }}
namespace: {{ .root.Values.monitoring.namespace | default .root.Release.Namespace | quote }}
labels:
  {{- include "trtllm-exporter.labels" .root | nindent 2 }}
  {{- with .root.Values.monitoring.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The labels of the pods of a mode. Patches and the example manifests set the label of sidecars. Parameters: root, mode. */}}
{{- define "trtllm-exporter.podSelector" -}}
{{- if eq .mode "sidecar" }}
trtllm-exporter: sidecar
{{- else }}
{{- include "trtllm-exporter.selector" (dict "root" .root "component" .mode) }}
{{- end }}
{{- end }}

{{/* How Prometheus connects. Parameter: the root. */}}
{{- define "trtllm-exporter.connection" -}}
{{- $monitoring := .Values.monitoring }}
port: metrics
interval: {{ $monitoring.interval | quote }}
{{- if include "trtllm-exporter.secured" . }}
scheme: https
{{- end }}
{{- range $key := list "basicAuth" "authorization" }}
{{- with index $monitoring $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* A PodMonitor, ServiceMonitor or VMPodScrape. Sidecars have no Service of their own, so a ServiceMonitor cannot find them. Parameters:
root, mode, name. */}}
{{- define "trtllm-exporter.monitor" }}
{{- $root := .root }}
{{- $monitoring := $root.Values.monitoring }}
{{- $sidecar := eq .mode "sidecar" }}
{{- $kind := ternary "PodMonitor" $monitoring.kind (and $sidecar (eq $monitoring.kind "ServiceMonitor")) }}
{{- $victoria := eq $kind "VMPodScrape" }}
{{- $relabelings := list (dict "sourceLabels" (list "__meta_kubernetes_pod_node_name") "targetLabel" "node") }}
{{- if not $monitoring.jobLabel }}
{{- $relabelings = prepend $relabelings (dict "targetLabel" "job" "replacement" $monitoring.jobName) }}
{{- end }}
{{- if $sidecar }}
{{- /* Other containers of the pod may also have a port with this name. */}}
{{- $relabelings = append $relabelings (dict "sourceLabels" (list "__meta_kubernetes_pod_container_name") "regex" "trtllm-exporter" "action" "keep") }}
{{- end }}
{{- $endpoint := include "trtllm-exporter.connection" $root | fromYaml }}
{{- $_ := set $endpoint "scrapeTimeout" $monitoring.scrapeTimeout }}
{{- $_ := set $endpoint (ternary "relabelConfigs" "relabelings" $victoria) (concat $relabelings (default list $monitoring.relabelings)) }}
{{- with $monitoring.metricRelabelings }}{{ $_ := set $endpoint (ternary "metricRelabelConfigs" "metricRelabelings" $victoria) . }}{{ end }}
{{- with $monitoring.tlsConfig }}{{ $_ := set $endpoint "tlsConfig" . }}{{ end }}
{{- with $monitoring.proxyUrl }}{{ $_ := set $endpoint (ternary "proxyURL" "proxyUrl" $victoria) . }}{{ end }}
{{- /* The labels pod, namespace and node of a page name the pod and the node that a series describes. The pods of sidecars belong to other
people, who could write any label. */}}
{{- if and $monitoring.honorLabels (not $sidecar) }}{{ $_ := set $endpoint "honorLabels" true }}{{ end }}
{{- $spec := dict "selector" (dict "matchLabels" (include "trtllm-exporter.podSelector" . | fromYaml)) }}
{{- $_ := set $spec (ternary "endpoints" "podMetricsEndpoints" (eq $kind "ServiceMonitor")) (list $endpoint) }}
{{- if and $sidecar (not $monitoring.sidecarNamespaces) }}
{{- $_ := set $spec "namespaceSelector" (dict "any" true) }}
{{- else if or $sidecar $monitoring.namespace }}
{{- $_ := set $spec "namespaceSelector" (dict "matchNames" (ternary $monitoring.sidecarNamespaces (list $root.Release.Namespace) $sidecar)) }}
{{- end }}
{{- range $key := list "jobLabel" "podTargetLabels" "sampleLimit" | concat (ternary list (list "targetLimit" "labelLimit" "labelNameLengthLimit" "labelValueLengthLimit") $victoria) }}
{{- with index $monitoring $key }}{{ $_ := set $spec $key . }}{{ end }}
{{- end }}
{{- with $monitoring.attachMetadata }}{{ $_ := set $spec (ternary "attach_metadata" "attachMetadata" $victoria) . }}{{ end }}
---
apiVersion: {{ include "trtllm-exporter.monitorApi" $root }}
kind: {{ $kind }}
metadata:
  {{- include "trtllm-exporter.monitorMetadata" . | nindent 2 }}
spec:
  {{- toYaml $spec | nindent 2 }}
{{- end }}

{{/* The same for Google Cloud Managed Service for Prometheus, where the job is the name of the object. Parameters: root, mode, name. */}}
{{- define "trtllm-exporter.podMonitoring" }}
{{- $root := .root }}
{{- $monitoring := $root.Values.monitoring }}
{{- $sidecar := eq .mode "sidecar" }}
{{- $cluster := and $sidecar (not $monitoring.sidecarNamespaces) }}
{{- $endpoint := include "trtllm-exporter.connection" $root | fromYaml }}
{{- $_ := set $endpoint "timeout" $monitoring.scrapeTimeout }}
{{- with $monitoring.tlsConfig }}{{ $_ := set $endpoint "tls" . }}{{ end }}
{{- with $monitoring.proxyUrl }}{{ $_ := set $endpoint "proxyUrl" . }}{{ end }}
{{- $relabeling := default list $monitoring.metricRelabelings }}
{{- if $sidecar }}
{{- $relabeling = prepend $relabeling (dict "sourceLabels" (list "container") "regex" "trtllm-exporter" "action" "keep") }}
{{- end }}
{{- with $relabeling }}{{ $_ := set $endpoint "metricRelabeling" . }}{{ end }}
{{- $limits := dict }}
{{- range $key, $name := dict "sampleLimit" "samples" "labelLimit" "labels" "labelNameLengthLimit" "labelNameLength" "labelValueLengthLimit" "labelValueLength" }}
{{- with index $monitoring $key }}{{ $_ := set $limits $name . }}{{ end }}
{{- end }}
{{- $metadata := list "pod" "container" "node" }}
{{- if $cluster }}{{ $metadata = append $metadata "namespace" }}{{ end }}
{{- $labels := dict "metadata" $metadata }}
{{- range $monitoring.podTargetLabels }}
{{- $from := dict "from" . "to" (regexReplaceAll "[^a-zA-Z0-9_]" . "_") }}
{{- $_ := set $labels "fromPod" (append (default list $labels.fromPod) $from) }}
{{- end }}
{{- $spec := dict "selector" (dict "matchLabels" (include "trtllm-exporter.podSelector" . | fromYaml)) "endpoints" (list $endpoint) "targetLabels" $labels }}
{{- with $limits }}{{ $_ := set $spec "limits" . }}{{ end }}
{{- range $namespace := ternary $monitoring.sidecarNamespaces (list $root.Release.Namespace) (and $sidecar (not $cluster)) }}
---
apiVersion: monitoring.googleapis.com/v1
kind: {{ ternary "ClusterPodMonitoring" "PodMonitoring" $cluster }}
metadata:
  name: {{ $.name | quote }}
  {{- if not $cluster }}
  namespace: {{ $namespace | quote }}
  {{- end }}
  labels:
    {{- include "trtllm-exporter.labels" $root | nindent 4 }}
spec:
  {{- toYaml $spec | nindent 2 }}
{{- end }}
{{- end }}
