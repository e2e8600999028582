{{/* Deployment of a role. Arguments: context, ports (name to number), replicas, strategy. */}}
{{- define "argocd-agent.deployment" -}}
{{- $ := index . 0 }}{{ $ports := index . 1 -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "argocd-agent.name" $ }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- include "argocd-agent.labels" $ | nindent 4 }}
  {{- with $.Values.deploymentAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if not (and (eq $.Values.role "principal") $.Values.principal.autoscaling.enabled) }}
  replicas: {{ index . 2 }}
  {{- end }}
  strategy:
    type: {{ index . 3 }}
  selector:
    matchLabels:
      {{- include "argocd-agent.selector" $ | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "argocd-agent.podLabels" $ | nindent 8 }}
        {{- with $.Values.podLabels }}{{ toYaml . | nindent 8 }}{{ end }}
      annotations:
        argocd-agent.argoproj-labs.io/params: {{ include "argocd-agent.settings" $ | sha256sum | trunc 16 | quote }}
        {{- with $.Values.podAnnotations }}{{ toYaml . | nindent 8 }}{{ end }}
    spec:
      serviceAccountName: {{ include "argocd-agent.serviceAccountName" $ }}
      # Environment variables of Services could be mistaken for settings.
      enableServiceLinks: false
      {{- with $.Values.dnsPolicy }}
      dnsPolicy: {{ . }}
      {{- end }}
      {{- with $.Values.dnsConfig }}
      dnsConfig: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $.Values.hostAliases }}
      hostAliases: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext: {{- toYaml $.Values.podSecurityContext | nindent 8 }}
      {{- with $.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $.Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      containers:
        - name: {{ $.Values.role }}
          image: {{ include "argocd-agent.image" $ | quote }}
          imagePullPolicy: {{ $.Values.image.pullPolicy }}
          args: [{{ $.Values.role }}]
          envFrom:
            - configMapRef:
                name: {{ $.Values.paramsName }}
          {{- $variables := index ($.Files.Get "files/settings.yaml" | fromYaml) $.Values.role }}
          # Ports are fixed by this pod and not set in the ConfigMap.
          env:
            {{- range $name, $port := omit $ports "redis" "repo-server" }}
            - name: {{ index $variables (get (dict "agents" "listen-port") $name | default (printf "%s-port" $name)) }}
              value: {{ $port | quote }}
            {{- end }}
            {{- if and (eq $.Values.role "principal") (not (get $.Values.principal.settings "replica-address")) }}
            # Address for requests that other principal replicas forward.
            - name: {{ index $variables "replica-address" }}
              valueFrom:
                fieldRef:
                  fieldPath: status.podIP
            {{- end }}
            {{- if and (include "argocd-agent.shared" $) $.Values.redis.secretName }}
            # The Redis password that the Argo CD controllers use.
            - name: ARGOCD_AGENT_SHARED_REDIS_PASSWORD
              valueFrom:
                secretKeyRef:
                  name: {{ $.Values.redis.secretName }}
                  key: {{ $.Values.redis.secretKey }}
            {{- end }}
            {{- with $.Values.extraEnv }}{{ toYaml . | nindent 12 }}{{ end }}
          ports:
            {{- range $name, $port := $ports }}
            - name: {{ $name }}
              containerPort: {{ $port }}
            {{- end }}
          {{- if $ports.healthz }}
          # An agent is ready when it is connected.
          readinessProbe:
            httpGet:
              path: /healthz
              port: healthz
            {{- toYaml $.Values.readinessProbe | nindent 12 }}
          livenessProbe:
            httpGet:
              path: /livez
              port: healthz
            {{- toYaml $.Values.livenessProbe | nindent 12 }}
          {{- end }}
          resources: {{- include "argocd-agent.resources" $ | nindent 12 }}
          securityContext: {{- toYaml $.Values.securityContext | nindent 12 }}
          {{- if or (include "argocd-agent.redisVolume" $) $.Values.extraVolumeMounts }}
          volumeMounts:
            {{- if include "argocd-agent.redisVolume" $ }}
            - name: redis
              mountPath: /etc/argocd-agent/redis
              readOnly: true
            {{- end }}
            {{- with $.Values.extraVolumeMounts }}{{ toYaml . | nindent 12 }}{{ end }}
          {{- end }}
      {{- if or (include "argocd-agent.redisVolume" $) $.Values.extraVolumes }}
      volumes:
        {{- with include "argocd-agent.redisVolume" $ }}
        - name: redis
          secret:
            secretName: {{ . }}
            optional: true
            {{- if ne $.Values.redis.secretKey "auth" }}
            items:
              - key: {{ $.Values.redis.secretKey }}
                path: auth
            {{- end }}
        {{- end }}
        {{- with $.Values.extraVolumes }}{{ toYaml . | nindent 8 }}{{ end }}
      {{- end }}
      {{- with $.Values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $.Values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $.Values.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if $.Values.topologySpreadConstraints }}
      topologySpreadConstraints: {{- toYaml $.Values.topologySpreadConstraints | nindent 8 }}
      {{- else if eq $.Values.role "principal" }}
      topologySpreadConstraints:
        {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
        - maxSkew: 1
          topologyKey: {{ . }}
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "argocd-agent.selector" $ | nindent 14 }}
        {{- end }}
      {{- end }}
{{- end -}}

{{/* ConfigMap with the settings. */}}
{{- define "argocd-agent.params" -}}
# Settings by environment variable, see docs/reference. They are read at startup.
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Values.paramsName }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "argocd-agent.labels" . | nindent 4 }}
{{- $variables := index (.Files.Get "files/settings.yaml" | fromYaml) .Values.role }}
data:
  {{- range $flag, $value := include "argocd-agent.settings" . | fromYaml }}
  {{- if ne (include "argocd-agent.text" $value) "" }}
  {{ index $variables $flag }}: {{ include "argocd-agent.text" $value | quote }}
  {{- end }}
  {{- end }}
{{- end -}}

