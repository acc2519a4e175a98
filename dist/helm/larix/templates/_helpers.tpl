{{- define "larix.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "larix.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "larix.labels" -}}
{{ include "larix.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "larix.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
{{- end }}

{{- define "larix.secret" -}}
{{ .Values.auth.existingSecret | default (include "larix.name" .) }}
{{- end }}

{{/* The URL of each server, by the name that the headless Service gives it: the place in the list is the server ID. */}}
{{- define "larix.replicas" -}}
{{- $name := include "larix.name" . -}}
{{- $urls := list -}}
{{- range $number := until (int .Values.replicas) -}}
{{- $urls = append $urls (printf "ldap://%s-%d.%s-members.%s.svc.%s:3890" $name $number $name $.Release.Namespace $.Values.clusterDomain) -}}
{{- end -}}
{{ join " " $urls }}
{{- end }}

{{/* What every container here may do: nothing that a server does not need. */}}
{{- define "larix.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "larix.containerSecurity" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
{{- end }}
