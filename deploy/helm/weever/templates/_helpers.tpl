{{- define "weever.labels" -}}
app.kubernetes.io/name: weever
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "weever.driver" -}}
{{ .Values.serviceAccount.driver | default (printf "%s-driver" .Release.Name) }}
{{- end }}

{{- define "weever.executor" -}}
{{ .Values.serviceAccount.executor | default (printf "%s-executor" .Release.Name) }}
{{- end }}

{{- /* What driver and executors have alike: who they are, what they may, and where secrets come from. */}}
{{- define "weever.pod" -}}
{{- with .Values.secrets }}
envFrom:
  {{- range . }}
  - secretRef: {name: {{ . | quote }}}
  {{- end }}
{{- end }}
{{- with .Values.env }}
env:
  {{- range $name, $value := . }}
  - {name: {{ $name | quote }}, value: {{ $value | quote }}}
  {{- end }}
{{- end }}
podSecurityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "weever.placement" -}}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