{{/* ServiceMonitor of Prometheus Operator. */}}
{{- define "argocd-agent.metricsService" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "argocd-agent.name" . }}-metrics
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "argocd-agent.labels" . | nindent 4 }}
spec:
  selector:
    {{- include "argocd-agent.selector" . | nindent 4 }}
  ports:
    - name: metrics
      port: {{ include "argocd-agent.port" (list . "metrics-port" (ternary 8000 8181 (eq .Values.role "principal"))) }}
      targetPort: metrics
{{- end -}}

{{- define "argocd-agent.serviceMonitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ include "argocd-agent.name" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "argocd-agent.labels" . | nindent 4 }}
    {{- with .Values.serviceMonitor.labels }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  selector:
    matchLabels:
      {{- include "argocd-agent.selector" . | nindent 6 }}
  endpoints:
    - port: metrics
      interval: {{ .Values.serviceMonitor.interval }}
      {{- with .Values.serviceMonitor.scrapeTimeout }}
      scrapeTimeout: {{ . }}
      {{- end }}
      {{- with .Values.serviceMonitor.relabelings }}
      relabelings: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.serviceMonitor.metricRelabelings }}
      metricRelabelings: {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end -}}

{{/* Pod of helm test. The metrics Service leads only to ready pods, and an agent is ready when it is connected. */}}
{{- define "argocd-agent.test" -}}
apiVersion: v1
kind: Pod
metadata:
  name: {{ include "argocd-agent.name" . }}-test
  namespace: {{ .Release.Namespace }}
  labels:
    {{- /* Not those of our pods: Services must not lead here. */}}
    {{- $labels := include "argocd-agent.labels" . | fromYaml }}
    {{- toYaml (merge (dict "app.kubernetes.io/name" (printf "%s-test" (include "argocd-agent.label" .)) "app.kubernetes.io/component" "test") $labels) | nindent 4 }}
  annotations:
    helm.sh/hook: test
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext: {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: test
      image: {{ include "argocd-agent.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [check, "http://{{ include "argocd-agent.name" . }}-metrics:{{ include "argocd-agent.port" (list . "metrics-port" (ternary 8000 8181 (eq .Values.role "principal"))) }}/metrics"]
      resources:
        requests: {cpu: 10m, memory: 32Mi}
        limits: {memory: 64Mi}
      securityContext: {{- toYaml .Values.securityContext | nindent 8 }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "argocd-agent.podDisruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "argocd-agent.name" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "argocd-agent.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ .Values.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "argocd-agent.selector" . | nindent 6 }}
{{- end -}}

{{/* The NetworkPolicies of Argo CD permit only Argo CD to connect to its Redis and repo-server. This one adds our pods.
Arguments: context, component of Argo CD, port. */}}
{{- define "argocd-agent.policyFor" -}}
{{- $ := index . 0 -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "argocd-agent.name" $ }}-{{ index . 1 }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- include "argocd-agent.labels" $ | nindent 4 }}
spec:
  podSelector:
    matchExpressions:
      {{- $names := list (get $.Values.argocd (index . 1 | camelcase | untitle)) }}
      {{- if eq (index . 1) "redis" }}{{ $names = append $names "argocd-redis-ha-haproxy" }}{{ end }}
      - {key: app.kubernetes.io/name, operator: In, values: [{{ join ", " (uniq $names) }}]}
  policyTypes: [Ingress]
  ingress:
    - from:
        - podSelector:
            matchLabels:
              {{- include "argocd-agent.selector" $ | nindent 14 }}
      ports:
        - port: {{ index . 2 }}
{{- end -}}
