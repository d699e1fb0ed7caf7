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

{{/* Secrets for a server at .nats.url, as JSON: name, and files with their keys and the flags that name them. */}}
{{- define "weir.natsSecrets" -}}
{{- $nats := .root.Values.nats -}}
{{- $secrets := list -}}
{{- if not $nats.enabled -}}
{{- with $nats.credentialsSecret -}}
{{- $files := list (dict "key" (printf "%s.creds" $.role) "path" "nats.creds" "flag" "--creds") -}}
{{- $secrets = append $secrets (dict "name" . "files" $files) -}}
{{- end -}}
{{- with $nats.nkeySecret -}}
{{- $files := list (dict "key" (printf "%s.nk" $.role) "path" "nats.nk" "flag" "--nkey") -}}
{{- $secrets = append $secrets (dict "name" . "files" $files) -}}
{{- end -}}
{{- with $nats.tls.caSecret -}}
{{- $secrets = append $secrets (dict "name" . "files" (list (dict "key" "ca.crt" "path" "ca.crt" "flag" "--nats-ca"))) -}}
{{- end -}}
{{- with get $nats.tls (printf "%sSecret" $.role) -}}
{{- $certificate := dict "key" "tls.crt" "path" "tls.crt" "flag" "--nats-cert" -}}
{{- $key := dict "key" "tls.key" "path" "tls.key" "flag" "--nats-key" -}}
{{- $secrets = append $secrets (dict "name" . "files" (list $certificate $key)) -}}
{{- end -}}
{{- end -}}
{{- toJson $secrets -}}
{{- end }}

{{- define "weir.natsArguments" -}}
{{- $arguments := list "--nats" "$(NATS_URL)" -}}
{{- range include "weir.natsSecrets" . | fromJsonArray -}}
{{- range .files -}}
{{- $arguments = concat $arguments (list .flag (printf "/etc/weir-nats/%s" .path)) -}}
{{- end -}}
{{- end -}}
{{- toJson $arguments -}}
{{- end }}

{{- define "weir.natsMount" -}}
{{- if include "weir.natsSecrets" . | fromJsonArray -}}
- { name: nats, mountPath: /etc/weir-nats, readOnly: true }
{{- end -}}
{{- end }}

{{- define "weir.natsVolume" -}}
{{- with include "weir.natsSecrets" . | fromJsonArray -}}
- name: nats
  projected:
    defaultMode: 0440
    sources:
      {{- range . }}
      - secret:
          name: {{ .name }}
          items:
            {{- range .files }}
            - { key: {{ .key }}, path: {{ .path }} }
            {{- end }}
      {{- end }}
{{- end -}}
{{- end }}
