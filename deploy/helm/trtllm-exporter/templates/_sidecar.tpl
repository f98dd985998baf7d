{{/*
The parts of a pod template that add the sidecar to your own pod. In a chart that depends on this chart:
  {{- $sidecar := include "trtllm-exporter.sidecar" (dict "root" (index .Subcharts "trtllm-exporter") "sources" (list "auto") "port" 8002) | fromYaml }}
  spec:
    initContainers: {{ toYaml $sidecar.initContainers | nindent 6 }}
    volumes: {{ toYaml $sidecar.volumes | nindent 6 }}
Keys: initContainers or containers (the exporter), volumes, serverMounts (for the server's container, with a socket).
*/}}
{{- define "trtllm-exporter.sidecar" -}}
{{- $root := .root }}
{{- $socket := include "trtllm-exporter.socketFolder" . }}
{{- $secured := include "trtllm-exporter.secured" $root }}
{{- $native := eq $root.Values.sidecar.kind "native" }}
{{- if eq $root.Values.sidecar.kind "auto" }}
{{- $native = semverCompare ">=1.29.0-0" $root.Capabilities.KubeVersion.Version }}
{{- end }}
{{ ternary "initContainers" "containers" $native }}:
  - name: trtllm-exporter
    image: {{ include "trtllm-exporter.image" $root | quote }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy | quote }}
    {{- if $native }}
    restartPolicy: Always
    {{- end }}
    args:
      {{- range .sources }}
      - {{ printf "--source=%s" . | quote }}
      {{- end }}
      {{- with .model }}
      - {{ printf "--model=%s" . | quote }}
      {{- end }}
      # The container requests no GPU, so it sees none. The DaemonSet reads GPUs.
      - --gpu=off
      {{- include "trtllm-exporter.commonArgs" (dict "root" $root "port" .port) | nindent 6 }}
      {{- range $root.Values.sidecar.extraArgs }}
      - {{ . | quote }}
      {{- end }}
    {{- with $root.Values.sidecar.extraEnv }}
    env:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- include "trtllm-exporter.portsAndProbes" (dict "root" $root "port" .port) | nindent 4 }}
    resources:
      {{- toYaml $root.Values.sidecar.resources | nindent 6 }}
    securityContext:
      {{- include "trtllm-exporter.sidecarSecurity" . | nindent 6 }}
    {{- if or $socket $secured $root.Values.sidecar.extraVolumeMounts }}
    volumeMounts:
      {{- if $socket }}
      - name: trtllm-exporter
        mountPath: {{ $socket | quote }}
      {{- end }}
      {{- if $secured }}
      {{- include "trtllm-exporter.webMount" $root | nindent 6 }}
      {{- end }}
      {{- with $root.Values.sidecar.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
{{- if or $socket $secured $root.Values.sidecar.extraVolumes }}
volumes:
  {{- if $socket }}
  - name: trtllm-exporter
    emptyDir:
      medium: Memory
      sizeLimit: 8Mi
  {{- end }}
  {{- if $secured }}
  {{- include "trtllm-exporter.webVolume" (dict "root" $root) | nindent 2 }}
  {{- end }}
  {{- with $root.Values.sidecar.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- if $socket }}
serverMounts:
  - name: trtllm-exporter
    mountPath: {{ $socket | quote }}
{{- end }}
{{- end }}

{{/* The folder of the ingest socket, or nothing. */}}
{{- define "trtllm-exporter.socketFolder" -}}
{{- range .sources }}
{{- if hasPrefix "socket:" . }}{{ dir (trimPrefix "socket:" . | splitList "?" | first) }}{{ end }}
{{- end }}
{{- end }}

{{/* A patch (strategic merge) for a Deployment, StatefulSet or DaemonSet. Parameters: root, name, patch. */}}
{{- define "trtllm-exporter.sidecarPatch" -}}
{{- $sidecar := include "trtllm-exporter.sidecar" (merge (dict "root" .root) .patch) | fromYaml }}
{{- if hasKey $sidecar "Error" }}{{ fail (printf "sidecar.patches.%s: %s" .name $sidecar.Error) }}{{ end }}
{{- $containers := default list $sidecar.containers }}
{{- if $sidecar.serverMounts }}
{{- if not .patch.container }}
{{- fail (printf "sidecar.patches.%s.container is missing; name the server's container, which gets the socket" .name) }}
{{- end }}
{{- $server := dict "name" .patch.container "volumeMounts" $sidecar.serverMounts }}
{{- with .patch.env }}{{ $_ := set $server "env" . }}{{ end }}
{{- $containers = append $containers $server }}
{{- end }}
{{- $spec := dict }}
{{- with $sidecar.initContainers }}{{ $_ := set $spec "initContainers" . }}{{ end }}
{{- with $containers }}{{ $_ := set $spec "containers" . }}{{ end }}
{{- with $sidecar.volumes }}{{ $_ := set $spec "volumes" . }}{{ end }}
{{- toYaml (dict "spec" (dict "template" (dict "metadata" (dict "labels" (dict "trtllm-exporter" "sidecar")) "spec" $spec))) }}
{{- end }}
