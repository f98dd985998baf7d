{{/* Names and labels. */}}
{{- define "trtllm-exporter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "trtllm-exporter.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- $name := include "trtllm-exporter.name" . }}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "trtllm-exporter.labels" -}}
app.kubernetes.io/name: {{ include "trtllm-exporter.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{/* Labels that select the pods of one mode. Parameters: root, component. */}}
{{- define "trtllm-exporter.selector" -}}
app.kubernetes.io/name: {{ include "trtllm-exporter.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component | quote }}
{{- end }}

{{- define "trtllm-exporter.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "trtllm-exporter.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "trtllm-exporter.image" -}}
{{- $image := .Values.image }}
{{- if or (not $image.repository) (hasPrefix "YOUR-REGISTRY" $image.repository) }}
{{- fail (printf "image.repository is %q, which is not an image; build the image and push it (docs/install.md, \"Build the image\"), then set image.repository to where you pushed it" (default "" $image.repository)) }}
{{- end }}
{{- if $image.digest }}
{{- $image.repository }}@{{ $image.digest }}
{{- else }}
{{- $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* "true" if the exporter has TLS or passwords. */}}
{{- define "trtllm-exporter.secured" -}}
{{- if and .Values.web.tlsSecret .Values.web.configSecret }}
{{- fail "web.tlsSecret and web.configSecret exclude each other; put the certificates into the Secret of web.configSecret" }}
{{- end }}
{{- if and .Values.web.clientCertificates (not .Values.web.tlsSecret) }}
{{- fail "web.clientCertificates needs web.tlsSecret, a Secret with tls.crt, tls.key and ca.crt" }}
{{- end }}
{{- if or .Values.web.tlsSecret .Values.web.configSecret }}true{{ end }}
{{- end }}

{{/* Arguments of all modes. Parameters: root, port. */}}
{{- define "trtllm-exporter.commonArgs" -}}
{{- if ne (int .port) 8002 }}
- {{ printf "--web.listen-address=:%d" (int .port) | quote }}
{{- end }}
{{- if include "trtllm-exporter.secured" .root }}
- --web.config.file=/etc/trtllm-exporter/web/web.yml
- --web.health-address=:8003
{{- end }}
{{- with .root.Values.metricsProfile }}
{{- if ne . "full" }}
- {{ printf "--metrics.profile=%s" . | quote }}
{{- end }}
{{- end }}
{{- with .root.Values.metricsCompat }}
- {{ printf "--metrics.compat=%s" (join "," .) | quote }}
{{- end }}
{{- with .root.Values.logFormat }}
{{- if ne . "logfmt" }}
- {{ printf "--log.format=%s" . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Ports and probes. Parameters: root, port. A probe never needs a certificate or a password. */}}
{{- define "trtllm-exporter.portsAndProbes" -}}
{{- $secured := include "trtllm-exporter.secured" .root }}
ports:
  - name: metrics
    containerPort: {{ .port }}
  {{- if $secured }}
  - name: health
    containerPort: 8003
  {{- end }}
startupProbe:
  httpGet:
    path: /healthz
    port: {{ ternary "health" "metrics" (not (empty $secured)) }}
  periodSeconds: 1
  failureThreshold: 30
livenessProbe:
  httpGet:
    path: /healthz
    port: {{ ternary "health" "metrics" (not (empty $secured)) }}
  periodSeconds: 10
  timeoutSeconds: 2
{{- end }}

{{- define "trtllm-exporter.onOpenshift" -}}
{{- $found := .Capabilities.APIVersions.Has "security.openshift.io/v1" }}
{{- if or (eq .Values.openshift "always") (and (eq .Values.openshift "auto") $found) }}true{{ end }}
{{- end }}

{{/* The security context of a pod. Parameters: root, asRoot. */}}
{{- define "trtllm-exporter.podSecurity" -}}
{{- $context := deepCopy (default dict .root.Values.podSecurityContext) }}
{{- if .asRoot }}
{{- $context = merge (dict "runAsUser" 0 "runAsGroup" 0) (omit $context "runAsNonRoot" "runAsUser" "runAsGroup" "fsGroup") }}
{{- else if include "trtllm-exporter.onOpenshift" .root }}
{{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" }}
{{- end }}
{{- toYaml $context }}
{{- end }}

{{/* The security context of a sidecar. The context of the server's pod is unknown, so this one also sets the user and the seccomp profile. */}}
{{- define "trtllm-exporter.sidecarSecurity" -}}
{{- $pod := pick (default dict .root.Values.podSecurityContext) "runAsNonRoot" "runAsUser" "runAsGroup" "seccompProfile" }}
{{- $context := merge (deepCopy (default dict .root.Values.securityContext)) (deepCopy $pod) }}
{{- if hasKey . "group" }}{{ $_ := set $context "runAsGroup" (int .group) }}{{ end }}
{{- if include "trtllm-exporter.onOpenshift" .root }}{{ $context = omit $context "runAsUser" "runAsGroup" }}{{ end }}
{{- toYaml $context }}
{{- end }}

{{- define "trtllm-exporter.webMount" -}}
- name: trtllm-exporter-web
  mountPath: /etc/trtllm-exporter/web
  readOnly: true
{{- end }}

{{/* The volume of the web configuration: the Secret alone, or the certificates and a generated web.yml. Parameters: root, ownPod. */}}
{{- define "trtllm-exporter.webVolume" -}}
- name: trtllm-exporter-web
  {{- if .root.Values.web.configSecret }}
  secret:
    secretName: {{ .root.Values.web.configSecret | quote }}
    {{- if .ownPod }}
    defaultMode: 0440
    {{- end }}
  {{- else }}
  projected:
    {{- if .ownPod }}
    defaultMode: 0440
    {{- end }}
    sources:
      - secret:
          name: {{ .root.Values.web.tlsSecret | quote }}
      - configMap:
          name: {{ printf "%s-web" (include "trtllm-exporter.fullname" .root) | quote }}
  {{- end }}
{{- end }}

{{/* The namespaces of the sources kubernetes: of the mode "standalone", as JSON. An empty name stands for all namespaces. */}}
{{- define "trtllm-exporter.standaloneNamespaces" -}}
{{- $namespaces := list }}
{{- if .Values.standalone.enabled }}
{{- range .Values.standalone.engines }}
{{- if hasPrefix "kubernetes" .source }}
{{- $namespaces = append $namespaces (regexReplaceAll "^kubernetes:?([^?]*).*$" .source "${1}") }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $namespaces }}
{{- end }}
