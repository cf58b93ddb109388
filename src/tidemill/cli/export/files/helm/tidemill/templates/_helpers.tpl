{{- define "tidemill.fullname" -}}
{{- $name := .Values.fullnameOverride | default (eq .Release.Name .Chart.Name | ternary .Chart.Name (printf "%s-%s" .Release.Name .Chart.Name)) -}}
{{- $name | trunc 52 | trimSuffix "-" -}}
{{- end }}

{{/* The labels by which selectors find pods, of one component: they must never change. */}}
{{- define "tidemill.selectorLabels" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "tidemill.labels" -}}
{{ include "tidemill.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "tidemill.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "tidemill.fullname" .) "default") -}}
{{- end }}

{{- define "tidemill.attemptNamespace" -}}
{{- .Values.kubernetesExecutor.namespace | default .Release.Namespace -}}
{{- end }}

{{- define "tidemill.attemptServiceAccount" -}}
{{- .Values.kubernetesExecutor.serviceAccount | default (printf "%s-attempt" (include "tidemill.fullname" .)) -}}
{{- end }}

{{- define "tidemill.secretName" -}}
{{- if and (not .Values.store.existingSecret) (not .Values.store.address) -}}
{{- fail "the chart needs a PostgreSQL: set store.existingSecret, or store.address to postgresql://USER:PASSWORD@HOST:PORT/DATABASE" -}}
{{- end -}}
{{- .Values.store.existingSecret | default (include "tidemill.fullname" .) -}}
{{- end }}

{{/* Metadata of the pods of a component; they are replaced when the chart's own Secret changes. */}}
{{- define "tidemill.podMetadata" -}}
labels:
  {{- include "tidemill.labels" . | nindent 2 }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/secret: {{ .root.Values.store | toJson | sha256sum }}
  {{- if .root.Values.kubernetesExecutor.enabled }}
  checksum/executor: {{ .root.Values.kubernetesExecutor | toJson | sha256sum }}
  {{- end }}
  {{- with .root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The parts of a pod that servers and workers share; `values` are those of the component. */}}
{{- define "tidemill.podSpec" -}}
serviceAccountName: {{ include "tidemill.serviceAccountName" .root }}
automountServiceAccountToken: {{ and (eq .component "server") .root.Values.kubernetesExecutor.enabled }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "tidemill.selectorLabels" . | nindent 8 }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: tmp
    emptyDir: {}
  {{- if and (eq .component "server") .root.Values.kubernetesExecutor.enabled }}
  - name: kubernetes-executor
    configMap: {name: {{ include "tidemill.fullname" .root }}-executor}
  {{- end }}
  {{- with .root.Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The parts of a container that servers and workers share. */}}
{{- define "tidemill.container" -}}
image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}"
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
env:
  - name: TIDEMILL_STORE
    valueFrom:
      secretKeyRef: {name: {{ include "tidemill.secretName" .root }}, key: store}
  - name: TIDEMILL_SECRET_KEYS
    valueFrom:
      secretKeyRef: {name: {{ include "tidemill.secretName" .root }}, key: secret_keys, optional: true}
  {{- if and (eq .component "server") .root.Values.kubernetesExecutor.enabled }}
  - name: TIDEMILL_KUBERNETES_CONFIG
    value: /etc/tidemill/executor/kubernetes.toml
  {{- if not (hasKey .root.Values.settings "server_url") }}
  - name: TIDEMILL_SERVER_URL
    value: http://{{ include "tidemill.fullname" .root }}.{{ .root.Release.Namespace }}.svc:{{ .root.Values.service.port }}
  {{- end }}
  {{- end }}
  {{- if and (eq .component "server") .root.Values.ingress.enabled (not (hasKey .root.Values.settings "trusted_proxies")) }}
  - name: TIDEMILL_TRUSTED_PROXIES
    value: "10.0.0.0/8, 100.64.0.0/10, 172.16.0.0/12, 192.168.0.0/16, fc00::/7"
  {{- end }}
  {{- range $name, $value := .root.Values.settings }}
  - name: TIDEMILL_{{ upper $name }}
    value: {{ $value | quote }}
  {{- end }}
  {{- with .root.Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
  {{- if and (eq .component "server") .root.Values.kubernetesExecutor.enabled }}
  - name: kubernetes-executor
    mountPath: /etc/tidemill/executor
    readOnly: true
  {{- end }}
  {{- with .root.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
resources:
  {{- toYaml .values.resources | nindent 2 }}
{{- end }}
