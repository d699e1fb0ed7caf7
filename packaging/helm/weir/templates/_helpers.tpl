{{- define "weir.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* Name of the release's objects; 40 characters leave space for suffixes. */}}
{{- define "weir.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "weir.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "weir.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "weir.selector" -}}
app.kubernetes.io/name: {{ include "weir.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "weir.image" -}}
{{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}

{{/* Keys of all pods: no token, no privilege. */}}
{{- define "weir.pod" -}}
serviceAccountName: {{ .Values.serviceAccountName }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "weir.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "weir.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{- define "weir.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Spread over nodes, unless the values have constraints. */}}
{{- define "weir.spread" -}}
topologySpreadConstraints:
{{- if .constraints }}
{{- toYaml .constraints | nindent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "weir.selector" . | nindent 8 }}
{{- end }}
{{- end }}

{{/* Variables and mounts for the connection to NATS of the role in .role. */}}
{{- define "weir.natsVariables" -}}
- name: NATS_URL
{{- if .root.Values.nats.enabled }}
  valueFrom:
    secretKeyRef:
      name: {{ include "weir.fullname" .root }}-nats
      key: {{ .role }}-url
{{- else }}
  value: {{ .root.Values.nats.url | quote }}
{{- end }}
{{- end }}

{{- define "weir.natsArguments" -}}
{{- $arguments := list "--nats" "$(NATS_URL)" -}}
{{- if and (not .root.Values.nats.enabled) .root.Values.nats.credentialsSecret -}}
{{- $arguments = concat $arguments (list "--creds" (printf "/etc/weir-nats/%s.creds" .role)) -}}
{{- end -}}
{{- toJson $arguments -}}
{{- end }}

{{- define "weir.usesCredentials" -}}
{{- if and (not .Values.nats.enabled) .Values.nats.credentialsSecret }}yes{{ end -}}
{{- end }}

{{- define "weir.credentialsVolume" -}}
- name: nats
  secret:
    secretName: {{ .root.Values.nats.credentialsSecret }}
    defaultMode: 0440
    items: [{ key: {{ .role }}.creds, path: {{ .role }}.creds }]
{{- end }}
