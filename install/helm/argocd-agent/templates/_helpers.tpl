{{/* Settings of the role, including those from other values. */}}
{{- define "argocd-agent.settings" -}}
{{- $own := index .Values .Values.role -}}
{{- $settings := dict -}}
{{- if eq .Values.role "agent" -}}
{{- $_ := set $settings "agent-mode" $own.mode -}}
{{- $_ := set $settings "server-address" $own.server -}}
{{- if ne (int $own.port) 443 }}{{ $_ := set $settings "server-port" $own.port }}{{ end -}}
{{- if not $own.live.read }}{{ $_ := set $settings "resource-proxy-reads" false }}{{ $_ := set $settings "resource-proxy-logs" false }}{{ end -}}
{{- if not $own.live.write }}{{ $_ := set $settings "resource-proxy-writes" false }}{{ end -}}
{{- if ne $own.live.callers.mode "ignore" }}{{ $_ := set $settings "resource-proxy-callers" $own.live.callers.mode }}{{ end -}}
{{- if $own.selfUpgrade.enabled }}{{ $_ := set $settings "self-upgrade-deployment" (include "argocd-agent.name" .) }}{{ end -}}
{{- if not $own.live.exec }}{{ $_ := set $settings "resource-proxy-exec" false }}{{ end -}}
{{- end -}}
{{- if include "argocd-agent.shared" . -}}
{{- $_ := set $settings "shared-repo-server-listen" ":8081" -}}
{{- $_ := set $settings "shared-redis-listen" ":6379" -}}
{{- else -}}
{{- $_ := set $settings (ternary "redis-addr" "redis-server-address" (eq .Values.role "agent")) .Values.redis.address -}}
{{- if .Values.redis.secretName }}{{ $_ := set $settings "redis-creds-dir-path" "/etc/argocd-agent/redis" }}{{ end -}}
{{- end -}}
{{- $known := index (.Files.Get "files/settings.yaml" | fromYaml) .Values.role -}}
{{- range $flag, $_ := $settings }}{{ if not (hasKey $known $flag) }}{{ $_ := unset $settings $flag }}{{ end }}{{ end -}}
{{- range $flag, $value := $own.settings -}}
{{- if hasKey $settings $flag }}{{ if has $flag (list "agent-mode" "server-address" "server-port") }}{{ fail (printf "agent.settings.%s: set agent.%s instead" $flag (get (dict "agent-mode" "mode" "server-address" "server" "server-port" "port") $flag)) }}{{ end }}{{ end -}}
{{- $_ := set $settings $flag $value -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}

{{/* Text of a value in an environment variable. Lists and maps are joined with commas. */}}
{{- define "argocd-agent.text" -}}
{{- if kindIs "slice" . }}{{ join "," . }}
{{- else if kindIs "map" . }}{{ $pairs := list }}{{ range $k, $v := . }}{{ $pairs = append $pairs (printf "%s=%s" $k $v) }}{{ end }}{{ join "," $pairs }}
{{- else if kindIs "float64" . }}{{ int64 . }}
{{- else }}{{ . }}{{ end -}}
{{- end -}}

{{/* Port of a setting or its default. Arguments: context, flag, default. */}}
{{- define "argocd-agent.port" -}}
{{- $own := index (index . 0).Values (index . 0).Values.role -}}
{{- $value := get $own.settings (index . 1) -}}
{{- if kindIs "invalid" $value }}{{ index . 2 }}{{ else if kindIs "string" $value }}{{ index . 2 }}{{ else }}{{ int $value }}{{ end -}}
{{- end -}}

{{/* Not empty for an agent in shared mode. */}}
{{- define "argocd-agent.shared" -}}{{ if and (eq .Values.role "agent") .Values.agent.shared }}yes{{ end }}{{- end -}}

{{/* Not empty if the Redis password is read from a volume. */}}
{{- define "argocd-agent.redisVolume" -}}{{ if not (include "argocd-agent.shared" .) }}{{ .Values.redis.secretName }}{{ end }}{{- end -}}

{{/* Label app.kubernetes.io/name. */}}
{{- define "argocd-agent.label" -}}{{ .Values.nameOverride | default "argocd-agent" }}-{{ .Values.role }}{{- end -}}

{{/* Name of the Deployment, and start of most other names. */}}
{{- define "argocd-agent.name" -}}{{ .Values.fullnameOverride | default (include "argocd-agent.label" .) }}{{- end -}}

{{/* Names of cluster-scoped objects. */}}
{{- define "argocd-agent.clusterName" -}}
{{ include "argocd-agent.name" . }}{{ if ne .Release.Namespace "argocd" }}-{{ .Release.Namespace }}{{ end }}
{{- end -}}

{{- define "argocd-agent.selector" -}}
app.kubernetes.io/name: {{ include "argocd-agent.label" . }}
{{- end -}}

{{/* Labels of pods. They do not change with the chart, so that an upgrade restarts pods only if it changes them. */}}
{{- define "argocd-agent.podLabels" -}}
app.kubernetes.io/name: {{ include "argocd-agent.label" . }}
app.kubernetes.io/component: {{ .Values.role }}
app.kubernetes.io/part-of: argocd-agent
{{- end -}}

{{/* Labels of all other objects. */}}
{{- define "argocd-agent.labels" -}}
{{ include "argocd-agent.podLabels" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Resources of the container. Without a memory limit in the values, that of the sizing formula in docs/operations.md. */}}
{{- define "argocd-agent.resources" -}}
{{- $resources := deepCopy .Values.resources -}}
{{- if and (eq .Values.role "principal") .Values.principal.sizing.agents -}}
{{- with .Values.principal.sizing }}
{{- $kilobytes := add 40000 (mul 100 .agents) (mul 2 .applicationKilobytes .applications) -}}
{{- $_ := set $resources "requests" (merge (dict "memory" (printf "%dMi" (div (mul $kilobytes 1000) 1048576))) ($resources.requests | default dict)) -}}
{{- $_ := set $resources "limits" (merge (dict "memory" (printf "%dMi" (max 512 (div (mul 2 $kilobytes 1000) 1048576)))) ($resources.limits | default dict)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{- define "argocd-agent.serviceAccountName" -}}
{{ .Values.serviceAccount.name | default (include "argocd-agent.name" .) }}
{{- end -}}

{{- define "argocd-agent.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{/* ClusterRoleBinding. Arguments: context, name of the binding, name of the ClusterRole. */}}
{{- define "argocd-agent.clusterBinding" -}}
{{- $ := index . 0 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ index . 1 }}
  labels:
    {{- include "argocd-agent.labels" $ | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ index . 2 }}
subjects:
  - kind: ServiceAccount
    name: {{ include "argocd-agent.serviceAccountName" $ }}
    namespace: {{ $.Release.Namespace }}
{{- end -}}
